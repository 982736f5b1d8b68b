/* Opens a model: file, hyperparameters, backend, pool, weights, forward pass, identity, in that
 * order, so that what is cheap to refuse is refused before the weights are read. */
#include "model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/team.h"
#include "model/format/gguf.h"
#include "model/format/model_file.h"
#include "model/model_calibrate_internal.h"
#include "model/net/forward_internal.h"
#include "model/net/net_config_internal.h"
#include "model/net/probe_internal.h"
#include "model/net/quantize_internal.h"
#include "model/net/weights_internal.h"
#include "model/text/text.h"

enum {
    DEFAULT_PAGE_TOKENS = 64,
    DEFAULT_ROWS = 256,
    PAGE_TOKENS_MAX = 4096,
    ROWS_MAX = 1 << 16,
};

struct model {
    struct team *team;
    struct backend *backend;
    struct page_pool *pages;
    struct net_config config;
    struct weights weights;
    struct forward *forward;
    struct model_info info;
    struct model_identity identity;
    struct token_list calibration; /* while it is opened: ids to measure quantising on */
    char backend_text[160];
};

static uint32_t value_or(uint32_t value, uint32_t fallback)
{
    return value == 0 ? fallback : value;
}

/* Fills in the defaults and checks the bounds. */
static enum status settle_options(const struct net_config *config, struct model_options *options,
                                  struct error *error)
{
    options->page_tokens = value_or(options->page_tokens, DEFAULT_PAGE_TOKENS);
    options->context_tokens = value_or(options->context_tokens, config->context_tokens);
    options->max_rows = value_or(options->max_rows, DEFAULT_ROWS);
    options->max_sequences = value_or(options->max_sequences, 1);
    options->max_logit_rows = value_or(options->max_logit_rows, options->max_sequences);
    if (options->context_tokens > config->context_tokens)
        return error_set(error, STATUS_LIMIT,
                         "a context of %" PRIu32 " tokens is more than the model's %" PRIu32,
                         options->context_tokens, config->context_tokens);
    if (options->page_tokens % KV_BLOCK_TOKENS != 0 || options->page_tokens > PAGE_TOKENS_MAX)
        return error_set(error, STATUS_INVALID,
                         "a page of %" PRIu32 " tokens is not a multiple of %d up to %d",
                         options->page_tokens, KV_BLOCK_TOKENS, PAGE_TOKENS_MAX);
    if (options->max_rows > ROWS_MAX)
        return error_set(error, STATUS_LIMIT,
                         "%" PRIu32 " rows in one forward call are more than %d", options->max_rows,
                         ROWS_MAX);
    /* Every sequence brings a row, every row gives logits at most once. */
    if (options->max_sequences > options->max_rows)
        options->max_sequences = options->max_rows;
    if (options->max_logit_rows > options->max_rows)
        options->max_logit_rows = options->max_rows;
    return STATUS_OK;
}

/* A folder without a tokenizer, and a GGUF file that says it has none, is computed on ids alone:
 * there is no text to it. */
static bool has_tokenizer(const struct model_file *file)
{
    char path[4096];
    const struct gguf *gguf = model_file_gguf(file);
    struct gguf_string kind = {0};
    if (gguf != NULL)
        return gguf_get_string(gguf, "tokenizer.ggml.model", &kind, NULL) != STATUS_OK ||
               kind.bytes != 8 || memcmp(kind.data, "no_vocab", 8) != 0;
    snprintf(path, sizeof path, "%s/tokenizer.json", model_file_path(file));
    return access(path, F_OK) == 0;
}

/* text is NULL for a model of ids alone. */
static enum status read_calibration(struct model *model, const struct text *text,
                                    const struct model_options *options, struct error *error)
{
    if (options->calibrate != NULL && options->quantize != QUANTIZE_INT4)
        return error_set(error, STATUS_INVALID,
                         "there is a text to calibrate on (%s), but nothing is to be quantised to "
                         "4 bits",
                         options->calibrate);
    if (options->calibrate != NULL && text == NULL)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s cannot be read as tokens: the model has no tokenizer",
                         options->calibrate);
    if (options->quantize != QUANTIZE_INT4)
        return STATUS_OK;
    if (text != NULL)
        return calibration_read(text, options->calibrate, options->context_tokens,
                                &model->calibration, error);
    calibration_invent(model->config.vocab_count, options->context_tokens, &model->calibration);
    return STATUS_OK;
}

