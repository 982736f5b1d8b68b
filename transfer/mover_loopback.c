/* The plain reference: movers of one process, bytes copied by memcpy.
 *
 * Every mover has an inbox of events, drained on its own loop, so two movers may live on one loop
 * or on two threads. One lock guards all inboxes, the table of listeners and who is joined to whom;
 * no callback runs under it, and the copy of a data message does, so that after a close nobody
 * reads the closer's memory. */
#include "transfer/mover_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/check.h"

enum { EVENTS_PER_TURN = 64, MESSAGES_WAITING_MAX = 1024, FIRST_PORT = 20000 };

enum event_kind { EVENT_ACCEPTED, EVENT_MESSAGE, EVENT_DATA, EVENT_SENT, EVENT_CLOSED };

/* One thing to be told; stands in the inbox of peer->mover. */
struct event {
    TAILQ_ENTRY(event) entry;
    enum event_kind kind;
    struct mover_peer *peer;
    enum status status;
    struct buffer_bytes *bytes; /* EVENT_MESSAGE */
    struct data_send *send;     /* EVENT_DATA, EVENT_SENT: its own node */
};
TAILQ_HEAD(event_queue, event);

struct buffer_bytes {
    size_t bytes;
    uint8_t data[];
};

/* A data send from its slot; the event moves from the receiver's inbox back to the sender's. */
struct data_send {
    struct event event;
    struct mover_peer *from; /* NULL: free */
    struct mover_data_header header;
    struct mover_segment segments[MOVER_SEGMENTS_MAX];
    uint32_t segment_count;
    uint64_t cookie;
    bool sent; /* the way back: EVENT_SENT stands in the sender's inbox */
};

struct mover_peer {
    LIST_ENTRY(mover_peer) entry;
    struct mover *mover;
    struct mover_peer *other; /* NULL once either end is closed */
    void *context;
    struct data_send *receiving; /* between on_data and the copy; a close by either end ends it */
    struct mover_data_header receiving_header; /* the send may be used again after such a close */
    uint32_t events;                           /* in the inbox for this peer */
    uint32_t sends;                            /* data sends not yet told */
    uint32_t messages;                         /* waiting at the other side */
    bool closed;                               /* by the owner, or on_peer_closed was told */
    struct event closed_event;
};
LIST_HEAD(peer_list, mover_peer);

struct mover {
    LIST_ENTRY(mover) entry;
    struct mover_options options;
    struct mover_events events;
    void *arg;
    struct loop_wake *wake;
    struct event_queue inbox;
    struct peer_list peers;
    struct data_send *sends;
    char address[MOVER_ADDRESS_BYTES];
};
LIST_HEAD(mover_list, mover);

/* The network of this process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mover_list listeners = LIST_HEAD_INITIALIZER(listeners);
static uint32_t next_port = FIRST_PORT;

/* ---- under the lock ---- */

static void post(struct event *event, enum event_kind kind, struct mover_peer *peer)
{
    event->kind = kind;
    event->peer = peer;
    peer->events++;
    TAILQ_INSERT_TAIL(&peer->mover->inbox, event, entry);
    loop_wake_signal(peer->mover->wake);
}

static void unpost(struct event *event)
{
    event->peer->events--;
    TAILQ_REMOVE(&event->peer->mover->inbox, event, entry);
}

static void send_over(struct data_send *send, enum status status)
{
    send->sent = true;
    send->event.status = status;
    post(&send->event, EVENT_SENT, send->from);
}

/* What `from` sent and nobody received yet comes back as cancelled. */
static void cancel_sends(struct mover_peer *from)
{
    struct mover *mover = from->mover;
    for (uint32_t i = 0; i < mover->options.sends_max; i++) {
        struct data_send *send = &mover->sends[i];
        if (send->from != from || send->sent)
            continue;
        if (from->other && from->other->receiving == send)
            from->other->receiving = NULL;
        else
            unpost(&send->event);
        send_over(send, STATUS_CANCELED);
    }
}

