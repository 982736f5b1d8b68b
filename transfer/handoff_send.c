/* Prefill's end of the hand-off.
 *
 *   state      source pages            leaves by
 *   OPENING    pinned, not read        the peer is open; hello_ms
 *   OFFERED    pinned, not read        GRANT; progress_ms
 *   SENDING    read by sends           the last strip and the first token; progress_ms of sends
 *   FINISHING  read by the last sends  LANDED; progress_ms
 *   ENDED      read by the last sends  no send in flight: on_end; quarantine_ms drops the peer
 *
 * ABORT, the loss of the peer and handoff_send_abort lead from every state to ENDED. The caller is
 * only ever told from `work`, never inside its own call. Strips wait in bitmaps sized at creation;
 * one data message at a time is sent for each hand-off in turn, so that a long prompt does not
 * starve a short one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "transfer/handoff_send_internal.h"

enum { MESSAGES_PER_TURN = 16 };

static void take_grant(struct handoff_out *out, const struct msg_grant *grant);
static void take_landed(struct handoff_out *out);
static void cross_grant(struct handoff_out *out, const struct msg_grant *grant);
static void cross_landed(struct handoff_out *out);

/* What a state waits for and what it takes; a message that its row does not take is an offence. */
static const struct out_row {
    const char *name;
    enum handoff_wait wait;
    void (*on_grant)(struct handoff_out *out, const struct msg_grant *grant);
    void (*on_landed)(struct handoff_out *out);
} rows[] = {
    [OUT_FREE] = {"free", WAIT_NONE, NULL, NULL},
    [OUT_OPENING] = {"opening", WAIT_HELLO, NULL, NULL},
    [OUT_OFFERED] = {"offered", WAIT_PROGRESS, take_grant, NULL},
    [OUT_SENDING] = {"sending", WAIT_PROGRESS, take_grant, NULL},
    [OUT_FINISHING] = {"finishing", WAIT_PROGRESS, NULL, take_landed},
    [OUT_ENDED] = {"ended", WAIT_QUARANTINE, cross_grant, cross_landed},
};

static void out_enter(struct handoff_out *out, enum out_state state)
{
    out->state = state;
    out->since_ns = out->moved_ns = peers_now_ns(out->sender->peers);
}

/* ---- ending ---- */

/* The result is known; on_end follows from `work` when no send is in flight. */
static void out_end(struct handoff_out *out, enum status status, const char *text)
{
    if (out->state == OUT_ENDED)
        return;
    out->status = status;
    snprintf(out->text, sizeof out->text, "%s", text);
    out_enter(out, OUT_ENDED);
    loop_task_schedule(out->sender->work);
}

/* The end was decided here: the receiver has to hear of it. */
static void out_abort(struct handoff_out *out, enum status status, const char *text)
{
    struct peer *peer = out->peer;
    if (out->state == OUT_ENDED)
        return;
    const bool was_offered = out->state != OUT_OPENING;
    handoff_log_end(out->target.handoff, rows[out->state].name, status, text);
    out_end(out, status, text);
    if (was_offered)
        handoff_send_abort_to(peer, out->target.handoff, status, text);
}

static void send_abort_ack(struct peer *peer, uint64_t handoff)
{
    const struct msg_abort_ack ack = {.handoff = handoff};
    if (peer_send(peer, MESSAGE_ID_ABORT_ACK, &ack) == STATUS_LIMIT)
        LOG_WARN("too many messages wait for %s, an answer to an abort among them", peer->node);
}

static void out_leave_peer(struct handoff_out *out)
{
    if (out->peer)
        out->peer->users--;
    out->peer = NULL;
}

static void out_free(struct handoff_out *out)
{
    struct handoff_sender *sender = out->sender;
    TAILQ_REMOVE(&sender->active, out, entry);
    sender->totals.open--;
    sender->totals.pages -= out->target.page_count;
    out->state = OUT_FREE;
}

static void out_tell(struct handoff_out *out)
{
    struct handoff_sender *sender = out->sender;
    if (out->ack_due && out->peer)
        send_abort_ack(out->peer, out->target.handoff);
    if (out->peer) {
        out->peer->done += out->status == STATUS_OK;
        out->peer->failed += out->status != STATUS_OK;
    }
    out_leave_peer(out);
    if (out->status == STATUS_OK)
        sender->totals.done++;
    else
        sender->totals.failed++;
    if (out->status != STATUS_OK)
        sender->totals.failures[handoff_reason_of(out->status)]++;
    sender->events.on_end(sender->arg, out->context, out->status, out->text, &out->stats);
    out_free(out);
}

