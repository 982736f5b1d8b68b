/* What mover_tls.c (connections, sending) and mover_tls_read.c (what arrives) share. Private to
 * them. */
#ifndef BATON_TRANSFER_MOVER_TLS_INTERNAL_H
#define BATON_TRANSFER_MOVER_TLS_INTERNAL_H

#include <sys/queue.h>

#include "base/bytes.h"
#include "base/crypto_tls.h"
#include "transfer/mover_internal.h"

enum {
    TLS_RECORD_BYTES = 8,
    TLS_RECORD_MESSAGE = 1,
    TLS_RECORD_DATA = 2,
    TLS_BYTES_PER_TURN = 4 << 20, /* of one peer and direction, before others get their turn */
};

enum tls_peer_state { TLS_PEER_CONNECTING, TLS_PEER_GREETING, TLS_PEER_OPEN, TLS_PEER_OVER };

/* A message or data on its way out. Data sends are preallocated, messages carry their bytes. */
struct tls_send {
    STAILQ_ENTRY(tls_send) entry; /* free list, or queue of a peer */
    struct mover_peer *peer;
    bool is_data;
    uint64_t cookie;
    uint8_t prefix[TLS_RECORD_BYTES + MOVER_HEADER_BYTES];
    size_t prefix_bytes, prefix_done;
    size_t body_done; /* of the frame, or of the segment */
    size_t frame_bytes;
    struct mover_segment segments[MOVER_SEGMENTS_MAX];
    uint32_t segment_count, segment;
    uint8_t frame[];
};
STAILQ_HEAD(tls_send_list, tls_send);

/* Where reading stands in the record that is arriving. */
enum tls_reading { TLS_READING_RECORD, TLS_READING_MESSAGE, TLS_READING_HEADER, TLS_READING_DATA };
struct tls_input {
    enum tls_reading reading;
    uint8_t prefix[MOVER_HEADER_BYTES]; /* a record, or the header of data */
    size_t done;                        /* of the prefix, the frame or the segment */
    uint32_t record_bytes;
    struct buffer frame;
    struct mover_data_header header;
    bool receiving; /* on_data named a destination; on_data_done is due */
    struct mover_segment segments[MOVER_SEGMENTS_MAX];
    uint32_t segment_count, segment;
    uint64_t refused_left; /* payload that lands nowhere */
};

struct mover_peer {
    LIST_ENTRY(mover_peer) entry;
    struct mover *mover;
    enum tls_peer_state state;
    int fd;
    struct loop_io *io;
    struct tls *tls; /* NULL while connecting */
    void *context;
    struct tls_send_list queue;
    struct tls_input in;
    uint32_t messages;    /* in the queue */
    uint64_t deadline_ns; /* of connecting and greeting; 0: open */
    bool dialled;
    bool told;   /* the owner knows it */
    bool closed; /* by the owner: tells it nothing but ends of sends and receives */
    bool write_blocked;
    bool read_again; /* this turn's share was used up */
    bool read_waits_for_write;
    enum status status;
    char text[MOVER_ADDRESS_BYTES]; /* the other side, for logs */
};
LIST_HEAD(tls_peer_list, mover_peer);

struct mover {
    struct loop *loop;
    struct mover_options options;
    struct mover_events events;
    void *arg;
    struct tls_context *context;
    int listen_fd; /* -1: only dials */
    struct loop_io *listen_io;
    struct loop_task *turn;
    struct loop_timer *deadlines, *pause;
    bool deadlines_run;
    bool quiet; /* being destroyed: no callbacks */
    struct tls_peer_list peers;
    uint32_t peer_count, stranger_count;
    struct tls_send *sends; /* [sends_max] */
    struct tls_send_list sends_free;
    char address[MOVER_ADDRESS_BYTES];
};

bool tls_peer_is_usable(const struct mover_peer *peer);
/* It is over; its owner is told from `turn`. */
void tls_peer_fail(struct mover_peer *peer, enum status status, const char *text);
/* Takes what has arrived, as far as this turn's share reaches. */
void tls_peer_read(struct mover_peer *peer);

#endif
