#include "model/net/convert_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "model/format/gguf.h"
#include "model/text/text_export.h"

enum { QUANTIZATION_VERSION = 2, KEY_BYTES = 96 };

struct keys {
    struct gguf_writer *writer;
    const char *architecture;
};

const struct architecture *convert_architecture(const struct net_config *config)
{
    const char *name = config->architecture->gguf != NULL ? config->architecture->gguf : "llama";
    return architecture_by_gguf(name, strlen(name));
}

static void put_count(const struct keys *keys, const char *suffix, uint32_t value)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s.%s", keys->architecture, suffix);
    gguf_writer_put_u32(keys->writer, key, value);
}

static void put_real(const struct keys *keys, const char *suffix, float value)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s.%s", keys->architecture, suffix);
    gguf_writer_put_f32(keys->writer, key, value);
}

static void put_text(const struct keys *keys, const char *suffix, const char *value)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s.%s", keys->architecture, suffix);
    gguf_writer_put_string(keys->writer, key, value, strlen(value));
}

/* What a GGUF file has no words for. */
static enum status check_rope(const struct keys *keys, const char *name,
                              const struct net_config *config, struct error *error)
{
    const struct rope_config *rope = &config->rope[ROPE_GLOBAL];
    const bool two = net_has(config, TRAIT_LOCAL_ROTATION);
    const char *what = two && config->rope[ROPE_LOCAL].scaling != SCALING_NONE
                           ? "of layers with a window"
                       : two && rope->scaling == SCALING_LLAMA3 ? "of some layers by factors"
                       : rope->scaling == SCALING_YARN && !rope->truncate ? "without truncation"
                                                                          : NULL;
    if (what == NULL || config->rotary == 0)
        return STATUS_OK;
    return error_set(error, STATUS_UNSUPPORTED,
                     "%s: rotations are scaled %s, which a GGUF file of %s cannot say", name, what,
                     keys->architecture);
}

static void put_rope(const struct keys *keys, const struct net_config *config)
{
    const struct rope_config *rope = &config->rope[ROPE_GLOBAL];
    if (config->rotary == 0)
        return;
    put_count(keys, "rope.dimension_count", config->rotary);
    put_real(keys, "rope.freq_base", rope->base);
    if (net_has(config, TRAIT_LOCAL_ROTATION))
        put_real(keys, "rope.freq_base_swa", config->rope[ROPE_LOCAL].base);
    /* llama3 scaling is a tensor of factors there. */
    if (rope->scaling != SCALING_LINEAR && rope->scaling != SCALING_YARN)
        return;
    put_text(keys, "rope.scaling.type", rope->scaling == SCALING_LINEAR ? "linear" : "yarn");
    put_real(keys, "rope.scaling.factor", rope->factor);
    if (rope->scaling == SCALING_LINEAR)
        return;
    put_count(keys, "rope.scaling.original_context_length", (uint32_t)rope->original_context);
    put_real(keys, "rope.scaling.yarn_beta_fast", rope->fast);
    put_real(keys, "rope.scaling.yarn_beta_slow", rope->slow);
    if (rope->attention_factor != 0.0f)
        put_real(keys, "rope.scaling.attn_factor",
                 rope->attention_factor / rope_yarn_magnitude(rope->factor));
}

/* The least pattern that gives the same windows; 0 when there is none. */
static uint32_t find_pattern(const struct net_config *config)
{
    for (uint32_t pattern = 1; pattern <= config->layers + 1; pattern++) {
        bool same = true;
        for (uint32_t layer = 0; layer < config->layers && same; layer++)
            same = net_windowed(config, layer) == ((layer + 1) % pattern != 0);
        if (same)
            return pattern;
    }
    return 0;
}

static enum status put_window(const struct keys *keys, const char *name,
                              const struct net_config *config, struct error *error)
{
    const enum net_window rule = config->architecture->window;
    uint32_t windowed = 0;
    if (config->window == 0)
        return STATUS_OK;
    for (uint32_t layer = 0; layer < config->layers; layer++)
        windowed += net_windowed(config, layer);
    const bool patterned = net_window_pattern(config) != 0;
    const uint32_t pattern = patterned ? find_pattern(config) : 1;
    if ((rule == WINDOW_EVERY && windowed != config->layers) || rule == WINDOW_UPPER ||
        pattern == 0)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: windows of %" PRIu32 " of its %" PRIu32
                         " layers cannot be said in a GGUF file of %s",
                         name, windowed, config->layers, keys->architecture);
    put_count(keys, "attention.sliding_window", config->window);
    if (patterned)
        put_count(keys, "attention.sliding_window_pattern", pattern);
    return STATUS_OK;
}

