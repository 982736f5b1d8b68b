/* Reads and checks the hyperparameters. Every key that would change the arithmetic is either
 * applied or refused by name: a model that is quietly computed wrong is worse than one that is
 * refused. */
#include "model/net/net_config_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/check.h"

static const struct architecture architectures[] = {
#define X(name, rope_pairing, qkv_bias) {#name, rope_pairing, qkv_bias},
#include "model/net/arch.def"
#undef X
};

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
    make_key(source, suffix, key);
    if (gguf_get_array(source->file, key, &type, &count, NULL) != STATUS_OK)
        return read_count_or(source, suffix, config->heads, config->heads, &config->kv_heads);
    if (type != GGUF_U32 && type != GGUF_I32)
        return error_set(source->error, STATUS_INVALID,
                         "%s: %s is an array of something other than 32-bit integers", source->name,
                         key);
    TRY(gguf_get_numbers(source->file, key, type, &data, &count, source->error));
    if (count != config->layers)
        return error_set(source->error, STATUS_INVALID,
                         "%s: %s has %" PRIu64 " entries for %" PRIu32 " layers", source->name, key,
                         count, config->layers);
    const uint32_t first = load_le32(data);
    for (uint64_t i = 1; i < count; i++) {
        const uint32_t value = load_le32((const uint8_t *)data + 4 * i);
        if (value != first)
            return error_set(source->error, STATUS_UNSUPPORTED,
                             "%s: %s differs between layers (%" PRIu32 " and %" PRIu32
                             "), which Baton does not compute",
                             source->name, key, first, value);
    }
    if (first == 0 || first > config->heads)
        return error_set(source->error, STATUS_INVALID,
                         "%s: %s is %" PRIu32 ", it must be from 1 to %" PRIu32, source->name, key,
                         first, config->heads);
    config->kv_heads = first;
    return STATUS_OK;
}

static enum status read_heads(const struct source *source, struct net_config *config)
{
    TRY(read_count(source, "attention.head_count", NET_HEADS_MAX, &config->heads));
    TRY(read_kv_heads(source, config));
    if (config->heads % config->kv_heads != 0)
        return error_set(source->error, STATUS_INVALID,
                         "%s: %" PRIu32 " attention heads cannot be shared out among %" PRIu32
                         " kv heads",
                         source->name, config->heads, config->kv_heads);
    uint32_t value_dim;
    TRY(read_count_or(source, "attention.key_length", NET_HEAD_DIM_MAX, 0, &config->head_dim));
    if (config->head_dim == 0) {
        if (config->embedding % config->heads != 0)
            return error_set(source->error, STATUS_INVALID,
                             "%s: an embedding of %" PRIu32 " cannot be divided among %" PRIu32
                             " heads",
                             source->name, config->embedding, config->heads);
        config->head_dim = config->embedding / config->heads;
    }
    if (config->head_dim % 2 != 0 || config->head_dim > NET_HEAD_DIM_MAX)
        return error_set(source->error, STATUS_INVALID,
                         "%s: the head size is %" PRIu32 ", it must be even and at most %d",
                         source->name, config->head_dim, NET_HEAD_DIM_MAX);
    TRY(read_count_or(source, "attention.value_length", NET_HEAD_DIM_MAX, config->head_dim,
                      &value_dim));
    if (value_dim != config->head_dim)
        return error_set(source->error, STATUS_UNSUPPORTED,
                         "%s: values of size %" PRIu32 " beside keys of size %" PRIu32
                         " are not supported",
                         source->name, value_dim, config->head_dim);
    if ((uint64_t)config->heads * config->head_dim > NET_WIDTH_MAX)
        return error_set(source->error, STATUS_LIMIT,
                         "%s: %" PRIu32 " heads of %" PRIu32 " are wider than %d", source->name,
                         config->heads, config->head_dim, NET_WIDTH_MAX);
    return STATUS_OK;
}

static enum status read_rope(const struct source *source, struct net_config *config)
{
    char key[KEY_BYTES];
    struct gguf_string type;
    TRY(read_count_or(source, "rope.dimension_count", NET_HEAD_DIM_MAX, config->head_dim,
                      &config->rotary));
    if (config->rotary % 2 != 0 || config->rotary > config->head_dim)
        return error_set(source->error, STATUS_INVALID,
                         "%s: %s is %" PRIu32
                         ", it must be even and at most the head size %" PRIu32,
                         source->name, make_key(source, "rope.dimension_count", key),
                         config->rotary, config->head_dim);
    make_key(source, "rope.freq_base", key);
    config->rope_base = 10000.0f; /* what the format says when the key is absent */
    if (gguf_get_f32(source->file, key, &config->rope_base, NULL) != STATUS_NOT_FOUND)
        TRY(read_real(source, "rope.freq_base", 1e12f, &config->rope_base));
    make_key(source, "rope.scaling.type", key);
    const enum status status = gguf_get_string(source->file, key, &type, source->error);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    TRY(status);
    if (type.bytes != strlen("none") || strncasecmp(type.data, "none", type.bytes) != 0)
        return error_set(source->error, STATUS_UNSUPPORTED,
                         "%s: %s is '%.*s', which Baton does not compute", source->name, key,
                         (int)(type.bytes < 40 ? type.bytes : 40), type.data);
    return STATUS_OK;
}

