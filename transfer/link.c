/* Frames over a stream. A link closed inside its own callback is only marked, and freed when the
 * callback has returned, because the message the callback looks at lives in it. */
#include "transfer/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/check.h"
#include "base/log.h"
#include "base/stream.h"
#include "transfer/fault.h"
#include "transfer/wire_internal.h"

const struct link_limits link_default_limits = {
    .connect_ms = 3000,
    .silent_ms = 3000,
    .frame_bytes_max = WIRE_FRAME_BYTES_MAX,
    .output_bytes_max = 64 << 20,
};

enum {
    LINK_ARENA_KEPT_BYTES = 1 << 20, /* a larger arena is given back after its message */
    LINK_SILENCE_CHECKS = 4,         /* a silence is noticed at most a quarter too late */
    LINK_STRANGERS_MAX = 64,         /* accepted and not yet proven */
};

struct link {
    struct loop *loop;
    struct gate gate;
    struct link_listener *listener; /* of one that was accepted, until it has proven itself */
    TAILQ_ENTRY(link) entry;        /* among the listener's strangers */
    struct stream *stream;          /* NULL once it ended */
    struct loop_timer *silence;
    struct link_events events;
    void *arg;
    struct link_limits limits;
    uint32_t silent_checks; /* since anything last came */
    struct wire_arena arena;
    struct buffer output; /* one frame at a time */
    void *message;        /* the decoded one */
    bool attached, open, inside, closed;
    bool overflown; /* a message was lost, so the link is as good as broken */
    char peer[64];
};
TAILQ_HEAD(link_list, link);

struct link_listener {
    struct loop *loop;
    struct link_list strangers;
    uint32_t stranger_count;
    struct stream_listener *listener;
    void (*on_accept)(void *arg, struct link *link);
    void *arg;
    struct link_limits limits;
};

static void link_free(struct link *link)
{
    loop_timer_destroy(link->silence);
    wire_arena_free(&link->arena);
    buffer_free(&link->output);
    free(link->message);
    free(link);
}

/* It is no stranger any more, or gone. */
static void leave_listener(struct link *link)
{
    if (!link->listener)
        return;
    TAILQ_REMOVE(&link->listener->strangers, link, entry);
    link->listener->stranger_count--;
    link->listener = NULL;
}

/* Tells the owner, once, and lets go. The stream is gone or about to be. */
static void link_end(struct link *link, enum status status, const char *text)
{
    leave_listener(link);
    link->closed = true;
    link->stream = NULL;
    loop_timer_stop(link->silence);
    const bool was_inside = link->inside;
    link->inside = true;
    if (link->attached)
        link->events.on_close(link->arg, status, text);
    link->inside = was_inside;
    if (!link->inside)
        link_free(link);
}

static void send_reject(struct link *link, enum status status, const char *text)
{
    struct wire_str said = wire_str(text);
    if (said.bytes > 512)
        said.bytes = 512;
    const struct msg_reject reject = {.code = (uint32_t)(status < 0 ? -(int)status : 0),
                                      .text = said};
    /* A link that cannot carry the reason any more ends without it. */
    if (link_send(link, MESSAGE_ID_REJECT, &reject) != STATUS_OK)
        LOG_DEBUG("%s could not be told why its link ends: %s", link->peer, text);
}

/* A fault of this side's finding: told to both ends. */
static void link_fail(struct link *link, enum status status, const char *text)
{
    send_reject(link, status, text);
    struct stream *stream = link->stream;
    link_end(link, status, text);
    if (stream)
        stream_close(stream);
}

/* The other side's reason, in words that can be logged. */
static void take_reject(struct link *link, const struct msg_reject *reject)
{
    char text[513];
    wire_str_copy(reject->text, text, sizeof text);
    const int code = -(int)(reject->code <= 64 ? reject->code : 0);
    const enum status status =
        code < 0 && code >= STATUS_INTERNAL ? (enum status)code : STATUS_REFUSED;
    struct stream *stream = link->stream;
    link_end(link, status, text[0] ? text : status_sentence(status));
    if (stream)
        stream_close(stream);
}

