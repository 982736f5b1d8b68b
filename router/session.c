/* A session's life: the request machine's events in, its actions carried out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "router/router_internal.h"
#include "transfer/fault.h"

/* Bits of a request id that count requests of one router instance. */
enum { ID_COUNTER_BITS = 40, DEADLINE_MAX_MS = 86400000 };

static uint64_t now_ns(const struct session *session)
{
    return loop_now_ns(session->router->loop);
}

/* ---- messages to workers ---- */

static void fill_job(struct session *session, struct msg_job *job)
{
    const struct openai_request *parsed = &session->parsed;
    const uint64_t now = now_ns(session), deadline = session->request.total_deadline_ns;
    const uint64_t left_ms = deadline > now ? (deadline - now) / NS_PER_MS : 0;
    *job = (struct msg_job){
        .request = session->request.id,
        .attempt = session->request.attempt,
        .remaining_ms = left_ms > 0 ? (uint32_t)left_ms : 1, /* 0 would say that there is none */
        .prompt_count = (uint32_t)parsed->prompt.count,
        .tokens = {parsed->prompt.ids, (uint32_t)parsed->prompt.count},
        .max_tokens = parsed->max_tokens,
        .min_tokens = parsed->min_tokens,
        .ignore_eos = parsed->ignore_eos,
        .choices = parsed->choices,
        .stop_ids = {parsed->stop_ids.ids, (uint32_t)parsed->stop_ids.count},
        .scores = parsed->scores,
        .end_logprobs = parsed->logprobs,
        .cache_salt = parsed->cache_salt,
        .traceparent = wire_str(session->traceparent),
        .grammar_kind = parsed->grammar.kind,
        .grammar = {(const uint8_t *)parsed->grammar.source.data,
                    (uint32_t)parsed->grammar.source.size},
    };
    openai_sampling_tell(&parsed->sampling, &job->sampling);
    job->sampling.logprobs = parsed->logprobs;
    job->sampling.top_logprobs = parsed->top_logprobs;
}

/* To the decode or the prefill node of the request. */
static enum status dispatch(struct session *session, worker_handle worker, enum message_id id,
                            const void *message)
{
    switch (fault_at(FAULT_DISPATCH)) {
    case FAULT_DROP:
        return STATUS_OK;
    case FAULT_REFUSE:
        return STATUS_REFUSED;
    default:
        return fleet_send(session->router->fleet, worker, id, message);
    }
}

/* What a worker is told before anything of the request may come back from it. */
static enum status send_reserve(struct session *session)
{
    struct msg_reserve reserve = {.local = session->request.prefill == 0,
                                  .lease_ms = session->router->options.lease_ms,
                                  .local_tokens = session->request.placement.local_tokens};
    fill_job(session, &reserve.job);
    return dispatch(session, session->request.decode, MESSAGE_ID_RESERVE, &reserve);
}

static enum status send_prefill(struct session *session, const struct msg_reserved *reserved)
{
    struct msg_prefill prefill = {0};
    fill_job(session, &prefill.job);
    if (session->request.decode != 0) {
        CHECK(reserved != NULL);
        prefill.handoff = reserved->handoff;
        prefill.ticket = reserved->ticket;
        prefill.boot_id = reserved->boot_id;
        prefill.address = reserved->address;
        prefill.cached_tokens = reserved->cached_tokens;
    }
    return dispatch(session, session->request.prefill, MESSAGE_ID_PREFILL, &prefill);
}

static void send_cancel(struct session *session, const struct request_action *action)
{
    const bool all = action->choice == REQUEST_ALL_CHOICES;
    const uint32_t count = all ? session->request.choice_count : 1;
    struct msg_cancel cancel = {.request = session->request.id,
                                .attempt = action->attempt,
                                .choice = all ? 0 : action->choice};
    /* A worker that can not be told is lost, and forgets the request by itself. */
    for (uint32_t i = 0; i < count; i++, cancel.choice++)
        fleet_send(session->router->fleet, action->worker, MESSAGE_ID_CANCEL, &cancel);
}

