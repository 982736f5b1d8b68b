/* Counts since boot that a worker tells with every heartbeat, and what each adds to the router's
 * own metrics. Loop thread of the fleet. */
#ifndef BATON_ROUTER_FLEET_COUNTS_H
#define BATON_ROUTER_FLEET_COUNTS_H

#include <stdint.h>

/* told, counts, news: [count]. A count that falls is a fault of the worker: it adds nothing. */
static inline void fleet_counts_take(const uint64_t *told, uint32_t count, uint64_t *counts,
                                     uint64_t *news)
{
    for (uint32_t i = 0; i < count; i++) {
        news[i] = told[i] > counts[i] ? told[i] - counts[i] : 0;
        counts[i] = told[i];
    }
}

#endif
