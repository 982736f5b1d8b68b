/* The walk of a request, its losses and its ends. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "tests/router/request_play.h"

Test(request, choices_end_one_by_one)
{
    struct play play;
    play_begin(&play);
    play.request.choice_count = 4;
    play_encoded(&play);
    play_placed(&play, PREFILL_NODE, DECODE_NODE);
    play_reserved(&play);
    play_choice_token(&play, PREFILL_NODE, 0, 0, FINISH_NONE);
    play_expect_actions(
        &play, (struct expected_action[]){{ACTION_DELIVER, 0}, {ACTION_RELEASE_PREFILL, 0}}, 2);
    play.prefill_charges = 0;
    /* The first token of this one was an end. */
    play_choice_token(&play, PREFILL_NODE, 1, 0, FINISH_STOP);
    play_expect_actions(&play, (struct expected_action[]){{ACTION_CHOICE_END, 1}}, 1);
    /* The decode node is ahead for one choice; the others do not wait. */
    play_choice_token(&play, DECODE_NODE, 3, 1, FINISH_NONE);
    cr_assert_eq(play.actions.count, 0);
    play_choice_token(&play, PREFILL_NODE, 2, 0, FINISH_NONE);
    play_expect_actions(&play, (struct expected_action[]){{ACTION_DELIVER, 2}}, 1);
    play_choice_token(&play, PREFILL_NODE, 3, 0, FINISH_NONE);
    play_expect_actions(&play, (struct expected_action[]){{ACTION_DELIVER, 3}, {ACTION_DELIVER, 3}},
                        2);
    /* One meets a stop string: the node is told of that one, and what still comes is nothing. */
    const struct request_event stopped = {.kind = EVENT_STOPPED, .choice = 2};
    request_handle(&play.request, &stopped, play.now_ns, &play.actions);
    play_expect_actions(&play,
                        (struct expected_action[]){{ACTION_CHOICE_END, 2}, {ACTION_CANCEL, 2}}, 2);
    play_choice_token(&play, DECODE_NODE, 2, 1, FINISH_LENGTH);
    cr_assert_eq(play.actions.count, 0);
    play_choice_token(&play, DECODE_NODE, 0, 1, FINISH_LENGTH);
    play_expect_actions(&play,
                        (struct expected_action[]){{ACTION_DELIVER, 0}, {ACTION_CHOICE_END, 0}}, 2);
    play_choice_token(&play, DECODE_NODE, 3, 2, FINISH_LENGTH);
    play_expect_actions(&play,
                        (struct expected_action[]){
                            {ACTION_DELIVER, 3}, {ACTION_RELEASE_DECODE, 0}, {ACTION_FINISH, 0}},
                        3);
    cr_expect_eq(play.request.choices[1].finish, REQUEST_FINISH_STOP);
    cr_expect_eq(play.request.choices[2].finish, REQUEST_FINISH_STOP_STRING);
    cr_expect_eq(play.request.choices[3].finish, REQUEST_FINISH_LENGTH);
    play.decode_charges = 0;
    play.finishes = 1;
    play_expect_ended(&play);
}

/* The decode node has given up this one; it still writes the others, and is told of the end. */
Test(request, a_choice_that_fails_ends_the_others)
{
    struct play play;
    play_begin(&play);
    play.request.choice_count = 3;
    play_encoded(&play);
    play_placed(&play, PREFILL_NODE, DECODE_NODE);
    play_reserved(&play);
    for (uint32_t choice = 0; choice < 3; choice++)
        play_choice_token(&play, PREFILL_NODE, choice, 0, FINISH_NONE);
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
    play_reach(&play, REQUEST_DECODING);
    play_choice_token(&play, DECODE_NODE, 1, 1, FINISH_NONE);
    play_sum_up(&play);
    cr_expect_eq(play.failures, 1);
    play_expect_ended(&play);
}

