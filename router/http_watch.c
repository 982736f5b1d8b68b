#include <inttypes.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "router/http_tls_internal.h"
#include "router/http_watch_internal.h"
#include "router/openai_error.h"

/* A client that still sends would get a reset instead of the answer when the connection closes over
 * its unread bytes: so much of them is read, for the time that a request may take. */
enum { LINGER_BYTES = 16 << 20 };

struct http_watch {
    struct http_watches *watches;
    struct bufferevent *stream;
    struct http_guard guard;
    uint64_t begun_ns; /* when the request being read began, before the first one: the connection */
    uint64_t linger_ns; /* until when its bytes are read and thrown away; 0: it is not refused */
    uint64_t linger_bytes;
    uint64_t body_bytes; /* what it adds to those of all */
    bool rewriting;      /* the input changes by our own hand */
    LIST_ENTRY(http_watch) link;
};

static bool let_go(const struct http_watch *watch)
{
    bufferevent_data_cb read_callback, write_callback;
    bufferevent_event_cb event_callback;
    void *arg;
    bufferevent_getcb(watch->stream, &read_callback, &write_callback, &event_callback, &arg);
    return !read_callback && !event_callback;
}

static bool is_answering(const struct http_watch *watch)
{
    return watch->watches->is_answering(watch->watches->arg, watch->stream);
}

/* evhttp has let go of a request before the last bytes of its answer are out. */
static bool is_sending(const struct http_watch *watch)
{
    return evbuffer_get_length(bufferevent_get_output(watch->stream)) > 0;
}

/* evhttp meets the end of input and frees the connection by itself. */
static void cut_off(const struct http_watch *watch)
{
    shutdown(bufferevent_getfd(watch->stream), SHUT_RDWR);
}

static const char *status_words(int status)
{
    switch (status) {
    case 400:
        return "Bad Request";
    case 413:
        return "Content Too Large";
    case 417:
        return "Expectation Failed";
    case 431:
        return "Request Header Fields Too Large";
    case 501:
        return "Not Implemented";
    case 503:
        return "Service Unavailable";
    case 505:
        return "HTTP Version Not Supported";
    default:
        CHECK(!"the guard refuses with none but these");
        return "";
    }
}

/* Straight to the socket: evhttp can not answer a request it has not taken. */
static void say_last(const struct http_watch *watch, const struct buffer *text)
{
    const int fd = bufferevent_getfd(watch->stream);
    if (watch->watches->tls) {
        http_tls_say_last(watch->stream, text->data, text->size);
    } else {
        const ssize_t sent = send(fd, text->data, text->size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent != (ssize_t)text->size)
            LOG_DEBUG("a refusal did not reach its client whole");
    }
    shutdown(fd, SHUT_WR);
}

static void answer(const struct http_watch *watch)
{
    const struct http_guard *guard = &watch->guard;
    struct openai_error error;
    struct buffer body = {0}, text = {0};
    if (guard->limit > 0)
        openai_error_set(&error, guard->status, NULL, guard->code, "%s %" PRIu64 " bytes.",
                         guard->reason, guard->limit);
    else
        openai_error_set(&error, guard->status, NULL, guard->code, "%s", guard->reason);
    openai_error_write(&error, &body);
    buffer_printf(&text,
                  "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
                  "Content-Length: %zu\r\nConnection: close\r\n%s\r\n",
                  guard->status, status_words(guard->status), body.size,
                  guard->status == 503 ? "Retry-After: 1\r\n" : "");
    buffer_add(&text, body.data, body.size);
    say_last(watch, &text);
    buffer_free(&body);
    buffer_free(&text);
}

/* The last `added` bytes of the input through the guard. */
static bool feed_input(struct http_watch *watch, struct evbuffer *input, size_t added)
{
    struct evbuffer_ptr at;
    const size_t before = evbuffer_get_length(input) - added;
    CHECK(evbuffer_ptr_set(input, &at, before, EVBUFFER_PTR_SET) == 0);
    while (added > 0) {
        struct evbuffer_iovec piece;
        CHECK(evbuffer_peek(input, -1, &at, &piece, 1) >= 1);
        const size_t bytes = piece.iov_len < added ? piece.iov_len : added;
        if (!http_guard_feed(&watch->guard, piece.iov_base, bytes))
            return false;
        added -= bytes;
        if (added > 0)
            CHECK(evbuffer_ptr_set(input, &at, bytes, EVBUFFER_PTR_ADD) == 0);
    }
    return true;
}

/* Takes the blank lines between requests out of the last `added` bytes of the input, whatever waits
 * before them; guard: as it was before it was fed with those. */
