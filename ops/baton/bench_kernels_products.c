/* Products and embeddings: everything that reads packed weights. A decode step reads each matrix
 * once, so that the calls of a figure go through copies of it that no cache holds together. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "ops/baton/bench_kernels.h"

enum {
    COPIES_MAX = 512,
    HEAD_ROWS_MAX = 32,  /* logits are wanted for few rows */
    EMBED_IDS = 1 << 14, /* drawn once */
    CONVERT_OUTPUTS = 16,
};

static const uint32_t row_counts[] = {1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 128, 512};

struct product_name {
    const char *dtype;
    struct bench_product product;
};

static const struct product_name product_names[] = {
    {"f32", {WEIGHT_F32, ACTIVATION_F32, PEAK_F32, 0}},
    {"f32_bf16", {WEIGHT_BF16, ACTIVATION_F32, PEAK_F32, 0}},
    {"f32_q8", {WEIGHT_Q8, ACTIVATION_F32, PEAK_F32, 0}},
    {"f32_q8a", {WEIGHT_Q8A, ACTIVATION_F32, PEAK_F32, 0}},
    {"f32_q4", {WEIGHT_Q4, ACTIVATION_F32, PEAK_F32, 0}},
    {"f32_q4a", {WEIGHT_Q4A, ACTIVATION_F32, PEAK_F32, 0}},
    {"bf16", {WEIGHT_BF16, ACTIVATION_NATIVE, PEAK_BF16, 0}},
    {"i8_q8", {WEIGHT_Q8, ACTIVATION_NATIVE, PEAK_INT8, PEAK_INT8_GROUPS}},
    {"i8_q8a", {WEIGHT_Q8A, ACTIVATION_NATIVE, PEAK_INT8, PEAK_INT8_OFFSETS}},
    {"i8_q4", {WEIGHT_Q4, ACTIVATION_NATIVE, PEAK_INT8, PEAK_INT8_GROUPS}},
    {"i8_q4a", {WEIGHT_Q4A, ACTIVATION_NATIVE, PEAK_INT8, PEAK_INT8_OFFSETS}},
};

bool bench_product(const char *dtype, struct bench_product *out)
{
    for (size_t i = 0; i < ARRAY_COUNT(product_names); i++) {
        if (strcmp(product_names[i].dtype, dtype) != 0)
            continue;
        *out = product_names[i].product;
        return true;
    }
    return false;
}

/* Canonical rows for weight_fill. */
struct source {
    struct weight_rows rows;
    void *values;
    float *scale, *offset;
};

static void *checked_malloc(size_t bytes)
{
    void *memory = malloc(bytes);
    CHECK(memory != NULL);
    return memory;
}

static void source_fill_values(struct kernel_bench *bench, struct source *source,
                               enum weight_kind kind, size_t count)
{
    float *floats = source->values;
    uint16_t *halves = source->values;
    int8_t *q = source->values;
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)random_next(&bench->random);
        if (kind == WEIGHT_F32)
            floats[i] = ((float)(bits & 255) - 127.5f) / 1024.0f;
        else if (kind == WEIGHT_BF16) /* either sign, magnitudes from 1/128 to 1/32 */
            halves[i] = (uint16_t)((bits & 0x8000) | (0x3c00 + (bits & 0xff)));
        else if (kind == WEIGHT_Q8)
            q[i] = (int8_t)((int32_t)(bits % 255) - 127);
        else if (kind == WEIGHT_Q8A)
            q[i] = (int8_t)(bits & 127);
        else
            q[i] = (int8_t)((int32_t)(bits & 15) - (kind == WEIGHT_Q4 ? 8 : 0));
    }
}

