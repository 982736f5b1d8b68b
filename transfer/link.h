/* A control link: whole messages over TCP between a worker and a router.
 *
 * Where the cluster has a secret both sides prove it first (gate.h): nobody hears of a link, and
 * nothing else of it is read, before that.
 *
 * Loop thread only. A frame that cannot be read closes the link with a reason, told to the other
 * side in a REJECT first. A link on which nothing arrived for `silent_ms` closes with TIMEOUT: both
 * sides send heartbeats (HEARTBEAT, HEARTBEAT_ACK) more often than that. */
#ifndef BATON_TRANSFER_LINK_H
#define BATON_TRANSFER_LINK_H

#include "base/loop.h"
#include "base/status.h"
#include "transfer/gate.h"
#include "transfer/wire.h"

struct link;
struct link_listener;

struct link_events {
    /* Dialled, connected and proven; may be NULL for accepted links. */
    void (*on_open)(void *arg);
    /* One decoded message, valid during the call. The callback may close the link. */
    void (*on_message)(void *arg, enum message_id id, const void *message);
    /* Closed by the other side, by a fault or by a deadline; once, never after link_close. text is
     * the reason (the other side's REJECT text if it sent one). The link is freed afterwards. */
    void (*on_close)(void *arg, enum status status, const char *text);
};

struct link_limits {
    uint32_t connect_ms, silent_ms;
    size_t frame_bytes_max, output_bytes_max;
    struct gate_self *gate; /* NULL: without a secret */
};
extern const struct link_limits link_default_limits; /* 3 s, 3 s, 32 MiB, 64 MiB, no secret */

enum status link_dial(struct loop *loop, const char *address, const struct link_events *events,
                      void *arg, const struct link_limits *limits, struct link **out,
                      struct error *error);
enum status link_listen(struct loop *loop, const char *address,
                        void (*on_accept)(void *arg, struct link *link), void *arg,
                        const struct link_limits *limits, struct link_listener **out,
                        struct error *error);
uint16_t link_listener_port(const struct link_listener *listener);
/* Links that have not proven anything yet end with it. */
void link_listener_close(struct link_listener *listener);
/* For accepted links, inside on_accept. */
void link_attach(struct link *link, const struct link_events *events, void *arg);

/* Encodes and sends. LIMIT when a field's limit or the output bound would be passed, CLOSED when
 * gone. Behind a message that passed the output bound none is sent any more: what follows a gap
 * would be misread, so the link closes soon with LIMIT, by on_close, never inside this call. */
enum status link_send(struct link *link, enum message_id id, const void *message);
const char *link_peer(const struct link *link);
/* Whether the process that says it is boot_id is the one that proved the secret (gate_check). */
enum status link_check_boot(const struct link *link, const uint8_t boot_id[16],
                            struct error *error);
/* With a text: sends REJECT{code,text} first. Frees; no callback follows. NULL is fine. */
void link_close(struct link *link, enum status status, const char *text);

#endif
