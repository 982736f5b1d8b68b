/* The prefill node's end of the hand-off against a decode node that says what no honest one does:
 * every hand-off with it ends, and no page is read after that. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/transfer/every_mover.h"
#include "tests/transfer/stranger.h"
#include "transfer/handoff_send_internal.h"

#define EVERY_MOVER(name) EVERY_MOVER_OF(handoff_hostile, name)

/* A prefill node that has offered a hand-off of five pages to the stranger. */
static void victim_init(struct hostile *hostile, const struct mover_ops *ops)
{
    struct error error;
    fix_init(&hostile->fix, ops, LAYERS, STRIP_BYTES);
    fix_start_prefill(&hostile->fix);
    stranger_create(&hostile->stranger, &hostile->fix, "127.0.0.1:0");
    snprintf(hostile->fix.address, sizeof hostile->fix.address, "%s",
             ops->address(hostile->stranger.mover));
    hostile->job = &hostile->fix.jobs[0];
    *hostile->job = (struct fix_job){.fix = &hostile->fix, .page_count = 5, .handoff = 99};
    for (uint32_t i = 0; i < 5; i++)
        hostile->job->source_slots[i] = i;
    hostile->fix.job_count = 1;
    const struct handoff_target target = fix_target(hostile->job);
    cr_assert_eq(handoff_send_open(hostile->fix.prefill.sender, &target, hostile->job,
                                   &hostile->job->out, &error),
                 STATUS_OK);
    fix_post_all(hostile->job);
    TURN_UNTIL(hostile->fix.loop, hostile->stranger.offers == 1);
    cr_assert_eq(hostile->stranger.offered, 99u);
}

static void victim_end(struct hostile *hostile)
{
    stranger_destroy(&hostile->stranger);
    fix_end(&hostile->fix);
}

EVERY_MOVER(a_grant_must_fit_the_offer)
{
    static const uint32_t slots[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int i = 0; i < 6; i++) {
        struct hostile hostile;
        victim_init(&hostile, ops);
        struct msg_grant grant = {.handoff = 99, .slots = {slots, 5}, .generations = {slots, 5}};
        grant.slots.count = i == 0 ? 6 : i == 1 ? 4 : i == 2 ? 0 : 5;
        grant.generations.count = i == 0 ? 6 : i == 2 ? 0 : 5;
        grant.first_page = i == 3 ? 1 : i == 4 ? UINT32_MAX : 0;
        if (i == 5) { /* a page twice */
            grant.slots.count = grant.generations.count = 2;
            stranger_say(&hostile.stranger, MESSAGE_ID_GRANT, &grant);
        }
        stranger_say(&hostile.stranger, MESSAGE_ID_GRANT, &grant);
        TURN_UNTIL(hostile.fix.loop, hostile.job->ended);
        cr_assert_eq(hostile.job->ended_status, STATUS_CORRUPT, "case %d: %s", i,
                     hostile.job->ended_text);
        TURN_UNTIL(hostile.fix.loop, hostile.stranger.aborts == 1);
        victim_end(&hostile);
    }
}

/* Pages may be granted in parts; the rest waits. */
EVERY_MOVER(a_grant_may_come_in_parts)
{
    static const uint32_t slots[3] = {1, 2, 3};
    struct hostile hostile;
    victim_init(&hostile, ops);
    struct msg_grant grant = {.handoff = 99, .slots = {slots, 2}, .generations = {slots, 2}};
    grant.first_page = 3;
    stranger_say(&hostile.stranger, MESSAGE_ID_GRANT, &grant);
    turn_for(hostile.fix.loop, 30);
    cr_assert_not(hostile.job->ended);
    grant = (struct msg_grant){.handoff = 99, .slots = {slots, 3}, .generations = {slots, 3}};
    stranger_say(&hostile.stranger, MESSAGE_ID_GRANT, &grant);
    TURN_UNTIL(hostile.fix.loop, hostile.stranger.dones == 1);
    const struct msg_landed landed = {.handoff = 99};
    stranger_say(&hostile.stranger, MESSAGE_ID_LANDED, &landed);
    TURN_UNTIL(hostile.fix.loop, hostile.job->ended);
    cr_assert_eq(hostile.job->ended_status, STATUS_OK, "%s", hostile.job->ended_text);
    cr_assert_eq(hostile.job->stats.strips, 5u * LAYERS);
    victim_end(&hostile);
}

