/* The decode node: writes answers. It sets pages aside when a router reserves, receives the
 * prompt's pages from a prefill node (or reads the prompt itself), and computes one token a step
 * for every sequence of a batch that others join and leave at any step.
 *
 * The noun is `struct decode_node`, joined to a worker. Control thread only. */
#ifndef BATON_DECODE_NODE_DECODE_NODE_H
#define BATON_DECODE_NODE_DECODE_NODE_H

#include "worker/worker.h"

enum { DECODE_BATCH_MAX = 512 };

struct decode_options {
    struct worker_options common; /* first: see worker_options.h */
    const char *data_address;
    uint32_t max_batch;
    uint32_t lease_ms;
    uint32_t tpot_target_ms; /* 0: none */
};

struct decode_node;

/* What the engine will ask of the model. */
void decode_node_batch(const struct decode_options *options, struct worker_batch *out);
/* Allocates everything, listens for prefill nodes, starts the engine. */
enum status decode_node_create(struct worker *worker, const struct decode_options *options,
                               struct decode_node **out, struct error *error);
/* Stops the engine, ends what is open; all pages are free afterwards. NULL is fine. */
void decode_node_destroy(struct decode_node *node);
/* For worker_run, with the node as argument. */
const struct worker_node *decode_node_events(const struct decode_node *node);

#endif
