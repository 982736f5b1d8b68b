/* The inside of the CPU backend, shared by backend_cpu*.c only. */
#ifndef BATON_KERNELS_BACKEND_CPU_INTERNAL_H
#define BATON_KERNELS_BACKEND_CPU_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "kernels/kernels.h"
#include "kernels/weight_panel.h"

/* Where the items and the pieces of a sequence begin. */
struct attention_start {
    uint32_t item, piece;
};

struct backend_cpu {
    struct backend base; /* first member */
    struct team *team;   /* not owned */
    struct kernel_table kernels;
    enum kernel_isa isa;
    enum activation_mode mode; /* not AUTO */
    struct backend_limits limits;
    char name[24];
    struct slab *slabs;           /* of weights, the newest first */
    struct reading *last_reading; /* `after` of the weight that was read last, or NULL */
    /* Activations of the running product in the form its weights want, and two more such for
     * feed_forward: of its second product, and of an `up` that wants another form than `gate`. */
    uint8_t *activations, *inner_activations, *other_activations;
    size_t activation_values; /* of each: limits.rows * limits.width */
    /* Of every member: a normed row, and gate and up of a block of rows. */
    float *row_buffers;
    size_t row_buffer_floats;
    float *gated_buffers; /* [member][2][GATED_BUFFER_FLOATS] */
    /* Of every member, where weights become coarser: some rows of one in their new form. */
    uint8_t *requantize_buffers; /* [member] of requantize_buffer_bytes() */
    /* Of project_top: a piece of the product for every member, and its lists. */
    float *top_buffers;          /* [member] of top_buffer_bytes() */
    struct top_entry *top_lists; /* [member][limits.rows][PROJECT_TOP_MAX] */
    uint32_t *top_held;          /* [member][limits.rows] entries of a list */
    /* Of every member: keys of a few rows between their rotation and their page. */
    float *key_buffers;
    size_t key_buffer_floats; /* of one member */
    /* attention_scratch_bytes() for every member of the team. */
    uint8_t *attention_scratch;
    size_t attention_scratch_bytes;           /* of one member */
    struct attention_start *attention_starts; /* [sequence] of the running call */
    /* Sums of segments of the items of a call that are cut: at most attention_split_items. */
    uint8_t *attention_partials; /* [item][attention_segments] of attention_partial_bytes() */
    atomic_uint *attention_left; /* [item] ranges that are not done */
    uint32_t attention_split_items, attention_segments;
};

/* Steps read the weights in the same order over and over: while the last pieces of one are
 * computed, the first pieces of what was read after it the last time are asked for. No pointer is
 * followed, so that it does not matter if they have gone since. */
struct reading {
    const uint8_t *next; /* NULL: not known yet */
    size_t piece_bytes;  /* from a piece to the next */
};

struct weight {
    enum weight_kind kind;
    uint32_t n, k;
    bool half_scales;
    bool filled;                  /* before the first use */
    bool float_rows;              /* activations enter its products as they are */
    enum weight_kind source_kind; /* that it is filled with; another or the same, coarser */
    uint32_t span;                /* groups that share a scale; above 1 only for Q8 */
    uint8_t *panels;
    struct slab *slab;     /* that the panels stand in */
    size_t slab_end;       /* where its room there ends */
    struct reading *after; /* what was read after it; part of its memory */
};

static inline const uint8_t *weight_panel_address(const struct weight *weight, uint32_t panel)
{
    return weight->panels + panel * panel_bytes(weight->kind, weight->half_scales, weight->k);
}

static inline struct backend_cpu *backend_cpu_of(struct backend *backend)
{
    return (struct backend_cpu *)backend;
}

