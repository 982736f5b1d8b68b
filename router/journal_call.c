/* /requests and /requests/ID: one look into the journal, on the reader's thread, between a request
 * and its answer. An operator sees all, others what is their tenant's. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "router/journal_read.h"
#include "router/router_internal.h"

struct journal_call {
    struct exchange_owner owner; /* first */
    struct router *router;
    struct http_exchange *exchange; /* NULL once the client is gone */
    char id[HTTP_REQUEST_ID_BYTES]; /* empty: the latest ones */
    const char *tenant;             /* whose, of the router's keys; NULL: all */
    /* The reader's between submit and done. */
    struct text_job job;
    struct buffer answer;
    struct error error;
    enum status status;
};

static struct journal_call *of_job(struct text_job *job)
{
    return (struct journal_call *)(void *)((char *)job - offsetof(struct journal_call, job));
}

static void run(struct text_job *job)
{
    struct journal_call *call = of_job(job);
    const char *path = journal_path(call->router->journal);
    if (!path) {
        call->status = error_set(&call->error, STATUS_IO, "The journal is not open now.");
        return;
    }
    call->status =
        call->id[0]
            ? journal_read_request(path, call->tenant, call->id, &call->answer, &call->error)
            : journal_read_recent(path, call->tenant, &call->answer, &call->error);
}

static void done(struct text_job *job)
{
    struct journal_call *call = of_job(job);
    struct router *router = call->router;
    const bool answered = call->exchange != NULL;
    if (answered && call->status == STATUS_OK)
        routes_reply(call->exchange, 200, "application/json", &call->answer);
    else if (answered)
        routes_reply_error(call->exchange, 503, "journal_unavailable", NULL, call->error.text);
    buffer_free(&call->answer);
    free(call);
    if (answered)
        router_session_ended(router); /* it may have been the last one of a drain */
}

static void on_client_gone(struct exchange_owner *owner)
{
    ((struct journal_call *)(void *)owner)->exchange = NULL;
}

static void start(struct router *router, struct http_exchange *exchange, const struct api_key *key,
                  const char *id)
{
    struct journal_call *call = calloc(1, sizeof *call);
    CHECK(call != NULL);
    *call = (struct journal_call){
        .owner.on_gone = on_client_gone, .router = router, .exchange = exchange};
    snprintf(call->id, sizeof call->id, "%s", id);
    if (key && !api_key_is_operator(key))
        call->tenant = api_key_tenant(key);
    call->job = (struct text_job){.run = run, .done = done, .bytes = sizeof *call};
    if (text_pool_submit(router->reader, &call->job) != STATUS_OK) {
        free(call);
        routes_reply_error(exchange, 503, "overloaded", NULL,
                           "Too many others are reading the journal.");
        return;
    }
    http_exchange_set_context(exchange, &call->owner);
}

void journal_call_recent(struct router *router, struct http_exchange *exchange,
                         const struct http_request *request, struct api_key *key)
{
    start(router, exchange, key, "");
}

void journal_call_find(struct router *router, struct http_exchange *exchange,
                       const struct http_request *request, struct api_key *key)
{
    const char *id = request->path + sizeof ROUTES_REQUEST_PATH - 1;
    if (strlen(id) == 0 || strlen(id) >= HTTP_REQUEST_ID_BYTES) {
        routes_reply_error(exchange, 404, "not_found", NULL,
                           "An id of 1 to 128 characters must follow /requests/.");
        return;
    }
    start(router, exchange, key, id);
}
