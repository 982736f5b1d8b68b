/* A session's way to its workers: the queue, the choice, what is booked and given back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "router/admission.h"
#include "router/prefix_index.h"
#include "router/router_internal.h"

/* ---- what follows from an action ---- */

void session_next_failure(struct session_next *next, worker_handle worker, int http_status,
                          const char *code, const char *text)
{
    if (next->set)
        return;
    next->set = true;
    request_failure_set(&next->failure, http_status, code, "%s", text);
    next->event =
        (struct request_event){.kind = EVENT_FAILED, .worker = worker, .failure = &next->failure};
}

void session_next_event(struct session_next *next, enum request_event_kind kind)
{
    if (next->set)
        return;
    next->set = true;
    next->event = (struct request_event){.kind = kind};
}

void session_next_stop(struct session_next *next, uint32_t choice)
{
    if (next->set)
        return;
    session_next_event(next, EVENT_STOPPED);
    next->event.choice = choice;
}

/* ---- the queue ---- */

static double turn_ms(const struct session *session)
{
    return admission_turn_ms((double)session->request.times.accepted_ns / NS_PER_MS,
                             session->parsed.priority, session->router->options.priority_wait_ms);
}

/* Of one answer, as placement charges it. */
static uint32_t answer_charge(const struct session *session)
{
    const uint32_t most = session->request.max_tokens;
    return most < PLACEMENT_ANSWER_TOKENS ? most : PLACEMENT_ANSWER_TOKENS;
}

void session_enqueue(struct session *session)
{
    struct served_model *model = session->model;
    struct session *before = NULL;
    TAILQ_FOREACH_REVERSE(before, &model->queue, session_queue, queue_link)
    {
        if (turn_ms(session) >= turn_ms(before))
            break;
    }
    if (before)
        TAILQ_INSERT_AFTER(&model->queue, before, session, queue_link);
    else
        TAILQ_INSERT_HEAD(&model->queue, session, queue_link);
    session->queued = true;
    model->queue_count++;
    model->queue_tokens += session->request.prompt_tokens;
    model->queue_bytes += session->body_bytes;
    model->queue_answers += (uint64_t)session->request.choice_count * answer_charge(session);
}

void session_dequeue(struct session *session)
{
    if (!session->queued)
        return;
    struct served_model *model = session->model;
    TAILQ_REMOVE(&model->queue, session, queue_link);
    session->queued = false;
    model->queue_count--;
    model->queue_tokens -= session->request.prompt_tokens;
    model->queue_bytes -= session->body_bytes;
    model->queue_answers -= (uint64_t)session->request.choice_count * answer_charge(session);
}

/* One that waits asks again with every heartbeat: its waiting is counted once. */
static void count_placement(struct session *session, enum placement_reason reason)
{
    static const enum router_metric rows[PLACEMENT_REASON_COUNT] = {
        [PLACEMENT_PAIR] = METRIC_PLACED_PAIR,
        [PLACEMENT_LOCAL] = METRIC_PLACED_LOCAL,
        [PLACEMENT_UNPAIRED] = METRIC_PLACED_UNPAIRED,
        [PLACEMENT_SHORT] = METRIC_PLACED_SHORT,
        [PLACEMENT_ONE_TOKEN] = METRIC_PLACED_ONE_TOKEN,
        [PLACEMENT_NO_DECODE] = METRIC_PLACED_NO_DECODE,
        [PLACEMENT_FULL] = METRIC_PLACED_FULL,
        [PLACEMENT_TOO_LONG] = METRIC_PLACED_TOO_LONG,
    };
    if (reason == PLACEMENT_FULL && session->wait_counted)
        return;
    session->wait_counted = session->wait_counted || reason == PLACEMENT_FULL;
    session_add(session, rows[reason], 1);
}

/* Placement knows of one answer; each of the others is as many tokens again for a decode node. */
static uint64_t charge_of_others(const struct session *session)
{
    return (uint64_t)(session->request.choice_count - 1) * answer_charge(session);
}

/* ---- placing ---- */

