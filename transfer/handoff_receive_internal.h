/* One hand-off of the receiver and the receiver itself, shared by its two files. Private to them.
 */
#ifndef BATON_TRANSFER_HANDOFF_RECEIVE_INTERNAL_H
#define BATON_TRANSFER_HANDOFF_RECEIVE_INTERNAL_H

#include "transfer/handoff_internal.h"

enum in_state { IN_FREE, IN_RESERVED, IN_GRANTED, IN_MOVING, IN_LANDED, IN_ABORTED };

struct handoff_in {
    struct handoff_receiver *receiver;
    enum in_state state;
    uint64_t id, ticket, request;
    uint32_t attempt, first_page, page_count, lease_ms;
    struct peer *peer; /* from the offer until it is lost or the hand-off is over */
    void *context;
    uint64_t granted_ns, since_ns, moved_ns;
    uint64_t renewed_ns;           /* the lease runs from here: a state begun, a byte, a RENEW */
    uint32_t *slots, *generations; /* [page_count], once granted */
    struct strip_set begun;        /* strips that came or are coming */
    uint64_t strips_landed;
    uint64_t digest;    /* of the messages that landed */
    uint32_t receives;  /* data messages being written */
    struct buffer done; /* the DONE message as it came */
    bool has_done;
    bool acknowledged; /* ABORTED: the writer starts nothing more, or its link is gone */
    struct handoff_stats stats;
};

struct handoff_receiver {
    struct loop *loop;
    struct handoff_region region;
    struct handoff_self self;
    struct handoff_limits limits;
    struct handoff_pages pages;
    struct handoff_receiver_events events;
    void *arg;
    struct peers *peers;
    struct handoff_in *ins; /* [handoffs_max] */
    uint64_t next_serial;
    struct wire_arena arena; /* for a DONE that is read again */
    void *message;
    uint32_t moving;       /* hand-offs in that state */
    uint64_t busy_from_ns; /* since when there are any */
    struct handoff_totals totals;
};

/* ---- handoff_receive.c ---- */

struct handoff_in *handoff_in_find(struct handoff_receiver *receiver, uint64_t id);
void handoff_in_enter(struct handoff_in *in, enum in_state state);
bool handoff_in_takes_data(const struct handoff_in *in);
/* The end was decided here: the writer has to hear of it, and its answer ends the quarantine. */
void handoff_in_fail(struct handoff_in *in, enum status status, const char *text);
/* Quarantine is over when nobody can write the pages any more. */
void handoff_in_settle(struct handoff_in *in);
/* LANDED once every strip and DONE are here. */
void handoff_in_land_when_whole(struct handoff_in *in);

/* ---- handoff_receive_data.c, of struct peers_events ---- */

uint32_t handoff_in_data(void *arg, struct peer *peer, const struct mover_data_header *header,
                         struct mover_segment *segments);
void handoff_in_data_done(void *arg, const struct mover_data_header *header, enum status status);

#endif
