/* Hyperparameters from a Hugging Face folder's config.json. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "model/net/net_config_folder_internal.h"

/* Switches that change the arithmetic in a way that is not computed, and how they must stand. */
static const struct {
    const char *key;
    bool neutral;
} switches[] = {
    {"scale_attn_by_inverse_layer_idx", false},
    {"scale_attn_weights", true},
    {"add_cross_attention", false},
    {"is_encoder_decoder", false},
    {"use_bidirectional_attention", false},
    {"alibi", false},
    {"parallel_attn", false},
};
/* Numbers of that kind. */
static const struct {
    const char *key;
    double neutral;
} numbers[] = {
    {"partial_rotary_factor", 1},
    {"rotary_pct", 1},
    {"logit_scale", 1},
    {"embedding_multiplier", 1},
    {"residual_multiplier", 1},
    {"attention_multiplier", 1},
    {"logits_scaling", 1},
    {"routed_scaling_factor", 1},
    {"n_group", 1},
    {"topk_group", 1},
    {"num_nextn_predict_layers", 0},
    {"first_k_dense_replace", 0},
    {"n_shared_experts", 0},
    {"kv_lora_rank", 0},
    {"attention_chunk_size", 0},
    {"no_rope_layer_interval", 0},
};
/* Numbers and lists that only some architectures have: neutral elsewhere, or refused. */
static const struct {
    const char *key;
    enum net_trait trait;
    double neutral;
} layer_keys[] = {
    {"decoder_sparse_step", TRAIT_DENSE_LAYERS, 1},
    {"mlp_only_layers", TRAIT_DENSE_LAYERS, 0},
    {"no_rope_layers", 0, 0},
};

static enum status refuse_unsupported(const struct folder_source *source,
                                      const struct net_config *config)
{
    for (size_t i = 0; i < ARRAY_COUNT(switches); i++) {
        bool value = switches[i].neutral;
        TRY(folder_read_bool_or(source, switches[i].key, &value));
        if (value != switches[i].neutral)
            return folder_refused(source, switches[i].key, value ? "true" : "false");
    }
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++)
        TRY(folder_refuse_number(source, numbers[i].key, numbers[i].neutral));
    for (size_t i = 0; i < ARRAY_COUNT(layer_keys); i++)
        if (!net_has(config, layer_keys[i].trait))
            TRY(folder_refuse_number(source, layer_keys[i].key, layer_keys[i].neutral));
    return STATUS_OK;
}

static enum status check_activation(const struct folder_source *source,
                                    const struct net_config *config)
{
    static const char *const names[] = {
        [GATE_SILU] = "silu", [GATE_GELU] = "gelu_pytorch_tanh", [ACTIVATION_GELU] = "gelu_new"};
    static const char *const keys[] = {"hidden_activation", "hidden_act", "activation_function"};
    const char *wanted = names[config->architecture->activation], *found = wanted;
    const char *key = keys[0];
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        if (folder_find(source, keys[i]) == NULL)
            continue;
        key = keys[i];
        TRY(folder_read_text(source, key, &found));
        break;
    }
    /* Two names of the same function. */
    if (strcmp(found, wanted) == 0 ||
        (config->architecture->activation != GATE_SILU &&
         (strcmp(found, "gelu_new") == 0 || strcmp(found, "gelu_pytorch_tanh") == 0)))
        return STATUS_OK;
    return error_set(source->error, STATUS_UNSUPPORTED,
                     "%s: '%s' in %s is '%.40s', Baton computes a %s model with '%s'", source->name,
                     key, source->where, found, config->architecture->label, wanted);
}

/* layer_types names every layer's kind; without it the architecture's rule holds. */
static enum status read_layer_types(const struct folder_source *source, const struct json *types,
                                    struct net_config *config)
{
    if (json_kind(types) != JSON_ARRAY || json_count(types) != config->layers)
        return error_set(source->error, STATUS_INVALID,
                         "%s: 'layer_types' in %s must be a list of %" PRIu32 " names",
                         source->name, source->where, config->layers);
    for (uint32_t layer = 0; layer < config->layers; layer++) {
        const struct json *item = json_at(types, layer);
        const char *name = json_kind(item) == JSON_STRING ? json_string(item, NULL) : "";
        if (strcmp(name, "sliding_attention") == 0)
            config->windowed[layer / 64] |= 1ull << (layer % 64);
        else if (strcmp(name, "full_attention") != 0)
            return error_set(source->error, STATUS_UNSUPPORTED,
                             "%s: layer %" PRIu32 " in 'layer_types' of %s is '%.40s', which Baton "
                             "does not compute",
                             source->name, layer, source->where, name);
    }
    return STATUS_OK;
}

