/* Connections as seen from below evhttp: every byte passes the guard first, and what must not go on
 * is answered here, with an error object, before evhttp takes notice.
 *
 * evhttp says nothing of a connection's end: a watch holds a reference to the stream until the
 * sweep finds that evhttp has let go of it. Loop thread only. */
#ifndef BATON_ROUTER_HTTP_WATCH_INTERNAL_H
#define BATON_ROUTER_HTTP_WATCH_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "router/http_guard.h"

struct bufferevent;
struct event_base;
struct http_tls;
struct http_watch;

struct http_watches {
    struct http_guard_limits limits;
    struct http_tls *tls; /* NULL: connections are plain */
    uint64_t read_ns;     /* from a request's first byte to its last */
    /* Of bodies that are not whole yet, all together; a request that is alone has more. */
    uint64_t body_bytes, body_bytes_max;
    /* Whether an answer is due on this stream. */
    bool (*is_answering)(void *arg, const struct bufferevent *stream);
    void *arg;
    LIST_HEAD(, http_watch) list;
};

/* The stream of a connection that evhttp is about to accept; arg is the struct http_watches. */
struct bufferevent *http_watch_create(struct event_base *base, void *arg);
/* Ends requests that take too long to come, and forgets connections that are gone. */
void http_watches_sweep(struct http_watches *watches);
void http_watches_free(struct http_watches *watches);

#endif
