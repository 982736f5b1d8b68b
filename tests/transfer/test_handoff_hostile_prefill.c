/* The decode node's end of the hand-off against a prefill node that says what no honest one does:
 * nothing of it lands, nothing of it stops the others, and one that goes on is dropped. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/transfer/every_mover.h"
#include "tests/transfer/stranger.h"

#define EVERY_MOVER(name) EVERY_MOVER_OF(handoff_hostile, name)

static struct msg_offer offer_of(const struct fix_job *job)
{
    return (struct msg_offer){
        .handoff = job->handoff,
        .ticket = job->ticket,
        .request = 1000 + job->index,
        .attempt = 1,
        .first_page = job->first_page,
        .page_count = job->page_count,
        .bytes = (uint64_t)job->page_count * LAYERS * STRIP_BYTES,
    };
}

static void region_poison(struct pair_fix *fix)
{
    memset(fix->decode.region.base, 0xee, (size_t)LAYERS * FIX_SLOTS * STRIP_BYTES);
}

static bool region_is_poison(const struct pair_fix *fix)
{
    const uint8_t *base = fix->decode.region.base;
    for (size_t i = 0; i < (size_t)LAYERS * FIX_SLOTS * STRIP_BYTES; i++)
        if (base[i] != 0xee)
            return false;
    return true;
}

/* A decode node, and a stranger that holds a grant of five pages. */
static void hostile_init(struct hostile *hostile, const struct mover_ops *ops)
{
    fix_init(&hostile->fix, ops, LAYERS, STRIP_BYTES);
    fix_start_decode(&hostile->fix);
    region_poison(&hostile->fix);
    stranger_create(&hostile->stranger, &hostile->fix, NULL);
    stranger_greet(&hostile->stranger);
    hostile->job = fix_reserve(&hostile->fix, 5, 5000);
}

static void hostile_grant(struct hostile *hostile)
{
    const struct msg_offer offer = offer_of(hostile->job);
    stranger_say(&hostile->stranger, MESSAGE_ID_OFFER, &offer);
    TURN_UNTIL(hostile->fix.loop, hostile->stranger.granted == 5);
}

static void hostile_end(struct hostile *hostile)
{
    stranger_destroy(&hostile->stranger);
    TURN_UNTIL(hostile->fix.loop, hostile->fix.decode.reserved_count == 0 || hostile->job->landed ||
                                      !hostile->job->failed);
    handoff_cancel(hostile->fix.decode.receiver, hostile->job->handoff, STATUS_CANCELED, "");
    fix_end(&hostile->fix);
}

EVERY_MOVER(an_offer_must_fit_its_reservation)
{
    static const char *const sentences[] = {"no such hand-off",   "ticket is not the right one",
                                            "another request",    "another request",
                                            "number of pages",    "number of bytes",
                                            "largest page number"};
    for (int i = 0; i < 7; i++) {
        struct hostile hostile;
        hostile_init(&hostile, ops);
        struct msg_offer offer = offer_of(hostile.job);
        offer.handoff += i == 0 ? 4096 : 0;
        offer.ticket ^= i == 1 ? 1 : 0;
        offer.request += i == 2 ? 1 : 0;
        offer.attempt += i == 3 ? 1 : 0;
        offer.page_count += i == 4 ? 1 : 0;
        offer.bytes += i == 5 ? 1 : 0;
        offer.first_page = i == 6 ? UINT32_MAX : offer.first_page;
        stranger_say(&hostile.stranger, MESSAGE_ID_OFFER, &offer);
        TURN_UNTIL(hostile.fix.loop, hostile.stranger.aborts == 1);
        cr_assert(strstr(hostile.stranger.text, sentences[i]), "%s", hostile.stranger.text);
        cr_assert_eq(hostile.job->failed, i >= 2);
        if (i < 2) { /* the reservation is untouched */
            hostile_grant(&hostile);
        }
        hostile_end(&hostile);
    }
}

