/* One call: check, embed, the layers, the head.
 *
 * A row depends on its own inputs and on its sequence's pages only, so the last layer stops at its
 * KV for rows whose logits nobody wants: from there on only the tail rows are carried. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model/net/forward_state_internal.h"

static void fill_frequencies(struct forward *f)
{
    const struct net_config *c = f->config;
    for (uint32_t i = 0; i < f->rotation_count; i++) {
        struct rotation *rotation = &f->rotations[i];
        rope_frequencies(&c->rope[i], c->rotary, rotation->inverse_frequencies,
                         &rotation->magnitude);
        for (uint32_t d = 0; f->weights->rope_factors != NULL && d < c->rotary / 2; d++)
            rotation->inverse_frequencies[d] /= f->weights->rope_factors[d];
    }
}

/* Whether norm, gate, up, activation and down are what feed_forward computes. */
static bool feed_forward_fused(const struct net_config *c, const struct weights *weights)
{
    for (uint32_t l = 0; l < c->layers; l++) {
        const struct layer_weights *layer = &weights->layers[l];
        if (!device_null(layer->gate_bias) || !device_null(layer->up_bias) ||
            !device_null(layer->down_bias))
            return false;
    }
    return c->architecture->norm == NORM_RMS && c->architecture->activation == GATE_SILU &&
           !net_has(c, TRAIT_POST_NORMS) && c->experts == 0;
}

static uint32_t rotations_of(const struct net_config *c)
{
    if (c->rotary == 0)
        return 0;
    return c->window != 0 && net_has(c, TRAIT_LOCAL_ROTATION) ? 2 : 1;
}

enum status forward_create(struct backend *backend, const struct net_config *config,
                           const struct weights *weights, const struct page_pool *pages,
                           const struct forward_limits *limits, struct forward **out,
                           struct error *error)
{
    struct forward *f = calloc(1, sizeof *f);
    if (f == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for the forward pass");
    f->backend = backend;
    f->config = config;
    f->weights = weights;
    f->pages = pages;
    f->limits = *limits;
    f->fused = feed_forward_fused(config, weights);
    f->rotation_count = rotations_of(config);
    const enum status status = forward_allocate(f, error);
    if (status != STATUS_OK) {
        forward_destroy(f);
        return status;
    }
    fill_frequencies(f);
    *out = f;
    return STATUS_OK;
}

static enum status check_sequence(const struct forward *f, uint32_t index,
                                  const struct forward_sequence *s, struct error *error)
{
    if (s->count == 0 || s->logit_rows > s->count)
        return error_set(error, STATUS_INVALID,
                         "sequence %" PRIu32 " asks for logits of %" PRIu32 " of its %" PRIu32
                         " rows",
                         index, s->logit_rows, s->count);
    const uint64_t end = (uint64_t)s->position + s->count;
    if (end > f->limits.context_tokens)
        return error_set(error, STATUS_LIMIT,
                         "sequence %" PRIu32 " reaches %" PRIu64 " tokens, the context is %" PRIu32,
                         index, end, f->limits.context_tokens);
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->tokens[i] < 0 || (uint32_t)s->tokens[i] >= f->config->vocab_count)
            return error_set(error, STATUS_INVALID,
                             "token id %" PRId32 " is outside the vocabulary of %" PRIu32,
                             s->tokens[i], f->config->vocab_count);
    }
    const uint32_t page_tokens = page_pool_layout(f->pages)->page_tokens;
    const uint32_t slot_count = page_pool_slot_count(f->pages);
    for (uint32_t page = 0; page < (end + page_tokens - 1) / page_tokens; page++) {
        if (s->slots[page] >= slot_count)
            return error_set(error, STATUS_INVALID,
                             "page slot %" PRIu32 " is outside the pool of %" PRIu32,
                             s->slots[page], slot_count);
    }
    const uint32_t written = s->position / page_tokens;
    CHECK(page_pool_is_sole(f->pages, s->slots + written,
                            (uint32_t)((end + page_tokens - 1) / page_tokens) - written));
    return STATUS_OK;
}

