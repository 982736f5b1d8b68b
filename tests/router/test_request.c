/* The request machine with a make-believe fleet and virtual time. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "router/request.h"

enum { PREFILL_NODE = 0x10001, DECODE_NODE = 0x10002, OTHER_NODE = 0x10003, PROMPT = 10 };

static const struct request_limits limits = {
    .total_ms = 60000, .reserve_ms = 5000, .report_ms = 50};

/* A request and everything it asked for, summed up. */
struct play {
    struct request request;
    struct request_actions actions; /* of the last event */
    uint64_t now_ns;
    char text[128]; /* delivered ids as letters */
    uint32_t reserves, prefills, places, finishes, failures, drops;
    uint32_t cancels_prefill, cancels_decode;
    int prefill_charges, decode_charges; /* charged and not yet given back */
    uint32_t cancel_attempt;
};

static void sum_up(struct play *play)
{
    for (uint32_t i = 0; i < play->actions.count; i++) {
        const struct request_action *action = &play->actions.items[i];
        switch (action->kind) {
        case ACTION_PLACE:
            play->places++;
            break;
        case ACTION_RESERVE:
            play->reserves++;
            break;
        case ACTION_PREFILL:
            play->prefills++;
            break;
        case ACTION_CANCEL:
            play->cancels_prefill += action->worker == PREFILL_NODE;
            play->cancels_decode += action->worker == DECODE_NODE;
            play->cancel_attempt = action->attempt;
            break;
        case ACTION_RELEASE_PREFILL:
            cr_assert(action->worker == PREFILL_NODE || action->worker == OTHER_NODE);
            play->prefill_charges--;
            break;
        case ACTION_RELEASE_DECODE:
            cr_assert_eq(action->worker, DECODE_NODE);
            play->decode_charges--;
            break;
        case ACTION_DELIVER:
            for (uint32_t k = 0; k < action->step.tokens.count; k++) {
                const size_t at = strlen(play->text);
                cr_assert_eq(action->step.first_position + k, PROMPT + at);
                play->text[at] = (char)action->step.tokens.items[k];
            }
            break;
        case ACTION_CHOICE_END:
            cr_assert_fail("there is one choice only");
            break;
        case ACTION_FINISH:
            play->finishes++;
            break;
        case ACTION_FAIL:
            play->failures++;
            break;
        case ACTION_DROP:
            play->drops++;
            break;
        }
    }
}

static void feed(struct play *play, struct request_event event)
{
    request_handle(&play->request, &event, play->now_ns, &play->actions);
    sum_up(play);
}

static void begin(struct play *play)
{
    memset(play, 0, sizeof *play);
    play->now_ns = 1000;
    request_init(&play->request, 7, &limits, play->now_ns);
    play->request.prompt_tokens = PROMPT;
    play->request.max_tokens = 20;
}

static void encoded(struct play *play)
{
    feed(play, (struct request_event){.kind = EVENT_ENCODED});
}

static void placed(struct play *play, worker_handle prefill, worker_handle decode)
{
    const struct placement placement = {.prefill_charge = prefill ? PROMPT : 0,
                                        .decode_charge = decode ? 20 : 0};
    play->prefill_charges += prefill != 0;
    play->decode_charges += decode != 0;
    feed(play,
         (struct request_event){
             .kind = EVENT_PLACED, .placement = &placement, .prefill = prefill, .decode = decode});
}

static void reserved(struct play *play)
{
    feed(play, (struct request_event){.kind = EVENT_RESERVED, .worker = DECODE_NODE});
}

static void tokens(struct play *play, worker_handle worker, uint32_t offset, const char *letters,
                   enum finish_code finish)
{
    int32_t ids[64];
    const uint32_t count = (uint32_t)strlen(letters);
    for (uint32_t i = 0; i < count; i++)
        ids[i] = letters[i];
    const struct msg_step step = {
        .first_position = PROMPT + offset, .tokens = {ids, count}, .finish = finish, .stop_id = 99};
    feed(play, (struct request_event){.kind = EVENT_TOKENS, .worker = worker, .step = &step});
}

static void simple(struct play *play, enum request_event_kind kind, worker_handle worker)
{
    struct request_failure failure;
    request_failure_set(&failure, 503, "test", "for the test");
    feed(play, (struct request_event){.kind = kind, .worker = worker, .failure = &failure});
}

