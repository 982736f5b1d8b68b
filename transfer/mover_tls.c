/* The mover over plain TCP with TLS, for hosts without UCX and networks that are not trusted.
 *
 *   record   kind u32 (1 message, 2 data), bytes u32 of what follows, little-endian
 *   message  the frame
 *   data     a data header (56 bytes), then its payload_bytes
 *
 * One connection a pair, in order: what a peer sent before its last word has been judged when that
 * word is read. Payload is read straight into the destination. A data send is over when its bytes
 * are with the kernel.
 *
 *   state       means                                       leaves by
 *   CONNECTING  the socket connects                         writable; connect_ms
 *   GREETING    both sides prove who they are               the end of the handshake; connect_ms
 *   OPEN        records pass both ways                      failure, close
 *   OVER        failed, or closed by its owner              `turn`, which tells what is left to
 * tell
 *
 * Calls of the owner only queue; sockets are written and peers freed from the loop. */
#include "transfer/mover_tls_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

enum {
    PEERS_MAX = 256,
    STRANGERS_MAX = 64, /* accepted and still greeting */
    BACKLOG = 256,
    ACCEPTS_PER_TURN = 32,
    ACCEPT_PAUSE_MS = 1000,
    DEADLINE_TICK_MS = 20,
    MESSAGES_WAITING_MAX = 1024,
};

/* ---- peers ---- */

bool tls_peer_is_usable(const struct mover_peer *peer)
{
    return peer->state != TLS_PEER_OVER;
}

void tls_peer_fail(struct mover_peer *peer, enum status status, const char *text)
{
    if (!tls_peer_is_usable(peer))
        return;
    LOG_DEBUG("the connection with %s ends: %s", peer->text, text);
    if (status == STATUS_MISMATCH)
        LOG_WARN("%s: %s", peer->text, text);
    peer->state = TLS_PEER_OVER;
    peer->status = status;
    if (peer->io)
        loop_io_want(peer->io, 0);
    loop_task_schedule(peer->mover->turn);
}

static void want_events(struct mover_peer *peer)
{
    unsigned events = 0;
    switch (peer->state) {
    case TLS_PEER_CONNECTING:
        events = LOOP_WRITE;
        break;
    case TLS_PEER_GREETING:
        events = tls_wants(peer->tls);
        break;
    case TLS_PEER_OPEN:
        events = LOOP_READ;
        if (peer->write_blocked || peer->read_waits_for_write)
            events |= LOOP_WRITE;
        break;
    case TLS_PEER_OVER:
        break;
    }
    loop_io_want(peer->io, events);
}

static void peer_opened(struct mover_peer *peer)
{
    struct mover *mover = peer->mover;
    peer->state = TLS_PEER_OPEN;
    peer->deadline_ns = 0;
    peer->read_again = true; /* what came with the greeting is inside the library */
    if (!peer->dialled) {
        mover->stranger_count--;
        peer->told = true;
        mover->events.on_peer_accepted(mover->arg, peer);
    }
    loop_task_schedule(mover->turn);
}

static void greet(struct mover_peer *peer)
{
    struct error error = {0};
    const enum status status = tls_greet(peer->tls, &error);
    if (status == STATUS_OK)
        peer_opened(peer);
    else if (status != STATUS_AGAIN)
        tls_peer_fail(peer, status, error.text);
}

static void connected(struct mover_peer *peer)
{
    int cause = 0;
    socklen_t bytes = sizeof cause;
    CHECK(getsockopt(peer->fd, SOL_SOCKET, SO_ERROR, &cause, &bytes) == 0);
    if (cause != 0) {
        tls_peer_fail(peer, STATUS_CLOSED, strerror(cause));
        return;
    }
    peer->tls = tls_create(peer->mover->context, peer->fd, true);
    peer->state = TLS_PEER_GREETING;
    greet(peer);
}

