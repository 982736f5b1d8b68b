/* Decode's end of the hand-off.
 *
 *   state     pages                               leaves by
 *   RESERVED  a number set aside, no slot named   OFFER; the lease
 *   GRANTED   slots, granted to one hand-off      the first data; the lease, by RENEW anew
 *   MOVING    the same, written by receives       all strips and DONE; the lease; progress_ms
 *   LANDED    the caller's, told in on_landed     at once
 *   ABORTED   in quarantine                       the writer's answer and the last receive
 *
 * Pages go back only when no receive writes to them and the writer has answered or its link is
 * gone. What data has to be like is in handoff_receive_data.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/random.h"
#include "transfer/handoff_receive_internal.h"

enum { ID_INDEX_BITS = 12 }; /* an id is a serial number over the index: found without a search */

static const struct in_row {
    const char *name;
    enum handoff_wait wait;
    bool takes_data, takes_done;
} rows[] = {
    [IN_FREE] = {"free", WAIT_NONE, false, false},
    [IN_RESERVED] = {"reserved", WAIT_LEASE, false, false},
    [IN_GRANTED] = {"granted", WAIT_LEASE, true, true},
    [IN_MOVING] = {"moving", WAIT_LEASE, true, true},
    [IN_LANDED] = {"landed", WAIT_NONE, false, false},
    [IN_ABORTED] = {"aborted", WAIT_QUARANTINE, false, false},
};

bool handoff_in_takes_data(const struct handoff_in *in)
{
    return rows[in->state].takes_data;
}

void handoff_in_enter(struct handoff_in *in, enum in_state state)
{
    struct handoff_receiver *receiver = in->receiver;
    const uint64_t now_ns = loop_now_ns(receiver->loop);
    if (state == IN_MOVING && receiver->moving++ == 0)
        receiver->busy_from_ns = now_ns;
    if (in->state == IN_MOVING && --receiver->moving == 0)
        receiver->totals.busy_ns += now_ns - receiver->busy_from_ns;
    if (state == IN_GRANTED)
        in->granted_ns = now_ns;
    in->state = state;
    in->since_ns = in->moved_ns = in->renewed_ns = peers_now_ns(in->receiver->peers);
}

struct handoff_in *handoff_in_find(struct handoff_receiver *receiver, uint64_t id)
{
    const uint64_t index = id & ((1u << ID_INDEX_BITS) - 1);
    if (index >= receiver->limits.handoffs_max)
        return NULL;
    struct handoff_in *in = &receiver->ins[index];
    return in->state != IN_FREE && in->id == id ? in : NULL;
}

/* ---- ending ---- */

static void in_leave_peer(struct handoff_in *in)
{
    if (in->peer)
        in->peer->users--;
    in->peer = NULL;
}

static void in_free(struct handoff_in *in)
{
    in_leave_peer(in);
    in->receiver->totals.open--;
    in->receiver->totals.pages -= in->page_count;
    in->state = IN_FREE;
}

void handoff_in_settle(struct handoff_in *in)
{
    struct handoff_receiver *receiver = in->receiver;
    if (in->state != IN_ABORTED || !in->acknowledged || in->receives > 0)
        return;
    receiver->pages.give_back(receiver->arg, in->slots, in->page_count);
    in_free(in);
}

/* It will not land. The pages go back now if no slot was named, else after quarantine; the caller
 * is told at once. */
static void in_abort(struct handoff_in *in, enum status status, const char *text, bool tell)
{
    struct handoff_receiver *receiver = in->receiver;
    void *context = in->context;
    if (in->state == IN_ABORTED || in->state == IN_LANDED)
        return;
    receiver->totals.failed++;
    receiver->totals.failures[handoff_reason_of(status)]++;
    if (in->peer)
        in->peer->failed++;
    if (in->state == IN_RESERVED) {
        receiver->pages.unreserve(receiver->arg, in->page_count);
        in_free(in);
    } else {
        handoff_log_end(in->id, rows[in->state].name, status, text);
        in->acknowledged = false;
        handoff_in_enter(in, IN_ABORTED);
    }
    if (tell)
        receiver->events.on_failed(receiver->arg, context, status, text);
}

void handoff_in_fail(struct handoff_in *in, enum status status, const char *text)
{
    const uint64_t id = in->id;
    struct peer *peer = in->peer;
    in_abort(in, status, text, true);
    if (peer)
        handoff_send_abort_to(peer, id, status, text);
}

