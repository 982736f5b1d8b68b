/* The forward pass: rows of several sequences through all layers. One `struct forward` holds every
 * buffer a call needs, sized once; a call allocates nothing. Engine thread only. */
#ifndef BATON_MODEL_NET_FORWARD_INTERNAL_H
#define BATON_MODEL_NET_FORWARD_INTERNAL_H

#include <stdint.h>

#include "base/status.h"
#include "kernels/backend.h"
#include "model/kv/page_pool.h"
#include "model/model.h"
#include "model/net/net_config_internal.h"
#include "model/net/weights_internal.h"

struct forward;

struct forward_limits {
    uint32_t rows, sequences, logit_rows; /* of one call */
    uint32_t context_tokens;
    uint32_t token_count; /* ids that may be the best of a row */
};

/* Keeps the pointers; all of them must outlive the forward. The sum of its buffers is part of a
 * NO_MEMORY sentence of the backend. */
enum status forward_create(struct backend *backend, const struct net_config *config,
                           const struct weights *weights, const struct page_pool *pages,
                           const struct forward_limits *limits, struct forward **out,
                           struct error *error);
void forward_destroy(struct forward *forward); /* NULL is fine */

/* As model_forward. */
enum status forward_run(struct forward *forward, const struct forward_sequence *sequences,
                        uint32_t sequence_count, const struct forward_hooks *hooks,
                        const float **logits_out, struct error *error);
/* As model_forward_best. */
enum status forward_run_best(struct forward *forward, const struct forward_sequence *sequences,
                             uint32_t sequence_count, const struct forward_hooks *hooks,
                             const struct forward_best **best_out, struct error *error);

#endif
