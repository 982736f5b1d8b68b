/* The movers that one suite runs through the same cases: a row here for each. */
#ifndef BATON_TESTS_EVERY_MOVER_H
#define BATON_TESTS_EVERY_MOVER_H

#include <criterion/criterion.h>

#include "transfer/mover.h"

/* A mover that is not built in has its cases skipped, with a word. */
static inline const struct mover_ops *mover_of_case(const char *name)
{
    const char *names = "";
    const struct mover_ops *ops = mover_by_name(name, &names);
    if (!ops)
        cr_skip_test("the mover %s is not built in, there is: %s", name, names);
    return ops;
}

/* static void CASE(const struct mover_ops *ops) follows. */
#define EVERY_MOVER_OF(suite, name)                                                                \
    static void name(const struct mover_ops *ops);                                                 \
    Test(suite, ucx_##name)                                                                        \
    {                                                                                              \
        name(mover_of_case("ucx"));                                                                \
    }                                                                                              \
    Test(suite, loopback_##name)                                                                   \
    {                                                                                              \
        name(mover_of_case("loopback"));                                                           \
    }                                                                                              \
    static void name(const struct mover_ops *ops)

#endif
