/* A stream is DIALLING or OPEN until its end is known, then ENDING until on_close has been told
 * from the loop, so that no callback ever comes from inside a call of the user. `busy` counts
 * callbacks on the stack; a stream closed under them is freed when the last one returns. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/stream_internal.h"

enum { READ_BYTES = 64 * 1024, READS_PER_TURN = 4, DRAIN_READS_MAX = 64 };

enum state { DIALLING, OPEN, ENDING, CLOSED };

struct stream {
    struct loop *loop;
    enum state state;
    int fd; /* -1 between two addresses of a dial */
    struct loop_io *io;
    struct loop_task *later; /* begins a dial, tells the end */
    struct loop_timer *deadline;
    struct stream_limits limits;
    struct stream_events events;
    void *arg;
    struct buffer input;
    struct buffer output;
    size_t output_sent; /* the first bytes of output that the socket has taken */
    struct addrinfo *addresses, *next_address;
    uint32_t busy;
    bool attached;
    struct error end;
    char peer[STREAM_ADDRESS_BYTES];
};

static void on_later(void *arg);
static void on_ready(void *arg, unsigned events);

static struct stream *stream_new(struct loop *loop, enum state state,
                                 const struct stream_limits *limits)
{
    struct stream *stream = calloc(1, sizeof *stream);
    CHECK(stream != NULL && limits->input_bytes > 0 && limits->output_bytes > 0);
    stream->loop = loop;
    stream->state = state;
    stream->fd = -1;
    stream->limits = *limits;
    stream->later = loop_task_create(loop, on_later, stream);
    return stream;
}

static void drop_socket(struct stream *stream)
{
    loop_io_destroy(stream->io);
    stream->io = NULL;
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
}

static void enter(struct stream *stream)
{
    stream->busy++;
}

/* False when the stream is gone. */
static bool leave(struct stream *stream)
{
    stream->busy--;
    if (stream->state != CLOSED)
        return true;
    if (stream->busy == 0) {
        buffer_free(&stream->input); /* on_data may have been reading it to its end */
        buffer_free(&stream->output);
        free(stream);
    }
    return false;
}

static void release(struct stream *stream)
{
    drop_socket(stream);
    loop_task_destroy(stream->later);
    loop_timer_destroy(stream->deadline);
    if (stream->addresses)
        freeaddrinfo(stream->addresses);
    stream->state = CLOSED;
    enter(stream);
    leave(stream);
}

/* Nothing goes out any more; `stream->end` is what on_close will be told. */
static void end_later(struct stream *stream)
{
    stream->state = ENDING;
    if (stream->io)
        loop_io_want(stream->io, 0);
    loop_task_schedule(stream->later);
}

/* A reset and a close are the peer's doing; the rest is the network's or this host's. */
static enum status status_of_errno(int cause)
{
    return cause == ECONNRESET || cause == EPIPE ? STATUS_CLOSED : STATUS_IO;
}

static void want_events(struct stream *stream)
{
    const unsigned write = stream_unsent(stream) > 0 ? (unsigned)LOOP_WRITE : 0u;
    loop_io_want(stream->io, LOOP_READ | write);
}

/* ---- input ---- */

enum reading { READING_MORE, READING_IDLE, READING_END, READING_GONE };

/* Offers what is unread to the user. */
static enum reading deliver(struct stream *stream)
{
    enter(stream);
    const size_t taken =
        stream->events.on_data(stream->arg, stream->input.data, stream->input.size);
    if (!leave(stream))
        return READING_GONE;
    buffer_consume(&stream->input, taken);
    if (stream->input.size >= stream->limits.input_bytes) {
        error_set(&stream->end, STATUS_LIMIT, "%s sent a message over the limit of %zu bytes",
                  stream->peer, stream->limits.input_bytes);
        return READING_END;
    }
    return READING_MORE;
}

