/* The movers that are built in, by name. */
#include "transfer/mover_internal.h"

#include <string.h>

#include "base/check.h"

#if BATON_HAS_UCX
#define UCX_ROW  &mover_ucx_ops,
#define UCX_NAME "ucx, "
const char mover_default_name[] = "ucx";
#else
#define UCX_ROW
#define UCX_NAME ""
const char mover_default_name[] = "tls";
#endif

const struct mover_ops *mover_by_name(const char *name, const char **names_out)
{
    static const struct mover_ops *const movers[] = {UCX_ROW & mover_tls_ops, &mover_loopback_ops};
    if (names_out)
        *names_out = UCX_NAME "tls, loopback";
    for (size_t i = 0; i < ARRAY_COUNT(movers); i++)
        if (strcmp(movers[i]->name, name) == 0)
            return movers[i];
    return NULL;
}