Test(request, the_walk)
{
    struct play play;
    play_reach(&play, REQUEST_DECODING);
    cr_expect_eq(play.places, 1);
    cr_expect_eq(play.reserves, 1);
    cr_expect_eq(play.prefills, 1);
    cr_expect_eq(play.prefill_charges, 0, "prefill's part is over with the first token");
    cr_expect_eq(play.decode_charges, 1);
    play_tokens(&play, DECODE_NODE, 1, "b", FINISH_NONE);
    play_tokens(&play, DECODE_NODE, 2, "cd", FINISH_NONE);
    play_tokens(&play, DECODE_NODE, 4, "", FINISH_STOP);
    cr_expect_str_eq(play.text, "abcd");
    cr_expect_eq(play.request.choices[0].finish, REQUEST_FINISH_STOP);
    cr_expect_eq(play.request.choices[0].stop_id, 99);
    cr_expect_eq(play.finishes, 1);
    cr_expect_eq(play.cancels_prefill + play.cancels_decode, 0);
    play_expect_ended(&play);
}

Test(request, without_prefill_node)
{
    struct play play;
    play_begin(&play);
    play_encoded(&play);
    play_placed(&play, 0, DECODE_NODE);
    cr_expect_eq(play.reserves, 1);
    play_reserved(&play);
    cr_expect_eq(play.prefills, 0);
    play_tokens(&play, DECODE_NODE, 0, "a", FINISH_NONE);
    cr_expect_eq(play.decode_charges, 1);
    play_tokens(&play, DECODE_NODE, 1, "b", FINISH_LENGTH);
    cr_expect_str_eq(play.text, "ab");
    play_expect_ended(&play);
}

Test(request, the_decode_node_reads_what_it_lacks_itself)
{
    struct play play;
    play_begin(&play);
    play_encoded(&play);
    play_placed(&play, PREFILL_NODE, DECODE_NODE);
    play_feed(&play,
              (struct request_event){.kind = EVENT_RESERVED, .worker = DECODE_NODE, .local = true});
    cr_expect_eq(play.request.placement.reason, PLACEMENT_SHORT);
    cr_expect_eq(play.prefills, 0);
    cr_expect_eq(play.prefill_charges, 0, "its charge is given back at once");
    /* The prefill node has no part in it: its loss is nothing, its tokens are nobody's. */
    play_simple(&play, EVENT_WORKER_LOST, PREFILL_NODE);
    play_tokens(&play, PREFILL_NODE, 0, "x", FINISH_NONE);
    play_tokens(&play, DECODE_NODE, 0, "a", FINISH_NONE);
    play_tokens(&play, DECODE_NODE, 1, "b", FINISH_LENGTH);
    cr_expect_str_eq(play.text, "ab");
    cr_expect_eq(play.cancels_prefill, 0);
    play_expect_ended(&play);
}

Test(request, one_token_on_the_prefill_node_alone)
{
    struct play play;
    play_begin(&play);
    play.request.max_tokens = 1;
    play_encoded(&play);
    play_placed(&play, PREFILL_NODE, 0);
    cr_expect_eq(play.reserves, 0);
    cr_expect_eq(play.prefills, 1);
    play_tokens(&play, PREFILL_NODE, 0, "a", FINISH_LENGTH);
    cr_expect_eq(play.cancels_prefill, 0);
    play_expect_ended(&play);
}

Test(request, prefill_that_finishes_cancels_decode)
{
    struct play play;
    play_reach(&play, REQUEST_PREFILLING);
    play_tokens(&play, PREFILL_NODE, 0, "", FINISH_STOP);
    cr_expect_eq(play.cancels_decode, 1);
    cr_expect_eq(play.cancels_prefill, 0);
    cr_expect_eq(play.finishes, 1);
    cr_expect_str_eq(play.text, "");
    play_expect_ended(&play);
}

Test(request, overtaking_tokens_are_held)
{
    struct play play;
    play_reach(&play, REQUEST_PREFILLING);
    play_tokens(&play, DECODE_NODE, 1, "b", FINISH_NONE);
    play_tokens(&play, DECODE_NODE, 2, "cd", FINISH_NONE);
    cr_expect_str_eq(play.text, "");
    cr_expect_eq(play.request.state, REQUEST_PREFILLING);
    play_tokens(&play, PREFILL_NODE, 0, "a", FINISH_NONE);
    cr_expect_str_eq(play.text, "abcd");
    cr_expect_eq(play.request.overtaken, 3);
    play_tokens(&play, DECODE_NODE, 4, "e", FINISH_LENGTH);
    cr_expect_str_eq(play.text, "abcde");
    play_expect_ended(&play);
}