void session_hash_pages(struct session *session, uint32_t page_tokens)
{
    struct fleet_pages *pages = &session->pages;
    const struct token_list *prompt = &session->parsed.prompt;
    free(pages->hashes);
    *pages = (struct fleet_pages){.page_tokens = page_tokens};
    const uint32_t count = page_tokens > 0 ? (uint32_t)prompt->count / page_tokens : 0;
    if (count == 0)
        return;
    pages->hashes = malloc(count * sizeof *pages->hashes);
    CHECK(pages->hashes != NULL);
    pages->count = prefix_hashes(prompt->ids, (uint32_t)prompt->count, page_tokens,
                                 session->parsed.cache_salt, pages->hashes);
}

/* Charges both nodes; they will hold the prompt's pages, so those that begin like it go there. The
 * client's key pays for a prompt when it is first placed: what is refused is free. */
static void book(struct session *session, const struct fleet_choice *choice,
                 const struct placement *placement)
{
    struct fleet *fleet = session->router->fleet;
    const uint32_t prompt_tokens = session->request.prompt_tokens;
    if (session->key && session->request.attempt == 0)
        api_key_charge(session->key, prompt_tokens, loop_now_ns(session->router->loop));
    fleet_charge(fleet, choice->prefill, placement->prefill_charge);
    fleet_charge(fleet, choice->decode, placement->decode_charge);
    fleet_charge_reading(fleet, choice->prefill, prompt_tokens, placement->prefill_charge);
    fleet_charge_reading(fleet, choice->decode, prompt_tokens, placement->reading_charge);
    session->reader = choice->decode;
    session->reading_charge = placement->reading_charge;
    session->prefill_pages = choice->prefill_pages;
    session->decode_pages = choice->decode_pages;
    fleet_expect(fleet, choice->prefill, &session->pages, choice->prefill_pages);
    fleet_expect(fleet, choice->decode, &session->pages, choice->decode_pages);
    session_add(session, METRIC_PLACED_CACHED_TOKENS, placement->cached_tokens);
    session_affinity_note(session->router->affinity, session->affinity_key,
                          (struct affinity_pair){choice->prefill, choice->decode});
}

/* ---- admission ---- */

static double waited_ms(const struct session *session)
{
    const uint64_t now_ns = loop_now_ns(session->router->loop);
    return (double)(now_ns - session->request.times.accepted_ns) / NS_PER_MS;
}

/* Until all that the workers have and that waits for them is done. */
static double drain_ms(const struct router *router, const struct served_model *model)
{
    return fleet_drain_ms(router->fleet, model->index, model->queue_tokens, model->queue_answers);
}

uint32_t session_retry_s(const struct router *router)
{
    double most_ms = 0;
    for (uint32_t i = 0; i < router->model_count; i++)
        most_ms = fmax(most_ms, drain_ms(router, &router->models[i]));
    return admission_retry_s(most_ms);
}

static struct admission_targets targets_of(const struct session *session)
{
    const struct router_options *options = &session->router->options;
    struct admission_targets targets = {.ttft_ms = options->ttft_target_ms,
                                        .tpot_ms = options->tpot_target_ms};
    /* At the very end of it the timer is about to say so. */
    if (session->deadline_ms > 0)
        targets.left_ms = fmax(session->deadline_ms - waited_ms(session), 1);
    return targets;
}

static void refuse(struct session *session, const struct admission *admission,
                   const struct admission_targets *targets, struct session_next *next)
{
    static const enum router_metric rows[ADMISSION_VERDICT_COUNT] = {
        [ADMISSION_OK] = METRIC_REFUSED_QUEUE,          [ADMISSION_TTFT] = METRIC_REFUSED_TTFT,
        [ADMISSION_DEADLINE] = METRIC_REFUSED_DEADLINE, [ADMISSION_TPOT] = METRIC_REFUSED_TPOT,
        [ADMISSION_QUEUE] = METRIC_REFUSED_QUEUE,
    };
    char text[ERROR_TEXT_BYTES];
    admission_explain(admission, targets, text, sizeof text);
    session_add(session, rows[admission->verdict], 1);
    session_next_failure(next, 0, 503, admission_code(admission->verdict), text);
    next->failure.retry_s = admission->retry_s;
}

/* True when the targets can be met with what was chosen. A request that workers have seen is not
 * refused any more. */