/* Checks the whole call before anything is written. */
static enum status check_call(const struct forward *f, const struct forward_sequence *sequences,
                              uint32_t count, struct error *error)
{
    uint64_t rows = 0, logit_rows = 0;
    if (count == 0 || count > f->limits.sequences)
        return error_set(error, STATUS_LIMIT,
                         "a forward call has %" PRIu32 " sequences, it takes 1 to %" PRIu32, count,
                         f->limits.sequences);
    for (uint32_t i = 0; i < count; i++) {
        TRY(check_sequence(f, i, &sequences[i], error));
        rows += sequences[i].count;
        logit_rows += sequences[i].logit_rows;
    }
    if (rows > f->limits.rows)
        return error_set(error, STATUS_LIMIT,
                         "a forward call has %" PRIu64 " rows, the limit is %" PRIu32, rows,
                         f->limits.rows);
    if (logit_rows > f->limits.logit_rows)
        return error_set(error, STATUS_LIMIT,
                         "a forward call asks for %" PRIu64
                         " rows of logits, the limit is %" PRIu32,
                         logit_rows, f->limits.logit_rows);
    return STATUS_OK;
}

/* Lays the sequences out as rows: ids, both batches, and which rows are the tail. */
static void plan_batches(struct forward *f, const struct forward_sequence *sequences,
                         uint32_t count)
{
    f->all.rows = f->all.count = f->tail.rows = f->tail.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct forward_sequence *s = &sequences[i];
        const uint32_t first = f->all.rows, skipped = s->count - s->logit_rows;
        f->all.sequences[f->all.count++] = (struct batch_sequence){
            .first_row = first,
            .row_count = s->count,
            .position = s->position,
            .slots = s->slots,
        };
        f->all.rows += s->count;
        memcpy(f->ids + first, s->tokens, s->count * sizeof *f->ids);
        for (uint32_t row = 0; row < s->count; row++)
            f->positions[first + row] = (int32_t)(s->position + row);
        if (s->logit_rows == 0)
            continue;
        f->tail.sequences[f->tail.count++] = (struct batch_sequence){
            .first_row = f->tail.rows,
            .row_count = s->logit_rows,
            .position = s->position + skipped,
            .slots = s->slots,
        };
        for (uint32_t row = 0; row < s->logit_rows; row++)
            f->tail_rows[f->tail.rows++] = first + skipped + row;
    }
}

/* The angle is a float32 product as in the reference; its sine and cosine are the nearest floats.
 */
static void fill_rotation(struct forward *f, struct rotation *rotation)
{
    const struct backend_ops *ops = f->backend->ops;
    const size_t half = f->config->rotary / 2, bytes = f->all.rows * half * sizeof(float);
    for (uint32_t row = 0; row < f->all.rows; row++) {
        const float position = (float)f->positions[row];
        for (size_t d = 0; d < half; d++) {
            const float angle = position * rotation->inverse_frequencies[d];
            rotation->host_cos[row * half + d] = (float)cos((double)angle) * rotation->magnitude;
            rotation->host_sin[row * half + d] = (float)sin((double)angle) * rotation->magnitude;
        }
    }
    ops->upload(f->backend, rotation->cos, rotation->host_cos, bytes);
    ops->upload(f->backend, rotation->sin, rotation->host_sin, bytes);
}

static void embed(struct forward *f)
{
    const struct backend_ops *ops = f->backend->ops;
    const struct net_config *c = f->config;
    ops->embed(f->backend, f->weights->embedding, f->ids, f->all.rows, f->all.hidden);
    if (c->embedding_scale != 1.0f)
        ops->scale(f->backend, f->all.hidden, c->embedding_scale, f->all.rows, c->embedding);
    if (f->weights->positions == NULL)
        return;
    ops->embed(f->backend, f->weights->positions, f->positions, f->all.rows, f->added);
    ops->rows_add(f->backend, &(struct rows_add_args){.out = f->all.hidden,
                                                      .y = f->added,
                                                      .rows = f->all.rows,
                                                      .width = c->embedding});
}

