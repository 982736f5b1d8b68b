#include "router/pool_call.h"

#include <stddef.h>

static struct pool_call *of_job(struct text_job *job)
{
    return (struct pool_call *)(void *)((char *)job - offsetof(struct pool_call, job));
}

static void run(struct text_job *job)
{
    struct pool_call *call = of_job(job);
    call->status = call->work(call, &call->answer);
}

static void done(struct text_job *job)
{
    struct pool_call *call = of_job(job);
    struct router *router = call->router;
    const bool answered = call->exchange != NULL;
    if (answered && call->status == STATUS_OK)
        routes_reply(call->exchange, 200, "application/json", &call->answer);
    else if (answered)
        call->refuse(call);
    buffer_free(&call->answer);
    call->free(call);
    if (answered)
        router_session_ended(router); /* it may have been the last one of a drain */
}

static void on_client_gone(struct exchange_owner *owner)
{
    ((struct pool_call *)(void *)owner)->exchange = NULL;
}

enum status pool_call_start(struct pool_call *call, struct text_pool *pool,
                            struct http_exchange *exchange, size_t bytes)
{
    call->owner.on_gone = on_client_gone;
    call->exchange = exchange;
    call->job = (struct text_job){.run = run, .done = done, .bytes = bytes};
    const enum status status = text_pool_submit(pool, &call->job);
    if (status != STATUS_OK) {
        call->free(call);
        return status;
    }
    http_exchange_set_context(exchange, &call->owner);
    return STATUS_OK;
}
