/* The hand-off: one request's pages moving from a prefill node to a decode node.
 *
 * Both ends live here, each a table of states (RESERVED, GRANTED, MOVING, LANDED, ABORTED at the
 * receiver; OPENING, OFFERED, SENDING, FINISHING, ENDED at the sender), driven by the control
 * thread's loop. It knows strips: the bytes of one page in one layer, at [layer][slot] of a region.
 * The handshake between the two nodes (peer.c), once per pair of boots, is inside. */
#ifndef BATON_TRANSFER_HANDOFF_H
#define BATON_TRANSFER_HANDOFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/status.h"
#include "transfer/gate.h"
#include "transfer/mover.h"
#include "transfer/wire.h"

/* Page memory as bytes: strip (layer, slot) lies at base + (layer * slots + slot) * strip_bytes. */
struct handoff_region {
    uint8_t *base;
    uint32_t layers, slots;
    size_t strip_bytes;
};

struct handoff_self {
    char node[64];
    uint8_t boot_id[16];
    struct msg_identity identity; /* strings must outlive the hand-off objects */
    struct gate_self *gate;       /* likewise; NULL: without a secret */
};

/* How the bytes of pages are checked from end to end; both nodes must do the same. */
enum handoff_checksum { HANDOFF_CHECKSUM_NONE, HANDOFF_CHECKSUM_CRC32C };
const char *handoff_checksum_name(enum handoff_checksum checksum);

struct handoff_limits {
    uint32_t handoffs_max;  /* at once */
    uint32_t pages_max;     /* of one hand-off */
    uint32_t hello_ms;      /* dial to welcome */
    uint32_t progress_ms;   /* without a byte or message moving: abort */
    uint32_t ping_ms;       /* how often peers with open hand-offs are pinged */
    uint32_t quarantine_ms; /* wait for ABORT_ACK before the peer is closed by force */
    size_t data_bytes_max;  /* largest data message */
    uint64_t flow_bytes;    /* in flight per hand-off */
    uint64_t peer_bytes;    /* in flight per peer */
    uint32_t window_ms;     /* and no more than the way to it takes in so long */
    enum handoff_checksum checksum;
};
extern const struct handoff_limits handoff_default_limits;

struct handoff_stats {
    uint64_t bytes, strips, messages;
    uint64_t first_send_ns, last_sent_ns, landed_ns; /* clock of the loop; 0: never */
};

/* Why hand-offs ended before they landed. */
enum handoff_reason {
    HANDOFF_REASON_CANCELED,
    HANDOFF_REASON_TIMEOUT,
    HANDOFF_REASON_PEER_LOST,
    HANDOFF_REASON_CORRUPT,
    HANDOFF_REASON_MISMATCH,
    HANDOFF_REASON_OTHER,
    HANDOFF_REASON_COUNT
};
enum handoff_reason handoff_reason_of(enum status status);
const char *handoff_reason_name(enum handoff_reason reason); /* "peer_lost" */

struct handoff_totals {
    uint64_t done, failed, bytes;
    uint64_t checksum_faults; /* messages whose bytes were not those that were sent */
    uint64_t failures[HANDOFF_REASON_COUNT];
    uint32_t open, pages; /* hand-offs open now, pages on grant or pinned now */
    uint64_t busy_ns;     /* in which pages were moving */
    uint64_t queue_bytes; /* ready and not sent, now */
    uint32_t oldest_ms;   /* how long pages have been pinned or granted, the oldest now */
};

/* One of the nodes that pages are handed to or taken from. */
struct handoff_peer_totals {
    char node[65];
    const char *state;  /* static */
    uint32_t open;      /* hand-offs now */
    uint32_t offences;  /* messages that had no business to come, since they met */
    uint64_t in_flight; /* bytes sent and not yet over */
    uint64_t bytes, done, failed;
};

/* ---- prefill's end ---- */

struct handoff_sender;
struct handoff_out; /* one hand-off, from open to on_end */

struct handoff_target {
    const char *address; /* of the decode node's mover */
    uint8_t boot_id[16];
    uint64_t handoff, ticket, request;
    uint32_t attempt;
    uint32_t first_page, page_count; /* pages to deliver, of the prompt */
};

struct handoff_sender_events {
    /* The end of one hand-off, exactly once for each open: OK when the receiver said LANDED. No
     * source page is read any more. text says what went wrong. `out` is freed when it returns. */
    void (*on_end)(void *arg, void *context, enum status status, const char *text,
                   const struct handoff_stats *stats);
};

/* Of the options, message_bytes_max and data_bytes_max follow from the limits. */
enum status handoff_sender_create(struct loop *loop, const struct mover_ops *ops,
                                  const struct mover_options *options,
                                  const struct handoff_region *region,
                                  const struct handoff_self *self,
                                  const struct handoff_limits *limits,
                                  const struct handoff_sender_events *events, void *arg,
                                  struct handoff_sender **out, struct error *error);
