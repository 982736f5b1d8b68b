/* Attention and the writing of K and V, over pages of several sequences. A decode figure takes its
 * sequences in turn from a pool that no cache holds; a prefill figure is one chunk. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "ops/baton/bench_kernels.h"

enum { PAGE_TOKENS = 64, SEQUENCES_MAX = 32, PART_BYTES = 24 };

/* Sequences of BENCH_CONTEXT tokens each, all pages filled. */
struct cache {
    struct kv_view kv;
    uint32_t sequence_count, page_count; /* pages of a sequence */
    uint32_t *slots;                     /* [sequence_count][page_count], scattered */
    size_t token_bytes;                  /* K and V of one token */
};

struct attention_call {
    struct backend *backend;
    const struct cache *cache;
    struct batch_sequence sequences[SEQUENCES_MAX];
    struct attention_args args;
    device_ptr k, v;
};

static bool kv_dtype_parse(const char *dtype, enum kv_dtype *out)
{
    static const char *const names[] = {[KV_F32] = "f32", [KV_BF16] = "bf16", [KV_I8] = "i8"};
    for (*out = 0; *out < KV_DTYPE_COUNT; (*out)++)
        if (strcmp(dtype, names[*out]) == 0)
            return true;
    return false;
}

/* A permutation, so that neighbours in a sequence are none in memory. */
static void slots_shuffle(struct kernel_bench *bench, uint32_t *slots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        slots[i] = i;
    for (uint32_t i = count; i > 1; i--) {
        const uint32_t other = (uint32_t)random_below(&bench->random, i);
        const uint32_t slot = slots[i - 1];
        slots[i - 1] = slots[other];
        slots[other] = slot;
    }
}

/* Fills every page with what kv_write makes of normal numbers. */
static void cache_fill(struct kernel_bench *bench, struct cache *cache)
{
    const size_t width = (size_t)cache->kv.kv_heads * cache->kv.head_dim;
    const device_ptr k = bench_floats(bench, BENCH_ROWS_MAX * width);
    const device_ptr v = bench_floats(bench, BENCH_ROWS_MAX * width);
    for (uint32_t s = 0; s < cache->sequence_count; s++) {
        struct batch_sequence sequence = {.row_count = BENCH_ROWS_MAX,
                                          .slots = cache->slots + s * cache->page_count};
        for (; sequence.position < BENCH_CONTEXT; sequence.position += BENCH_ROWS_MAX)
            bench->backend->ops->kv_write(bench->backend, k, v, &cache->kv, &sequence, 1);
    }
    bench_release(bench, k);
    bench_release(bench, v);
}

static void cache_make(struct kernel_bench *bench, struct cache *cache, enum kv_dtype dtype)
{
    const struct bench_shape *s = bench->shape;
    const size_t page_bytes = kv_page_bytes(dtype, PAGE_TOKENS, s->kv_heads, s->head_dim);
    const size_t sequence_bytes = page_bytes * (BENCH_CONTEXT / PAGE_TOKENS);
    const size_t wanted = s->rotate_bytes / sequence_bytes + 1;
    *cache = (struct cache){
        .page_count = BENCH_CONTEXT / PAGE_TOKENS,
        .sequence_count = (uint32_t)(wanted < SEQUENCES_MAX ? SEQUENCES_MAX : wanted),
        .token_bytes = page_bytes / PAGE_TOKENS,
    };
    const uint32_t slot_count = cache->sequence_count * cache->page_count;
    cache->kv = (struct kv_view){
        .base = bench_allocate(bench, slot_count * page_bytes),
        .page_bytes = page_bytes,
        .page_tokens = PAGE_TOKENS,
        .kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .dtype = dtype,
    };
    cache->slots = malloc(slot_count * sizeof *cache->slots);
    CHECK(cache->slots != NULL);
    slots_shuffle(bench, cache->slots, slot_count);
    cache_fill(bench, cache);
}

static void cache_free(struct kernel_bench *bench, struct cache *cache)
{
    bench_release(bench, cache->kv.base);
    free(cache->slots);
}

/* The next sequences of the pool take the places of the batch. */
static void sequences_rotate(struct attention_call *call, uint64_t turn)
{
    const struct cache *cache = call->cache;
    const uint32_t count = call->args.sequence_count;
    for (uint32_t i = 0; i < count; i++)
        call->sequences[i].slots =
            cache->slots + (turn * count + i) % cache->sequence_count * cache->page_count;
}

static void attention_run(void *arg, uint64_t turn)
{
    struct attention_call *call = arg;
    sequences_rotate(call, turn);
    call->backend->ops->attention(call->backend, &call->args);
    call->backend->ops->synchronize(call->backend);
}

