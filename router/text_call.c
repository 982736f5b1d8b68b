/* /tokenize and /detokenize: one job of the text pool between a request and its answer. */
#include <stdlib.h>

#include "base/check.h"
#include "router/openai_tokenize.h"
#include "router/pool_call.h"

typedef enum status text_call_work(const char *body, size_t bytes, const struct openai_rules *rules,
                                   struct buffer *out, struct openai_error *error);

struct text_call {
    struct pool_call call; /* first */
    text_call_work *work;
    struct buffer body;
    struct openai_error error;
    struct openai_rules rules[]; /* [model_count] */
};

static enum status work(struct pool_call *call, struct buffer *answer)
{
    struct text_call *self = (struct text_call *)(void *)call;
    return self->work(self->body.data, self->body.size, self->rules, answer, &self->error);
}

static void refuse(struct pool_call *call)
{
    http_reply_error(call->exchange, &((struct text_call *)(void *)call)->error);
}

static void call_free(struct pool_call *call)
{
    struct text_call *self = (struct text_call *)(void *)call;
    buffer_free(&self->body);
    free(self);
}

static void start(struct router *router, struct http_exchange *exchange,
                  const struct http_request *request, text_call_work *wanted)
{
    struct text_call *self = calloc(1, sizeof *self + router->model_count * sizeof self->rules[0]);
    CHECK(self != NULL);
    self->call =
        (struct pool_call){.router = router, .work = work, .refuse = refuse, .free = call_free};
    self->work = wanted;
    served_models_rules(router, self->rules);
    buffer_add(&self->body, request->body, request->body_bytes);
    const size_t bytes = self->body.size + sizeof *self;
    if (pool_call_start(&self->call, router->pool, exchange, bytes) == STATUS_OK)
        return;
    routes_reply_error(exchange, 503, "overloaded", NULL,
                       "Too many requests wait to be tokenised.");
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
