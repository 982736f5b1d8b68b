/* Which tensors a model has: one row each, with its shape, where it goes and when it must be there.
 * GGUF names are the names of the table; folders have names of their own (tensor_name_folder). */
#ifndef BATON_MODEL_NET_TENSOR_TABLE_INTERNAL_H
#define BATON_MODEL_NET_TENSOR_TABLE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/net/net_config_internal.h"

enum { TENSOR_NAME_BYTES = 256 };

enum tensor_dimension {
    ONE,
    EMBEDDING,
    VOCAB,
    CONTEXT,
    QUERY,
    KEY_VALUE,
    HEAD_DIM,
    FEED_FORWARD,
    ROTARY_HALF,
    EXPERTS,
    EXPERT_WIDTH,
    SHARED_WIDTH,
};
enum tensor_when {
    ALWAYS,
    IF_OUTPUT_BIAS,
    IF_OWN_HEAD,
    IF_ONE_ROTATION, /* and there */
    IF_POSITIONS,
    IF_LAYER_NORM,
    IF_SPLIT_QKV,
    IF_FUSED_QKV,
    IF_QKV_BIAS,
    IF_QK_NORM,
    IF_POST_NORMS,
    IF_DENSE,
    IF_DENSE_GATED,
    IF_FEED_BIAS,
    IF_GATE_BIAS,
    IF_EXPERTS,
    IF_SHARED,
};
enum tensor_form { MATRIX, VECTOR, HOST_VECTOR };
enum tensor_owner { OF_MODEL, OF_LAYER, OF_EXPERT };
/* What of a tensor a row takes. */
enum tensor_part { PART_ALL, PART_QUERY, PART_KEY, PART_VALUE };

/* A tensor of [outputs][inputs], or a vector of `inputs`. The name is the whole one, or what
 * follows "blk.N." for a tensor of a layer or of an expert; the offset is into struct weights,
 * layer_weights or expert_weights. */
struct tensor_row {
    const char *name;
    enum tensor_owner owner;
    enum tensor_form form;
    enum tensor_dimension outputs, inputs;
    enum tensor_when when;
    enum tensor_part part;
    bool gain; /* of a norm */
    size_t offset;
};

enum tensor_presence { TENSOR_ABSENT, TENSOR_OPTIONAL, TENSOR_REQUIRED };

const struct tensor_row *tensor_rows(size_t *count_out);
/* layer: of a tensor of a layer or an expert. */
enum tensor_presence tensor_presence(const struct net_config *config, const struct tensor_row *row,
                                     uint32_t layer);
uint32_t tensor_dimension_value(const struct net_config *config, enum tensor_dimension dimension);

/* The tensor's name in a GGUF file. Experts of a layer are one tensor there. */
void tensor_name_gguf(const struct tensor_row *row, uint32_t layer, char out[TENSOR_NAME_BYTES]);
/* In a folder; false when folders of this architecture have no such tensor. */
bool tensor_name_folder(const struct net_config *config, const struct tensor_row *row,
                        uint32_t layer, uint32_t expert, char out[TENSOR_NAME_BYTES]);
/* Folders of GPT-2 keep the matrices of layers as [inputs][outputs]. */
bool tensor_transposed(const struct net_config *config, const struct tensor_row *row);
/* Left by old programs, recomputed or unused: not weights. In folders of float8 weights also the
 * scales of activations and caches, which are not quantised that way here. */
bool tensor_name_ignored(const struct net_config *config, const char *name);

#endif
