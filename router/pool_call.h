/* A request that is answered by one job of a pool: what it needs between the two.
 *
 * Whoever makes one puts it first in a struct of its own, with what its work needs. The loop's
 * thread begins and ends it; `work` has it between. When the client leaves meanwhile the work is
 * done for nobody. */
#ifndef BATON_ROUTER_POOL_CALL_H
#define BATON_ROUTER_POOL_CALL_H

#include "router/router_internal.h"

struct pool_call {
    struct exchange_owner owner; /* first */
    struct router *router;
    struct http_exchange *exchange; /* NULL once the client is gone */
    /* On a thread of the pool: OK with the answer's body, else what `refuse` tells. */
    enum status (*work)(struct pool_call *call, struct buffer *answer);
    void (*refuse)(struct pool_call *call); /* answers the exchange */
    void (*free)(struct pool_call *call);   /* it and all it holds */
    /* The pool's between submit and done. */
    struct text_job job;
    struct buffer answer;
    enum status status;
};

/* bytes: what it holds, for the pool's limit. router, work, refuse and free are set. BUSY: the pool
 * takes no more; it is freed then, and the exchange is still to be answered. */
enum status pool_call_start(struct pool_call *call, struct text_pool *pool,
                            struct http_exchange *exchange, size_t bytes);

#endif