static const float *run_head(struct forward *f)
{
    const struct backend_ops *ops = f->backend->ops;
    const struct net_config *c = f->config;
    if (f->tail.rows == 0)
        return NULL;
    const struct project_output output = {weights_head(f->weights), f->logits, {0}};
    const struct norm norm = {f->weights->output_norm, f->weights->output_norm_bias};
    forward_products(f, f->tail.hidden, norm, &output, 1, f->tail.rows);
    if (c->logit_cap != 0.0f)
        ops->soft_cap(f->backend, f->logits, c->logit_cap, f->tail.rows, c->vocab_count);
    forward_part_done(f, FORWARD_HEAD);
    if (f->host_logits == NULL)
        return ops->host_view(f->backend, f->logits);
    ops->download(f->backend, f->host_logits, f->logits,
                  (size_t)f->tail.rows * c->vocab_count * sizeof(float));
    return f->host_logits;
}

/* A cap makes equals of logits that differ by little, and the likeliest is the first of those. */
static const struct forward_best *run_head_capped(struct forward *f)
{
    const float *logits = run_head(f);
    f->backend->ops->synchronize(f->backend);
    for (uint32_t row = 0; row < f->tail.rows; row++, logits += f->config->vocab_count) {
        int32_t best = 0;
        for (int32_t id = 1; (uint32_t)id < f->limits.token_count && !isnan(logits[best]); id++)
            if (logits[id] > logits[best] || isnan(logits[id]))
                best = id;
        f->best[row] = (struct forward_best){.id = best, .logit = logits[best]};
    }
    return f->best;
}

static const struct forward_best *run_head_best(struct forward *f)
{
    const struct backend_ops *ops = f->backend->ops;
    const struct net_config *c = f->config;
    struct project_top_args args = {.x = f->tail.hidden,
                                    .gain = f->weights->output_norm,
                                    .epsilon = c->norm_epsilon,
                                    .weight = weights_head(f->weights),
                                    .id_count = f->limits.token_count,
                                    .count = 1,
                                    .rows = f->tail.rows,
                                    .out = f->top};
    if (f->tail.rows == 0)
        return NULL;
    if (c->logit_cap != 0.0f)
        return run_head_capped(f);
    if (!device_null(f->weights->output_norm_bias)) {
        ops->layer_norm(f->backend, &(struct layer_norm_args){.x = f->tail.hidden,
                                                              .out = f->normed,
                                                              .gain = f->weights->output_norm,
                                                              .bias = f->weights->output_norm_bias,
                                                              .epsilon = c->norm_epsilon,
                                                              .rows = f->tail.rows,
                                                              .width = c->embedding});
        args.x = f->normed;
        args.gain = (device_ptr){0};
    }
    ops->project_top(f->backend, &args);
    forward_part_done(f, FORWARD_HEAD);
    for (uint32_t row = 0; row < f->tail.rows; row++)
        f->best[row] = (struct forward_best){.id = f->top[row].id, .logit = f->top[row].value};
    return f->best;
}

/* All but the head. */
static enum status run_body(struct forward *f, const struct forward_sequence *sequences,
                            uint32_t sequence_count, const struct forward_hooks *hooks,
                            struct error *error)
{
    TRY(check_call(f, sequences, sequence_count, error));
    plan_batches(f, sequences, sequence_count);
    f->hooks = hooks;
    for (uint32_t i = 0; i < f->rotation_count; i++)
        fill_rotation(f, &f->rotations[i]);
    forward_part_done(f, FORWARD_ROWS);
    embed(f);
    forward_part_done(f, FORWARD_EMBEDDING);
    forward_layers(f);
    return STATUS_OK;
}

enum status forward_run(struct forward *f, const struct forward_sequence *sequences,
                        uint32_t sequence_count, const struct forward_hooks *hooks,
                        const float **logits_out, struct error *error)
{
    TRY(run_body(f, sequences, sequence_count, hooks, error));
    const float *logits = run_head(f);
    f->backend->ops->synchronize(f->backend);
    f->hooks = NULL;
    *logits_out = logits;
    return STATUS_OK;
}

enum status forward_run_best(struct forward *f, const struct forward_sequence *sequences,
                             uint32_t sequence_count, const struct forward_hooks *hooks,
                             const struct forward_best **best_out, struct error *error)
{
    TRY(run_body(f, sequences, sequence_count, hooks, error));
    const struct forward_best *best = run_head_best(f);
    f->backend->ops->synchronize(f->backend);
    f->hooks = NULL;
    *best_out = best;
    return STATUS_OK;
}
