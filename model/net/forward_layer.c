/* The layers. Where a weight is null the architecture has no such step; nothing here asks what the
 * architecture is called. */
#include "base/check.h"
#include "model/net/forward_state_internal.h"

void forward_part_done(const struct forward *f, enum forward_part part)
{
    if (f->hooks == NULL || f->hooks->part_done == NULL)
        return;
    f->backend->ops->synchronize(f->backend);
    f->hooks->part_done(f->hooks->arg, part);
}

void forward_products(struct forward *f, device_ptr x, struct norm norm,
                      const struct project_output *outputs, uint32_t output_count, uint32_t rows)
{
    const struct backend_ops *ops = f->backend->ops;
    struct project_args args = {.x = x,
                                .gain = norm.gain,
                                .epsilon = f->config->norm_epsilon,
                                .outputs = outputs,
                                .output_count = output_count,
                                .rows = rows};
    if (!device_null(norm.bias)) {
        ops->layer_norm(f->backend, &(struct layer_norm_args){.x = x,
                                                              .out = f->normed,
                                                              .gain = norm.gain,
                                                              .bias = norm.bias,
                                                              .epsilon = f->config->norm_epsilon,
                                                              .rows = rows,
                                                              .width = f->config->embedding});
        args.x = f->normed;
        args.gain = (device_ptr){0};
    }
    ops->project(f->backend, &args);
}

/* The product onto the residual, through a norm where there is one. */
static void add_product(struct forward *f, const struct weight *weight, device_ptr x,
                        device_ptr bias, device_ptr post_norm, const struct batch *batch)
{
    const struct backend_ops *ops = f->backend->ops;
    const uint32_t width = f->config->embedding;
    const bool direct = device_null(post_norm);
    ops->matmul(f->backend, &(struct matmul_args){.weight = weight,
                                                  .x = x,
                                                  .out = direct ? batch->hidden : f->added,
                                                  .bias = bias,
                                                  .accumulate = direct,
                                                  .rows = batch->rows});
    if (direct)
        return;
    ops->rms_norm(f->backend, f->added, post_norm, f->config->norm_epsilon, batch->rows, width,
                  f->added);
    ops->rows_add(f->backend,
                  &(struct rows_add_args){
                      .out = batch->hidden, .y = f->added, .rows = batch->rows, .width = width});
}

/* Queries and keys, head by head. */
static void norm_heads(struct forward *f, const struct layer_weights *layer)
{
    const struct backend_ops *ops = f->backend->ops;
    const struct net_config *c = f->config;
    if (device_null(layer->query_norm))
        return;
    ops->rms_norm(f->backend, f->all.queries, layer->query_norm, c->norm_epsilon,
                  f->all.rows * c->heads, c->head_dim, f->all.queries);
    ops->rms_norm(f->backend, f->keys, layer->key_norm, c->norm_epsilon, f->all.rows * c->kv_heads,
                  c->head_dim, f->keys);
}

/* Queries, keys and values of all rows; keys and values go to their pages. */
static void project(struct forward *f, const struct layer_weights *layer, const struct kv_view *kv,
                    bool windowed)
{
    const struct backend_ops *ops = f->backend->ops;
    const struct net_config *c = f->config;
    const struct project_output outputs[] = {
        {layer->query, f->all.queries, layer->query_bias},
        {layer->key, f->keys, layer->key_bias},
        {layer->value, f->values, layer->value_bias},
    };
    const struct norm norm = {layer->attention_norm, layer->attention_norm_bias};
    forward_products(f, f->all.hidden, norm, outputs, ARRAY_COUNT(outputs), f->all.rows);
    forward_part_done(f, FORWARD_QKV);
    norm_heads(f, layer);
    if (f->rotation_count == 0) {
        ops->kv_write(f->backend, f->keys, f->values, kv, f->all.sequences, f->all.count);
        forward_part_done(f, FORWARD_ROWS);
        return;
    }
    const struct rotation *rotation =
        &f->rotations[windowed && f->rotation_count > 1 ? ROPE_LOCAL : ROPE_GLOBAL];
    ops->rope_kv_write(f->backend, &(struct rope_kv_args){.q = f->all.queries,
                                                          .k = f->keys,
                                                          .v = f->values,
                                                          .cos = rotation->cos,
                                                          .sin = rotation->sin,
                                                          .heads = c->heads,
                                                          .rotary = c->rotary,
                                                          .pairing = c->pairing,
                                                          .kv = *kv,
                                                          .sequences = f->all.sequences,
                                                          .sequence_count = f->all.count});
    forward_part_done(f, FORWARD_ROWS);
}

