/* Every buffer that a call needs, allocated once. */
#include <stdlib.h>

#include "base/check.h"
#include "model/net/forward_state_internal.h"

static enum status allocate(struct forward *f, device_ptr *out, size_t rows, size_t width,
                            struct error *error)
{
    return f->backend->ops->allocate(f->backend, rows * width * sizeof(float), out, error);
}

/* The widest that gate and up are. */
static uint32_t inner_width(const struct net_config *c)
{
    uint32_t width = c->feed_forward > c->expert_width ? c->feed_forward : c->expert_width;
    return width > c->shared_width ? width : c->shared_width;
}

static enum status allocate_steps(struct forward *f, struct error *error)
{
    const struct net_config *c = f->config;
    const size_t rows = f->limits.rows, inner = inner_width(c);
    TRY(allocate(f, &f->normed, rows, c->embedding, error));
    TRY(allocate(f, &f->gate, rows, inner, error));
    TRY(allocate(f, &f->up, rows, inner, error));
    TRY(allocate(f, &f->added, rows, c->embedding, error));
    if (c->experts == 0)
        return STATUS_OK;
    TRY(allocate(f, &f->gathered, rows, c->embedding, error));
    return allocate(f, &f->routes, rows, c->experts, error);
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
    TRY(allocate(f, &f->logits, tail, c->vocab_count, error));
    for (uint32_t i = 0; i < f->rotation_count; i++) {
        TRY(allocate(f, &f->rotations[i].cos, rows, half, error));
        TRY(allocate(f, &f->rotations[i].sin, rows, half, error));
    }
    return f->fused ? STATUS_OK : allocate_steps(f, error);
}

/* `count` things of `bytes` bytes, at least one; *fine turns false when there is no memory. */
static void *host_array(size_t count, size_t bytes, bool *fine)
{
    void *array = calloc(count == 0 ? 1 : count, bytes);
    *fine = *fine && array != NULL;
    return array;
}

static enum status allocate_host(struct forward *f, struct error *error)
{
    const struct net_config *c = f->config;
    const size_t rows = f->limits.rows, tail = f->limits.logit_rows, half = c->rotary / 2;
    const size_t routed = rows * c->experts_used;
    bool fine = true;
    for (uint32_t i = 0; i < f->rotation_count; i++) {
        f->rotations[i].inverse_frequencies = host_array(half, sizeof(float), &fine);
        f->rotations[i].host_cos = host_array(rows * half, sizeof(float), &fine);
        f->rotations[i].host_sin = host_array(rows * half, sizeof(float), &fine);
    }
    if (f->backend->ops->host_view(f->backend, f->logits) == NULL)
        f->host_logits = host_array(tail * c->vocab_count, sizeof(float), &fine);
    f->top = host_array(tail, sizeof *f->top, &fine);
    f->best = host_array(tail, sizeof *f->best, &fine);
    f->ids = host_array(rows, sizeof *f->ids, &fine);
    f->positions = host_array(rows, sizeof *f->positions, &fine);
    f->tail_rows = host_array(tail, sizeof *f->tail_rows, &fine);
    f->all.sequences = host_array(f->limits.sequences, sizeof *f->all.sequences, &fine);
    f->tail.sequences = host_array(f->limits.sequences, sizeof *f->tail.sequences, &fine);
    f->route_ids = host_array(routed, sizeof *f->route_ids, &fine);
    f->route_weights = host_array(routed, sizeof *f->route_weights, &fine);
    f->expert_rows = host_array(routed, sizeof *f->expert_rows, &fine);
    f->expert_weights = host_array(routed, sizeof *f->expert_weights, &fine);
    f->expert_ends = host_array(c->experts, sizeof *f->expert_ends, &fine);
    if (!fine)
        return error_set(error, STATUS_NO_MEMORY,
                         "no memory for the buffers of %zu rows and %zu rows of logits", rows,
                         tail);
    return STATUS_OK;
}

enum status forward_allocate(struct forward *f, struct error *error)
{
    TRY(allocate_device(f, error));
    return allocate_host(f, error);
}

void forward_destroy(struct forward *f)
{
    if (f == NULL)
        return;
    const device_ptr device[] = {f->all.hidden, f->all.queries, f->tail.hidden, f->tail.queries,
                                 f->keys,       f->values,      f->mixed,       f->logits,
                                 f->normed,     f->gate,        f->up,          f->added,
                                 f->gathered,   f->routes};
    void *const host[] = {
        f->host_logits, f->top,           f->best,          f->ids,         f->positions,
        f->tail_rows,   f->route_ids,     f->route_weights, f->expert_rows, f->expert_weights,
        f->expert_ends, f->all.sequences, f->tail.sequences};
    for (size_t i = 0; i < ARRAY_COUNT(device); i++)
        f->backend->ops->release(f->backend, device[i]);
    for (size_t i = 0; i < ARRAY_COUNT(host); i++)
        free(host[i]);
    for (uint32_t i = 0; i < ROPE_COUNT; i++) {
        f->backend->ops->release(f->backend, f->rotations[i].cos);
        f->backend->ops->release(f->backend, f->rotations[i].sin);
        free(f->rotations[i].inverse_frequencies);
        free(f->rotations[i].host_cos);
        free(f->rotations[i].host_sin);
    }
    free(f);
}