/* ---- sending ---- */

/* DONE follows the last strip. */
static void out_finish_sending(struct handoff_out *out)
{
    struct handoff_sender *sender = out->sender;
    struct error error = {0};
    if (out->state != OUT_SENDING || !out->has_first || out->strips_sent < out->strips_total)
        return;
    enum status status = handoff_out_make_done(out, &error);
    if (status != STATUS_OK) {
        out_abort(out, status, error.text);
        return;
    }
    status =
        sender->peers->ops->send_message(out->peer->link, sender->frame.data, sender->frame.size);
    if (status == STATUS_OK)
        out_enter(out, OUT_FINISHING);
    else if (status == STATUS_LIMIT)
        out_abort(out, STATUS_LIMIT, "too many messages wait for the decode node");
    /* CLOSED: the loss of the peer follows. */
}

/* One message for each hand-off in turn, until nobody can send; then, or after some of them, the
 * other work of the loop has its turn. */
static void pump(struct handoff_sender *sender)
{
    uint32_t idle = 0, sent = 0;
    while (idle < sender->totals.open) {
        if (sent == MESSAGES_PER_TURN) {
            loop_task_schedule(sender->work);
            return;
        }
        struct handoff_out *out = TAILQ_FIRST(&sender->active);
        const enum status status = handoff_out_send(out);
        if (status == STATUS_AGAIN)
            return; /* it keeps its turn; on_sent goes on */
        TAILQ_REMOVE(&sender->active, out, entry);
        TAILQ_INSERT_TAIL(&sender->active, out, entry);
        if (status == STATUS_LIMIT || status == STATUS_INVALID)
            out_abort(out, status, "the mover refused a data message");
        idle = status == STATUS_OK ? 0 : idle + 1;
        sent += status == STATUS_OK;
        out_finish_sending(out);
    }
}

static void on_work(void *arg)
{
    struct handoff_sender *sender = arg;
    for (uint32_t i = 0; i < sender->limits.handoffs_max; i++) {
        struct handoff_out *out = &sender->outs[i];
        if (out->state == OUT_ENDED && out->sends == 0)
            out_tell(out);
    }
    pump(sender);
}

static void on_sent(void *arg, uint64_t cookie, enum status status)
{
    struct handoff_sender *sender = arg;
    struct handoff_out *out = &sender->outs[cookie & ((1u << COOKIE_INDEX_BITS) - 1)];
    const uint64_t bytes = cookie >> COOKIE_INDEX_BITS;
    CHECK(out->state != OUT_FREE && out->sends > 0);
    out->sends--;
    if (--sender->sends == 0)
        sender->totals.busy_ns += loop_now_ns(sender->loop) - sender->busy_from_ns;
    out->bytes_in_flight -= bytes;
    if (out->peer) {
        handoff_window_sent(out->peer, bytes);
        out->peer->bytes += status == STATUS_OK ? bytes : 0;
    }
    if (status == STATUS_OK) {
        out->moved_ns = peers_now_ns(sender->peers);
        out->stats.last_sent_ns = loop_now_ns(sender->loop);
        out->stats.bytes += bytes;
        out->stats.strips += bytes / sender->region.strip_bytes;
        out->stats.messages++;
        sender->totals.bytes += bytes;
    } else {
        out->send_failed = true; /* mostly the first sign that the peer is lost */
    }
    loop_task_schedule(sender->work);
}

/* ---- what the receiver says ---- */

static void send_offer(struct handoff_out *out)
{
    const struct handoff_target *target = &out->target;
    const struct msg_offer offer = {
        .handoff = target->handoff,
        .ticket = target->ticket,
        .request = target->request,
        .attempt = target->attempt,
        .first_page = target->first_page,
        .page_count = target->page_count,
        .bytes = out->strips_total * out->sender->region.strip_bytes,
    };
    out_enter(out, OUT_OFFERED);
    const enum status status = peer_send(out->peer, MESSAGE_ID_OFFER, &offer);
    if (status != STATUS_OK && status != STATUS_CLOSED)
        out_end(out, status, "the offer could not be sent");
}

