/* The kernels of the CPU: what each operation's function looks like, and the table of the chosen
 * ones. kernels.def lists every variant; everything here that repeats is generated from it.
 *
 * A kernel gets raw pointers and sizes that its caller (backend_cpu*.c) has checked. It allocates
 * nothing, keeps nothing and calls nothing outside this folder. All variants of one slot give the
 * same bits (README.md has the order of every sum); any NaN counts as equal to any other. */
#ifndef BATON_KERNELS_KERNELS_H
#define BATON_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"

/* Instruction sets in the order of the ladder; `ref` is plain C for any CPU. */
enum kernel_isa {
    KERNEL_ISA_ref,
    KERNEL_ISA_avx2,
    KERNEL_ISA_avx512vnni,
    KERNEL_ISA_avx512bf16,
    KERNEL_ISA_COUNT
};

/* 32 activations as int8 and what a product needs to know of them: one pointer a row for all. */
struct quantized_group {
    int8_t q[WEIGHT_GROUP]; /* in [-127, 127] */
    float scale;            /* NaN where the group holds NaN or Inf */
    float scaled_sum;       /* scale * (sum of q), for weights with an offset */
    int32_t start;          /* -128 times the sum of q, for weights stored as q + 128 */
    int32_t unused;         /* 0 */
};

/* Activations x [T][K] become int8 by groups of 32 (K a multiple of 32). With a span above 1, so
 * many groups (at the end of a row what is left) share what then stands in the first of them; the
 * others have zeros there. */
struct quantize_task {
    const float *x; /* [rows][k] */
    uint32_t rows, k;
    uint32_t span;               /* 0: 1 */
    struct quantized_group *out; /* [rows][out_stride], k / 32 of each row written */
    size_t out_stride;
};
typedef void quantize_kernel(const struct quantize_task *task);

/* Activations become bf16, K padded to even with zero. */
struct round_task {
    const float *x; /* [rows][x_stride], k of each row read */
    size_t x_stride;
    uint32_t rows, k;
    uint16_t *out; /* [rows][out_stride], k rounded up to even of each row written */
    size_t out_stride;
};
typedef void round_kernel(const struct round_task *task);

/* out[rows][panel_first * 16 … panel_end * 16) of x times the packed weight (weight_panel.h). */
struct matmul_task {
    const uint8_t *panels; /* panel 0 */
    uint32_t n, k;
    const void *x;     /* float [rows][k], bf16 [rows][k even] or quantized_group [rows][k / 32] */
    const float *bias; /* [n] or NULL */
    float *out;        /* [rows][out_stride], whose column 0 is output 16 * out_panel */
    size_t out_stride;
    uint32_t out_panel;
    uint32_t rows;
    bool half_scales; /* of the weight */
    uint32_t span;    /* of x, and of the weight's scales: the first of a span counts. 0: 1; above 1
                         for matmul_i8_q8 only */
    bool accumulate;  /* out + (sum + bias) */
    uint32_t panel_first, panel_end;
    const uint8_t *next; /* what is probably read after these panels; NULL: what follows them */
};
typedef void matmul_kernel(const struct matmul_task *task);

/* Rows `ids` of a packed weight as floats. */
struct embed_task {
    const uint8_t *panels;
    uint32_t k;
    bool half_scales;
    const int32_t *ids; /* [rows] */
    uint32_t rows;
    float *out; /* [rows][k] */
};
typedef void embed_kernel(const struct embed_task *task);

struct rms_norm_task {
    const float *x, *gain; /* [rows][width], [width] */
    float epsilon;
    uint32_t rows, width;
    float *out; /* [rows][width], may be x */
};
typedef void rms_norm_kernel(const struct rms_norm_task *task);

struct rope_task {
    float *x;               /* [rows][heads][head_dim], in place */
    const float *cos, *sin; /* [rows][rotary / 2] */
    uint32_t rows, heads, head_dim, rotary;
};
typedef void rope_kernel(const struct rope_task *task);

struct swiglu_task {
    const float *gate, *up;
    size_t count;
    float *out; /* [count], may be gate */
};
typedef void swiglu_kernel(const struct swiglu_task *task);

struct layer_norm_task {
    const float *x, *gain, *bias; /* [rows][width], [width], [width] */
    float epsilon;
    uint32_t rows, width;
    float *out; /* [rows][width], may be x */
};
typedef void layer_norm_kernel(const struct layer_norm_task *task);

struct gelu_task {
    const float *x, *up; /* up: NULL for gelu(x) alone */
    size_t count;
    float *out; /* [count], may be x */
};
typedef void gelu_kernel(const struct gelu_task *task);

/* As route_args. */
struct route_task {
    const float *logits; /* [rows][experts] */
    uint32_t rows, experts, used;
    bool normalise;
    uint32_t *ids;  /* [rows][used] */
    float *weights; /* [rows][used] */
};
typedef void route_kernel(const struct route_task *task);