EVERY_MOVER(data_must_fit_the_grant_in_every_respect)
{
    struct hostile hostile;
    hostile_init(&hostile, ops);
    for (int i = 0; i < 18; i++) {
        if (i % 7 == 0) { /* before the peer has used up what it is forgiven */
            if (i > 0) {
                hostile_end(&hostile);
                hostile_init(&hostile, ops);
            }
            hostile_grant(&hostile);
        }
        struct mover_data_header header = hostile_header(&hostile, 1, 2);
        const struct mover_data_header good = header;
        header.handoff += i == 0 ? 4096 : 0;
        header.layer = i == 1 ? LAYERS : i == 2 ? UINT32_MAX : header.layer;
        header.first_page = i == 3   ? hostile.job->first_page + 5
                            : i == 4 ? UINT32_MAX
                            : i == 5 ? hostile.job->first_page - 1
                                     : header.first_page;
        header.page_count = i == 6 ? 0 : i == 7 ? UINT32_MAX : i == 8 ? 4 : header.page_count;
        header.first_slot = i == 9    ? (header.first_slot + 1) % FIX_SLOTS
                            : i == 10 ? UINT32_MAX
                                      : header.first_slot;
        header.generation += i == 11 ? 1 : 0;
        header.layer_count = i == 14 ? 0 : i == 15 ? LAYERS : i == 16 ? UINT32_MAX : 1;
        header.grant ^= i == 17 ? 1 : 0;
        header.payload_bytes = i == 12 ? STRIP_BYTES - 1 : i == 13 ? 1 << 20 : header.payload_bytes;
        cr_assert(memcmp(&good, &header, sizeof good) != 0);
        hostile_send_data(&hostile, &header);
        turn_for(hostile.fix.loop, 5);
        cr_assert(region_is_poison(&hostile.fix), "case %d landed", i);
        cr_assert_eq(hostile.stranger.closed, 0u, "case %d", i);
    }
    /* The grant still stands. */
    const struct mover_data_header header = hostile_header(&hostile, 1, 2);
    hostile_send_data(&hostile, &header);
    TURN_UNTIL(hostile.fix.loop, !region_is_poison(&hostile.fix));
    hostile_end(&hostile);
}

EVERY_MOVER(a_strip_lands_once)
{
    struct hostile hostile;
    hostile_init(&hostile, ops);
    hostile_grant(&hostile);
    const struct mover_data_header header = hostile_header(&hostile, 0, 0);
    hostile_send_data(&hostile, &header);
    TURN_UNTIL(hostile.fix.loop, !region_is_poison(&hostile.fix));
    region_poison(&hostile.fix);
    hostile_send_data(&hostile, &header);
    turn_for(hostile.fix.loop, 20);
    cr_assert(region_is_poison(&hostile.fix));
    hostile_end(&hostile);
}

EVERY_MOVER(nothing_lands_after_an_abort)
{
    struct hostile hostile;
    hostile_init(&hostile, ops);
    hostile_grant(&hostile);
    handoff_cancel(hostile.fix.decode.receiver, hostile.job->handoff, STATUS_CANCELED, "enough");
    cr_assert_not(fix_pages_are_back(&hostile.fix)); /* in quarantine */
    const struct mover_data_header header = hostile_header(&hostile, 0, 0);
    hostile_send_data(&hostile, &header);
    TURN_UNTIL(hostile.fix.loop, hostile.stranger.aborts == 1);
    cr_assert_str_eq(hostile.stranger.text, "enough");
    const struct msg_abort_ack ack = {.handoff = hostile.job->handoff};
    stranger_say(&hostile.stranger, MESSAGE_ID_ABORT_ACK, &ack);
    TURN_UNTIL(hostile.fix.loop, fix_pages_are_back(&hostile.fix));
    hostile_send_data(&hostile, &header);
    turn_for(hostile.fix.loop, 20);
    cr_assert(region_is_poison(&hostile.fix));
    cr_assert_eq(hostile.stranger.closed, 0u);
    hostile_end(&hostile);
}

EVERY_MOVER(quarantine_ends_with_the_link_when_the_writer_does_not_answer)
{
    struct hostile hostile;
    hostile_init(&hostile, ops);
    hostile_grant(&hostile);
    handoff_cancel(hostile.fix.decode.receiver, hostile.job->handoff, STATUS_CANCELED, "enough");
    TURN_UNTIL(hostile.fix.loop, hostile.stranger.closed == 1);
    TURN_UNTIL(hostile.fix.loop, fix_pages_are_back(&hostile.fix));
    hostile_end(&hostile);
}

/* No data is on its way, the lease is long: only the watch over the peer can tell. */
EVERY_MOVER(a_prefill_node_that_falls_silent_is_found)
{
    struct hostile hostile;
    hostile_init(&hostile, ops);
    hostile_grant(&hostile);
    hostile.stranger.silent = true;
    TURN_UNTIL(hostile.fix.loop, hostile.job->failed);
    cr_assert_eq(hostile.job->failed_status, STATUS_TIMEOUT);
    cr_assert(strstr(hostile.job->failed_text, "nothing was heard from node stranger"), "%s",
              hostile.job->failed_text);
    cr_assert_gt(hostile.stranger.pings, 1u);
    TURN_UNTIL(hostile.fix.loop, fix_pages_are_back(&hostile.fix));
    hostile_end(&hostile);
}