static void put_experts(const struct keys *keys, const struct net_config *config)
{
    char key[KEY_BYTES];
    const uint32_t width = config->feed_forward != 0 ? config->feed_forward : config->expert_width;
    put_count(keys, "feed_forward_length", width);
    if (config->experts == 0)
        return;
    put_count(keys, "expert_count", config->experts);
    put_count(keys, "expert_used_count", config->experts_used);
    put_count(keys, "expert_feed_forward_length", config->expert_width);
    if (config->shared_width != 0)
        put_count(keys, "expert_shared_feed_forward_length", config->shared_width);
    snprintf(key, sizeof key, "%s.expert_weights_norm", keys->architecture);
    gguf_writer_put_bool(keys->writer, key, config->experts_sum_to_one);
}

static enum status put_folder(const struct keys *keys, const char *name,
                              const struct net_config *config, struct error *error)
{
    const float usual_scale = net_config_gguf_scale(config);
    if (fabsf(config->attention_scale - usual_scale) > 1e-6f * usual_scale)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: scores of attention are scaled by %g instead of %g, which a GGUF "
                         "file of %s cannot say",
                         name, (double)config->attention_scale, (double)usual_scale,
                         keys->architecture);
    if (config->architecture->qkv_bias == NEED_REQUIRED && config->qkv_bias == NEED_NONE)
        return error_set(
            error, STATUS_UNSUPPORTED,
            "%s: queries, keys and values have no biases, which a GGUF file of %s must "
            "have",
            name, keys->architecture);
    gguf_writer_put_string(keys->writer, "general.architecture", keys->architecture,
                           strlen(keys->architecture));
    gguf_writer_put_string(keys->writer, "general.name", name, strlen(name));
    put_count(keys, "block_count", config->layers);
    put_count(keys, "context_length", config->context_tokens);
    put_count(keys, "embedding_length", config->embedding);
    put_count(keys, "vocab_size", config->vocab_count);
    put_experts(keys, config);
    put_count(keys, "attention.head_count", config->heads);
    put_count(keys, "attention.head_count_kv", config->kv_heads);
    put_count(keys, "attention.key_length", config->head_dim);
    put_count(keys, "attention.value_length", config->head_dim);
    put_real(keys,
             config->architecture->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                                    : "attention.layer_norm_epsilon",
             config->norm_epsilon);
    if (config->attention_cap != 0.0f || net_has(config, TRAIT_SOFT_CAPS))
        put_real(keys, "attn_logit_softcapping", config->attention_cap);
    if (config->logit_cap != 0.0f || net_has(config, TRAIT_SOFT_CAPS))
        put_real(keys, "final_logit_softcapping", config->logit_cap);
    TRY(check_rope(keys, name, config, error));
    put_rope(keys, config);
    TRY(put_window(keys, name, config, error));
    return STATUS_OK;
}

/* The folder's tokenizer, or the word that says that the file has none. */
static bool put_text_half(const struct keys *keys, const struct model_file *file,
                          const struct net_config *config)
{
    struct error reason;
    const char *folder = model_file_path(file);
    const enum status status = text_export(folder, config->vocab_count, keys->writer, &reason);
    if (status == STATUS_OK)
        return true;
    if (status != STATUS_NOT_FOUND)
        LOG_WARN("the tokenizer of %s was left out: %s", folder, reason.text);
    gguf_writer_put_string(keys->writer, "tokenizer.ggml.model", "no_vocab", 8);
    return false;
}

/* Keys that say how the old file was written. */
static bool key_is_old(const struct gguf_string *name)
{
    static const char *const old[] = {"general.file_type", "general.quantization_version",
                                      "general.alignment", "split.no",
                                      "split.count",       "split.tensors.count"};
    for (size_t i = 0; i < ARRAY_COUNT(old); i++)
        if (name->bytes == strlen(old[i]) && memcmp(name->data, old[i], name->bytes) == 0)
            return true;
    return false;
}

enum status convert_keys(struct gguf_writer *writer, const struct model_file *file,
                         const struct net_config *config, uint32_t file_type, bool *text_out,
                         struct error *error)
{
    const struct gguf *gguf = model_file_gguf(file);
    const struct keys keys = {writer, convert_architecture(config)->gguf};
    for (size_t i = 0; gguf != NULL && i < gguf_key_count(gguf); i++) {
        const struct gguf_raw_key key = gguf_key_at(gguf, i);
        if (!key_is_old(&key.name))
            gguf_writer_put_raw(writer, &key);
    }
    *text_out = true;
    if (gguf == NULL) {
        TRY(put_folder(&keys, model_file_name(file), config, error));
        *text_out = put_text_half(&keys, file, config);
    }
    gguf_writer_put_u32(writer, "general.file_type", file_type);
    gguf_writer_put_u32(writer, "general.quantization_version", QUANTIZATION_VERSION);
    return STATUS_OK;
}
