/* One end of the hand-off against a peer that says what no honest one does: nothing of it lands,
 * nothing of it stops the others, and one that goes on is dropped. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/transfer/every_mover.h"
#include "tests/transfer/handoff_fixture.h"
#include "transfer/handoff_internal.h"
#include "transfer/handoff_send_internal.h"
#include "transfer/wire.h"

#define EVERY_MOVER(name) EVERY_MOVER_OF(handoff_hostile, name)

enum { STRIP_BYTES = 512, LAYERS = 3 };

/* A peer driven by hand. */
struct stranger {
    struct pair_fix *fix;
    struct mover *mover;
    struct mover_peer *peer;
    uint32_t welcomes, rejects, aborts, acks, landed, offers, pings, closed, sent;
    uint32_t code;
    char text[600];
    uint32_t slots[FIX_PAGES_MAX], generations[FIX_PAGES_MAX], granted;
    uint64_t offered;
    uint32_t offered_first, offered_count;
    bool silent;
    uint8_t *bytes;
};

static void say(struct stranger *stranger, enum message_id id, const void *message)
{
    struct buffer frame = {0};
    cr_assert_eq(wire_encode(id, message, &frame, NULL), STATUS_OK);
    const enum status status =
        stranger->fix->ops->send_message(stranger->peer, frame.data, frame.size);
    cr_assert(status == STATUS_OK || status == STATUS_CLOSED);
    buffer_free(&frame);
}

static void take_grant(struct stranger *stranger, const struct msg_grant *grant)
{
    stranger->granted = grant->slots.count;
    memcpy(stranger->slots, grant->slots.items, grant->slots.count * 4);
    memcpy(stranger->generations, grant->generations.items, grant->slots.count * 4);
}

static void take(struct stranger *stranger, enum message_id id, const void *message)
{
    const struct msg_reject *reject = message;
    const struct msg_abort *abort = message;
    const struct msg_offer *offer = message;
    const struct msg_pong pong = {.sequence = 1};
    switch (id) {
    case MESSAGE_ID_PEER_WELCOME:
        stranger->welcomes++;
        break;
    case MESSAGE_ID_PEER_HELLO: {
        const struct msg_peer_welcome welcome = {
            .boot_id = {stranger->fix->decode_self.boot_id, 16},
            .data_bytes_max = 1 << 20,
            .flow_bytes = 1 << 20,
            .peer_bytes = 1 << 20};
        say(stranger, MESSAGE_ID_PEER_WELCOME, &welcome);
        break;
    }
    case MESSAGE_ID_REJECT:
        stranger->rejects++;
        stranger->code = reject->code;
        wire_str_copy(reject->text, stranger->text, sizeof stranger->text);
        break;
    case MESSAGE_ID_ABORT:
        stranger->aborts++;
        stranger->code = abort->code;
        wire_str_copy(abort->text, stranger->text, sizeof stranger->text);
        break;
    case MESSAGE_ID_OFFER:
        stranger->offers++;
        stranger->offered = offer->handoff;
        stranger->offered_first = offer->first_page;
        stranger->offered_count = offer->page_count;
        break;
    case MESSAGE_ID_GRANT:
        take_grant(stranger, message);
        break;
    case MESSAGE_ID_PING:
        stranger->pings++;
        if (!stranger->silent)
            say(stranger, MESSAGE_ID_PONG, &pong);
        break;
    case MESSAGE_ID_ABORT_ACK:
        stranger->acks++;
        break;
    case MESSAGE_ID_LANDED:
        stranger->landed++;
        break;
    default:
        break;
    }
}

static void on_accepted(void *arg, struct mover_peer *peer)
{
    ((struct stranger *)arg)->peer = peer;
}

static void on_closed(void *arg, struct mover_peer *peer, enum status status)
{
    struct stranger *stranger = arg;
    stranger->closed++;
    stranger->peer = NULL;
}

