#include "model/net/tensor_table_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "model/net/weights_internal.h"

#define MODEL(member)  OF_MODEL, offsetof(struct weights, member)
#define LAYER(member)  OF_LAYER, offsetof(struct layer_weights, member)
#define EXPERT(member) OF_EXPERT, offsetof(struct expert_weights, member)
/* Several members to a line each: a matrix, a vector, the gain of a norm, a part of a tensor. */
#define TENSOR(n, w, o, f, outs, ins, wh, p, g)                                                    \
    {                                                                                              \
        .name = n, .owner = w, .offset = o, .form = f, .outputs = outs, .inputs = ins, .when = wh, \
        .part = p, .gain = g                                                                       \
    }
#define TENSOR_(...) TENSOR(__VA_ARGS__)
#define ROW(name, place, outs, ins, when)                                                          \
    TENSOR_(name, place, MATRIX, outs, ins, when, PART_ALL, false)
#define VEC(name, place, ins, when)  TENSOR_(name, place, VECTOR, ONE, ins, when, PART_ALL, false)
#define GAIN(name, place, ins, when) TENSOR_(name, place, VECTOR, ONE, ins, when, PART_ALL, true)
#define HOST(name, place, ins, when)                                                               \
    TENSOR_(name, place, HOST_VECTOR, ONE, ins, when, PART_ALL, false)
#define QKV(part, place, outs)                                                                     \
    TENSOR_("attn_qkv.weight", place, MATRIX, outs, EMBEDDING, IF_FUSED_QKV, part, false)
#define QKV_BIAS(part, place, ins)                                                                 \
    TENSOR_("attn_qkv.bias", place, VECTOR, ONE, ins, IF_FUSED_QKV, part, false)

/* clang-format off */
static const struct tensor_row rows[] = {
    ROW("token_embd.weight", MODEL(embedding), VOCAB, EMBEDDING, ALWAYS),
    ROW("position_embd.weight", MODEL(positions), CONTEXT, EMBEDDING, IF_POSITIONS),
    ROW("output.weight", MODEL(own_head), VOCAB, EMBEDDING, IF_OWN_HEAD),
    GAIN("output_norm.weight", MODEL(output_norm), EMBEDDING, ALWAYS),
    VEC("output_norm.bias", MODEL(output_norm_bias), EMBEDDING, IF_LAYER_NORM),
    HOST("rope_freqs.weight", MODEL(rope_factors), ROTARY_HALF, IF_ONE_ROTATION),

    GAIN("attn_norm.weight", LAYER(attention_norm), EMBEDDING, ALWAYS),
    VEC("attn_norm.bias", LAYER(attention_norm_bias), EMBEDDING, IF_LAYER_NORM),
    ROW("attn_q.weight", LAYER(query), QUERY, EMBEDDING, IF_SPLIT_QKV),
    ROW("attn_k.weight", LAYER(key), KEY_VALUE, EMBEDDING, IF_SPLIT_QKV),
    ROW("attn_v.weight", LAYER(value), KEY_VALUE, EMBEDDING, IF_SPLIT_QKV),
    VEC("attn_q.bias", LAYER(query_bias), QUERY, IF_QKV_BIAS),
    VEC("attn_k.bias", LAYER(key_bias), KEY_VALUE, IF_QKV_BIAS),
    VEC("attn_v.bias", LAYER(value_bias), KEY_VALUE, IF_QKV_BIAS),
    QKV(PART_QUERY, LAYER(query), QUERY),
    QKV(PART_KEY, LAYER(key), KEY_VALUE),
    QKV(PART_VALUE, LAYER(value), KEY_VALUE),
    QKV_BIAS(PART_QUERY, LAYER(query_bias), QUERY),
    QKV_BIAS(PART_KEY, LAYER(key_bias), KEY_VALUE),
    QKV_BIAS(PART_VALUE, LAYER(value_bias), KEY_VALUE),
    GAIN("attn_q_norm.weight", LAYER(query_norm), HEAD_DIM, IF_QK_NORM),
    GAIN("attn_k_norm.weight", LAYER(key_norm), HEAD_DIM, IF_QK_NORM),
    ROW("attn_output.weight", LAYER(output), EMBEDDING, QUERY, ALWAYS),
    VEC("attn_output.bias", LAYER(output_bias), EMBEDDING, IF_OUTPUT_BIAS),
    GAIN("post_attention_norm.weight", LAYER(attention_post_norm), EMBEDDING, IF_POST_NORMS),

    GAIN("ffn_norm.weight", LAYER(feed_forward_norm), EMBEDDING, ALWAYS),
    VEC("ffn_norm.bias", LAYER(feed_forward_norm_bias), EMBEDDING, IF_LAYER_NORM),
    ROW("ffn_gate.weight", LAYER(dense.gate), FEED_FORWARD, EMBEDDING, IF_DENSE_GATED),
    ROW("ffn_up.weight", LAYER(dense.up), FEED_FORWARD, EMBEDDING, IF_DENSE),
    ROW("ffn_down.weight", LAYER(dense.down), EMBEDDING, FEED_FORWARD, IF_DENSE),
    VEC("ffn_gate.bias", LAYER(gate_bias), FEED_FORWARD, IF_GATE_BIAS),
    VEC("ffn_up.bias", LAYER(up_bias), FEED_FORWARD, IF_FEED_BIAS),
    VEC("ffn_down.bias", LAYER(down_bias), EMBEDDING, IF_FEED_BIAS),
    GAIN("post_ffw_norm.weight", LAYER(feed_forward_post_norm), EMBEDDING, IF_POST_NORMS),

    ROW("ffn_gate_inp.weight", LAYER(router), EXPERTS, EMBEDDING, IF_EXPERTS),
    ROW("ffn_gate_exps.weight", EXPERT(gate), EXPERT_WIDTH, EMBEDDING, IF_EXPERTS),
    ROW("ffn_up_exps.weight", EXPERT(up), EXPERT_WIDTH, EMBEDDING, IF_EXPERTS),
    ROW("ffn_down_exps.weight", EXPERT(down), EMBEDDING, EXPERT_WIDTH, IF_EXPERTS),
    ROW("ffn_gate_inp_shexp.weight", LAYER(shared_router), ONE, EMBEDDING, IF_SHARED),
    ROW("ffn_gate_shexp.weight", LAYER(shared.gate), SHARED_WIDTH, EMBEDDING, IF_SHARED),
    ROW("ffn_up_shexp.weight", LAYER(shared.up), SHARED_WIDTH, EMBEDDING, IF_SHARED),
    ROW("ffn_down_shexp.weight", LAYER(shared.down), EMBEDDING, SHARED_WIDTH, IF_SHARED),
};

