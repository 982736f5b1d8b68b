/* The life of peers: records, messages, watching, losing; peer_internal.h has the states. */
#include "transfer/peer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

enum {
    RETRY_MAX_MS = 3000,
    RETRY_REFUSED_MS = 10000, /* after a MISMATCH: nothing changes soon */
    MESSAGE_BASE_BYTES = 16 << 10,
    MESSAGE_PAGE_BYTES = 10, /* of a GRANT: a slot and a generation */
    TICKS_PER_DEADLINE = 4,
};

const char *peer_state_name(enum peer_state state)
{
    static const char *const names[PEER_STATE_COUNT] = {
        [PEER_FREE] = "free", [PEER_DIALLED] = "dialled", [PEER_ACCEPTED] = "accepted",
        [PEER_OPEN] = "open", [PEER_REFUSED] = "refused", [PEER_RESTING] = "resting",
    };
    return (uint32_t)state < PEER_STATE_COUNT ? names[state] : "unknown";
}

enum { LATE_TICKS_MAX = 2 };

uint64_t peers_now_ns(const struct peers *peers)
{
    const uint64_t most_ns = LATE_TICKS_MAX * (uint64_t)peers->tick_ms * NS_PER_MS;
    const uint64_t since_ns = loop_now_ns(peers->loop) - peers->ticked_ns;
    return peers->watch_ns + (since_ns < most_ns ? since_ns : most_ns);
}

/* ---- losing ---- */

/* A dialled peer is kept for the length of its back-off, so that whoever asks next waits instead of
 * dialling; half of the wait is drawn. */
static void peer_rest(struct peer *peer, enum status status)
{
    struct peers *peers = peer->peers;
    const uint32_t wait_ms = status == STATUS_MISMATCH ? RETRY_REFUSED_MS : peer->retry_ms;
    const uint32_t drawn_ms = (uint32_t)random_below(&peers->jitter, wait_ms / 2 + 1);
    peer->retry_ms = 2 * peer->retry_ms < RETRY_MAX_MS ? 2 * peer->retry_ms : RETRY_MAX_MS;
    peer->state = PEER_RESTING;
    peer->deadline_ns = peers_after_ms(peers, wait_ms - wait_ms / 2 + drawn_ms);
}

/* The link is closed or closing; hand-offs leave the peer inside on_lost. */
static void peer_lost(struct peer *peer, enum status status, const char *text)
{
    struct peers *peers = peer->peers;
    const bool was_known = peer->state != PEER_ACCEPTED && peer->state != PEER_REFUSED;
    LOG_WARN("peer %s%s%s is lost: %s", peer->node[0] ? peer->node : "(unknown)",
             peer->address[0] ? " at " : "", peer->address, text);
    peer->link = NULL;
    peer->bytes_in_flight = 0; /* those that were are told as failed to hand-offs that left */
    if (peer->address[0])
        peer_rest(peer, status);
    if (was_known)
        peers->events.on_lost(peers->arg, peer, status, text);
    CHECK(peer->users == 0);
    if (!peer->address[0])
        *peer = (struct peer){.state = PEER_FREE};
}

void peer_drop(struct peer *peer, enum status status, const char *text)
{
    if (!peer->link)
        return;
    peer->peers->ops->peer_set_context(peer->link, NULL);
    peer->peers->ops->peer_close(peer->link);
    peer_lost(peer, status, text);
}

void peer_offend(struct peer *peer, const char *what)
{
    char text[PEER_TEXT_BYTES];
    peer->offences++;
    if (peer->offences == 1 || peer->offences == PEER_OFFENCES_MAX)
        LOG_WARN("peer %s offended (%u of %d): %s", peer->node, peer->offences, PEER_OFFENCES_MAX,
                 what);
    if (peer->offences < PEER_OFFENCES_MAX)
        return;
    snprintf(text, sizeof text, "it broke the protocol %d times, at last: %s", PEER_OFFENCES_MAX,
             what);
    peer_drop(peer, STATUS_CORRUPT, text);
}

static void on_peer_closed(void *arg, struct mover_peer *link, enum status status)
{
    struct peers *peers = arg;
    struct peer *peer = peers->ops->peer_context(link);
    char text[PEER_TEXT_BYTES];
    if (!peer)
        return;
    const char *what = status == STATUS_TIMEOUT      ? "could not be reached in time"
                       : status == STATUS_MISMATCH   ? "and this one did not prove to each other "
                                                       "that they belong to one cluster: both need "
                                                       "the same --secret-file or certificates"
                       : peer->state == PEER_DIALLED ? "could not be reached"
                                                     : "is gone";
    snprintf(text, sizeof text, "the node%s%s %s", peer->address[0] ? " at " : "", peer->address,
             what);
    const bool known = status == STATUS_TIMEOUT || status == STATUS_MISMATCH;
    peer_lost(peer, known ? status : STATUS_CLOSED, text);
}