/* ---- the gate ---- */

/* The conversation begins: the owner hears of the link, inside a callback of the stream. */
static void link_admit(struct link *link)
{
    struct link_listener *listener = link->listener;
    leave_listener(link);
    if (!listener) {
        if (link->events.on_open)
            link->events.on_open(link->arg);
        return;
    }
    listener->on_accept(listener->arg, link);
    if (!link->closed && !link->attached) {
        struct stream *unwanted = link->stream;
        link->closed = true;
        link->stream = NULL;
        stream_close(unwanted);
    }
}

/* A crowd of strangers is told of at ever longer intervals. */
static void link_turn_away(struct link *link, const struct error *error)
{
    const uint64_t refused = link->limits.gate->refused;
    if ((refused & (refused - 1)) == 0)
        LOG_WARN("%s is turned away (%llu so far): %s", link->peer, (unsigned long long)refused,
                 error->text);
    link_fail(link, error->status, error->text);
}

static void gate_send(struct link *link, const struct gate_reply *reply)
{
    /* A link that cannot carry so little is failing, which on_close will tell. */
    if (reply->id != MESSAGE_ID_COUNT && link_send(link, reply->id, &reply->message) != STATUS_OK)
        LOG_DEBUG("a proof could not be sent to %s", link->peer);
}

static void take_at_gate(struct link *link, enum message_id id)
{
    struct gate_reply reply;
    struct error error = {0};
    if (gate_take(&link->gate, link->limits.gate, id, link->message, &reply, &error) != STATUS_OK) {
        link_turn_away(link, &error);
        return;
    }
    gate_send(link, &reply);
    if (link->gate.state == GATE_OPEN)
        link_admit(link);
}

static void take_message(struct link *link, enum message_id id)
{
    if (id == MESSAGE_ID_REJECT)
        take_reject(link, link->message);
    else if (link->gate.state != GATE_OPEN)
        take_at_gate(link, id);
    else if (id == MESSAGE_ID_CHALLENGE && !link->gate.proven)
        link_fail(link, STATUS_MISMATCH,
                  "the other side has a cluster secret and this one has none: start both with the "
                  "same --secret-file");
    else
        link->events.on_message(link->arg, id, link->message);
}

/* What requests are made of: not the greeting, heartbeats or ends. */
static bool is_work(uint32_t type)
{
    return type >= wire_message(MESSAGE_ID_RESERVE)->type;
}

/* Decodes one frame and hands it on. */
static void take_frame(struct link *link, const struct wire_prefix *prefix, const void *payload)
{
    struct error error = {0};
    if (is_work(prefix->type) && fault_at(FAULT_LINK_IN) == FAULT_DROP)
        return;
    const size_t arena_bytes = wire_arena_bytes(prefix->payload_bytes);
    if (arena_bytes > link->arena.capacity) {
        wire_arena_free(&link->arena);
        wire_arena_init(&link->arena, arena_bytes);
    }
    enum message_id id;
    enum status status =
        wire_frame_check((const uint8_t *)payload - WIRE_PREFIX_BYTES,
                         WIRE_PREFIX_BYTES + (size_t)prefix->payload_bytes, &error);
    if (status == STATUS_OK)
        status = wire_decode(prefix->type, payload, prefix->payload_bytes, &link->arena, &id,
                             link->message, wire_message_bytes_max(), &error);
    if (status == STATUS_OK)
        take_message(link, id);
    else
        link_fail(link, status, error.text);
    if (!link->closed && link->arena.capacity > LINK_ARENA_KEPT_BYTES)
        wire_arena_free(&link->arena);
}