/* Whether the profile has coarser groups than files. */
static inline bool backend_cpu_coarse(const struct backend_cpu *cpu)
{
    return cpu->mode == ACTIVATION_INT8_128 || cpu->mode == ACTIVATION_INT8_ROW;
}
/* Groups of 32 of a row of k inputs that share a scale in it. */
static inline uint32_t backend_cpu_span(const struct backend_cpu *cpu, uint32_t k)
{
    return cpu->mode == ACTIVATION_INT8_128   ? 128 / WEIGHT_GROUP
           : cpu->mode == ACTIVATION_INT8_ROW ? k / WEIGHT_GROUP
                                              : 1;
}

enum activation_form { FORM_F32, FORM_BF16, FORM_I8 };

/* Device memory of the CPU is host memory. */
static inline void *device_address(device_ptr p)
{
    return (void *)(uintptr_t)p.address;
}
static inline float *device_floats(device_ptr p)
{
    return (float *)device_address(p);
}

/* 64-byte aligned, zeroed; NULL when there is none. */
void *memory_allocate(size_t bytes);
void memory_release(void *memory); /* NULL is fine */

/* Work below which the caller does it alone: each is some 3 to 10 microseconds on one core, and
 * waking the others costs a few when they have a CPU and far more when they must wait for one. */
enum {
    TEAM_ELEMENTS = 1 << 14,       /* of operations that go by rows */
    TEAM_PRODUCTS_INT = 1 << 18,   /* multiply-adds of int8 products */
    TEAM_PRODUCTS_FLOAT = 1 << 17, /* of float and bf16 products, of scores in attention */
};

/* Whether so many multiply-adds are worth waking the team. */
static inline bool products_worth_team(enum activation_form form, size_t products)
{
    return products >= (form == FORM_I8 ? TEAM_PRODUCTS_INT : TEAM_PRODUCTS_FLOAT);
}

enum { KEY_BUFFER_ROWS = 8 };

/* Runs function over [0, rows): in pieces on the team if `elements` are worth it. */
typedef void rows_function(void *arg, uint32_t member, size_t first, size_t end);
void backend_cpu_run_rows(struct backend_cpu *cpu, size_t rows, size_t elements,
                          rows_function *function, void *arg);

/* backend_cpu_memory.c */
enum status cpu_allocate(struct backend *backend, size_t bytes, device_ptr *out,
                         struct error *error);
void cpu_release(struct backend *backend, device_ptr p);
void cpu_upload(struct backend *backend, device_ptr to, const void *from, size_t bytes);
void cpu_download(struct backend *backend, void *to, device_ptr from, size_t bytes);
void *cpu_host_view(struct backend *backend, device_ptr p);
void cpu_synchronize(struct backend *backend);
enum status cpu_weight_create(struct backend *backend, enum weight_kind kind, uint32_t n,
                              uint32_t k, struct weight **out, struct error *error);
void cpu_weight_fill(struct backend *backend, struct weight *weight,
                     const struct weight_source *source);
void cpu_weight_release(struct backend *backend, struct weight *weight);
size_t cpu_weight_bytes(const struct weight *weight);
void cpu_weight_take_floats(struct backend *backend, struct weight *weight);
/* Of one member, for rows of `width` inputs: 0 unless the profile has coarser groups than files. */
size_t requantize_buffer_bytes(const struct backend_cpu *cpu, uint32_t width);

/* backend_cpu_rows.c */
void cpu_embed(struct backend *backend, const struct weight *weight, const int32_t *ids,
               uint32_t rows, device_ptr out);
void cpu_rms_norm(struct backend *backend, device_ptr x, device_ptr gain, float epsilon,
                  uint32_t rows, uint32_t width, device_ptr out);
void cpu_rope(struct backend *backend, const struct rope_args *args);
void cpu_swiglu(struct backend *backend, device_ptr gate, device_ptr up, uint32_t rows,
                uint32_t width, device_ptr out);
void cpu_gather_rows(struct backend *backend, device_ptr x, const uint32_t *indices, uint32_t count,
                     uint32_t width, device_ptr out);