static void on_ready(void *arg, unsigned events)
{
    struct mover_peer *peer = arg;
    struct mover *mover = peer->mover;
    if (peer->state == TLS_PEER_CONNECTING)
        connected(peer);
    else if (peer->state == TLS_PEER_GREETING)
        greet(peer);
    else if (peer->state == TLS_PEER_OPEN && (events & LOOP_READ))
        tls_peer_read(peer);
    if (peer->state == TLS_PEER_OPEN &&
        (!STAILQ_EMPTY(&peer->queue) || peer->read_waits_for_write)) {
        peer->write_blocked = false;
        loop_task_schedule(mover->turn);
    }
    if (tls_peer_is_usable(peer))
        want_events(peer);
}

static struct mover_peer *peer_create(struct mover *mover, int fd, bool dialled, const char *text)
{
    struct mover_peer *peer = calloc(1, sizeof *peer);
    CHECK(peer != NULL);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    peer->mover = mover;
    peer->fd = fd;
    peer->dialled = peer->told = dialled;
    peer->deadline_ns = loop_now_ns(mover->loop) + (uint64_t)mover->options.connect_ms * NS_PER_MS;
    snprintf(peer->text, sizeof peer->text, "%s", text);
    STAILQ_INIT(&peer->queue);
    peer->io = loop_io_create(mover->loop, fd, 0, on_ready, peer);
    LIST_INSERT_HEAD(&mover->peers, peer, entry);
    mover->peer_count++;
    if (!mover->deadlines_run)
        loop_timer_start(mover->deadlines, DEADLINE_TICK_MS, DEADLINE_TICK_MS);
    mover->deadlines_run = true;
    return peer;
}

static void peer_free(struct mover_peer *peer)
{
    LIST_REMOVE(peer, entry);
    peer->mover->peer_count--;
    loop_io_destroy(peer->io);
    tls_destroy(peer->tls);
    close(peer->fd);
    buffer_free(&peer->in.frame);
    free(peer);
}

/* ---- ending ---- */

static void send_finish(struct tls_send *send, enum status status)
{
    struct mover_peer *peer = send->peer;
    struct mover *mover = peer->mover;
    const uint64_t cookie = send->cookie;
    if (!send->is_data) {
        peer->messages--;
        free(send);
        return;
    }
    send->peer = NULL;
    STAILQ_INSERT_HEAD(&mover->sends_free, send, entry);
    if (!mover->quiet)
        mover->events.on_sent(mover->arg, peer, cookie, status);
}

/* Tells what is left to tell of a peer that is over, and frees it. */
static void peer_end(struct mover_peer *peer)
{
    struct mover *mover = peer->mover;
    const enum status status = peer->closed ? STATUS_CANCELED : peer->status;
    struct tls_send *send;
    if (peer->state == TLS_PEER_OVER && !peer->dialled && !peer->told)
        mover->stranger_count--;
    while ((send = STAILQ_FIRST(&peer->queue))) {
        STAILQ_REMOVE_HEAD(&peer->queue, entry);
        send_finish(send, status);
    }
    if (peer->in.receiving) {
        peer->in.receiving = false;
        if (!mover->quiet)
            mover->events.on_data_done(mover->arg, peer, &peer->in.header, status);
    }
    if (peer->told && !peer->closed && !mover->quiet)
        mover->events.on_peer_closed(mover->arg, peer, peer->status);
    peer_free(peer);
}

/* Callbacks of one peer may end others, so the search begins anew after each. */
static void reap(struct mover *mover)
{
    struct mover_peer *peer = LIST_FIRST(&mover->peers);
    while (peer) {
        if (tls_peer_is_usable(peer)) {
            peer = LIST_NEXT(peer, entry);
            continue;
        }
        peer_end(peer);
        peer = LIST_FIRST(&mover->peers);
    }
}

/* ---- sending ---- */

/* The next bytes of the send at the head: its record and header first, then its body. */
static const void *send_rest(const struct tls_send *send, size_t *bytes_out)
{
    if (send->prefix_done < send->prefix_bytes) {
        *bytes_out = send->prefix_bytes - send->prefix_done;
        return send->prefix + send->prefix_done;
    }
    if (!send->is_data) {
        *bytes_out = send->frame_bytes - send->body_done;
        return send->frame + send->body_done;
    }
    const struct mover_segment *segment = &send->segments[send->segment];
    *bytes_out = segment->bytes - send->body_done;
    return (const uint8_t *)segment->data + send->body_done;
}