/* Plays up to a state with both nodes in it. */
static void reach(struct play *play, enum request_state state)
{
    begin(play);
    if (state >= REQUEST_QUEUED)
        encoded(play);
    if (state >= REQUEST_RESERVING)
        placed(play, PREFILL_NODE, DECODE_NODE);
    if (state >= REQUEST_PREFILLING)
        reserved(play);
    if (state >= REQUEST_DECODING)
        tokens(play, PREFILL_NODE, 0, "a", FINISH_NONE);
    if (state == REQUEST_REPORTING) {
        play->request.reports_wanted = true;
        tokens(play, DECODE_NODE, 1, "b", FINISH_LENGTH);
    }
    cr_assert_eq(play->request.state, state, "%s", request_state_name(play->request.state));
}

/* Ended once, nothing charged, nothing answered any more. */
static void expect_ended(struct play *play)
{
    cr_expect_eq(play->request.state, REQUEST_ENDED);
    cr_expect_eq(play->finishes + play->failures + play->drops, 1);
    cr_expect_eq(play->prefill_charges, 0);
    cr_expect_eq(play->decode_charges, 0);
    cr_expect_eq(request_deadline_ns(&play->request), 0);
    for (int kind = 0; kind < REQUEST_EVENT_COUNT; kind++) {
        simple(play, (enum request_event_kind)kind, DECODE_NODE);
        cr_expect_eq(play->actions.count, 0, "%s did something after the end",
                     request_event_name((enum request_event_kind)kind));
    }
    request_free(&play->request);
}

/* One token of one of several choices; what it leads to is in play->actions. */
static void choice_token(struct play *play, worker_handle worker, uint32_t choice, uint32_t offset,
                         enum finish_code finish)
{
    const int32_t id = 'a';
    const struct msg_step step = {.choice = choice,
                                  .first_position = PROMPT + offset,
                                  .tokens = {&id, finish == FINISH_STOP ? 0 : 1},
                                  .finish = finish,
                                  .stop_id = 99};
    const struct request_event event = {.kind = EVENT_TOKENS, .worker = worker, .step = &step};
    request_handle(&play->request, &event, play->now_ns, &play->actions);
}

/* The actions are exactly these; the numbers are of choices. */
struct expected_action {
    enum request_action_kind kind;
    uint32_t choice;
};
static void expect_actions(const struct play *play, const struct expected_action *expected,
                           uint32_t count)
{
    cr_assert_eq(play->actions.count, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct request_action *action = &play->actions.items[i];
        cr_assert_eq(action->kind, expected[i].kind, "action %u is %d", i, (int)action->kind);
        const uint32_t choice =
            action->kind == ACTION_DELIVER ? action->step.choice : action->choice;
        cr_assert_eq(choice, expected[i].choice, "action %u is of choice %u", i, choice);
    }
}

Test(request, choices_end_one_by_one)
{
    struct play play;
    begin(&play);
    play.request.choice_count = 4;
    encoded(&play);
    placed(&play, PREFILL_NODE, DECODE_NODE);
    reserved(&play);
    choice_token(&play, PREFILL_NODE, 0, 0, FINISH_NONE);
    expect_actions(&play,
                   (struct expected_action[]){{ACTION_DELIVER, 0}, {ACTION_RELEASE_PREFILL, 0}}, 2);
    play.prefill_charges = 0;
    /* The first token of this one was an end. */
    choice_token(&play, PREFILL_NODE, 1, 0, FINISH_STOP);
    expect_actions(&play, (struct expected_action[]){{ACTION_CHOICE_END, 1}}, 1);
    /* The decode node is ahead for one choice; the others do not wait. */
    choice_token(&play, DECODE_NODE, 3, 1, FINISH_NONE);
    cr_assert_eq(play.actions.count, 0);
    choice_token(&play, PREFILL_NODE, 2, 0, FINISH_NONE);
    expect_actions(&play, (struct expected_action[]){{ACTION_DELIVER, 2}}, 1);
    choice_token(&play, PREFILL_NODE, 3, 0, FINISH_NONE);
    expect_actions(&play, (struct expected_action[]){{ACTION_DELIVER, 3}, {ACTION_DELIVER, 3}}, 2);
    /* One meets a stop string: the node is told of that one, and what still comes is nothing. */
    const struct request_event stopped = {.kind = EVENT_STOPPED, .choice = 2};
    request_handle(&play.request, &stopped, play.now_ns, &play.actions);
    expect_actions(&play, (struct expected_action[]){{ACTION_CHOICE_END, 2}, {ACTION_CANCEL, 2}},
                   2);
    choice_token(&play, DECODE_NODE, 2, 1, FINISH_LENGTH);
    cr_assert_eq(play.actions.count, 0);
    choice_token(&play, DECODE_NODE, 0, 1, FINISH_LENGTH);
    expect_actions(&play, (struct expected_action[]){{ACTION_DELIVER, 0}, {ACTION_CHOICE_END, 0}},
                   2);
    choice_token(&play, DECODE_NODE, 3, 2, FINISH_LENGTH);
    expect_actions(&play,
                   (struct expected_action[]){
                       {ACTION_DELIVER, 3}, {ACTION_RELEASE_DECODE, 0}, {ACTION_FINISH, 0}},
                   3);
    cr_expect_eq(play.request.choices[1].finish, REQUEST_FINISH_STOP);
    cr_expect_eq(play.request.choices[2].finish, REQUEST_FINISH_STOP_STRING);
    cr_expect_eq(play.request.choices[3].finish, REQUEST_FINISH_LENGTH);
    play.decode_charges = 0;
    play.finishes = 1;
    expect_ended(&play);
}