static void source_init(struct kernel_bench *bench, struct source *source, enum weight_kind kind,
                        uint32_t k)
{
    const size_t count = (size_t)WEIGHT_READ_ROWS * k, groups = count / WEIGHT_GROUP;
    *source = (struct source){.values = checked_malloc(count * sizeof(float)),
                              .scale = checked_malloc(groups * sizeof(float)),
                              .offset = checked_malloc(groups * sizeof(float))};
    source_fill_values(bench, source, kind, count);
    for (size_t i = 0; i < groups; i++) {
        source->scale[i] = 0.01f;
        source->offset[i] = -0.1f;
    }
    if (kind == WEIGHT_F32)
        source->rows.f32 = source->values;
    else if (kind == WEIGHT_BF16)
        source->rows.bf16 = source->values;
    else
        source->rows = (struct weight_rows){.q = source->values, .scale = source->scale};
    if (kind == WEIGHT_Q8A || kind == WEIGHT_Q4A)
        source->rows.offset = source->offset;
}

/* The same rows wherever they are asked for. */
static void source_read(void *arg, uint32_t member, uint32_t first_row, uint32_t row_count,
                        struct weight_rows *rows_out)
{
    *rows_out = ((const struct source *)arg)->rows;
}

static void source_free(struct source *source)
{
    free(source->values);
    free(source->scale);
    free(source->offset);
}

/* Copies of one matrix. */
struct copies {
    struct weight *weights[COPIES_MAX];
    uint32_t count;
    size_t bytes; /* of one */
};

static struct weight *weight_make(struct kernel_bench *bench, struct source *source,
                                  enum weight_kind kind, uint32_t n, uint32_t k)
{
    const struct backend_ops *ops = bench->backend->ops;
    struct weight *weight;
    struct error error = {0};
    if (ops->weight_create(bench->backend, kind, n, k, &weight, &error) != STATUS_OK)
        bench_give_up(&error);
    ops->weight_fill(bench->backend, weight, &(struct weight_source){source_read, source});
    return weight;
}

static void copies_make(struct kernel_bench *bench, struct copies *copies, enum weight_kind kind,
                        uint32_t n, uint32_t k, size_t rotate_bytes)
{
    struct source source;
    source_init(bench, &source, kind, k);
    copies->count = 0;
    do {
        copies->weights[copies->count] = weight_make(bench, &source, kind, n, k);
        copies->bytes = bench->backend->ops->weight_bytes(copies->weights[0]);
    } while (++copies->count < COPIES_MAX && copies->count * copies->bytes < rotate_bytes);
    source_free(&source);
}

static void copies_release(struct kernel_bench *bench, struct copies *copies)
{
    for (uint32_t i = 0; i < copies->count; i++)
        bench->backend->ops->weight_release(bench->backend, copies->weights[i]);
}

struct product_call {
    struct backend *backend;
    const struct copies *copies;
    struct matmul_args args;
};

static void product_run(void *arg, uint64_t turn)
{
    struct product_call *call = arg;
    call->args.weight = call->copies->weights[turn % call->copies->count];
    call->backend->ops->matmul(call->backend, &call->args);
    call->backend->ops->synchronize(call->backend);
}

/* One matrix of the model, rows from 1 to rows_max. */
static void part_bench(struct kernel_bench *bench, const struct bench_product *product,
                       const char *part, uint32_t n, uint32_t k, uint32_t rows_max)
{
    struct copies copies;
    copies_make(bench, &copies, product->kind, n, k, bench->shape->rotate_bytes);
    struct product_call call = {
        .backend = bench->backend,
        .copies = &copies,
        .args = {.x = bench_floats(bench, (size_t)rows_max * k),
                 .out = bench_allocate(bench, (size_t)rows_max * n * sizeof(float))},
    };
    for (size_t i = 0; i < ARRAY_COUNT(row_counts) && row_counts[i] <= rows_max; i++) {
        const uint32_t rows = row_counts[i];
        if (bench->brief && rows != 1 && rows != HEAD_ROWS_MAX)
            continue;
        call.args.rows = rows;
        const double bytes =
            (double)copies.bytes + (double)rows * (double)(n + k) * (double)sizeof(float);
        const struct kernel_figure figure = {
            .part = part,
            .n = n,
            .k = k,
            .rows = rows,
            .arithmetic = product->arithmetic,
            .ceiling = bench->mode == ACTIVATION_NATIVE ? product->ceiling : 0,
            .operations = 2.0 * rows * n * k,
            .bytes = bytes,
            .footprint = (size_t)bytes + (copies.count - 1) * copies.bytes,
        };
        bench_figure(bench, &figure, product_run, &call);
    }
    bench_release(bench, call.args.x);
    bench_release(bench, call.args.out);
    copies_release(bench, &copies);
}

