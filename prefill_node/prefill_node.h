/* The prefill node: reads prompts. Jobs come from routers, the prompt is computed in chunks packed
 * from several requests, pages go to the decode node as layers finish, the first token goes to the
 * router and, inside the hand-off, to the decode node.
 *
 * The noun is `struct prefill_node`, joined to a worker. Control thread only. */
#ifndef BATON_PREFILL_NODE_PREFILL_NODE_H
#define BATON_PREFILL_NODE_PREFILL_NODE_H

#include "worker/worker.h"

struct prefill_options {
    struct worker_options common; /* first: see worker_options.h */
    uint32_t ttft_target_ms;
    uint32_t max_queued_tokens;
};

struct prefill_node;

/* What the engine will ask of the model. */
void prefill_node_batch(const struct prefill_options *options, struct worker_batch *out);
/* Allocates everything, opens the hand-off's end, starts the engine. */
enum status prefill_node_create(struct worker *worker, const struct prefill_options *options,
                                struct prefill_node **out, struct error *error);
/* Stops the engine, ends what is open; all pages are free afterwards. NULL is fine. */
void prefill_node_destroy(struct prefill_node *node);
/* For worker_run, with the node as argument. */
const struct worker_node *prefill_node_events(const struct prefill_node *node);

#endif
