/* Hyperparameters from the keys of a GGUF file. Every key that would change the arithmetic is
 * either applied or refused by name. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/check.h"
#include "model/format/gguf.h"
#include "model/net/net_config_internal.h"

enum { KEY_BYTES = 128 };

/* One file being read. */
struct source {
    const struct gguf *file;
    const char *architecture;
    const char *name; /* of the file, without folders */
    struct error *error;
};

static const char *make_key(const struct source *source, const char *suffix, char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, "%s.%s", source->architecture, suffix);
    return key;
}

/* A count within [1, max]. */
static enum status read_count(const struct source *source, const char *suffix, uint32_t max,
                              uint32_t *out)
{
    char key[KEY_BYTES];
    uint64_t value;
    TRY(gguf_get_u64(source->file, make_key(source, suffix, key), &value, source->error));
    if (value == 0 || value > max)
        return error_set(source->error, STATUS_INVALID,
                         "%s: %s is %" PRIu64 ", it must be from 1 to %" PRIu32, source->name, key,
                         value, max);
    *out = (uint32_t)value;
    return STATUS_OK;
}

/* The same, `fallback` when the key is absent. */
static enum status read_count_or(const struct source *source, const char *suffix, uint32_t max,
                                 uint32_t fallback, uint32_t *out)
{
    char key[KEY_BYTES];
    uint64_t value;
    if (gguf_get_u64(source->file, make_key(source, suffix, key), &value, NULL) ==
        STATUS_NOT_FOUND) {
        *out = fallback;
        return STATUS_OK;
    }
    return read_count(source, suffix, max, out);
}

/* A number within (0, max]. */
static enum status read_real(const struct source *source, const char *suffix, float max, float *out)
{
    char key[KEY_BYTES];
    float value;
    TRY(gguf_get_f32(source->file, make_key(source, suffix, key), &value, source->error));
    if (!(value > 0.0f && value <= max))
        return error_set(source->error, STATUS_INVALID,
                         "%s: %s is %g, it must be above 0 and at most %g", source->name, key,
                         (double)value, (double)max);
    *out = value;
    return STATUS_OK;
}

/* kv heads may be one number, absent (as many as heads), or an array with one entry a layer. */
static enum status read_kv_heads(const struct source *source, struct net_config *config)
{
    static const char suffix[] = "attention.head_count_kv";
    char key[KEY_BYTES];
    enum gguf_value_type type;
    uint64_t count;
    const void *data;
    uint32_t every = 0;
    make_key(source, suffix, key);
    if (gguf_get_array(source->file, key, &type, &count, NULL) != STATUS_OK) {
        TRY(read_count_or(source, suffix, config->heads, config->heads, &every));
        for (uint32_t i = 0; i < config->layers; i++)
            config->layer_kv_heads[i] = (uint16_t)every;
        return STATUS_OK;
    }
    if (type != GGUF_U32 && type != GGUF_I32)
        return error_set(source->error, STATUS_INVALID,
                         "%s: %s is an array of something other than 32-bit integers", source->name,
                         key);
    TRY(gguf_get_numbers(source->file, key, type, &data, &count, source->error));
    if (count != config->layers)
        return error_set(source->error, STATUS_INVALID,
                         "%s: %s has %" PRIu64 " entries for %" PRIu32 " layers", source->name, key,
                         count, config->layers);
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t value = load_le32((const uint8_t *)data + 4 * i);
        if (value == 0 || value > config->heads)
            return error_set(source->error, STATUS_INVALID,
                             "%s: %s is %" PRIu32 ", it must be from 1 to %" PRIu32, source->name,
                             key, value, config->heads);
        config->layer_kv_heads[i] = (uint16_t)value;
    }
    return STATUS_OK;
}

static enum status read_heads(const struct source *source, struct net_config *config)
{
    TRY(read_count(source, "attention.head_count", NET_HEADS_MAX, &config->heads));
    TRY(read_kv_heads(source, config));
    uint32_t value_dim;
    TRY(read_count_or(source, "attention.key_length", NET_HEAD_DIM_MAX, 0, &config->head_dim));
    const uint32_t own_dim =
        config->head_dim != 0 ? config->head_dim : config->embedding / config->heads;
    TRY(read_count_or(source, "attention.value_length", NET_HEAD_DIM_MAX, own_dim, &value_dim));
    if (value_dim != own_dim)
        return error_set(source->error, STATUS_UNSUPPORTED,
                         "%s: values of size %" PRIu32 " beside keys of size %" PRIu32
                         " are not supported",
                         source->name, value_dim, own_dim);
    return STATUS_OK;
}