/* ---- landing ---- */

static void in_land(struct handoff_in *in)
{
    struct handoff_receiver *receiver = in->receiver;
    struct error error = {0};
    enum message_id id;
    const uint8_t *frame = (const uint8_t *)in->done.data;
    const enum status status = wire_decode(load_le32(frame + 8), frame + WIRE_PREFIX_BYTES,
                                           in->done.size - WIRE_PREFIX_BYTES, &receiver->arena, &id,
                                           receiver->message, wire_message_bytes_max(), &error);
    CHECK(status == STATUS_OK && id == MESSAGE_ID_DONE); /* it was read once before */
    const struct msg_done *done = receiver->message;
    if (done->digest != in->digest) {
        char text[HANDOFF_TEXT_BYTES];
        snprintf(text, sizeof text,
                 "the digest of all data is %016" PRIx64 " here and %016" PRIx64
                 " on the prefill node",
                 in->digest, done->digest);
        receiver->totals.checksum_faults++;
        handoff_in_fail(in, STATUS_CORRUPT, text);
        return;
    }
    const struct msg_landed landed = {.handoff = in->id};
    /* If it cannot be sent the link is failing: the writer's loss does not concern pages that are
     * all here. */
    if (peer_send(in->peer, MESSAGE_ID_LANDED, &landed) != STATUS_OK)
        LOG_DEBUG("%s was not told that hand-off %016llx landed", in->peer->node,
                  (unsigned long long)in->id);
    in->stats.landed_ns = loop_now_ns(receiver->loop);
    receiver->totals.done++;
    in->peer->done++;
    handoff_in_enter(in, IN_LANDED);
    receiver->events.on_landed(receiver->arg, in->context, in->slots, in->page_count, done,
                               &in->stats);
    in_free(in);
}

void handoff_in_land_when_whole(struct handoff_in *in)
{
    const uint64_t strips = (uint64_t)in->receiver->region.layers * in->page_count;
    if (rows[in->state].takes_done && in->has_done && in->strips_landed == strips &&
        in->receives == 0)
        in_land(in);
}

/* ---- messages ---- */

/* The reason why an offer does not fit its reservation, NULL when it does. */
static const char *offer_fault(const struct handoff_in *in, const struct msg_offer *offer)
{
    const struct handoff_region *region = &in->receiver->region;
    if (offer->request != in->request || offer->attempt != in->attempt)
        return "the offer is for another request or attempt than the reservation";
    if (offer->page_count != in->page_count)
        return "the offer has another number of pages than the reservation";
    if (offer->bytes != (uint64_t)region->layers * in->page_count * region->strip_bytes)
        return "the offer has another number of bytes than its pages take";
    if (offer->first_page > UINT32_MAX - offer->page_count)
        return "the offer's pages pass the largest page number";
    return NULL;
}

/* Of the first pages of the offer: these are here. */
static uint32_t count_held(const struct handoff_in *in, const struct msg_offer *offer)
{
    struct handoff_receiver *receiver = in->receiver;
    if (!receiver->pages.held)
        return 0;
    return receiver->pages.held(receiver->arg, in->context, offer->first_page, in->page_count);
}

static void grant(struct handoff_in *in, struct peer *peer, const struct msg_offer *offer,
                  uint32_t held)
{
    struct handoff_receiver *receiver = in->receiver;
    in->peer = peer;
    peer->users++;
    CHECK(held <= in->page_count);
    if (held > 0)
        receiver->pages.unreserve(receiver->arg, held);
    in->page_count -= held;
    receiver->totals.pages -= held;
    in->first_page = offer->first_page + held;
    receiver->pages.take(receiver->arg, in->page_count, in->slots, in->generations);
    handoff_in_enter(in, IN_GRANTED);
    const struct msg_grant message = {
        .handoff = in->id,
        .first_page = in->first_page,
        .slots = {in->slots, in->page_count},
        .generations = {in->generations, in->page_count},
        .held = held,
    };
    const enum status status = peer_send(peer, MESSAGE_ID_GRANT, &message);
    if (status == STATUS_OK || status == STATUS_CLOSED)
        return; /* CLOSED: the loss of the peer follows */
    handoff_in_fail(in, status, "the grant could not be sent");
}