static void part(struct mover_peer *peer)
{
    struct mover_peer *other = peer->other;
    if (!other)
        return;
    cancel_sends(peer);
    cancel_sends(other);
    peer->other = NULL;
    other->other = NULL;
    other->closed_event.status = STATUS_CLOSED;
    post(&other->closed_event, EVENT_CLOSED, other);
}

static void peer_free_when_done(struct mover_peer *peer)
{
    if (!peer->closed || peer->events > 0 || peer->sends > 0)
        return;
    LIST_REMOVE(peer, entry);
    free(peer);
}

static struct mover_peer *peer_new(struct mover *mover)
{
    struct mover_peer *peer = calloc(1, sizeof *peer);
    CHECK(peer != NULL);
    peer->mover = mover;
    LIST_INSERT_HEAD(&mover->peers, peer, entry);
    return peer;
}

static struct mover *listener_find(const char *address)
{
    struct mover *mover;
    LIST_FOREACH(mover, &listeners, entry)
    if (strcmp(mover->address, address) == 0)
        return mover;
    return NULL;
}

/* ---- draining an inbox ---- */

static void deliver_data(struct mover *mover, struct mover_peer *peer, struct data_send *send)
{
    const struct mover_data_header header = peer->receiving_header;
    struct mover_segment segments[MOVER_SEGMENTS_MAX];
    const uint32_t count = header.payload_bytes <= mover->options.data_bytes_max
                               ? mover->events.on_data(mover->arg, peer, &header, segments)
                               : 0;
    enum status status = STATUS_CANCELED;
    pthread_mutex_lock(&lock);
    if (peer->receiving == send) { /* neither side closed meanwhile */
        peer->receiving = NULL;
        if (count > 0)
            mover_segments_copy(segments, count, send->segments, send->segment_count);
        status = STATUS_OK;
        send_over(send, STATUS_OK);
    }
    pthread_mutex_unlock(&lock);
    if (count > 0)
        mover->events.on_data_done(mover->arg, peer, &header, status);
}

static void deliver_sent(struct mover *mover, struct mover_peer *peer, struct data_send *send)
{
    const uint64_t cookie = send->cookie;
    pthread_mutex_lock(&lock);
    send->from = NULL;
    peer->sends--;
    const enum status status = send->event.status;
    pthread_mutex_unlock(&lock);
    mover->events.on_sent(mover->arg, peer, cookie, status);
}

/* `event` is a copy made when it left the inbox, its peer stays for the length of this call. The
 * node itself is not read: that of a data send may be on its way back to the sender by now. */
static void deliver(struct mover *mover, struct mover_peer *peer, const struct event *event)
{
    switch (event->kind) {
    case EVENT_ACCEPTED:
        if (!peer->closed)
            mover->events.on_peer_accepted(mover->arg, peer);
        break;
    case EVENT_MESSAGE:
        if (!peer->closed)
            mover->events.on_message(mover->arg, peer, event->bytes->data, event->bytes->bytes);
        free(event->bytes);
        break;
    case EVENT_DATA:
        deliver_data(mover, peer, event->send);
        break;
    case EVENT_SENT:
        deliver_sent(mover, peer, event->send);
        break;
    case EVENT_CLOSED:
        if (peer->closed)
            break;
        mover->events.on_peer_closed(mover->arg, peer, event->status);
        peer->closed = true;
        break;
    }
}

