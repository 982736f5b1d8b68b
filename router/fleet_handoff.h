/* What workers say about hand-offs in their heartbeats, kept for /workers and counted for /metrics.
 * Loop thread. */
#ifndef BATON_ROUTER_FLEET_HANDOFF_H
#define BATON_ROUTER_FLEET_HANDOFF_H

#include "base/json.h"
#include "base/metrics.h"
#include "transfer/wire.h"

enum fleet_handoff_count {
    FLEET_HANDOFF_LANDED,
    FLEET_HANDOFF_CANCELED,
    FLEET_HANDOFF_TIMEOUT,
    FLEET_HANDOFF_PEER_LOST,
    FLEET_HANDOFF_CORRUPT,
    FLEET_HANDOFF_MISMATCH,
    FLEET_HANDOFF_OTHER,
    FLEET_HANDOFF_OUTCOMES, /* so many ways to end */
    FLEET_HANDOFF_BYTES = FLEET_HANDOFF_OUTCOMES,
    FLEET_HANDOFF_BUSY_US,
    FLEET_HANDOFF_CHECKSUM_FAULTS,
    FLEET_HANDOFF_WAITS_HANDOFFS,
    FLEET_HANDOFF_WAITS_PROMPTS,
    FLEET_HANDOFF_COUNTS
};

enum { FLEET_HANDOFF_PEERS_MAX = 16 };

struct fleet_handoff {
    uint32_t open, oldest_ms;
    uint64_t queue_bytes;
    uint64_t counts[FLEET_HANDOFF_COUNTS]; /* since the worker's boot */
    uint64_t news[FLEET_HANDOFF_COUNTS];   /* of them, what the last heartbeat added */
    uint32_t peer_count;                   /* the first ones are kept */
    struct fleet_handoff_peer {
        char node[65], state[17];
        uint32_t open;
        uint64_t in_flight, bytes, done, failed;
    } peers[FLEET_HANDOFF_PEERS_MAX];
};

void fleet_handoff_take(struct fleet_handoff *handoff, const struct msg_heartbeat *heartbeat);
/* Adds the news to the counters of the role. */
void fleet_handoff_measure(const struct fleet_handoff *handoff, enum worker_role role,
                           struct metrics *metrics);
/* One object: the numbers, and the peers one by one. */
void fleet_handoff_write(const struct fleet_handoff *handoff, struct json_writer *writer);

#endif