static size_t on_data(void *arg, const void *data, size_t bytes)
{
    struct link *link = arg;
    size_t taken = 0;
    if (link->closed)
        return bytes;
    if (link->gate.state == GATE_OPEN) /* a stranger has silent_ms in all, whatever it says */
        link->silent_checks = 0;
    link->inside = true;
    while (!link->closed) {
        const uint8_t *at = (const uint8_t *)data + taken;
        struct wire_prefix prefix;
        struct error error = {0};
        const enum status status =
            wire_prefix_read(at, bytes - taken, link->limits.frame_bytes_max, &prefix, &error);
        if (status == STATUS_AGAIN)
            break;
        if (status != STATUS_OK) {
            link_fail(link, status, error.text);
            break;
        }
        if (link->gate.state != GATE_OPEN && !gate_lets_in(&link->gate, &prefix)) {
            gate_refuse(link->limits.gate, &error);
            link_turn_away(link, &error);
            break;
        }
        if (bytes - taken - WIRE_PREFIX_BYTES < prefix.payload_bytes)
            break;
        take_frame(link, &prefix, at + WIRE_PREFIX_BYTES);
        taken += WIRE_PREFIX_BYTES + prefix.payload_bytes;
    }
    link->inside = false;
    if (link->closed)
        link_free(link);
    return taken;
}

static void end_overflown(struct link *link)
{
    char text[160];
    snprintf(text, sizeof text, "%s does not take what is sent: %zu bytes wait, no more may",
             link->peer, link->limits.output_bytes_max);
    link_fail(link, STATUS_LIMIT, text);
}

/* Checks are counted, not time: a stall of this process makes one of them late, and what came
 * meanwhile is read before the next. */
static void on_silence(void *arg)
{
    struct link *link = arg;
    if (link->overflown) {
        end_overflown(link);
        return;
    }
    if (++link->silent_checks <= LINK_SILENCE_CHECKS)
        return;
    char text[160];
    snprintf(text, sizeof text, "nothing was heard from %s for %u ms", link->peer,
             link->limits.silent_ms);
    link_fail(link, STATUS_TIMEOUT, text);
}

static void link_started(struct link *link)
{
    const uint32_t check_ms = link->limits.silent_ms / LINK_SILENCE_CHECKS;
    link->open = true;
    link->silent_checks = 0;
    snprintf(link->peer, sizeof link->peer, "%s", stream_peer(link->stream));
    loop_timer_start(link->silence, check_ms ? check_ms : 1, check_ms ? check_ms : 1);
}

static void on_open(void *arg)
{
    struct link *link = arg;
    struct gate_reply reply;
    link_started(link);
    link->inside = true;
    gate_dial(&link->gate, link->limits.gate, &reply);
    gate_send(link, &reply);
    if (link->gate.state == GATE_OPEN)
        link_admit(link);
    link->inside = false;
    if (link->closed)
        link_free(link);
}

static void on_close(void *arg, enum status status, const char *text)
{
    struct link *link = arg;
    if (!link->closed)
        link_end(link, status, text);
}

static const struct stream_events stream_events = {
    .on_open = on_open,
    .on_data = on_data,
    .on_close = on_close,
};

static struct stream_limits stream_limits_of(const struct link_limits *limits)
{
    return (struct stream_limits){
        .input_bytes = limits->frame_bytes_max + WIRE_PREFIX_BYTES + 1,
        .output_bytes = limits->output_bytes_max,
        .connect_ms = limits->connect_ms,
    };
}

static struct link *link_new(struct loop *loop, const struct link_limits *limits)
{
    struct link *link = calloc(1, sizeof *link);
    CHECK(link != NULL);
    link->loop = loop;
    link->limits = *limits;
    link->silence = loop_timer_create(loop, on_silence, link);
    link->message = malloc(wire_message_bytes_max());
    CHECK(link->message != NULL);
    return link;
}

enum status link_dial(struct loop *loop, const char *address, const struct link_events *events,
                      void *arg, const struct link_limits *limits, struct link **out,
                      struct error *error)
{
    struct link *link = link_new(loop, limits);
    const struct stream_limits stream_limits = stream_limits_of(limits);
    snprintf(link->peer, sizeof link->peer, "%s", address);
    link->events = *events;
    link->arg = arg;
    link->attached = true;
    const enum status status =
        stream_dial(loop, address, &stream_events, link, &stream_limits, &link->stream, error);
    if (status != STATUS_OK) {
        link_free(link);
        return status;
    }
    *out = link;
    return STATUS_OK;
}