/* The decode node has given up this one; it still writes the others, and is told of the end. */
Test(request, a_choice_that_fails_ends_the_others)
{
    struct play play;
    begin(&play);
    play.request.choice_count = 3;
    encoded(&play);
    placed(&play, PREFILL_NODE, DECODE_NODE);
    reserved(&play);
    for (uint32_t choice = 0; choice < 3; choice++)
        choice_token(&play, PREFILL_NODE, choice, 0, FINISH_NONE);
    const struct request_failure failure = {.http_status = 500, .code = "worker_fault"};
    const struct request_event failed = {
        .kind = EVENT_FAILED, .worker = DECODE_NODE, .failure = &failure};
    request_handle(&play.request, &failed, play.now_ns, &play.actions);
    uint32_t cancels = 0;
    for (uint32_t i = 0; i < play.actions.count; i++)
        cancels += play.actions.items[i].kind == ACTION_CANCEL &&
                   play.actions.items[i].worker == DECODE_NODE;
    cr_assert_gt(cancels, 0);
    cr_assert_eq(play.request.state, REQUEST_ENDED);
    request_free(&play.request);
}

Test(request, a_choice_that_nobody_asked_for_is_a_fault)
{
    struct play play;
    reach(&play, REQUEST_DECODING);
    choice_token(&play, DECODE_NODE, 1, 1, FINISH_NONE);
    sum_up(&play);
    cr_expect_eq(play.failures, 1);
    expect_ended(&play);
}

Test(request, the_walk)
{
    struct play play;
    reach(&play, REQUEST_DECODING);
    cr_expect_eq(play.places, 1);
    cr_expect_eq(play.reserves, 1);
    cr_expect_eq(play.prefills, 1);
    cr_expect_eq(play.prefill_charges, 0, "prefill's part is over with the first token");
    cr_expect_eq(play.decode_charges, 1);
    tokens(&play, DECODE_NODE, 1, "b", FINISH_NONE);
    tokens(&play, DECODE_NODE, 2, "cd", FINISH_NONE);
    tokens(&play, DECODE_NODE, 4, "", FINISH_STOP);
    cr_expect_str_eq(play.text, "abcd");
    cr_expect_eq(play.request.choices[0].finish, REQUEST_FINISH_STOP);
    cr_expect_eq(play.request.choices[0].stop_id, 99);
    cr_expect_eq(play.finishes, 1);
    cr_expect_eq(play.cancels_prefill + play.cancels_decode, 0);
    expect_ended(&play);
}

Test(request, without_prefill_node)
{
    struct play play;
    begin(&play);
    encoded(&play);
    placed(&play, 0, DECODE_NODE);
    cr_expect_eq(play.reserves, 1);
    reserved(&play);
    cr_expect_eq(play.prefills, 0);
    tokens(&play, DECODE_NODE, 0, "a", FINISH_NONE);
    cr_expect_eq(play.decode_charges, 1);
    tokens(&play, DECODE_NODE, 1, "b", FINISH_LENGTH);
    cr_expect_str_eq(play.text, "ab");
    expect_ended(&play);
}