/* While it answers its pings it may take its time. */
EVERY_MOVER(a_prefill_node_that_computes_for_long_is_waited_for)
{
    struct hostile hostile;
    hostile_init(&hostile, ops);
    hostile_grant(&hostile);
    turn_for(hostile.fix.loop, 3 * fix_limits.progress_ms);
    cr_assert_not(hostile.job->failed);
    cr_assert_eq(hostile.stranger.closed, 0u);
    hostile_end(&hostile);
}

EVERY_MOVER(a_peer_that_goes_on_offending_is_dropped)
{
    struct hostile hostile;
    hostile_init(&hostile, ops);
    hostile_grant(&hostile);
    for (int i = 0; i < 50 && hostile.stranger.closed == 0; i++) {
        struct mover_data_header header = hostile_header(&hostile, 0, 0);
        header.generation++;
        hostile_send_data(&hostile, &header);
        turn_for(hostile.fix.loop, 2);
    }
    TURN_UNTIL(hostile.fix.loop, hostile.stranger.closed == 1);
    cr_assert(hostile.job->failed);
    cr_assert_eq(hostile.job->failed_status, STATUS_CORRUPT);
    cr_assert(strstr(hostile.job->failed_text, "generation"), "%s", hostile.job->failed_text);
    cr_assert(region_is_poison(&hostile.fix));
    hostile_end(&hostile);
}

EVERY_MOVER(done_must_count_what_was_granted)
{
    for (int i = 0; i < 3; i++) {
        struct hostile hostile;
        hostile_init(&hostile, ops);
        hostile_grant(&hostile);
        const struct msg_done done = {
            .handoff = hostile.job->handoff,
            .strips = i == 0 ? 1 : 5 * LAYERS,
            .bytes = i == 1 ? 1 : 5 * LAYERS * STRIP_BYTES,
            .first = {.request = 1000 + (i == 2 ? 77u : hostile.job->index)},
        };
        stranger_say(&hostile.stranger, MESSAGE_ID_DONE, &done);
        TURN_UNTIL(hostile.fix.loop, hostile.job->failed);
        cr_assert_eq(hostile.job->failed_status, STATUS_CORRUPT);
        TURN_UNTIL(hostile.fix.loop, hostile.stranger.aborts == 1);
        hostile_end(&hostile);
    }
}

/* DONE alone, or all strips but one, is not enough. */
EVERY_MOVER(done_without_all_pages_does_not_land)
{
    struct hostile hostile;
    hostile_init(&hostile, ops);
    hostile_grant(&hostile);
    const int32_t token = 7000;
    uint64_t digest = 0;
    for (uint32_t strip = 0; strip < 5 * LAYERS; strip++) {
        const struct mover_data_header header = hostile_header(&hostile, strip / 5, strip % 5);
        digest += strip_digest(&header);
    }
    const struct msg_done done = {
        .handoff = hostile.job->handoff,
        .strips = 5 * LAYERS,
        .bytes = 5 * LAYERS * STRIP_BYTES,
        .digest = digest,
        .first = {.request = 1000 + hostile.job->index, .tokens = {&token, 1}},
    };
    stranger_say(&hostile.stranger, MESSAGE_ID_DONE, &done);
    for (uint32_t strip = 0; strip < 5 * LAYERS; strip++) {
        turn_for(hostile.fix.loop, 3);
        cr_assert_not(hostile.job->landed);
        const struct mover_data_header header = hostile_header(&hostile, strip / 5, strip % 5);
        hostile_send_data(&hostile, &header);
    }
    TURN_UNTIL(hostile.fix.loop, hostile.job->landed && hostile.stranger.landed == 1);
    stranger_say(&hostile.stranger, MESSAGE_ID_DONE, &done); /* again: counted, nothing more */
    turn_for(hostile.fix.loop, 20);
    cr_assert_eq(hostile.fix.decode.landed, 1u);
    hostile_end(&hostile);
}