/* The first pages are at the receiver already: they are not sent. */
static void out_leave_out(struct handoff_out *out, uint32_t held)
{
    const uint32_t layers = out->sender->region.layers;
    out->held = held;
    out->strips_total = (uint64_t)layers * (out->target.page_count - held);
    for (uint32_t layer = 0; layer < layers; layer++) {
        for (uint32_t page = 0; page < held; page++) {
            if (!strip_has(&out->ready, layer, page))
                continue;
            strip_remove(&out->ready, layer, page);
            out->ready_counts[layer]--;
            out->ready_total--;
        }
    }
}

static void take_grant(struct handoff_out *out, const struct msg_grant *grant)
{
    const uint32_t first = grant->first_page - out->target.first_page;
    const uint32_t count = grant->slots.count;
    const bool holds_all = grant->held == out->target.page_count && first == grant->held;
    if ((count == 0 && !holds_all) || count != grant->generations.count ||
        grant->first_page < out->target.first_page || first > out->target.page_count ||
        count > out->target.page_count - first || grant->held > first ||
        (grant->held > 0 && out->state != OUT_OFFERED)) {
        out_abort(out, STATUS_CORRUPT, "the decode node granted pages that were not offered");
        return;
    }
    out_leave_out(out, grant->held);
    for (uint32_t i = 0; i < count; i++) {
        if (out->granted_slots[first + i] != SLOT_NONE || grant->slots.items[i] == SLOT_NONE) {
            out_abort(out, STATUS_CORRUPT, "the decode node granted a page twice");
            return;
        }
        out->granted_slots[first + i] = grant->slots.items[i];
        out->generations[first + i] = grant->generations.items[i];
    }
    out->granted_count += count;
    if (out->state == OUT_OFFERED)
        out_enter(out, OUT_SENDING);
    loop_task_schedule(out->sender->work);
}

static void take_landed(struct handoff_out *out)
{
    out->stats.landed_ns = loop_now_ns(out->sender->loop);
    out_end(out, STATUS_OK, "");
}

/* It was on its way when this side gave up, and has met the abort. */
static void cross_grant(struct handoff_out *out, const struct msg_grant *grant)
{
    (void)grant;
    LOG_DEBUG("hand-off %016" PRIx64 " has ended, its grant is late", out->target.handoff);
}

static void cross_landed(struct handoff_out *out)
{
    LOG_DEBUG("hand-off %016" PRIx64 " has ended, but its pages have landed", out->target.handoff);
}

static struct handoff_out *out_find(struct handoff_sender *sender, const struct peer *peer,
                                    uint64_t handoff)
{
    struct handoff_out *out;
    TAILQ_FOREACH(out, &sender->active, entry)
    if (out->peer == peer && out->target.handoff == handoff)
        return out;
    return NULL;
}

/* The receiver wants no more of it. It keeps the pages aside until it hears that no send is in
 * flight, which for one that is not known here any more is so. */
static void take_abort(struct handoff_sender *sender, struct peer *peer,
                       const struct msg_abort *abort)
{
    struct handoff_out *out = out_find(sender, peer, abort->handoff);
    char text[HANDOFF_TEXT_BYTES];
    if (!out) {
        send_abort_ack(peer, abort->handoff);
        return;
    }
    wire_str_copy(abort->text, text, sizeof text);
    out_end(out, handoff_status_of(abort->code), text);
    out->ack_due = true;
}

static void on_message(void *arg, struct peer *peer, enum message_id id, const void *message,
                       const void *frame, size_t bytes)
{
    struct handoff_sender *sender = arg;
    if (id == MESSAGE_ID_ABORT) {
        take_abort(sender, peer, message);
    } else if (id == MESSAGE_ID_GRANT) {
        const struct msg_grant *grant = message;
        struct handoff_out *out = out_find(sender, peer, grant->handoff);
        if (out && rows[out->state].on_grant)
            rows[out->state].on_grant(out, grant);
        else if (out)
            peer_offend(peer, "a grant for a hand-off that has all its pages");
    } else if (id == MESSAGE_ID_LANDED) {
        struct handoff_out *out =
            out_find(sender, peer, ((const struct msg_landed *)message)->handoff);
        if (out && rows[out->state].on_landed)
            rows[out->state].on_landed(out);
        else if (out)
            peer_offend(peer, "landed before everything was sent");
    } else if (id != MESSAGE_ID_ABORT_ACK) {
        peer_offend(peer, "a message that only prefill nodes send");
    }
}