Test(request, the_decode_node_reads_what_it_lacks_itself)
{
    struct play play;
    begin(&play);
    encoded(&play);
    placed(&play, PREFILL_NODE, DECODE_NODE);
    feed(&play,
         (struct request_event){.kind = EVENT_RESERVED, .worker = DECODE_NODE, .local = true});
    cr_expect_eq(play.request.placement.reason, PLACEMENT_SHORT);
    cr_expect_eq(play.prefills, 0);
    cr_expect_eq(play.prefill_charges, 0, "its charge is given back at once");
    /* The prefill node has no part in it: its loss is nothing, its tokens are nobody's. */
    simple(&play, EVENT_WORKER_LOST, PREFILL_NODE);
    tokens(&play, PREFILL_NODE, 0, "x", FINISH_NONE);
    tokens(&play, DECODE_NODE, 0, "a", FINISH_NONE);
    tokens(&play, DECODE_NODE, 1, "b", FINISH_LENGTH);
    cr_expect_str_eq(play.text, "ab");
    cr_expect_eq(play.cancels_prefill, 0);
    expect_ended(&play);
}

Test(request, one_token_on_the_prefill_node_alone)
{
    struct play play;
    begin(&play);
    play.request.max_tokens = 1;
    encoded(&play);
    placed(&play, PREFILL_NODE, 0);
    cr_expect_eq(play.reserves, 0);
    cr_expect_eq(play.prefills, 1);
    tokens(&play, PREFILL_NODE, 0, "a", FINISH_LENGTH);
    cr_expect_eq(play.cancels_prefill, 0);
    expect_ended(&play);
}

Test(request, prefill_that_finishes_cancels_decode)
{
    struct play play;
    reach(&play, REQUEST_PREFILLING);
    tokens(&play, PREFILL_NODE, 0, "", FINISH_STOP);
    cr_expect_eq(play.cancels_decode, 1);
    cr_expect_eq(play.cancels_prefill, 0);
    cr_expect_eq(play.finishes, 1);
    cr_expect_str_eq(play.text, "");
    expect_ended(&play);
}

Test(request, overtaking_tokens_are_held)
{
    struct play play;
    reach(&play, REQUEST_PREFILLING);
    tokens(&play, DECODE_NODE, 1, "b", FINISH_NONE);
    tokens(&play, DECODE_NODE, 2, "cd", FINISH_NONE);
    cr_expect_str_eq(play.text, "");
    cr_expect_eq(play.request.state, REQUEST_PREFILLING);
    tokens(&play, PREFILL_NODE, 0, "a", FINISH_NONE);
    cr_expect_str_eq(play.text, "abcd");
    cr_expect_eq(play.request.overtaken, 3);
    tokens(&play, DECODE_NODE, 4, "e", FINISH_LENGTH);
    cr_expect_str_eq(play.text, "abcde");
    expect_ended(&play);
}

Test(request, a_held_finish_ends_it)
{
    struct play play;
    reach(&play, REQUEST_PREFILLING);
    tokens(&play, DECODE_NODE, 1, "b", FINISH_NONE);
    tokens(&play, DECODE_NODE, 2, "c", FINISH_STOP);
    tokens(&play, PREFILL_NODE, 0, "a", FINISH_NONE);
    cr_expect_str_eq(play.text, "abc");
    cr_expect_eq(play.finishes, 1);
    cr_expect_eq(play.cancels_decode, 0);
    expect_ended(&play);
}

Test(request, duplicates_are_dropped_and_counted)
{
    struct play play;
    reach(&play, REQUEST_DECODING);
    tokens(&play, PREFILL_NODE, 0, "a", FINISH_NONE);
    tokens(&play, DECODE_NODE, 0, "ab", FINISH_NONE);
    tokens(&play, DECODE_NODE, 1, "bc", FINISH_NONE);
    cr_expect_str_eq(play.text, "abc");
    cr_expect_eq(play.request.duplicates, 3);
    tokens(&play, DECODE_NODE, 2, "c", FINISH_LENGTH);
    cr_expect_str_eq(play.text, "abc");
    cr_expect_eq(play.finishes, 1, "a repeated token can still say it was the last");
    expect_ended(&play);
}

Test(request, a_second_gap_is_a_fault)
{
    struct play play;
    reach(&play, REQUEST_PREFILLING);
    tokens(&play, DECODE_NODE, 1, "b", FINISH_NONE);
    tokens(&play, DECODE_NODE, 3, "d", FINISH_NONE);
    cr_expect_eq(play.failures, 1);
    cr_expect_eq(play.request.failure.http_status, 500);
    cr_expect_eq(play.cancels_prefill + play.cancels_decode, 2);
    expect_ended(&play);
}

