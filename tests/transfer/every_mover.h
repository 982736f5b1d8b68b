/* The movers that one suite runs through the same cases: a row here for each. */
#ifndef BATON_TESTS_EVERY_MOVER_H
#define BATON_TESTS_EVERY_MOVER_H

#include <criterion/criterion.h>

#include "base/crypto_tls.h"
#include "transfer/mover.h"

/* Whom the tests' TLS movers believe. */
static const uint8_t every_mover_key[TLS_KEY_BYTES] = {1, 2, 3};
static const struct tls_identity every_mover_tls = {.key = every_mover_key};

/* A mover that is not built in has its cases skipped, with a word. */
static inline const struct mover_ops *mover_of_case(const char *name)
{
    const char *names = "";
    const struct mover_ops *ops = mover_by_name(name, &names);
    if (!ops)
        cr_skip_test("the mover %s is not built in, there is: %s", name, names);
    return ops;
}

#define MOVER_CASE_OF(suite, mover, name)                                                          \
    Test(suite, mover##_##name)                                                                    \
    {                                                                                              \
        name(mover_of_case(#mover));                                                               \
    }

/* Movers between processes: those that can see one die. */
#define PROCESS_MOVER_OF(suite, name)                                                              \
    static void name(const struct mover_ops *ops);                                                 \
    MOVER_CASE_OF(suite, ucx, name)                                                                \
    MOVER_CASE_OF(suite, tls, name)                                                                \
    static void name(const struct mover_ops *ops)

/* static void CASE(const struct mover_ops *ops) follows. */
#define EVERY_MOVER_OF(suite, name)                                                                \
    static void name(const struct mover_ops *ops);                                                 \
    MOVER_CASE_OF(suite, loopback, name)                                                           \
    PROCESS_MOVER_OF(suite, name)

#endif
