/* Requests that are placed a second time. */
#include <criterion/criterion.h>

#include "tests/router/request_play.h"

/* Before the first token another one takes its place, and the decode node stays. */
Test(request_again, a_lost_prefill_node_is_replaced)
{
    for (enum request_state state = REQUEST_RESERVING; state <= REQUEST_PREFILLING; state++) {
        for (int how = 0; how < 2; how++) {
            struct play play;
            play_reach(&play, state);
            play_simple(&play, how == 0 ? EVENT_WORKER_LOST : EVENT_FAILED, PREFILL_NODE);
            cr_assert_eq(play.request.state, REQUEST_QUEUED, "%s", request_state_name(state));
            cr_expect_eq(play.places, 2);
            cr_expect_eq(play.cancels_decode, 1, "of the first attempt");
            cr_expect_eq(play.cancels_prefill, 0, "it has forgotten it");
            cr_expect_eq(play.prefill_charges + play.decode_charges, 0);
            cr_assert_eq(play.request.barred_count, 1);
            cr_expect_eq(play.request.barred[0], PREFILL_NODE);
            cr_expect_eq(play.request.kept_decode, DECODE_NODE);
            play_placed(&play, OTHER_NODE, DECODE_NODE);
            cr_expect_eq(play.request.attempt, 2);
            cr_expect_str_eq(play.request.failure.text, "");
            play_reserved(&play);
            play_tokens(&play, PREFILL_NODE, 0, "x", FINISH_NONE); /* it is nobody now */
            play_tokens(&play, OTHER_NODE, 0, "a", FINISH_NONE);
            play_tokens(&play, DECODE_NODE, 1, "b", FINISH_LENGTH);
            cr_expect_str_eq(play.text, "ab");
            cr_expect_eq(play.finishes, 1);
            play_expect_ended(&play);
        }
    }
}

/* The decode node may see the other's death before the router does. */
Test(request_again, pages_that_do_not_come_are_asked_of_another_prefill_node)
{
    struct play play;
    play_reach(&play, REQUEST_PREFILLING);
    play_simple(&play, EVENT_FAILED, DECODE_NODE);
    cr_assert_eq(play.request.state, REQUEST_QUEUED);
    cr_expect_eq(play.request.barred[0], PREFILL_NODE);
    cr_expect_eq(play.request.kept_decode, DECODE_NODE);
    cr_expect_eq(play.cancels_prefill, 1);
    cr_expect_eq(play.cancels_decode, 0, "it has forgotten the request");
    play_simple(&play, EVENT_WORKER_LOST, PREFILL_NODE); /* late */
    cr_expect_eq(play.request.state, REQUEST_QUEUED);
    play_simple(&play, EVENT_CLIENT_GONE, 0);
    play_expect_ended(&play);
}

Test(request_again, a_request_that_fails_every_prefill_node_fails)
{
    struct play play;
    play_reach(&play, REQUEST_PREFILLING);
    for (uint32_t i = 0; i < REQUEST_BARRED_MAX; i++) {
        play_simple(&play, EVENT_FAILED, i == 0 ? PREFILL_NODE : OTHER_NODE);
        cr_assert_eq(play.request.state, REQUEST_QUEUED);
        play_placed(&play, OTHER_NODE, DECODE_NODE);
        play_reserved(&play);
    }
    play_simple(&play, EVENT_FAILED, OTHER_NODE);
    cr_expect_eq(play.failures, 1);
    cr_expect_eq(play.places, 1 + REQUEST_BARRED_MAX);
    play_expect_ended(&play);
}

/* It went away before it had promised anything: another one is asked, and the prefill node with
 * it. */
Test(request_again, a_decode_node_that_goes_while_it_is_asked_is_replaced)
{
    struct play play;
    play_reach(&play, REQUEST_RESERVING);
    for (uint32_t i = 0; i < REQUEST_MOVES_MAX; i++) {
        const bool lost = i % 2 == 0;
        play_simple(&play, lost ? EVENT_WORKER_LOST : EVENT_FAILED, DECODE_NODE);
        cr_assert_eq(play.request.state, REQUEST_QUEUED);
        cr_expect_eq(play.places, 2 + i);
        cr_expect_eq(play.prefill_charges + play.decode_charges, 0);
        cr_expect_eq(play.cancels_prefill + play.cancels_decode, 0, "nobody has it");
        cr_expect_eq(play.request.barred_count, 0);
        play_placed(&play, PREFILL_NODE, DECODE_NODE);
        cr_expect_eq(play.request.attempt, 2 + i);
    }
    play_simple(&play, EVENT_WORKER_LOST, DECODE_NODE);
    cr_expect_eq(play.failures, 1, "the request may be what they die of");
    play_expect_ended(&play);
}

