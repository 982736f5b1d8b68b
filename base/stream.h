/* Non-blocking TCP byte streams on a loop: dial, listen, bounded output. Loop thread only. */
#ifndef BATON_BASE_STREAM_H
#define BATON_BASE_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "base/loop.h"
#include "base/status.h"

struct stream;
struct stream_listener;

struct stream_events {
    /* Connected (dialled streams only). May be NULL. */
    void (*on_open)(void *arg);
    /* Bytes so far unread; returns how many were taken, the rest comes again with more behind. The
     * callback may close the stream; its return value is then ignored. */
    size_t (*on_data)(void *arg, const void *data, size_t bytes);
    /* The stream is closed (CLOSED by the peer, TIMEOUT while dialling, IO with a reason in text);
     * called once, never after stream_close; the stream is freed when it returns. */
    void (*on_close)(void *arg, enum status status, const char *text);
};

struct stream_limits {
    size_t input_bytes;  /* unread bytes held before the stream is closed with LIMIT */
    size_t output_bytes; /* unsent bytes before stream_send says LIMIT */
    uint32_t connect_ms; /* dialling deadline */
};

/* Whether an address has the form that stream_listen (listening) or stream_dial takes; no name is
 * looked up. STATUS_INVALID with a sentence that holds the address. */
enum status stream_address_check(const char *address, bool listening, struct error *error);
/* Whether its host is one of 127/8, ::1 or localhost, which only this machine reaches. */
bool stream_address_is_loopback(const char *address);

/* "host:port", "[v6]:port"; port 0 picks one. STATUS_IO with the address and errno in *error. */
enum status stream_listen(struct loop *loop, const char *address,
                          void (*on_accept)(void *arg, struct stream *stream), void *arg,
                          const struct stream_limits *limits, struct stream_listener **listener_out,
                          struct error *error);
uint16_t stream_listener_port(const struct stream_listener *listener);
void stream_listener_close(struct stream_listener *listener);

/* Dials; names are resolved first (numeric and /etc/hosts names; blocking, used at start and on
 * reconnect only). Events begin after this returns. */
enum status stream_dial(struct loop *loop, const char *address, const struct stream_events *events,
                        void *arg, const struct stream_limits *limits, struct stream **stream_out,
                        struct error *error);
/* For accepted streams: inside on_accept, before returning. A stream left without is closed. */
void stream_attach(struct stream *stream, const struct stream_events *events, void *arg);
/* Copies; sends now what the socket takes. LIMIT when the output bound would be passed (nothing is
 * taken then), CLOSED on a stream that failed. */
enum status stream_send(struct stream *stream, const void *data, size_t bytes);
size_t stream_unsent(const struct stream *stream);
/* "127.0.0.1:4567" of the other side; kept in the stream. */
const char *stream_peer(const struct stream *stream);
/* Flushes what the socket takes at once, closes, frees. No callback follows. */
void stream_close(struct stream *stream);

#endif