/* True when the whole send is out. */
static bool send_advance(struct tls_send *send, size_t done)
{
    if (send->prefix_done < send->prefix_bytes) {
        send->prefix_done += done;
        return send->prefix_done == send->prefix_bytes && !send->is_data && send->frame_bytes == 0;
    }
    send->body_done += done;
    if (!send->is_data)
        return send->body_done == send->frame_bytes;
    if (send->body_done < send->segments[send->segment].bytes)
        return false;
    send->body_done = 0;
    return ++send->segment == send->segment_count;
}

/* Until the socket is full, the queue is empty, or this turn's share is used up. */
static void peer_write(struct mover_peer *peer)
{
    struct tls_send *send;
    size_t share = TLS_BYTES_PER_TURN;
    struct error error = {0};
    while (peer->state == TLS_PEER_OPEN && !peer->write_blocked &&
           (send = STAILQ_FIRST(&peer->queue))) {
        size_t bytes, done = 0;
        const void *rest = send_rest(send, &bytes);
        const enum status status = tls_write(peer->tls, rest, bytes, &done, &error);
        if (status == STATUS_AGAIN) {
            peer->write_blocked = tls_wants(peer->tls) == LOOP_WRITE;
            break;
        }
        if (status != STATUS_OK) {
            tls_peer_fail(peer, status, error.text);
            return;
        }
        if (send_advance(send, done)) {
            STAILQ_REMOVE_HEAD(&peer->queue, entry);
            send_finish(send, STATUS_OK);
        }
        share -= done < share ? done : share;
        if (share == 0) {
            loop_task_schedule(peer->mover->turn);
            break;
        }
    }
    if (tls_peer_is_usable(peer))
        want_events(peer);
}

static void send_queue(struct mover_peer *peer, struct tls_send *send, uint32_t kind, size_t bytes)
{
    send->peer = peer;
    store_le32(send->prefix, kind);
    store_le32(send->prefix + 4, (uint32_t)bytes);
    STAILQ_INSERT_TAIL(&peer->queue, send, entry);
    if (peer->state == TLS_PEER_OPEN)
        loop_task_schedule(peer->mover->turn);
}

static enum status mover_tls_send_message(struct mover_peer *peer, const void *frame, size_t bytes)
{
    if (!tls_peer_is_usable(peer))
        return STATUS_CLOSED;
    if (bytes > peer->mover->options.message_bytes_max || peer->messages == MESSAGES_WAITING_MAX)
        return STATUS_LIMIT;
    struct tls_send *send = malloc(sizeof *send + bytes);
    CHECK(send != NULL);
    *send = (struct tls_send){.prefix_bytes = TLS_RECORD_BYTES, .frame_bytes = bytes};
    if (bytes > 0)
        memcpy(send->frame, frame, bytes);
    peer->messages++;
    send_queue(peer, send, TLS_RECORD_MESSAGE, bytes);
    return STATUS_OK;
}

static enum status mover_tls_send_data(struct mover_peer *peer,
                                       const struct mover_data_header *header,
                                       const struct mover_segment *segments, uint32_t segment_count,
                                       uint64_t cookie)
{
    struct mover *mover = peer->mover;
    if (!tls_peer_is_usable(peer))
        return STATUS_CLOSED;
    TRY(mover_data_check(&mover->options, header, segments, segment_count));
    struct tls_send *send = STAILQ_FIRST(&mover->sends_free);
    if (!send)
        return STATUS_AGAIN;
    STAILQ_REMOVE_HEAD(&mover->sends_free, entry);
    *send = (struct tls_send){.is_data = true,
                              .cookie = cookie,
                              .segment_count = segment_count,
                              .prefix_bytes = TLS_RECORD_BYTES + MOVER_HEADER_BYTES};
    memcpy(send->segments, segments, segment_count * sizeof *segments);
    mover_header_write(header, send->prefix + TLS_RECORD_BYTES);
    send_queue(peer, send, TLS_RECORD_DATA, MOVER_HEADER_BYTES + header->payload_bytes);
    return STATUS_OK;
}

/* ---- the loop ---- */

