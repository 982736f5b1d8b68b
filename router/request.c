#include "router/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "router/request_held.h"

typedef void (*request_handler)(struct request *request, const struct request_event *event,
                                uint64_t now_ns, struct request_actions *actions);

void request_failure_set(struct request_failure *failure, int http_status, const char *code,
                         const char *format, ...)
{
    failure->http_status = http_status;
    failure->code = code;
    failure->again = false;
    failure->retry_s = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->text, sizeof failure->text, format, arguments);
    va_end(arguments);
}

void request_init(struct request *request, uint64_t id, const struct request_limits *limits,
                  uint64_t now_ns)
{
    *request = (struct request){.id = id, .limits = limits, .choice_count = 1};
    request->placement.prefill = request->placement.decode = -1;
    request->times.accepted_ns = now_ns;
    request->total_deadline_ns = now_ns + (uint64_t)limits->total_ms * NS_PER_MS;
}

void request_limit(struct request *request, uint32_t total_ms)
{
    const uint64_t deadline_ns = request->times.accepted_ns + (uint64_t)total_ms * NS_PER_MS;
    if (deadline_ns < request->total_deadline_ns)
        request->total_deadline_ns = deadline_ns;
}

void request_free(struct request *request)
{
    for (uint32_t i = 0; i < REQUEST_CHOICES_MAX; i++) {
        request_held_free(request->choices[i].held);
        request->choices[i].held = NULL;
    }
}

uint64_t request_deadline_ns(const struct request *request)
{
    if (request->state == REQUEST_ENDED)
        return 0;
    if (request->state_deadline_ns != 0 && request->state_deadline_ns < request->total_deadline_ns)
        return request->state_deadline_ns;
    return request->total_deadline_ns;
}

static struct request_action *act(struct request_actions *actions, enum request_action_kind kind)
{
    CHECK(actions->count < REQUEST_ACTIONS_MAX);
    struct request_action *action = &actions->items[actions->count++];
    *action = (struct request_action){.kind = kind};
    return action;
}

static void enter(struct request *request, enum request_state state, uint64_t deadline_ns)
{
    request->state = state;
    request->state_deadline_ns = deadline_ns;
}

/* The prefill node's part is over: give its charge back, and cancel it if it still works. */
static void drop_prefill(struct request *request, bool cancel, struct request_actions *actions)
{
    if (cancel && request->prefill_dispatched) {
        struct request_action *action = act(actions, ACTION_CANCEL);
        action->worker = request->prefill;
        action->attempt = request->attempt;
        action->choice = REQUEST_ALL_CHOICES;
    }
    request->prefill_dispatched = false;
    if (request->prefill_charged)
        act(actions, ACTION_RELEASE_PREFILL)->worker = request->prefill;
    request->prefill_charged = false;
}

static void drop_decode(struct request *request, bool cancel, struct request_actions *actions)
{
    if (cancel && request->decode_dispatched) {
        struct request_action *action = act(actions, ACTION_CANCEL);
        action->worker = request->decode;
        action->attempt = request->attempt;
        action->choice = REQUEST_ALL_CHOICES;
    }
    request->decode_dispatched = false;
    if (request->decode_charged)
        act(actions, ACTION_RELEASE_DECODE)->worker = request->decode;
    request->decode_charged = false;
}

/* The one door to ENDED. */
static void end(struct request *request, enum request_action_kind how, uint64_t now_ns,
                struct request_actions *actions)
{
    CHECK(request->state != REQUEST_ENDED);
    CHECK(how == ACTION_FINISH || how == ACTION_FAIL || how == ACTION_DROP);
    drop_prefill(request, true, actions);
    drop_decode(request, true, actions);
    request->times.ended_ns = now_ns;
    enter(request, REQUEST_ENDED, 0);
    act(actions, how);
}

static void fail(struct request *request, const struct request_failure *failure, uint64_t now_ns,
                 struct request_actions *actions)
{
    request->failure = *failure;
    end(request, ACTION_FAIL, now_ns, actions);
}

/* All tokens are out. The timings may still be on their way. */
static void complete(struct request *request, uint64_t now_ns, struct request_actions *actions)
{
    request->times.last_ns = now_ns;
    bool missing = false;
    for (int role = 0; role < 2; role++)
        missing = missing || (request->report_due[role] && !request->report_seen[role]);
    if (!request->reports_wanted || !missing || request->limits->report_ms == 0) {
        end(request, ACTION_FINISH, now_ns, actions);
        return;
    }
    /* The prefill node may still be delivering a hand-off that is no longer needed. */
    drop_prefill(request, true, actions);
    drop_decode(request, true, actions);
    enter(request, REQUEST_REPORTING, now_ns + (uint64_t)request->limits->report_ms * NS_PER_MS);
}