static void on_open(void *arg, struct peer *peer)
{
    struct handoff_sender *sender = arg;
    for (uint32_t i = 0; i < sender->limits.handoffs_max; i++) {
        struct handoff_out *out = &sender->outs[i];
        if (out->state == OUT_OPENING && out->peer == peer)
            send_offer(out);
    }
}

static void on_lost(void *arg, struct peer *peer, enum status status, const char *text)
{
    struct handoff_sender *sender = arg;
    for (uint32_t i = 0; i < sender->limits.handoffs_max; i++) {
        struct handoff_out *out = &sender->outs[i];
        if (out->state == OUT_FREE || out->peer != peer)
            continue;
        out_end(out, status, text);
        peer->failed++;
        out_leave_peer(out);
    }
}

static uint32_t on_data(void *arg, struct peer *peer, const struct mover_data_header *header,
                        struct mover_segment *segments)
{
    peer_offend(peer, "data for a node that only sends");
    return 0;
}

static void on_data_done(void *arg, const struct mover_data_header *header, enum status status)
{
}

/* ---- deadlines ---- */

static void out_watch(struct handoff_out *out, uint64_t now_ns)
{
    const struct handoff_limits *limits = &out->sender->limits;
    char text[HANDOFF_TEXT_BYTES];
    const enum handoff_wait wait = rows[out->state].wait;
    if (wait == WAIT_HELLO &&
        handoff_elapsed_ns(now_ns, out->since_ns) >= 2 * handoff_ms(limits->hello_ms)) {
        snprintf(text, sizeof text, "no connection to the decode node within %u ms",
                 2 * limits->hello_ms);
        out_abort(out, STATUS_TIMEOUT, text);
    }
    /* A hand-off whose strips are not computed yet waits for us, not for the network. */
    const bool waits = out->state != OUT_SENDING || out->sends > 0;
    if (wait == WAIT_PROGRESS && out->send_failed &&
        handoff_elapsed_ns(now_ns, out->moved_ns) >= handoff_ms(limits->ping_ms))
        out_abort(out, STATUS_CLOSED, "a data message could not be delivered");
    if (wait == WAIT_PROGRESS && waits && out->state != OUT_ENDED &&
        handoff_elapsed_ns(now_ns, out->moved_ns) >= handoff_ms(limits->progress_ms)) {
        snprintf(text, sizeof text, "nothing of the hand-off moved for %u ms while it was %s",
                 limits->progress_ms, rows[out->state].name);
        out_abort(out, STATUS_TIMEOUT, text);
    }
}

/* While the prompt waits for its turn or is read, the pages at the other end stay ours by this. */
static void renew(struct handoff_out *out, uint64_t now_ns)
{
    if (rows[out->state].wait != WAIT_PROGRESS || out->state == OUT_ENDED || !out->peer ||
        handoff_elapsed_ns(now_ns, out->renewed_ns) < handoff_ms(out->sender->limits.ping_ms))
        return;
    const struct msg_renew message = {.handoff = out->target.handoff};
    out->renewed_ns = now_ns;
    /* One that does not fit the queue is made up for by the next; the loss of the peer follows. */
    if (peer_send(out->peer, MESSAGE_ID_RENEW, &message) != STATUS_OK)
        LOG_DEBUG("a renewal for %s was not sent", out->peer->node);
}

/* Sends that do not end although their hand-off did can only be ended with the whole link. */
static void drop_stuck(struct handoff_out *out, uint64_t now_ns)
{
    if (out->state == OUT_ENDED && out->sends > 0 && out->peer &&
        handoff_elapsed_ns(now_ns, out->since_ns) >= handoff_ms(out->sender->limits.quarantine_ms))
        peer_drop(out->peer, STATUS_TIMEOUT, "sends of an ended hand-off did not end");
}

static void on_tick(void *arg, uint64_t now_ns)
{
    struct handoff_sender *sender = arg;
    for (uint32_t i = 0; i < sender->limits.handoffs_max; i++) {
        struct handoff_out *out = &sender->outs[i];
        if (out->state == OUT_FREE)
            continue;
        out_watch(out, now_ns);
        renew(out, now_ns);
        drop_stuck(out, now_ns);
    }
    loop_task_schedule(sender->work);
}

