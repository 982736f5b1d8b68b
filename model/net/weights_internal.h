/* The tensors of one model, packed for its backend. Owned by the model; freed by weights_release.
 *
 * Where an architecture has no such tensor a member is null, and the forward pass leaves that step
 * out. Shapes are those of net_config_internal.h; S is the width of the shared expert. */
#ifndef BATON_MODEL_NET_WEIGHTS_INTERNAL_H
#define BATON_MODEL_NET_WEIGHTS_INTERNAL_H

#include <stdint.h>

#include "base/status.h"
#include "kernels/backend.h"
#include "model/format/model_file.h"
#include "model/model.h"
#include "model/net/net_config_internal.h"

struct expert_weights {
    struct weight *gate, *up; /* [F][E] */
    struct weight *down;      /* [E][F] */
};

struct layer_weights {
    device_ptr attention_norm, attention_norm_bias;       /* [E] */
    struct weight *query, *key, *value;                   /* [H*D][E], [K*D][E], [K*D][E] */
    device_ptr query_bias, key_bias, value_bias;          /* [H*D], [K*D], [K*D] */
    device_ptr query_norm, key_norm;                      /* [D] */
    struct weight *output;                                /* [E][H*D] */
    device_ptr output_bias;                               /* [E] */
    device_ptr attention_post_norm;                       /* [E] */
    device_ptr feed_forward_norm, feed_forward_norm_bias; /* [E] */
    struct expert_weights dense;                          /* gate: where the activation has one */
    device_ptr gate_bias, up_bias, down_bias;             /* [F], [F], [E] */
    device_ptr feed_forward_post_norm;                    /* [E] */
    struct weight *router;                                /* [X][E] */
    struct expert_weights *experts;                       /* [X], NULL: a dense layer */
    struct weight *shared_router;                         /* [1][E] */
    struct expert_weights shared;                         /* of width S */
};

struct weights {
    struct weight *embedding;                 /* [V][E] */
    struct weight *positions;                 /* [context][E] */
    struct weight *own_head;                  /* [V][E], NULL when the head is tied */
    device_ptr output_norm, output_norm_bias; /* [E] */
    float *rope_factors;                      /* [rotary / 2], host memory */
    struct layer_weights *layers;             /* [layers] */
    uint32_t layer_count, expert_count;
    uint64_t bytes;        /* packed matrices and vectors */
    uint64_t tensor_bytes; /* of the files, that they were made from */
};

static inline const struct weight *weights_head(const struct weights *weights)
{
    return weights->own_head != NULL ? weights->own_head : weights->embedding;
}

/* A load may be a part of something longer. */
struct load_progress {
    void (*report)(void *arg, uint64_t done_bytes, uint64_t total_bytes); /* may be NULL */
    void *arg;
    double from, share;   /* of the whole: where this part begins and how long it is */
    uint64_t total_bytes; /* of the whole */
};
void load_progress_report(const struct load_progress *progress, uint64_t done, uint64_t total);

struct tensor_place;
struct quantize_plan;

/* The checks of weights_load alone, so that nothing is allocated for a model whose files are not
 * right. */
enum status weights_check(const struct model_file *file, const struct net_config *config,
                          struct error *error);
/* Runs visit for every tensor that a load by this plan would read. */
enum status weights_each(const struct model_file *file, const struct net_config *config,
                         struct backend *backend, const struct quantize_plan *plan,
                         enum status (*visit)(void *arg, struct tensor_place *place,
                                              struct error *error),
                         void *arg, struct error *error);

/* Checks that the files have every tensor of the table in its shape and none besides, then loads
 * them. *weights must be zeroed; after a failure weights_release frees what was loaded.
 * progress->total_bytes is set where it is 0. */
enum status weights_load(const struct model_file *file, const struct net_config *config,
                         struct backend *backend, const struct quantize_plan *plan,
                         struct load_progress *progress, struct weights *weights,
                         struct error *error);
/* Only the matrices to which the plan gives 4 bits. */
enum status weights_load_narrow(const struct model_file *file, const struct net_config *config,
                                struct backend *backend, const struct quantize_plan *plan,
                                struct weights *weights, struct error *error);
/* Those of one change places with those of the other. */
void weights_exchange(struct weights *a, struct weights *b, const struct quantize_plan *plan);
void weights_release(struct weights *weights, struct backend *backend);

#endif