static void on_wake(void *arg)
{
    struct mover *mover = arg;
    for (int i = 0; i < EVENTS_PER_TURN; i++) {
        pthread_mutex_lock(&lock);
        struct event *event = TAILQ_FIRST(&mover->inbox);
        if (!event) {
            pthread_mutex_unlock(&lock);
            return;
        }
        struct mover_peer *peer = event->peer;
        TAILQ_REMOVE(&mover->inbox, event, entry);
        const struct event taken = *event;
        if (event->kind == EVENT_MESSAGE || event->kind == EVENT_ACCEPTED)
            free(event);
        if (taken.kind == EVENT_DATA) {
            peer->receiving = taken.send;
            peer->receiving_header = taken.send->header;
        }
        if (taken.kind == EVENT_MESSAGE && peer->other)
            peer->other->messages--;
        pthread_mutex_unlock(&lock);
        deliver(mover, peer, &taken);
        pthread_mutex_lock(&lock);
        peer->events--;
        peer_free_when_done(peer);
        pthread_mutex_unlock(&lock);
    }
    loop_wake_signal(mover->wake);
}

/* ---- the table ---- */

/* "host:0" picks a port that no other mover has. */
static enum status listen_at(struct mover *mover, const char *address, struct error *error)
{
    const char *colon = strrchr(address, ':');
    if (!colon || strlen(address) + 8 > sizeof mover->address)
        return error_set(error, STATUS_INVALID, "\"%.100s\" is not host:port", address);
    enum status status = STATUS_OK;
    pthread_mutex_lock(&lock);
    if (strcmp(colon, ":0") == 0)
        snprintf(mover->address, sizeof mover->address, "%.*s:%u", (int)(colon - address), address,
                 next_port++);
    else
        snprintf(mover->address, sizeof mover->address, "%s", address);
    if (listener_find(mover->address))
        status = error_set(error, STATUS_IO, "%s is taken by another mover", mover->address);
    else
        LIST_INSERT_HEAD(&listeners, mover, entry);
    pthread_mutex_unlock(&lock);
    return status;
}

static enum status loopback_create(struct loop *loop, const struct mover_options *options,
                                   const struct mover_events *events, void *arg, struct mover **out,
                                   struct error *error)
{
    struct mover *mover = calloc(1, sizeof *mover);
    CHECK(mover != NULL && options->sends_max > 0);
    mover->options = *options;
    mover->events = *events;
    mover->arg = arg;
    TAILQ_INIT(&mover->inbox);
    LIST_INIT(&mover->peers);
    mover->sends = calloc(options->sends_max, sizeof *mover->sends);
    CHECK(mover->sends != NULL);
    mover->wake = loop_wake_create(loop, on_wake, mover);
    if (options->listen) {
        const enum status status = listen_at(mover, options->listen, error);
        if (status != STATUS_OK) {
            loop_wake_destroy(mover->wake);
            free(mover->sends);
            free(mover);
            return status;
        }
    }
    mover->options.listen = options->listen ? mover->address : NULL;
    *out = mover;
    return STATUS_OK;
}

static void loopback_destroy(struct mover *mover)
{
    if (!mover)
        return;
    pthread_mutex_lock(&lock);
    if (mover->options.listen)
        LIST_REMOVE(mover, entry);
    struct mover_peer *peer;
    LIST_FOREACH(peer, &mover->peers, entry)
    part(peer);
    struct event *event;
    while ((event = TAILQ_FIRST(&mover->inbox))) {
        TAILQ_REMOVE(&mover->inbox, event, entry);
        if (event->kind == EVENT_MESSAGE)
            free(event->bytes);
        if (event->kind == EVENT_MESSAGE || event->kind == EVENT_ACCEPTED)
            free(event);
    }
    while ((peer = LIST_FIRST(&mover->peers))) {
        LIST_REMOVE(peer, entry);
        free(peer);
    }
    pthread_mutex_unlock(&lock);
    loop_wake_destroy(mover->wake);
    free(mover->sends);
    free(mover);
}

static const char *loopback_address(const struct mover *mover)
{
    return mover->address;
}