/* ---- actions ---- */

/* By the end of the first choice. */
static void measure_finish(struct session *session)
{
    const bool matched = session->choices[0].answer.match.matched >= 0;
    enum request_finish finish =
        matched ? REQUEST_FINISH_STOP_STRING : session->request.choices[0].finish;
    if (session->parsed.prompt_only)
        finish = REQUEST_FINISH_LENGTH; /* whatever the token was that nobody is told */
    session_measure_outcome(session,
                            matched                           ? METRIC_FINISH_STOP_STRING
                            : finish == REQUEST_FINISH_LENGTH ? METRIC_FINISH_LENGTH
                                                              : METRIC_FINISH_STOP,
                            request_finish_name(finish));
}

/* The client left, or was told that another of its prompts failed. */
static void measure_drop(struct session *session)
{
    if (session->reply->failed)
        session_measure_outcome(session, METRIC_FINISH_ERROR, "sibling_failed");
    else
        session_measure_outcome(session, METRIC_FINISH_CANCELLED, "cancelled");
}

static void perform(struct session *session, const struct request_action *action,
                    const struct msg_reserved *reserved, struct session_next *next)
{
    const struct request *request = &session->request;
    bool slow = false;
    switch (action->kind) {
    case ACTION_PLACE:
        session_choose(session, next);
        break;
    case ACTION_RESERVE:
        if (send_reserve(session) != STATUS_OK)
            session_next_failure(next, request->decode, 503, "worker_unavailable",
                                 "The decode node does not take requests any more.");
        break;
    case ACTION_PREFILL:
        if (send_prefill(session, reserved) != STATUS_OK)
            session_next_failure(next, request->prefill, 503, "worker_unavailable",
                                 "The prefill node does not take requests any more.");
        break;
    case ACTION_CANCEL:
        send_cancel(session, action);
        break;
    case ACTION_RELEASE_PREFILL:
        session_release(session, action->worker, WORKER_PREFILL);
        break;
    case ACTION_RELEASE_DECODE:
        session_release(session, action->worker, WORKER_DECODE);
        break;
    case ACTION_SCORE:
        session_score(session, &action->step);
        break;
    case ACTION_DELIVER:
        session_release_reading(session);
        if (session_deliver(session, &action->step, &slow))
            session_next_stop(next, action->step.choice);
        else if (slow)
            session_next_event(next, EVENT_SLOW_READER);
        if (slow)
            session_add(session, METRIC_SLOW_READERS, 1);
        break;
    case ACTION_CHOICE_END:
        session_end_choice(session, action->choice);
        break;
    case ACTION_FINISH:
        session_finish(session);
        measure_finish(session);
        break;
    case ACTION_FAIL:
        session_measure_outcome(session, METRIC_FINISH_ERROR, "failed");
        session_fail(session);
        break;
    case ACTION_DROP:
        measure_drop(session);
        session_drop(session);
        break;
    }
}

/* ---- life ---- */

static void give_slot_back(struct session *session)
{
    struct router *router = session->router;
    struct session_slot *slot = &router->slots[session->slot];
    CHECK(session->request.state == REQUEST_ENDED && !session->queued);
    slot->session = NULL;
    slot->next_free = router->first_free;
    router->first_free = session->slot;
    router->session_count--;
    if (session->model)
        session->model->session_count--;
    loop_timer_destroy(session->timer);
    request_free(&session->request);
}

void session_free(struct session *session)
{
    if (session->timer)
        give_slot_back(session);
    for (uint32_t i = 0; i < session->choice_count; i++)
        session_choice_free(&session->choices[i]);
    free(session->choices);
    session_scores_free(session);
    free(session->pages.hashes);
    if (session->parse_status == STATUS_OK)
        openai_request_free(&session->parsed);
    buffer_free(&session->body);
    free(session);
}