static enum status read_text(struct model *model, const struct model_file *file,
                             const struct model_options *options, struct error *error)
{
    struct text *text;
    if (!has_tokenizer(file)) {
        model->info.token_count = model->config.vocab_count;
        snprintf(model->info.name, sizeof model->info.name, "%.63s", model_file_name(file));
        return read_calibration(model, NULL, options, error);
    }
    TRY(model_file_gguf(file) != NULL ? text_open_gguf(model_file_gguf(file), &text, error)
                                      : text_open(model_file_path(file), &text, error));
    const struct text_info *info = text_info(text);
    enum status status = STATUS_OK;
    if (info->vocab_count > model->config.vocab_count)
        status = error_set(error, STATUS_INVALID,
                           "%s: the tokenizer has %" PRIu32
                           " tokens but token_embd.weight only %" PRIu32 " rows",
                           model_file_path(file), info->vocab_count, model->config.vocab_count);
    model->info.token_count = info->picked_count;
    model->identity.tokenizer = info->digest;
    memcpy(model->info.name, info->name, sizeof model->info.name);
    if (status == STATUS_OK)
        status = read_calibration(model, text, options, error);
    text_close(text);
    return status;
}

static void fill_info(struct model *model, const struct model_options *options)
{
    const struct net_config *config = &model->config;
    struct model_info *info = &model->info;
    snprintf(info->architecture, sizeof info->architecture, "%s", config->architecture->label);
    info->layers = config->layers;
    info->embedding = config->embedding;
    info->heads = config->heads;
    info->kv_heads = config->kv_heads;
    info->head_dim = config->head_dim;
    info->feed_forward = config->experts != 0 ? config->expert_width : config->feed_forward;
    info->vocab_count = config->vocab_count;
    info->context_tokens = options->context_tokens;
}

static enum status open_backend(struct model *model, const struct model_options *options,
                                struct error *error)
{
    const struct net_config *config = &model->config;
    const struct backend_limits limits = {
        .rows = options->max_rows,
        .width = net_widest(config),
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .context_tokens = options->context_tokens,
        .kv_dtype = options->kv_dtype,
    };
    model->team = team_create(options->threads);
    TRY(backend_cpu_create(model->team, options->isa, options->activations, &limits,
                           &model->backend, error));
    snprintf(model->backend_text, sizeof model->backend_text, "%s, %s", model->backend->name,
             model->backend->profile);
    return STATUS_OK;
}

