/* What is logged of a session: lines with its ids as fields, and of its text what --log-text lets
 * through, which by default is nothing. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "router/router_internal.h"

/* Of a body and of an answer, each; the log cuts longer lines anyway. */
enum { TEXT_LOGGED_BYTES = 1500 };

bool session_keeps_text(const struct session *session)
{
    return session->router->options.log_text != ROUTER_LOG_TEXT_NONE;
}

void session_cut_body(struct session *session)
{
    if (session->body.size <= TEXT_LOGGED_BYTES)
        return;
    struct buffer kept = {0};
    buffer_add(&kept, session->body.data, TEXT_LOGGED_BYTES);
    buffer_free(&session->body);
    session->body = kept;
}

void session_keep_answer(const struct session *session, struct session_choice *choice)
{
    const struct answer *answer = &choice->answer;
    struct buffer *said = &choice->said;
    if (!session_keeps_text(session) || said->size >= TEXT_LOGGED_BYTES)
        return;
    CHECK(said->size >= answer->out_offset); /* it holds all that was taken */
    const size_t known = said->size - answer->out_offset;
    const size_t fresh = answer->out.size - known, room = TEXT_LOGGED_BYTES - said->size;
    if (fresh > 0)
        buffer_add(said, answer->out.data + known, fresh < room ? fresh : room);
}

/* The ids of a session as fields of a line. */
struct subject {
    char request[17];
    struct log_field fields[5];
};

static void subject_init(struct subject *subject, const struct session *session)
{
    snprintf(subject->request, sizeof subject->request, "%016llx",
             (unsigned long long)session->request.id);
    subject->fields[0] = (struct log_field){"request", subject->request};
    subject->fields[1] = (struct log_field){"client_id", session->client_id};
    subject->fields[2] =
        (struct log_field){"tenant", session->key ? api_key_tenant(session->key) : NULL};
    subject->fields[3] =
        (struct log_field){"trace_id", session->trace.id[0] ? session->trace.id : NULL};
    subject->fields[4] = (struct log_field){"model", session->model ? session->model->name : NULL};
}

#define LOG_SUBJECT(level, subject, ...)                                                           \
    log_write_with(level, (subject)->fields, ARRAY_COUNT((subject)->fields), __VA_ARGS__)

static void log_text(const struct session *session, const struct subject *subject, bool failed)
{
    const enum router_log_text wanted = session->router->options.log_text;
    if (wanted == ROUTER_LOG_TEXT_NONE || (wanted == ROUTER_LOG_TEXT_ERRORS && !failed))
        return;
    LOG_SUBJECT(LOG_LEVEL_INFO, subject, "body: %.*s", TEXT_LOGGED_BYTES,
                session->body.data ? session->body.data : "");
    struct buffer said = {0}; /* one choice after the other */
    for (uint32_t i = 0; i < session->choice_count && said.size < TEXT_LOGGED_BYTES; i++)
        buffer_add(&said, session->choices[i].said.data, session->choices[i].said.size);
    LOG_SUBJECT(LOG_LEVEL_INFO, subject, "answer: %.*s", TEXT_LOGGED_BYTES,
                said.data ? said.data : "");
    buffer_free(&said);
}

void session_log_end(const struct session *session)
{
    struct subject subject;
    const struct request *request = &session->request;
    const bool failed = session->outcome && strcmp(session->outcome, "failed") == 0;
    const int status = failed ? request->failure.http_status : 0;
    subject_init(&subject, session);
    /* A 503 has its cause elsewhere, where it is logged once and not once a request; how much time
     * there is may be the client's choice. */
    if (status == 504 && session->deadline_ms > 0)
        LOG_SUBJECT(LOG_LEVEL_INFO, &subject, "the client's deadline passed: %s",
                    request->failure.text);
    else if (status >= 500 && status != 503)
        LOG_SUBJECT(LOG_LEVEL_WARN, &subject, "the request failed: %s", request->failure.text);
    else if (!session->outcome || strcmp(session->outcome, "cancelled") == 0)
        LOG_SUBJECT(LOG_LEVEL_INFO, &subject, "the request is cancelled");
    else
        LOG_SUBJECT(LOG_LEVEL_DEBUG, &subject, "the request ended: %s, %u tokens", session->outcome,
                    session_token_count(session));
    log_text(session, &subject, failed);
}