/* ---- sending ---- */

enum status peer_send(struct peer *peer, enum message_id id, const void *message)
{
    struct peers *peers = peer->peers;
    struct error error = {0};
    if (!peer->link)
        return STATUS_CLOSED;
    buffer_clear(&peers->output);
    const enum status status = wire_encode(id, message, &peers->output, &error);
    if (status != STATUS_OK) {
        LOG_ERROR("a message for peer %s cannot be sent: %s", peer->node, error.text);
        return status;
    }
    return peers->ops->send_message(peer->link, peers->output.data, peers->output.size);
}

/* ---- records ---- */

static struct peer *record_take(struct peers *peers)
{
    for (uint32_t i = 0; i < PEER_RECORDS_MAX; i++) {
        struct peer *peer = &peers->records[i];
        if (peer->state != PEER_FREE)
            continue;
        *peer = (struct peer){.peers = peers, .retry_ms = PEER_RETRY_FIRST_MS};
        return peer;
    }
    return NULL;
}

enum status peers_find(struct peers *peers, const char *address, const uint8_t boot_id[16],
                       struct peer **out, struct error *error)
{
    if (strlen(address) >= MOVER_ADDRESS_BYTES || address[0] == '\0')
        return error_set(error, STATUS_INVALID, "\"%.100s\" is not a decode node's address",
                         address);
    for (uint32_t i = 0; i < PEER_RECORDS_MAX; i++) {
        struct peer *peer = &peers->records[i];
        if (peer->state != PEER_FREE && strcmp(peer->address, address) == 0 &&
            memcmp(peer->boot_id, boot_id, 16) == 0) {
            *out = peer;
            return STATUS_OK;
        }
    }
    struct peer *peer = record_take(peers);
    if (!peer)
        return error_set(error, STATUS_LIMIT, "%d peers are known, no more can be dialled",
                         PEER_RECORDS_MAX);
    snprintf(peer->address, sizeof peer->address, "%s", address);
    memcpy(peer->boot_id, boot_id, 16);
    const enum status status = peer_dial(peer, error);
    if (status != STATUS_OK) {
        *peer = (struct peer){.state = PEER_FREE};
        return status;
    }
    *out = peer;
    return STATUS_OK;
}

static void on_peer_accepted(void *arg, struct mover_peer *link)
{
    struct peers *peers = arg;
    struct peer *peer = record_take(peers);
    if (!peer) {
        LOG_WARN("a peer is turned away: %d are known already", PEER_RECORDS_MAX);
        peers->ops->peer_close(link);
        return;
    }
    peer->link = link;
    peer->state = PEER_ACCEPTED;
    gate_accept(&peer->gate, peers->self->gate);
    peer->deadline_ns = peers_after_ms(peers, peers->limits->hello_ms);
    peers->ops->peer_set_context(link, peer);
}

/* ---- messages ---- */

/* What may come in a state is decided here and in the greeting; everything else is an offence that
 * ends the link. */
static void take_message(struct peer *peer, enum message_id id, const void *message,
                         const void *frame, size_t bytes)
{
    struct peers *peers = peer->peers;
    char text[PEER_TEXT_BYTES];
    if (peer_greeting_take(peer, id, message))
        return;
    if (peer->state == PEER_OPEN && id == MESSAGE_ID_PING) {
        const struct msg_pong pong = {.sequence = ((const struct msg_ping *)message)->sequence};
        if (peer_send(peer, MESSAGE_ID_PONG, &pong) == STATUS_LIMIT)
            peer_drop(peer, STATUS_LIMIT, "too many messages wait for it");
    } else if (peer->state == PEER_OPEN && id >= MESSAGE_ID_OFFER && id <= MESSAGE_ID_ABORT_ACK) {
        peers->events.on_message(peers->arg, peer, id, message, frame, bytes);
    } else if (peer->state != PEER_REFUSED &&
               !(peer->state == PEER_OPEN && (id == MESSAGE_ID_PONG || id == MESSAGE_ID_GOAWAY))) {
        snprintf(text, sizeof text, "a %s came from a peer that is %s", wire_message_name(id),
                 peer_state_name(peer->state));
        peer_drop(peer, STATUS_CORRUPT, text);
    }
}