/* What folders call them; %l is the layer, %e the expert. A later row of the same name is for the
 * architectures whose row of arch.def has its scheme. */
static const struct {
    enum net_names names;
    const char *gguf, *folder;
} names[] = {
    {NAMES_COMMON, "token_embd.weight", "model.embed_tokens.weight"},
    {NAMES_COMMON, "output.weight", "lm_head.weight"},
    {NAMES_COMMON, "output_norm.weight", "model.norm.weight"},
    {NAMES_COMMON, "attn_norm.weight", "model.layers.%l.input_layernorm.weight"},
    {NAMES_COMMON, "attn_q.weight", "model.layers.%l.self_attn.q_proj.weight"},
    {NAMES_COMMON, "attn_k.weight", "model.layers.%l.self_attn.k_proj.weight"},
    {NAMES_COMMON, "attn_v.weight", "model.layers.%l.self_attn.v_proj.weight"},
    {NAMES_COMMON, "attn_q.bias", "model.layers.%l.self_attn.q_proj.bias"},
    {NAMES_COMMON, "attn_k.bias", "model.layers.%l.self_attn.k_proj.bias"},
    {NAMES_COMMON, "attn_v.bias", "model.layers.%l.self_attn.v_proj.bias"},
    {NAMES_COMMON, "attn_q_norm.weight", "model.layers.%l.self_attn.q_norm.weight"},
    {NAMES_COMMON, "attn_k_norm.weight", "model.layers.%l.self_attn.k_norm.weight"},
    {NAMES_COMMON, "attn_output.weight", "model.layers.%l.self_attn.o_proj.weight"},
    {NAMES_COMMON, "attn_output.bias", "model.layers.%l.self_attn.o_proj.bias"},
    {NAMES_COMMON, "ffn_norm.weight", "model.layers.%l.post_attention_layernorm.weight"},
    {NAMES_COMMON, "ffn_gate.weight", "model.layers.%l.mlp.gate_proj.weight"},
    {NAMES_COMMON, "ffn_up.weight", "model.layers.%l.mlp.up_proj.weight"},
    {NAMES_COMMON, "ffn_down.weight", "model.layers.%l.mlp.down_proj.weight"},
    {NAMES_COMMON, "ffn_gate.bias", "model.layers.%l.mlp.gate_proj.bias"},
    {NAMES_COMMON, "ffn_up.bias", "model.layers.%l.mlp.up_proj.bias"},
    {NAMES_COMMON, "ffn_down.bias", "model.layers.%l.mlp.down_proj.bias"},
    {NAMES_COMMON, "ffn_gate_inp.weight", "model.layers.%l.mlp.gate.weight"},
    {NAMES_COMMON, "ffn_gate_exps.weight", "model.layers.%l.mlp.experts.%e.gate_proj.weight"},
    {NAMES_COMMON, "ffn_up_exps.weight", "model.layers.%l.mlp.experts.%e.up_proj.weight"},
    {NAMES_COMMON, "ffn_down_exps.weight", "model.layers.%l.mlp.experts.%e.down_proj.weight"},
    {NAMES_COMMON, "ffn_gate_inp_shexp.weight", "model.layers.%l.mlp.shared_expert_gate.weight"},
    {NAMES_COMMON, "ffn_gate_shexp.weight", "model.layers.%l.mlp.shared_expert.gate_proj.weight"},
    {NAMES_COMMON, "ffn_up_shexp.weight", "model.layers.%l.mlp.shared_expert.up_proj.weight"},
    {NAMES_COMMON, "ffn_down_shexp.weight", "model.layers.%l.mlp.shared_expert.down_proj.weight"},
    {NAMES_MIXTRAL, "ffn_gate_inp.weight", "model.layers.%l.block_sparse_moe.gate.weight"},
    {NAMES_MIXTRAL, "ffn_gate_exps.weight",
     "model.layers.%l.block_sparse_moe.experts.%e.w1.weight"},
    {NAMES_MIXTRAL, "ffn_up_exps.weight", "model.layers.%l.block_sparse_moe.experts.%e.w3.weight"},
    {NAMES_MIXTRAL, "ffn_down_exps.weight",
     "model.layers.%l.block_sparse_moe.experts.%e.w2.weight"},
    {NAMES_GEMMA, "post_attention_norm.weight", "model.layers.%l.post_attention_layernorm.weight"},
    {NAMES_GEMMA, "ffn_norm.weight", "model.layers.%l.pre_feedforward_layernorm.weight"},
    {NAMES_GEMMA, "post_ffw_norm.weight", "model.layers.%l.post_feedforward_layernorm.weight"},
    {NAMES_GPT2, "token_embd.weight", "transformer.wte.weight"},
    {NAMES_GPT2, "position_embd.weight", "transformer.wpe.weight"},
    {NAMES_GPT2, "output.weight", "lm_head.weight"},
    {NAMES_GPT2, "output_norm.weight", "transformer.ln_f.weight"},
    {NAMES_GPT2, "output_norm.bias", "transformer.ln_f.bias"},
    {NAMES_GPT2, "attn_norm.weight", "transformer.h.%l.ln_1.weight"},
    {NAMES_GPT2, "attn_norm.bias", "transformer.h.%l.ln_1.bias"},
    {NAMES_GPT2, "attn_qkv.weight", "transformer.h.%l.attn.c_attn.weight"},
    {NAMES_GPT2, "attn_qkv.bias", "transformer.h.%l.attn.c_attn.bias"},
    {NAMES_GPT2, "attn_output.weight", "transformer.h.%l.attn.c_proj.weight"},
    {NAMES_GPT2, "attn_output.bias", "transformer.h.%l.attn.c_proj.bias"},
    {NAMES_GPT2, "ffn_norm.weight", "transformer.h.%l.ln_2.weight"},
    {NAMES_GPT2, "ffn_norm.bias", "transformer.h.%l.ln_2.bias"},
    {NAMES_GPT2, "ffn_up.weight", "transformer.h.%l.mlp.c_fc.weight"},
    {NAMES_GPT2, "ffn_up.bias", "transformer.h.%l.mlp.c_fc.bias"},
    {NAMES_GPT2, "ffn_down.weight", "transformer.h.%l.mlp.c_proj.weight"},
    {NAMES_GPT2, "ffn_down.bias", "transformer.h.%l.mlp.c_proj.bias"},
};
/* clang-format on */

