/* Operations that take rows one by one. Their operands are what the step before has just written,
 * so that the roof is the speed of the cache they fit in. */
#include <string.h>

#include "base/check.h"
#include "ops/baton/bench_kernels.h"

static const uint32_t row_counts[] = {1, 32, 512};

/* Operations of one element, additions and multiplications of the formulas in kernels/README.md. */
enum {
    NORM_OPERATIONS = 4,
    ROPE_OPERATIONS = 3,
    SWIGLU_OPERATIONS = 20, /* most of it the exponential's polynomial */
    LAYER_NORM_OPERATIONS = 8,
    GELU_OPERATIONS = 24, /* as of swiglu, and the cube */
    SOFT_CAP_OPERATIONS = 20,
    ROWS_ADD_OPERATIONS = 2,
    ROUTE_OPERATIONS = 16,
};

/* Two inputs at most and an output, [BENCH_ROWS_MAX][width]. */
struct rows_call {
    struct kernel_bench *bench;
    uint32_t rows, width, heads;
    enum rope_pairing pairing;
    device_ptr a, b, out;
};

static void rows_figures(struct kernel_bench *bench, struct rows_call *call, const char *part,
                         double operations, double bytes, void (*run)(void *arg, uint64_t turn))
{
    for (size_t i = 0; i < ARRAY_COUNT(row_counts); i++) {
        call->rows = row_counts[i];
        const double elements = (double)row_counts[i] * call->width;
        const struct kernel_figure figure = {
            .part = part,
            .rows = row_counts[i],
            .arithmetic = PEAK_F32,
            .operations = operations * elements,
            .bytes = bytes * elements,
            .footprint = (size_t)(bytes * elements),
        };
        bench_figure(bench, &figure, run, call);
    }
    bench_release(bench, call->a);
    bench_release(bench, call->b);
    bench_release(bench, call->out);
}

static struct rows_call rows_call(struct kernel_bench *bench, uint32_t width)
{
    const size_t count = (size_t)BENCH_ROWS_MAX * width;
    return (struct rows_call){.bench = bench,
                              .width = width,
                              .a = bench_floats(bench, count),
                              .b = bench_floats(bench, count),
                              .out = bench_allocate(bench, count * sizeof(float))};
}

static void rms_norm_run(void *arg, uint64_t turn)
{
    const struct rows_call *call = arg;
    struct backend *backend = call->bench->backend;
    backend->ops->rms_norm(backend, call->a, call->b, 1e-5f, call->rows, call->width, call->out);
    backend->ops->synchronize(backend);
}

bool bench_rms_norm(struct kernel_bench *bench)
{
    struct rows_call call = rows_call(bench, bench->shape->embedding);
    rows_figures(bench, &call, "hidden", NORM_OPERATIONS, 2 * sizeof(float), rms_norm_run);
    return true;
}

/* The tables are zero: after the first call so is what is turned, which takes as long as any other
 * numbers. */
static void rope_run(void *arg, uint64_t turn)
{
    const struct rows_call *call = arg;
    struct backend *backend = call->bench->backend;
    backend->ops->rope(backend, &(struct rope_args){.x = call->a,
                                                    .cos = call->out,
                                                    .sin = call->out,
                                                    .rows = call->rows,
                                                    .heads = call->heads,
                                                    .head_dim = call->width / call->heads,
                                                    .rotary = call->width / call->heads,
                                                    .pairing = call->pairing});
    backend->ops->synchronize(backend);
}

bool bench_rope(struct kernel_bench *bench)
{
    const bool neighbours = strcmp(bench->row->dtype, "neighbours") == 0;
    if (!neighbours && strcmp(bench->row->dtype, "halves") != 0)
        return false;
    struct rows_call call = rows_call(bench, bench->shape->heads * bench->shape->head_dim);
    call.heads = bench->shape->heads;
    call.pairing = neighbours ? ROPE_NEIGHBOURS : ROPE_HALVES;
    rows_figures(bench, &call, "queries", ROPE_OPERATIONS, 2 * sizeof(float), rope_run);
    return true;
}

static void swiglu_run(void *arg, uint64_t turn)
{
    const struct rows_call *call = arg;
    struct backend *backend = call->bench->backend;
    backend->ops->swiglu(backend, call->a, call->b, call->rows, call->width, call->out);
    backend->ops->synchronize(backend);
}