/* True when it was the last one; the caller completes the request then. */
static bool end_choice(struct request *request, uint32_t index, enum request_finish finish,
                       int32_t stop_id, struct request_actions *actions)
{
    struct request_choice *choice = &request->choices[index];
    CHECK(choice->finish == REQUEST_FINISH_NONE && request->open_count > 0);
    choice->finish = finish;
    choice->stop_id = stop_id;
    choice->ended_attempt = request->attempt;
    if (--request->open_count == 0)
        return true;
    act(actions, ACTION_CHOICE_END)->choice = index;
    return false;
}

static void cancel_choice(struct request *request, uint32_t index, struct request_actions *actions)
{
    struct request_action *action = act(actions, ACTION_CANCEL);
    action->worker = request->decode;
    action->attempt = request->attempt;
    action->choice = index;
}

static void on_encoded(struct request *request, const struct request_event *event, uint64_t now_ns,
                       struct request_actions *actions)
{
    CHECK(request->prompt_tokens > 0 && request->max_tokens > 0);
    CHECK(request->choice_count > 0 && request->choice_count <= REQUEST_CHOICES_MAX);
    request->times.encoded_ns = now_ns;
    request->open_count = request->choice_count;
    request->next_score = 1;
    for (uint32_t i = 0; i < request->choice_count; i++)
        request->choices[i] =
            (struct request_choice){.next_position = request->prompt_tokens, .stop_id = -1};
    enter(request, REQUEST_QUEUED, 0);
    act(actions, ACTION_PLACE);
}

static void on_placed(struct request *request, const struct request_event *event, uint64_t now_ns,
                      struct request_actions *actions)
{
    request->attempt++;
    request->placement = *event->placement;
    request->prefill = event->prefill;
    request->decode = event->decode;
    request->prefill_charged = request->prefill != 0;
    request->decode_charged = request->decode != 0;
    request->failure = (struct request_failure){0}; /* whatever it was, there is another way */
    if (request->times.placed_ns == 0)
        request->times.placed_ns = now_ns;
    request->report_due[0] = request->prefill != 0;
    request->report_due[1] = request->decode != 0;
    if (request->decode != 0) {
        enter(request, REQUEST_RESERVING,
              now_ns + (uint64_t)request->limits->reserve_ms * NS_PER_MS);
        request->decode_dispatched = true;
        act(actions, ACTION_RESERVE);
        return;
    }
    CHECK(request->prefill != 0);
    request->prefill_dispatched = true;
    enter(request, REQUEST_PREFILLING, 0);
    act(actions, ACTION_PREFILL);
}

static void on_wait(struct request *request, const struct request_event *event, uint64_t now_ns,
                    struct request_actions *actions)
{
}

static void on_reserved(struct request *request, const struct request_event *event, uint64_t now_ns,
                        struct request_actions *actions)
{
    request->times.reserved_ns = now_ns;
    enter(request, REQUEST_PREFILLING, 0);
    if (event->local && request->prefill != 0) {
        request->placement.reason = PLACEMENT_SHORT;
        drop_prefill(request, false, actions);
        request->prefill = 0;
        request->report_due[0] = false;
    }
    if (request->prefill == 0) {
        request->cached_tokens = event->cached_tokens;
        return; /* the decode node reads the prompt, and has it already */
    }
    request->prefill_dispatched = true;
    act(actions, ACTION_PREFILL);
}

static void on_refused(struct request *request, const struct request_event *event, uint64_t now_ns,
                       struct request_actions *actions)
{
    /* Who refused keeps nothing; the other one may have pages reserved. */
    if (event->worker == request->decode)
        request->decode_dispatched = false;
    else if (event->worker == request->prefill)
        request->prefill_dispatched = false;
    else
        return;
    drop_decode(request, true, actions);
    drop_prefill(request, true, actions);
    request->prefill = request->decode = 0;
    enter(request, REQUEST_QUEUED, 0);
}

