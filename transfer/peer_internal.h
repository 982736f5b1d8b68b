/* Peers: the connections between prefill and decode nodes, greeted and watched. Both ends of the
 * hand-off stand on this. Private to transfer/; loop thread only.
 *
 *   state      means                                            leaves by
 *   FREE       the record is not used                           dial, accept
 *   DIALLED    we dialled: proof of the secret, PEER_HELLO      WELCOME, REJECT, deadline
 *   ACCEPTED   they dialled; their proof and PEER_HELLO         HELLO, deadline
 *   OPEN       both know who the other is                       loss, silence, offences
 *   REFUSED    we sent REJECT and wait for them to hang up      loss, deadline
 *   RESTING    a dial failed or a link was lost; no connection  the end of the back-off */
#ifndef BATON_TRANSFER_PEER_INTERNAL_H
#define BATON_TRANSFER_PEER_INTERNAL_H

#include "base/random.h"
#include "transfer/handoff.h"
#include "transfer/mover_internal.h"

enum {
    PEER_RECORDS_MAX = 256,
    PEER_OFFENCES_MAX = 8,
    PEER_RETRY_FIRST_MS = 100,
    PEER_TEXT_BYTES = 513,
};

enum peer_state {
    PEER_FREE,
    PEER_DIALLED,
    PEER_ACCEPTED,
    PEER_OPEN,
    PEER_REFUSED,
    PEER_RESTING,
    PEER_STATE_COUNT
};

/* How much data may be on its way to a peer, so that no small message waits long behind it: what
 * goes out in window_ms, as far as was measured. */
struct peer_window {
    uint64_t bytes;
    uint64_t posted, sent; /* data since the link was made */
    struct {
        uint64_t end; /* its data has gone out when `sent` comes here; 0: nothing is measured now */
        uint64_t bytes, since_ns;
    } probe;
};

struct peer {
    struct peers *peers;
    enum peer_state state;
    struct mover_peer *link; /* NULL when FREE or RESTING */
    struct gate gate;        /* of this connection */
    uint8_t boot_id[16];     /* of the other side: expected of a dialled one, told by the others */
    uint64_t data_bytes_max; /* largest data message both sides take */
    uint64_t flow_bytes, peer_bytes; /* in flight at most: the smaller limits of both sides */
    uint64_t bytes_in_flight;        /* data sends not yet over */
    struct peer_window window;       /* over them */
    uint64_t bytes, done, failed;    /* moved, and hand-offs ended, since it was met */
    uint64_t deadline_ns;            /* of the state; OPEN has none */
    uint64_t heard_ns;               /* when anything last came from it */
    uint64_t pinged_ns;
    uint64_t ping_sequence;
    uint32_t retry_ms;
    uint32_t users; /* hand-offs that hold on to it */
    uint32_t offences;
    char address[MOVER_ADDRESS_BYTES]; /* empty for one that dialled us */
    char node[65];
};

struct peers_events {
    void (*on_open)(void *arg, struct peer *peer);
    /* The connection is gone, or could not be made; hand-offs with this peer have failed. Their
     * sends and receives may still be about to complete. */
    void (*on_lost)(void *arg, struct peer *peer, enum status status, const char *text);
    /* A message of the hand-off, on an OPEN peer; frame is the whole of it as bytes. */
    void (*on_message)(void *arg, struct peer *peer, enum message_id id, const void *message,
                       const void *frame, size_t bytes);
    uint32_t (*on_data)(void *arg, struct peer *peer, const struct mover_data_header *header,
                        struct mover_segment *segments);
    void (*on_data_done)(void *arg, const struct mover_data_header *header, enum status status);
    void (*on_sent)(void *arg, uint64_t cookie, enum status status);
    /* Some times in every deadline. */
    void (*on_tick)(void *arg, uint64_t now_ns);
};

struct peers {
    struct loop *loop;
    const struct mover_ops *ops;
    struct mover *mover;
    const struct handoff_self *self;
    const struct handoff_limits *limits;
    struct peers_events events;
    void *arg;
    struct loop_timer *tick;
    uint32_t tick_ms;
    uint64_t ticked_ns; /* when the last tick came, by the loop */
    uint64_t watch_ns;  /* and by the clock of peers_now_ns */
    struct random jitter;
    struct wire_arena arena;
    struct buffer output;
    void *message; /* the decoded one */
    struct peer records[PEER_RECORDS_MAX];
};

/* self and limits must outlive it. options is taken but for the sizes of messages, which follow
 * from the limits. */
enum status peers_create(struct loop *loop, const struct mover_ops *ops,
                         const struct mover_options *options, const struct handoff_self *self,
                         const struct handoff_limits *limits, const struct peers_events *events,
                         void *arg, struct peers **out, struct error *error);
/* No callbacks; when it returns nothing reads or writes page memory any more. */
void peers_destroy(struct peers *peers);

/* The clock of all deadlines. It stands still while this process does (stopped, starved, in a long
 * callback): a tick that comes late counts as one that came late by a little, so that the silence
 * of others is only ever counted while they could have been heard. */
uint64_t peers_now_ns(const struct peers *peers);
static inline uint64_t peers_after_ms(const struct peers *peers, uint32_t ms)
{
    return peers_now_ns(peers) + (uint64_t)ms * NS_PER_MS;
}
/* A tick looks at its clock once; what happened since in the same tick is no time ago. */
static inline uint64_t handoff_elapsed_ns(uint64_t now_ns, uint64_t since_ns)
{
    return now_ns > since_ns ? now_ns - since_ns : 0;
}

/* The peer of that address and boot, dialled if the two have not met. One attempt is in flight at a
 * time; while a back-off lasts the peer is RESTING and dials at its end if somebody still uses it.
 * The caller counts itself in peer->users. */
enum status peers_find(struct peers *peers, const char *address, const uint8_t boot_id[16],
                       struct peer **out, struct error *error);
enum status peer_send(struct peer *peer, enum message_id id, const void *message);
/* Hangs up by force; on_lost follows inside. */
void peer_drop(struct peer *peer, enum status status, const char *text);
/* Counts something that no honest peer does; the peer is dropped at the last of them. */
void peer_offend(struct peer *peer, const char *what);
const char *peer_state_name(enum peer_state state);
uint32_t peers_totals(const struct peers *peers, struct handoff_peer_totals *out, uint32_t most);

/* ---- peer_greeting.c ---- */

/* Dials the record's address and begins the greeting. */
enum status peer_dial(struct peer *peer, struct error *error);
/* Takes a message that belongs to the greeting in the peer's state; false for any other. */
bool peer_greeting_take(struct peer *peer, enum message_id id, const void *message);
/* Refuses one that dialled, with a sentence, and waits for it to hang up. */
void peer_reject(struct peer *peer, enum status status, const char *text);

/* ---- peer_identity.c ---- */

/* OK when every field is equal, else MISMATCH with the field's name and both values. */
enum status peer_identity_compare(const struct msg_identity *decode,
                                  const struct msg_identity *prefill, struct error *error);
/* 32 hex digits and a NUL. */
void peer_boot_text(const uint8_t boot_id[16], char out[33]);

#endif