/* ---- the caller's side ---- */

static void out_create(struct handoff_sender *sender, uint32_t index)
{
    struct handoff_out *out = &sender->outs[index];
    const uint32_t layers = sender->region.layers;
    const uint32_t pages = sender->limits.pages_max;
    *out = (struct handoff_out){.sender = sender, .index = index};
    out->source_slots = calloc(pages, sizeof *out->source_slots);
    out->granted_slots = calloc(pages, sizeof *out->granted_slots);
    out->generations = calloc(pages, sizeof *out->generations);
    out->ready_counts = calloc(layers, sizeof *out->ready_counts);
    CHECK(out->source_slots && out->granted_slots && out->generations && out->ready_counts);
    strip_set_create(&out->posted, layers, pages);
    strip_set_create(&out->ready, layers, pages);
}

static void out_destroy(struct handoff_out *out)
{
    free(out->source_slots);
    free(out->granted_slots);
    free(out->generations);
    free(out->ready_counts);
    strip_set_free(&out->posted);
    strip_set_free(&out->ready);
    buffer_free(&out->done);
}

enum status handoff_sender_create(struct loop *loop, const struct mover_ops *ops,
                                  const struct mover_options *options,
                                  const struct handoff_region *region,
                                  const struct handoff_self *self,
                                  const struct handoff_limits *limits,
                                  const struct handoff_sender_events *events, void *arg,
                                  struct handoff_sender **out, struct error *error)
{
    static const struct peers_events peers_events = {on_open,      on_lost, on_message, on_data,
                                                     on_data_done, on_sent, on_tick};
    TRY(handoff_check_setup(region, limits, error));
    struct handoff_sender *sender = calloc(1, sizeof *sender);
    CHECK(sender != NULL);
    sender->loop = loop;
    sender->region = *region;
    sender->self = *self;
    sender->limits = *limits;
    sender->events = *events;
    sender->arg = arg;
    TAILQ_INIT(&sender->active);
    const enum status status = peers_create(loop, ops, options, &sender->self, &sender->limits,
                                            &peers_events, sender, &sender->peers, error);
    if (status != STATUS_OK) {
        free(sender);
        return status;
    }
    sender->sends_max = options->sends_max;
    wire_arena_init(&sender->arena, wire_arena_bytes(sender->peers->arena.capacity));
    sender->message = malloc(wire_message_bytes_max());
    CHECK(sender->message != NULL);
    sender->work = loop_task_create(loop, on_work, sender);
    sender->outs = calloc(limits->handoffs_max, sizeof *sender->outs);
    CHECK(sender->outs != NULL);
    for (uint32_t i = 0; i < limits->handoffs_max; i++)
        out_create(sender, i);
    *out = sender;
    return STATUS_OK;
}

void handoff_sender_destroy(struct handoff_sender *sender)
{
    if (!sender)
        return;
    peers_destroy(sender->peers);
    loop_task_destroy(sender->work);
    for (uint32_t i = 0; i < sender->limits.handoffs_max; i++)
        out_destroy(&sender->outs[i]);
    wire_arena_free(&sender->arena);
    buffer_free(&sender->frame);
    free(sender->message);
    free(sender->outs);
    free(sender);
}

static struct handoff_out *out_take(struct handoff_sender *sender)
{
    for (uint32_t i = 0; i < sender->limits.handoffs_max; i++)
        if (sender->outs[i].state == OUT_FREE)
            return &sender->outs[i];
    return NULL;
}

static void out_begin(struct handoff_out *out, const struct handoff_target *target, void *context)
{
    struct handoff_sender *sender = out->sender;
    const uint32_t layers = sender->region.layers;
    out->target = *target;
    out->target.address = NULL; /* the caller's */
    out->context = context;
    out->strips_total = (uint64_t)layers * target->page_count;
    out->strips_sent = out->ready_total = 0;
    out->granted_count = out->held = out->next_layer = out->sends = 0;
    out->bytes_in_flight = out->digest = 0;
    out->has_first = out->send_failed = out->ack_due = false;
    out->stats = (struct handoff_stats){0};
    strip_set_clear(&out->posted, layers);
    strip_set_clear(&out->ready, layers);
    memset(out->ready_counts, 0, layers * sizeof *out->ready_counts);
    for (uint32_t i = 0; i < target->page_count; i++)
        out->source_slots[i] = out->granted_slots[i] = SLOT_NONE;
    out->opened_ns = loop_now_ns(sender->loop);
    out->peer->users++;
    sender->totals.open++;
    sender->totals.pages += target->page_count;
    TAILQ_INSERT_TAIL(&sender->active, out, entry);
}