Test(request, a_held_finish_ends_it)
{
    struct play play;
    play_reach(&play, REQUEST_PREFILLING);
    play_tokens(&play, DECODE_NODE, 1, "b", FINISH_NONE);
    play_tokens(&play, DECODE_NODE, 2, "c", FINISH_STOP);
    play_tokens(&play, PREFILL_NODE, 0, "a", FINISH_NONE);
    cr_expect_str_eq(play.text, "abc");
    cr_expect_eq(play.finishes, 1);
    cr_expect_eq(play.cancels_decode, 0);
    play_expect_ended(&play);
}

/* What is held is one run: how likely the id is that ends it can not be told where that of the
 * tokens before was not. */
Test(request, a_held_end_must_fit_what_is_held)
{
    static const float logprob = -1;
    struct play play;
    play_reach(&play, REQUEST_PREFILLING);
    play_tokens(&play, DECODE_NODE, 1, "b", FINISH_NONE);
    const struct msg_step end = {.first_position = PROMPT + 2,
                                 .finish = FINISH_STOP,
                                 .stop_id = 99,
                                 .logprobs = {&logprob, 1}};
    play_feed(&play,
              (struct request_event){.kind = EVENT_TOKENS, .worker = DECODE_NODE, .step = &end});
    cr_expect_eq(play.failures, 1);
    cr_expect_str_eq(play.request.failure.code, "worker_fault");
    play_expect_ended(&play);
}

Test(request, duplicates_are_dropped_and_counted)
{
    struct play play;
    play_reach(&play, REQUEST_DECODING);
    play_tokens(&play, PREFILL_NODE, 0, "a", FINISH_NONE);
    play_tokens(&play, DECODE_NODE, 0, "ab", FINISH_NONE);
    play_tokens(&play, DECODE_NODE, 1, "bc", FINISH_NONE);
    cr_expect_str_eq(play.text, "abc");
    cr_expect_eq(play.request.duplicates, 3);
    play_tokens(&play, DECODE_NODE, 2, "c", FINISH_LENGTH);
    cr_expect_str_eq(play.text, "abc");
    cr_expect_eq(play.finishes, 1, "a repeated token can still say it was the last");
    play_expect_ended(&play);
}

Test(request, a_second_gap_is_a_fault)
{
    struct play play;
    play_reach(&play, REQUEST_PREFILLING);
    play_tokens(&play, DECODE_NODE, 1, "b", FINISH_NONE);
    play_tokens(&play, DECODE_NODE, 3, "d", FINISH_NONE);
    cr_expect_eq(play.failures, 1);
    cr_expect_eq(play.request.failure.http_status, 500);
    cr_expect_eq(play.cancels_prefill + play.cancels_decode, 2);
    play_expect_ended(&play);
}

Test(request, more_than_asked_for_is_a_fault)
{
    struct play play;
    play_reach(&play, REQUEST_DECODING);
    play_tokens(&play, DECODE_NODE, 1, "bcdefghijklmnopqrstuv", FINISH_NONE);
    cr_expect_eq(play.failures, 1);
    cr_expect_str_eq(play.text, "a");
    play_expect_ended(&play);
}

Test(request, strangers_are_ignored)
{
    struct play play;
    play_reach(&play, REQUEST_DECODING);
    play_tokens(&play, OTHER_NODE, 1, "x", FINISH_LENGTH);
    play_simple(&play, EVENT_FAILED, OTHER_NODE);
    cr_expect_str_eq(play.text, "a");
    cr_expect_eq(play.request.state, REQUEST_DECODING);
    play_simple(&play, EVENT_CLIENT_GONE, 0);
    play_expect_ended(&play);
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
        play_reach(&play, rows[i].state);
        play_simple(&play, EVENT_CLIENT_GONE, 0);
        const char *name = request_state_name(rows[i].state);
        cr_expect_eq(play.drops, 1, "%s", name);
        cr_expect_eq(play.cancels_prefill, rows[i].cancels_prefill, "%s", name);
        cr_expect_eq(play.cancels_decode, rows[i].cancels_decode, "%s", name);
        play_expect_ended(&play);
    }
}

