/* What a model is: its architecture row and its hyperparameters, read from the file's keys and
 * checked. Shapes: E embedding, H heads, K kv heads, D head size, F feed-forward, V vocabulary. */
#ifndef BATON_MODEL_NET_NET_CONFIG_INTERNAL_H
#define BATON_MODEL_NET_NET_CONFIG_INTERNAL_H

#include <stdint.h>

#include "base/status.h"
#include "kernels/backend.h"
#include "model/format/gguf.h"

enum tensor_need { NEED_REQUIRED, NEED_OPTIONAL };

struct architecture {
    const char *name;
    enum rope_pairing rope_pairing;
    enum tensor_need qkv_bias;
};

/* Bounds on what a file may ask for, so that products of a few of them fit 64 bits. */
enum {
    NET_LAYERS_MAX = 1024,
    NET_WIDTH_MAX = 1 << 20, /* E, F, H * D */
    NET_HEADS_MAX = 1024,
    NET_HEAD_DIM_MAX = 512,
    NET_VOCAB_MAX = 1 << 24,
    NET_CONTEXT_MAX = 1 << 26,
};

struct net_config {
    const struct architecture *architecture;
    uint32_t layers, embedding, heads, kv_heads, head_dim, feed_forward;
    uint32_t vocab_count;    /* rows of the embedding and of the head */
    uint32_t context_tokens; /* the model's own */
    uint32_t rotary;         /* leading dims of a head that turn, even */
    float norm_epsilon;
    float rope_base;
    float attention_scale; /* 1 / sqrt(D) */
};

static inline uint32_t net_query_width(const struct net_config *config)
{
    return config->heads * config->head_dim;
}

static inline uint32_t net_kv_width(const struct net_config *config)
{
    return config->kv_heads * config->head_dim;
}

/* served_tokens: the context that will be served, 0 for the model's own; a sliding window that it
 * does not reach is no reason to refuse. Errors name the key, its value and the limit. */
enum status net_config_read(const struct gguf *file, uint32_t served_tokens,
                            struct net_config *config_out, struct error *error);

#endif
