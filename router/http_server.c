/* libevent's evhttp, with what it does not do by itself: it neither sees a client leave before the
 * answer begins, nor bounds what waits to be sent, nor sets TCP_NODELAY. What it does not look at
 * when requests come in is http_watch.c's. */
#include "router/http_server.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "router/http_address.h"
#include "router/http_cors.h"
#include "router/http_tls_internal.h"
#include "router/http_watch_internal.h"

enum { SWEEP_MS = 100 };

struct http_exchange {
    struct http_server *server;
    struct evhttp_request *request;
    struct evhttp_connection *connection;
    struct event *closed; /* the client's FIN or RST, seen while evhttp does not read */
    bool bytes_behind;    /* further bytes wait unread: a RST is left to the sweep to see */
    bool last;            /* the client wants no other answer on this connection */
    void *context;
    char request_id[HTTP_REQUEST_ID_BYTES];
    bool streaming;
    LIST_ENTRY(http_exchange) link;
};

struct http_server {
    struct event_base *base;
    struct evhttp *http;
    struct evhttp_bound_socket *socket;
    struct event *accept_again; /* runs while there are no descriptors to accept with */
    const struct http_events *events;
    void *arg;
    uint16_t port;
    bool draining;
    uint32_t open_count;
    struct timeval idle;
    struct event *sweep;
    LIST_HEAD(, http_exchange) exchanges;
    struct http_watches watches;
    struct config_texts origins;
    struct http_server *next;
};

/* evhttp hands itself to the error callback of its listener; this finds the server it belongs to.
 * One in the product; changed only when one is made or destroyed. */
static struct http_server *servers;

/* ---- what a request may look like ---- */

/* NULL when the header is absent. */
static const char *header(struct evhttp_request *request, const char *name)
{
    return evhttp_find_header(evhttp_request_get_input_headers(request), name);
}

/* Framing was looked at byte by byte before (http_guard.h). */
static enum status check_coding(struct evhttp_request *request, struct openai_error *error)
{
    const char *coding = header(request, "Content-Encoding");
    if (coding && strcasecmp(coding, "identity") != 0)
        return openai_error_set(error, 415, NULL, "unsupported_encoding",
                                "Content-Encoding %.32s is not supported; send the body plain.",
                                coding);
    return STATUS_OK;
}

/* Only what is harmless in a header and a log line comes back to the client. */
static bool request_id_sound(const char *id)
{
    const size_t bytes = strlen(id);
    if (bytes == 0 || bytes >= HTTP_REQUEST_ID_BYTES)
        return false;
    for (const char *c = id; *c; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("-_.:/+=@", *c))
            return false;
    }
    return true;
}

/* "close" may stand among other words; evhttp knows it alone. */
static bool wants_close(struct evhttp_request *request)
{
    static const char word[] = "close";
    const struct evkeyval *field;
    TAILQ_FOREACH(field, evhttp_request_get_input_headers(request), next)
    {
        if (strcasecmp(field->key, "Connection") != 0)
            continue;
        for (const char *at = field->value; *at; at += strcspn(at, ",")) {
            at += strspn(at, ", \t");
            if (strncasecmp(at, word, sizeof word - 1) == 0 &&
                (at[sizeof word - 1] == '\0' || strchr(", \t", at[sizeof word - 1])))
                return true;
        }
    }
    return false;
}

/* ---- life of an exchange ---- */

static void exchange_free(struct http_exchange *exchange)
{
    if (exchange->closed)
        event_free(exchange->closed);
    LIST_REMOVE(exchange, link);
    exchange->server->open_count--;
    free(exchange);
}

/* evhttp reads on while it writes, so the time without a byte from the client would end a stream
 * that merely lasts. While an answer is due only a stalled write counts. */
static void await_client(const struct http_exchange *exchange, bool await)
{
    const struct timeval *idle = &exchange->server->idle;
    bufferevent_set_timeouts(evhttp_connection_get_bufferevent(exchange->connection),
                             await ? idle : NULL, idle);
}

/* Takes the exchange away from its connection: no callback comes for it any more. */
static struct evhttp_request *exchange_detach(struct http_exchange *exchange)
{
    struct evhttp_request *request = exchange->request;
    await_client(exchange, true);
    evhttp_connection_set_closecb(exchange->connection, NULL, NULL);
    exchange_free(exchange);
    return request;
}