static void take_offer(struct handoff_receiver *receiver, struct peer *peer,
                       const struct msg_offer *offer)
{
    struct handoff_in *in = handoff_in_find(receiver, offer->handoff);
    if (!in) {
        handoff_send_abort_to(peer, offer->handoff, STATUS_NOT_FOUND,
                              "no such hand-off here: it was cancelled, or its lease is over");
        return;
    }
    if (in->ticket != offer->ticket) {
        handoff_send_abort_to(peer, offer->handoff, STATUS_REFUSED,
                              "the ticket is not the right one");
        peer_offend(peer, "an offer with a wrong ticket");
        return;
    }
    if (in->state != IN_RESERVED) {
        if (in->peer != peer)
            handoff_send_abort_to(peer, offer->handoff, STATUS_EXISTS,
                                  "the hand-off was offered before");
        peer_offend(peer, "a second offer of a hand-off");
        return;
    }
    const char *fault = offer_fault(in, offer);
    const uint32_t held = fault ? 0 : count_held(in, offer);
    if (held == HANDOFF_MISPLACED)
        fault = "the offer's pages begin at another page than the reservation";
    if (fault) {
        handoff_send_abort_to(peer, in->id, STATUS_MISMATCH, fault);
        handoff_in_fail(in, STATUS_MISMATCH, fault);
        return;
    }
    grant(in, peer, offer, held);
}

static void take_done(struct handoff_receiver *receiver, struct peer *peer,
                      const struct msg_done *done, const void *frame, size_t bytes)
{
    struct handoff_in *in = handoff_in_find(receiver, done->handoff);
    if (in && in->state == IN_ABORTED && in->peer == peer)
        return; /* it was on its way when the hand-off ended */
    if (!in || in->peer != peer || !rows[in->state].takes_done || in->has_done) {
        peer_offend(peer, "done for a hand-off that is not its own or was done before");
        return;
    }
    const uint64_t strips = (uint64_t)receiver->region.layers * in->page_count;
    if (done->strips != strips || done->bytes != strips * receiver->region.strip_bytes ||
        done->first.request != in->request) {
        handoff_in_fail(in, STATUS_CORRUPT,
                        "done does not count what was granted, or names another request");
        return;
    }
    buffer_clear(&in->done);
    buffer_add(&in->done, frame, bytes);
    in->has_done = true;
    in->moved_ns = in->renewed_ns = peers_now_ns(receiver->peers);
    handoff_in_land_when_whole(in);
}

/* From the writer: it starts nothing more. What it started before came before, in order. */
static void take_abort(struct handoff_receiver *receiver, struct peer *peer,
                       const struct msg_abort *abort)
{
    struct handoff_in *in = handoff_in_find(receiver, abort->handoff);
    char text[HANDOFF_TEXT_BYTES];
    if (in && in->peer == peer) {
        wire_str_copy(abort->text, text, sizeof text);
        in_abort(in, handoff_status_of(abort->code), text, true);
        in->acknowledged = true;
        handoff_in_settle(in);
    }
    const struct msg_abort_ack ack = {.handoff = abort->handoff};
    if (peer_send(peer, MESSAGE_ID_ABORT_ACK, &ack) == STATUS_LIMIT)
        LOG_WARN("too many messages wait for %s, an answer to an abort among them", peer->node);
}

static void on_message(void *arg, struct peer *peer, enum message_id id, const void *message,
                       const void *frame, size_t bytes)
{
    struct handoff_receiver *receiver = arg;
    if (id == MESSAGE_ID_OFFER) {
        take_offer(receiver, peer, message);
    } else if (id == MESSAGE_ID_DONE) {
        take_done(receiver, peer, message, frame, bytes);
    } else if (id == MESSAGE_ID_ABORT) {
        take_abort(receiver, peer, message);
    } else if (id == MESSAGE_ID_RENEW) {
        struct handoff_in *in =
            handoff_in_find(receiver, ((const struct msg_renew *)message)->handoff);
        if (in && in->peer == peer)
            in->renewed_ns = peers_now_ns(receiver->peers);
    } else if (id == MESSAGE_ID_ABORT_ACK) {
        struct handoff_in *in =
            handoff_in_find(receiver, ((const struct msg_abort_ack *)message)->handoff);
        if (!in || in->peer != peer || in->state != IN_ABORTED)
            return; /* of one that is over, or was never granted */
        in->acknowledged = true;
        handoff_in_settle(in);
    } else {
        peer_offend(peer, "a message that only decode nodes send");
    }
}