EVERY_MOVER(landed_too_early_does_not_end_it)
{
    struct hostile hostile;
    victim_init(&hostile, ops);
    const struct msg_landed landed = {.handoff = 99};
    const struct msg_landed unknown = {.handoff = 98};
    stranger_say(&hostile.stranger, MESSAGE_ID_LANDED, &landed);
    stranger_say(&hostile.stranger, MESSAGE_ID_LANDED, &unknown);
    turn_for(hostile.fix.loop, 30);
    cr_assert_not(hostile.job->ended);
    const struct msg_abort abort = {.handoff = 99, .code = 5, .text = wire_str("no pages left")};
    stranger_say(&hostile.stranger, MESSAGE_ID_ABORT, &abort);
    TURN_UNTIL(hostile.fix.loop, hostile.job->ended);
    cr_assert_eq(hostile.job->ended_status, STATUS_BUSY);
    cr_assert_str_eq(hostile.job->ended_text, "no pages left");
    TURN_UNTIL(hostile.fix.loop, hostile.stranger.acks == 1);
    stranger_say(&hostile.stranger, MESSAGE_ID_ABORT, &abort); /* again: answered again */
    TURN_UNTIL(hostile.fix.loop, hostile.stranger.acks == 2);
    victim_end(&hostile);
}

/* What was on its way when this side gave up is nobody's fault, however often that happens. The
 * send that keeps the hand-off known is one of this test's making. */
EVERY_MOVER(messages_that_cross_an_abort_are_no_offence)
{
    static const uint32_t slots[5] = {1, 2, 3, 4, 5};
    struct hostile hostile;
    victim_init(&hostile, ops);
    struct handoff_out *out = hostile.job->out;
    out->sends++;
    handoff_send_abort(out, STATUS_CANCELED, "the client is gone");
    const struct msg_grant grant = {.handoff = 99, .slots = {slots, 5}, .generations = {slots, 5}};
    const struct msg_landed landed = {.handoff = 99};
    for (uint32_t i = 0; i < PEER_OFFENCES_MAX; i++) {
        stranger_say(&hostile.stranger, MESSAGE_ID_GRANT, &grant);
        stranger_say(&hostile.stranger, MESSAGE_ID_LANDED, &landed);
    }
    TURN_UNTIL(hostile.fix.loop, hostile.stranger.aborts == 1);
    turn_for(hostile.fix.loop, 30);
    cr_assert_eq(hostile.stranger.closed, 0u);
    cr_assert_not(hostile.job->ended);
    out->sends--;
    loop_task_schedule(out->sender->work);
    TURN_UNTIL(hostile.fix.loop, hostile.job->ended);
    cr_assert_eq(hostile.job->ended_status, STATUS_CANCELED);
    victim_end(&hostile);
}

EVERY_MOVER(a_decode_node_that_never_grants_is_a_timeout)
{
    struct hostile hostile;
    victim_init(&hostile, ops);
    TURN_UNTIL(hostile.fix.loop, hostile.job->ended);
    cr_assert_eq(hostile.job->ended_status, STATUS_TIMEOUT);
    cr_assert(strstr(hostile.job->ended_text, "while it was offered"), "%s",
              hostile.job->ended_text);
    cr_assert_gt(hostile.stranger.pings, 1u);
    victim_end(&hostile);
}

EVERY_MOVER(a_decode_node_that_falls_silent_is_a_timeout)
{
    static const uint32_t slots[5] = {1, 2, 3, 4, 5};
    struct hostile hostile;
    victim_init(&hostile, ops);
    hostile.stranger.silent = true;
    const struct msg_grant grant = {.handoff = 99, .slots = {slots, 5}, .generations = {slots, 5}};
    stranger_say(&hostile.stranger, MESSAGE_ID_GRANT, &grant);
    TURN_UNTIL(hostile.fix.loop, hostile.job->ended);
    cr_assert_eq(hostile.job->ended_status, STATUS_TIMEOUT, "%s", hostile.job->ended_text);
    victim_end(&hostile);
}

EVERY_MOVER(data_to_a_node_that_only_sends_lands_nowhere)
{
    struct hostile hostile;
    victim_init(&hostile, ops);
    for (int i = 0; i < 50 && hostile.stranger.closed == 0; i++) {
        const struct mover_data_header header = {
            .handoff = 99, .layer_count = 1, .page_count = 1, .payload_bytes = STRIP_BYTES};
        hostile_send_data(&hostile, &header);
        turn_for(hostile.fix.loop, 2);
    }
    TURN_UNTIL(hostile.fix.loop, hostile.stranger.closed == 1 && hostile.job->ended);
    cr_assert_eq(hostile.job->ended_status, STATUS_CORRUPT);
    victim_end(&hostile);
}