static void kv_write_run(void *arg, uint64_t turn)
{
    struct attention_call *call = arg;
    sequences_rotate(call, turn);
    call->backend->ops->kv_write(call->backend, call->k, call->v, &call->args.kv, call->sequences,
                                 call->args.sequence_count);
    call->backend->ops->synchronize(call->backend);
}

/* `count` sequences of `rows` rows that end at `context` tokens. */
static void batch_set(struct attention_call *call, uint32_t count, uint32_t rows, uint32_t context)
{
    call->args.sequence_count = count;
    for (uint32_t i = 0; i < count; i++)
        call->sequences[i] = (struct batch_sequence){
            .first_row = i * rows, .row_count = rows, .position = context - rows};
}

static void attention_figure(struct kernel_bench *bench, struct attention_call *call,
                             uint32_t count, uint32_t rows, uint32_t context)
{
    const struct bench_shape *s = bench->shape;
    const double seen = rows * ((double)(context - rows) + (rows + 1) / 2.0); /* keys of all rows */
    const double width = (double)s->heads * s->head_dim;
    char part[PART_BYTES];
    snprintf(part, sizeof part, "%s ctx %" PRIu32, rows == 1 ? "decode" : "prefill", context);
    batch_set(call, count, rows, context);
    const struct kernel_figure figure = {
        .part = part,
        .rows = count * rows,
        .arithmetic = call->args.kv.dtype == KV_F32 ? PEAK_F32 : PEAK_BF16,
        .operations = count * 4.0 * width * seen,
        .bytes = count * ((double)context * (double)call->cache->token_bytes +
                          2.0 * rows * width * (double)sizeof(float)),
        .footprint = call->cache->sequence_count * context * call->cache->token_bytes,
    };
    bench_figure(bench, &figure, attention_run, call);
}

bool bench_attention(struct kernel_bench *bench)
{
    static const uint32_t batches[] = {1, 8, 32};
    const struct bench_shape *s = bench->shape;
    const size_t width = (size_t)s->heads * s->head_dim;
    enum kv_dtype dtype;
    struct cache cache;
    if (!kv_dtype_parse(bench->row->dtype, &dtype))
        return false;
    cache_make(bench, &cache, dtype);
    struct attention_call call = {.backend = bench->backend, .cache = &cache};
    call.args = (struct attention_args){
        .q = bench_floats(bench, BENCH_ROWS_MAX * width),
        .out = bench_allocate(bench, BENCH_ROWS_MAX * width * sizeof(float)),
        .heads = s->heads,
        .scale = 0.125f,
        .kv = cache.kv,
        .sequences = call.sequences,
    };
    for (size_t i = 0; i < (bench->brief ? 1 : ARRAY_COUNT(batches)); i++)
        attention_figure(bench, &call, batches[i], 1, BENCH_CONTEXT);
    attention_figure(bench, &call, 1, 128, 128);
    if (!bench->brief) {
        attention_figure(bench, &call, 1, BENCH_ROWS_MAX, BENCH_ROWS_MAX);
        attention_figure(bench, &call, 1, BENCH_ROWS_MAX, BENCH_CONTEXT);
    }
    bench_release(bench, call.args.q);
    bench_release(bench, call.args.out);
    cache_free(bench, &cache);
    return true;
}

static void kv_write_figure(struct kernel_bench *bench, struct attention_call *call, uint32_t count,
                            uint32_t rows)
{
    const double values = 2.0 * count * rows * bench->shape->kv_heads * bench->shape->head_dim;
    batch_set(call, count, rows, BENCH_CONTEXT);
    const double bytes =
        values * (double)sizeof(float) + (double)count * rows * (double)call->cache->token_bytes;
    const struct kernel_figure figure = {
        .part = rows == 1 ? "decode" : "prefill",
        .rows = count * rows,
        .arithmetic = PEAK_F32,
        .bytes = bytes,
        .footprint = (size_t)bytes * call->cache->sequence_count / count,
    };
    bench_figure(bench, &figure, kv_write_run, call);
}

bool bench_kv_write(struct kernel_bench *bench)
{
    const size_t width = (size_t)bench->shape->kv_heads * bench->shape->head_dim;
    enum kv_dtype dtype;
    struct cache cache;
    if (!kv_dtype_parse(bench->row->dtype, &dtype))
        return false;
    cache_make(bench, &cache, dtype);
    struct attention_call call = {
        .backend = bench->backend,
        .cache = &cache,
        .args.kv = cache.kv,
        .k = bench_floats(bench, BENCH_ROWS_MAX * width),
        .v = bench_floats(bench, BENCH_ROWS_MAX * width),
    };
    kv_write_figure(bench, &call, 1, 1);
    kv_write_figure(bench, &call, SEQUENCES_MAX, 1);
    kv_write_figure(bench, &call, 1, BENCH_ROWS_MAX);
    bench_release(bench, call.k);
    bench_release(bench, call.v);
    cache_free(bench, &cache);
    return true;
}