static void on_message(void *arg, struct mover_peer *peer, const void *frame, size_t bytes)
{
    struct stranger *stranger = arg;
    struct wire_arena arena;
    struct wire_prefix prefix;
    enum message_id id;
    void *message = malloc(wire_message_bytes_max());
    wire_arena_init(&arena, wire_arena_bytes(bytes));
    cr_assert_eq(wire_prefix_read(frame, bytes, bytes, &prefix, NULL), STATUS_OK);
    cr_assert_eq(wire_decode(prefix.type, (const uint8_t *)frame + WIRE_PREFIX_BYTES,
                             prefix.payload_bytes, &arena, &id, message, wire_message_bytes_max(),
                             NULL),
                 STATUS_OK);
    take(stranger, id, message);
    wire_arena_free(&arena);
    free(message);
}

static uint32_t on_data(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                        struct mover_segment *segments)
{
    segments[0] = (struct mover_segment){((struct stranger *)arg)->bytes, header->payload_bytes};
    return 1;
}

static void on_data_done(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                         enum status status)
{
}

static void on_sent(void *arg, struct mover_peer *peer, uint64_t cookie, enum status status)
{
    ((struct stranger *)arg)->sent++;
}

static void stranger_create(struct stranger *stranger, struct pair_fix *fix, const char *listen)
{
    static const struct mover_events events = {on_accepted, on_closed,    on_message,
                                               on_data,     on_data_done, on_sent};
    const struct mover_options options = {.listen = listen,
                                          .connect_ms = 1000,
                                          .sends_max = 32,
                                          .message_bytes_max = 60000,
                                          .data_bytes_max = 2 << 20,
                                          .tls = &every_mover_tls};
    struct error error;
    *stranger = (struct stranger){.fix = fix};
    stranger->bytes = malloc(2 << 20);
    memset(stranger->bytes, 0x66, 2 << 20);
    cr_assert_eq(fix->ops->create(fix->loop, &options, &events, stranger, &stranger->mover, &error),
                 STATUS_OK, "%s", error.text);
}

static void stranger_dial(struct stranger *stranger)
{
    struct error error;
    cr_assert_eq(
        stranger->fix->ops->dial(stranger->mover, stranger->fix->address, &stranger->peer, &error),
        STATUS_OK, "%s", error.text);
}

static struct msg_peer_hello hello_of(const struct pair_fix *fix)
{
    return (struct msg_peer_hello){
        .node = wire_str("stranger"),
        .boot_id = {fix->prefill_self.boot_id, 16},
        .identity = fix->prefill_self.identity,
        .expected_boot_id = {fix->decode_self.boot_id, 16},
        .data_bytes_max = 1 << 20,
        .checksum = HANDOFF_CHECKSUM_CRC32C,
    };
}

static void stranger_greet(struct stranger *stranger)
{
    const struct msg_peer_hello hello = hello_of(stranger->fix);
    stranger_dial(stranger);
    say(stranger, MESSAGE_ID_PEER_HELLO, &hello);
    TURN_UNTIL(stranger->fix->loop, stranger->welcomes == 1);
}

static void stranger_destroy(struct stranger *stranger)
{
    stranger->fix->ops->destroy(stranger->mover);
    free(stranger->bytes);
}

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
struct hostile {
    struct pair_fix fix;
    struct stranger stranger;
    struct fix_job *job;
};

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
    say(&hostile->stranger, MESSAGE_ID_OFFER, &offer);
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

static struct mover_data_header header_of(const struct hostile *hostile, uint32_t layer,
                                          uint32_t page)
{
    const struct stranger *stranger = &hostile->stranger;
    const uint32_t first_slot = 0;
    struct handoff_region region = {stranger->bytes, LAYERS, 1, STRIP_BYTES};
    const struct strip_identity identity = {hostile->job->handoff, hostile->job->first_page + page,
                                            stranger->generations + page};
    const struct strip_box box = {layer, 1, 0, 1};
    return (struct mover_data_header){
        .handoff = hostile->job->handoff,
        .layer = layer,
        .layer_count = 1,
        .first_page = hostile->job->first_page + page,
        .page_count = 1,
        .first_slot = stranger->slots[page],
        .generation = stranger->generations[page],
        .grant = strip_grant(stranger->slots + page, stranger->generations + page, 1),
        .checksum = strip_checksum(&region, &identity, &box, &first_slot),
        .payload_bytes = STRIP_BYTES,
    };
}