static void on_message(void *arg, struct mover_peer *link, const void *frame, size_t bytes)
{
    struct peers *peers = arg;
    struct peer *peer = peers->ops->peer_context(link);
    struct wire_prefix prefix;
    struct error error = {0};
    enum message_id id;
    if (!peer)
        return;
    peer->heard_ns = peers_now_ns(peers);
    enum status status = wire_prefix_read(frame, bytes, bytes, &prefix, &error);
    if (status == STATUS_AGAIN ||
        (status == STATUS_OK && prefix.payload_bytes != bytes - WIRE_PREFIX_BYTES))
        status =
            error_set(&error, STATUS_CORRUPT, "a message of %zu bytes is not one frame", bytes);
    if (status == STATUS_OK)
        status = wire_frame_check(frame, bytes, &error);
    if (status == STATUS_OK && peer->state != PEER_REFUSED && !gate_lets_in(&peer->gate, &prefix))
        status = gate_refuse(peers->self->gate, &error);
    if (status == STATUS_OK)
        status = wire_decode(prefix.type, (const uint8_t *)frame + WIRE_PREFIX_BYTES,
                             prefix.payload_bytes, &peers->arena, &id, peers->message,
                             wire_message_bytes_max(), &error);
    if (status == STATUS_OK)
        take_message(peer, id, peers->message, frame, bytes);
    else if (peer->state == PEER_ACCEPTED)
        peer_reject(peer, status, error.text); /* an older or newer peer may read the reason */
    else
        peer_drop(peer, status, error.text);
}

static uint32_t on_data(void *arg, struct mover_peer *link, const struct mover_data_header *header,
                        struct mover_segment *segments)
{
    struct peers *peers = arg;
    struct peer *peer = peers->ops->peer_context(link);
    if (!peer)
        return 0;
    peer->heard_ns = peers_now_ns(peers);
    if (peer->state == PEER_OPEN)
        return peers->events.on_data(peers->arg, peer, header, segments);
    peer_drop(peer, STATUS_CORRUPT, "data came before the greeting was over");
    return 0;
}

static void on_data_done(void *arg, struct mover_peer *link, const struct mover_data_header *header,
                         enum status status)
{
    struct peers *peers = arg;
    struct peer *peer = peers->ops->peer_context(link);
    if (peer && status == STATUS_OK)
        peer->heard_ns = peers_now_ns(peers);
    peers->events.on_data_done(peers->arg, header, status);
}

static void on_sent(void *arg, struct mover_peer *link, uint64_t cookie, enum status status)
{
    struct peers *peers = arg;
    struct peer *peer = peers->ops->peer_context(link);
    /* A large send completes only when the other side has taken it. */
    if (peer && status == STATUS_OK)
        peer->heard_ns = peers_now_ns(peers);
    peers->events.on_sent(peers->arg, cookie, status);
}

uint32_t peers_totals(const struct peers *peers, struct handoff_peer_totals *out, uint32_t most)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PEER_RECORDS_MAX && count < most; i++) {
        const struct peer *peer = &peers->records[i];
        if (peer->state == PEER_FREE)
            continue;
        out[count] = (struct handoff_peer_totals){
            .state = peer_state_name(peer->state),
            .open = peer->users,
            .offences = peer->offences,
            .in_flight = peer->bytes_in_flight,
            .bytes = peer->bytes,
            .done = peer->done,
            .failed = peer->failed,
        };
        snprintf(out[count].node, sizeof out[count].node, "%.64s",
                 peer->node[0] ? peer->node : peer->address);
        count++;
    }
    return count;
}

/* ---- watching ---- */

static void watch_open(struct peer *peer, uint64_t now_ns)
{
    const struct handoff_limits *limits = peer->peers->limits;
    char text[PEER_TEXT_BYTES];
    if (peer->users == 0) {
        /* Nobody waits for it: its silence counts from the next use on. */
        peer->heard_ns = now_ns;
        return;
    }
    if (handoff_elapsed_ns(now_ns, peer->heard_ns) >= (uint64_t)limits->progress_ms * NS_PER_MS) {
        snprintf(text, sizeof text, "nothing was heard from node %s for %u ms", peer->node,
                 limits->progress_ms);
        peer_drop(peer, STATUS_TIMEOUT, text);
        return;
    }
    if (handoff_elapsed_ns(now_ns, peer->pinged_ns) < (uint64_t)limits->ping_ms * NS_PER_MS)
        return;
    const struct msg_ping ping = {.sequence = ++peer->ping_sequence};
    peer->pinged_ns = now_ns;
    /* A ping that does not fit its queue is one more sign of silence. */
    if (peer_send(peer, MESSAGE_ID_PING, &ping) != STATUS_OK)
        LOG_DEBUG("a ping for %s was not sent", peer->node);
}

