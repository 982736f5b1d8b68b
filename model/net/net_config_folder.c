/* Hyperparameters from a Hugging Face folder's config.json, in both styles: rope_theta and
 * rope_scaling beside one another, and rope_parameters, for all layers or by their type. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "model/net/net_config_internal.h"

/* The object being read; `where` names it in messages. */
struct source {
    const struct json *object;
    const char *name;  /* of the folder */
    const char *where; /* "config.json", "rope_scaling" … */
    struct error *error;
};

/* NULL when absent or null. */
static const struct json *find(const struct source *source, const char *key)
{
    const struct json *value = json_get(source->object, key);
    return value == NULL || json_kind(value) == JSON_NULL ? NULL : value;
}

/* Either of two names of the same thing. */
static const char *either(const struct source *source, const char *key, const char *other)
{
    return find(source, key) == NULL && find(source, other) != NULL ? other : key;
}

static enum status not_kind(const struct source *source, const char *key, const char *wanted)
{
    const struct json *value = find(source, key);
    if (value == NULL)
        return error_set(source->error, STATUS_NOT_FOUND, "%s: %s has no '%s'", source->name,
                         source->where, key);
    return error_set(source->error, STATUS_INVALID, "%s: '%s' in %s is %s, it must be %s",
                     source->name, key, source->where, json_kind_name(json_kind(value)), wanted);
}

/* A count within [1, max]. */
static enum status read_count(const struct source *source, const char *key, uint32_t max,
                              uint32_t *out)
{
    const struct json *value = find(source, key);
    if (value == NULL || json_kind(value) != JSON_INT)
        return not_kind(source, key, "an integer");
    if (json_int(value) < 1 || json_int(value) > max)
        return error_set(source->error, STATUS_INVALID,
                         "%s: '%s' in %s is %" PRId64 ", it must be from 1 to %" PRIu32,
                         source->name, key, source->where, json_int(value), max);
    *out = (uint32_t)json_int(value);
    return STATUS_OK;
}

/* *out stays where the key is absent or null. */
static enum status read_count_or(const struct source *source, const char *key, uint32_t max,
                                 uint32_t *out)
{
    return find(source, key) == NULL ? STATUS_OK : read_count(source, key, max, out);
}

/* A number within (0, max]; *out stays where the key is absent or null. */
static enum status read_real_or(const struct source *source, const char *key, double max,
                                float *out)
{
    const struct json *value = find(source, key);
    if (value == NULL)
        return STATUS_OK;
    if (json_kind(value) != JSON_INT && json_kind(value) != JSON_REAL)
        return not_kind(source, key, "a number");
    const double number = json_number(value);
    if (!(number > 0.0 && number <= max))
        return error_set(source->error, STATUS_INVALID,
                         "%s: '%s' in %s is %g, it must be above 0 and at most %g", source->name,
                         key, source->where, number, max);
    *out = (float)number;
    return STATUS_OK;
}

static enum status read_bool_or(const struct source *source, const char *key, bool *out)
{
    const struct json *value = find(source, key);
    if (value == NULL)
        return STATUS_OK;
    if (json_kind(value) != JSON_BOOL)
        return not_kind(source, key, "true or false");
    *out = json_bool(value);
    return STATUS_OK;
}

static enum status read_text(const struct source *source, const char *key, const char **out)
{
    const struct json *value = find(source, key);
    if (value == NULL || json_kind(value) != JSON_STRING)
        return not_kind(source, key, "a string");
    *out = json_string(value, NULL);
    return STATUS_OK;
}

static enum status refused(const struct source *source, const char *key, const char *what)
{
    return error_set(source->error, STATUS_UNSUPPORTED,
                     "%s: '%s' in %s is %s, which Baton does not compute", source->name, key,
                     source->where, what);
}

/* Switches that change the arithmetic in a way that is not computed, and how they must stand. */
static const struct {
    const char *key;
    bool neutral;
} switches[] = {
    {"mlp_bias", false},
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
    {"final_logit_softcapping", 0}, {"partial_rotary_factor", 1}, {"logit_scale", 1},
    {"decoder_sparse_step", 1},     {"embedding_multiplier", 1},  {"residual_multiplier", 1},
    {"attention_multiplier", 1},    {"logits_scaling", 1},        {"num_nextn_predict_layers", 0},
};