static void on_turn(void *arg)
{
    struct mover *mover = arg;
    struct mover_peer *peer, *next;
    /* Peers are freed by reap alone, so the next one stays whatever the callbacks do. */
    for (peer = LIST_FIRST(&mover->peers); peer; peer = next) {
        next = LIST_NEXT(peer, entry);
        if (peer->state != TLS_PEER_OPEN)
            continue;
        if (peer->read_again || peer->read_waits_for_write) {
            peer->read_again = peer->read_waits_for_write = false;
            tls_peer_read(peer);
        }
        if (peer->state == TLS_PEER_OPEN)
            peer_write(peer);
    }
    reap(mover);
}

static void on_deadlines(void *arg)
{
    struct mover *mover = arg;
    const uint64_t now_ns = loop_now_ns(mover->loop);
    bool more = false;
    struct mover_peer *peer;
    LIST_FOREACH(peer, &mover->peers, entry)
    {
        if (peer->deadline_ns == 0 || !tls_peer_is_usable(peer))
            continue;
        if (now_ns >= peer->deadline_ns)
            tls_peer_fail(peer, STATUS_TIMEOUT, "it did not greet in time");
        else
            more = true;
    }
    mover->deadlines_run = more;
    if (!more)
        loop_timer_stop(mover->deadlines);
}

/* ---- dialling and listening ---- */