void forward_activate(struct forward *f, uint32_t rows, uint32_t width)
{
    const struct backend_ops *ops = f->backend->ops;
    switch (f->config->architecture->activation) {
    case GATE_SILU:
        ops->swiglu(f->backend, f->gate, f->up, rows, width, f->gate);
        return;
    case GATE_GELU:
        ops->gelu(f->backend, f->gate, f->up, rows, width, f->gate);
        return;
    case ACTIVATION_GELU:
        ops->gelu(f->backend, f->up, (device_ptr){0}, rows, width, f->gate);
        return;
    }
    CHECK(false);
}

static void feed_dense(struct forward *f, const struct layer_weights *layer,
                       const struct batch *batch)
{
    const struct project_output outputs[] = {
        {layer->dense.up, f->up, layer->up_bias},
        {layer->dense.gate, f->gate, layer->gate_bias},
    };
    const struct norm norm = {layer->feed_forward_norm, layer->feed_forward_norm_bias};
    forward_products(f, batch->hidden, norm, outputs, layer->dense.gate != NULL ? 2 : 1,
                     batch->rows);
    forward_activate(f, batch->rows, f->config->feed_forward);
    add_product(f, layer->dense.down, f->gate, layer->down_bias, layer->feed_forward_post_norm,
                batch);
}

static void feed(struct forward *f, const struct layer_weights *layer, const struct batch *batch)
{
    if (layer->experts != NULL)
        forward_experts(f, layer, batch);
    else if (!f->fused)
        feed_dense(f, layer, batch);
    else
        f->backend->ops->feed_forward(
            f->backend, &(struct feed_forward_args){.x = batch->hidden,
                                                    .gain = layer->feed_forward_norm,
                                                    .epsilon = f->config->norm_epsilon,
                                                    .gate = layer->dense.gate,
                                                    .up = layer->dense.up,
                                                    .down = layer->dense.down,
                                                    .rows = batch->rows});
    forward_part_done(f, FORWARD_MLP);
}

/* The rest of a layer for the rows of one batch. */
static void attend_and_feed(struct forward *f, const struct layer_weights *layer,
                            const struct kv_view *kv, bool windowed, const struct batch *batch)
{
    const struct net_config *c = f->config;
    f->backend->ops->attention(f->backend,
                               &(struct attention_args){.q = batch->queries,
                                                        .out = f->mixed,
                                                        .heads = c->heads,
                                                        .scale = c->attention_scale,
                                                        .soft_cap = c->attention_cap,
                                                        .window = windowed ? c->window : 0,
                                                        .kv = *kv,
                                                        .sequences = batch->sequences,
                                                        .sequence_count = batch->count});
    forward_part_done(f, FORWARD_ATTENTION);
    add_product(f, layer->output, f->mixed, layer->output_bias, layer->attention_post_norm, batch);
    forward_part_done(f, FORWARD_OUTPUT);
    feed(f, layer, batch);
}

static void gather_tail(struct forward *f)
{
    const struct backend_ops *ops = f->backend->ops;
    ops->gather_rows(f->backend, f->all.hidden, f->tail_rows, f->tail.rows, f->config->embedding,
                     f->tail.hidden);
    ops->gather_rows(f->backend, f->all.queries, f->tail_rows, f->tail.rows,
                     net_query_width(f->config), f->tail.queries);
}

void forward_layers(struct forward *f)
{
    const struct forward_hooks *hooks = f->hooks;
    for (uint32_t l = 0; l < f->config->layers; l++) {
        const struct layer_weights *layer = &f->weights->layers[l];
        const struct kv_view kv = page_pool_view(f->pages, l);
        const bool windowed = net_windowed(f->config, l);
        project(f, layer, &kv, windowed);
        if (hooks != NULL && hooks->layer_done != NULL) {
            f->backend->ops->synchronize(f->backend);
            hooks->layer_done(hooks->arg, l);
        }
        if (l + 1 < f->config->layers) {
            attend_and_feed(f, layer, &kv, windowed, &f->all);
        } else if (f->tail.rows > 0) {
            gather_tail(f);
            forward_part_done(f, FORWARD_ROWS);
            attend_and_feed(f, layer, &kv, windowed, &f->tail);
        }
    }
}