EVERY_MOVER(done_must_have_the_digest_of_what_came)
{
    struct hostile hostile;
    hostile_init(&hostile, ops);
    hostile_grant(&hostile);
    uint64_t digest = 1;
    for (uint32_t strip = 0; strip < 5 * LAYERS; strip++) {
        const struct mover_data_header header = hostile_header(&hostile, strip / 5, strip % 5);
        digest += strip_digest(&header);
        hostile_send_data(&hostile, &header);
    }
    const struct msg_done done = {
        .handoff = hostile.job->handoff,
        .strips = 5 * LAYERS,
        .bytes = 5 * LAYERS * STRIP_BYTES,
        .digest = digest,
        .first = {.request = 1000 + hostile.job->index},
    };
    stranger_say(&hostile.stranger, MESSAGE_ID_DONE, &done);
    TURN_UNTIL(hostile.fix.loop, hostile.job->failed && hostile.stranger.aborts == 1);
    cr_assert_eq(hostile.job->failed_status, STATUS_CORRUPT);
    cr_assert(strstr(hostile.job->failed_text, "digest"), "%s", hostile.job->failed_text);
    hostile_end(&hostile);
}

EVERY_MOVER(only_one_peer_may_deliver)
{
    struct hostile hostile;
    struct stranger second;
    hostile_init(&hostile, ops);
    hostile_grant(&hostile);
    stranger_create(&second, &hostile.fix, NULL);
    stranger_greet(&second);
    const struct msg_offer offer = offer_of(hostile.job);
    stranger_say(&second, MESSAGE_ID_OFFER, &offer);
    TURN_UNTIL(hostile.fix.loop, second.aborts == 1);
    cr_assert(strstr(second.text, "offered before"), "%s", second.text);
    const struct msg_abort abort = {.handoff = hostile.job->handoff, .code = 6};
    stranger_say(&second, MESSAGE_ID_ABORT, &abort);
    TURN_UNTIL(hostile.fix.loop, second.acks == 1);
    cr_assert_not(hostile.job->failed);
    const struct mover_data_header header = hostile_header(&hostile, 0, 0);
    const struct mover_segment segment = {second.bytes, STRIP_BYTES};
    cr_assert_eq(ops->send_data(second.peer, &header, &segment, 1, 1), STATUS_OK);
    TURN_UNTIL(hostile.fix.loop, second.sent == 1);
    turn_for(hostile.fix.loop, 10);
    cr_assert(region_is_poison(&hostile.fix));
    stranger_destroy(&second);
    hostile_end(&hostile);
}

EVERY_MOVER(nothing_counts_before_the_greeting)
{
    struct pair_fix fix;
    struct stranger stranger;
    fix_init(&fix, ops, LAYERS, STRIP_BYTES);
    fix.limits.hello_ms = 1000; /* case 3 waits for it */
    fix_start_decode(&fix);
    struct fix_job *job = fix_reserve(&fix, 5, 5000);
    const struct msg_offer offer = offer_of(job);
    const struct mover_data_header header = {.handoff = job->handoff, .payload_bytes = 10};
    for (int i = 0; i < 4; i++) {
        stranger_create(&stranger, &fix, NULL);
        stranger_dial(&stranger);
        if (i == 0)
            stranger_say(&stranger, MESSAGE_ID_OFFER, &offer);
        else if (i == 1)
            ops->send_data(stranger.peer, &header,
                           &(struct mover_segment){stranger.bytes, header.payload_bytes}, 1, 1);
        else if (i == 2)
            ops->send_message(stranger.peer, "GET / HTTP/1.1", 14);
        /* case 3 says nothing at all */
        TURN_UNTIL(fix.loop, stranger.closed == 1 || stranger.rejects == 1);
        cr_assert_eq(stranger.granted, 0u);
        stranger_destroy(&stranger);
    }
    handoff_cancel(fix.decode.receiver, job->handoff, STATUS_CANCELED, "");
    fix_end(&fix);
}

EVERY_MOVER(a_peer_of_another_version_is_told_so)
{
    struct pair_fix fix;
    struct stranger stranger;
    struct buffer frame = {0};
    fix_init(&fix, ops, LAYERS, STRIP_BYTES);
    fix_start_decode(&fix);
    stranger_create(&stranger, &fix, NULL);
    stranger_dial(&stranger);
    const struct msg_peer_hello hello = stranger_hello(&fix);
    cr_assert_eq(wire_encode(MESSAGE_ID_PEER_HELLO, &hello, &frame, NULL), STATUS_OK);
    store_le16(frame.data + 4, 9);
    cr_assert_eq(ops->send_message(stranger.peer, frame.data, frame.size), STATUS_OK);
    TURN_UNTIL(fix.loop, stranger.rejects == 1);
    cr_assert(strstr(stranger.text, "protocol 9.0"), "%s", stranger.text);
    cr_assert_eq(stranger.code, (uint32_t)-STATUS_MISMATCH);
    buffer_free(&frame);
    stranger_destroy(&stranger);
    fix_end(&fix);
}
