/* Which workers served a client's session last: a fixed table, the oldest of a set of four goes.
 *
 * A key is the hash of what the client calls its session. A handle of a worker that is gone does no
 * harm: placement does not find it. One thread. */
#ifndef BATON_ROUTER_SESSION_AFFINITY_H
#define BATON_ROUTER_SESSION_AFFINITY_H

#include "router/request.h"

struct session_affinity;

struct affinity_pair {
    worker_handle prefill, decode; /* 0: none */
};

/* Room for at least so many sessions. */
struct session_affinity *session_affinity_create(uint32_t sessions_max);
void session_affinity_destroy(struct session_affinity *table); /* NULL is fine */
/* {0, 0} for one that is not there. key 0: no session. */
struct affinity_pair session_affinity_find(struct session_affinity *table, uint64_t key);
/* A member of 0 leaves the one that is there. */
void session_affinity_note(struct session_affinity *table, uint64_t key, struct affinity_pair pair);

#endif