static void remove_blanks(struct http_watch *watch, struct evbuffer *input, size_t added,
                          struct http_guard guard)
{
    struct evbuffer *earlier = evbuffer_new();
    char *bytes = malloc(added);
    CHECK(earlier != NULL && bytes != NULL);
    const size_t before = evbuffer_get_length(input) - added;
    watch->rewriting = true;
    CHECK(evbuffer_remove_buffer(input, earlier, before) == (int)before &&
          evbuffer_remove(input, bytes, added) == (int)added);
    size_t kept = 0;
    for (size_t i = 0; i < added; i++) {
        const uint64_t blank = guard.blank_bytes;
        http_guard_feed(&guard, bytes + i, 1);
        if (guard.blank_bytes == blank)
            bytes[kept++] = bytes[i];
    }
    CHECK(evbuffer_add(input, bytes, kept) == 0 && evbuffer_prepend_buffer(input, earlier) == 0);
    watch->rewriting = false;
    evbuffer_free(earlier);
    free(bytes);
}

/* A refused request keeps what has come of it until its connection ends. False when there is too
 * much of all together. */
static bool count_body(struct http_watch *watch, uint64_t bytes)
{
    struct http_watches *watches = watch->watches;
    watches->body_bytes += bytes - watch->body_bytes;
    watch->body_bytes = bytes;
    return bytes == 0 || watches->body_bytes <= watches->body_bytes_max ||
           watches->body_bytes == bytes;
}

static bool guard_input(struct http_watch *watch, struct evbuffer *input, size_t added)
{
    const struct http_guard before = watch->guard;
    if (!feed_input(watch, input, added))
        return false;
    if (watch->guard.blank_bytes != before.blank_bytes)
        remove_blanks(watch, input, added, before);
    if (count_body(watch, http_guard_body_come(&watch->guard)))
        return true;
    http_guard_overload(&watch->guard, watch->watches->body_bytes_max);
    return false;
}

/* The request that was being read is answered and nothing more is taken. */
static void refuse(struct http_watch *watch)
{
    answer(watch);
    watch->linger_ns = clock_now_ns(clock_monotonic()) + watch->watches->read_ns;
}

/* Runs for every change of a connection's input, before evhttp looks at it. */
static void on_input(struct evbuffer *input, const struct evbuffer_cb_info *info, void *arg)
{
    struct http_watch *watch = arg;
    if (info->n_added == 0 || watch->rewriting)
        return;
    if (let_go(watch)) {
        bufferevent_disable(watch->stream, EV_READ);
        evbuffer_drain(input, evbuffer_get_length(input));
        return;
    }
    if (watch->linger_ns != 0) {
        watch->linger_bytes += info->n_added;
        evbuffer_drain(input, evbuffer_get_length(input));
        if (watch->linger_bytes > LINGER_BYTES)
            cut_off(watch);
        return;
    }
    const uint64_t complete = watch->guard.complete;
    const uint64_t requests = watch->guard.requests;
    const bool was_good = watch->guard.state != GUARD_BAD;
    if (guard_input(watch, input, info->n_added)) {
        if (watch->guard.requests != requests)
            watch->begun_ns = clock_now_ns(clock_monotonic());
        return;
    }
    evbuffer_drain(input, evbuffer_get_length(input));
    /* An answer that is due or on its way must not find this one before or inside it: then there is
     * just an end. */
    if (was_good && watch->guard.complete == complete && !is_answering(watch) && !is_sending(watch))
        refuse(watch);
    else
        cut_off(watch);
}

struct bufferevent *http_watch_create(struct event_base *base, void *arg)
{
    struct http_watches *watches = arg;
    struct http_watch *watch = calloc(1, sizeof *watch);
    CHECK(watch != NULL);
    watch->watches = watches;
    watch->guard.limits = &watches->limits;
    watch->begun_ns = clock_now_ns(clock_monotonic());
    watch->stream = watches->tls ? http_tls_stream(watches->tls, base)
                                 : bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    CHECK(watch->stream != NULL);
    bufferevent_incref(watch->stream);
    CHECK(evbuffer_add_cb(bufferevent_get_input(watch->stream), on_input, watch) != NULL);
    LIST_INSERT_HEAD(&watches->list, watch, link);
    return watch->stream;
}

static void watch_free(struct http_watch *watch)
{
    LIST_REMOVE(watch, link);
    count_body(watch, 0);
    evbuffer_remove_cb(bufferevent_get_input(watch->stream), on_input, watch);
    bufferevent_decref(watch->stream);
    free(watch);
}

static bool is_too_slow(const struct http_watch *watch, uint64_t now_ns)
{
    if (watch->linger_ns != 0)
        return now_ns >= watch->linger_ns;
    /* libevent sets no time for a handshake. */
    const bool greeting = watch->watches->tls && watch->guard.requests == 0;
    return (greeting || http_guard_in_request(&watch->guard)) &&
           now_ns - watch->begun_ns > watch->watches->read_ns && !is_answering(watch);
}

void http_watches_sweep(struct http_watches *watches)
{
    const uint64_t now_ns = clock_now_ns(clock_monotonic());
    struct http_watch *next;
    for (struct http_watch *watch = LIST_FIRST(&watches->list); watch; watch = next) {
        next = LIST_NEXT(watch, link);
        if (let_go(watch))
            watch_free(watch);
        else if (is_too_slow(watch, now_ns))
            cut_off(watch);
    }
}

void http_watches_free(struct http_watches *watches)
{
    struct http_watch *watch;
    while ((watch = LIST_FIRST(&watches->list)) != NULL)
        watch_free(watch);
}
