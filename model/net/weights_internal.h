/* The tensors of one model, packed for its backend. Owned by the model; freed by weights_release.
 */
#ifndef BATON_MODEL_NET_WEIGHTS_INTERNAL_H
#define BATON_MODEL_NET_WEIGHTS_INTERNAL_H

#include <stdint.h>

#include "base/status.h"
#include "kernels/backend.h"
#include "model/format/gguf.h"
#include "model/net/net_config_internal.h"

struct layer_weights {
    device_ptr attention_norm;                   /* [E] */
    struct weight *query, *key, *value;          /* [H*D][E], [K*D][E], [K*D][E] */
    device_ptr query_bias, key_bias, value_bias; /* [H*D], [K*D], [K*D] or null */
    struct weight *output;                       /* [E][H*D] */
    device_ptr output_bias;                      /* [E] or null */
    device_ptr feed_forward_norm;                /* [E] */
    struct weight *gate, *up;                    /* [F][E] */
    struct weight *down;                         /* [E][F] */
};

struct weights {
    struct weight *embedding;     /* [V][E] */
    struct weight *own_head;      /* [V][E], NULL when the head is tied */
    device_ptr output_norm;       /* [E] */
    float *rope_factors;          /* [rotary / 2], host memory; NULL when the file has none */
    struct layer_weights *layers; /* [layers] */
    uint32_t layer_count;
    uint64_t bytes;        /* packed matrices and vectors */
    uint64_t tensor_bytes; /* of the file, that they were made from */
};

static inline const struct weight *weights_head(const struct weights *weights)
{
    return weights->own_head != NULL ? weights->own_head : weights->embedding;
}

struct load_progress {
    void (*report)(void *arg, uint64_t done_bytes, uint64_t total_bytes); /* may be NULL */
    void *arg;
};

/* Checks that the file has every tensor of the table in its shape and none besides, then loads
 * them. *weights must be zeroed; after a failure weights_release frees what was loaded. */
enum status weights_load(const struct gguf *file, const struct net_config *config,
                         struct backend *backend, const struct load_progress *progress,
                         struct weights *weights, struct error *error);
void weights_release(struct weights *weights, struct backend *backend);

#endif
