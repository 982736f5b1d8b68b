/* TLS for clients of the HTTP front: a certificate of ours, none of theirs. TLS 1.2 and 1.3.
 *
 * Between workers it is base/crypto_tls.h; here libevent runs the connections. Loop thread only. */
#ifndef BATON_ROUTER_HTTP_TLS_INTERNAL_H
#define BATON_ROUTER_HTTP_TLS_INTERNAL_H

#include <stddef.h>

#include "base/status.h"

struct bufferevent;
struct event_base;
struct http_tls;

/* PEM files: the certificate with those that lead to its root, and its key. INVALID with the file
 * and the reason when they can not be used. */
enum status http_tls_create(const char *cert_file, const char *key_file, struct http_tls **out,
                            struct error *error);
void http_tls_destroy(struct http_tls *tls); /* NULL is fine; its streams may live on */

/* The stream of a connection that is about to be accepted; closes its socket when freed. */
struct bufferevent *http_tls_stream(struct http_tls *tls, struct event_base *base);
/* Sends what fits at once, past what the stream has queued, and says that no more comes. */
void http_tls_say_last(struct bufferevent *stream, const void *data, size_t bytes);

#endif