Test(request, more_than_asked_for_is_a_fault)
{
    struct play play;
    reach(&play, REQUEST_DECODING);
    tokens(&play, DECODE_NODE, 1, "bcdefghijklmnopqrstuv", FINISH_NONE);
    cr_expect_eq(play.failures, 1);
    cr_expect_str_eq(play.text, "a");
    expect_ended(&play);
}

Test(request, strangers_are_ignored)
{
    struct play play;
    reach(&play, REQUEST_DECODING);
    tokens(&play, OTHER_NODE, 1, "x", FINISH_LENGTH);
    simple(&play, EVENT_FAILED, OTHER_NODE);
    cr_expect_str_eq(play.text, "a");
    cr_expect_eq(play.request.state, REQUEST_DECODING);
    simple(&play, EVENT_CLIENT_GONE, 0);
    expect_ended(&play);
}

/* What a client that leaves must set off, state by state. */
Test(request, client_gone_in_every_state)
{
    static const struct {
        enum request_state state;
        uint32_t cancels_prefill, cancels_decode;
    } rows[] = {{REQUEST_TOKENISING, 0, 0}, {REQUEST_QUEUED, 0, 0},   {REQUEST_RESERVING, 0, 1},
                {REQUEST_PREFILLING, 1, 1}, {REQUEST_DECODING, 1, 1}, {REQUEST_REPORTING, 0, 0}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct play play;
        reach(&play, rows[i].state);
        simple(&play, EVENT_CLIENT_GONE, 0);
        const char *name = request_state_name(rows[i].state);
        cr_expect_eq(play.drops, 1, "%s", name);
        cr_expect_eq(play.cancels_prefill, rows[i].cancels_prefill, "%s", name);
        cr_expect_eq(play.cancels_decode, rows[i].cancels_decode, "%s", name);
        expect_ended(&play);
    }
}

Test(request, decode_node_lost_in_every_state)
{
    for (enum request_state state = REQUEST_RESERVING; state <= REQUEST_DECODING; state++) {
        struct play play;
        reach(&play, state);
        simple(&play, EVENT_WORKER_LOST, DECODE_NODE);
        cr_expect_eq(play.failures, 1, "%s", request_state_name(state));
        cr_expect_eq(play.cancels_decode, 0);
        cr_expect_eq(play.cancels_prefill, state >= REQUEST_PREFILLING ? 1 : 0);
        expect_ended(&play);
    }
}

/* Before the first token another one takes its place, and the decode node stays. */
Test(request, a_lost_prefill_node_is_replaced)
{
    for (enum request_state state = REQUEST_RESERVING; state <= REQUEST_PREFILLING; state++) {
        for (int how = 0; how < 2; how++) {
            struct play play;
            reach(&play, state);
            simple(&play, how == 0 ? EVENT_WORKER_LOST : EVENT_FAILED, PREFILL_NODE);
            cr_assert_eq(play.request.state, REQUEST_QUEUED, "%s", request_state_name(state));
            cr_expect_eq(play.places, 2);
            cr_expect_eq(play.cancels_decode, 1, "of the first attempt");
            cr_expect_eq(play.cancels_prefill, 0, "it has forgotten it");
            cr_expect_eq(play.prefill_charges + play.decode_charges, 0);
            cr_assert_eq(play.request.barred_count, 1);
            cr_expect_eq(play.request.barred[0], PREFILL_NODE);
            cr_expect_eq(play.request.kept_decode, DECODE_NODE);
            placed(&play, OTHER_NODE, DECODE_NODE);
            cr_expect_eq(play.request.attempt, 2);
            cr_expect_str_eq(play.request.failure.text, "");
            reserved(&play);
            tokens(&play, PREFILL_NODE, 0, "x", FINISH_NONE); /* it is nobody now */
            tokens(&play, OTHER_NODE, 0, "a", FINISH_NONE);
            tokens(&play, DECODE_NODE, 1, "b", FINISH_LENGTH);
            cr_expect_str_eq(play.text, "ab");
            cr_expect_eq(play.finishes, 1);
            expect_ended(&play);
        }
    }
}

/* The decode node may see the other's death before the router does. */
Test(request, pages_that_do_not_come_are_asked_of_another_prefill_node)
{
    struct play play;
    reach(&play, REQUEST_PREFILLING);
    simple(&play, EVENT_FAILED, DECODE_NODE);
    cr_assert_eq(play.request.state, REQUEST_QUEUED);
    cr_expect_eq(play.request.barred[0], PREFILL_NODE);
    cr_expect_eq(play.request.kept_decode, DECODE_NODE);
    cr_expect_eq(play.cancels_prefill, 1);
    cr_expect_eq(play.cancels_decode, 0, "it has forgotten the request");
    simple(&play, EVENT_WORKER_LOST, PREFILL_NODE); /* late */
    cr_expect_eq(play.request.state, REQUEST_QUEUED);
    simple(&play, EVENT_CLIENT_GONE, 0);
    expect_ended(&play);
}

