/* How two nodes greet each other: the gate, then PEER_HELLO from the one that dialled, WELCOME or
 * REJECT from the other. */
#include "transfer/peer_internal.h"

#include <string.h>

#include "base/log.h"
#include "base/stream.h"

void peer_reject(struct peer *peer, enum status status, const char *text)
{
    const struct msg_reject reject = {.code = (uint32_t) - (int)status, .text = wire_str(text)};
    LOG_WARN("a prefill node is refused: %s", text);
    if (peer_send(peer, MESSAGE_ID_REJECT, &reject) != STATUS_OK) {
        peer_drop(peer, status, text);
        return;
    }
    /* A force close could overtake the reason, so the other side hangs up. */
    peer->state = PEER_REFUSED;
    peer->deadline_ns = peers_after_ms(peer->peers, peer->peers->limits->hello_ms);
}

/* A message that cannot go out while greeting ends in the deadline or in on_peer_closed. */
static void send_greeting(struct peer *peer, enum message_id id, const void *message)
{
    const enum status status = peer_send(peer, id, message);
    if (status != STATUS_OK && status != STATUS_CLOSED)
        LOG_WARN("no %s could be sent to %s: %s", wire_message_name(id), peer->address,
                 status_sentence(status));
}

static void send_hello(struct peer *peer)
{
    struct peers *peers = peer->peers;
    const struct handoff_self *self = peers->self;
    const struct msg_peer_hello hello = {
        .node = wire_str(self->node),
        .boot_id = {self->boot_id, 16},
        .identity = self->identity,
        .expected_boot_id = {peer->boot_id, 16},
        .data_bytes_max = peers->limits->data_bytes_max,
        .checksum = peers->limits->checksum,
    };
    send_greeting(peer, MESSAGE_ID_PEER_HELLO, &hello);
}

/* Without a secret, what is not on this host is only dialled when the operator has said so. */
static enum status address_check(const struct peer *peer, struct error *error)
{
    const struct gate_self *gate = peer->peers->self->gate;
    if (!gate || gate->shut || gate->insecure || stream_address_is_loopback(peer->address))
        return STATUS_OK;
    return error_set(error, STATUS_REFUSED,
                     "%s is not on this host and the cluster has no secret: give all nodes one "
                     "--secret-file, or --insecure",
                     peer->address);
}