/* After the exchange is freed: who hears of it may ask how many are open. */
static void tell_gone(struct http_server *server, void *context)
{
    if (context)
        server->events->on_gone(server->arg, context);
}

/* evhttp is about to free the connection. A request it has let go of is ours to free. */
static void on_connection_closed(struct evhttp_connection *connection, void *arg)
{
    struct http_exchange *exchange = arg;
    struct evhttp_request *request = exchange->request;
    struct http_server *server = exchange->server;
    void *context = exchange->context;
    exchange_free(exchange);
    tell_gone(server, context);
    if (!evhttp_request_get_connection(request))
        evhttp_request_free(request);
}

/* evhttp sleeps on this connection, so freeing it here is safe. */
static void drop_client(struct http_exchange *exchange)
{
    struct evhttp_connection *connection = exchange->connection;
    struct http_server *server = exchange->server;
    void *context = exchange->context;
    exchange_detach(exchange);
    tell_gone(server, context);
    evhttp_connection_free(connection);
}

/* Reset, or shut in both directions. */
static bool is_broken(int fd)
{
    struct pollfd poll_fd = {.fd = fd};
    return poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & (POLLERR | POLLHUP)) != 0;
}

/* The client has closed its side: a FIN comes as EV_CLOSED, a RST as EV_READ, and nobody asking for
 * that the loop would spin. EV_READ may also mean bytes of a further request, which stay where they
 * are; from then on only a FIN wakes this event. */
static void on_client_closed(evutil_socket_t fd, short what, void *arg)
{
    struct http_exchange *exchange = arg;
    if ((what & EV_CLOSED) || is_broken(fd)) {
        drop_client(exchange);
        return;
    }
    exchange->bytes_behind = true;
    struct event_base *base = exchange->server->base;
    CHECK(event_assign(exchange->closed, base, fd, EV_CLOSED, on_client_closed, exchange) == 0 &&
          event_add(exchange->closed, NULL) == 0);
}

static void drop_broken(struct http_server *server)
{
    struct http_exchange *next;
    for (struct http_exchange *exchange = LIST_FIRST(&server->exchanges); exchange;
         exchange = next) {
        next = LIST_NEXT(exchange, link);
        if (exchange->bytes_behind &&
            is_broken(bufferevent_getfd(evhttp_connection_get_bufferevent(exchange->connection))))
            drop_client(exchange);
    }
}

static bool is_answering(void *arg, const struct bufferevent *stream)
{
    const struct http_server *server = arg;
    const struct http_exchange *exchange;
    LIST_FOREACH(exchange, &server->exchanges, link)
    {
        if (evhttp_connection_get_bufferevent(exchange->connection) == stream)
            return true;
    }
    return false;
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *server = arg;
    drop_broken(server);
    http_watches_sweep(&server->watches);
}