/* Size of the memory that a pool on this backend lives in. */
static uint64_t memory_bytes(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static double mebibytes(uint64_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

/* Slots of the pool: what the options ask for, at least one whole context. */
static enum status size_pool(const struct model_options *options, const struct kv_layout *layout,
                             uint32_t *slot_count_out, struct error *error)
{
    const uint64_t page_bytes = kv_layout_page_bytes(layout);
    const uint64_t page_tokens = layout->page_tokens;
    const uint64_t context = options->context_tokens;
    const uint64_t needed = (context + page_tokens - 1) / page_tokens;
    uint64_t slots = needed;
    if (options->kv_bytes != 0)
        slots = options->kv_bytes / page_bytes;
    else if (options->kv_tokens != 0)
        slots = options->kv_tokens / page_tokens + (options->kv_tokens % page_tokens != 0);
    if (slots < needed)
        return error_set(error, STATUS_LIMIT,
                         "one context of %" PRIu64 " tokens takes %.1f MiB of KV pages, the pool "
                         "would have %.1f MiB (%" PRIu64 " tokens)",
                         context, mebibytes(needed * page_bytes), mebibytes(slots * page_bytes),
                         slots * page_tokens);
    uint64_t bytes;
    if (slots > UINT32_MAX || !size_multiply(slots, page_bytes, &bytes) || bytes > memory_bytes())
        return error_set(error, STATUS_NO_MEMORY,
                         "%" PRIu64 " KV pages of %.2f MiB (%" PRIu64
                         " tokens) do not fit the %.0f MiB of memory: ask for a smaller context or "
                         "pool",
                         slots, mebibytes(page_bytes), slots * page_tokens,
                         mebibytes(memory_bytes()));
    *slot_count_out = (uint32_t)slots;
    return STATUS_OK;
}

static enum status open_pages(struct model *model, const struct model_options *options,
                              struct error *error)
{
    const struct kv_layout layout = {
        .version = KV_LAYOUT_VERSION,
        .layers = model->config.layers,
        .kv_heads = model->config.kv_heads,
        .head_dim = model->config.head_dim,
        .page_tokens = options->page_tokens,
        .dtype = options->kv_dtype,
        .layout_id = kv_layout_id(options->kv_dtype),
        .window = 0,
    };
    uint32_t slot_count = 0;
    TRY(size_pool(options, &layout, &slot_count, error));
    TRY(page_pool_create(model->backend, &layout, slot_count, &model->pages, error));
    model->identity.layout = layout;
    model->identity.rope_pairing = (uint32_t)model->config.pairing;
    model->identity.rope_rotary = model->config.rotary;
    model->identity.rope_base = model->config.rope[ROPE_GLOBAL].base;
    model->info.kv_bytes = (uint64_t)slot_count * kv_layout_page_bytes(&layout);
    return STATUS_OK;
}

/* The same files quantised in another way are other weights. */
static struct digest128 weights_identity(struct digest128 digest, const struct quantize_plan *plan)
{
    if (plan->scheme == QUANTIZE_NONE)
        return digest;
    struct buffer text = {0};
    buffer_add(&text, &digest, sizeof digest);
    quantize_plan_describe(plan, &text);
    digest = hash128(text.data, text.size, 0);
    buffer_free(&text);
    return digest;
}

/* Shares of the time of a load that chooses widths: the first load, the choice, and the load by it.
 */
#define FIRST_SHARE  0.15
#define CHOICE_SHARE 0.7

static enum status choose_widths(struct model *model, const struct model_file *file,
                                 const struct model_options *options,
                                 struct load_progress *progress, struct quantize_plan *plan,
                                 struct error *error)
{
    *progress = (struct load_progress){.report = progress->report,
                                       .arg = progress->arg,
                                       .from = FIRST_SHARE,
                                       .share = CHOICE_SHARE,
                                       .total_bytes = progress->total_bytes};
    const struct quantize_choice choice = {.file = file,
                                           .config = &model->config,
                                           .backend = model->backend,
                                           .weights = &model->weights,
                                           .layout = page_pool_layout(model->pages),
                                           .max_rows = options->max_rows,
                                           .token_count = model->info.token_count,
                                           .ids = model->calibration.ids,
                                           .id_count = (uint32_t)model->calibration.count,
                                           .progress = progress};
    TRY(quantize_choose(&choice, plan, error));
    progress->from = FIRST_SHARE + CHOICE_SHARE;
    progress->share = 1 - progress->from;
    if (!quantize_plan_any(plan)) {
        load_progress_report(progress, 1, 1);
        return STATUS_OK;
    }
    /* From the beginning, so that the weights stand side by side in the order in which they are
     * read, and none of what was tried is left between them. */
    weights_release(&model->weights, model->backend);
    return weights_load(file, &model->config, model->backend, plan, progress, &model->weights,
                        error);
}

static enum status load_weights(struct model *model, const struct model_file *file,
                                const struct model_options *options, struct quantize_plan *plan,
                                struct error *error)
{
    const bool chooses = options->quantize == QUANTIZE_INT4;
    struct load_progress progress = {.report = options->progress,
                                     .arg = options->progress_arg,
                                     .share = chooses ? FIRST_SHARE : 1};
    const uint64_t begin_ns = clock_now_ns(clock_monotonic());
    TRY(weights_load(file, &model->config, model->backend, plan, &progress, &model->weights,
                     error));
    if (chooses)
        TRY(choose_widths(model, file, options, &progress, plan, error));
    model->info.pack_seconds = (double)(clock_now_ns(clock_monotonic()) - begin_ns) / NS_PER_S;
    model->info.weight_bytes = model->weights.bytes;
    model->info.tensor_bytes = model->weights.tensor_bytes;
    model->info.narrow_share = plan->share;
    model->identity.weights = weights_identity(model_file_digest(file), plan);
    return STATUS_OK;
}

static enum status open_net(struct model *model, const struct model_file *file,
                            const struct model_options *options, struct error *error)
{
    const struct forward_limits limits = {
        .rows = options->max_rows,
        .sequences = options->max_sequences,
        .logit_rows = options->max_logit_rows,
        .context_tokens = options->context_tokens,
        .token_count = model->info.token_count,
    };
    struct quantize_plan plan;
    TRY(quantize_plan_init(&plan, options->quantize, model->config.layers, error));
    const enum status loaded = load_weights(model, file, options, &plan, error);
    quantize_plan_release(&plan);
    TRY(loaded);
    TRY(forward_create(model->backend, &model->config, &model->weights, model->pages, &limits,
                       &model->forward, error));
    const struct probe probe = {
        .forward = model->forward,
        .backend = model->backend,
        .pages = model->pages,
        .vocab_count = model->config.vocab_count,
        .context_tokens = options->context_tokens,
        .max_rows = options->max_rows,
    };
    model_file_revision(file, model->identity.revision);
    model->identity.profile_id = model->backend->profile_id;
    return probe_run(&probe, &model->identity.probe_digest, error);
}

enum status model_outline_read(const char *path, struct model_outline *out, struct error *error)
{
    struct model_file *file;
    struct net_config config;
    TRY(model_file_open(path, &file, error));
    /* Which context will be served is not known yet: one token is in every window. */
    enum status status = net_config_read(file, 1, &config, error);
    if (status == STATUS_OK)
        status = weights_check(file, &config, error);
    uint64_t bytes = 0;
    for (size_t i = 0; i < model_file_tensor_count(file); i++)
        bytes += model_file_tensor_at(file, i)->bytes;
    model_file_close(file);
    TRY(status);
    *out = (struct model_outline){.layers = config.layers,
                                  .kv_heads = config.kv_heads,
                                  .head_dim = config.head_dim,
                                  .context_tokens = config.context_tokens,
                                  .tensor_bytes = bytes};
    return STATUS_OK;
}

static enum status open_file(struct model *model, const struct model_file *file,
                             struct model_options *options, struct error *error)
{
    TRY(net_config_read(file, options->context_tokens, &model->config, error));
    TRY(settle_options(&model->config, options, error));
    TRY(read_text(model, file, options, error));
    TRY(weights_check(file, &model->config, error));
    fill_info(model, options);
    TRY(open_backend(model, options, error));
    TRY(open_pages(model, options, error));
    return open_net(model, file, options, error);
}

enum status model_open(const struct model_options *options, struct model **out, struct error *error)
{
    struct model_options settled = *options;
    struct model_file *file;
    TRY(model_file_open(options->path, &file, error));
    struct model *model = calloc(1, sizeof *model);
    enum status status = model != NULL
                             ? open_file(model, file, &settled, error)
                             : error_set(error, STATUS_NO_MEMORY, "no memory to open a model");
    model_file_close(file);
    if (model != NULL)
        token_list_free(&model->calibration);
    if (status != STATUS_OK) {
        model_close(model);
        return status;
    }
    *out = model;
    return STATUS_OK;
}

void model_close(struct model *model)
{
    if (model == NULL)
        return;
    forward_destroy(model->forward);
    if (model->backend != NULL) {
        weights_release(&model->weights, model->backend);
        page_pool_destroy(model->pages);
        model->backend->ops->destroy(model->backend);
    }
    if (model->team != NULL)
        team_destroy(model->team);
    free(model);
}

const struct model_info *model_info(const struct model *model)
{
    return &model->info;
}

const struct model_identity *model_identity(const struct model *model)
{
    return &model->identity;
}

void model_share(struct model *model, team_piece_function function, void *arg, uint32_t piece_count)
{
    team_share(model->team, function, arg, piece_count);
}

uint32_t model_threads(const struct model *model)
{
    return team_count(model->team);
}

struct page_pool *model_pages(struct model *model)
{
    return model->pages;
}

static uint64_t expert_bytes(const struct backend *backend, const struct expert_weights *expert)
{
    size_t (*const bytes)(const struct weight *) = backend->ops->weight_bytes;
    return (expert->gate == NULL ? 0 : bytes(expert->gate)) +
           (expert->up == NULL ? 0 : bytes(expert->up)) +
           (expert->down == NULL ? 0 : bytes(expert->down));
}

/* Bytes of a layer's matrices that belong to the part; of experts all. */
static uint64_t layer_part_bytes(const struct model *model, const struct layer_weights *layer,
                                 enum forward_part part)
{
    size_t (*const bytes)(const struct weight *) = model->backend->ops->weight_bytes;
    uint64_t sum = 0;
    switch (part) {
    case FORWARD_QKV:
        return bytes(layer->query) + bytes(layer->key) + bytes(layer->value);
    case FORWARD_OUTPUT:
        return bytes(layer->output);
    case FORWARD_MLP:
        sum = expert_bytes(model->backend, &layer->dense) +
              expert_bytes(model->backend, &layer->shared);
        for (uint32_t i = 0; layer->experts != NULL && i < model->weights.expert_count; i++)
            sum += expert_bytes(model->backend, &layer->experts[i]);
        return sum;
    default:
        return 0;
    }
}

uint64_t model_part_bytes(const struct model *model, enum forward_part part)
{
    uint64_t bytes = 0;
    if (part == FORWARD_EMBEDDING)
        return model->backend->ops->weight_bytes(model->weights.embedding);
    if (part == FORWARD_HEAD)
        return model->backend->ops->weight_bytes(weights_head(&model->weights));
    for (uint32_t i = 0; i < model->weights.layer_count; i++)
        bytes += layer_part_bytes(model, &model->weights.layers[i], part);
    return bytes;
}

const char *model_backend_text(const struct model *model)
{
    return model->backend_text;
}

enum status model_forward(struct model *model, const struct forward_sequence *sequences,
                          uint32_t sequence_count, const struct forward_hooks *hooks,
                          const float **logits_out, struct error *error)
{
    return forward_run(model->forward, sequences, sequence_count, hooks, logits_out, error);
}

enum status model_forward_best(struct model *model, const struct forward_sequence *sequences,
                               uint32_t sequence_count, const struct forward_hooks *hooks,
                               const struct forward_best **best_out, struct error *error)
{
    return forward_run_best(model->forward, sequences, sequence_count, hooks, best_out, error);
}