bool bench_matmul(struct kernel_bench *bench)
{
    const struct bench_shape *s = bench->shape;
    struct bench_product product;
    if (!bench_product(bench->row->dtype, &product))
        return false;
    part_bench(bench, &product, "up", s->feed_forward, s->embedding,
               bench->brief ? HEAD_ROWS_MAX : BENCH_ROWS_MAX);
    if (bench->brief)
        return true;
    part_bench(bench, &product, "down", s->embedding, s->feed_forward, BENCH_ROWS_MAX);
    part_bench(bench, &product, "q", s->heads * s->head_dim, s->embedding, BENCH_ROWS_MAX);
    part_bench(bench, &product, "head", s->vocab, s->embedding, HEAD_ROWS_MAX);
    return true;
}

struct top_call {
    struct backend *backend;
    const struct copies *copies;
    struct project_top_args args;
};

static void top_run(void *arg, uint64_t turn)
{
    struct top_call *call = arg;
    call->args.weight = call->copies->weights[turn % call->copies->count];
    call->backend->ops->project_top(call->backend, &call->args);
}

/* The head with nothing kept but the likeliest token of every row. */
bool bench_top(struct kernel_bench *bench)
{
    static const uint32_t counts[] = {1, 8, HEAD_ROWS_MAX};
    const uint32_t n = bench->shape->vocab, k = bench->shape->embedding;
    struct copies copies;
    struct top_entry best[HEAD_ROWS_MAX];
    copies_make(bench, &copies, WEIGHT_Q8, n, k, bench->shape->rotate_bytes);
    struct top_call call = {
        .backend = bench->backend,
        .copies = &copies,
        .args = {.x = bench_floats(bench, (size_t)HEAD_ROWS_MAX * k),
                 .gain = bench_floats(bench, k),
                 .epsilon = 1e-5f,
                 .id_count = n,
                 .count = 1,
                 .out = best},
    };
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++) {
        call.args.rows = counts[i];
        const double bytes =
            (double)copies.bytes + (double)counts[i] * (double)k * (double)sizeof(float);
        const struct kernel_figure figure = {
            .part = "head",
            .n = n,
            .k = k,
            .rows = counts[i],
            .arithmetic = bench->row->isa == KERNEL_ISA_ref ? PEAK_F32 : PEAK_INT8,
            .operations = 2.0 * counts[i] * n * k,
            .bytes = bytes,
            .footprint = (size_t)bytes + (copies.count - 1) * copies.bytes,
        };
        bench_figure(bench, &figure, top_run, &call);
    }
    bench_release(bench, call.args.x);
    bench_release(bench, call.args.gain);
    copies_release(bench, &copies);
    return true;
}

/* Quantising and rounding are no operations of the backend but the first part of a product: they
 * are measured in the smallest one, with a panel of outputs. */