void session_set_timer(struct session *session)
{
    const uint64_t deadline = request_deadline_ns(&session->request);
    if (deadline == session->timer_ns)
        return;
    session->timer_ns = deadline;
    if (deadline == 0) {
        loop_timer_stop(session->timer);
        return;
    }
    const uint64_t now = now_ns(session);
    const uint64_t left_ms = deadline > now ? (deadline - now + NS_PER_MS - 1) / NS_PER_MS : 0;
    loop_timer_start(session->timer, left_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)left_ms, 0);
}

static void on_timer(void *arg)
{
    struct session *session = arg;
    session->timer_ns = 0; /* it has to be set again, also when it came a little early */
    const struct request_event event = {.kind = EVENT_DEADLINE};
    session_feed(session, &event);
}

/* Leaving RESERVING, the request from the queue has shown whether there is room. */
static void settle_probe(struct session *session)
{
    struct served_model *model = session->model;
    if (model && model->probe == session && session->request.state != REQUEST_RESERVING) {
        model->probe = NULL;
        loop_task_schedule(session->router->pump);
    }
}

/* place has seen to the queue already when it led to something. */
static void after_state_change(struct session *session, enum request_state from, bool placing)
{
    const enum request_state to = session->request.state;
    if (from == to)
        return;
    LOG_DEBUG("request %016llx: %s to %s", (unsigned long long)session->request.id,
              request_state_name(from), request_state_name(to));
    if (to == REQUEST_QUEUED && !placing) {
        session_enqueue(session);
        loop_task_schedule(session->router->pump); /* another node may have room */
    }
    if (to == REQUEST_PREFILLING && !session->prompt_counted) {
        session->prompt_counted = true;
        session_add(session, METRIC_PROMPT_TOKENS, session->request.prompt_tokens);
    }
    if (to == REQUEST_ENDED) {
        session_dequeue(session);
        if (session->key)
            api_key_charge(session->key, session_token_count(session), now_ns(session));
    }
    if (to != REQUEST_ENDED)
        session_put_journal(session);
    else if (session_reply_is_settled(session->reply))
        session_measure_end(session);
    settle_probe(session);
}

/* reserved: of EVENT_RESERVED, for the PREFILL that follows. */
static void feed(struct session *session, const struct request_event *first,
                 const struct msg_reserved *reserved)
{
    struct session_next next = {.set = true, .event = *first};
    while (next.set) {
        const struct session_next now = next;
        struct request_event event = now.event;
        if (event.failure == &next.failure)
            event.failure = &now.failure;
        if (event.placement == &next.placement)
            event.placement = &now.placement;
        next.set = false;
        const enum request_state from = session->request.state;
        struct request_actions actions;
        request_handle(&session->request, &event, now_ns(session), &actions);
        for (uint32_t i = 0; i < actions.count; i++)
            perform(session, &actions.items[i], reserved, &next);
        after_state_change(session, from, next.set);
    }
    session_set_timer(session);
    if (session->request.state != REQUEST_ENDED)
        return;
    struct router *router = session->router;
    if (!session->job_out) /* else when the text thread gives it back */
        session_reply_release(session->reply);
    router_session_ended(router);
}

void session_feed(struct session *session, const struct request_event *event)
{
    feed(session, event, NULL);
}

void session_feed_reserved(struct session *session, const struct request_event *event,
                           const struct msg_reserved *reserved)
{
    feed(session, event, reserved);
}

void session_place(struct session *session)
{
    struct session_next next = {0};
    session_choose(session, &next);
    feed(session, &next.event, NULL);
}

struct session *session_find(const struct router *router, uint64_t id)
{
    const uint64_t slot = id & (((uint64_t)1 << router->slot_bits) - 1);
    if (slot >= router->slot_count)
        return NULL;
    struct session *session = router->slots[slot].session;
    return session && session->request.id == id && session->request.state != REQUEST_ENDED ? session
                                                                                           : NULL;
}

/* ---- beginning ---- */