/* A number that may be absent; it must be above 0 and at most `max`. */
static enum status read_real_or(const struct source *source, const char *suffix, float max,
                                float *value)
{
    char key[KEY_BYTES];
    float unused;
    make_key(source, suffix, key);
    if (gguf_get_f32(source->file, key, &unused, NULL) == STATUS_NOT_FOUND)
        return STATUS_OK;
    return read_real(source, suffix, max, value);
}

/* rope.scaling.*; older files have rope.scale_linear alone. */
static enum status read_scaling(const struct source *source, struct rope_config *rope)
{
    static const struct {
        const char *name;
        enum rope_scaling scaling;
    } kinds[] = {{"none", SCALING_NONE}, {"linear", SCALING_LINEAR}, {"yarn", SCALING_YARN}};
    char key[KEY_BYTES];
    struct gguf_string type;
    float old_factor = 1.0f;
    TRY(read_real_or(source, "rope.scale_linear", 1e6f, &old_factor));
    TRY(read_real_or(source, "rope.scaling.factor", 1e6f, &rope->factor));
    make_key(source, "rope.scaling.type", key);
    const enum status status = gguf_get_string(source->file, key, &type, source->error);
    if (status == STATUS_NOT_FOUND) {
        /* The format takes a factor without a type for a linear one. */
        if (old_factor != 1.0f)
            rope->factor = old_factor;
        rope->scaling = rope->factor != 1.0f ? SCALING_LINEAR : SCALING_NONE;
        return STATUS_OK;
    }
    TRY(status);
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        if (type.bytes != strlen(kinds[i].name) ||
            strncasecmp(type.data, kinds[i].name, type.bytes) != 0)
            continue;
        rope->scaling = kinds[i].scaling;
        return STATUS_OK;
    }
    return error_set(source->error, STATUS_UNSUPPORTED,
                     "%s: %s is '%.*s', which Baton does not compute", source->name, key,
                     (int)(type.bytes < 40 ? type.bytes : 40), type.data);
}

static enum status read_yarn(const struct source *source, const struct net_config *config,
                             struct rope_config *rope)
{
    uint32_t original = config->context_tokens;
    float extra = 1.0f;
    TRY(read_count_or(source, "rope.scaling.original_context_length", NET_CONTEXT_MAX, original,
                      &original));
    TRY(read_real_or(source, "rope.scaling.yarn_beta_fast", 1e6f, &rope->fast));
    TRY(read_real_or(source, "rope.scaling.yarn_beta_slow", 1e6f, &rope->slow));
    TRY(read_real_or(source, "rope.scaling.attn_factor", 1e6f, &extra));
    rope->original_context = (float)original;
    rope->attention_factor = extra * rope_yarn_magnitude(rope->factor);
    return STATUS_OK;
}

static enum status read_rope(const struct source *source, struct net_config *config)
{
    struct rope_config *global = &config->rope[ROPE_GLOBAL], *local = &config->rope[ROPE_LOCAL];
    const bool two = net_has(config, TRAIT_LOCAL_ROTATION);
    config->pairing = config->architecture->pairing;
    TRY(read_count_or(source, "rope.dimension_count", NET_HEAD_DIM_MAX, 0, &config->rotary));
    TRY(read_real_or(source, "rope.freq_base", 1e12f, &global->base));
    TRY(read_scaling(source, global));
    if (global->scaling == SCALING_YARN)
        TRY(read_yarn(source, config, global));
    if (!two) {
        *local = *global;
        return STATUS_OK;
    }
    /* Layers that see a window turn at a base of their own and are not stretched. */
    local->base = 10000.0f;
    return read_real_or(source, "rope.freq_base_swa", 1e12f, &local->base);
}

/* Keys that change the arithmetic in a way that is not computed, and the value with which they do
 * not. */
static const struct refused_key {
    const char *suffix;
    float neutral;
} refused_keys[] = {
    {"attention.clamp_kqv", 0.0f},   {"attention.max_alibi_bias", 0.0f},
    {"attention.scale", 0.0f},       {"attention.causal", 1.0f},
    {"use_parallel_residual", 0.0f}, {"embedding_scale", 1.0f},
    {"residual_scale", 1.0f},        {"logit_scale", 1.0f},
    {"expert_gating_func", 1.0f},    {"expert_weights_scale", 1.0f},
    {"expert_group_count", 0.0f},    {"leading_dense_block_count", 0.0f},
};

