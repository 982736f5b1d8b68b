/* /requests and /requests/ID: one look into the journal, on the reader's thread, between a request
 * and its answer. An operator sees all, others what is their tenant's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "router/journal_read.h"
#include "router/pool_call.h"

struct journal_call {
    struct pool_call call;          /* first */
    char id[HTTP_REQUEST_ID_BYTES]; /* empty: the latest ones */
    const char *tenant;             /* whose, of the router's keys; NULL: all */
    struct error error;
};

static enum status work(struct pool_call *call, struct buffer *answer)
{
    struct journal_call *self = (struct journal_call *)(void *)call;
    const char *path = journal_path(call->router->journal);
    if (!path)
        return error_set(&self->error, STATUS_IO, "The journal is not open now.");
    return self->id[0] ? journal_read_request(path, self->tenant, self->id, answer, &self->error)
                       : journal_read_recent(path, self->tenant, answer, &self->error);
}

static void refuse(struct pool_call *call)
{
    routes_reply_error(call->exchange, 503, "journal_unavailable", NULL,
                       ((struct journal_call *)(void *)call)->error.text);
}

static void call_free(struct pool_call *call)
{
    free(call);
}

static void start(struct router *router, struct http_exchange *exchange, const struct api_key *key,
                  const char *id)
{
    struct journal_call *self = calloc(1, sizeof *self);
    CHECK(self != NULL);
    self->call =
        (struct pool_call){.router = router, .work = work, .refuse = refuse, .free = call_free};
    snprintf(self->id, sizeof self->id, "%s", id);
    if (key && !api_key_is_operator(key))
        self->tenant = api_key_tenant(key);
    if (pool_call_start(&self->call, router->reader, exchange, sizeof *self) != STATUS_OK)
        routes_reply_error(exchange, 503, "overloaded", NULL,
                           "Too many others are reading the journal.");
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