/* Hand-offs still open end without on_end; when it returns nothing reads the pages any more. */
void handoff_sender_destroy(struct handoff_sender *sender);

/* Dials the decode node if the two have not met, offers. LIMIT when handoffs_max are open. */
enum status handoff_send_open(struct handoff_sender *sender, const struct handoff_target *target,
                              void *context, struct handoff_out **out, struct error *error);
/* Strips of pages [first_page, first_page + count) of one layer are final in source `slots`
 * ([count]); they are read until on_end. Every (page, layer) is to be posted once, in any order; a
 * page has the same slot in all layers. What comes before the grant waits. Never blocks, never
 * fails: faults come by on_end, which never comes inside a call. */
void handoff_send_strips(struct handoff_out *out, uint32_t layer, uint32_t first_page,
                         uint32_t count, const uint32_t *slots);
/* The first token of each of `count` >= 1 choices; DONE follows the last strip. */
void handoff_send_first(struct handoff_out *out, const struct msg_step *firsts, uint32_t count);
/* Gives up; on_end follows once nothing reads the source any more. */
void handoff_send_abort(struct handoff_out *out, enum status status, const char *text);
void handoff_sender_totals(const struct handoff_sender *sender, struct handoff_totals *out);
/* Up to `most` of them; returns how many. */
uint32_t handoff_sender_peers(const struct handoff_sender *sender, struct handoff_peer_totals *out,
                              uint32_t most);

/* ---- decode's end ---- */

struct handoff_receiver;

enum { HANDOFF_MISPLACED = UINT32_MAX };

/* Where slots come from (the page pool, in the node). Called on the loop thread, with the arg of
 * the events. */
struct handoff_pages {
    /* How many of the pages [first_page, first_page + page_count) of this request's prompt are here
     * by now, from the first on: they are granted no slots and not sent. HANDOFF_MISPLACED when the
     * page that is wanted first is another: the offer is refused. NULL: none ever. */
    uint32_t (*held)(void *arg, void *context, uint32_t first_page, uint32_t page_count);
    enum status (*reserve)(void *arg, uint32_t count);
    void (*unreserve)(void *arg, uint32_t count);
    void (*take)(void *arg, uint32_t count, uint32_t *slots_out, uint32_t *generations_out);
    void (*give_back)(void *arg, const uint32_t *slots, uint32_t count);
};

struct handoff_receiver_events {
    /* All pages are in place and verified, DONE is here: the slots are the callee's now. They are
     * of the last slot_count pages of the offer; the ones before were held. */
    void (*on_landed)(void *arg, void *context, const uint32_t *slots, uint32_t slot_count,
                      const struct msg_done *done, const struct handoff_stats *stats);
    /* It will not land; exactly one of on_landed and on_failed comes for each reservation, but
     * neither after handoff_cancel. Its pages go back by themselves, at once or after quarantine.
     */
    void (*on_failed)(void *arg, void *context, enum status status, const char *text);
};

enum status handoff_receiver_create(struct loop *loop, const struct mover_ops *ops,
                                    const struct mover_options *options,
                                    const struct handoff_region *region,
                                    const struct handoff_self *self,
                                    const struct handoff_limits *limits,
                                    const struct handoff_pages *pages,
                                    const struct handoff_receiver_events *events, void *arg,
                                    struct handoff_receiver **out, struct error *error);
void handoff_receiver_destroy(struct handoff_receiver *receiver); /* returns all pages first */
const char *handoff_receiver_address(const struct handoff_receiver *receiver);

/* Sets page_count pages aside and issues the id and ticket. BUSY when the pages are not there,
 * LIMIT when handoffs_max are open. The lease runs on the local clock and begins anew with the
 * offer, with every data message and with every RENEW, which the writer sends each ping_ms as long
 * as it means to deliver; beside it, a peer that says nothing and a receive that does not go on end
 * the hand-off after progress_ms. */
enum status handoff_reserve(struct handoff_receiver *receiver, uint64_t request, uint32_t attempt,
                            uint32_t page_count, uint32_t lease_ms, void *context,
                            uint64_t *handoff_out, uint64_t *ticket_out, struct error *error);
/* The request is over for other reasons. Unknown ids are fine. */
void handoff_cancel(struct handoff_receiver *receiver, uint64_t handoff, enum status status,
                    const char *text);
void handoff_receiver_totals(const struct handoff_receiver *receiver, struct handoff_totals *out);
uint32_t handoff_receiver_peers(const struct handoff_receiver *receiver,
                                struct handoff_peer_totals *out, uint32_t most);

#endif
