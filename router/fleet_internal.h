/* What the files of the fleet share: its slots. Not for others. */
#ifndef BATON_ROUTER_FLEET_INTERNAL_H
#define BATON_ROUTER_FLEET_INTERNAL_H

#include "router/fleet.h"

struct slot {
    struct fleet_worker worker;
    struct fleet *fleet;
    struct link *link;
    uint64_t generation;
};

struct fleet {
    struct loop *loop;
    struct fleet_rules rules;
    const struct fleet_events *events;
    void *arg;
    struct link_listener *listener;
    struct link_limits limits;
    uint32_t next_kind, turn;
    uint64_t unproven; /* as workers have reported */
    struct slot slots[PLACEMENT_WORKERS_MAX];
};

/* Of a life that goes on, else NULL. */
struct slot *fleet_slot(const struct fleet *fleet, worker_handle handle);

#endif