Test(request, a_request_that_fails_every_prefill_node_fails)
{
    struct play play;
    reach(&play, REQUEST_PREFILLING);
    for (uint32_t i = 0; i < REQUEST_BARRED_MAX; i++) {
        simple(&play, EVENT_FAILED, i == 0 ? PREFILL_NODE : OTHER_NODE);
        cr_assert_eq(play.request.state, REQUEST_QUEUED);
        placed(&play, OTHER_NODE, DECODE_NODE);
        reserved(&play);
    }
    simple(&play, EVENT_FAILED, OTHER_NODE);
    cr_expect_eq(play.failures, 1);
    cr_expect_eq(play.places, 1 + REQUEST_BARRED_MAX);
    expect_ended(&play);
}

/* Another node would say the same. */
Test(request, the_clients_own_fault_is_not_tried_elsewhere)
{
    struct play play;
    struct request_failure failure;
    request_failure_set(&failure, 400, "invalid_request", "for the test");
    reach(&play, REQUEST_PREFILLING);
    feed(&play,
         (struct request_event){.kind = EVENT_FAILED, .worker = PREFILL_NODE, .failure = &failure});
    cr_expect_eq(play.failures, 1);
    cr_expect_eq(play.request.failure.http_status, 400);
    expect_ended(&play);
}

Test(request, a_prefill_node_lost_after_the_first_token)
{
    /* Once the first token is out it is the decode node that knows whether its pages came. */
    struct play play;
    reach(&play, REQUEST_DECODING);
    simple(&play, EVENT_WORKER_LOST, PREFILL_NODE);
    cr_expect_eq(play.request.state, REQUEST_DECODING);
    tokens(&play, DECODE_NODE, 1, "b", FINISH_LENGTH);
    cr_expect_eq(play.finishes, 1);
    cr_expect_eq(play.cancels_prefill, 0, "a lost node is not called");
    expect_ended(&play);
}

Test(request, failed_hand_off_fails_the_request)
{
    struct play play;
    reach(&play, REQUEST_DECODING);
    simple(&play, EVENT_FAILED, PREFILL_NODE);
    cr_expect_eq(play.request.state, REQUEST_DECODING);
    simple(&play, EVENT_FAILED, DECODE_NODE);
    cr_expect_eq(play.failures, 1);
    cr_expect_eq(play.cancels_prefill + play.cancels_decode, 0, "both have let go already");
    expect_ended(&play);
}

static void damaged(struct play *play, worker_handle worker)
{
    struct request_failure failure;
    request_failure_set(&failure, 500, "worker_fault", "pages were damaged");
    failure.again = true;
    feed(play, (struct request_event){.kind = EVENT_FAILED, .worker = worker, .failure = &failure});
}

/* Before any token is out, and after the first: the client sees each token once. */
Test(request, damaged_pages_are_handed_over_once_more)
{
    for (int out = 0; out < 2; out++) {
        for (int who = 0; who < 2; who++) {
            struct play play;
            reach(&play, out ? REQUEST_DECODING : REQUEST_PREFILLING);
            if (who == 1 && out == 1) {
                damaged(&play, PREFILL_NODE); /* the decode node will say so */
                cr_expect_eq(play.request.state, REQUEST_DECODING);
            }
            damaged(&play, who == 0 || out ? DECODE_NODE : PREFILL_NODE);
            cr_assert_eq(play.request.state, REQUEST_QUEUED);
            cr_expect_eq(play.places, 2);
            cr_expect_eq(play.cancels_prefill + play.cancels_decode, who == 1 && out == 1 ? 0 : 1);
            cr_expect_eq(play.prefill_charges + play.decode_charges, 0);
            cr_expect_eq(play.cancel_attempt, play.cancels_prefill + play.cancels_decode);
            damaged(&play, PREFILL_NODE); /* the other one, late */
            cr_expect_eq(play.request.state, REQUEST_QUEUED);
            placed(&play, PREFILL_NODE, DECODE_NODE);
            cr_expect_eq(play.request.attempt, 2);
            reserved(&play);
            tokens(&play, PREFILL_NODE, 0, "a", FINISH_NONE);
            tokens(&play, DECODE_NODE, 1, "bc", FINISH_LENGTH);
            cr_expect_str_eq(play.text, "abc");
            cr_expect_eq(play.request.duplicates, (uint32_t)out);
            cr_expect_eq(play.finishes, 1);
            expect_ended(&play);
        }
    }
}