static void convert_bench(struct kernel_bench *bench, enum weight_kind kind,
                          enum peak_arithmetic arithmetic)
{
    static const uint32_t counts[] = {1, 32, 512};
    const uint32_t k = bench->shape->embedding;
    struct copies copies;
    copies_make(bench, &copies, kind, CONVERT_OUTPUTS, k, 0);
    struct product_call call = {
        .backend = bench->backend,
        .copies = &copies,
        .args = {.x = bench_floats(bench, (size_t)BENCH_ROWS_MAX * k),
                 .out = bench_allocate(bench,
                                       (size_t)BENCH_ROWS_MAX * CONVERT_OUTPUTS * sizeof(float))},
    };
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++) {
        call.args.rows = counts[i];
        const double bytes = (double)copies.bytes +
                             counts[i] * (double)(CONVERT_OUTPUTS + k) * (double)sizeof(float);
        const struct kernel_figure figure = {
            .part = "hidden to",
            .n = CONVERT_OUTPUTS,
            .k = k,
            .rows = counts[i],
            .arithmetic = arithmetic,
            .operations = 2.0 * counts[i] * CONVERT_OUTPUTS * k,
            .bytes = bytes,
            .footprint = (size_t)bytes,
        };
        bench_figure(bench, &figure, product_run, &call);
    }
    bench_release(bench, call.args.x);
    bench_release(bench, call.args.out);
    copies_release(bench, &copies);
}

bool bench_quantize(struct kernel_bench *bench)
{
    if (strcmp(bench->row->dtype, "i8") != 0)
        return false;
    convert_bench(bench, WEIGHT_Q8, PEAK_INT8);
    return true;
}

bool bench_round(struct kernel_bench *bench)
{
    if (strcmp(bench->row->dtype, "bf16") != 0)
        return false;
    convert_bench(bench, WEIGHT_BF16, PEAK_BF16);
    return true;
}

struct embed_call {
    struct backend *backend;
    const struct weight *weight;
    const int32_t *ids; /* [EMBED_IDS] */
    uint32_t rows;
    device_ptr out;
};

static void embed_run(void *arg, uint64_t turn)
{
    const struct embed_call *call = arg;
    const size_t place = turn * call->rows % (EMBED_IDS - BENCH_ROWS_MAX);
    call->backend->ops->embed(call->backend, call->weight, call->ids + place, call->rows,
                              call->out);
    call->backend->ops->synchronize(call->backend);
}

static bool embed_kind(const char *dtype, enum weight_kind *kind_out)
{
    static const char *const names[] = {
        [WEIGHT_F32] = "f32", [WEIGHT_BF16] = "bf16", [WEIGHT_Q8] = "q8",
        [WEIGHT_Q8A] = "q8a", [WEIGHT_Q4] = "q4",     [WEIGHT_Q4A] = "q4a"};
    for (enum weight_kind kind = WEIGHT_F32; kind < ARRAY_COUNT(names); kind++) {
        if (strcmp(names[kind], dtype) == 0) {
            *kind_out = kind;
            return true;
        }
    }
    return false;
}

bool bench_embed(struct kernel_bench *bench)
{
    static const uint32_t counts[] = {1, 32, 512};
    const uint32_t n = bench->shape->vocab, k = bench->shape->embedding;
    enum weight_kind kind;
    struct copies table;
    if (!embed_kind(bench->row->dtype, &kind))
        return false;
    int32_t *ids = checked_malloc(EMBED_IDS * sizeof *ids);
    for (size_t i = 0; i < EMBED_IDS; i++)
        ids[i] = (int32_t)random_below(&bench->random, n);
    copies_make(bench, &table, kind, n, k, 0);
    struct embed_call call = {
        .backend = bench->backend,
        .weight = table.weights[0],
        .ids = ids,
        .out = bench_allocate(bench, (size_t)BENCH_ROWS_MAX * k * sizeof(float)),
    };
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++) {
        call.rows = counts[i];
        const struct kernel_figure figure = {
            .part = "table",
            .n = n,
            .k = k,
            .rows = counts[i],
            .arithmetic = PEAK_F32,
            .operations = kind >= WEIGHT_Q8 ? 2.0 * counts[i] * k : 0,
            .bytes = counts[i] * ((double)table.bytes / n + (double)k * (double)sizeof(float)),
            .footprint = table.bytes,
        };
        bench_figure(bench, &figure, embed_run, &call);
    }
    bench_release(bench, call.out);
    copies_release(bench, &table);
    free(ids);
    return true;
}