static void watch(struct peer *peer, uint64_t now_ns)
{
    struct error error = {0};
    char text[PEER_TEXT_BYTES];
    if (peer->state == PEER_OPEN) {
        watch_open(peer, now_ns);
        return;
    }
    if (peer->state == PEER_FREE || now_ns < peer->deadline_ns)
        return;
    if (peer->state == PEER_RESTING && peer->users == 0) {
        *peer = (struct peer){.state = PEER_FREE};
    } else if (peer->state == PEER_RESTING) {
        const enum status status = peer_dial(peer, &error);
        if (status != STATUS_OK)
            peer_lost(peer, status, error.text);
    } else {
        snprintf(text, sizeof text, "the greeting%s%s was not over within %u ms",
                 peer->address[0] ? " with " : "", peer->address, peer->peers->limits->hello_ms);
        peer_drop(peer, STATUS_TIMEOUT, text);
    }
}

static void on_tick(void *arg)
{
    struct peers *peers = arg;
    const uint64_t now_ns = peers_now_ns(peers);
    peers->watch_ns = now_ns;
    peers->ticked_ns = loop_now_ns(peers->loop);
    for (uint32_t i = 0; i < PEER_RECORDS_MAX; i++)
        watch(&peers->records[i], now_ns);
    peers->events.on_tick(peers->arg, now_ns);
}

/* ---- life ---- */

static uint32_t tick_ms(const struct handoff_limits *limits)
{
    uint32_t least_ms = limits->ping_ms;
    least_ms = limits->hello_ms < least_ms ? limits->hello_ms : least_ms;
    least_ms = limits->progress_ms < least_ms ? limits->progress_ms : least_ms;
    least_ms = limits->quarantine_ms < least_ms ? limits->quarantine_ms : least_ms;
    least_ms /= TICKS_PER_DEADLINE;
    return least_ms > 0 ? least_ms : 1;
}

enum status peers_create(struct loop *loop, const struct mover_ops *ops,
                         const struct mover_options *options, const struct handoff_self *self,
                         const struct handoff_limits *limits, const struct peers_events *events,
                         void *arg, struct peers **out, struct error *error)
{
    static const struct mover_events mover_events = {
        .on_peer_accepted = on_peer_accepted,
        .on_peer_closed = on_peer_closed,
        .on_message = on_message,
        .on_data = on_data,
        .on_data_done = on_data_done,
        .on_sent = on_sent,
    };
    struct peers *peers = calloc(1, sizeof *peers);
    CHECK(peers != NULL);
    peers->loop = loop;
    peers->ops = ops;
    peers->self = self;
    peers->limits = limits;
    peers->events = *events;
    peers->arg = arg;
    struct mover_options sized = *options;
    sized.data_bytes_max = limits->data_bytes_max;
    sized.message_bytes_max = MESSAGE_BASE_BYTES + (size_t)limits->pages_max * MESSAGE_PAGE_BYTES;
    const enum status status =
        ops->create(loop, &sized, &mover_events, peers, &peers->mover, error);
    if (status != STATUS_OK) {
        free(peers);
        return status;
    }
    random_init(&peers->jitter, random_os_u64());
    wire_arena_init(&peers->arena, wire_arena_bytes(sized.message_bytes_max));
    peers->message = malloc(wire_message_bytes_max());
    CHECK(peers->message != NULL);
    peers->tick = loop_timer_create(loop, on_tick, peers);
    peers->tick_ms = tick_ms(limits);
    peers->ticked_ns = peers->watch_ns = loop_now_ns(loop);
    loop_timer_start(peers->tick, peers->tick_ms, peers->tick_ms);
    *out = peers;
    return STATUS_OK;
}

void peers_destroy(struct peers *peers)
{
    if (!peers)
        return;
    peers->ops->destroy(peers->mover);
    loop_timer_destroy(peers->tick);
    wire_arena_free(&peers->arena);
    buffer_free(&peers->output);
    free(peers->message);
    free(peers);
}
