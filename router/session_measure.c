/* What is written down of a session: its record in the journal, its share in the metrics. */
#include <stdio.h>

#include "base/clock.h"
#include "router/router_internal.h"

static void copy_node(const struct session *session, worker_handle handle,
                      char out[JOURNAL_NAME_BYTES])
{
    const struct fleet_worker *worker = fleet_find(session->router->fleet, handle);
    snprintf(out, JOURNAL_NAME_BYTES, "%s", worker ? worker->node : "");
}

/* Why it failed: of those that another one took along, why that did. */
static const char *reason_of(const struct session *session)
{
    const struct session *failed = session->reply->failed ? session->reply->failed : session;
    return failed->parse_status == STATUS_INVALID ? failed->parse_error.message
                                                  : failed->request.failure.text;
}

void session_put_journal(struct session *session)
{
    const struct request *request = &session->request;
    struct journal_request record = {
        .id = request->id,
        .endpoint = session->endpoint == OPENAI_CHAT ? "chat" : "completions",
        .state = request_state_name(request->state),
        .prompt_tokens = request->prompt_tokens,
        .max_tokens = request->max_tokens,
        .output_tokens = session_token_count(session),
        .outcome = session->outcome,
        .http_status = session->reply->http_status,
    };
    snprintf(record.client_id, sizeof record.client_id, "%s", session->client_id);
    if (session->key)
        snprintf(record.tenant, sizeof record.tenant, "%s", api_key_tenant(session->key));
    snprintf(record.trace_id, sizeof record.trace_id, "%s", session->trace.id);
    snprintf(record.model, sizeof record.model, "%s", session->model ? session->model->name : "");
    copy_node(session, request->prefill, record.prefill);
    copy_node(session, request->decode, record.decode);
    if (request->times.first_ns > 0 && !session->parsed.prompt_only)
        record.first_token_us = (request->times.first_ns - request->times.accepted_ns) / NS_PER_US;
    if (request->state == REQUEST_ENDED) {
        record.duration_us = (request->times.ended_ns - request->times.accepted_ns) / NS_PER_US;
        snprintf(record.reason, sizeof record.reason, "%.*s", JOURNAL_REASON_BYTES - 1,
                 reason_of(session));
    }
    journal_put_request(session->router->journal, &record);
}

static void observe_span(const struct session *session, enum router_metric metric, uint64_t from_ns,
                         uint64_t to_ns)
{
    session_observe(session, metric, to_ns > from_ns ? (double)(to_ns - from_ns) / NS_PER_S : 0);
}

/* The stages add up to the whole. A prompt that ends at prefill reserves nothing. */
static void measure_first_token(struct session *session, uint64_t now_ns)
{
    const struct request *request = &session->request;
    const struct request_times *times = &request->times;
    const uint64_t reserved_ns = times->reserved_ns > 0 ? times->reserved_ns : times->placed_ns;
    observe_span(session, METRIC_TTFT, times->accepted_ns, now_ns);
    observe_span(session, METRIC_TTFT_TOKENISE, times->accepted_ns, times->encoded_ns);
    observe_span(session, METRIC_TTFT_QUEUE, times->encoded_ns, times->placed_ns);
    observe_span(session, METRIC_TTFT_RESERVE, times->placed_ns, reserved_ns);
    observe_span(session, METRIC_TTFT_PREFILL, reserved_ns, now_ns);
}

static void measure_cached(const struct session *session)
{
    const struct request *request = &session->request;
    session_add(session, METRIC_PROMPT_TOKENS_CACHED,
                request->cached_tokens < request->prompt_tokens ? request->cached_tokens
                                                                : request->prompt_tokens);
}

void session_measure_token(struct session *session, struct session_choice *choice,
                           bool first_of_step)
{
    if (!session->token_seen)
        measure_cached(session);
    if (session->parsed.prompt_only) { /* workers were asked for one that nobody is told */
        session->token_seen = true;
        return;
    }
    session_add(session, METRIC_OUTPUT_TOKENS, 1);
    if (!first_of_step)
        return; /* tokens that came together have no gap */
    const uint64_t now_ns = loop_now_ns(session->router->loop);
    if (!session->token_seen)
        measure_first_token(session, now_ns);
    else if (choice->last_token_ns != 0)
        observe_span(session, METRIC_ITL, choice->last_token_ns, now_ns);
    session->token_seen = true;
    choice->last_token_ns = now_ns;
}

void session_measure_outcome(struct session *session, enum router_metric metric,
                             const char *outcome)
{
    session->outcome = outcome;
    session_add(session, metric, 1);
}

/* Of a request whose body was sound. */
static void measure_sizes(struct session *session, uint32_t tokens)
{
    const struct request *request = &session->request;
    session_observe(session, METRIC_PROMPT_LENGTH, request->prompt_tokens);
    session_observe(session, METRIC_OUTPUT_LENGTH, tokens);
    session_observe(session, METRIC_MAX_TOKENS,
                    session->parsed.prompt_only ? 0 : request->max_tokens);
    session_observe(session, METRIC_CHOICES, session->choice_count);
    const uint32_t kind = session->parsed.grammar.kind;
    if (kind > 0)
        session_add(session, (enum router_metric)(METRIC_GRAMMAR_REQUESTS + kind - 1), 1);
}

static void measure_end(struct session *session)
{
    const struct request_times *times = &session->request.times;
    const int status = session->reply->http_status;
    session_add(session,
                status == 0    ? METRIC_REQUESTS_CANCELLED
                : status < 400 ? METRIC_REQUESTS_OK
                : status < 500 ? METRIC_REQUESTS_BAD
                               : METRIC_REQUESTS_FAULT,
                1);
    observe_span(session, METRIC_REQUEST_TIME, times->accepted_ns, times->ended_ns);
    session_add(session, METRIC_PREFILL_RETRIES, session->request.barred_count);
    session_add(session, METRIC_TOKENS_OVERTAKEN, session->request.overtaken);
    session_add(session, METRIC_TOKENS_DUPLICATE, session->request.duplicates);
    if (times->reserved_ns > 0)
        observe_span(session, METRIC_QUEUE_TIME, times->accepted_ns, times->reserved_ns);
    const uint32_t tokens = session_token_count(session);
    if (session->choice_count > 0)
        measure_sizes(session, tokens);
    if (times->last_ns == 0)
        return;
    const uint64_t served_ns = times->reserved_ns > 0 ? times->reserved_ns : times->placed_ns;
    observe_span(session, METRIC_SERVED_TIME, served_ns, times->last_ns);
    if (!session->parsed.prompt_only)
        observe_span(session, METRIC_ANSWER_TIME, times->first_ns, times->last_ns);
    /* The end of several answers says nothing of the pace of one. */
    if (session->choice_count == 1 && tokens > 1 && times->last_ns > times->first_ns)
        session_observe(session, METRIC_TPOT,
                        (double)(times->last_ns - times->first_ns) / NS_PER_S / (tokens - 1));
}

void session_measure_end(struct session *session)
{
    if (session->measured)
        return;
    session->measured = true;
    measure_end(session);
    session_log_end(session);
    session_put_journal(session);
}
