/* What a model is: its architecture row and its hyperparameters, read from the keys of a GGUF file
 * or from config.json, and checked. Shapes: E embedding, H heads, K kv heads, D head size, F
 * feed-forward, V vocabulary, X experts. */
#ifndef BATON_MODEL_NET_NET_CONFIG_INTERNAL_H
#define BATON_MODEL_NET_NET_CONFIG_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/backend.h"
#include "model/format/model_file.h"

enum tensor_need { NEED_REQUIRED, NEED_OPTIONAL, NEED_NONE };
enum net_norm { NORM_RMS, NORM_LAYER };
enum net_activation {
    GATE_SILU,       /* silu(gate(x)) * up(x) */
    GATE_GELU,       /* gelu(gate(x)) * up(x) */
    ACTIVATION_GELU, /* gelu(up(x)) */
};
enum net_names { NAMES_COMMON, NAMES_MIXTRAL, NAMES_GEMMA, NAMES_GPT2 };
enum net_window {
    WINDOW_NONE,
    WINDOW_EVERY, /* every layer */
    WINDOW_UPPER, /* where use_sliding_window says so, layers from max_window_layers on */
    /* All but every so many-th, which sees everything; so many where the file says nothing else. */
    WINDOW_BUT_SECOND,
    WINDOW_BUT_SIXTH,
};
enum net_head {
    HEAD_EITHER, /* its own where the file has one, else the embedding's */
    HEAD_TIED,
    HEAD_OWN,
};
enum net_trait {
    TRAIT_QK_NORM = 1 << 0,         /* queries and keys are normed head by head */
    TRAIT_POST_NORMS = 1 << 1,      /* what attention and feed-forward add is normed */
    TRAIT_EMBEDDING_SCALE = 1 << 2, /* embeddings are multiplied by sqrt(E) */
    TRAIT_GAIN_PLUS_ONE = 1 << 3,   /* folders keep gains of norms less one */
    TRAIT_TIED = 1 << 4,            /* the head is the embedding where config.json does not say */
    TRAIT_POSITIONS = 1 << 5,       /* learned positions instead of a rotation */
    TRAIT_FUSED_QKV = 1 << 6,       /* queries, keys and values are one tensor */
    TRAIT_EXPERTS = 1 << 7,         /* may have experts */
    TRAIT_SHARED_EXPERT = 1 << 8,   /* and one that all rows go to, behind a gate */
    TRAIT_EXPERTS_SUM_TO_ONE = 1 << 9, /* norm_topk_prob where the file does not say */
    TRAIT_DENSE_LAYERS = 1 << 10,      /* of a model with experts, where the file says so */
    TRAIT_LOCAL_ROTATION = 1 << 11,    /* layers with a window turn at a base of their own */
    TRAIT_SOFT_CAPS = 1 << 12,         /* of scores and logits, at 50 and 30 if nothing is said */
    /* What config.json must say, because without it programs take values of their own. */
    TRAIT_WINDOW_SAID = 1 << 13, /* sliding_window, or null */
    TRAIT_SCORES_SAID = 1 << 14, /* how scores are scaled, and a head's size */
    TRAIT_BASE_SAID = 1 << 15,   /* rope_theta, and rms_norm_eps */
};

struct architecture {
    const char *label;
    const char *gguf, *hugging_face; /* NULL: there is no such file */
    enum net_names names;
    enum rope_pairing pairing;
    enum net_norm norm;
    enum net_activation activation;
    enum tensor_need qkv_bias;
    enum net_window window;
    unsigned traits;
};

/* Bounds on what a file may ask for, so that products of a few of them fit 64 bits. */
enum {
    NET_LAYERS_MAX = 1024,
    NET_WIDTH_MAX = 1 << 20, /* E, F, H * D */
    NET_HEADS_MAX = 1024,
    NET_HEAD_DIM_MAX = 512,
    NET_EXPERTS_MAX = 1024,
    NET_VOCAB_MAX = 1 << 24,
    NET_CONTEXT_MAX = 1 << 26,
};

enum rope_scaling { SCALING_NONE, SCALING_LINEAR, SCALING_LLAMA3, SCALING_YARN };

/* The rotation of some layers. */
struct rope_config {
    float base;
    enum rope_scaling scaling;
    float factor;           /* of the context; 1 where nothing is scaled */
    float low, high;        /* llama3: low_freq_factor, high_freq_factor */
    float slow, fast;       /* YaRN: beta_slow, beta_fast */
    bool truncate;          /* YaRN: the ends of its ramp are whole dims */
    float original_context; /* llama3, YaRN: what the model was first trained on */
    float attention_factor; /* YaRN: of sine and cosine; 0: 0.1 * ln(factor) + 1 */
};

