/* One call: check, embed, the layers, the head.
 *
 * A row depends on its own inputs and on its sequence's pages only, so the last layer stops at its
 * KV for rows whose logits nobody wants: from there on only the tail rows are carried. */
#include "model/net/forward_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Rows that go through a piece of the network together. */
struct batch {
    struct batch_sequence *sequences; /* [count] */
    uint32_t count;
    uint32_t rows;
    device_ptr hidden;  /* [rows][E] the residual stream */
    device_ptr queries; /* [rows][H*D] */
};

struct forward {
    struct backend *backend;
    const struct net_config *config;
    const struct weights *weights;
    const struct page_pool *pages;
    struct forward_limits limits;

    const struct forward_hooks *hooks; /* of the running call, may be NULL */

    struct batch all;  /* every row of the call, T <= limits.rows */
    struct batch tail; /* rows with logits, L <= limits.logit_rows */
    device_ptr keys;   /* [T][K*D] */
    device_ptr values; /* [T][K*D] */
    device_ptr mixed;  /* [T][H*D] attention's result */
    device_ptr cos;    /* [T][rotary / 2] */
    device_ptr sin;    /* [T][rotary / 2] */
    device_ptr logits; /* [L][V] */

    /* Host memory. */
    float *inverse_frequencies; /* [rotary / 2] */
    float *host_cos, *host_sin; /* [T][rotary / 2] */
    float *host_logits;         /* [L][V], NULL where the device's own are visible */
    struct top_entry *top;      /* [L] */
    struct forward_best *best;  /* [L] */
    int32_t *ids;               /* [T] */
    uint32_t *tail_rows;        /* [L] places of the tail rows among all */
};

static enum status allocate(struct forward *f, device_ptr *out, size_t rows, size_t width,
                            struct error *error)
{
    return f->backend->ops->allocate(f->backend, rows * width * sizeof(float), out, error);
}

static enum status allocate_device(struct forward *f, struct error *error)
{
    const struct net_config *c = f->config;
    const size_t rows = f->limits.rows, tail = f->limits.logit_rows, half = c->rotary / 2;
    const size_t query = net_query_width(c), kv = net_kv_width(c);
    TRY(allocate(f, &f->all.hidden, rows, c->embedding, error));
    TRY(allocate(f, &f->all.queries, rows, query, error));
    TRY(allocate(f, &f->tail.hidden, tail, c->embedding, error));
    TRY(allocate(f, &f->tail.queries, tail, query, error));
    TRY(allocate(f, &f->keys, rows, kv, error));
    TRY(allocate(f, &f->values, rows, kv, error));
    TRY(allocate(f, &f->mixed, rows, query, error));
    TRY(allocate(f, &f->cos, rows, half, error));
    TRY(allocate(f, &f->sin, rows, half, error));
    TRY(allocate(f, &f->logits, tail, c->vocab_count, error));
    return STATUS_OK;
}

static enum status allocate_host(struct forward *f, struct error *error)
{
    const size_t rows = f->limits.rows, tail = f->limits.logit_rows, half = f->config->rotary / 2;
    const size_t vocab = f->config->vocab_count;
    const bool visible = f->backend->ops->host_view(f->backend, f->logits) != NULL;
    f->inverse_frequencies = malloc(half * sizeof(float));
    f->host_cos = malloc(rows * half * sizeof(float));
    f->host_sin = malloc(rows * half * sizeof(float));
    f->host_logits = visible ? NULL : malloc(tail * vocab * sizeof(float));
    f->top = malloc(tail * sizeof *f->top);
    f->best = malloc(tail * sizeof *f->best);
    f->ids = malloc(rows * sizeof *f->ids);
    f->tail_rows = malloc(tail * sizeof *f->tail_rows);
    f->all.sequences = malloc(f->limits.sequences * sizeof *f->all.sequences);
    f->tail.sequences = malloc(f->limits.sequences * sizeof *f->tail.sequences);
    if (f->inverse_frequencies == NULL || f->host_cos == NULL || f->host_sin == NULL ||
        (!visible && f->host_logits == NULL) || f->top == NULL || f->best == NULL ||
        f->ids == NULL || f->tail_rows == NULL || f->all.sequences == NULL ||
        f->tail.sequences == NULL)
        return error_set(error, STATUS_NO_MEMORY,
                         "no memory for the buffers of %zu rows and %zu rows of logits", rows,
                         tail);
    return STATUS_OK;
}