Test(request, pages_damaged_twice_are_one_clean_error)
{
    struct play play;
    reach(&play, REQUEST_DECODING);
    damaged(&play, DECODE_NODE);
    placed(&play, PREFILL_NODE, DECODE_NODE);
    reserved(&play);
    damaged(&play, DECODE_NODE);
    cr_expect_eq(play.failures, 1);
    cr_expect_eq(play.places, 2);
    expect_ended(&play);
}

/* Of three answers one had ended when the pages of the first attempt were found to be damaged. */
Test(request, a_choice_that_had_ended_is_not_written_again)
{
    struct play play;
    begin(&play);
    play.request.choice_count = 3;
    encoded(&play);
    placed(&play, PREFILL_NODE, DECODE_NODE);
    reserved(&play);
    for (uint32_t choice = 0; choice < 3; choice++)
        choice_token(&play, PREFILL_NODE, choice, 0, choice == 1 ? FINISH_STOP : FINISH_NONE);
    struct request_failure failure;
    request_failure_set(&failure, 500, "worker_fault", "pages were damaged");
    failure.again = true;
    const struct request_event damage = {
        .kind = EVENT_FAILED, .worker = DECODE_NODE, .failure = &failure};
    request_handle(&play.request, &damage, play.now_ns, &play.actions);
    cr_assert_eq(play.request.state, REQUEST_QUEUED);
    placed(&play, PREFILL_NODE, DECODE_NODE);
    reserved(&play);
    /* Told once, whatever comes of it. */
    choice_token(&play, PREFILL_NODE, 1, 0, FINISH_NONE);
    expect_actions(&play, (struct expected_action[]){{ACTION_CANCEL, 1}}, 1);
    cr_expect_eq(play.actions.items[0].worker, DECODE_NODE);
    cr_expect_eq(play.actions.items[0].attempt, 2);
    choice_token(&play, DECODE_NODE, 1, 1, FINISH_NONE);
    cr_expect_eq(play.actions.count, 0);
    choice_token(&play, PREFILL_NODE, 0, 0, FINISH_NONE);
    choice_token(&play, PREFILL_NODE, 2, 0, FINISH_NONE);
    choice_token(&play, DECODE_NODE, 0, 1, FINISH_LENGTH);
    choice_token(&play, DECODE_NODE, 2, 1, FINISH_LENGTH);
    cr_expect_eq(play.request.state, REQUEST_ENDED);
    request_free(&play.request);
}

Test(request, reporting_is_past_all_harm)
{
    for (enum request_event_kind kind = EVENT_WORKER_LOST; kind <= EVENT_SHUTDOWN; kind++) {
        if (kind != EVENT_WORKER_LOST && kind != EVENT_SHUTDOWN)
            continue;
        struct play play;
        reach(&play, REQUEST_REPORTING);
        simple(&play, kind, DECODE_NODE);
        cr_expect_eq(play.finishes, 1);
        expect_ended(&play);
    }
}

static void report(struct play *play, enum worker_role role)
{
    const struct msg_report message = {.role = role, .compute_us = 5};
    feed(play, (struct request_event){.kind = EVENT_REPORT, .report = &message});
}

Test(request, waits_for_both_reports_when_asked)
{
    struct play play;
    reach(&play, REQUEST_REPORTING);
    report(&play, WORKER_PREFILL);
    cr_expect_eq(play.request.state, REQUEST_REPORTING);
    report(&play, WORKER_DECODE);
    cr_expect_eq(play.finishes, 1);
    cr_expect(play.request.report_seen[0] && play.request.report_seen[1]);
    expect_ended(&play);
}

Test(request, no_report_is_due_from_a_node_that_was_not_needed)
{
    struct play play;
    reach(&play, REQUEST_PREFILLING);
    play.request.reports_wanted = true;
    tokens(&play, PREFILL_NODE, 0, "a", FINISH_STOP);
    cr_expect_eq(play.request.state, REQUEST_REPORTING);
    report(&play, WORKER_PREFILL);
    cr_expect_eq(play.finishes, 1);
    expect_ended(&play);
}