static enum status loopback_dial(struct mover *mover, const char *address, struct mover_peer **out,
                                 struct error *error)
{
    if (!strrchr(address, ':'))
        return error_set(error, STATUS_INVALID, "\"%.100s\" is not host:port", address);
    struct event *accepted = calloc(1, sizeof *accepted);
    CHECK(accepted != NULL);
    pthread_mutex_lock(&lock);
    struct mover_peer *peer = peer_new(mover);
    struct mover *listener = listener_find(address);
    if (listener) {
        peer->other = peer_new(listener);
        peer->other->other = peer;
        post(accepted, EVENT_ACCEPTED, peer->other);
    } else {
        free(accepted);
        peer->closed_event.status = STATUS_CLOSED;
        post(&peer->closed_event, EVENT_CLOSED, peer);
    }
    pthread_mutex_unlock(&lock);
    *out = peer;
    return STATUS_OK;
}

static enum status loopback_send_message(struct mover_peer *peer, const void *frame, size_t bytes)
{
    if (bytes > peer->mover->options.message_bytes_max)
        return STATUS_LIMIT;
    enum status status = STATUS_OK;
    struct event *event = calloc(1, sizeof *event);
    struct buffer_bytes *copy = malloc(sizeof *copy + bytes);
    CHECK(event != NULL && copy != NULL);
    copy->bytes = bytes;
    memcpy(copy->data, frame, bytes);
    event->bytes = copy;
    pthread_mutex_lock(&lock);
    if (!peer->other || peer->closed)
        status = STATUS_CLOSED;
    else if (peer->messages == MESSAGES_WAITING_MAX)
        status = STATUS_LIMIT;
    if (status == STATUS_OK) {
        peer->messages++;
        post(event, EVENT_MESSAGE, peer->other);
    }
    pthread_mutex_unlock(&lock);
    if (status != STATUS_OK) {
        free(copy);
        free(event);
    }
    return status;
}

static enum status loopback_send_data(struct mover_peer *peer,
                                      const struct mover_data_header *header,
                                      const struct mover_segment *segments, uint32_t segment_count,
                                      uint64_t cookie)
{
    struct mover *mover = peer->mover;
    TRY(mover_data_check(&mover->options, header, segments, segment_count));
    enum status status = STATUS_AGAIN;
    pthread_mutex_lock(&lock);
    if (!peer->other || peer->closed)
        status = STATUS_CLOSED;
    for (uint32_t i = 0; status == STATUS_AGAIN && i < mover->options.sends_max; i++) {
        struct data_send *send = &mover->sends[i];
        if (send->from)
            continue;
        send->from = peer;
        send->header = *header;
        memcpy(send->segments, segments, segment_count * sizeof *segments);
        send->segment_count = segment_count;
        send->cookie = cookie;
        send->sent = false;
        send->event = (struct event){.send = send};
        peer->sends++;
        post(&send->event, EVENT_DATA, peer->other);
        status = STATUS_OK;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static void loopback_peer_close(struct mover_peer *peer)
{
    pthread_mutex_lock(&lock);
    CHECK(!peer->closed);
    part(peer);
    peer->closed = true;
    peer_free_when_done(peer);
    pthread_mutex_unlock(&lock);
}

static void loopback_peer_set_context(struct mover_peer *peer, void *context)
{
    peer->context = context;
}

static void *loopback_peer_context(const struct mover_peer *peer)
{
    return peer->context;
}

static struct mover_shape loopback_peer_shape(const struct mover_peer *peer)
{
    (void)peer;
    return (struct mover_shape){.run_bytes = 64 << 10, .gather_bytes = 1 << 20};
}

const struct mover_ops mover_loopback_ops = {
    .name = "loopback",
    .create = loopback_create,
    .destroy = loopback_destroy,
    .address = loopback_address,
    .dial = loopback_dial,
    .send_message = loopback_send_message,
    .send_data = loopback_send_data,
    .peer_close = loopback_peer_close,
    .peer_set_context = loopback_peer_set_context,
    .peer_context = loopback_peer_context,
    .peer_shape = loopback_peer_shape,
};
