/* The page mover: endpoints to peers, small messages, and bulk data received straight into place.
 *
 * Three implementations stand behind this table: mover_ucx.c (active messages, peer error mode),
 * mover_tls.c (TCP, authenticated and encrypted) and mover_loopback.c (in one process, the plain
 * reference). One suite runs them all. Knows bytes, never tensors. Everything belongs to the loop
 * thread. */
#ifndef BATON_TRANSFER_MOVER_H
#define BATON_TRANSFER_MOVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/loop.h"
#include "base/status.h"

struct mover;
struct mover_peer;
struct tls_identity;

/* Pieces of memory that one data message is gathered from and scattered to. The two ends may cut
 * it differently. */
enum { MOVER_SEGMENTS_MAX = 64 };
struct mover_segment {
    void *data;
    size_t bytes;
};

/* Travels with each data message, fixed size, little-endian on the wire. The payload is strips,
 * layer by layer, page by page. */
struct mover_data_header {
    uint64_t handoff;
    uint32_t layer, layer_count;
    uint32_t first_page; /* index in the request's prompt */
    uint32_t page_count;
    uint32_t first_slot; /* of the first page at the receiver, as granted */
    uint32_t generation; /* of first_slot */
    uint32_t grant;      /* CRC-32C over slot and generation of every page */
    uint32_t flags;      /* 0 now */
    uint64_t checksum;   /* of the payload and what it is; 0: none */
    uint64_t payload_bytes;
};

struct mover_events {
    /* A peer dialled us. The owner keeps the handle until on_peer_closed or mover_peer_close. */
    void (*on_peer_accepted)(void *arg, struct mover_peer *peer);
    /* The endpoint failed or was closed by the other side; once, never after mover_peer_close.
     * All data receives and sends of the peer have been completed with an error before. */
    void (*on_peer_closed)(void *arg, struct mover_peer *peer, enum status status);
    /* One small message (a whole frame of wire.h), valid during the call. */
    void (*on_message)(void *arg, struct mover_peer *peer, const void *frame, size_t bytes);
    /* Data is announced: check it and name where its bytes go, in order: segments has room for
     * MOVER_SEGMENTS_MAX, together of exactly payload_bytes. Returns their number; 0 refuses it:
     * the data lands nowhere. */
    uint32_t (*on_data)(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                        struct mover_segment *segments);
    /* The receive named by on_data is over; OK means all bytes are in place. Comes also for a peer
     * that was closed meanwhile, and so does on_sent. */
    void (*on_data_done)(void *arg, struct mover_peer *peer, const struct mover_data_header *header,
                         enum status status);
    /* A mover_send_data is over: the source may be reused. */
    void (*on_sent)(void *arg, struct mover_peer *peer, uint64_t cookie, enum status status);
};

struct mover_options {
    const char *listen; /* "host:port" or NULL for a side that only dials */
    uint32_t connect_ms;
    uint32_t sends_max;       /* data sends in flight, all peers */
    size_t message_bytes_max; /* small messages */
    size_t data_bytes_max;    /* one data message */
    void *memory;             /* page memory, registered once; may be NULL */
    size_t memory_bytes;
    const struct tls_identity *tls; /* for the mover tls, which needs one; read at creation */
};

/* How data is best cut: a run of one segment goes alone from run_bytes on, shorter pieces are
 * gathered to messages of up to gather_bytes, none is larger than message_bytes (0: as large as a
 * message may be). */
struct mover_shape {
    size_t run_bytes, gather_bytes, message_bytes;
};

struct mover_ops {
    const char *name; /* "ucx", "tls", "loopback" */
    enum status (*create)(struct loop *loop, const struct mover_options *options,
                          const struct mover_events *events, void *arg, struct mover **out,
                          struct error *error);
    void (*destroy)(struct mover *mover); /* closes all peers by force, no callbacks */
    /* "host:port" that others dial; the port that was picked when 0 was asked. */
    const char *(*address)(const struct mover *mover);
    /* Begins to dial. Sends may follow at once and are queued; a failure comes by on_peer_closed.
     */
    enum status (*dial)(struct mover *mover, const char *address, struct mover_peer **out,
                        struct error *error);
    /* Copies the frame. CLOSED on a failed peer, LIMIT over message_bytes_max or when too many
     * wait. */
    enum status (*send_message)(struct mover_peer *peer, const void *frame, size_t bytes);
    /* Sends 1 to MOVER_SEGMENTS_MAX segments, together header->payload_bytes. The list is copied,
     * their bytes must stay untouched until on_sent with this cookie. AGAIN when sends_max are in
     * flight (try again after an on_sent). */
    enum status (*send_data)(struct mover_peer *peer, const struct mover_data_header *header,
                             const struct mover_segment *segments, uint32_t segment_count,
                             uint64_t cookie);
    /* Force close: pending sends and receives complete with CANCELED inside this call or the next
     * turn of the loop, through on_sent and on_data_done, then the peer is freed. */
    void (*peer_close)(struct mover_peer *peer);
    /* The owner's own mark on a peer. */
    void (*peer_set_context)(struct mover_peer *peer, void *context);
    void *(*peer_context)(const struct mover_peer *peer);
    /* How data goes best over the way to this peer. */
    struct mover_shape (*peer_shape)(const struct mover_peer *peer);
};

/* What is used when nobody chooses: ucx where it is built in, else tls. */
extern const char mover_default_name[];
/* NULL for a name that is not built in; names_out (may be NULL) then lists what is. */
const struct mover_ops *mover_by_name(const char *name, const char **names_out);
/* The same mover with faults at its frames and data while some are armed (fault.h), else itself.
 * All that go through here in one process are of one kind. */
const struct mover_ops *mover_with_faults(const struct mover_ops *ops);
/* By itself, for programs that do without UCX. Its ends may live on different threads. */
extern const struct mover_ops mover_loopback_ops;

#endif