/* As rows_add_args. */
struct rows_add_task {
    const float *y; /* [rows][width] */
    const uint32_t *indices;
    const float *weights, *gates;
    uint32_t rows, width;
    float *out;
};
typedef void rows_add_kernel(const struct rows_add_task *task);

struct scale_task {
    float *x; /* [count], in place */
    float factor;
    size_t count;
};
typedef void scale_kernel(const struct scale_task *task);

struct soft_cap_task {
    float *x; /* [count], in place */
    float cap;
    size_t count;
};
typedef void soft_cap_kernel(const struct soft_cap_task *task);

/* Values of rows, offered to the row's list of the largest (top_list.h). */
struct top_task {
    const float *values; /* [rows][stride], `columns` of each row read */
    size_t stride;
    uint32_t rows, columns;
    int32_t first_id;        /* of column 0 */
    struct top_entry *lists; /* [rows][list_stride] */
    size_t list_stride;
    uint32_t *held; /* [rows] entries that are there, at most `count` */
    uint32_t count; /* <= list_stride */
};
typedef void top_kernel(const struct top_task *task);

/* K and V of some rows of one sequence, into its pages. */
struct kv_write_task {
    const float *k, *v; /* [rows][kv_heads][head_dim] */
    const struct kv_view *kv;
    const uint32_t *slots; /* block table */
    uint32_t position;     /* of the first row */
    uint32_t rows;
};
typedef void kv_write_kernel(const struct kv_write_task *task);

/* Attention: the tokens [first, end), end > first, that are probably read after a task, only to be
 * asked for. */
struct attention_next {
    const uint32_t *slots;        /* NULL: not known */
    uint32_t kv_head, first, end; /* tokens it sees */
};
/* Query rows of one key/value head of one sequence. Row r is token r / group, head r % group. The
 * dtype of the slot is that of the pages. */
enum { ATTENTION_TILE_ROWS = 24, ATTENTION_BLOCK = 64, ATTENTION_SEGMENT = 512 };
struct attention_task {
    const float *q; /* [T][heads][head_dim], at the sequence's first row */
    float *out;     /* the same shape */
    uint32_t heads, kv_head, head_dim;
    float scale;
    float soft_cap;  /* c: scores become c * tanh(score / c); 0: they stay */
    uint32_t window; /* tokens a row sees, its own the last; 0: all before it */
    const struct kv_view *kv;
    const uint32_t *slots;
    uint32_t position;             /* of token 0 */
    uint32_t row_first, row_count; /* row_count <= ATTENTION_TILE_ROWS */
    void *scratch;                 /* attention_scratch_bytes(head_dim), 64-byte aligned */
    /* bf16, int8 pages: with `partials`, the sums of segments [segment_first, segment_end) go there
     * instead of the result to `out`, to be merged when all of them are done. Without: all. */
    uint32_t segment_first, segment_end;
    float *partials; /* [segment] of attention_partial_bytes(head_dim), or NULL */
    struct attention_next next;
};
typedef void attention_kernel(const struct attention_task *task);
size_t attention_scratch_bytes(uint32_t head_dim);
size_t attention_partial_bytes(uint32_t head_dim);
/* out from the partials of every segment a row sees, whichever variant made them. */
void attention_merge(const struct attention_task *task);
enum { ATTENTION_ALL_SEGMENTS = 1 << 23 }; /* segment_end without partials */

/* The chosen function of every slot, e.g. table->matmul_i8_q4a. */
struct kernel_table {
#define SLOT(operation, dtype) operation##_kernel *operation##_##dtype;
#include "kernels/kernels.def"
#undef SLOT
};

enum kernel_slot {
#define SLOT(operation, dtype) KERNEL_SLOT_##operation##_##dtype,
#include "kernels/kernels.def"
#undef SLOT
    KERNEL_SLOT_COUNT
};

#define KERNEL(operation, dtype, isa, function, tile) operation##_kernel function;
#include "kernels/kernels.def"
#undef KERNEL

/* One line of kernels.def, for the check and the bench. */
struct kernel_row {
    const char *operation, *dtype, *name; /* name: the function's */
    enum kernel_slot slot;
    enum kernel_isa isa;
    uint32_t tile; /* rows one inner loop handles; the check tries tile - 1, tile, tile + 1 */
    void (*function)(void); /* an operation##_kernel */
};
const struct kernel_row *kernel_rows(uint32_t *count_out);

/* "ref", "avx2", "avx512vnni", "avx512bf16". */
const char *kernel_isa_name(enum kernel_isa isa);
/* False if there is no such name; says nothing about the CPU. */
bool kernel_isa_parse(const char *name, enum kernel_isa *isa_out);
/* Whether this CPU and operating system can run it. */
bool kernel_isa_available(enum kernel_isa isa);
/* The highest rung that is available. */
enum kernel_isa kernel_isa_best(void);
/* Fills every slot with its highest variant that is not above `isa`. */
void kernels_init(struct kernel_table *table, enum kernel_isa isa);

#endif