static void on_open(void *arg, struct peer *peer)
{
}

static void on_lost(void *arg, struct peer *peer, enum status status, const char *text)
{
    struct handoff_receiver *receiver = arg;
    for (uint32_t i = 0; i < receiver->limits.handoffs_max; i++) {
        struct handoff_in *in = &receiver->ins[i];
        if (in->state == IN_FREE || in->peer != peer)
            continue;
        in_leave_peer(in);
        in_abort(in, status, text, true);
        in->acknowledged = true;
        handoff_in_settle(in);
    }
}

static void on_sent(void *arg, uint64_t cookie, enum status status)
{
}

/* ---- deadlines ---- */

static void in_watch(struct handoff_in *in, uint64_t now_ns)
{
    const struct handoff_limits *limits = &in->receiver->limits;
    const enum handoff_wait wait = rows[in->state].wait;
    char text[HANDOFF_TEXT_BYTES];
    if (wait == WAIT_QUARANTINE && in->peer &&
        handoff_elapsed_ns(now_ns, in->since_ns) >= handoff_ms(limits->quarantine_ms)) {
        snprintf(text, sizeof text, "it did not answer an abort within %u ms",
                 limits->quarantine_ms);
        peer_drop(in->peer, STATUS_TIMEOUT, text);
    } else if (in->receives > 0 && wait == WAIT_LEASE &&
               handoff_elapsed_ns(now_ns, in->moved_ns) >= handoff_ms(limits->progress_ms)) {
        snprintf(text, sizeof text, "no byte of the hand-off arrived for %u ms",
                 limits->progress_ms);
        handoff_in_fail(in, STATUS_TIMEOUT, text);
    } else if (wait == WAIT_LEASE &&
               handoff_elapsed_ns(now_ns, in->renewed_ns) >= handoff_ms(in->lease_ms)) {
        snprintf(text, sizeof text, "the lease of %u ms ended while the hand-off was %s",
                 in->lease_ms, rows[in->state].name);
        handoff_in_fail(in, STATUS_TIMEOUT, text);
    }
}

static void on_tick(void *arg, uint64_t now_ns)
{
    struct handoff_receiver *receiver = arg;
    for (uint32_t i = 0; i < receiver->limits.handoffs_max; i++)
        if (receiver->ins[i].state != IN_FREE)
            in_watch(&receiver->ins[i], now_ns);
}

/* ---- the caller's side ---- */

static void in_create(struct handoff_receiver *receiver, uint32_t index)
{
    struct handoff_in *in = &receiver->ins[index];
    const uint32_t pages = receiver->limits.pages_max;
    *in = (struct handoff_in){.receiver = receiver};
    in->slots = calloc(pages, sizeof *in->slots);
    in->generations = calloc(pages, sizeof *in->generations);
    CHECK(in->slots && in->generations);
    strip_set_create(&in->begun, receiver->region.layers, pages);
}

enum status handoff_receiver_create(struct loop *loop, const struct mover_ops *ops,
                                    const struct mover_options *options,
                                    const struct handoff_region *region,
                                    const struct handoff_self *self,
                                    const struct handoff_limits *limits,
                                    const struct handoff_pages *pages,
                                    const struct handoff_receiver_events *events, void *arg,
                                    struct handoff_receiver **out, struct error *error)
{
    static const struct peers_events peers_events = {
        on_open, on_lost, on_message, handoff_in_data, handoff_in_data_done, on_sent, on_tick};
    TRY(handoff_check_setup(region, limits, error));
    struct handoff_receiver *receiver = calloc(1, sizeof *receiver);
    CHECK(receiver != NULL);
    receiver->loop = loop;
    receiver->region = *region;
    receiver->self = *self;
    receiver->limits = *limits;
    receiver->pages = *pages;
    receiver->events = *events;
    receiver->arg = arg;
    receiver->next_serial = random_os_u64() >> (ID_INDEX_BITS + 2);
    const enum status status = peers_create(loop, ops, options, &receiver->self, &receiver->limits,
                                            &peers_events, receiver, &receiver->peers, error);
    if (status != STATUS_OK) {
        free(receiver);
        return status;
    }
    wire_arena_init(&receiver->arena, wire_arena_bytes(receiver->peers->arena.capacity));
    receiver->message = malloc(wire_message_bytes_max());
    receiver->ins = calloc(limits->handoffs_max, sizeof *receiver->ins);
    CHECK(receiver->ins && receiver->message);
    for (uint32_t i = 0; i < limits->handoffs_max; i++)
        in_create(receiver, i);
    *out = receiver;
    return STATUS_OK;
}