static bool is_in_time(struct session *session, struct session_next *next)
{
    if (session->request.attempt > 0)
        return true;
    const struct admission_targets targets = targets_of(session);
    struct admission admission = admission_predict(&targets, waited_ms(session), &next->placement);
    if (admission.verdict == ADMISSION_OK)
        return true;
    /* Steps get shorter as answers end, not as prompts are read. */
    if (admission.verdict == ADMISSION_TPOT)
        admission.retry_s = admission_retry_s(drain_ms(session->router, session->model));
    refuse(session, &admission, &targets, next);
    return false;
}

/* Tokens of the prompt that a worker of this role would have to read, if the one that holds most of
 * it were free: all of one that is scored. */
static uint32_t uncached_tokens(const struct session *session, enum worker_role role)
{
    const uint32_t prompt = session->request.prompt_tokens;
    if (session->parsed.scores > 0)
        return prompt;
    const uint32_t cached =
        fleet_cached_tokens(session->router->fleet, session->model->index, role, &session->pages);
    return cached < prompt ? prompt - cached : 1;
}

/* What a decode node of a pair may read itself. All of a prompt that is scored has to be read. */
static uint32_t local_tokens(const struct session *session)
{
    return session->parsed.scores > 0 ? 0 : session->router->options.local_prefill_tokens;
}

/* A decode node will read what it lacks, which nobody predicts. */
static bool is_short(const struct session *session)
{
    const struct request *request = &session->request;
    return request->max_tokens != 1 &&
           uncached_tokens(session, WORKER_DECODE) <= local_tokens(session);
}

/* Those that wait for one of several models leave the others their share of --max-requests. */
static uint64_t queue_requests_max(const struct router *router)
{
    const uint64_t most = router->options.queue_requests;
    const uint64_t share = (router->slot_count + router->model_count - 1) / router->model_count;
    return router->model_count == 1 || (most > 0 && most < share) ? most : share;
}

/* What may not come in, for too many wait or the prompts before it take too long to read even if
 * all nodes that read did nothing else, and its own with what is cached of it. */
static struct admission admit_to_queue(const struct session *session,
                                       const struct admission_targets *targets)
{
    const struct router *router = session->router;
    const struct served_model *model = session->model;
    const struct router_options *options = &router->options;
    const struct admission_queue limits = {queue_requests_max(router), options->queue_tokens,
                                           options->queue_bytes};
    const struct admission_queue now = {model->queue_count, model->queue_tokens,
                                        model->queue_bytes};
    const uint32_t tokens = session->request.prompt_tokens;
    struct admission admission =
        admission_queue(&limits, &now, tokens, session->body_bytes, drain_ms(router, model));
    enum worker_role reader = WORKER_PREFILL;
    double tokens_per_ms = fleet_prefill_tokens_per_s(router->fleet, model->index) / 1e3;
    if (tokens_per_ms <= 0) {
        reader = WORKER_DECODE;
        tokens_per_ms = fleet_decode_read_tokens_per_s(router->fleet, model->index) / 1e3;
    }
    if (admission.verdict != ADMISSION_OK || tokens_per_ms <= 0 || is_short(session))
        return admission;
    const uint32_t uncached = uncached_tokens(session, reader);
    const double wait_ms = (double)model->queue_tokens / tokens_per_ms;
    const struct placement soonest = {.wait_ms = wait_ms,
                                      .pace = reading_pace_flat(tokens_per_ms),
                                      .cached_tokens = tokens - uncached,
                                      .ttft_ms = wait_ms + uncached / tokens_per_ms};
    return admission_predict(targets, waited_ms(session), &soonest);
}

static void wait_for_place(struct session *session, struct session_next *next)
{
    const struct admission_targets targets = targets_of(session);
    if (session->request.attempt == 0) {
        const struct admission admission = admit_to_queue(session, &targets);
        if (admission.verdict != ADMISSION_OK) {
            refuse(session, &admission, &targets, next);
            return;
        }
    }
    session_enqueue(session);
    session_next_event(next, EVENT_WAIT);
}

/* What may have killed prefill nodes is not let near those that write answers. How the last one
 * failed is forgotten once the request was placed again, and a refusal may have brought it back. */
static void fail_barred(const struct session *session, struct session_next *next)
{
    const struct request_failure *failure = &session->request.failure;
    if (failure->http_status != 0)
        session_next_failure(next, 0, failure->http_status, failure->code, failure->text);
    else
        session_next_failure(next, 0, 503, "worker_unavailable",
                             "Prefill nodes have failed this request, and no other one is there.");
}