enum { ROPE_GLOBAL, ROPE_LOCAL, ROPE_COUNT };

struct net_config {
    const struct architecture *architecture;
    uint32_t layers, embedding, heads, head_dim, feed_forward;
    uint32_t kv_heads;                       /* of the pages: the most of any layer */
    uint16_t layer_kv_heads[NET_LAYERS_MAX]; /* each divides kv_heads */
    uint32_t vocab_count;                    /* rows of the embedding and of the head */
    uint32_t context_tokens;                 /* the model's own */
    float norm_epsilon;
    float attention_scale; /* 1 / sqrt(D) as a rule */
    float attention_cap;   /* of scores; 0: none */
    float logit_cap;       /* 0: none */
    float embedding_scale; /* 1: none */
    enum net_head head;
    enum tensor_need qkv_bias, output_bias, feed_bias; /* of layers without experts */

    enum rope_pairing pairing;
    uint32_t rotary;                        /* leading dims of a head that turn, even; 0: none */
    struct rope_config rope[ROPE_COUNT];    /* of layers that see everything, and of the others */
    uint32_t window;                        /* tokens a row of a windowed layer sees; 0: all */
    uint64_t windowed[NET_LAYERS_MAX / 64]; /* a bit a layer */

    uint32_t experts, experts_used;      /* 0: dense */
    uint32_t expert_width, shared_width; /* feed-forward of an expert; shared_width 0: none */
    uint64_t dense[NET_LAYERS_MAX / 64]; /* a bit a layer: it has none of the experts */
    bool experts_sum_to_one;

    bool float8;                      /* the folder says that its weights are */
    uint32_t tile_rows, tile_columns; /* of float8 weights that share a scale; 0: the usual ones */
};

static inline uint32_t net_query_width(const struct net_config *config)
{
    return config->heads * config->head_dim;
}

static inline uint32_t net_kv_width(const struct net_config *config)
{
    return config->kv_heads * config->head_dim;
}

static inline bool net_has(const struct net_config *config, enum net_trait trait)
{
    return (config->architecture->traits & (unsigned)trait) != 0;
}

static inline bool net_windowed(const struct net_config *config, uint32_t layer)
{
    return config->window != 0 && (config->windowed[layer / 64] >> (layer % 64) & 1) != 0;
}

static inline bool net_expert_layer(const struct net_config *config, uint32_t layer)
{
    return config->experts != 0 && (config->dense[layer / 64] >> (layer % 64) & 1) == 0;
}

/* Every so many-th layer sees everything by the row's rule; 0: that is not its rule. */
static inline uint32_t net_window_pattern(const struct net_config *config)
{
    const enum net_window rule = config->architecture->window;
    return rule == WINDOW_BUT_SECOND ? 2 : rule == WINDOW_BUT_SIXTH ? 6 : 0;
}

/* The widest row that a product gives or takes. */
uint32_t net_widest(const struct net_config *config);

/* The architecture in a file's words, NULL when there is none. */
const struct architecture *architecture_by_gguf(const char *name, size_t bytes);
const struct architecture *architecture_by_model_type(const char *name);
/* Says which architectures there are; always UNSUPPORTED. */
enum status architecture_unknown(const char *file, const char *name, struct error *error);

/* served_tokens: the context that will be served, 0 for the model's own; a sliding window that it
 * does not reach is no reason to refuse. Errors name the key, its value and the limit. */
enum status net_config_read(const struct model_file *file, uint32_t served_tokens,
                            struct net_config *config_out, struct error *error);

/* The two halves of it: each reads what its kind of file says. Absent values stay as the caller has
 * set them. */
enum status net_config_read_gguf(const struct model_file *file, uint32_t served_tokens,
                                 struct net_config *config, struct error *error);
enum status net_config_read_folder(const struct model_file *file, struct net_config *config,
                                   struct error *error);
/* Begins a configuration with what its row says. */
void net_config_start(struct net_config *config, const struct architecture *architecture);
/* Layers that the row's rule gives a window, where the file does not say; pattern: every so
 * many-th has none, first: of WINDOW_UPPER. */
void net_config_set_windows(struct net_config *config, uint32_t pattern, uint32_t first);
/* What scores are multiplied by where the file is a GGUF file, which does not say. */
float net_config_gguf_scale(const struct net_config *config);
/* Bounds that hold wherever the values came from. */
enum status net_config_check(const char *name, struct net_config *config, struct error *error);

/* YaRN's factor of sine and cosine where nothing else is said. */
float rope_yarn_magnitude(float factor);
/* Inverse frequencies of `rotary / 2` pairs after scaling, and the factor of sine and cosine. */
void rope_frequencies(const struct rope_config *rope, uint32_t rotary, float *out,
                      float *magnitude_out);

#endif