static enum status read_window(const struct folder_source *source, struct net_config *config)
{
    const enum net_window rule = config->architecture->window;
    const struct json *value = folder_find(source, "sliding_window");
    const struct json *types = folder_find(source, "layer_types");
    bool used = rule != WINDOW_UPPER;
    uint32_t first = config->layers, pattern = net_window_pattern(config);
    TRY(folder_read_bool_or(source, "use_sliding_window", &used));
    if (types != NULL)
        TRY(read_layer_types(source, types, config));
    /* Programs have a size of their own where one is used and none is said. */
    const bool said = net_has(config, TRAIT_WINDOW_SAID) || (rule == WINDOW_UPPER && used);
    if (said && json_get(source->object, "sliding_window") == NULL)
        return folder_not_kind(source, "sliding_window", "an integer");
    if (value == NULL || !used || rule == WINDOW_NONE ||
        (json_kind(value) == JSON_INT && json_int(value) == 0)) {
        for (size_t i = 0; i < ARRAY_COUNT(config->windowed); i++)
            if (config->windowed[i] != 0)
                return folder_refused(source, "layer_types",
                                      "of layers with a window that has no size");
        return STATUS_OK;
    }
    TRY(folder_read_count(source, "sliding_window", NET_CONTEXT_MAX, &config->window));
    if (types != NULL)
        return STATUS_OK;
    const struct json *upper = folder_find(source, "max_window_layers");
    if (upper != NULL && json_kind(upper) == JSON_INT && json_int(upper) == 0)
        first = 0;
    else if (upper != NULL || rule == WINDOW_UPPER)
        TRY(folder_read_count(source, "max_window_layers", NET_LAYERS_MAX, &first));
    TRY(folder_read_count_or(
        source, folder_either(source, "sliding_window_pattern", "_sliding_window_pattern"),
        NET_LAYERS_MAX, &pattern));
    net_config_set_windows(config, pattern, first);
    return STATUS_OK;
}

/* Every decoder_sparse_step-th layer has experts, but for those of mlp_only_layers. */
static enum status read_dense_layers(const struct folder_source *source, struct net_config *config)
{
    uint32_t step = 1, dense = 0;
    const struct json *only = folder_find(source, "mlp_only_layers");
    if (!net_has(config, TRAIT_DENSE_LAYERS))
        return STATUS_OK;
    TRY(folder_read_count_or(source, "decoder_sparse_step", NET_LAYERS_MAX, &step));
    if (only != NULL && json_kind(only) != JSON_ARRAY)
        return folder_not_kind(source, "mlp_only_layers", "a list of layers");
    for (uint32_t layer = 0; layer < config->layers; layer++)
        if ((layer + 1) % step != 0)
            config->dense[layer / 64] |= 1ull << (layer % 64);
    for (size_t i = 0; only != NULL && i < json_count(only); i++) {
        const struct json *item = json_at(only, i);
        if (json_kind(item) != JSON_INT || json_int(item) < 0 || json_int(item) >= config->layers)
            return error_set(source->error, STATUS_INVALID,
                             "%s: item %zu of 'mlp_only_layers' in %s is no layer of %" PRIu32,
                             source->name, i, source->where, config->layers);
        config->dense[json_int(item) / 64] |= 1ull << (json_int(item) % 64);
    }
    for (uint32_t layer = 0; layer < config->layers; layer++)
        dense += !net_expert_layer(config, layer);
    return dense == 0 ? STATUS_OK
                      : folder_read_count(source, "intermediate_size", NET_WIDTH_MAX,
                                          &config->feed_forward);
}

static enum status read_experts(const struct folder_source *source, struct net_config *config)
{
    const char *count = folder_either(source, "num_experts", "num_local_experts");
    const bool experts = net_has(config, TRAIT_EXPERTS) && folder_find(source, count) != NULL;
    if (!experts) {
        const char *width = folder_either(source, "intermediate_size", "n_inner");
        if (config->architecture->names == NAMES_GPT2 && folder_find(source, width) == NULL) {
            config->feed_forward = 4 * config->embedding;
            return STATUS_OK;
        }
        return folder_read_count(source, width, NET_WIDTH_MAX, &config->feed_forward);
    }
    config->experts_sum_to_one = net_has(config, TRAIT_EXPERTS_SUM_TO_ONE);
    TRY(folder_read_count(source, count, NET_EXPERTS_MAX, &config->experts));
    TRY(folder_read_count(source, "num_experts_per_tok", NET_EXPERTS_MAX, &config->experts_used));
    TRY(folder_read_count(source,
                          folder_either(source, "moe_intermediate_size", "intermediate_size"),
                          NET_WIDTH_MAX, &config->expert_width));
    if (net_has(config, TRAIT_SHARED_EXPERT))
        TRY(folder_read_count(source, "shared_expert_intermediate_size", NET_WIDTH_MAX,
                              &config->shared_width));
    TRY(read_dense_layers(source, config));
    return folder_read_bool_or(source, "norm_topk_prob", &config->experts_sum_to_one);
}