/* A number or truth value of any type; NOT_FOUND when absent. */
static enum status read_any(const struct source *source, const char *key, double *out)
{
    bool truth;
    uint64_t integer;
    float real;
    if (gguf_get_u64(source->file, key, &integer, NULL) == STATUS_OK) {
        *out = (double)integer;
        return STATUS_OK;
    }
    if (gguf_get_bool(source->file, key, &truth, NULL) == STATUS_OK) {
        *out = truth ? 1.0 : 0.0;
        return STATUS_OK;
    }
    TRY(gguf_get_f32(source->file, key, &real, source->error));
    *out = (double)real;
    return STATUS_OK;
}

static enum status refuse_unsupported(const struct source *source)
{
    char key[KEY_BYTES];
    double value;
    for (size_t i = 0; i < ARRAY_COUNT(refused_keys); i++) {
        make_key(source, refused_keys[i].suffix, key);
        const enum status status = read_any(source, key, &value);
        if (status == STATUS_NOT_FOUND)
            continue;
        TRY(status);
        if (value != (double)refused_keys[i].neutral)
            return error_set(source->error, STATUS_UNSUPPORTED,
                             "%s: %s is %g, which Baton does not compute", source->name, key,
                             value);
    }
    return STATUS_OK;
}

/* An architecture whose files do not say which layers a window is for may be served up to it. */
static enum status read_window(const struct source *source, uint32_t served_tokens,
                               struct net_config *config)
{
    uint32_t pattern = net_window_pattern(config);
    char key[KEY_BYTES];
    double value = 0;
    make_key(source, "attention.sliding_window", key);
    const enum status status = read_any(source, key, &value);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    TRY(status);
    if (value == 0)
        return STATUS_OK;
    const enum net_window rule = config->architecture->window;
    if (rule == WINDOW_EVERY || pattern != 0) {
        TRY(read_count(source, "attention.sliding_window", NET_CONTEXT_MAX, &config->window));
        TRY(read_count_or(source, "attention.sliding_window_pattern", NET_LAYERS_MAX, pattern,
                          &pattern));
        net_config_set_windows(config, pattern, 0);
        return STATUS_OK;
    }
    const uint32_t served = served_tokens == 0 ? config->context_tokens : served_tokens;
    if (value < (double)served)
        return error_set(source->error, STATUS_UNSUPPORTED,
                         "%s: %s is %g and Baton does not know for which layers: serve a context "
                         "of at most %g tokens instead of %" PRIu32,
                         source->name, key, value, value, served);
    return STATUS_OK;
}

