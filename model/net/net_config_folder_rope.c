/* The rotation in config.json, in both styles: rope_theta and rope_scaling beside one another, and
 * rope_parameters, for all layers or by their type. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "model/net/net_config_folder_internal.h"

static enum status read_yarn(const struct folder_source *source, struct rope_config *rope)
{
    float scale = 0.0f, scale_all = 0.0f;
    TRY(folder_read_real_or(source, "beta_fast", 1e6, &rope->fast));
    TRY(folder_read_real_or(source, "beta_slow", 1e6, &rope->slow));
    TRY(folder_read_bool_or(source, "truncate", &rope->truncate));
    TRY(folder_read_real_or(source, "mscale", 1e6, &scale));
    TRY(folder_read_real_or(source, "mscale_all_dim", 1e6, &scale_all));
    const float logarithm = rope->factor > 1.0f ? 0.1f * logf(rope->factor) : 0.0f;
    if (scale != 0.0f && scale_all != 0.0f)
        rope->attention_factor = (scale * logarithm + 1.0f) / (scale_all * logarithm + 1.0f);
    return folder_read_real_or(source, "attention_factor", 1e6, &rope->attention_factor);
}

/* One object of rope_scaling or rope_parameters. */
static enum status read_scaling(const struct folder_source *source, const struct net_config *config,
                                struct rope_config *rope)
{
    static const struct {
        const char *name;
        enum rope_scaling scaling;
    } kinds[] = {{"default", SCALING_NONE},
                 {"linear", SCALING_LINEAR},
                 {"llama3", SCALING_LLAMA3},
                 {"yarn", SCALING_YARN}};
    const char *key = folder_either(source, "rope_type", "type"), *type = "default";
    rope->original_context = (float)config->context_tokens;
    TRY(folder_read_real_or(source, "rope_theta", 1e12, &rope->base));
    if (folder_find(source, key) != NULL)
        TRY(folder_read_text(source, key, &type));
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
    if (folder_find(source, "factor") == NULL)
        return folder_not_kind(source, "factor", "a number");
    TRY(folder_read_real_or(source, "factor", 1e6, &rope->factor));
    TRY(folder_read_real_or(source, "original_max_position_embeddings", NET_CONTEXT_MAX,
                            &rope->original_context));
    if (rope->scaling == SCALING_YARN)
        return read_yarn(source, rope);
    if (rope->scaling != SCALING_LLAMA3)
        return STATUS_OK;
    rope->low = 1.0f;
    rope->high = 4.0f;
    TRY(folder_read_real_or(source, "low_freq_factor", 1e6, &rope->low));
    TRY(folder_read_real_or(source, "high_freq_factor", 1e6, &rope->high));
    if (!(rope->low < rope->high))
        return error_set(source->error, STATUS_INVALID,
                         "%s: low_freq_factor %g in %s is not below high_freq_factor %g",
                         source->name, (double)rope->low, source->where, (double)rope->high);
    return STATUS_OK;
}

/* A key that is not known may change the angles. */
static enum status check_rope_keys(const struct folder_source *source)
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
    TRY(folder_refuse_number(source, "partial_rotary_factor", 1));
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

static enum status read_scaling_object(const struct folder_source *source, const struct json *value,
                                       const char *where, const struct net_config *config,
                                       struct rope_config *rope)
{
    if (json_kind(value) != JSON_OBJECT)
        return error_set(source->error, STATUS_INVALID, "%s: %s in %s is %s, it must be an object",
                         source->name, where, source->where, json_kind_name(json_kind(value)));
    const struct folder_source inner = {value, source->name, where, source->error};
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

static enum status read_rope_by_type(const struct folder_source *source,
                                     const struct json *parameters, struct net_config *config)
{
    static const char *const types[ROPE_COUNT] = {
        [ROPE_GLOBAL] = "full_attention", [ROPE_LOCAL] = "sliding_attention"};
    const struct folder_source inner = {parameters, source->name, "rope_parameters", source->error};
    uint32_t layers[ROPE_COUNT] = {0};
    for (uint32_t layer = 0; layer < config->layers; layer++)
        layers[net_windowed(config, layer) ? ROPE_LOCAL : ROPE_GLOBAL]++;
    for (size_t i = 0; i < ROPE_COUNT; i++) {
        const struct json *value = folder_find(&inner, types[i]);
        if (value == NULL && layers[i] != 0)
            return folder_not_kind(&inner, types[i], "an object");
        if (value != NULL)
            TRY(read_scaling_object(&inner, value, types[i], config, &config->rope[i]));
    }
    if (json_count(parameters) > (size_t)(folder_find(&inner, types[0]) != NULL) +
                                     (size_t)(folder_find(&inner, types[1]) != NULL))
        return folder_refused(source, "rope_parameters", "of other types of layers, too");
    if (!net_has(config, TRAIT_LOCAL_ROTATION) && layers[ROPE_GLOBAL] != 0 &&
        layers[ROPE_LOCAL] != 0 && !rope_same(&config->rope[0], &config->rope[1]))
        return folder_refused(source, "rope_parameters", "another for each type of layer");
    if (!net_has(config, TRAIT_LOCAL_ROTATION) && layers[ROPE_GLOBAL] == 0)
        config->rope[ROPE_GLOBAL] = config->rope[ROPE_LOCAL];
    return STATUS_OK;
}

static enum status read_rotations(const struct folder_source *source, struct net_config *config)
{
    struct rope_config *global = &config->rope[ROPE_GLOBAL], *local = &config->rope[ROPE_LOCAL];
    const struct json *parameters = folder_find(source, "rope_parameters");
    const struct json *scaling = folder_find(source, "rope_scaling");
    config->pairing = ROPE_HALVES;
    TRY(folder_read_real_or(source, "rope_theta", 1e12, &global->base));
    *local = *global;
    /* Programs differ in which of the two they follow. */
    if (parameters != NULL && scaling != NULL)
        return folder_refused(source, "rope_scaling", "there beside 'rope_parameters'");
    if (rope_by_type(parameters))
        return read_rope_by_type(source, parameters, config);
    if (parameters != NULL)
        TRY(read_scaling_object(source, parameters, "rope_parameters", config, global));
    if (scaling != NULL)
        TRY(read_scaling_object(source, scaling, "rope_scaling", config, global));
    *local = *global;
    if (!net_has(config, TRAIT_LOCAL_ROTATION))
        return STATUS_OK;
    /* Layers that see a window turn at a base of their own and are not stretched. */
    local->scaling = SCALING_NONE;
    local->factor = 1.0f;
    local->base = 10000.0f;
    return folder_read_real_or(source, "rope_local_base_freq", 1e12, &local->base);
}

enum status folder_read_rope(const struct folder_source *source, struct net_config *config)
{
    static const float usual = 10000.0f;
    for (size_t i = 0; i < ROPE_COUNT; i++)
        config->rope[i].base = 0.0f;
    TRY(read_rotations(source, config));
    for (size_t i = 0; i < ROPE_COUNT; i++) {
        if (config->rope[i].base != 0.0f)
            continue;
        if (net_has(config, TRAIT_BASE_SAID))
            return folder_not_kind(source, "rope_theta", "a number");
        config->rope[i].base = usual;
    }
    return STATUS_OK;
}