/* What is new of a step, from position `from` on. */
static struct msg_step step_from(const struct msg_step *step, uint32_t from)
{
    const uint32_t skip = from - step->first_position;
    struct msg_step fresh = *step;
    fresh.first_position += skip;
    fresh.tokens.items += skip;
    fresh.tokens.count -= skip;
    if (step->logprobs.count > 0) {
        fresh.logprobs.items += skip;
        fresh.logprobs.count -= skip;
        fresh.top_ids.items += (size_t)skip * step->top_count;
        fresh.top_ids.count -= skip * step->top_count;
        fresh.top_logprobs.items += (size_t)skip * step->top_count;
        fresh.top_logprobs.count -= skip * step->top_count;
    }
    return fresh;
}

static void note_first(struct request *request, uint64_t now_ns, struct request_actions *actions)
{
    if (request->times.first_ns == 0)
        request->times.first_ns = now_ns;
    enter(request, REQUEST_DECODING, 0);
    /* Prefill's charge is its work, and that is done. The node goes on delivering pages, so it must
     * still hear of a cancel. */
    if (request->prefill_charged)
        act(actions, ACTION_RELEASE_PREFILL)->worker = request->prefill;
    request->prefill_charged = false;
}

/* The last choice has ended: who has nothing left to do? */
static void settle_workers(struct request *request, const struct msg_step *step, bool from_prefill)
{
    request->prefill_dispatched = false; /* for the decode node runs the answer */
    if (!from_prefill)
        request->decode_dispatched = false;
    else if (step->finish != FINISH_NONE)
        request->report_due[1] = false; /* nothing is left for the decode node to report */
}

/* Tokens whose turn it is; the worker's finish code ends the choice after them. */
static void accept(struct request *request, const struct msg_step *step, bool from_prefill,
                   uint64_t now_ns, struct request_actions *actions)
{
    struct request_choice *choice = &request->choices[step->choice];
    /* The id that ends the choice is no token, but may have log-probabilities like one. */
    if (step->tokens.count > choice->next_position - step->first_position ||
        step->logprobs.count > step->tokens.count) {
        const struct msg_step fresh = step_from(step, choice->next_position);
        choice->next_position += fresh.tokens.count;
        act(actions, ACTION_DELIVER)->step = fresh;
    }
    /* Of several choices one has read the prompt; the others found all of it. */
    if (from_prefill && step->first_position == request->prompt_tokens &&
        step->cached_tokens > request->cached_tokens)
        request->cached_tokens = step->cached_tokens;
    if (request->state == REQUEST_PREFILLING)
        note_first(request, now_ns, actions);
    enum request_finish finish = step->finish == FINISH_STOP     ? REQUEST_FINISH_STOP
                                 : step->finish == FINISH_LENGTH ? REQUEST_FINISH_LENGTH
                                                                 : REQUEST_FINISH_NONE;
    if (finish == REQUEST_FINISH_NONE && request->decode == 0 && from_prefill)
        finish = REQUEST_FINISH_LENGTH; /* one token was asked for, and this was it */
    if (finish == REQUEST_FINISH_NONE)
        return;
    const int32_t stop_id = finish == REQUEST_FINISH_STOP ? step->stop_id : -1;
    if (end_choice(request, step->choice, finish, stop_id, actions)) {
        settle_workers(request, step, from_prefill);
        complete(request, now_ns, actions);
    }
}

static bool step_is_sound(const struct request *request, const struct msg_step *step)
{
    const uint64_t end = (uint64_t)step->first_position + step->tokens.count;
    const uint64_t last = (uint64_t)request->prompt_tokens + request->max_tokens;
    const uint32_t count = step->tokens.count;
    const uint32_t told = step->logprobs.count;
    const bool with_end = step->finish == FINISH_STOP && told == count + 1;
    const bool logprobs_fit = (told == 0 || told == count || with_end) &&
                              step->top_ids.count == told * step->top_count &&
                              step->top_logprobs.count == told * step->top_count;
    return step->choice < request->choice_count && step->first_position >= request->prompt_tokens &&
           end <= last && step->finish <= FINISH_LENGTH && logprobs_fit;
}

/* They come in their order from whoever reads the prompt; after another attempt once more. */
static void on_score(struct request *request, const struct msg_step *step, uint64_t now_ns,
                     struct request_actions *actions)
{
    struct request_failure failure;
    const uint32_t position = step->first_position;
    const bool sound = position > 0 && step->tokens.count == 1 && step->finish == FINISH_NONE &&
                       step->logprobs.count == 1 && step->top_ids.count == step->top_count &&
                       step->top_logprobs.count == step->top_count;
    if (sound && position < request->next_score)
        return;
    if (sound && position == request->next_score) {
        request->next_score++;
        act(actions, ACTION_SCORE)->step = *step;
        return;
    }
    request_failure_set(&failure, 500, "worker_fault",
                        "A worker scored token %u of the prompt while token %u was still missing.",
                        position, request->next_score);
    fail(request, &failure, now_ns, actions);
}