const struct tensor_row *tensor_rows(size_t *count_out)
{
    *count_out = ARRAY_COUNT(rows);
    return rows;
}

static enum tensor_presence required_if(bool condition)
{
    return condition ? TENSOR_REQUIRED : TENSOR_ABSENT;
}

static enum tensor_presence needed_if(bool condition, enum tensor_need need)
{
    return !condition || need == NEED_NONE ? TENSOR_ABSENT
           : need == NEED_REQUIRED         ? TENSOR_REQUIRED
                                           : TENSOR_OPTIONAL;
}

enum tensor_presence tensor_presence(const struct net_config *config, const struct tensor_row *row,
                                     uint32_t layer)
{
    const struct architecture *a = config->architecture;
    const bool experts = net_expert_layer(config, layer);
    const bool gated = a->activation != ACTIVATION_GELU;
    switch (row->when) {
    case ALWAYS:
        return TENSOR_REQUIRED;
    case IF_OUTPUT_BIAS:
        return needed_if(true, config->output_bias);
    case IF_OWN_HEAD:
        return config->head == HEAD_OWN    ? TENSOR_REQUIRED
               : config->head == HEAD_TIED ? TENSOR_ABSENT
                                           : TENSOR_OPTIONAL;
    case IF_ONE_ROTATION:
        /* Factors of one rotation would be wrong for the other. */
        return needed_if(config->rotary != 0 && !net_has(config, TRAIT_LOCAL_ROTATION),
                         NEED_OPTIONAL);
    case IF_POSITIONS:
        return required_if(net_has(config, TRAIT_POSITIONS));
    case IF_LAYER_NORM:
        return required_if(a->norm == NORM_LAYER);
    case IF_SPLIT_QKV:
        return required_if(!net_has(config, TRAIT_FUSED_QKV));
    case IF_FUSED_QKV:
        return required_if(net_has(config, TRAIT_FUSED_QKV));
    case IF_QKV_BIAS:
        return needed_if(!net_has(config, TRAIT_FUSED_QKV), config->qkv_bias);
    case IF_QK_NORM:
        return required_if(net_has(config, TRAIT_QK_NORM));
    case IF_POST_NORMS:
        return required_if(net_has(config, TRAIT_POST_NORMS));
    case IF_DENSE:
        return required_if(!experts);
    case IF_DENSE_GATED:
        return required_if(!experts && gated);
    case IF_FEED_BIAS:
        return needed_if(!experts, config->feed_bias);
    case IF_GATE_BIAS:
        return needed_if(!experts && gated, config->feed_bias);
    case IF_EXPERTS:
        return required_if(experts);
    case IF_SHARED:
        return required_if(experts && config->shared_width != 0);
    }
    CHECK(false);
}