void handoff_receiver_destroy(struct handoff_receiver *receiver)
{
    if (!receiver)
        return;
    peers_destroy(receiver->peers); /* from here on nobody writes to the pages */
    for (uint32_t i = 0; i < receiver->limits.handoffs_max; i++) {
        struct handoff_in *in = &receiver->ins[i];
        if (in->state == IN_RESERVED)
            receiver->pages.unreserve(receiver->arg, in->page_count);
        else if (in->state != IN_FREE)
            receiver->pages.give_back(receiver->arg, in->slots, in->page_count);
        free(in->slots);
        free(in->generations);
        strip_set_free(&in->begun);
        buffer_free(&in->done);
    }
    wire_arena_free(&receiver->arena);
    free(receiver->message);
    free(receiver->ins);
    free(receiver);
}

const char *handoff_receiver_address(const struct handoff_receiver *receiver)
{
    return receiver->peers->ops->address(receiver->peers->mover);
}

enum status handoff_reserve(struct handoff_receiver *receiver, uint64_t request, uint32_t attempt,
                            uint32_t page_count, uint32_t lease_ms, void *context,
                            uint64_t *handoff_out, uint64_t *ticket_out, struct error *error)
{
    uint32_t index = 0;
    if (page_count == 0 || page_count > receiver->limits.pages_max)
        return error_set(error, STATUS_LIMIT, "a hand-off has %u pages, the limit is 1 to %u",
                         page_count, receiver->limits.pages_max);
    while (index < receiver->limits.handoffs_max && receiver->ins[index].state != IN_FREE)
        index++;
    if (index == receiver->limits.handoffs_max)
        return error_set(error, STATUS_LIMIT, "%u hand-offs are open, that is the limit",
                         receiver->limits.handoffs_max);
    if (receiver->pages.reserve(receiver->arg, page_count) != STATUS_OK)
        return error_set(error, STATUS_BUSY, "%u pages are not free now", page_count);
    struct handoff_in *in = &receiver->ins[index];
    in->id = receiver->next_serial++ << ID_INDEX_BITS | index;
    in->ticket = random_os_u64();
    in->request = request;
    in->attempt = attempt;
    in->page_count = page_count;
    in->lease_ms = lease_ms;
    in->context = context;
    in->strips_landed = in->digest = 0;
    in->receives = 0;
    in->has_done = in->acknowledged = false;
    in->stats = (struct handoff_stats){0};
    strip_set_clear(&in->begun, receiver->region.layers);
    handoff_in_enter(in, IN_RESERVED);
    receiver->totals.open++;
    receiver->totals.pages += page_count;
    *handoff_out = in->id;
    *ticket_out = in->ticket;
    return STATUS_OK;
}

void handoff_cancel(struct handoff_receiver *receiver, uint64_t handoff, enum status status,
                    const char *text)
{
    struct handoff_in *in = handoff_in_find(receiver, handoff);
    if (!in)
        return;
    struct peer *peer = in->peer;
    const bool was_moving = in->state == IN_GRANTED || in->state == IN_MOVING;
    in_abort(in, status, text, false);
    if (was_moving && peer)
        handoff_send_abort_to(peer, handoff, status, text);
}

void handoff_receiver_totals(const struct handoff_receiver *receiver, struct handoff_totals *out)
{
    const uint64_t now_ns = loop_now_ns(receiver->loop);
    *out = receiver->totals;
    if (receiver->moving > 0)
        out->busy_ns += now_ns - receiver->busy_from_ns;
    for (uint32_t i = 0; i < receiver->limits.handoffs_max; i++) {
        const struct handoff_in *in = &receiver->ins[i];
        if (in->state == IN_FREE || in->state == IN_RESERVED)
            continue;
        const uint32_t age_ms = handoff_age_ms(now_ns, in->granted_ns);
        out->oldest_ms = age_ms > out->oldest_ms ? age_ms : out->oldest_ms;
    }
}

uint32_t handoff_receiver_peers(const struct handoff_receiver *receiver,
                                struct handoff_peer_totals *out, uint32_t most)
{
    return peers_totals(receiver->peers, out, most);
}