static bool lacks_scores(const struct request *request)
{
    return request->scores_wanted && request->next_score < request->prompt_tokens;
}

static void on_tokens(struct request *request, const struct request_event *event, uint64_t now_ns,
                      struct request_actions *actions)
{
    const struct msg_step *step = event->step;
    if (event->worker == 0 ||
        (event->worker != request->prefill && event->worker != request->decode))
        return;
    if (request->scores_wanted && step->first_position < request->prompt_tokens) {
        on_score(request, step, now_ns, actions);
        return;
    }
    if (lacks_scores(request) && step->first_position == request->prompt_tokens) {
        struct request_failure failure;
        request_failure_set(&failure, 500, "worker_fault",
                            "A worker sent the first token, but scored %u of %u tokens before it.",
                            request->next_score - 1, request->prompt_tokens - 1);
        fail(request, &failure, now_ns, actions);
        return;
    }
    if (!step_is_sound(request, step)) {
        struct request_failure failure;
        request_failure_set(&failure, 500, "worker_fault",
                            "A worker sent %u tokens at position %u of a sequence that may be %u "
                            "tokens long.",
                            step->tokens.count, step->first_position,
                            request->prompt_tokens + request->max_tokens);
        fail(request, &failure, now_ns, actions);
        return;
    }
    struct request_choice *choice = &request->choices[step->choice];
    if (choice->finish != REQUEST_FINISH_NONE) {
        /* It met a stop string and was cancelled then, or ended before the request was placed
         * again: the new decode node need not write it once more. */
        if (choice->ended_attempt != request->attempt && request->decode_dispatched) {
            choice->ended_attempt = request->attempt;
            cancel_choice(request, step->choice, actions);
        }
        return;
    }
    if (step->first_position > choice->next_position) {
        request->overtaken += step->tokens.count;
        if (!request_held_add(&choice->held, step)) {
            struct request_failure failure;
            request_failure_set(&failure, 500, "worker_fault",
                                "A worker ran ahead to position %u while position %u was still "
                                "missing.",
                                step->first_position, choice->next_position);
            fail(request, &failure, now_ns, actions);
        }
        return;
    }
    const uint32_t skip = choice->next_position - step->first_position;
    request->duplicates += skip < step->tokens.count ? skip : step->tokens.count;
    /* A step that ends before the next position says nothing new, not even that it finished. */
    if (skip > step->tokens.count || (skip == step->tokens.count && step->finish == FINISH_NONE))
        return;
    accept(request, step, event->worker == request->prefill && event->worker != request->decode,
           now_ns, actions);
    struct msg_step held;
    if (request->state == REQUEST_DECODING && choice->finish == REQUEST_FINISH_NONE &&
        request_held_view(choice->held, choice->next_position, &held)) {
        held.choice = step->choice;
        accept(request, &held, false, now_ns, actions);
    }
}

static void on_report(struct request *request, const struct request_event *event, uint64_t now_ns,
                      struct request_actions *actions)
{
    if (event->report->role != WORKER_PREFILL && event->report->role != WORKER_DECODE)
        return;
    const int role = event->report->role == WORKER_PREFILL ? 0 : 1;
    request->reports[role] = *event->report;
    request->report_seen[role] = true;
    if (request->state != REQUEST_REPORTING)
        return;
    for (int i = 0; i < 2; i++) {
        if (request->report_due[i] && !request->report_seen[i])
            return;
    }
    end(request, ACTION_FINISH, now_ns, actions);
}

/* From the start with the same seed: what was delivered comes once more and is dropped. */
static void place_again(struct request *request, struct request_actions *actions)
{
    drop_decode(request, true, actions);
    drop_prefill(request, true, actions);
    request->prefill = request->decode = 0;
    request->cached_tokens = 0;
    request->report_due[0] = request->report_due[1] = false;
    enter(request, REQUEST_QUEUED, 0);
    act(actions, ACTION_PLACE);
}

/* No token is out, and what went wrong is not the client's fault: the prefill node died or gave up,
 * or its pages did not reach the decode node, which may hear of its death first. */
