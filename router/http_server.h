/* HTTP/1.1 in front of the router (evhttp inside, named nowhere else but base/loop.c).
 *
 * The noun is the exchange: one request and its one answer, whole (http_reply) or streamed
 * (http_stream_*). What cannot be an honest request (two lengths, two hosts, unknown codings) is
 * answered here. A client that closes, or half-closes, its connection is told by on_gone at once,
 * in any state. Loop thread only. */
#ifndef BATON_ROUTER_HTTP_SERVER_H
#define BATON_ROUTER_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "base/loop.h"
#include "base/status.h"
#include "router/openai_error.h"

struct http_server;
struct http_exchange;

enum http_method { HTTP_GET, HTTP_POST, HTTP_OPTIONS, HTTP_OTHER }; /* GET: HEAD too */
enum { HTTP_REQUEST_ID_BYTES = 129 };

struct http_request {
    enum http_method method;
    const char *path; /* decoded, without query */
    const char *body; /* body_bytes bytes, valid during the call */
    size_t body_bytes;
    const char *content_type; /* NULL when absent */
    const char *request_id;   /* the client's X-Request-Id, or one made here */
};

struct http_events {
    /* Must answer now or later. */
    void (*on_request)(void *arg, struct http_exchange *exchange,
                       const struct http_request *request);
    /* The client is gone and the exchange is freed: nothing may be sent. Not called for an exchange
     * without a context, nor after its answer ended. */
    void (*on_gone)(void *arg, void *context);
    /* An error is about to be answered, here or by the owner. */
    void (*on_error)(void *arg, const struct openai_error *error);
};

struct http_options {
    size_t body_bytes, header_bytes;
    uint64_t read_bytes; /* of bodies that are not whole yet, all together */
    uint32_t read_ms;    /* from a request's first byte to its last */
    uint32_t idle_ms;    /* without a byte, reading or writing, until the connection is closed */
    const char *cert_file, *key_file; /* PEM, both or neither: TLS or not */
    struct config_texts
        cors_origins; /* whose pages may read answers; the texts outlive the server */
};

enum status http_server_create(struct loop *loop, const char *address,
                               const struct http_options *options, const struct http_events *events,
                               void *arg, struct http_server **out, struct error *error);
/* Closes the connections; on_gone comes for what is still open. */
void http_server_destroy(struct http_server *server);
/* Goes on answering (readiness is to be seen as lost), but each connection closes after it. */
void http_server_drain(struct http_server *server);
uint16_t http_server_port(const struct http_server *server);
uint64_t http_server_read_bytes(const struct http_server *server); /* of bodies not yet whole */
uint32_t http_server_open_count(const struct http_server *server); /* exchanges not yet answered */

/* The value of a request header, valid as long as on_request runs; NULL when absent. */
const char *http_exchange_header(const struct http_exchange *exchange, const char *name);
/* The owner's mark; on_gone hands it back. */
void http_exchange_set_context(struct http_exchange *exchange, void *context);

struct http_reply {
    int status;
    const char *content_type;
    const char *body;
    size_t body_bytes;
    uint32_t retry_after_s;           /* 0: no such header */
    const char *allow;                /* of a 405, else NULL */
    bool close;                       /* the connection closes behind it */
    const char *policy;               /* Content-Security-Policy of a page, or NULL */
    const struct openai_error *error; /* what the body says, or NULL */
};
/* Answers and frees the exchange. */
void http_reply(struct http_exchange *exchange, const struct http_reply *reply);
void http_reply_json(struct http_exchange *exchange, int status, const char *body, size_t bytes);
void http_reply_error(struct http_exchange *exchange, const struct openai_error *error);

/* Sends the head of a streamed answer. */
void http_stream_begin(struct http_exchange *exchange, const char *content_type);
/* Returns how many bytes of earlier sends still wait for the client to take them. */
size_t http_stream_send(struct http_exchange *exchange, const void *data, size_t bytes);
/* Ends the answer and frees the exchange. close: the connection closes behind it. */
void http_stream_end(struct http_exchange *exchange, bool close);
/* Closes the connection at once, unsent bytes are lost; frees the exchange. Not inside
 * on_request. */
void http_exchange_abort(struct http_exchange *exchange);

#endif
