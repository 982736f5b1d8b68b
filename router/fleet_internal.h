/* What the files of the fleet share: its slots. Not for others. */
#ifndef BATON_ROUTER_FLEET_INTERNAL_H
#define BATON_ROUTER_FLEET_INTERNAL_H

#include "router/fleet.h"
#include "router/prefix_index.h"

struct slot {
    struct fleet_worker worker;
    struct fleet *fleet;
    struct link *link;
    uint64_t generation;
    /* What it tells of its prefix cache. */
    uint32_t holder;    /* in the index, PREFIX_NO_HOLDER while it is not known there */
    uint64_t news_next; /* number of its next event */
};

struct fleet {
    struct loop *loop;
    struct fleet_rules rules;
    const struct fleet_events *events;
    void *arg;
    struct link_listener *listener;
    struct link_limits limits;
    uint32_t next_kind;
    uint32_t
        turns[FLEET_MODELS_MAX];   /* each model's own: requests that take turns do not halve it */
    uint64_t unproven;             /* as workers have reported */
    struct prefix_index *prefixes; /* NULL: without */
    struct slot slots[PLACEMENT_WORKERS_MAX];
};

/* Of a life that goes on, else NULL. */
struct slot *fleet_slot(const struct fleet *fleet, worker_handle handle);

/* fleet_news.c */
/* Takes what a heartbeat tells of the worker's prefix cache. *anew_out: something is missing, so it
 * has to begin anew. INVALID with a sentence for what makes no sense. */
enum status fleet_news_take(struct slot *slot, const struct msg_prefix_news *news, bool *anew_out,
                            struct error *error);
/* Nothing is known of it any more. */
void fleet_news_forget(struct slot *slot);

#endif
