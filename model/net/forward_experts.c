/* A mixture of experts: the router says which few experts a row goes to, rows are grouped by
 * expert, each expert is one set of products over its rows, and what comes out is added to the
 * residual by weight, the experts in ascending order. A row's sums are therefore in the same order
 * whoever else is in the batch. */
#include <string.h>

#include "model/net/forward_state_internal.h"

/* Rows by expert, ascending within each: expert_rows, expert_weights, and where each ends. */
static void group_rows(struct forward *f, uint32_t rows)
{
    const uint32_t experts = f->config->experts, used = f->config->experts_used;
    uint32_t *ends = f->expert_ends, sum = 0;
    memset(ends, 0, experts * sizeof *ends);
    for (size_t i = 0; i < (size_t)rows * used; i++)
        ends[f->route_ids[i]]++;
    for (uint32_t expert = 0; expert < experts; expert++) {
        const uint32_t count = ends[expert];
        ends[expert] = sum; /* where it begins, until its rows are there */
        sum += count;
    }
    for (size_t i = 0; i < (size_t)rows * used; i++) {
        const uint32_t place = ends[f->route_ids[i]]++;
        f->expert_rows[place] = (uint32_t)(i / used);
        f->expert_weights[place] = f->route_weights[i];
    }
}

/* down(act(gate(x)) * up(x)) into f->added. */
static void run_expert(struct forward *f, const struct expert_weights *expert, device_ptr x,
                       uint32_t rows, uint32_t width)
{
    const struct backend_ops *ops = f->backend->ops;
    const struct project_output outputs[] = {{expert->gate, f->gate, {0}},
                                             {expert->up, f->up, {0}}};
    ops->project(f->backend, &(struct project_args){
                                 .x = x, .outputs = outputs, .output_count = 2, .rows = rows});
    forward_activate(f, rows, width);
    ops->matmul(
        f->backend,
        &(struct matmul_args){.weight = expert->down, .x = f->gate, .out = f->added, .rows = rows});
}

static void run_routed(struct forward *f, const struct layer_weights *layer,
                       const struct batch *batch)
{
    const struct backend_ops *ops = f->backend->ops;
    const struct net_config *c = f->config;
    ops->matmul(f->backend, &(struct matmul_args){.weight = layer->router,
                                                  .x = f->normed,
                                                  .out = f->routes,
                                                  .rows = batch->rows});
    ops->route(f->backend, &(struct route_args){.logits = f->routes,
                                                .experts = c->experts,
                                                .used = c->experts_used,
                                                .normalise = c->experts_sum_to_one,
                                                .rows = batch->rows,
                                                .ids = f->route_ids,
                                                .weights = f->route_weights});
    group_rows(f, batch->rows);
    for (uint32_t expert = 0, first = 0; expert < c->experts; first = f->expert_ends[expert++]) {
        const uint32_t rows = f->expert_ends[expert] - first;
        if (rows == 0)
            continue;
        ops->gather_rows(f->backend, f->normed, f->expert_rows + first, rows, c->embedding,
                         f->gathered);
        run_expert(f, &layer->experts[expert], f->gathered, rows, c->expert_width);
        ops->rows_add(f->backend, &(struct rows_add_args){.out = batch->hidden,
                                                          .y = f->added,
                                                          .indices = f->expert_rows + first,
                                                          .weights = f->expert_weights + first,
                                                          .rows = rows,
                                                          .width = c->embedding});
    }
}

/* The one that all rows go to, by the sigmoid of a product of theirs. */
static void run_shared(struct forward *f, const struct layer_weights *layer,
                       const struct batch *batch)
{
    const struct backend_ops *ops = f->backend->ops;
    const struct net_config *c = f->config;
    ops->matmul(f->backend, &(struct matmul_args){.weight = layer->shared_router,
                                                  .x = f->normed,
                                                  .out = f->routes,
                                                  .rows = batch->rows});
    run_expert(f, &layer->shared, f->normed, batch->rows, c->shared_width);
    ops->rows_add(f->backend, &(struct rows_add_args){.out = batch->hidden,
                                                      .y = f->added,
                                                      .gates = f->routes,
                                                      .rows = batch->rows,
                                                      .width = c->embedding});
}

void forward_experts(struct forward *f, const struct layer_weights *layer,
                     const struct batch *batch)
{
    f->backend->ops->rms_norm(f->backend, batch->hidden, layer->feed_forward_norm,
                              f->config->norm_epsilon, batch->rows, f->config->embedding,
                              f->normed);
    run_routed(f, layer, batch);
    if (layer->shared_router != NULL)
        run_shared(f, layer, batch);
}