enum status peer_dial(struct peer *peer, struct error *error)
{
    struct peers *peers = peer->peers;
    struct gate_reply reply;
    TRY(address_check(peer, error));
    TRY(peers->ops->dial(peers->mover, peer->address, &peer->link, error));
    peers->ops->peer_set_context(peer->link, peer);
    peer->state = PEER_DIALLED;
    peer->deadline_ns = peers_after_ms(peers, peers->limits->hello_ms);
    peer->offences = 0;
    gate_dial(&peer->gate, peers->self->gate, &reply);
    if (reply.id != MESSAGE_ID_COUNT)
        send_greeting(peer, reply.id, &reply.message);
    else
        send_hello(peer);
    return STATUS_OK;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void peer_opened(struct peer *peer, struct wire_str node, uint64_t data_bytes_max)
{
    struct peers *peers = peer->peers;
    peer->state = PEER_OPEN;
    peer->deadline_ns = 0;
    peer->retry_ms = PEER_RETRY_FIRST_MS;
    peer->data_bytes_max = smaller(data_bytes_max, peers->limits->data_bytes_max);
    peer->window = (struct peer_window){.bytes = peer->data_bytes_max};
    wire_str_copy(node, peer->node, sizeof peer->node);
    LOG_INFO("peer %s%s%s is open", peer->node, peer->address[0] ? " at " : "", peer->address);
    peers->events.on_open(peers->arg, peer);
}

static enum status hello_check(const struct peer *peer, const struct msg_peer_hello *hello,
                               struct error *error)
{
    const struct peers *peers = peer->peers;
    if (hello->boot_id.bytes != 16 || hello->expected_boot_id.bytes != 16 ||
        hello->data_bytes_max == 0)
        return error_set(error, STATUS_CORRUPT,
                         "the hello lacks a boot id of 16 bytes or the size of data messages");
    TRY(gate_check(&peer->gate, hello->boot_id.data, error));
    if (memcmp(hello->expected_boot_id.data, peers->self->boot_id, 16) != 0) {
        char expected[33];
        char ours[33];
        peer_boot_text(hello->expected_boot_id.data, expected);
        peer_boot_text(peers->self->boot_id, ours);
        return error_set(error, STATUS_MISMATCH,
                         "boot_id is %s on the decode node and %s was expected: it was restarted",
                         ours, expected);
    }
    if (hello->checksum != (uint32_t)peers->limits->checksum)
        return error_set(error, STATUS_MISMATCH,
                         "checksum is %s on the decode node and %s on the prefill node, so they "
                         "cannot exchange pages",
                         handoff_checksum_name(peers->limits->checksum),
                         handoff_checksum_name((enum handoff_checksum)hello->checksum));
    return peer_identity_compare(&peers->self->identity, &hello->identity, error);
}

static void take_hello(struct peer *peer, const struct msg_peer_hello *hello)
{
    struct peers *peers = peer->peers;
    struct error error = {0};
    wire_str_copy(hello->node, peer->node, sizeof peer->node);
    const enum status status = hello_check(peer, hello, &error);
    if (status != STATUS_OK) {
        peer_reject(peer, status, error.text);
        return;
    }
    memcpy(peer->boot_id, hello->boot_id.data, 16);
    const struct msg_peer_welcome welcome = {
        .node = wire_str(peers->self->node),
        .boot_id = {peers->self->boot_id, 16},
        .data_bytes_max = peers->limits->data_bytes_max,
        .flow_bytes = peers->limits->flow_bytes,
        .peer_bytes = peers->limits->peer_bytes,
    };
    if (peer_send(peer, MESSAGE_ID_PEER_WELCOME, &welcome) != STATUS_OK)
        peer_drop(peer, STATUS_CLOSED, "it could not be welcomed");
    else
        peer_opened(peer, hello->node, hello->data_bytes_max);
}

static void take_welcome(struct peer *peer, const struct msg_peer_welcome *welcome)
{
    if (welcome->boot_id.bytes == 16 && memcmp(welcome->boot_id.data, peer->boot_id, 16) == 0 &&
        gate_check(&peer->gate, peer->boot_id, NULL) == STATUS_OK && welcome->data_bytes_max > 0 &&
        welcome->flow_bytes > 0 && welcome->peer_bytes > 0) {
        peer->flow_bytes = smaller(welcome->flow_bytes, peer->peers->limits->flow_bytes);
        peer->peer_bytes = smaller(welcome->peer_bytes, peer->peers->limits->peer_bytes);
        peer_opened(peer, welcome->node, welcome->data_bytes_max);
    } else {
        peer_drop(peer, STATUS_MISMATCH,
                  "its welcome names another boot id than was expected, or no limits");
    }
}

static void take_reject(struct peer *peer, const struct msg_reject *reject)
{
    char text[PEER_TEXT_BYTES];
    wire_str_copy(reject->text, text, sizeof text);
    const int code = -(int)(reject->code <= 64 ? reject->code : 0);
    const bool known = code < 0 && code >= STATUS_INTERNAL;
    peer_drop(peer, known ? (enum status)code : STATUS_REFUSED, text);
}

/* ---- the gate ---- */

/* It is told why, if it is there to read it. */
static void turn_away(struct peer *peer, enum status status, const char *text)
{
    if (peer->state == PEER_ACCEPTED)
        peer_reject(peer, status, text);
    else
        peer_drop(peer, status, text);
}

static void take_at_gate(struct peer *peer, enum message_id id, const void *message)
{
    struct peers *peers = peer->peers;
    struct gate_reply reply;
    struct error error = {0};
    const enum status status =
        gate_take(&peer->gate, peers->self->gate, id, message, &reply, &error);
    if (status != STATUS_OK) {
        turn_away(peer, status, error.text);
        return;
    }
    if (reply.id != MESSAGE_ID_COUNT)
        send_greeting(peer, reply.id, &reply.message);
    if (peer->gate.state == GATE_OPEN && peer->state == PEER_DIALLED)
        send_hello(peer);
}

/* ---- messages ---- */

bool peer_greeting_take(struct peer *peer, enum message_id id, const void *message)
{
    if (id == MESSAGE_ID_REJECT && (peer->state == PEER_DIALLED || peer->state == PEER_OPEN))
        take_reject(peer, message);
    else if (peer->gate.state != GATE_OPEN && peer->state != PEER_REFUSED)
        take_at_gate(peer, id, message);
    else if (peer->state == PEER_ACCEPTED && id == MESSAGE_ID_CHALLENGE)
        peer_reject(peer, STATUS_MISMATCH,
                    "the prefill node has a cluster secret and this decode node has none: start "
                    "both with the same --secret-file");
    else if (peer->state == PEER_DIALLED && id == MESSAGE_ID_PEER_WELCOME)
        take_welcome(peer, message);
    else if (peer->state == PEER_ACCEPTED && id == MESSAGE_ID_PEER_HELLO)
        take_hello(peer, message);
    else
        return false;
    return true;
}