uint32_t tensor_dimension_value(const struct net_config *config, enum tensor_dimension dimension)
{
    switch (dimension) {
    case ONE:
        return 1;
    case EMBEDDING:
        return config->embedding;
    case VOCAB:
        return config->vocab_count;
    case CONTEXT:
        return config->context_tokens;
    case QUERY:
        return net_query_width(config);
    case KEY_VALUE:
        return net_kv_width(config);
    case HEAD_DIM:
        return config->head_dim;
    case FEED_FORWARD:
        return config->feed_forward;
    case ROTARY_HALF:
        return config->rotary / 2;
    case EXPERTS:
        return config->experts;
    case EXPERT_WIDTH:
        return config->expert_width;
    case SHARED_WIDTH:
        return config->shared_width;
    }
    CHECK(false);
}

void tensor_name_gguf(const struct tensor_row *row, uint32_t layer, char out[TENSOR_NAME_BYTES])
{
    if (row->owner == OF_MODEL)
        snprintf(out, TENSOR_NAME_BYTES, "%s", row->name);
    else
        snprintf(out, TENSOR_NAME_BYTES, "blk.%" PRIu32 ".%s", layer, row->name);
}

/* The pattern of a tensor's name, NULL when there is none. */
static const char *folder_pattern(const struct net_config *config, const char *name)
{
    const enum net_names scheme = config->architecture->names;
    const char *found = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        const bool common = names[i].names == NAMES_COMMON && scheme != NAMES_GPT2;
        if ((common || names[i].names == scheme) && strcmp(names[i].gguf, name) == 0)
            found = names[i].folder;
    }
    return found;
}

bool tensor_name_folder(const struct net_config *config, const struct tensor_row *row,
                        uint32_t layer, uint32_t expert, char out[TENSOR_NAME_BYTES])
{
    const char *pattern = folder_pattern(config, row->name);
    size_t used = 0;
    if (pattern == NULL)
        return false;
    for (const char *p = pattern; *p != 0; p++) {
        if (p[0] == '%') {
            used += (size_t)snprintf(out + used, TENSOR_NAME_BYTES - used, "%" PRIu32,
                                     p[1] == 'l' ? layer : expert);
            p++;
        } else {
            out[used++] = *p;
        }
    }
    out[used] = 0;
    return true;
}

bool tensor_transposed(const struct net_config *config, const struct tensor_row *row)
{
    return config->architecture->names == NAMES_GPT2 && row->owner == OF_LAYER &&
           row->form == MATRIX;
}

static bool ends_with_one(const char *name, const char *const *endings, size_t count)
{
    const size_t bytes = strlen(name);
    for (size_t i = 0; i < count; i++) {
        const size_t tail = strlen(endings[i]);
        if (bytes > tail && strcmp(name + bytes - tail, endings[i]) == 0)
            return true;
    }
    return false;
}

bool tensor_name_ignored(const struct net_config *config, const char *name)
{
    static const char *const old[] = {".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"};
    static const char *const float8[] = {".input_scale",  ".input_scale_ub", ".activation_scale",
                                         ".output_scale", ".k_scale",        ".v_scale"};
    return ends_with_one(name, old, ARRAY_COUNT(old)) ||
           (config->float8 && ends_with_one(name, float8, ARRAY_COUNT(float8)));
}