/* Another node would say the same. */
Test(request_again, the_clients_own_fault_is_not_tried_elsewhere)
{
    struct play play;
    struct request_failure failure;
    request_failure_set(&failure, 400, "invalid_request", "for the test");
    play_reach(&play, REQUEST_PREFILLING);
    play_feed(&play, (struct request_event){
                         .kind = EVENT_FAILED, .worker = PREFILL_NODE, .failure = &failure});
    cr_expect_eq(play.failures, 1);
    cr_expect_eq(play.request.failure.http_status, 400);
    play_expect_ended(&play);
}

static void damaged(struct play *play, worker_handle worker)
{
    struct request_failure failure;
    request_failure_set(&failure, 500, "worker_fault", "pages were damaged");
    failure.again = true;
    play_feed(play,
              (struct request_event){.kind = EVENT_FAILED, .worker = worker, .failure = &failure});
}

/* Before any token is out, and after the first: the client sees each token once. */
Test(request_again, damaged_pages_are_handed_over_once_more)
{
    for (int out = 0; out < 2; out++) {
        for (int who = 0; who < 2; who++) {
            struct play play;
            play_reach(&play, out ? REQUEST_DECODING : REQUEST_PREFILLING);
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
            play_placed(&play, PREFILL_NODE, DECODE_NODE);
            cr_expect_eq(play.request.attempt, 2);
            play_reserved(&play);
            play_tokens(&play, PREFILL_NODE, 0, "a", FINISH_NONE);
            play_tokens(&play, DECODE_NODE, 1, "bc", FINISH_LENGTH);
            cr_expect_str_eq(play.text, "abc");
            cr_expect_eq(play.request.duplicates, (uint32_t)out);
            cr_expect_eq(play.finishes, 1);
            play_expect_ended(&play);
        }
    }
}

Test(request_again, pages_damaged_twice_are_one_clean_error)
{
    struct play play;
    play_reach(&play, REQUEST_DECODING);
    damaged(&play, DECODE_NODE);
    play_placed(&play, PREFILL_NODE, DECODE_NODE);
    play_reserved(&play);
    damaged(&play, DECODE_NODE);
    cr_expect_eq(play.failures, 1);
    cr_expect_eq(play.places, 2);
    play_expect_ended(&play);
}

/* Of three answers one had ended when the pages of the first attempt were found to be damaged. */
Test(request_again, a_choice_that_had_ended_is_not_written_again)
{
    struct play play;
    play_begin(&play);
    play.request.choice_count = 3;
    play_encoded(&play);
    play_placed(&play, PREFILL_NODE, DECODE_NODE);
    play_reserved(&play);
    for (uint32_t choice = 0; choice < 3; choice++)
        play_choice_token(&play, PREFILL_NODE, choice, 0, choice == 1 ? FINISH_STOP : FINISH_NONE);
    struct request_failure failure;
    request_failure_set(&failure, 500, "worker_fault", "pages were damaged");
    failure.again = true;
    const struct request_event damage = {
        .kind = EVENT_FAILED, .worker = DECODE_NODE, .failure = &failure};
    request_handle(&play.request, &damage, play.now_ns, &play.actions);
    cr_assert_eq(play.request.state, REQUEST_QUEUED);
    play_placed(&play, PREFILL_NODE, DECODE_NODE);
    play_reserved(&play);
    /* Told once, whatever comes of it. */
    play_choice_token(&play, PREFILL_NODE, 1, 0, FINISH_NONE);
    play_expect_actions(&play, (struct expected_action[]){{ACTION_CANCEL, 1}}, 1);
    cr_expect_eq(play.actions.items[0].worker, DECODE_NODE);
    cr_expect_eq(play.actions.items[0].attempt, 2);
    play_choice_token(&play, DECODE_NODE, 1, 1, FINISH_NONE);
    cr_expect_eq(play.actions.count, 0);
    play_choice_token(&play, PREFILL_NODE, 0, 0, FINISH_NONE);
    play_choice_token(&play, PREFILL_NODE, 2, 0, FINISH_NONE);
    play_choice_token(&play, DECODE_NODE, 0, 1, FINISH_LENGTH);
    play_choice_token(&play, DECODE_NODE, 2, 1, FINISH_LENGTH);
    cr_expect_eq(play.request.state, REQUEST_ENDED);
    request_free(&play.request);
}