/* Rounded as the reference (float32 throughout) rounds: base^(2i / rotary), then its inverse, then
 * the file's factor for this frequency. */
static void fill_inverse_frequencies(struct forward *f)
{
    const struct net_config *c = f->config;
    for (uint32_t i = 0; i < c->rotary / 2; i++) {
        const float exponent = (float)(2 * i) / (float)c->rotary;
        const float power = (float)pow((double)c->rope_base, (double)exponent);
        f->inverse_frequencies[i] = 1.0f / power;
        if (f->weights->rope_factors != NULL)
            f->inverse_frequencies[i] /= f->weights->rope_factors[i];
    }
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
    enum status status = allocate_device(f, error);
    if (status == STATUS_OK)
        status = allocate_host(f, error);
    if (status != STATUS_OK) {
        forward_destroy(f);
        return status;
    }
    fill_inverse_frequencies(f);
    *out = f;
    return STATUS_OK;
}

void forward_destroy(struct forward *f)
{
    if (f == NULL)
        return;
    const device_ptr device[] = {f->all.hidden, f->all.queries, f->tail.hidden, f->tail.queries,
                                 f->keys,       f->values,      f->mixed,       f->cos,
                                 f->sin,        f->logits};
    for (size_t i = 0; i < ARRAY_COUNT(device); i++)
        f->backend->ops->release(f->backend, device[i]);
    free(f->inverse_frequencies);
    free(f->host_cos);
    free(f->host_sin);
    free(f->host_logits);
    free(f->top);
    free(f->best);
    free(f->ids);
    free(f->tail_rows);
    free(f->all.sequences);
    free(f->tail.sequences);
    free(f);
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
static void fill_rotation(struct forward *f)
{
    const struct backend_ops *ops = f->backend->ops;
    const size_t half = f->config->rotary / 2;
    for (uint32_t i = 0; i < f->all.count; i++) {
        const struct batch_sequence *s = &f->all.sequences[i];
        for (uint32_t row = 0; row < s->row_count; row++) {
            const float position = (float)(s->position + row);
            const size_t place = (s->first_row + row) * half;
            for (size_t d = 0; d < half; d++) {
                const float angle = position * f->inverse_frequencies[d];
                f->host_cos[place + d] = (float)cos((double)angle);
                f->host_sin[place + d] = (float)sin((double)angle);
            }
        }
    }
    ops->upload(f->backend, f->cos, f->host_cos, f->all.rows * half * sizeof(float));
    ops->upload(f->backend, f->sin, f->host_sin, f->all.rows * half * sizeof(float));
}

static void part_done(const struct forward *f, enum forward_part part)
{
    if (f->hooks == NULL || f->hooks->part_done == NULL)
        return;
    f->backend->ops->synchronize(f->backend);
    f->hooks->part_done(f->hooks->arg, part);
}

/* Products of the normed rows of x. */
static void normed_products(struct forward *f, device_ptr x, device_ptr gain,
                            const struct project_output *outputs, uint32_t output_count,
                            uint32_t rows)
{
    f->backend->ops->project(f->backend, &(struct project_args){.x = x,
                                                                .gain = gain,
                                                                .epsilon = f->config->norm_epsilon,
                                                                .outputs = outputs,
                                                                .output_count = output_count,
                                                                .rows = rows});
}

static void matmul_add(struct forward *f, const struct weight *weight, device_ptr x,
                       device_ptr bias, uint32_t rows, device_ptr out)
{
    f->backend->ops->matmul(
        f->backend,
        &(struct matmul_args){
            .weight = weight, .x = x, .out = out, .bias = bias, .accumulate = true, .rows = rows});
}

/* Queries, keys and values of all rows; keys and values go to their pages. */
static void project(struct forward *f, const struct layer_weights *layer, const struct kv_view *kv)
{
    const struct backend_ops *ops = f->backend->ops;
    const struct net_config *c = f->config;
    const struct project_output outputs[] = {
        {layer->query, f->all.queries, layer->query_bias},
        {layer->key, f->keys, layer->key_bias},
        {layer->value, f->values, layer->value_bias},
    };
    normed_products(f, f->all.hidden, layer->attention_norm, outputs, ARRAY_COUNT(outputs),
                    f->all.rows);
    part_done(f, FORWARD_QKV);
    ops->rope_kv_write(f->backend, &(struct rope_kv_args){.q = f->all.queries,
                                                          .k = f->keys,
                                                          .v = f->values,
                                                          .cos = f->cos,
                                                          .sin = f->sin,
                                                          .heads = c->heads,
                                                          .rotary = c->rotary,
                                                          .pairing = c->architecture->rope_pairing,
                                                          .kv = *kv,
                                                          .sequences = f->all.sequences,
                                                          .sequence_count = f->all.count});
    part_done(f, FORWARD_ROWS);
}

/* The rest of a layer for the rows of one batch. */
static void attend_and_feed(struct forward *f, const struct layer_weights *layer,
                            const struct kv_view *kv, const struct batch *batch)
{
    const struct backend_ops *ops = f->backend->ops;
    const struct net_config *c = f->config;
    ops->attention(f->backend, &(struct attention_args){.q = batch->queries,
                                                        .out = f->mixed,
                                                        .heads = c->heads,
                                                        .scale = c->attention_scale,
                                                        .kv = *kv,
                                                        .sequences = batch->sequences,
                                                        .sequence_count = batch->count});
    part_done(f, FORWARD_ATTENTION);
    matmul_add(f, layer->output, f->mixed, layer->output_bias, batch->rows, batch->hidden);
    part_done(f, FORWARD_OUTPUT);
    ops->feed_forward(f->backend, &(struct feed_forward_args){.x = batch->hidden,
                                                              .gain = layer->feed_forward_norm,
                                                              .epsilon = c->norm_epsilon,
                                                              .gate = layer->gate,
                                                              .up = layer->up,
                                                              .down = layer->down,
                                                              .rows = batch->rows});
    part_done(f, FORWARD_MLP);
}

static void gather_tail(struct forward *f)
{
    const struct backend_ops *ops = f->backend->ops;
    ops->gather_rows(f->backend, f->all.hidden, f->tail_rows, f->tail.rows, f->config->embedding,
                     f->tail.hidden);
    ops->gather_rows(f->backend, f->all.queries, f->tail_rows, f->tail.rows,
                     net_query_width(f->config), f->tail.queries);
}

static void run_layers(struct forward *f)
{
    const struct forward_hooks *hooks = f->hooks;
    for (uint32_t l = 0; l < f->config->layers; l++) {
        const struct layer_weights *layer = &f->weights->layers[l];
        const struct kv_view kv = page_pool_view(f->pages, l);
        project(f, layer, &kv);
        if (hooks != NULL && hooks->layer_done != NULL) {
            f->backend->ops->synchronize(f->backend);
            hooks->layer_done(hooks->arg, l);
        }
        if (l + 1 < f->config->layers) {
            attend_and_feed(f, layer, &kv, &f->all);
        } else if (f->tail.rows > 0) {
            gather_tail(f);
            part_done(f, FORWARD_ROWS);
            attend_and_feed(f, layer, &kv, &f->tail);
        }
    }
}

static const float *run_head(struct forward *f)
{
    const struct backend_ops *ops = f->backend->ops;
    const struct net_config *c = f->config;
    if (f->tail.rows == 0)
        return NULL;
    const struct project_output output = {weights_head(f->weights), f->logits, {0}};
    normed_products(f, f->tail.hidden, f->weights->output_norm, &output, 1, f->tail.rows);
    part_done(f, FORWARD_HEAD);
    if (f->host_logits == NULL)
        return ops->host_view(f->backend, f->logits);
    ops->download(f->backend, f->host_logits, f->logits,
                  (size_t)f->tail.rows * c->vocab_count * sizeof(float));
    return f->host_logits;
}

static const struct forward_best *run_head_best(struct forward *f)
{
    if (f->tail.rows == 0)
        return NULL;
    f->backend->ops->project_top(f->backend,
                                 &(struct project_top_args){.x = f->tail.hidden,
                                                            .gain = f->weights->output_norm,
                                                            .epsilon = f->config->norm_epsilon,
                                                            .weight = weights_head(f->weights),
                                                            .id_count = f->limits.token_count,
                                                            .count = 1,
                                                            .rows = f->tail.rows,
                                                            .out = f->top});
    part_done(f, FORWARD_HEAD);
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
    fill_rotation(f);
    part_done(f, FORWARD_ROWS);
    f->backend->ops->embed(f->backend, f->weights->embedding, f->ids, f->all.rows, f->all.hidden);
    part_done(f, FORWARD_EMBEDDING);
    run_layers(f);
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
