#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/stream_internal.h"

enum { BACKLOG = 256, ACCEPTS_PER_TURN = 32, PAUSE_MS = 1000 };

struct stream_listener {
    struct loop *loop;
    int fd;
    uint16_t port;
    struct loop_io *io;
    struct loop_timer *pause; /* runs while there are no descriptors to accept with */
    struct stream_limits limits;
    void (*on_accept)(void *arg, struct stream *stream);
    void *arg;
    bool in_callback, closed; /* closed from inside on_accept: freed when it returns */
};

static void on_pause_over(void *arg)
{
    struct stream_listener *listener = arg;
    loop_io_want(listener->io, LOOP_READ);
}

/* Waiting connections stay in the kernel's queue; trying again at once would only spin. */
static void pause_accepting(struct stream_listener *listener)
{
    LOG_WARN("port %u: cannot accept a connection: %s; trying again in %d ms", listener->port,
             strerror(errno), PAUSE_MS);
    loop_io_want(listener->io, 0);
    loop_timer_start(listener->pause, PAUSE_MS, 0);
}

/* True while there may be more to accept. */
static bool accept_one(struct stream_listener *listener)
{
    struct sockaddr_storage peer;
    socklen_t peer_bytes = sizeof peer;
    const int fd =
        accept4(listener->fd, (struct sockaddr *)&peer, &peer_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        switch (errno) {
        case EAGAIN:
            return false;
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM:
            pause_accepting(listener);
            return false;
        default: /* the connection failed before it was taken; the next one may be well */
            return true;
        }
    }
    struct stream *stream =
        stream_adopt(listener->loop, fd, (struct sockaddr *)&peer, &listener->limits);
    listener->in_callback = true;
    listener->on_accept(listener->arg, stream);
    listener->in_callback = false;
    stream_adopted(stream);
    return true;
}

static void listener_free(struct stream_listener *listener)
{
    loop_io_destroy(listener->io);
    loop_timer_destroy(listener->pause);
    close(listener->fd);
    free(listener);
}

static void on_acceptable(void *arg, unsigned events)
{
    (void)events;
    struct stream_listener *listener = arg;
    int left = ACCEPTS_PER_TURN;
    while (left-- > 0 && accept_one(listener) && !listener->closed)
        continue;
    if (listener->closed)
        listener_free(listener);
}

/* A bound, listening socket, or -1 with errno. */
static int open_socket(const struct addrinfo *address)
{
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    const int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    const int cause = errno;
    close(fd);
    errno = cause;
    return -1;
}

static uint16_t bound_port(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } own = {0};
    socklen_t own_bytes = sizeof own;
    CHECK(getsockname(fd, &own.any, &own_bytes) == 0);
    return ntohs(own.any.sa_family == AF_INET6 ? own.v6.sin6_port : own.v4.sin_port);
}

enum status stream_listen(struct loop *loop, const char *address,
                          void (*on_accept)(void *arg, struct stream *stream), void *arg,
                          const struct stream_limits *limits, struct stream_listener **listener_out,
                          struct error *error)
{
    struct addrinfo *list;
    TRY(stream_resolve(address, true, &list, error));
    int fd = -1;
    for (const struct addrinfo *each = list; each && fd < 0; each = each->ai_next)
        fd = open_socket(each);
    const int cause = errno;
    freeaddrinfo(list);
    errno = cause;
    if (fd < 0)
        return error_set_errno(error, STATUS_IO, "cannot listen on %s", address);

    struct stream_listener *listener = malloc(sizeof *listener);
    CHECK(listener != NULL);
    *listener = (struct stream_listener){.loop = loop,
                                         .fd = fd,
                                         .port = bound_port(fd),
                                         .limits = *limits,
                                         .on_accept = on_accept,
                                         .arg = arg};
    listener->io = loop_io_create(loop, fd, LOOP_READ, on_acceptable, listener);
    listener->pause = loop_timer_create(loop, on_pause_over, listener);
    *listener_out = listener;
    return STATUS_OK;
}

uint16_t stream_listener_port(const struct stream_listener *listener)
{
    return listener->port;
}

void stream_listener_close(struct stream_listener *listener)
{
    if (!listener || listener->closed)
        return;
    if (listener->in_callback)
        listener->closed = true;
    else
        listener_free(listener);
}