/* backend_cpu_matmul.c */
enum { GATED_BLOCK_ROWS = 96, GATED_BUFFER_FLOATS = GATED_BLOCK_ROWS * 2 * PANEL_ROWS };
enum activation_form activation_form_for(const struct backend_cpu *cpu,
                                         const struct weight *weight);
size_t activation_row_bytes(enum activation_form form, uint32_t k);

/* Some columns of some rows, to be brought into a form. */
struct activation_block {
    enum activation_form form;
    const float *x;  /* [rows][x_stride]; FORM_I8: x_stride is columns */
    size_t x_stride; /* in floats */
    uint32_t rows, columns;
    void *out;
    size_t out_row_bytes; /* from a row to the next */
};
void activations_convert(const struct backend_cpu *cpu, const struct activation_block *block);
/* x [rows][k], normed first if there is a gain, in the given form: in `out` (one of the three
 * buffers), or x itself. */
const void *activations_prepare(struct backend_cpu *cpu, enum activation_form form, const float *x,
                                const float *gain, float epsilon, uint32_t rows, uint32_t k,
                                uint8_t *out);
/* A task over all panels of a weight without `out`, and its function. */
struct matmul_task product_task(const struct weight *weight, const void *activations,
                                uint32_t rows);
matmul_kernel *product_kernel(const struct backend_cpu *cpu, const struct weight *weight);
/* A call begins to read this weight in such pieces: returns what is likely to be read after it. */
struct reading reading_begin(struct backend_cpu *cpu, const struct weight *weight,
                             uint32_t piece_panels);
/* The address of piece `index` of it, NULL if it is not known. */
static inline const uint8_t *reading_piece(const struct reading *reading, uint32_t index)
{
    return reading->next ? reading->next + index * reading->piece_bytes : NULL;
}
/* How many of `rows` go together, so that their activations stay in the second-level cache and they
 * are at most `most`, a multiple of 12 or no less than `rows`: blocks as even as whole tiles allow,
 * for the passes of a short last one would be short too. rows > 0. */
uint32_t product_block_rows(size_t row_bytes, uint32_t rows, uint32_t most);
/* Products of activations in one form, on the team. */
void products_run(struct backend_cpu *cpu, const struct project_output *outputs,
                  uint32_t output_count, const void *activations, uint32_t rows, bool accumulate);
void cpu_project(struct backend *backend, const struct project_args *args);
void cpu_matmul(struct backend *backend, const struct matmul_args *args);

/* backend_cpu_feed_forward.c */
void cpu_feed_forward(struct backend *backend, const struct feed_forward_args *args);

/* backend_cpu_top.c */
enum { TOP_BLOCK_ROWS = 32 };
size_t top_buffer_bytes(void);
void cpu_project_top(struct backend *backend, const struct project_top_args *args);

/* backend_cpu_blocks.c */
void cpu_layer_norm(struct backend *backend, const struct layer_norm_args *args);
void cpu_gelu(struct backend *backend, device_ptr x, device_ptr up, uint32_t rows, uint32_t width,
              device_ptr out);
void cpu_route(struct backend *backend, const struct route_args *args);
void cpu_rows_add(struct backend *backend, const struct rows_add_args *args);
void cpu_scale(struct backend *backend, device_ptr x, float factor, uint32_t rows, uint32_t width);
void cpu_soft_cap(struct backend *backend, device_ptr x, float cap, uint32_t rows, uint32_t width);

/* backend_cpu_kv.c */
void kv_view_check(const struct backend_cpu *cpu, const struct kv_view *kv);
void cpu_kv_write(struct backend *backend, device_ptr k, device_ptr v, const struct kv_view *kv,
                  const struct batch_sequence *sequences, uint32_t sequence_count);
void cpu_rope_kv_write(struct backend *backend, const struct rope_kv_args *args);

/* backend_cpu_attention.c */
void cpu_attention(struct backend *backend, const struct attention_args *args);

#endif