enum status handoff_send_open(struct handoff_sender *sender, const struct handoff_target *target,
                              void *context, struct handoff_out **out_out, struct error *error)
{
    if (target->page_count == 0 || target->page_count > sender->limits.pages_max ||
        target->first_page > UINT32_MAX - target->page_count)
        return error_set(error, STATUS_LIMIT, "a hand-off has %u pages, the limit is 1 to %u",
                         target->page_count, sender->limits.pages_max);
    struct handoff_out *out = out_take(sender);
    if (!out)
        return error_set(error, STATUS_LIMIT, "%u hand-offs are open, that is the limit",
                         sender->limits.handoffs_max);
    TRY(peers_find(sender->peers, target->address, target->boot_id, &out->peer, error));
    out_begin(out, target, context);
    out_enter(out, OUT_OPENING);
    if (out->peer->state == PEER_OPEN)
        send_offer(out);
    *out_out = out;
    return STATUS_OK;
}

void handoff_send_strips(struct handoff_out *out, uint32_t layer, uint32_t first_page,
                         uint32_t count, const uint32_t *slots)
{
    const struct handoff_region *region = &out->sender->region;
    const uint32_t first = first_page - out->target.first_page;
    if (out->state == OUT_ENDED)
        return;
    if (layer >= region->layers || first_page < out->target.first_page ||
        first > out->target.page_count || count > out->target.page_count - first) {
        out_abort(out, STATUS_INVALID, "strips were posted that the hand-off does not have");
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t page = first + i;
        const bool moved =
            out->source_slots[page] != SLOT_NONE && out->source_slots[page] != slots[i];
        if (slots[i] >= region->slots || moved || strip_has(&out->posted, layer, page)) {
            out_abort(out, STATUS_INVALID,
                      "a strip was posted twice, or its page has two slots or a wrong one");
            return;
        }
        out->source_slots[page] = slots[i];
        strip_add(&out->posted, layer, page);
        if (page < out->held)
            continue;
        strip_add(&out->ready, layer, page);
        out->ready_counts[layer]++;
        out->ready_total++;
    }
    loop_task_schedule(out->sender->work);
}

void handoff_send_first(struct handoff_out *out, const struct msg_step *firsts, uint32_t count)
{
    struct error error = {0};
    if (out->state == OUT_ENDED)
        return;
    const struct msg_done done = {
        .handoff = out->target.handoff,
        .first = firsts[0],
        .others = {.items = firsts + 1, .count = count - 1},
    };
    buffer_clear(&out->done);
    const enum status status = wire_encode(MESSAGE_ID_DONE, &done, &out->done, &error);
    if (status != STATUS_OK) {
        out_abort(out, status, error.text);
        return;
    }
    out->has_first = true;
    loop_task_schedule(out->sender->work);
}

void handoff_send_abort(struct handoff_out *out, enum status status, const char *text)
{
    out_abort(out, status, text);
}

void handoff_sender_totals(const struct handoff_sender *sender, struct handoff_totals *out)
{
    const uint64_t now_ns = loop_now_ns(sender->loop);
    const struct handoff_out *one;
    *out = sender->totals;
    if (sender->sends > 0)
        out->busy_ns += now_ns - sender->busy_from_ns;
    TAILQ_FOREACH(one, &sender->active, entry)
    {
        const uint32_t age_ms = handoff_age_ms(now_ns, one->opened_ns);
        out->queue_bytes += one->ready_total * sender->region.strip_bytes;
        out->oldest_ms = age_ms > out->oldest_ms ? age_ms : out->oldest_ms;
    }
}

uint32_t handoff_sender_peers(const struct handoff_sender *sender, struct handoff_peer_totals *out,
                              uint32_t most)
{
    return peers_totals(sender->peers, out, most);
}