static enum reading read_some(struct stream *stream)
{
    const size_t room = stream->limits.input_bytes - stream->input.size;
    const size_t wanted = room < READ_BYTES ? room : READ_BYTES;
    buffer_reserve(&stream->input, wanted);
    const ssize_t done = recv(stream->fd, stream->input.data + stream->input.size, wanted, 0);
    if (done > 0) {
        stream->input.size += (size_t)done;
        stream->input.data[stream->input.size] = '\0';
        const enum reading reading = deliver(stream);
        /* A short read has emptied the socket; asking again would only cost a system call. */
        return reading == READING_MORE && (size_t)done < wanted ? READING_IDLE : reading;
    }
    if (done < 0 && errno == EINTR)
        return READING_MORE;
    if (done < 0 && errno == EAGAIN)
        return READING_IDLE;
    if (done == 0)
        error_set(&stream->end, STATUS_CLOSED, "%s closed the connection", stream->peer);
    else
        error_set_errno(&stream->end, status_of_errno(errno), "reading from %s", stream->peer);
    return READING_END;
}

/* ---- output ---- */

size_t stream_unsent(const struct stream *stream)
{
    return stream->output.size - stream->output_sent;
}

/* Bytes the socket took, or -1 with errno. */
static ssize_t send_now(struct stream *stream, const void *data, size_t bytes)
{
    size_t sent = 0;
    while (sent < bytes) {
        const ssize_t done =
            send(stream->fd, (const char *)data + sent, bytes - sent, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno == EAGAIN)
            break;
        if (done < 0)
            return -1;
        sent += (size_t)done;
    }
    return (ssize_t)sent;
}

static void output_failed(struct stream *stream)
{
    error_set_errno(&stream->end, status_of_errno(errno), "sending to %s", stream->peer);
    end_later(stream);
}

static void flush(struct stream *stream)
{
    if (stream_unsent(stream) == 0)
        return;
    const ssize_t done =
        send_now(stream, stream->output.data + stream->output_sent, stream_unsent(stream));
    if (done < 0) {
        output_failed(stream);
        return;
    }
    stream->output_sent += (size_t)done;
    if (stream->output_sent == stream->output.size) {
        buffer_clear(&stream->output);
        stream->output_sent = 0;
    }
}

enum status stream_send(struct stream *stream, const void *data, size_t bytes)
{
    if (stream->state != OPEN && stream->state != DIALLING)
        return STATUS_CLOSED;
    if (bytes > stream->limits.output_bytes - stream_unsent(stream))
        return STATUS_LIMIT;
    size_t sent = 0;
    if (stream->state == OPEN && stream_unsent(stream) == 0) {
        const ssize_t done = send_now(stream, data, bytes);
        if (done < 0) {
            output_failed(stream);
            return STATUS_CLOSED;
        }
        sent = (size_t)done;
    }
    if (sent == bytes)
        return STATUS_OK;
    if (stream->output_sent > stream->output.size / 2) {
        buffer_consume(&stream->output, stream->output_sent);
        stream->output_sent = 0;
    }
    buffer_add(&stream->output, (const char *)data + sent, bytes - sent);
    if (stream->state == OPEN)
        want_events(stream);
    return STATUS_OK;
}

/* ---- life ---- */

/* The last act: what the peer had still said, then on_close. */
static void tell_end(struct stream *stream)
{
    stream->state = ENDING;
    if (stream->fd >= 0 && stream->attached && stream->end.status != STATUS_LIMIT) {
        const struct error end = stream->end;
        for (int i = 0; i < DRAIN_READS_MAX; i++) {
            const enum reading reading = read_some(stream);
            if (reading == READING_GONE)
                return;
            if (reading != READING_MORE)
                break;
        }
        stream->end = end;
    }
    enter(stream);
    if (stream->attached)
        stream->events.on_close(stream->arg, stream->end.status, stream->end.text);
    if (leave(stream))
        release(stream);
}

static void opened(struct stream *stream)
{
    stream->state = OPEN;
    loop_timer_destroy(stream->deadline);
    stream->deadline = NULL;
    freeaddrinfo(stream->addresses);
    stream->addresses = stream->next_address = NULL;
    flush(stream);
    if (stream->state != OPEN)
        return;
    want_events(stream);
    if (stream->events.on_open) {
        enter(stream);
        stream->events.on_open(stream->arg);
        leave(stream);
    }
}