static void send_data(struct hostile *hostile, const struct mover_data_header *header)
{
    struct stranger *stranger = &hostile->stranger;
    const uint32_t sent = stranger->sent;
    if (!stranger->peer)
        return;
    const struct mover_segment segment = {stranger->bytes, header->payload_bytes};
    const enum status status = hostile->fix.ops->send_data(stranger->peer, header, &segment, 1, 1);
    cr_assert(status == STATUS_OK || status == STATUS_CLOSED);
    TURN_UNTIL(hostile->fix.loop, stranger->sent > sent || status != STATUS_OK);
}

/* ---- against decode ---- */

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
        say(&hostile.stranger, MESSAGE_ID_OFFER, &offer);
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
        struct mover_data_header header = header_of(&hostile, 1, 2);
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
        send_data(&hostile, &header);
        turn_for(hostile.fix.loop, 5);
        cr_assert(region_is_poison(&hostile.fix), "case %d landed", i);
        cr_assert_eq(hostile.stranger.closed, 0u, "case %d", i);
    }
    /* The grant still stands. */
    const struct mover_data_header header = header_of(&hostile, 1, 2);
    send_data(&hostile, &header);
    TURN_UNTIL(hostile.fix.loop, !region_is_poison(&hostile.fix));
    hostile_end(&hostile);
}