static enum status refuse_unsupported(const struct source *source)
{
    for (size_t i = 0; i < ARRAY_COUNT(switches); i++) {
        bool value = switches[i].neutral;
        TRY(read_bool_or(source, switches[i].key, &value));
        if (value != switches[i].neutral)
            return refused(source, switches[i].key, value ? "true" : "false");
    }
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++) {
        const struct json *value = find(source, numbers[i].key);
        if (value == NULL)
            continue;
        if (json_kind(value) != JSON_INT && json_kind(value) != JSON_REAL)
            return not_kind(source, numbers[i].key, "a number");
        if (json_number(value) != numbers[i].neutral)
            return refused(source, numbers[i].key, "another number than usual");
    }
    const struct json *dense = find(source, "mlp_only_layers");
    if (dense != NULL && (json_kind(dense) != JSON_ARRAY || json_count(dense) != 0))
        return refused(source, "mlp_only_layers", "not an empty list");
    return STATUS_OK;
}

static enum status check_activation(const struct source *source, const struct net_config *config)
{
    static const char *const names[] = {
        [GATE_SILU] = "silu", [GATE_GELU] = "gelu_pytorch_tanh", [ACTIVATION_GELU] = "gelu_new"};
    static const char *const keys[] = {"hidden_activation", "hidden_act", "activation_function"};
    const char *wanted = names[config->architecture->activation], *found = wanted;
    const char *key = keys[0];
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++) {
        if (find(source, keys[i]) == NULL)
            continue;
        key = keys[i];
        TRY(read_text(source, key, &found));
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

static enum status read_yarn(const struct source *source, struct rope_config *rope)
{
    float scale = 0.0f, scale_all = 0.0f;
    TRY(read_real_or(source, "beta_fast", 1e6, &rope->fast));
    TRY(read_real_or(source, "beta_slow", 1e6, &rope->slow));
    TRY(read_bool_or(source, "truncate", &rope->truncate));
    TRY(read_real_or(source, "mscale", 1e6, &scale));
    TRY(read_real_or(source, "mscale_all_dim", 1e6, &scale_all));
    const float logarithm = 0.1f * logf(rope->factor);
    if (scale != 0.0f && scale_all != 0.0f)
        rope->attention_factor = (scale * logarithm + 1.0f) / (scale_all * logarithm + 1.0f);
    return read_real_or(source, "attention_factor", 1e6, &rope->attention_factor);
}

/* One object of rope_scaling or rope_parameters. */
static enum status read_scaling(const struct source *source, const struct net_config *config,
                                struct rope_config *rope)
{
    static const struct {
        const char *name;
        enum rope_scaling scaling;
    } kinds[] = {{"default", SCALING_NONE},
                 {"linear", SCALING_LINEAR},
                 {"llama3", SCALING_LLAMA3},
                 {"yarn", SCALING_YARN}};
    const char *key = either(source, "rope_type", "type"), *type = "default";
    rope->original_context = (float)config->context_tokens;
    TRY(read_real_or(source, "rope_theta", 1e12, &rope->base));
    if (find(source, key) != NULL)
        TRY(read_text(source, key, &type));
    size_t kind = 0;
    while (kind < ARRAY_COUNT(kinds) && strcmp(kinds[kind].name, type) != 0)
        kind++;
    if (kind == ARRAY_COUNT(kinds))
        return error_set(source->error, STATUS_UNSUPPORTED,
                         "%s: '%s' in %s is '%.40s', which Baton does not compute", source->name,
                         key, source->where, type);
    rope->scaling = kinds[kind].scaling;
    if (rope->scaling == SCALING_NONE)
        return STATUS_OK;
    if (find(source, "factor") == NULL)
        return not_kind(source, "factor", "a number");
    TRY(read_real_or(source, "factor", 1e6, &rope->factor));
    TRY(read_real_or(source, "original_max_position_embeddings", NET_CONTEXT_MAX,
                     &rope->original_context));
    if (rope->scaling == SCALING_YARN)
        return read_yarn(source, rope);
    if (rope->scaling != SCALING_LLAMA3)
        return STATUS_OK;
    rope->low = 1.0f;
    rope->high = 4.0f;
    TRY(read_real_or(source, "low_freq_factor", 1e6, &rope->low));
    TRY(read_real_or(source, "high_freq_factor", 1e6, &rope->high));
    if (!(rope->low < rope->high))
        return error_set(source->error, STATUS_INVALID,
                         "%s: low_freq_factor %g in %s is not below high_freq_factor %g",
                         source->name, (double)rope->low, source->where, (double)rope->high);
    return STATUS_OK;
}

static enum status read_scaling_object(const struct source *source, const struct json *value,
                                       const char *where, const struct net_config *config,
                                       struct rope_config *rope)
{
    if (json_kind(value) != JSON_OBJECT)
        return error_set(source->error, STATUS_INVALID, "%s: %s in %s is %s, it must be an object",
                         source->name, where, source->where, json_kind_name(json_kind(value)));
    const struct source inner = {value, source->name, where, source->error};
    return read_scaling(&inner, config, rope);
}

static enum status read_rope(const struct source *source, struct net_config *config)
{
    struct rope_config *global = &config->rope[ROPE_GLOBAL], *local = &config->rope[ROPE_LOCAL];
    config->pairing = ROPE_HALVES;
    TRY(read_real_or(source, "rope_theta", 1e12, &global->base));
    const struct json *parameters = find(source, "rope_parameters");
    const struct json *scaling = find(source, "rope_scaling");
    *local = *global;
    if (parameters != NULL && json_kind(parameters) == JSON_OBJECT) {
        const struct json *full = json_get(parameters, "full_attention");
        const struct json *sliding = json_get(parameters, "sliding_attention");
        if (full != NULL || sliding != NULL) {
            if (full != NULL)
                TRY(read_scaling_object(source, full, "full_attention", config, global));
            if (sliding != NULL)
                TRY(read_scaling_object(source, sliding, "sliding_attention", config, local));
            return STATUS_OK;
        }
    }
    if (parameters != NULL)
        TRY(read_scaling_object(source, parameters, "rope_parameters", config, global));
    else if (scaling != NULL)
        TRY(read_scaling_object(source, scaling, "rope_scaling", config, global));
    *local = *global;
    if (config->architecture->window != WINDOW_PATTERN)
        return STATUS_OK;
    /* Layers that see a window turn at a base of their own and are not stretched. */
    local->scaling = SCALING_NONE;
    local->factor = 1.0f;
    local->base = 10000.0f;
    return read_real_or(source, "rope_local_base_freq", 1e12, &local->base);
}

/* layer_types names every layer's kind; without it the architecture's rule holds. */
static enum status read_layer_types(const struct source *source, const struct json *types,
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

static enum status read_window(const struct source *source, struct net_config *config)
{
    const enum net_window rule = config->architecture->window;
    const struct json *value = find(source, "sliding_window");
    const struct json *types = find(source, "layer_types");
    bool used = rule != WINDOW_UPPER;
    uint32_t first = config->layers, pattern = 6;
    TRY(read_bool_or(source, "use_sliding_window", &used));
    if (value == NULL || !used || rule == WINDOW_NONE ||
        (json_kind(value) == JSON_INT && json_int(value) == 0))
        return STATUS_OK;
    TRY(read_count(source, "sliding_window", NET_CONTEXT_MAX, &config->window));
    if (types != NULL)
        return read_layer_types(source, types, config);
    const struct json *upper = find(source, "max_window_layers");
    if (upper != NULL && json_kind(upper) == JSON_INT && json_int(upper) == 0)
        first = 0;
    else
        TRY(read_count_or(source, "max_window_layers", NET_LAYERS_MAX, &first));
    TRY(read_count_or(source, either(source, "sliding_window_pattern", "_sliding_window_pattern"),
                      NET_LAYERS_MAX, &pattern));
    net_config_set_windows(config, pattern, first);
    return STATUS_OK;
}

static enum status read_experts(const struct source *source, struct net_config *config)
{
    const char *count = either(source, "num_experts", "num_local_experts");
    const bool experts = net_has(config, TRAIT_EXPERTS) && find(source, count) != NULL;
    if (!experts) {
        const char *width = either(source, "intermediate_size", "n_inner");
        if (config->architecture->names == NAMES_GPT2 && find(source, width) == NULL) {
            config->feed_forward = 4 * config->embedding;
            return STATUS_OK;
        }
        return read_count(source, width, NET_WIDTH_MAX, &config->feed_forward);
    }
    config->experts_sum_to_one = net_has(config, TRAIT_EXPERTS_SUM_TO_ONE);
    TRY(read_count(source, count, NET_EXPERTS_MAX, &config->experts));
    TRY(read_count(source, "num_experts_per_tok", NET_EXPERTS_MAX, &config->experts_used));
    TRY(read_count(source, either(source, "moe_intermediate_size", "intermediate_size"),
                   NET_WIDTH_MAX, &config->expert_width));
    if (net_has(config, TRAIT_SHARED_EXPERT))
        TRY(read_count(source, "shared_expert_intermediate_size", NET_WIDTH_MAX,
                       &config->shared_width));
    return read_bool_or(source, "norm_topk_prob", &config->experts_sum_to_one);
}

static enum status read_heads(const struct source *source, struct net_config *config)
{
    uint32_t kv_heads;
    TRY(read_count(source, either(source, "num_attention_heads", "n_head"), NET_HEADS_MAX,
                   &config->heads));
    kv_heads = config->heads;
    TRY(read_count_or(source, "num_key_value_heads", config->heads, &kv_heads));
    for (uint32_t i = 0; i < config->layers; i++)
        config->layer_kv_heads[i] = (uint16_t)kv_heads;
    TRY(read_count_or(source, "head_dim", NET_HEAD_DIM_MAX, &config->head_dim));
    float scalar = 0.0f;
    TRY(read_real_or(source, "query_pre_attn_scalar", 1e9, &scalar));
    if (scalar != 0.0f)
        config->attention_scale = 1.0f / sqrtf(scalar);
    return read_real_or(source, "attn_logit_softcapping", 1e6, &config->attention_cap);
}

static enum status read_head(const struct source *source, struct net_config *config)
{
    const bool said = find(source, "tie_word_embeddings") != NULL;
    bool tied = net_has(config, TRAIT_TIED);
    TRY(read_bool_or(source, "tie_word_embeddings", &tied));
    config->head = tied ? HEAD_TIED : said ? HEAD_OWN : HEAD_EITHER;
    return STATUS_OK;
}

enum status net_config_read_folder(const struct model_file *file, struct net_config *config,
                                   struct error *error)
{
    const struct source source = {model_file_config(file), model_file_name(file), "config.json",
                                  error};
    const char *type = "";
    TRY(read_text(&source, "model_type", &type));
    config->architecture = architecture_by_model_type(type);
    if (config->architecture == NULL) {
        char name[40];
        snprintf(name, sizeof name, "%.39s", type);
        return architecture_unknown(source.name, name, error);
    }
    TRY(read_count(&source, either(&source, "num_hidden_layers", "n_layer"), NET_LAYERS_MAX,
                   &config->layers));
    TRY(read_count(&source, either(&source, "hidden_size", "n_embd"), NET_WIDTH_MAX,
                   &config->embedding));
    TRY(read_count(&source, "vocab_size", NET_VOCAB_MAX, &config->vocab_count));
    TRY(read_count(&source, either(&source, "max_position_embeddings", "n_positions"),
                   NET_CONTEXT_MAX, &config->context_tokens));
    config->norm_epsilon = config->architecture->norm == NORM_RMS ? 1e-6f : 1e-5f;
    TRY(read_real_or(&source, either(&source, "rms_norm_eps", "layer_norm_epsilon"), 1,
                     &config->norm_epsilon));
    TRY(read_heads(&source, config));
    TRY(read_experts(&source, config));
    TRY(check_activation(&source, config));
    TRY(read_rope(&source, config));
    TRY(read_window(&source, config));
    TRY(refuse_unsupported(&source));
    return read_head(&source, config);
}