/* Begins to connect to the next address that lets itself be begun with. */
static void dial_next(struct stream *stream)
{
    while (stream->next_address) {
        const struct addrinfo *address = stream->next_address;
        stream->next_address = address->ai_next;
        stream->fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (stream->fd >= 0) {
            const int on = 1;
            setsockopt(stream->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            stream_address_text(address->ai_addr, stream->peer);
            const int result = connect(stream->fd, address->ai_addr, address->ai_addrlen);
            if (result == 0 || errno == EINPROGRESS || errno == EINTR) {
                stream->io = loop_io_create(stream->loop, stream->fd, LOOP_WRITE, on_ready, stream);
                return;
            }
        }
        error_set_errno(&stream->end, STATUS_IO, "cannot connect to %s", stream->peer);
        drop_socket(stream);
    }
    end_later(stream);
}

static void dialled(struct stream *stream)
{
    int cause = 0;
    socklen_t cause_bytes = sizeof cause;
    CHECK(getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &cause, &cause_bytes) == 0);
    if (cause == 0) {
        opened(stream);
        return;
    }
    errno = cause;
    error_set_errno(&stream->end, STATUS_IO, "cannot connect to %s", stream->peer);
    drop_socket(stream);
    dial_next(stream);
}

static void on_dial_deadline(void *arg)
{
    struct stream *stream = arg;
    error_set(&stream->end, STATUS_TIMEOUT, "no connection to %s within %u ms", stream->peer,
              stream->limits.connect_ms);
    drop_socket(stream);
    end_later(stream);
}

static void on_later(void *arg)
{
    struct stream *stream = arg;
    if (stream->state == DIALLING)
        dial_next(stream);
    else if (stream->state == ENDING)
        tell_end(stream);
}

static void on_ready(void *arg, unsigned events)
{
    struct stream *stream = arg;
    if (stream->state == DIALLING) {
        dialled(stream);
        return;
    }
    if (events & LOOP_READ) {
        for (int i = 0; i < READS_PER_TURN; i++) {
            const enum reading reading = read_some(stream);
            if (reading == READING_GONE)
                return;
            if (reading == READING_END) {
                tell_end(stream);
                return;
            }
            if (reading == READING_IDLE || stream->state != OPEN)
                break;
        }
    }
    if (stream->state == OPEN && (events & LOOP_WRITE))
        flush(stream);
    if (stream->state == OPEN)
        want_events(stream);
}

enum status stream_dial(struct loop *loop, const char *address, const struct stream_events *events,
                        void *arg, const struct stream_limits *limits, struct stream **stream_out,
                        struct error *error)
{
    CHECK(limits->connect_ms > 0);
    struct addrinfo *addresses;
    TRY(stream_resolve(address, false, &addresses, error));
    struct stream *stream = stream_new(loop, DIALLING, limits);
    stream->addresses = stream->next_address = addresses;
    stream_address_text(addresses->ai_addr, stream->peer);
    stream_attach(stream, events, arg);
    stream->deadline = loop_timer_create(loop, on_dial_deadline, stream);
    loop_timer_start(stream->deadline, limits->connect_ms, 0);
    loop_task_schedule(stream->later);
    *stream_out = stream;
    return STATUS_OK;
}

struct stream *stream_adopt(struct loop *loop, int fd, const struct sockaddr *peer,
                            const struct stream_limits *limits)
{
    struct stream *stream = stream_new(loop, OPEN, limits);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    stream->fd = fd;
    stream->io = loop_io_create(loop, fd, LOOP_READ, on_ready, stream);
    stream_address_text(peer, stream->peer);
    enter(stream);
    return stream;
}

void stream_adopted(struct stream *stream)
{
    if (leave(stream) && !stream->attached)
        release(stream);
}

void stream_attach(struct stream *stream, const struct stream_events *events, void *arg)
{
    CHECK(events->on_data && events->on_close);
    stream->events = *events;
    stream->arg = arg;
    stream->attached = true;
}

const char *stream_peer(const struct stream *stream)
{
    return stream->peer;
}

/* Closing a socket that holds unread bytes resets the connection, and the reset may overtake what
 * was sent last; so they are read, as far as they are there. */
static void say_goodbye(struct stream *stream)
{
    flush(stream);
    shutdown(stream->fd, SHUT_WR);
    char rest[4096];
    for (int i = 0; i < DRAIN_READS_MAX; i++) {
        const ssize_t done = recv(stream->fd, rest, sizeof rest, 0);
        if (done == 0 || (done < 0 && errno != EINTR))
            break;
    }
}

void stream_close(struct stream *stream)
{
    if (!stream || stream->state == CLOSED)
        return;
    if (stream->state == OPEN)
        say_goodbye(stream);
    release(stream);
}