EVERY_MOVER(a_strip_lands_once)
{
    struct hostile hostile;
    hostile_init(&hostile, ops);
    hostile_grant(&hostile);
    const struct mover_data_header header = header_of(&hostile, 0, 0);
    send_data(&hostile, &header);
    TURN_UNTIL(hostile.fix.loop, !region_is_poison(&hostile.fix));
    region_poison(&hostile.fix);
    send_data(&hostile, &header);
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
    const struct mover_data_header header = header_of(&hostile, 0, 0);
    send_data(&hostile, &header);
    TURN_UNTIL(hostile.fix.loop, hostile.stranger.aborts == 1);
    cr_assert_str_eq(hostile.stranger.text, "enough");
    const struct msg_abort_ack ack = {.handoff = hostile.job->handoff};
    say(&hostile.stranger, MESSAGE_ID_ABORT_ACK, &ack);
    TURN_UNTIL(hostile.fix.loop, fix_pages_are_back(&hostile.fix));
    send_data(&hostile, &header);
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
        struct mover_data_header header = header_of(&hostile, 0, 0);
        header.generation++;
        send_data(&hostile, &header);
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
        say(&hostile.stranger, MESSAGE_ID_DONE, &done);
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
        const struct mover_data_header header = header_of(&hostile, strip / 5, strip % 5);
        digest += strip_digest(&header);
    }
    const struct msg_done done = {
        .handoff = hostile.job->handoff,
        .strips = 5 * LAYERS,
        .bytes = 5 * LAYERS * STRIP_BYTES,
        .digest = digest,
        .first = {.request = 1000 + hostile.job->index, .tokens = {&token, 1}},
    };
    say(&hostile.stranger, MESSAGE_ID_DONE, &done);
    for (uint32_t strip = 0; strip < 5 * LAYERS; strip++) {
        turn_for(hostile.fix.loop, 3);
        cr_assert_not(hostile.job->landed);
        const struct mover_data_header header = header_of(&hostile, strip / 5, strip % 5);
        send_data(&hostile, &header);
    }
    TURN_UNTIL(hostile.fix.loop, hostile.job->landed && hostile.stranger.landed == 1);
    say(&hostile.stranger, MESSAGE_ID_DONE, &done); /* again: counted, nothing more */
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
        const struct mover_data_header header = header_of(&hostile, strip / 5, strip % 5);
        digest += strip_digest(&header);
        send_data(&hostile, &header);
    }
    const struct msg_done done = {
        .handoff = hostile.job->handoff,
        .strips = 5 * LAYERS,
        .bytes = 5 * LAYERS * STRIP_BYTES,
        .digest = digest,
        .first = {.request = 1000 + hostile.job->index},
    };
    say(&hostile.stranger, MESSAGE_ID_DONE, &done);
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
    say(&second, MESSAGE_ID_OFFER, &offer);
    TURN_UNTIL(hostile.fix.loop, second.aborts == 1);
    cr_assert(strstr(second.text, "offered before"), "%s", second.text);
    const struct msg_abort abort = {.handoff = hostile.job->handoff, .code = 6};
    say(&second, MESSAGE_ID_ABORT, &abort);
    TURN_UNTIL(hostile.fix.loop, second.acks == 1);
    cr_assert_not(hostile.job->failed);
    const struct mover_data_header header = header_of(&hostile, 0, 0);
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
    fix_start_decode(&fix);
    struct fix_job *job = fix_reserve(&fix, 5, 5000);
    const struct msg_offer offer = offer_of(job);
    const struct mover_data_header header = {.handoff = job->handoff, .payload_bytes = 10};
    for (int i = 0; i < 4; i++) {
        stranger_create(&stranger, &fix, NULL);
        stranger_dial(&stranger);
        if (i == 0)
            say(&stranger, MESSAGE_ID_OFFER, &offer);
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
    const struct msg_peer_hello hello = hello_of(&fix);
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

/* ---- against prefill ---- */

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
            say(&hostile.stranger, MESSAGE_ID_GRANT, &grant);
        }
        say(&hostile.stranger, MESSAGE_ID_GRANT, &grant);
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
    say(&hostile.stranger, MESSAGE_ID_GRANT, &grant);
    turn_for(hostile.fix.loop, 30);
    cr_assert_not(hostile.job->ended);
    grant = (struct msg_grant){.handoff = 99, .slots = {slots, 3}, .generations = {slots, 3}};
    say(&hostile.stranger, MESSAGE_ID_GRANT, &grant);
    turn_for(hostile.fix.loop, 30);
    const struct msg_landed landed = {.handoff = 99};
    say(&hostile.stranger, MESSAGE_ID_LANDED, &landed);
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
    say(&hostile.stranger, MESSAGE_ID_LANDED, &landed);
    say(&hostile.stranger, MESSAGE_ID_LANDED, &unknown);
    turn_for(hostile.fix.loop, 30);
    cr_assert_not(hostile.job->ended);
    const struct msg_abort abort = {.handoff = 99, .code = 5, .text = wire_str("no pages left")};
    say(&hostile.stranger, MESSAGE_ID_ABORT, &abort);
    TURN_UNTIL(hostile.fix.loop, hostile.job->ended);
    cr_assert_eq(hostile.job->ended_status, STATUS_BUSY);
    cr_assert_str_eq(hostile.job->ended_text, "no pages left");
    TURN_UNTIL(hostile.fix.loop, hostile.stranger.acks == 1);
    say(&hostile.stranger, MESSAGE_ID_ABORT, &abort); /* again: answered again */
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
        say(&hostile.stranger, MESSAGE_ID_GRANT, &grant);
        say(&hostile.stranger, MESSAGE_ID_LANDED, &landed);
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
    say(&hostile.stranger, MESSAGE_ID_GRANT, &grant);
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
        send_data(&hostile, &header);
        turn_for(hostile.fix.loop, 2);
    }
    TURN_UNTIL(hostile.fix.loop, hostile.stranger.closed == 1 && hostile.job->ended);
    cr_assert_eq(hostile.job->ended_status, STATUS_CORRUPT);
    victim_end(&hostile);
}