/* *need stays where the key is absent: then biases are taken where they are. */
static enum status read_need_or(const struct folder_source *source, const char *key,
                                enum tensor_need *need)
{
    bool value = false;
    if (folder_find(source, key) == NULL)
        return STATUS_OK;
    TRY(folder_read_bool_or(source, key, &value));
    *need = value ? NEED_REQUIRED : NEED_NONE;
    return STATUS_OK;
}

static enum status read_biases(const struct folder_source *source, struct net_config *config)
{
    if (config->architecture->qkv_bias == NEED_OPTIONAL) {
        TRY(read_need_or(source, "attention_bias", &config->qkv_bias));
        TRY(read_need_or(source, "attention_bias", &config->output_bias));
    } else {
        TRY(read_need_or(source, "qkv_bias", &config->qkv_bias));
    }
    if (config->architecture->activation == ACTIVATION_GELU)
        return STATUS_OK;
    config->feed_bias = NEED_NONE;
    return read_need_or(source, "mlp_bias", &config->feed_bias);
}

/* null where the row has a cap: none. */
static enum status read_cap(const struct folder_source *source, const char *key, float *cap)
{
    const struct json *value = json_get(source->object, key);
    if (value != NULL && json_kind(value) == JSON_NULL)
        *cap = 0.0f;
    return folder_read_real_or(source, key, 1e6, cap);
}

static enum status read_heads(const struct folder_source *source, struct net_config *config)
{
    uint32_t kv_heads;
    TRY(folder_read_count(source, folder_either(source, "num_attention_heads", "n_head"),
                          NET_HEADS_MAX, &config->heads));
    kv_heads = config->heads;
    TRY(folder_read_count_or(source, "num_key_value_heads", config->heads, &kv_heads));
    for (uint32_t i = 0; i < config->layers; i++)
        config->layer_kv_heads[i] = (uint16_t)kv_heads;
    TRY(folder_read_count_or(source, "head_dim", NET_HEAD_DIM_MAX, &config->head_dim));
    float scalar = 0.0f;
    TRY(folder_read_real_or(source, "query_pre_attn_scalar", 1e9, &scalar));
    if (scalar != 0.0f)
        config->attention_scale = 1.0f / sqrtf(scalar);
    if (net_has(config, TRAIT_SCORES_SAID) && (config->head_dim == 0 || scalar == 0.0f))
        return folder_not_kind(source, config->head_dim == 0 ? "head_dim" : "query_pre_attn_scalar",
                               "a number");
    TRY(read_cap(source, "attn_logit_softcapping", &config->attention_cap));
    return read_cap(source, "final_logit_softcapping", &config->logit_cap);
}

static enum status read_head(const struct folder_source *source, struct net_config *config)
{
    const bool said = folder_find(source, "tie_word_embeddings") != NULL;
    bool tied = net_has(config, TRAIT_TIED);
    TRY(folder_read_bool_or(source, "tie_word_embeddings", &tied));
    config->head = tied ? HEAD_TIED : said ? HEAD_OWN : HEAD_EITHER;
    return STATUS_OK;
}

enum status net_config_read_folder(const struct model_file *file, struct net_config *config,
                                   struct error *error)
{
    const struct folder_source source = {model_file_config(file), model_file_name(file),
                                         "config.json", error};
    const char *type = "";
    TRY(folder_read_text(&source, "model_type", &type));
    const struct architecture *architecture = architecture_by_model_type(type);
    if (architecture == NULL) {
        char name[40];
        snprintf(name, sizeof name, "%.39s", type);
        return architecture_unknown(source.name, name, error);
    }
    net_config_start(config, architecture);
    TRY(folder_read_count(&source, folder_either(&source, "num_hidden_layers", "n_layer"),
                          NET_LAYERS_MAX, &config->layers));
    TRY(folder_read_count(&source, folder_either(&source, "hidden_size", "n_embd"), NET_WIDTH_MAX,
                          &config->embedding));
    TRY(folder_read_count(&source, "vocab_size", NET_VOCAB_MAX, &config->vocab_count));
    TRY(folder_read_count(&source, folder_either(&source, "max_position_embeddings", "n_positions"),
                          NET_CONTEXT_MAX, &config->context_tokens));
    config->norm_epsilon = config->architecture->norm == NORM_RMS ? 1e-6f : 1e-5f;
    if (net_has(config, TRAIT_BASE_SAID) && folder_find(&source, "rms_norm_eps") == NULL)
        return folder_not_kind(&source, "rms_norm_eps", "a number");
    TRY(folder_read_real_or(&source, folder_either(&source, "rms_norm_eps", "layer_norm_epsilon"),
                            1, &config->norm_epsilon));
    TRY(read_heads(&source, config));
    TRY(read_experts(&source, config));
    TRY(read_biases(&source, config));
    TRY(check_activation(&source, config));
    TRY(read_window(&source, config));
    TRY(folder_read_rope(&source, config));
    TRY(refuse_unsupported(&source, config));
    TRY(folder_read_quantization(&source, config));
    return read_head(&source, config);
}