static enum status read_experts(const struct source *source, struct net_config *config)
{
    char key[KEY_BYTES];
    uint64_t count = 0;
    config->experts_sum_to_one = true;
    enum status status =
        gguf_get_u64(source->file, make_key(source, "expert_count", key), &count, NULL);
    if (status == STATUS_NOT_FOUND || (status == STATUS_OK && count == 0))
        return read_count(source, "feed_forward_length", NET_WIDTH_MAX, &config->feed_forward);
    TRY(read_count(source, "expert_count", NET_EXPERTS_MAX, &config->experts));
    TRY(read_count(source, "expert_used_count", NET_EXPERTS_MAX, &config->experts_used));
    /* The feed-forward of a llama with experts is theirs. */
    TRY(read_count_or(source, "expert_feed_forward_length", NET_WIDTH_MAX, 0,
                      &config->expert_width));
    if (config->expert_width == 0)
        TRY(read_count(source, "feed_forward_length", NET_WIDTH_MAX, &config->expert_width));
    if (net_has(config, TRAIT_SHARED_EXPERT)) {
        TRY(read_count(source, "expert_shared_feed_forward_length", NET_WIDTH_MAX,
                       &config->shared_width));
        config->experts_sum_to_one = false;
    }
    status = gguf_get_bool(source->file, make_key(source, "expert_weights_norm", key),
                           &config->experts_sum_to_one, source->error);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* A layer without a router is dense, with the feed-forward of models without experts. */
static enum status read_dense_layers(const struct source *source, const struct model_file *file,
                                     struct net_config *config)
{
    char name[KEY_BYTES];
    if (config->experts == 0 || !net_has(config, TRAIT_DENSE_LAYERS))
        return STATUS_OK;
    for (uint32_t layer = 0; layer < config->layers; layer++) {
        snprintf(name, sizeof name, "blk.%" PRIu32 ".ffn_gate_inp.weight", layer);
        if (model_file_tensor_find(file, name, NULL) != NULL)
            continue;
        snprintf(name, sizeof name, "blk.%" PRIu32 ".ffn_gate.weight", layer);
        if (model_file_tensor_find(file, name, NULL) == NULL)
            continue;
        config->dense[layer / 64] |= 1ull << (layer % 64);
        TRY(read_count(source, "feed_forward_length", NET_WIDTH_MAX, &config->feed_forward));
    }
    return STATUS_OK;
}

/* 0: none. */
static enum status read_cap(const struct source *source, const char *suffix, float *cap)
{
    char key[KEY_BYTES];
    double value = 1.0;
    const enum status status = read_any(source, make_key(source, suffix, key), &value);
    if (status == STATUS_OK && value == 0.0) {
        *cap = 0.0f;
        return STATUS_OK;
    }
    return read_real_or(source, suffix, 1e6f, cap);
}

float net_config_gguf_scale(const struct net_config *config)
{
    /* The largest model of each of two families, alone of so many layers, takes the embedding's
     * share of a head. */
    static const struct {
        enum net_window window;
        uint32_t layers;
    } by_share[] = {{WINDOW_BUT_SECOND, 46}, {WINDOW_BUT_SIXTH, 62}};
    const uint32_t head =
        config->head_dim != 0 ? config->head_dim : config->embedding / config->heads;
    for (size_t i = 0; i < ARRAY_COUNT(by_share); i++)
        if (config->architecture->window == by_share[i].window &&
            config->layers == by_share[i].layers)
            return 1.0f / sqrtf((float)config->embedding / (float)config->heads);
    return 1.0f / sqrtf((float)head);
}

static enum status find_architecture(struct source *source, const struct architecture **out)
{
    struct gguf_string value;
    TRY(gguf_get_string(source->file, "general.architecture", &value, source->error));
    *out = architecture_by_gguf(value.data, value.bytes);
    if (*out != NULL) {
        source->architecture = (*out)->gguf;
        return STATUS_OK;
    }
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)(value.bytes < 31 ? value.bytes : 31), value.data);
    return architecture_unknown(source->name, name, source->error);
}

enum status net_config_read_gguf(const struct model_file *file, uint32_t served_tokens,
                                 struct net_config *config, struct error *error)
{
    struct source source = {
        .file = model_file_gguf(file), .name = model_file_name(file), .error = error};
    const struct architecture *architecture = NULL;
    TRY(find_architecture(&source, &architecture));
    net_config_start(config, architecture);
    TRY(read_count(&source, "block_count", NET_LAYERS_MAX, &config->layers));
    TRY(read_count(&source, "embedding_length", NET_WIDTH_MAX, &config->embedding));
    TRY(read_count(&source, "context_length", NET_CONTEXT_MAX, &config->context_tokens));
    TRY(read_experts(&source, config));
    TRY(read_dense_layers(&source, file, config));
    TRY(read_heads(&source, config));
    TRY(read_rope(&source, config));
    TRY(read_real(&source,
                  config->architecture->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                                         : "attention.layer_norm_epsilon",
                  1.0f, &config->norm_epsilon));
    TRY(read_cap(&source, "attn_logit_softcapping", &config->attention_cap));
    TRY(read_cap(&source, "final_logit_softcapping", &config->logit_cap));
    TRY(refuse_unsupported(&source));
    TRY(read_window(&source, served_tokens, config));
    config->attention_scale = net_config_gguf_scale(config);
    const struct tensor_view *embedding = model_file_tensor_find(file, "token_embd.weight", NULL);
    if (embedding == NULL)
        return error_set(error, STATUS_NOT_FOUND, "%s has no tensor 'token_embd.weight'",
                         source.name);
    if (embedding->dimensions[1] > NET_VOCAB_MAX)
        return error_set(error, STATUS_LIMIT,
                         "%s: token_embd.weight has %" PRIu64 " rows, the limit is %d", source.name,
                         embedding->dimensions[1], NET_VOCAB_MAX);
    config->vocab_count = (uint32_t)embedding->dimensions[1];
    return STATUS_OK;
}