static void on_stream_accept(void *arg, struct stream *stream)
{
    struct link_listener *listener = arg;
    if (listener->stranger_count == LINK_STRANGERS_MAX) {
        LOG_DEBUG("%s is turned away: %d others have not proven themselves yet",
                  stream_peer(stream), LINK_STRANGERS_MAX);
        return; /* a stream that nobody attaches to is closed */
    }
    struct link *link = link_new(listener->loop, &listener->limits);
    link->stream = stream;
    stream_attach(stream, &stream_events, link);
    link->listener = listener;
    TAILQ_INSERT_TAIL(&listener->strangers, link, entry);
    listener->stranger_count++;
    link_started(link);
    gate_accept(&link->gate, link->limits.gate);
    link->inside = true;
    if (link->gate.state == GATE_OPEN)
        link_admit(link);
    link->inside = false;
    if (link->closed)
        link_free(link);
}

enum status link_listen(struct loop *loop, const char *address,
                        void (*on_accept)(void *arg, struct link *link), void *arg,
                        const struct link_limits *limits, struct link_listener **out,
                        struct error *error)
{
    struct link_listener *listener = calloc(1, sizeof *listener);
    CHECK(listener != NULL);
    *listener =
        (struct link_listener){.loop = loop, .on_accept = on_accept, .arg = arg, .limits = *limits};
    TAILQ_INIT(&listener->strangers);
    const struct stream_limits stream_limits = stream_limits_of(limits);
    const enum status status = stream_listen(loop, address, on_stream_accept, listener,
                                             &stream_limits, &listener->listener, error);
    if (status != STATUS_OK) {
        free(listener);
        return status;
    }
    *out = listener;
    return STATUS_OK;
}

uint16_t link_listener_port(const struct link_listener *listener)
{
    return stream_listener_port(listener->listener);
}

void link_listener_close(struct link_listener *listener)
{
    if (!listener)
        return;
    stream_listener_close(listener->listener);
    struct link *link;
    while ((link = TAILQ_FIRST(&listener->strangers)))
        link_close(link, STATUS_CLOSED, NULL);
    free(listener);
}

void link_attach(struct link *link, const struct link_events *events, void *arg)
{
    link->events = *events;
    link->arg = arg;
    link->attached = true;
}

enum status link_send(struct link *link, enum message_id id, const void *message)
{
    if (link->closed || !link->stream)
        return STATUS_CLOSED;
    if (link->overflown)
        return STATUS_LIMIT;
    struct error error = {0};
    buffer_clear(&link->output);
    const enum status status = wire_encode(id, message, &link->output, &error);
    if (status != STATUS_OK) {
        LOG_ERROR("a message for %s cannot be sent: %s", link->peer, error.text);
        return status;
    }
    size_t bytes = link->output.size;
    switch (is_work(wire_message(id)->type) ? fault_at(FAULT_LINK_OUT) : FAULT_NO) {
    case FAULT_DROP:
        return STATUS_OK;
    case FAULT_CORRUPT:
        link->output.data[bytes - 1] ^= 1;
        break;
    case FAULT_SHORT:
        bytes /= 2;
        break;
    default:
        break;
    }
    const enum status sent = stream_send(link->stream, link->output.data, bytes);
    if (link->output.capacity > LINK_ARENA_KEPT_BYTES)
        buffer_free(&link->output);
    link->overflown = sent == STATUS_LIMIT;
    return sent;
}

const char *link_peer(const struct link *link)
{
    return link->peer;
}

enum status link_check_boot(const struct link *link, const uint8_t boot_id[16], struct error *error)
{
    return gate_check(&link->gate, boot_id, error);
}

void link_close(struct link *link, enum status status, const char *text)
{
    if (!link || link->closed)
        return;
    if (text)
        send_reject(link, status, text);
    struct stream *stream = link->stream;
    leave_listener(link);
    link->closed = true;
    link->stream = NULL;
    loop_timer_stop(link->silence);
    if (stream)
        stream_close(stream);
    if (!link->inside)
        link_free(link);
}
