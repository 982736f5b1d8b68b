/* One hand-off of the sender and the sender itself, shared by its two files. Private to them. */
#ifndef BATON_TRANSFER_HANDOFF_SEND_INTERNAL_H
#define BATON_TRANSFER_HANDOFF_SEND_INTERNAL_H

#include <sys/queue.h>

#include "transfer/handoff_internal.h"

enum out_state { OUT_FREE, OUT_OPENING, OUT_OFFERED, OUT_SENDING, OUT_FINISHING, OUT_ENDED };

enum {
    COOKIE_INDEX_BITS = 16, /* a cookie is the bytes of the send over the index of the hand-off */
};

struct handoff_out {
    TAILQ_ENTRY(handoff_out) entry; /* among the active, in the order of their next turn */
    struct handoff_sender *sender;
    enum out_state state;
    uint32_t index;
    struct peer *peer; /* held until nothing is in flight or it is lost */
    void *context;
    struct handoff_target target; /* address is not kept */
    uint64_t opened_ns, since_ns, moved_ns, renewed_ns;
    uint32_t *source_slots, *granted_slots, *generations; /* [page_count] */
    struct strip_set posted, ready;                       /* ready: posted and not sent */
    uint32_t *ready_counts;                               /* [layers] */
    uint64_t strips_total, strips_sent, ready_total;
    uint32_t granted_count;
    uint32_t held;       /* of the first pages: what the receiver has already */
    uint32_t next_layer; /* where the search for a run begins */
    uint32_t sends;
    uint64_t bytes_in_flight;
    uint64_t digest;    /* of the messages sent */
    struct buffer done; /* a DONE frame with the first token, kept until it is due */
    bool has_first;
    bool send_failed;   /* its strips are missing at the receiver */
    bool ack_due;       /* the receiver waits to hear that no send is in flight */
    enum status status; /* the end */
    char text[HANDOFF_TEXT_BYTES];
    struct handoff_stats stats;
};
TAILQ_HEAD(out_queue, handoff_out);

struct handoff_sender {
    struct loop *loop;
    struct handoff_region region;
    struct handoff_self self;
    struct handoff_limits limits;
    struct handoff_sender_events events;
    void *arg;
    struct peers *peers;
    struct loop_task *work;
    struct handoff_out *outs; /* [handoffs_max] */
    struct out_queue active;
    uint32_t sends, sends_max; /* data messages in flight */
    uint64_t busy_from_ns;     /* since when there are any */
    struct wire_arena arena;   /* for a DONE that is read again, with message and frame */
    void *message;
    struct buffer frame;
    struct handoff_totals totals;
};

/* ---- handoff_send_data.c ---- */

/* One data message. AGAIN when the mover is full, PENDING when this hand-off has nothing to send or
 * its window is used up. */
enum status handoff_out_send(struct handoff_out *out);
/* A data message to the peer is over. */
void handoff_window_sent(struct peer *peer, uint64_t bytes);
/* What was kept of the first token becomes the DONE frame in sender->frame, now that all strips and
 * their digest are known. */
enum status handoff_out_make_done(struct handoff_out *out, struct error *error);

#endif
