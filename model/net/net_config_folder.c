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
    /* As a float it may be nothing. */
    if (!(number > 0.0 && number <= max && (float)number > 0.0f))
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

static enum status refuse_number(const struct source *source, const char *key, double neutral)
{
    const struct json *value = find(source, key);
    if (value == NULL || (json_kind(value) == JSON_ARRAY && json_count(value) == 0))
        return STATUS_OK;
    if (json_kind(value) != JSON_INT && json_kind(value) != JSON_REAL)
        return refused(source, key, json_kind_name(json_kind(value)));
    return json_number(value) == neutral ? STATUS_OK
                                         : refused(source, key, "another number than usual");
}

static enum status refuse_unsupported(const struct source *source, const struct net_config *config)
{
    for (size_t i = 0; i < ARRAY_COUNT(switches); i++) {
        bool value = switches[i].neutral;
        TRY(read_bool_or(source, switches[i].key, &value));
        if (value != switches[i].neutral)
            return refused(source, switches[i].key, value ? "true" : "false");
    }
    for (size_t i = 0; i < ARRAY_COUNT(numbers); i++)
        TRY(refuse_number(source, numbers[i].key, numbers[i].neutral));
    for (size_t i = 0; i < ARRAY_COUNT(layer_keys); i++)
        if (!net_has(config, layer_keys[i].trait))
            TRY(refuse_number(source, layer_keys[i].key, layer_keys[i].neutral));
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
    const float logarithm = rope->factor > 1.0f ? 0.1f * logf(rope->factor) : 0.0f;
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

/* A key that is not known may change the angles. */
static enum status check_rope_keys(const struct source *source)
{
    static const char *const known[] = {
        "rope_type",       "type",
        "rope_theta",      "factor",
        "low_freq_factor", "high_freq_factor",
        "beta_fast",       "beta_slow",
        "mscale",          "mscale_all_dim",
        "truncate",        "attention_factor",
        "finetuned",       "original_max_position_embeddings",
    };
    void *cursor = NULL;
    const char *key;
    const struct json *value;
    TRY(refuse_number(source, "partial_rotary_factor", 1));
    while (json_next(source->object, &cursor, &key, &value)) {
        bool found = json_kind(value) == JSON_NULL || strcmp(key, "partial_rotary_factor") == 0;
        for (size_t i = 0; i < ARRAY_COUNT(known) && !found; i++)
            found = strcmp(key, known[i]) == 0;
        if (!found)
            return error_set(source->error, STATUS_UNSUPPORTED,
                             "%s: '%.40s' in %s is a key that Baton does not know", source->name,
                             key, source->where);
    }
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
    TRY(check_rope_keys(&inner));
    return read_scaling(&inner, config, rope);
}

static bool rope_same(const struct rope_config *a, const struct rope_config *b)
{
    return a->base == b->base && a->scaling == b->scaling && a->factor == b->factor &&
           a->low == b->low && a->high == b->high && a->slow == b->slow && a->fast == b->fast &&
           a->truncate == b->truncate && a->original_context == b->original_context &&
           a->attention_factor == b->attention_factor;
}

/* An object for each type of layer; true where rope_parameters is that. */
static bool rope_by_type(const struct json *parameters)
{
    return parameters != NULL && json_kind(parameters) == JSON_OBJECT &&
           (json_get(parameters, "full_attention") != NULL ||
            json_get(parameters, "sliding_attention") != NULL);
}

static enum status read_rope_by_type(const struct source *source, const struct json *parameters,
                                     struct net_config *config)
{
    static const char *const types[ROPE_COUNT] = {
        [ROPE_GLOBAL] = "full_attention", [ROPE_LOCAL] = "sliding_attention"};
    const struct source inner = {parameters, source->name, "rope_parameters", source->error};
    uint32_t layers[ROPE_COUNT] = {0};
    for (uint32_t layer = 0; layer < config->layers; layer++)
        layers[net_windowed(config, layer) ? ROPE_LOCAL : ROPE_GLOBAL]++;
    for (size_t i = 0; i < ROPE_COUNT; i++) {
        const struct json *value = find(&inner, types[i]);
        if (value == NULL && layers[i] != 0)
            return not_kind(&inner, types[i], "an object");
        if (value != NULL)
            TRY(read_scaling_object(&inner, value, types[i], config, &config->rope[i]));
    }
    if (json_count(parameters) >
        (size_t)(find(&inner, types[0]) != NULL) + (size_t)(find(&inner, types[1]) != NULL))
        return refused(source, "rope_parameters", "of other types of layers, too");
    if (!net_has(config, TRAIT_LOCAL_ROTATION) && layers[ROPE_GLOBAL] != 0 &&
        layers[ROPE_LOCAL] != 0 && !rope_same(&config->rope[0], &config->rope[1]))
        return refused(source, "rope_parameters", "another for each type of layer");
    if (!net_has(config, TRAIT_LOCAL_ROTATION) && layers[ROPE_GLOBAL] == 0)
        config->rope[ROPE_GLOBAL] = config->rope[ROPE_LOCAL];
    return STATUS_OK;
}

/* After the windows. */
static enum status read_rope(const struct source *source, struct net_config *config)
{
    struct rope_config *global = &config->rope[ROPE_GLOBAL], *local = &config->rope[ROPE_LOCAL];
    const struct json *parameters = find(source, "rope_parameters");
    const struct json *scaling = find(source, "rope_scaling");
    config->pairing = ROPE_HALVES;
    TRY(read_real_or(source, "rope_theta", 1e12, &global->base));
    *local = *global;
    if (rope_by_type(parameters))
        return read_rope_by_type(source, parameters, config);
    if (parameters != NULL)
        TRY(read_scaling_object(source, parameters, "rope_parameters", config, global));
    else if (scaling != NULL)
        TRY(read_scaling_object(source, scaling, "rope_scaling", config, global));
    *local = *global;
    if (!net_has(config, TRAIT_LOCAL_ROTATION))
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
    uint32_t first = config->layers, pattern = net_window_pattern(config);
    TRY(read_bool_or(source, "use_sliding_window", &used));
    if (types != NULL)
        TRY(read_layer_types(source, types, config));
    if (net_has(config, TRAIT_WINDOW_SAID) && json_get(source->object, "sliding_window") == NULL)
        return not_kind(source, "sliding_window", "an integer");
    if (value == NULL || !used || rule == WINDOW_NONE ||
        (json_kind(value) == JSON_INT && json_int(value) == 0)) {
        for (size_t i = 0; i < ARRAY_COUNT(config->windowed); i++)
            if (config->windowed[i] != 0)
                return refused(source, "layer_types", "of layers with a window that has no size");
        return STATUS_OK;
    }
    TRY(read_count(source, "sliding_window", NET_CONTEXT_MAX, &config->window));
    if (types != NULL)
        return STATUS_OK;
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

/* Every decoder_sparse_step-th layer has experts, but for those of mlp_only_layers. */
static enum status read_dense_layers(const struct source *source, struct net_config *config)
{
    uint32_t step = 1, dense = 0;
    const struct json *only = find(source, "mlp_only_layers");
    if (!net_has(config, TRAIT_DENSE_LAYERS))
        return STATUS_OK;
    TRY(read_count_or(source, "decoder_sparse_step", NET_LAYERS_MAX, &step));
    if (only != NULL && json_kind(only) != JSON_ARRAY)
        return not_kind(source, "mlp_only_layers", "a list of layers");
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
    return dense == 0
               ? STATUS_OK
               : read_count(source, "intermediate_size", NET_WIDTH_MAX, &config->feed_forward);
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
    TRY(read_dense_layers(source, config));
    return read_bool_or(source, "norm_topk_prob", &config->experts_sum_to_one);
}

/* *need stays where the key is absent: then biases are taken where they are. */
static enum status read_need_or(const struct source *source, const char *key,
                                enum tensor_need *need)
{
    bool value = false;
    if (find(source, key) == NULL)
        return STATUS_OK;
    TRY(read_bool_or(source, key, &value));
    *need = value ? NEED_REQUIRED : NEED_NONE;
    return STATUS_OK;
}

static enum status read_biases(const struct source *source, struct net_config *config)
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
static enum status read_cap(const struct source *source, const char *key, float *cap)
{
    const struct json *value = json_get(source->object, key);
    if (value != NULL && json_kind(value) == JSON_NULL)
        *cap = 0.0f;
    return read_real_or(source, key, 1e6, cap);
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
    if (net_has(config, TRAIT_SCORES_SAID) && (config->head_dim == 0 || scalar == 0.0f))
        return not_kind(source, config->head_dim == 0 ? "head_dim" : "query_pre_attn_scalar",
                        "a number");
    TRY(read_cap(source, "attn_logit_softcapping", &config->attention_cap));
    return read_cap(source, "final_logit_softcapping", &config->logit_cap);
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
    const struct architecture *architecture = architecture_by_model_type(type);
    if (architecture == NULL) {
        char name[40];
        snprintf(name, sizeof name, "%.39s", type);
        return architecture_unknown(source.name, name, error);
    }
    net_config_start(config, architecture);
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
    TRY(read_biases(&source, config));
    TRY(check_activation(&source, config));
    TRY(read_window(&source, config));
    TRY(read_rope(&source, config));
    TRY(refuse_unsupported(&source, config));
    return read_head(&source, config);
}