static enum status mover_tls_dial(struct mover *mover, const char *address, struct mover_peer **out,
                                  struct error *error)
{
    struct sockaddr_storage target;
    TRY(mover_address_resolve(address, &target, error));
    if (mover->peer_count >= PEERS_MAX)
        return error_set(error, STATUS_LIMIT, "%u peers are connected, the limit is %d",
                         mover->peer_count, PEERS_MAX);
    const int fd = socket(target.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(error, STATUS_IO, "%.100s cannot be dialled", address);
    const int result = connect(fd, (const struct sockaddr *)&target, mover_address_bytes(&target));
    struct mover_peer *peer = NULL;
    if (result == 0 || errno == EINPROGRESS || errno == EINTR) {
        peer = peer_create(mover, fd, true, address);
        want_events(peer);
    } else {
        const int cause = errno;
        peer = peer_create(mover, fd, true, address);
        tls_peer_fail(peer, STATUS_CLOSED, strerror(cause));
    }
    *out = peer;
    return STATUS_OK;
}

static void on_pause_over(void *arg)
{
    struct mover *mover = arg;
    loop_io_want(mover->listen_io, LOOP_READ);
}

/* True while there may be more to accept. */
static bool accept_one(struct mover *mover)
{
    struct sockaddr_storage from = {0};
    socklen_t bytes = sizeof from;
    char text[MOVER_ADDRESS_BYTES];
    const int fd =
        accept4(mover->listen_fd, (struct sockaddr *)&from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        LOG_WARN("a peer that dialled cannot be accepted: %s; trying again in %d ms",
                 strerror(errno), ACCEPT_PAUSE_MS);
        loop_io_want(mover->listen_io, 0);
        loop_timer_start(mover->pause, ACCEPT_PAUSE_MS, 0);
        return false;
    }
    if (fd < 0)
        return errno != EAGAIN;
    if (mover->peer_count >= PEERS_MAX || mover->stranger_count >= STRANGERS_MAX) {
        LOG_WARN("a peer that dialled was turned away: %u are connected, %u of them greeting",
                 mover->peer_count, mover->stranger_count);
        close(fd);
        return true;
    }
    mover_address_text(&from, text);
    struct mover_peer *peer = peer_create(mover, fd, false, text);
    mover->stranger_count++;
    peer->tls = tls_create(mover->context, fd, false);
    peer->state = TLS_PEER_GREETING;
    greet(peer);
    if (tls_peer_is_usable(peer))
        want_events(peer);
    return true;
}

static void on_acceptable(void *arg, unsigned events)
{
    struct mover *mover = arg;
    for (int i = 0; i < ACCEPTS_PER_TURN && accept_one(mover); i++)
        continue;
}

static enum status listen_at(struct mover *mover, struct error *error)
{
    const char *address = mover->options.listen;
    struct sockaddr_storage local;
    socklen_t bytes = sizeof local;
    const int on = 1;
    TRY(mover_address_resolve(address, &local, error));
    mover->listen_fd = socket(local.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (mover->listen_fd < 0 ||
        setsockopt(mover->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(mover->listen_fd, (const struct sockaddr *)&local, mover_address_bytes(&local)) != 0 ||
        listen(mover->listen_fd, BACKLOG) != 0)
        return error_set_errno(error, STATUS_IO, "cannot listen on %.100s", address);
    CHECK(getsockname(mover->listen_fd, (struct sockaddr *)&local, &bytes) == 0);
    mover_address_text(&local, mover->address);
    mover->listen_io =
        loop_io_create(mover->loop, mover->listen_fd, LOOP_READ, on_acceptable, mover);
    return STATUS_OK;
}

/* ---- the table ---- */

static void mover_tls_destroy(struct mover *mover)
{
    if (!mover)
        return;
    mover->quiet = true;
    struct mover_peer *peer;
    while ((peer = LIST_FIRST(&mover->peers))) {
        peer->state = TLS_PEER_OVER;
        peer_end(peer);
    }
    loop_io_destroy(mover->listen_io);
    if (mover->listen_fd >= 0)
        close(mover->listen_fd);
    loop_task_destroy(mover->turn);
    loop_timer_destroy(mover->deadlines);
    loop_timer_destroy(mover->pause);
    tls_context_destroy(mover->context);
    free(mover->sends);
    free(mover);
}

static enum status mover_tls_create(struct loop *loop, const struct mover_options *options,
                                    const struct mover_events *events, void *arg,
                                    struct mover **out, struct error *error)
{
    static const struct tls_identity nobody;
    struct tls_context *context;
    TRY(tls_context_create(options->tls ? options->tls : &nobody, &context, error));
    struct mover *mover = calloc(1, sizeof *mover);
    CHECK(mover != NULL && options->sends_max > 0);
    mover->context = context;
    mover->loop = loop;
    mover->options = *options;
    mover->options.tls = NULL; /* the caller's */
    mover->events = *events;
    mover->arg = arg;
    mover->listen_fd = -1;
    LIST_INIT(&mover->peers);
    STAILQ_INIT(&mover->sends_free);
    mover->sends = calloc(options->sends_max, sizeof *mover->sends);
    CHECK(mover->sends != NULL);
    for (uint32_t i = 0; i < options->sends_max; i++)
        STAILQ_INSERT_TAIL(&mover->sends_free, &mover->sends[i], entry);
    mover->turn = loop_task_create(loop, on_turn, mover);
    mover->deadlines = loop_timer_create(loop, on_deadlines, mover);
    mover->pause = loop_timer_create(loop, on_pause_over, mover);
    if (options->listen) {
        const enum status status = listen_at(mover, error);
        if (status != STATUS_OK) {
            mover_tls_destroy(mover);
            return status;
        }
    }
    *out = mover;
    return STATUS_OK;
}

static const char *mover_tls_address(const struct mover *mover)
{
    return mover->address;
}

static void mover_tls_peer_close(struct mover_peer *peer)
{
    CHECK(!peer->closed);
    peer->closed = true;
    tls_peer_fail(peer, STATUS_CANCELED, "closed here");
}

static void mover_tls_peer_set_context(struct mover_peer *peer, void *context)
{
    peer->context = context;
}

static void *mover_tls_peer_context(const struct mover_peer *peer)
{
    return peer->context;
}

/* Every 16 KiB are a TLS record of their own: pieces cost little, large messages gain nothing. */
static struct mover_shape mover_tls_peer_shape(const struct mover_peer *peer)
{
    return (struct mover_shape){.run_bytes = 256 << 10, .gather_bytes = 256 << 10};
}

const struct mover_ops mover_tls_ops = {
    .name = "tls",
    .create = mover_tls_create,
    .destroy = mover_tls_destroy,
    .address = mover_tls_address,
    .dial = mover_tls_dial,
    .send_message = mover_tls_send_message,
    .send_data = mover_tls_send_data,
    .peer_close = mover_tls_peer_close,
    .peer_set_context = mover_tls_peer_set_context,
    .peer_context = mover_tls_peer_context,
    .peer_shape = mover_tls_peer_shape,
};