static bool may_go_elsewhere(const struct request *request, const struct request_event *event)
{
    const bool by_prefill = event->worker == request->prefill;
    return event->worker != 0 && request->prefill != 0 &&
           ((by_prefill && request->state == REQUEST_RESERVING) ||
            (request->state == REQUEST_PREFILLING &&
             (by_prefill || event->kind == EVENT_FAILED))) &&
           event->failure->http_status >= 500 && !event->failure->again &&
           request->barred_count < REQUEST_BARRED_MAX;
}

static void go_elsewhere(struct request *request, const struct request_failure *failure,
                         struct request_actions *actions)
{
    request->failure = *failure;
    request->barred[request->barred_count++] = request->prefill;
    request->kept_decode = request->decode;
    place_again(request, actions);
}

/* A decode node that stops or dies, and was only asked: it has promised nothing, so another one can
 * be asked as well. Not for ever, for the request may be what it died of. */
static bool may_ask_another(const struct request *request, const struct request_event *event)
{
    return event->worker != 0 && event->worker == request->decode &&
           request->state == REQUEST_RESERVING && event->failure->http_status == 503 &&
           request->move_count < REQUEST_MOVES_MAX;
}

static void on_failed(struct request *request, const struct request_event *event, uint64_t now_ns,
                      struct request_actions *actions)
{
    /* Who gave up has forgotten the request already; a decode node only the one choice. */
    if (event->worker != 0 && event->worker == request->prefill) {
        request->prefill_dispatched = false;
        if (request->state == REQUEST_DECODING && request->decode != 0 &&
            request->decode != event->worker)
            return; /* the decode node knows whether its pages came, and says so */
    } else if (event->worker != 0 && event->worker == request->decode) {
        request->decode_dispatched = event->kind == EVENT_FAILED && request->choice_count > 1;
    } else if (event->worker != 0) {
        return;
    }
    if (event->failure->again && event->worker != 0 && !request->placed_again) {
        request->placed_again = true;
        place_again(request, actions);
    } else if (may_go_elsewhere(request, event)) {
        go_elsewhere(request, event->failure, actions);
    } else if (may_ask_another(request, event)) {
        request->failure = *event->failure;
        request->move_count++;
        place_again(request, actions);
    } else {
        fail(request, event->failure, now_ns, actions);
    }
}

static void on_drop(struct request *request, const struct request_event *event, uint64_t now_ns,
                    struct request_actions *actions)
{
    end(request, ACTION_DROP, now_ns, actions);
}

static void on_stopped(struct request *request, const struct request_event *event, uint64_t now_ns,
                       struct request_actions *actions)
{
    struct request_choice *choice = &request->choices[event->choice];
    if (choice->finish != REQUEST_FINISH_NONE) {
        choice->finish = REQUEST_FINISH_STOP_STRING; /* the step that met it also ended it */
        return;
    }
    /* The decode node is cut short and owes no report of a whole answer. */
    request->report_due[1] = false;
    if (end_choice(request, event->choice, REQUEST_FINISH_STOP_STRING, -1, actions)) {
        complete(request, now_ns, actions);
    } else if (request->decode_dispatched) {
        cancel_choice(request, event->choice, actions);
    }
}

/* A stop string that ends in the very step that also ended the answer. */
static void on_stopped_late(struct request *request, const struct request_event *event,
                            uint64_t now_ns, struct request_actions *actions)
{
    request->choices[event->choice].finish = REQUEST_FINISH_STOP_STRING;
}

static void on_deadline(struct request *request, const struct request_event *event, uint64_t now_ns,
                        struct request_actions *actions)
{
    if (now_ns < request_deadline_ns(request))
        return;
    struct request_failure failure;
    const uint32_t total_ms =
        (uint32_t)((request->total_deadline_ns - request->times.accepted_ns) / NS_PER_MS);
    if (request->state == REQUEST_REPORTING) {
        end(request, ACTION_FINISH, now_ns, actions);
        return;
    }
    if (now_ns < request->total_deadline_ns)
        request_failure_set(&failure, 503, "worker_unavailable",
                            "The decode node did not answer a reservation within %u ms.",
                            request->limits->reserve_ms);
    else
        request_failure_set(&failure, 504, "deadline_exceeded",
                            "The request was not done within its limit of %u ms (state %s).",
                            total_ms, request_state_name(request->state));
    fail(request, &failure, now_ns, actions);
}

static void on_shutdown(struct request *request, const struct request_event *event, uint64_t now_ns,
                        struct request_actions *actions)
{
    struct request_failure failure;
    request_failure_set(&failure, 503, "shutting_down", "The server is shutting down.");
    fail(request, &failure, now_ns, actions);
}