Test(request, waits_for_reports_only_so_long)
{
    struct play play;
    reach(&play, REQUEST_REPORTING);
    cr_expect_eq(request_deadline_ns(&play.request), play.now_ns + 50 * (uint64_t)NS_PER_MS);
    play.now_ns = request_deadline_ns(&play.request) - 1;
    simple(&play, EVENT_DEADLINE, 0);
    cr_expect_eq(play.request.state, REQUEST_REPORTING);
    play.now_ns++;
    simple(&play, EVENT_DEADLINE, 0);
    cr_expect_eq(play.finishes, 1);
    expect_ended(&play);
}

Test(request, total_deadline_in_every_state)
{
    for (enum request_state state = REQUEST_TOKENISING; state <= REQUEST_DECODING; state++) {
        struct play play;
        reach(&play, state);
        play.now_ns = 1000 + 60000 * (uint64_t)NS_PER_MS;
        simple(&play, EVENT_DEADLINE, 0);
        cr_expect_eq(play.failures, 1, "%s", request_state_name(state));
        cr_expect_eq(play.request.failure.http_status, 504);
        expect_ended(&play);
    }
}

Test(request, a_reservation_is_answered_in_time)
{
    struct play play;
    reach(&play, REQUEST_RESERVING);
    play.now_ns = request_deadline_ns(&play.request);
    cr_expect_eq(play.now_ns, 1000 + 5000 * (uint64_t)NS_PER_MS);
    simple(&play, EVENT_DEADLINE, 0);
    cr_expect_eq(play.request.failure.http_status, 503);
    cr_expect_eq(play.cancels_decode, 1, "it may yet answer, and must let go");
    expect_ended(&play);
}

Test(request, refused_and_placed_again)
{
    struct play play;
    reach(&play, REQUEST_RESERVING);
    simple(&play, EVENT_REFUSED, DECODE_NODE);
    cr_expect_eq(play.request.state, REQUEST_QUEUED);
    cr_expect_eq(play.prefill_charges + play.decode_charges, 0);
    cr_expect_eq(play.cancels_decode, 0);
    simple(&play, EVENT_WAIT, 0);
    placed(&play, PREFILL_NODE, DECODE_NODE);
    cr_expect_eq(play.request.attempt, 2);
    reserved(&play);
    simple(&play, EVENT_REFUSED, PREFILL_NODE);
    cr_expect_eq(play.request.state, REQUEST_QUEUED);
    cr_expect_eq(play.cancels_decode, 1, "the pages it set aside go back");
    cr_expect_eq(play.cancel_attempt, 2);
    cr_expect_eq(play.cancels_prefill, 0);
    simple(&play, EVENT_SHUTDOWN, 0);
    expect_ended(&play);
}

Test(request, stop_string_cancels_both)
{
    struct play play;
    reach(&play, REQUEST_DECODING);
    simple(&play, EVENT_STOPPED, 0);
    cr_expect_eq(play.request.choices[0].finish, REQUEST_FINISH_STOP_STRING);
    cr_expect_eq(play.cancels_decode, 1);
    cr_expect_eq(play.finishes, 1);
    expect_ended(&play);
}

/* Whatever happens in whatever order: one end, nothing left charged. */
Test(request, any_order_of_events_ends_once)
{
    uint64_t seed = 12345;
    for (int round = 0; round < 20000; round++) {
        struct play play;
        begin(&play);
        for (int i = 0; i < 40 && play.request.state != REQUEST_ENDED; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const uint32_t dice = (uint32_t)(seed >> 40);
            const worker_handle worker = dice % 2 ? PREFILL_NODE : DECODE_NODE;
            const enum request_event_kind kind =
                (enum request_event_kind)(dice / 2 % REQUEST_EVENT_COUNT);
            play.now_ns += NS_PER_MS;
            if (kind == EVENT_PLACED && play.request.state == REQUEST_QUEUED)
                placed(&play, dice / 64 % 2 ? PREFILL_NODE : 0, DECODE_NODE);
            else if (kind == EVENT_TOKENS)
                tokens(&play, worker, (uint32_t)strlen(play.text), "t",
                       dice / 64 % 8 == 0 ? FINISH_STOP : FINISH_NONE);
            else if (kind == EVENT_REPORT)
                report(&play, worker == PREFILL_NODE ? WORKER_PREFILL : WORKER_DECODE);
            else if (kind != EVENT_PLACED)
                simple(&play, kind, worker);
        }
        if (play.request.state != REQUEST_ENDED)
            simple(&play, EVENT_CLIENT_GONE, 0);
        expect_ended(&play);
    }
}