bool bench_swiglu(struct kernel_bench *bench)
{
    struct rows_call call = rows_call(bench, bench->shape->feed_forward);
    rows_figures(bench, &call, "gate", SWIGLU_OPERATIONS, 3 * sizeof(float), swiglu_run);
    return true;
}

static void layer_norm_run(void *arg, uint64_t turn)
{
    const struct rows_call *call = arg;
    struct backend *backend = call->bench->backend;
    backend->ops->layer_norm(backend, &(struct layer_norm_args){.x = call->a,
                                                                .out = call->out,
                                                                .gain = call->b,
                                                                .bias = call->b,
                                                                .epsilon = 1e-5f,
                                                                .rows = call->rows,
                                                                .width = call->width});
    backend->ops->synchronize(backend);
}

bool bench_layer_norm(struct kernel_bench *bench)
{
    struct rows_call call = rows_call(bench, bench->shape->embedding);
    rows_figures(bench, &call, "hidden", LAYER_NORM_OPERATIONS, 2 * sizeof(float), layer_norm_run);
    return true;
}

static void gelu_run(void *arg, uint64_t turn)
{
    const struct rows_call *call = arg;
    struct backend *backend = call->bench->backend;
    backend->ops->gelu(backend, call->a, call->b, call->rows, call->width, call->out);
    backend->ops->synchronize(backend);
}

bool bench_gelu(struct kernel_bench *bench)
{
    struct rows_call call = rows_call(bench, bench->shape->feed_forward);
    rows_figures(bench, &call, "gate", GELU_OPERATIONS, 3 * sizeof(float), gelu_run);
    return true;
}

/* By one, so that the numbers stay what they are. */
static void scale_run(void *arg, uint64_t turn)
{
    const struct rows_call *call = arg;
    struct backend *backend = call->bench->backend;
    backend->ops->scale(backend, call->a, 1.0f, call->rows, call->width);
    backend->ops->synchronize(backend);
}

bool bench_scale(struct kernel_bench *bench)
{
    struct rows_call call = rows_call(bench, bench->shape->embedding);
    rows_figures(bench, &call, "hidden", 1, 2 * sizeof(float), scale_run);
    return true;
}

static void soft_cap_run(void *arg, uint64_t turn)
{
    const struct rows_call *call = arg;
    struct backend *backend = call->bench->backend;
    backend->ops->soft_cap(backend, call->a, 30.0f, call->rows, call->width);
    backend->ops->synchronize(backend);
}

bool bench_soft_cap(struct kernel_bench *bench)
{
    struct rows_call call = rows_call(bench, bench->shape->embedding);
    rows_figures(bench, &call, "hidden", SOFT_CAP_OPERATIONS, 2 * sizeof(float), soft_cap_run);
    return true;
}

/* What is added grows, but slowly enough for the time of a bench. */
static void rows_add_run(void *arg, uint64_t turn)
{
    const struct rows_call *call = arg;
    struct backend *backend = call->bench->backend;
    backend->ops->rows_add(backend, &(struct rows_add_args){.out = call->out,
                                                            .y = call->a,
                                                            .gates = call->b,
                                                            .rows = call->rows,
                                                            .width = call->width});
    backend->ops->synchronize(backend);
}

bool bench_rows_add(struct kernel_bench *bench)
{
    struct rows_call call = rows_call(bench, bench->shape->embedding);
    rows_figures(bench, &call, "expert", ROWS_ADD_OPERATIONS, 3 * sizeof(float), rows_add_run);
    return true;
}

/* As many experts, and of them as many for a row, as mixtures have. */
enum { EXPERTS = 64, EXPERTS_USED = 8 };

static void route_run(void *arg, uint64_t turn)
{
    const struct rows_call *call = arg;
    struct backend *backend = call->bench->backend;
    uint32_t ids[BENCH_ROWS_MAX * EXPERTS_USED];
    float weights[BENCH_ROWS_MAX * EXPERTS_USED];
    backend->ops->route(backend, &(struct route_args){.logits = call->a,
                                                      .experts = call->width,
                                                      .used = EXPERTS_USED,
                                                      .normalise = true,
                                                      .rows = call->rows,
                                                      .ids = ids,
                                                      .weights = weights});
}

bool bench_route(struct kernel_bench *bench)
{
    struct rows_call call = rows_call(bench, EXPERTS);
    rows_figures(bench, &call, "experts", ROUTE_OPERATIONS, sizeof(float), route_run);
    return true;
}