static void set_no_delay(int fd)
{
    /* Each token is a small write that must not wait for the acknowledgement of the last one. */
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static struct http_exchange *exchange_create(struct http_server *server,
                                             struct evhttp_request *request)
{
    struct http_exchange *exchange = calloc(1, sizeof *exchange);
    CHECK(exchange != NULL);
    exchange->server = server;
    exchange->request = request;
    exchange->connection = evhttp_request_get_connection(request);
    const int fd = bufferevent_getfd(evhttp_connection_get_bufferevent(exchange->connection));
    set_no_delay(fd);
    exchange->closed = event_new(server->base, fd, EV_READ | EV_CLOSED, on_client_closed, exchange);
    CHECK(exchange->closed != NULL && event_add(exchange->closed, NULL) == 0);
    evhttp_connection_set_closecb(exchange->connection, on_connection_closed, exchange);
    await_client(exchange, false);
    exchange->last = wants_close(request);
    const char *id = header(request, "X-Request-Id");
    if (id && request_id_sound(id))
        snprintf(exchange->request_id, sizeof exchange->request_id, "%s", id);
    else
        snprintf(exchange->request_id, sizeof exchange->request_id, "req-%016" PRIx64,
                 random_os_u64());
    LIST_INSERT_HEAD(&server->exchanges, exchange, link);
    server->open_count++;
    return exchange;
}

static void on_http_request(struct evhttp_request *evrequest, void *arg)
{
    struct http_server *server = arg;
    struct http_exchange *exchange = exchange_create(server, evrequest);
    struct openai_error error;
    if (check_coding(evrequest, &error) != STATUS_OK) {
        struct buffer body = {0};
        openai_error_write(&error, &body);
        const struct http_reply reply = {.status = error.http_status,
                                         .content_type = "application/json",
                                         .body = body.data,
                                         .body_bytes = body.size,
                                         .close = true,
                                         .error = &error};
        http_reply(exchange, &reply);
        buffer_free(&body);
        return;
    }
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(evrequest);
    const char *raw_path = uri ? evhttp_uri_get_path(uri) : NULL;
    size_t path_bytes;
    char *path = evhttp_uridecode(raw_path ? raw_path : "/", 0, &path_bytes);
    CHECK(path != NULL);
    if (strlen(path) != path_bytes)
        path[0] = '\0'; /* there is nothing at a path with a NUL, whatever is before it */
    struct evbuffer *body = evbuffer_new(); /* evhttp would keep it until the answer's end */
    struct evbuffer *input = evhttp_request_get_input_buffer(evrequest);
    CHECK(body != NULL && evbuffer_add_buffer(body, input) == 0);
    const enum evhttp_cmd_type command = evhttp_request_get_command(evrequest);
    const struct http_request request = {
        .method = command == EVHTTP_REQ_GET || command == EVHTTP_REQ_HEAD ? HTTP_GET
                  : command == EVHTTP_REQ_POST                            ? HTTP_POST
                  : command == EVHTTP_REQ_OPTIONS                         ? HTTP_OPTIONS
                                                                          : HTTP_OTHER,
        .path = path,
        .body = (const char *)evbuffer_pullup(body, -1),
        .body_bytes = evbuffer_get_length(body),
        .content_type = header(evrequest, "Content-Type"),
        .request_id = exchange->request_id,
    };
    server->events->on_request(server->arg, exchange, &request);
    evbuffer_free(body);
    free(path);
}

const char *http_exchange_header(const struct http_exchange *exchange, const char *name)
{
    return header(exchange->request, name);
}

void http_exchange_set_context(struct http_exchange *exchange, void *context)
{
    exchange->context = context;
}

/* ---- answers ---- */

/* A browser asks first, with OPTIONS, whether it may send what it wants to send. */
static void add_cors_headers(const struct http_exchange *exchange, struct evkeyvalq *headers)
{
    const char *allowed =
        http_cors_allowed(&exchange->server->origins, header(exchange->request, "Origin"));
    if (!allowed)
        return;
    evhttp_add_header(headers, "Access-Control-Allow-Origin", allowed);
    evhttp_add_header(headers, "Vary", "Origin");
    if (evhttp_request_get_command(exchange->request) != EVHTTP_REQ_OPTIONS) {
        evhttp_add_header(headers, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
        return;
    }
    const char *names = header(exchange->request, "Access-Control-Request-Headers");
    evhttp_add_header(headers, "Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
    if (names && http_cors_names_sound(names))
        evhttp_add_header(headers, "Access-Control-Allow-Headers", names);
    evhttp_add_header(headers, "Access-Control-Max-Age", "600");
}

static void add_headers(struct http_exchange *exchange, const char *content_type, bool close)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(exchange->request);
    evhttp_add_header(headers, "Content-Type", content_type);
    evhttp_add_header(headers, "X-Request-Id", exchange->request_id);
    if (close || exchange->last || exchange->server->draining)
        evhttp_add_header(headers, "Connection", "close");
    add_cors_headers(exchange, headers);
}

void http_reply(struct http_exchange *exchange, const struct http_reply *reply)
{
    CHECK(!exchange->streaming);
    if (reply->error)
        exchange->server->events->on_error(exchange->server->arg, reply->error);
    add_headers(exchange, reply->content_type, reply->close);
    struct evkeyvalq *headers = evhttp_request_get_output_headers(exchange->request);
    if (reply->retry_after_s > 0) {
        char text[16];
        snprintf(text, sizeof text, "%u", reply->retry_after_s);
        evhttp_add_header(headers, "Retry-After", text);
    }
    if (reply->allow)
        evhttp_add_header(headers, "Allow", reply->allow);
    if (reply->status == 401)
        evhttp_add_header(headers, "WWW-Authenticate", "Bearer");
    if (reply->policy) {
        evhttp_add_header(headers, "Content-Security-Policy", reply->policy);
        evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
        evhttp_add_header(headers, "Referrer-Policy", "no-referrer");
        evhttp_add_header(headers, "Cache-Control", "no-cache");
    }
    const bool head = evhttp_request_get_command(exchange->request) == EVHTTP_REQ_HEAD;
    if (head) {
        /* evhttp would send the body all the same, before the next answer on this connection. */
        char text[24];
        snprintf(text, sizeof text, "%zu", reply->body_bytes);
        evhttp_add_header(headers, "Content-Length", text);
    }
    struct evbuffer *body = evbuffer_new();
    CHECK(body != NULL && evbuffer_add(body, reply->body, head ? 0 : reply->body_bytes) == 0);
    struct evhttp_request *request = exchange_detach(exchange);
    const char *words = reply->status == 429 ? "Too Many Requests" : NULL; /* evhttp has others */
    evhttp_send_reply(request, reply->status, words, body);
    evbuffer_free(body);
}

void http_reply_json(struct http_exchange *exchange, int status, const char *body, size_t bytes)
{
    const struct http_reply reply = {
        .status = status, .content_type = "application/json", .body = body, .body_bytes = bytes};
    http_reply(exchange, &reply);
}

void http_reply_error(struct http_exchange *exchange, const struct openai_error *error)
{
    struct buffer body = {0};
    openai_error_write(error, &body);
    const bool later = error->http_status == 503 || error->http_status == 429;
    const uint32_t after_s = error->retry_after_s > 0 ? error->retry_after_s : 1;
    const struct http_reply reply = {.status = error->http_status,
                                     .content_type = "application/json",
                                     .body = body.data,
                                     .body_bytes = body.size,
                                     .retry_after_s = later ? after_s : 0,
                                     .error = error};
    http_reply(exchange, &reply);
    buffer_free(&body);
}

void http_stream_begin(struct http_exchange *exchange, const char *content_type)
{
    CHECK(!exchange->streaming);
    exchange->streaming = true;
    add_headers(exchange, content_type, false);
    struct evkeyvalq *headers = evhttp_request_get_output_headers(exchange->request);
    evhttp_add_header(headers, "Cache-Control", "no-cache");
    evhttp_send_reply_start(exchange->request, 200, "OK");
}

static size_t unsent(const struct http_exchange *exchange)
{
    struct bufferevent *stream = evhttp_connection_get_bufferevent(exchange->connection);
    return evbuffer_get_length(bufferevent_get_output(stream));
}

size_t http_stream_send(struct http_exchange *exchange, const void *data, size_t bytes)
{
    CHECK(exchange->streaming);
    const size_t waiting = unsent(exchange);
    struct evbuffer *chunk = evbuffer_new();
    CHECK(chunk != NULL && evbuffer_add(chunk, data, bytes) == 0);
    evhttp_send_reply_chunk(exchange->request, chunk);
    evbuffer_free(chunk);
    return waiting;
}

void http_stream_end(struct http_exchange *exchange, bool close)
{
    CHECK(exchange->streaming);
    /* The head is out already; evhttp looks here again when it decides about keeping alive. */
    if (close || exchange->last || exchange->server->draining) {
        struct evkeyvalq *headers = evhttp_request_get_output_headers(exchange->request);
        evhttp_remove_header(headers, "Connection");
        evhttp_add_header(headers, "Connection", "close");
    }
    evhttp_send_reply_end(exchange_detach(exchange));
}

void http_exchange_abort(struct http_exchange *exchange)
{
    struct evhttp_connection *connection = exchange->connection;
    exchange_detach(exchange);
    evhttp_connection_free(connection);
}

/* ---- the server ---- */

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *server = arg;
    if (server->socket)
        evconnlistener_enable(evhttp_bound_socket_get_listener(server->socket));
}

/* Out of descriptors: waiting connections stay in the kernel's queue for a second, instead of
 * waking the loop again at once. */
static void on_accept_error(struct evconnlistener *listener, void *evhttp)
{
    struct http_server *server = servers;
    while (server && server->http != evhttp)
        server = server->next;
    const int code = EVUTIL_SOCKET_ERROR();
    if (!server || (code != EMFILE && code != ENFILE && code != ENOBUFS && code != ENOMEM))
        return;
    LOG_WARN("HTTP: cannot accept a connection: %s; trying again in 1 s", strerror(code));
    evconnlistener_disable(listener);
    const struct timeval pause = {.tv_sec = 1};
    event_add(server->accept_again, &pause);
}

static enum status bind_socket(struct http_server *server, const char *address, struct error *error)
{
    int fd;
    TRY(http_address_listen(address, &fd, &server->port, error));
    server->socket = evhttp_accept_socket_with_handle(server->http, fd);
    if (!server->socket) {
        evutil_closesocket(fd);
        return error_set(error, STATUS_IO, "listening for HTTP on %s failed", address);
    }
    evconnlistener_set_error_cb(evhttp_bound_socket_get_listener(server->socket), on_accept_error);
    return STATUS_OK;
}

static enum status open_tls(const struct http_options *options, struct http_tls **out,
                            struct error *error)
{
    if (!options->cert_file != !options->key_file)
        return error_set(error, STATUS_INVALID,
                         "--http-cert and --http-key belong together, but only one is given");
    return options->cert_file ? http_tls_create(options->cert_file, options->key_file, out, error)
                              : STATUS_OK;
}

enum status http_server_create(struct loop *loop, const char *address,
                               const struct http_options *options, const struct http_events *events,
                               void *arg, struct http_server **out, struct error *error)
{
    struct http_tls *tls = NULL;
    TRY(http_cors_check(&options->cors_origins, error));
    TRY(open_tls(options, &tls, error));
    struct http_server *server = calloc(1, sizeof *server);
    CHECK(server != NULL);
    server->base = loop_event_base(loop);
    server->events = events;
    server->arg = arg;
    LIST_INIT(&server->exchanges);
    server->watches = (struct http_watches){
        .limits = {.head_bytes = options->header_bytes, .body_bytes = options->body_bytes},
        .read_ns = (uint64_t)options->read_ms * NS_PER_MS,
        .body_bytes_max = options->read_bytes,
        .tls = tls,
        .is_answering = is_answering,
        .arg = server,
    };
    server->http = evhttp_new(server->base);
    server->sweep = event_new(server->base, -1, EV_PERSIST, on_sweep, server);
    server->accept_again = evtimer_new(server->base, on_accept_again, server);
    CHECK(server->http != NULL && server->accept_again != NULL && server->sweep != NULL);
    const enum status status = bind_socket(server, address, error);
    if (status != STATUS_OK) {
        event_free(server->accept_again);
        event_free(server->sweep);
        evhttp_free(server->http);
        http_tls_destroy(tls);
        free(server);
        return status;
    }
    server->origins = options->cors_origins;
    evhttp_set_max_body_size(server->http, (ev_ssize_t)options->body_bytes);
    /* The guard is before evhttp and has the tighter limit. */
    evhttp_set_max_headers_size(server->http, (ev_ssize_t)(2 * options->header_bytes));
    server->idle = (struct timeval){.tv_sec = options->idle_ms / 1000,
                                    .tv_usec = (suseconds_t)(options->idle_ms % 1000) * 1000};
    evhttp_set_timeout_tv(server->http, &server->idle);
    /* All that evhttp can name, so that a wrong method gets our 405 and not its 501. */
    evhttp_set_allowed_methods(server->http, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD |
                                                 EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |
                                                 EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH);
    evhttp_set_gencb(server->http, on_http_request, server);
    evhttp_set_bevcb(server->http, http_watch_create, &server->watches);
    const struct timeval sweep = {.tv_usec = SWEEP_MS * 1000};
    CHECK(event_add(server->sweep, &sweep) == 0);
    server->next = servers;
    servers = server;
    *out = server;
    return STATUS_OK;
}

void http_server_destroy(struct http_server *server)
{
    if (!server)
        return;
    evhttp_free(server->http); /* on_connection_closed for every open exchange */
    CHECK(LIST_EMPTY(&server->exchanges));
    http_watches_free(&server->watches);
    http_tls_destroy(server->watches.tls);
    event_free(server->sweep);
    event_free(server->accept_again);
    struct http_server **place = &servers;
    while (*place != server)
        place = &(*place)->next;
    *place = server->next;
    free(server);
}

void http_server_drain(struct http_server *server)
{
    server->draining = true;
}

uint16_t http_server_port(const struct http_server *server)
{
    return server->port;
}

uint64_t http_server_read_bytes(const struct http_server *server)
{
    return server->watches.body_bytes;
}

uint32_t http_server_open_count(const struct http_server *server)
{
    return server->open_count;
}
