/* Hyperparameters: the architectures, and what holds wherever the values came from. Every value
 * that would change the arithmetic is either applied or refused by name: a model that is quietly
 * computed wrong is worse than one that is refused. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "model/net/net_config_internal.h"

static const struct architecture architectures[] = {
#define X(label, gguf, hugging_face, names, pairing, norm, activation, qkv_bias, window, traits)   \
    {#label, gguf, hugging_face, names, pairing, norm, activation, qkv_bias, window, traits},
#include "model/net/arch.def"
#undef X
};

const struct architecture *architecture_by_gguf(const char *name, size_t bytes)
{
    for (size_t i = 0; i < ARRAY_COUNT(architectures); i++) {
        const char *own = architectures[i].gguf;
        if (own != NULL && strlen(own) == bytes && memcmp(own, name, bytes) == 0)
            return &architectures[i];
    }
    return NULL;
}

const struct architecture *architecture_by_model_type(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(architectures); i++) {
        const char *own = architectures[i].hugging_face;
        if (own != NULL && strcmp(own, name) == 0)
            return &architectures[i];
    }
    return NULL;
}

enum status architecture_unknown(const char *file, const char *name, struct error *error)
{
    struct buffer known = {0};
    for (size_t i = 0; i < ARRAY_COUNT(architectures); i++)
        buffer_printf(&known, "%s%s", i == 0 ? "" : ", ", architectures[i].label);
    const enum status status =
        error_set(error, STATUS_UNSUPPORTED, "%s: architecture '%s' is not one Baton knows (%s)",
                  file, name, known.data);
    buffer_free(&known);
    return status;
}

uint32_t net_widest(const struct net_config *c)
{
    const uint32_t widths[] = {c->embedding,    net_query_width(c), net_kv_width(c),
                               c->feed_forward, c->expert_width,    c->shared_width,
                               c->experts};
    uint32_t widest = 0;
    for (size_t i = 0; i < ARRAY_COUNT(widths); i++)
        widest = widths[i] > widest ? widths[i] : widest;
    return widest;
}

void net_config_start(struct net_config *config, const struct architecture *architecture)
{
    config->architecture = architecture;
    config->qkv_bias = architecture->qkv_bias;
    config->output_bias = NEED_OPTIONAL;
    config->feed_bias = architecture->activation == ACTIVATION_GELU ? NEED_REQUIRED : NEED_OPTIONAL;
    if (net_has(config, TRAIT_SOFT_CAPS)) {
        config->attention_cap = 50.0f;
        config->logit_cap = 30.0f;
    }
}

void net_config_set_windows(struct net_config *config, uint32_t pattern, uint32_t first)
{
    for (uint32_t layer = 0; layer < config->layers; layer++) {
        const enum net_window rule = config->architecture->window;
        const bool windowed = rule == WINDOW_EVERY || (rule == WINDOW_UPPER && layer >= first) ||
                              (net_window_pattern(config) != 0 && (layer + 1) % pattern != 0);
        if (windowed)
            config->windowed[layer / 64] |= 1ull << (layer % 64);
    }
}

static enum status check_heads(const char *name, struct net_config *config, struct error *error)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < config->layers; i++)
        most = config->layer_kv_heads[i] > most ? config->layer_kv_heads[i] : most;
    config->kv_heads = most;
    for (uint32_t i = 0; i < config->layers; i++) {
        const uint32_t own = config->layer_kv_heads[i];
        if (own == 0 || config->heads % own != 0 || config->heads % most != 0)
            return error_set(error, STATUS_INVALID,
                             "%s: %" PRIu32 " attention heads cannot be shared out among %" PRIu32
                             " kv heads",
                             name, config->heads, own);
        if (most % own != 0)
            return error_set(error, STATUS_UNSUPPORTED,
                             "%s: layers of %" PRIu32 " and of %" PRIu32
                             " kv heads in one model are not supported: one must divide the other",
                             name, own, most);
    }
    if (config->head_dim == 0) {
        if (config->embedding % config->heads != 0)
            return error_set(error, STATUS_INVALID,
                             "%s: an embedding of %" PRIu32 " cannot be divided among %" PRIu32
                             " heads",
                             name, config->embedding, config->heads);
        config->head_dim = config->embedding / config->heads;
    }
    if (config->head_dim % 2 != 0 || config->head_dim > NET_HEAD_DIM_MAX)
        return error_set(error, STATUS_INVALID,
                         "%s: the head size is %" PRIu32 ", it must be even and at most %d", name,
                         config->head_dim, NET_HEAD_DIM_MAX);
    if ((uint64_t)config->heads * config->head_dim > NET_WIDTH_MAX)
        return error_set(error, STATUS_LIMIT,
                         "%s: %" PRIu32 " heads of %" PRIu32 " are wider than %d", name,
                         config->heads, config->head_dim, NET_WIDTH_MAX);
    return STATUS_OK;
}

enum status net_config_check(const char *name, struct net_config *config, struct error *error)
{
    TRY(check_heads(name, config, error));
    if (net_has(config, TRAIT_POSITIONS))
        config->rotary = 0;
    else if (config->rotary == 0)
        config->rotary = config->head_dim;
    if (config->rotary % 2 != 0 || config->rotary > config->head_dim)
        return error_set(error, STATUS_INVALID,
                         "%s: rope.dimension_count is %" PRIu32
                         ", it must be even and at most the head size %" PRIu32,
                         name, config->rotary, config->head_dim);
    if (config->experts != 0 && !net_has(config, TRAIT_EXPERTS))
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: %" PRIu32 " experts in a %s model, which Baton does not compute",
                         name, config->experts, config->architecture->label);
    if (config->experts_used > config->experts)
        return error_set(error, STATUS_INVALID,
                         "%s: a row takes %" PRIu32 " of %" PRIu32 " experts", name,
                         config->experts_used, config->experts);
    if (config->attention_scale == 0.0f)
        config->attention_scale = 1.0f / sqrtf((float)config->head_dim);
    if (net_has(config, TRAIT_EMBEDDING_SCALE))
        config->embedding_scale = sqrtf((float)config->embedding);
    return STATUS_OK;
}

enum status net_config_read(const struct model_file *file, uint32_t served_tokens,
                            struct net_config *config_out, struct error *error)
{
    static const struct rope_config plain = {
        .base = 10000.0f, .factor = 1.0f, .slow = 1.0f, .fast = 32.0f, .truncate = true};
    struct net_config config = {.embedding_scale = 1.0f, .rope = {plain, plain}};
    TRY(model_file_config(file) == NULL ? net_config_read_gguf(file, served_tokens, &config, error)
                                        : net_config_read_folder(file, &config, error));
    TRY(net_config_check(model_file_name(file), &config, error));
    *config_out = config;
    return STATUS_OK;
}
