/* The inside of `baton bench kernels`: how a row of kernels.def is measured.
 *
 * A bench function makes the operands of one row at one model's shapes and runs the operation
 * through the backend of the row's instruction set, so that what is measured is what runs. */
#ifndef BATON_OPS_BATON_BENCH_KERNELS_H
#define BATON_OPS_BATON_BENCH_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"
#include "base/team.h"
#include "kernels/backend.h"
#include "kernels/kernels.h"
#include "ops/baton/bench_limits.h"

enum { BENCH_ROWS_MAX = 512, BENCH_CONTEXT = 4096 };

/* One model's shapes. */
struct bench_shape {
    const char *name;
    uint32_t embedding, feed_forward, heads, kv_heads, head_dim, vocab;
    size_t rotate_bytes; /* operands of memory-bound calls go through this much memory */
};

/* Everything a bench function needs. */
struct kernel_bench {
    const struct kernel_row *row;
    const struct bench_shape *shape;
    struct team *team;
    struct bench_limits *limits;
    struct backend *backend; /* of the row's instruction set */
    struct random random;
    double budget_ms;
    enum activation_mode mode; /* NATIVE, or coarser groups */
    bool brief;                /* few sizes: a reference, or a row whose speed matters little */
    bool json;
    bool *header_printed;
};

/* There is no memory for the operands: the sentence, and the end of the process. */
_Noreturn void bench_give_up(const struct error *error);
/* Allocations on the backend. */
device_ptr bench_allocate(struct kernel_bench *bench, size_t bytes);
/* The same, filled with normal(0, 1). */
device_ptr bench_floats(struct kernel_bench *bench, size_t count);
void bench_release(struct kernel_bench *bench, device_ptr p);

/* One measured call and the work in it. */
struct kernel_figure {
    const char *part; /* "up", "decode ctx 4096" */
    uint32_t n, k;    /* of a product, 0 else */
    uint32_t rows;    /* T */
    enum peak_arithmetic arithmetic;
    enum peak_arithmetic ceiling; /* a PEAK_INT8_… whose share of it is possible, or 0 */
    double operations, bytes;
    size_t footprint;
};
/* Measures and prints one line. */
void bench_figure(struct kernel_bench *bench, const struct kernel_figure *figure,
                  void (*call)(void *arg, uint64_t turn), void *arg);

/* False when there is no way to measure the row's data type. */
bool bench_matmul(struct kernel_bench *bench);
bool bench_embed(struct kernel_bench *bench);
bool bench_quantize(struct kernel_bench *bench);
bool bench_round(struct kernel_bench *bench);
bool bench_rms_norm(struct kernel_bench *bench);
bool bench_rope(struct kernel_bench *bench);
bool bench_swiglu(struct kernel_bench *bench);
bool bench_layer_norm(struct kernel_bench *bench);
bool bench_gelu(struct kernel_bench *bench);
bool bench_scale(struct kernel_bench *bench);
bool bench_soft_cap(struct kernel_bench *bench);
bool bench_rows_add(struct kernel_bench *bench);
bool bench_route(struct kernel_bench *bench);
bool bench_top(struct kernel_bench *bench);
bool bench_kv_write(struct kernel_bench *bench);
bool bench_attention(struct kernel_bench *bench);

/* How a product's data type ("i8_q4a") reads: the weights and the mode that gets this slot. */
struct bench_product {
    enum weight_kind kind;
    enum activation_mode mode;
    enum peak_arithmetic arithmetic, ceiling;
};
bool bench_product(const char *dtype, struct bench_product *out);

#endif