static void run_job(struct text_job *job)
{
    struct session *session =
        (struct session *)(void *)((char *)job - offsetof(struct session, job));
    session->job_status =
        openai_request_parse(session->endpoint, session->body.data, session->body.size,
                             session->rules, &session->parsed, &session->parse_error);
    if (!session_keeps_text(session))
        buffer_free(&session->body);
    if (session->job_status != STATUS_OK)
        return;
    session_hash_pages(session, session->parsed.rules->page_tokens);
    session_reply_split(session);
}

static void make_choices(struct session *session)
{
    const uint32_t count = session->parsed.choices;
    session->choices = calloc(count, sizeof *session->choices);
    CHECK(session->choices != NULL);
    session->choice_count = session->request.choice_count = count;
    session->head.request = &session->parsed;
    for (uint32_t i = 0; i < count; i++)
        session_choice_init(session, i);
    session_scores_init(session);
}

/* Which model the body names, also when something else in it is wrong. */
static void take_model(struct session *session)
{
    const struct openai_rules *rules = session->parsed.rules;
    if (!rules)
        return;
    session->model = &session->router->models[rules->model];
    session->model->session_count++;
    session->head.model = session->model->name;
    session->head.text = session->model->text;
    if (session->affinity[0])
        session->affinity_key =
            hash64(session->affinity, strlen(session->affinity), session->model->index);
}

void session_begin(struct session *session)
{
    session->request.prompt_tokens = (uint32_t)session->parsed.prompt.count;
    session->request.max_tokens = session->parsed.max_tokens;
    session->request.reports_wanted = session->parsed.timings;
    session->request.scores_wanted = session->parsed.scores > 0;
    make_choices(session);
    const struct request_event event = {.kind = EVENT_ENCODED};
    session_feed(session, &event);
}

static void fail_beginning(struct session *session, int http_status, const char *code,
                           const char *text)
{
    struct request_failure failure;
    request_failure_set(&failure, http_status, code, "%s", text);
    const struct request_event event = {.kind = EVENT_FAILED, .failure = &failure};
    session_feed(session, &event);
}

/* Each prompt of a body takes a place of --max-requests. */
static void refuse_prompts(struct session *session)
{
    const struct router *router = session->router;
    struct request_failure failure;
    request_failure_set(&failure, 503, "overloaded",
                        "The body has %u prompts, and of %u requests at once %u are there already.",
                        session->group_count, router->slot_count, router->session_count - 1);
    failure.retry_s = session_retry_s(router);
    session_add(session, METRIC_REFUSED_CAPACITY, 1);
    const struct request_event event = {.kind = EVENT_FAILED, .failure = &failure};
    session_feed(session, &event);
}

static void job_done(struct text_job *job)
{
    struct session *session =
        (struct session *)(void *)((char *)job - offsetof(struct session, job));
    session->job_out = false;
    session->parse_status = session->job_status;
    session_cut_body(session);
    take_model(session);
    if (session->request.state == REQUEST_ENDED)
        session_reply_release(session->reply); /* the client left meanwhile */
    else if (session->parse_status != STATUS_OK)
        fail_beginning(session, session->parse_error.http_status, session->parse_error.code,
                       session->parse_error.message);
    else if (session_reply_begin(session) != STATUS_OK)
        refuse_prompts(session);
}

static uint64_t take_slot(struct router *router, struct session *session)
{
    struct session_slot *slot = &router->slots[router->first_free];
    session->slot = router->first_free;
    router->first_free = slot->next_free;
    router->session_count++;
    slot->session = session;
    const uint64_t counter_mask = ((uint64_t)1 << (ID_COUNTER_BITS - router->slot_bits)) - 1;
    const uint64_t generation = ++slot->generation & counter_mask;
    return router->instance << ID_COUNTER_BITS | generation << router->slot_bits | session->slot;
}

/* One that is too long names nobody. */
static void take_affinity(struct session *session, const struct http_exchange *exchange)
{
    const char *affinity = http_exchange_header(exchange, "X-Session-Affinity");
    if (affinity && strlen(affinity) < sizeof session->affinity)
        snprintf(session->affinity, sizeof session->affinity, "%s", affinity);
}