/* In REPORTING the client has all its tokens: whatever happens now does not spoil the answer. */
static void on_finish_now(struct request *request, const struct request_event *event,
                          uint64_t now_ns, struct request_actions *actions)
{
    end(request, ACTION_FINISH, now_ns, actions);
}

/* clang-format off */
#define ANY_TIME                                                                                   \
    [EVENT_CLIENT_GONE] = on_drop, [EVENT_SLOW_READER] = on_drop, [EVENT_DEADLINE] = on_deadline

static const struct {
    const char *name;
    request_handler on[REQUEST_EVENT_COUNT]; /* NULL: the event changes nothing here */
} states[REQUEST_STATE_COUNT] = {
    [REQUEST_TOKENISING] = {"tokenising", {ANY_TIME,
        [EVENT_ENCODED] = on_encoded, [EVENT_FAILED] = on_failed,
        [EVENT_SHUTDOWN] = on_shutdown}},
    [REQUEST_QUEUED] = {"queued", {ANY_TIME,
        [EVENT_PLACED] = on_placed, [EVENT_WAIT] = on_wait, [EVENT_FAILED] = on_failed,
        [EVENT_SHUTDOWN] = on_shutdown}},
    [REQUEST_RESERVING] = {"reserving", {ANY_TIME,
        [EVENT_RESERVED] = on_reserved, [EVENT_REFUSED] = on_refused,
        [EVENT_FAILED] = on_failed, [EVENT_WORKER_LOST] = on_failed,
        [EVENT_SHUTDOWN] = on_shutdown}},
    [REQUEST_PREFILLING] = {"prefilling", {ANY_TIME,
        [EVENT_TOKENS] = on_tokens, [EVENT_REPORT] = on_report, [EVENT_REFUSED] = on_refused,
        [EVENT_FAILED] = on_failed, [EVENT_WORKER_LOST] = on_failed,
        [EVENT_SHUTDOWN] = on_shutdown}},
    [REQUEST_DECODING] = {"decoding", {ANY_TIME,
        [EVENT_TOKENS] = on_tokens, [EVENT_REPORT] = on_report, [EVENT_STOPPED] = on_stopped,
        [EVENT_FAILED] = on_failed, [EVENT_WORKER_LOST] = on_failed,
        [EVENT_SHUTDOWN] = on_shutdown}},
    [REQUEST_REPORTING] = {"reporting", {ANY_TIME,
        [EVENT_REPORT] = on_report, [EVENT_STOPPED] = on_stopped_late,
        [EVENT_WORKER_LOST] = on_finish_now, [EVENT_SHUTDOWN] = on_finish_now}},
    [REQUEST_ENDED] = {"ended", {NULL}},
};

static const char *const event_names[REQUEST_EVENT_COUNT] = {
    [EVENT_ENCODED] = "encoded", [EVENT_PLACED] = "placed", [EVENT_WAIT] = "wait",
    [EVENT_RESERVED] = "reserved", [EVENT_REFUSED] = "refused", [EVENT_TOKENS] = "tokens",
    [EVENT_REPORT] = "report", [EVENT_FAILED] = "failed", [EVENT_WORKER_LOST] = "worker_lost",
    [EVENT_CLIENT_GONE] = "client_gone", [EVENT_SLOW_READER] = "slow_reader",
    [EVENT_STOPPED] = "stopped", [EVENT_DEADLINE] = "deadline", [EVENT_SHUTDOWN] = "shutdown",
};
/* clang-format on */

void request_handle(struct request *request, const struct request_event *event, uint64_t now_ns,
                    struct request_actions *actions_out)
{
    CHECK((unsigned)request->state < REQUEST_STATE_COUNT);
    CHECK((unsigned)event->kind < REQUEST_EVENT_COUNT);
    actions_out->count = 0;
    const request_handler handler = states[request->state].on[event->kind];
    if (handler)
        handler(request, event, now_ns, actions_out);
}

const char *request_state_name(enum request_state state)
{
    return (unsigned)state < REQUEST_STATE_COUNT ? states[state].name : "unknown";
}

const char *request_event_name(enum request_event_kind kind)
{
    return (unsigned)kind < REQUEST_EVENT_COUNT ? event_names[kind] : "unknown";
}

const char *request_finish_name(enum request_finish finish)
{
    return finish == REQUEST_FINISH_LENGTH ? "length" : "stop";
}
