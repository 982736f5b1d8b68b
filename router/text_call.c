/* /tokenize and /detokenize: one job of the text pool between a request and its answer. */
#include <stddef.h>
#include <stdlib.h>

#include "base/check.h"
#include "router/openai_tokenize.h"
#include "router/router_internal.h"

typedef enum status text_call_work(const char *body, size_t bytes, const struct openai_rules *rules,
                                   struct buffer *out, struct openai_error *error);

struct text_call {
    struct exchange_owner owner; /* first */
    struct router *router;
    struct http_exchange *exchange; /* NULL once the client is gone */
    /* The text thread's between submit and done. */
    struct text_job job;
    text_call_work *work;
    struct buffer body, answer;
    struct openai_error error;
    enum status status;
    struct openai_rules rules[]; /* [model_count] */
};

static struct text_call *of_job(struct text_job *job)
{
    return (struct text_call *)(void *)((char *)job - offsetof(struct text_call, job));
}

static void run(struct text_job *job)
{
    struct text_call *call = of_job(job);
    call->status =
        call->work(call->body.data, call->body.size, call->rules, &call->answer, &call->error);
}

static void call_free(struct text_call *call)
{
    buffer_free(&call->body);
    buffer_free(&call->answer);
    free(call);
}

static void done(struct text_job *job)
{
    struct text_call *call = of_job(job);
    struct router *router = call->router;
    const bool answered = call->exchange != NULL;
    if (answered && call->status == STATUS_OK)
        routes_reply(call->exchange, 200, "application/json", &call->answer);
    else if (answered)
        http_reply_error(call->exchange, &call->error);
    call_free(call);
    if (answered)
        router_session_ended(router); /* it may have been the last one of a drain */
}

static void on_client_gone(struct exchange_owner *owner)
{
    ((struct text_call *)(void *)owner)->exchange = NULL;
}

static void start(struct router *router, struct http_exchange *exchange,
                  const struct http_request *request, text_call_work *work)
{
    struct text_call *call = calloc(1, sizeof *call + router->model_count * sizeof call->rules[0]);
    CHECK(call != NULL);
    *call = (struct text_call){
        .owner.on_gone = on_client_gone, .router = router, .exchange = exchange, .work = work};
    served_models_rules(router, call->rules);
    buffer_add(&call->body, request->body, request->body_bytes);
    call->job =
        (struct text_job){.run = run, .done = done, .bytes = call->body.size + sizeof *call};
    if (text_pool_submit(router->pool, &call->job) != STATUS_OK) {
        call_free(call);
        metrics_add(router->metrics, METRIC_REQUESTS_FAULT, 1);
        routes_reply_error(exchange, 503, "overloaded", NULL,
                           "Too many requests wait to be tokenised.");
        return;
    }
    http_exchange_set_context(exchange, &call->owner);
}

void text_call_tokenize(struct router *router, struct http_exchange *exchange,
                        const struct http_request *request, struct api_key *key)
{
    start(router, exchange, request, openai_tokenize);
}

void text_call_detokenize(struct router *router, struct http_exchange *exchange,
                          const struct http_request *request, struct api_key *key)
{
    start(router, exchange, request, openai_detokenize);
}