/* A time in whole milliseconds that the client gives its request. */
static enum status take_deadline(struct session *session, const struct http_exchange *exchange,
                                 struct openai_error *error)
{
    const char *text = http_exchange_header(exchange, "X-Deadline-Ms");
    if (!text)
        return STATUS_OK;
    uint64_t value = 0;
    const char *digit = text;
    for (; *digit >= '0' && *digit <= '9' && value <= DEADLINE_MAX_MS; digit++)
        value = value * 10 + (uint64_t)(*digit - '0');
    if (*digit || value == 0 || value > DEADLINE_MAX_MS)
        return openai_error_set(error, 400, "X-Deadline-Ms", NULL,
                                "X-Deadline-Ms is \"%.32s\"; it must be a whole number of "
                                "milliseconds from 1 to %u.",
                                text, DEADLINE_MAX_MS);
    session->deadline_ms = (uint32_t)value;
    return STATUS_OK;
}

void session_open(struct session *session, uint64_t accepted_ns)
{
    struct router *router = session->router;
    const uint64_t id = take_slot(router, session);
    request_init(&session->request, id, &router->limits, accepted_ns);
    if (session->deadline_ms > 0)
        request_limit(&session->request, session->deadline_ms);
    session->timer = loop_timer_create(router->loop, on_timer, session);
    session_put_journal(session);
    session_set_timer(session);
}

static void refuse(struct router *router, struct http_exchange *exchange, const char *text)
{
    const uint32_t retry_s = session_retry_s(router);
    struct openai_error error;
    openai_error_set(&error, 503, NULL, "overloaded", "%s; try again in %u s.", text, retry_s);
    error.retry_after_s = retry_s;
    metrics_add(router->metrics, METRIC_REQUESTS_FAULT, 1);
    metrics_add(router->metrics, METRIC_REFUSED_CAPACITY, 1);
    http_reply_error(exchange, &error);
}

void session_start(struct router *router, enum openai_endpoint endpoint, struct api_key *key,
                   struct http_exchange *exchange, const struct http_request *http)
{
    if (router->session_count == router->slot_count) {
        char text[ERROR_TEXT_BYTES];
        snprintf(text, sizeof text, "The server has %u requests, as many as it takes at once",
                 router->slot_count);
        refuse(router, exchange, text);
        return;
    }
    struct session *session =
        calloc(1, sizeof *session + router->model_count * sizeof session->rules[0]);
    CHECK(session != NULL);
    *session = (struct session){
        .router = router, .endpoint = endpoint, .key = key, .parse_status = STATUS_PENDING};
    buffer_add(&session->body, http->body, http->body_bytes);
    session->body_bytes = http->body_bytes;
    session->job = (struct text_job){
        .run = run_job, .done = job_done, .bytes = session->body.size + sizeof *session};
    served_models_rules(router, session->rules);
    snprintf(session->client_id, sizeof session->client_id, "%s", http->request_id);
    take_affinity(session, exchange);
    trace_context_read(http_exchange_header(exchange, "traceparent"), &session->trace);
    trace_context_write(&session->trace, session->traceparent);
    struct openai_error error;
    if (take_deadline(session, exchange, &error) != STATUS_OK) {
        buffer_free(&session->body);
        free(session);
        metrics_add(router->metrics, METRIC_REQUESTS_BAD, 1);
        http_reply_error(exchange, &error);
        return;
    }
    if (text_pool_submit(router->pool, &session->job) != STATUS_OK) {
        buffer_free(&session->body);
        free(session);
        refuse(router, exchange,
               "The bodies that wait to be tokenised are as many as there may be");
        return;
    }
    session->job_out = true;
    session_reply_init(session, exchange);
    session_open(session, now_ns(session));
    openai_head_init(&session->head, endpoint, session->request.id,
                     (int64_t)(clock_wall_ms() / 1000), router->models[0].name,
                     router->models[0].text);
}