Test(request, decode_node_lost_once_it_has_reserved)
{
    for (enum request_state state = REQUEST_PREFILLING; state <= REQUEST_DECODING; state++) {
        struct play play;
        play_reach(&play, state);
        play_simple(&play, EVENT_WORKER_LOST, DECODE_NODE);
        cr_expect_eq(play.failures, 1, "%s", request_state_name(state));
        cr_expect_eq(play.cancels_decode, 0);
        cr_expect_eq(play.cancels_prefill, 1);
        play_expect_ended(&play);
    }
}

Test(request, a_prefill_node_lost_after_the_first_token)
{
    /* Once the first token is out it is the decode node that knows whether its pages came. */
    struct play play;
    play_reach(&play, REQUEST_DECODING);
    play_simple(&play, EVENT_WORKER_LOST, PREFILL_NODE);
    cr_expect_eq(play.request.state, REQUEST_DECODING);
    play_tokens(&play, DECODE_NODE, 1, "b", FINISH_LENGTH);
    cr_expect_eq(play.finishes, 1);
    cr_expect_eq(play.cancels_prefill, 0, "a lost node is not called");
    play_expect_ended(&play);
}

Test(request, failed_hand_off_fails_the_request)
{
    struct play play;
    play_reach(&play, REQUEST_DECODING);
    play_simple(&play, EVENT_FAILED, PREFILL_NODE);
    cr_expect_eq(play.request.state, REQUEST_DECODING);
    play_simple(&play, EVENT_FAILED, DECODE_NODE);
    cr_expect_eq(play.failures, 1);
    cr_expect_eq(play.cancels_prefill + play.cancels_decode, 0, "both have let go already");
    play_expect_ended(&play);
}

Test(request, reporting_is_past_all_harm)
{
    for (enum request_event_kind kind = EVENT_WORKER_LOST; kind <= EVENT_SHUTDOWN; kind++) {
        if (kind != EVENT_WORKER_LOST && kind != EVENT_SHUTDOWN)
            continue;
        struct play play;
        play_reach(&play, REQUEST_REPORTING);
        play_simple(&play, kind, DECODE_NODE);
        cr_expect_eq(play.finishes, 1);
        play_expect_ended(&play);
    }
}

static void report(struct play *play, enum worker_role role)
{
    const struct msg_report message = {.role = role, .compute_us = 5};
    play_feed(play, (struct request_event){.kind = EVENT_REPORT, .report = &message});
}

Test(request, waits_for_both_reports_when_asked)
{
    struct play play;
    play_reach(&play, REQUEST_REPORTING);
    report(&play, WORKER_PREFILL);
    cr_expect_eq(play.request.state, REQUEST_REPORTING);
    report(&play, WORKER_DECODE);
    cr_expect_eq(play.finishes, 1);
    cr_expect(play.request.report_seen[0] && play.request.report_seen[1]);
    play_expect_ended(&play);
}

Test(request, no_report_is_due_from_a_node_that_was_not_needed)
{
    struct play play;
    play_reach(&play, REQUEST_PREFILLING);
    play.request.reports_wanted = true;
    play_tokens(&play, PREFILL_NODE, 0, "a", FINISH_STOP);
    cr_expect_eq(play.request.state, REQUEST_REPORTING);
    report(&play, WORKER_PREFILL);
    cr_expect_eq(play.finishes, 1);
    play_expect_ended(&play);
}

Test(request, waits_for_reports_only_so_long)
{
    struct play play;
    play_reach(&play, REQUEST_REPORTING);
    cr_expect_eq(request_deadline_ns(&play.request), play.now_ns + 50 * (uint64_t)NS_PER_MS);
    play.now_ns = request_deadline_ns(&play.request) - 1;
    play_simple(&play, EVENT_DEADLINE, 0);
    cr_expect_eq(play.request.state, REQUEST_REPORTING);
    play.now_ns++;
    play_simple(&play, EVENT_DEADLINE, 0);
    cr_expect_eq(play.finishes, 1);
    play_expect_ended(&play);
}

