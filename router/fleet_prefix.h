/* What workers say about their prefix caches in heartbeats, kept for /workers and counted for
 * /metrics. Loop thread. */
#ifndef BATON_ROUTER_FLEET_PREFIX_H
#define BATON_ROUTER_FLEET_PREFIX_H

#include "base/json.h"
#include "base/metrics.h"
#include "transfer/wire.h"

enum fleet_prefix_count {
    FLEET_PREFIX_HITS,
    FLEET_PREFIX_MISSES,
    FLEET_PREFIX_HIT_TOKENS,
    FLEET_PREFIX_MISS_TOKENS,
    FLEET_PREFIX_INSERTED,
    FLEET_PREFIX_EVICTED,
    FLEET_PREFIX_COUNTS
};

struct fleet_prefix {
    uint32_t pages;                       /* now */
    uint64_t counts[FLEET_PREFIX_COUNTS]; /* since the worker's boot */
    uint64_t news[FLEET_PREFIX_COUNTS];   /* of them, what the last heartbeat added */
};

void fleet_prefix_take(struct fleet_prefix *prefix, const struct msg_prefix_load *load);
void fleet_prefix_measure(const struct fleet_prefix *prefix, enum worker_role role,
                          struct metrics *metrics);
void fleet_prefix_write(const struct fleet_prefix *prefix, struct json_writer *writer);

#endif