/* Keys that change the arithmetic in a way that is not computed, and the value with which they do
 * not. */
static const struct refused_key {
    const char *suffix;
    float neutral;
} refused_keys[] = {
    {"rope.scaling.factor", 1.0f},
    {"rope.scaling.attn_factor", 1.0f},
    {"rope.scale_linear", 1.0f},
    {"expert_count", 0.0f},
    {"attention.clamp_kqv", 0.0f},
    {"attention.max_alibi_bias", 0.0f},
    {"attention.causal", 1.0f},
    {"attn_logit_softcapping", 0.0f},
    {"final_logit_softcapping", 0.0f},
    {"use_parallel_residual", 0.0f},
    {"embedding_scale", 1.0f},
    {"residual_scale", 1.0f},
    {"logit_scale", 1.0f},
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

static enum status refuse_unsupported(const struct source *source, uint32_t served_tokens)
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
    make_key(source, "attention.sliding_window", key);
    const enum status status = read_any(source, key, &value);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    TRY(status);
    if (value != 0.0 && value < (double)served_tokens)
        return error_set(source->error, STATUS_UNSUPPORTED,
                         "%s: %s is %g and Baton does not compute sliding windows: serve a context "
                         "of at most %g tokens instead of %" PRIu32,
                         source->name, key, value, value, served_tokens);
    return STATUS_OK;
}

static enum status find_architecture(struct source *source, char name[32],
                                     const struct architecture **out)
{
    struct gguf_string value;
    TRY(gguf_get_string(source->file, "general.architecture", &value, source->error));
    snprintf(name, 32, "%.*s", (int)(value.bytes < 31 ? value.bytes : 31), value.data);
    for (size_t i = 0; i < ARRAY_COUNT(architectures); i++) {
        if (strlen(architectures[i].name) == value.bytes &&
            memcmp(architectures[i].name, value.data, value.bytes) == 0) {
            source->architecture = architectures[i].name;
            *out = &architectures[i];
            return STATUS_OK;
        }
    }
    struct buffer known = {0};
    for (size_t i = 0; i < ARRAY_COUNT(architectures); i++)
        buffer_printf(&known, "%s%s", i == 0 ? "" : ", ", architectures[i].name);
    const enum status status = error_set(source->error, STATUS_UNSUPPORTED,
                                         "%s: architecture '%s' is not one Baton knows (%s)",
                                         source->name, name, known.data);
    buffer_free(&known);
    return status;
}

enum status net_config_read(const struct gguf *file, uint32_t served_tokens,
                            struct net_config *config_out, struct error *error)
{
    struct net_config config = {0};
    const char *path = gguf_path(file);
    const char *slash = strrchr(path, '/');
    struct source source = {.file = file, .name = slash == NULL ? path : slash + 1, .error = error};
    char name[32];
    TRY(find_architecture(&source, name, &config.architecture));
    TRY(read_count(&source, "block_count", NET_LAYERS_MAX, &config.layers));
    TRY(read_count(&source, "embedding_length", NET_WIDTH_MAX, &config.embedding));
    TRY(read_count(&source, "feed_forward_length", NET_WIDTH_MAX, &config.feed_forward));
    TRY(read_count(&source, "context_length", NET_CONTEXT_MAX, &config.context_tokens));
    TRY(read_heads(&source, &config));
    TRY(read_rope(&source, &config));
    TRY(read_real(&source, "attention.layer_norm_rms_epsilon", 1.0f, &config.norm_epsilon));
    TRY(refuse_unsupported(&source, served_tokens == 0 ? config.context_tokens : served_tokens));
    config.attention_scale = 1.0f / sqrtf((float)config.head_dim);

    const struct gguf_tensor *embedding = gguf_tensor_find(file, "token_embd.weight");
    if (embedding == NULL)
        return error_set(error, STATUS_NOT_FOUND, "%s has no tensor 'token_embd.weight'",
                         source.name);
    if (embedding->dimensions[1] > NET_VOCAB_MAX)
        return error_set(error, STATUS_LIMIT,
                         "%s: token_embd.weight has %" PRIu64 " rows, the limit is %d", source.name,
                         embedding->dimensions[1], NET_VOCAB_MAX);
    config.vocab_count = (uint32_t)embedding->dimensions[1];
    *config_out = config;
    return STATUS_OK;
}