Test(request, total_deadline_in_every_state)
{
    for (enum request_state state = REQUEST_TOKENISING; state <= REQUEST_DECODING; state++) {
        struct play play;
        play_reach(&play, state);
        play.now_ns = 1000 + 60000 * (uint64_t)NS_PER_MS;
        play_simple(&play, EVENT_DEADLINE, 0);
        cr_expect_eq(play.failures, 1, "%s", request_state_name(state));
        cr_expect_eq(play.request.failure.http_status, 504);
        play_expect_ended(&play);
    }
}

Test(request, a_reservation_is_answered_in_time)
{
    struct play play;
    play_reach(&play, REQUEST_RESERVING);
    play.now_ns = request_deadline_ns(&play.request);
    cr_expect_eq(play.now_ns, 1000 + 5000 * (uint64_t)NS_PER_MS);
    play_simple(&play, EVENT_DEADLINE, 0);
    cr_expect_eq(play.request.failure.http_status, 503);
    cr_expect_eq(play.cancels_decode, 1, "it may yet answer, and must let go");
    play_expect_ended(&play);
}

Test(request, refused_and_placed_again)
{
    struct play play;
    play_reach(&play, REQUEST_RESERVING);
    play_simple(&play, EVENT_REFUSED, DECODE_NODE);
    cr_expect_eq(play.request.state, REQUEST_QUEUED);
    cr_expect_eq(play.prefill_charges + play.decode_charges, 0);
    cr_expect_eq(play.cancels_decode, 0);
    play_simple(&play, EVENT_WAIT, 0);
    play_placed(&play, PREFILL_NODE, DECODE_NODE);
    cr_expect_eq(play.request.attempt, 2);
    play_reserved(&play);
    play_simple(&play, EVENT_REFUSED, PREFILL_NODE);
    cr_expect_eq(play.request.state, REQUEST_QUEUED);
    cr_expect_eq(play.cancels_decode, 1, "the pages it set aside go back");
    cr_expect_eq(play.cancel_attempt, 2);
    cr_expect_eq(play.cancels_prefill, 0);
    play_simple(&play, EVENT_SHUTDOWN, 0);
    play_expect_ended(&play);
}

Test(request, stop_string_cancels_both)
{
    struct play play;
    play_reach(&play, REQUEST_DECODING);
    play_simple(&play, EVENT_STOPPED, 0);
    cr_expect_eq(play.request.choices[0].finish, REQUEST_FINISH_STOP_STRING);
    cr_expect_eq(play.cancels_decode, 1);
    cr_expect_eq(play.finishes, 1);
    play_expect_ended(&play);
}

/* Whatever happens in whatever order: one end, nothing left charged. */
Test(request, any_order_of_events_ends_once)
{
    uint64_t seed = 12345;
    for (int round = 0; round < 20000; round++) {
        struct play play;
        play_begin(&play);
        for (int i = 0; i < 40 && play.request.state != REQUEST_ENDED; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const uint32_t dice = (uint32_t)(seed >> 40);
            const worker_handle worker = dice % 2 ? PREFILL_NODE : DECODE_NODE;
            const enum request_event_kind kind =
                (enum request_event_kind)(dice / 2 % REQUEST_EVENT_COUNT);
            play.now_ns += NS_PER_MS;
            if (kind == EVENT_PLACED && play.request.state == REQUEST_QUEUED)
                play_placed(&play, dice / 64 % 2 ? PREFILL_NODE : 0, DECODE_NODE);
            else if (kind == EVENT_TOKENS)
                play_tokens(&play, worker, (uint32_t)strlen(play.text), "t",
                            dice / 64 % 8 == 0 ? FINISH_STOP : FINISH_NONE);
            else if (kind == EVENT_REPORT)
                report(&play, worker == PREFILL_NODE ? WORKER_PREFILL : WORKER_DECODE);
            else if (kind != EVENT_PLACED)
                play_simple(&play, kind, worker);
        }
        if (play.request.state != REQUEST_ENDED)
            play_simple(&play, EVENT_CLIENT_GONE, 0);
        play_expect_ended(&play);
    }
}
