/* Several prompts in one body: a session each, which answer one exchange together. Each finds its
 * own nodes and ends as any other; the first that fails ends all. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "router/router_internal.h"

static void on_client_gone(struct exchange_owner *owner)
{
    struct session_reply *reply = (struct session_reply *)(void *)owner;
    reply->exchange = NULL;
    session_reply_abandon(reply);
}

void session_reply_init(struct session *first, struct http_exchange *exchange)
{
    struct session_reply *reply = &first->own_reply;
    *reply = (struct session_reply){.owner.on_gone = on_client_gone,
                                    .exchange = exchange,
                                    .members = &reply->only,
                                    .only = first,
                                    .member_count = 1,
                                    .open_count = 1,
                                    .held = 1};
    first->reply = reply;
    http_exchange_set_context(exchange, &reply->owner);
}

void session_reply_split(struct session *first)
{
    struct openai_request *parsed = &first->parsed;
    if (parsed->more_count == 0)
        return;
    first->group_count = parsed->more_count + 1;
    first->group = calloc(first->group_count, sizeof(struct session *));
    CHECK(first->group != NULL);
    first->group[0] = first;
    for (uint32_t i = 0; i < parsed->more_count; i++) {
        struct session *session = calloc(1, sizeof *session);
        CHECK(session != NULL);
        *session = (struct session){.router = first->router,
                                    .reply = &first->own_reply,
                                    .prompt_index = i + 1,
                                    .trace = first->trace,
                                    .deadline_ms = first->deadline_ms,
                                    .key = first->key,
                                    .endpoint = first->endpoint,
                                    .parsed = parsed->more[i],
                                    .parse_status = STATUS_OK};
        memcpy(session->client_id, first->client_id, sizeof session->client_id);
        memcpy(session->traceparent, first->traceparent, sizeof session->traceparent);
        memcpy(session->affinity, first->affinity, sizeof session->affinity);
        session_hash_pages(session, session->parsed.rules->page_tokens);
        first->group[i + 1] = session;
    }
    free(parsed->more);
    parsed->more = NULL;
    parsed->more_count = 0;
}

enum status session_reply_begin(struct session *first)
{
    struct session_reply *reply = first->reply;
    const struct router *router = first->router;
    const uint32_t count = first->group ? first->group_count : 1;
    if (count - 1 > router->slot_count - router->session_count)
        return STATUS_BUSY;
    if (first->group)
        reply->members = first->group;
    reply->member_count = reply->open_count = count;
    reply->held += count; /* one for the walk below */
    for (uint32_t i = 1; i < count; i++) {
        struct session *session = reply->members[i];
        session->head = first->head;
        session->model = first->model;
        session->model->session_count++;
        session->affinity_key = first->affinity_key;
        session_open(session, first->request.times.accepted_ns);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (reply->members[i]->request.state == REQUEST_TOKENISING)
            session_begin(reply->members[i]);
    }
    session_reply_release(reply);
    return STATUS_OK;
}

void session_reply_abandon(struct session_reply *reply)
{
    const struct request_event event = {.kind = EVENT_CLIENT_GONE};
    if (reply->abandoned)
        return;
    reply->abandoned = true;
    reply->held++;
    for (uint32_t i = 0; i < reply->member_count; i++) {
        if (reply->members[i]->request.state != REQUEST_ENDED)
            session_feed(reply->members[i], &event);
    }
    session_reply_release(reply);
}

bool session_reply_is_settled(const struct session_reply *reply)
{
    return reply->http_status != 0 || reply->abandoned;
}

void session_reply_release(struct session_reply *reply)
{
    CHECK(reply->held > 0);
    if (--reply->held > 0)
        return;
    CHECK(reply->exchange == NULL);
    struct session *first = reply->members[0];
    /* Those that had their tokens while others had not. */
    for (uint32_t i = 0; i < reply->member_count; i++)
        session_measure_end(reply->members[i]);
    for (uint32_t i = 1; i < first->group_count; i++)
        session_free(first->group[i]);
    free(first->group);
    session_free(first);
}