static void fail_unserved(const struct session *session, struct session_next *next)
{
    const bool bound = session->parsed.grammar.kind > 0, scored = session->parsed.scores > 0;
    const char *keeping = bound && scored ? " that keeps to grammars and scores prompts"
                          : bound         ? " that keeps to grammars"
                          : scored        ? " that scores prompts"
                                          : "";
    char text[ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "No decode node%s is connected; try again later.", keeping);
    if (session->router->model_count > 1)
        snprintf(text, sizeof text,
                 "No decode node of the model \"%.*s\"%s is connected; try again later.",
                 MODEL_LIST_NAME_MAX, session->model->name, keeping);
    session_next_failure(next, 0, 503, "no_workers", text);
}

void session_choose(struct session *session, struct session_next *next)
{
    struct router *router = session->router;
    struct served_model *model = session->model;
    const bool from_queue = session->queued;
    /* No worker was there when the text was read, or of another kind. */
    if (session->pages.page_tokens != model->page_tokens)
        session_hash_pages(session, model->page_tokens);
    if (!from_queue && (!TAILQ_EMPTY(&model->queue) || model->probe)) {
        wait_for_place(session, next);
        return;
    }
    const struct request *request = &session->request;
    const struct affinity_pair served =
        session_affinity_find(router->affinity, session->affinity_key);
    const struct fleet_request wanted = {
        .model = model->index,
        .prompt_tokens = request->prompt_tokens,
        .max_tokens = request->max_tokens,
        .local_tokens = local_tokens(session),
        .pages = session->pages,
        .stay_prefill = served.prefill,
        .stay_decode = request->kept_decode != 0 ? request->kept_decode : served.decode,
        .barred = request->barred,
        .barred_count = request->barred_count,
        .grammar_kind = session->parsed.grammar.kind,
        .abilities = session->parsed.scores > 0 ? WORKER_SCORES : 0,
        .reads_all = session->parsed.scores > 0};
    struct fleet_choice choice;
    next->placement = fleet_place(router->fleet, &wanted, &choice);
    const enum placement_reason reason = next->placement.reason;
    count_placement(session, reason);
    if (reason == PLACEMENT_FULL) {
        if (from_queue)
            session_next_event(next, EVENT_WAIT);
        else
            wait_for_place(session, next);
        return;
    }
    session_dequeue(session);
    if (reason == PLACEMENT_NO_DECODE && request->failure.http_status != 0) {
        session_next_failure(next, 0, request->failure.http_status, request->failure.code,
                             request->failure.text); /* the last one is gone */
    } else if (reason == PLACEMENT_NO_DECODE) {
        fail_unserved(session, next);
    } else if (reason == PLACEMENT_TOO_LONG) {
        session_next_failure(next, 0, 400, "context_length_exceeded",
                             "The prompt is too long with its answer: no decode node that is "
                             "connected can hold both.");
    } else if (request->barred_count > 0 && choice.prefill == 0) {
        fail_barred(session, next);
    } else if (is_in_time(session, next)) {
        if (from_queue)
            model->probe = session;
        if (choice.decode != 0)
            next->placement.decode_charge += charge_of_others(session);
        book(session, &choice, &next->placement);
        next->set = true;
        next->event = (struct request_event){.kind = EVENT_PLACED,
                                             .placement = &next->placement,
                                             .prefill = choice.prefill,
                                             .decode = choice.decode};
    }
}

void session_release_reading(struct session *session)
{
    if (session->reader != 0)
        fleet_release_reading(session->router->fleet, session->reader,
                              session->request.prompt_tokens, session->reading_charge);
    session->reader = 0;
}

void session_release(struct session *session, worker_handle worker, enum worker_role role)
{
    struct fleet *fleet = session->router->fleet;
    const struct request *request = &session->request;
    const bool prefill = role == WORKER_PREFILL;
    if (prefill)
        fleet_release_reading(fleet, worker, request->prompt_tokens,
                              request->placement.prefill_charge);
    else
        session_release_reading(session);
    fleet_release(fleet, worker,
                  prefill ? request->placement.prefill_charge : request->placement.decode_charge);
    /* Without a first token nothing was computed, and nothing is cached of it. */
    if (request->times.first_ns == 0)
        fleet_expect_not(fleet, worker, &session->pages,
                         prefill ? session->prefill_pages : session->decode_pages);
}
