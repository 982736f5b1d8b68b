/* What a device offers to the model: memory, packed weights and the operations of one forward pass.
 *
 * The nouns are `device_ptr` (an address only the backend may follow), `struct weight` (a matrix
 * packed the way this device likes it) and `struct kv_view` (pages of one layer). The verbs are the
 * rows of `struct backend_ops`. The header is narrow on purpose: nothing above it may know whether
 * it computes on a CPU, and a CUDA backend fills the same table.
 *
 * Shapes: T rows (tokens) of this call, E embedding, H query heads, K key/value heads, D head size,
 * V vocabulary, N outputs and K inputs of a matrix. All activations are float32, row-major, dense.
 *
 * One thread (the engine thread) makes all calls on one backend; operations run in order and may
 * be asynchronous until `synchronize` or `download`. No operation allocates: everything is sized by
 * struct backend_limits at creation. Contract breaches are CHECKed, operations do not fail.
 *
 * Numerics (the profile, named by `profile_id`): a row of the result depends on that row's inputs
 * only, never on T, on how the rows were cut in calls, or on the number of threads, and is the same
 * on every instruction set: see kernels/README.md for the order of every sum. */
#ifndef BATON_KERNELS_BACKEND_H
#define BATON_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/team.h"

/* An address in device memory. Zero is null. Only the backend may turn it into a pointer. */
typedef struct {
    uint64_t address;
} device_ptr;

static inline device_ptr device_offset(device_ptr p, size_t bytes)
{
    return (device_ptr){p.address + bytes};
}
static inline bool device_null(device_ptr p)
{
    return p.address == 0;
}

/* How activations enter a product with weights. */
enum activation_mode {
    ACTIVATION_AUTO,   /* NATIVE; F32 when the instruction set is `ref` */
    ACTIVATION_F32,    /* float32 activations, weights widened: the reference profile */
    ACTIVATION_NATIVE, /* int8 by groups of 32 for 4/8-bit weights, bf16 for bf16, f32 for f32 */
    /* As NATIVE, but 4/8-bit weights become int8 when they are filled, by groups of 128 or with one
     * scale an output row, and so do the activations that meet them: faster and less exact. */
    ACTIVATION_INT8_128,
    ACTIVATION_INT8_ROW,
    ACTIVATION_MODE_COUNT
};
/* The words of an option for them, in their order. */
#define ACTIVATION_CHOICES "auto|f32|native|int8-128|int8-row"

/* A matrix y = W x with N rows of K. The loader gives rows in one of these canonical forms. */
enum weight_kind {
    WEIGHT_F32,  /* float values */
    WEIGHT_BF16, /* bf16 values */
    WEIGHT_Q8,   /* w = scale * q, q int8 */
    WEIGHT_Q8A,  /* w = scale * q + offset, q in [0, 127] */
    WEIGHT_Q4,   /* w = scale * q, q in [-8, 7] */
    WEIGHT_Q4A,  /* w = scale * q + offset, q in [0, 15] */
};
enum { WEIGHT_GROUP = 32 }; /* inputs that share a scale; K is a multiple of it for the Q kinds */

/* Some consecutive rows in canonical form (host memory). Unused members are NULL. */
struct weight_rows {
    const float *f32;     /* [rows][K] */
    const uint16_t *bf16; /* [rows][K] */
    const int8_t *q;      /* [rows][K] */
    const float *scale;   /* [rows][K / 32] */
    const float *offset;  /* [rows][K / 32] */
};

/* Where the rows of a weight come from: gives row_count of them, from first_row, in its canonical
 * form, valid until the same member asks again. Several members of the backend's team ask at the
 * same time; `member`, below `members` of the backend, may choose scratch memory. */
struct weight_source {
    void (*read)(void *arg, uint32_t member, uint32_t first_row, uint32_t row_count,
                 struct weight_rows *rows_out);
    void *arg;
};
enum { WEIGHT_READ_ROWS = 16 }; /* the most that are asked for at a time */

struct weight; /* owned by the backend that made it */

enum kv_dtype { KV_F32, KV_BF16, KV_I8, KV_DTYPE_COUNT };
enum { KV_BLOCK_TOKENS = 16 }; /* tokens of one block; the order inside it is the kernels' own */

/* The pages of one layer. A page ("slot") is [K|V][kv_head]{[page_tokens / 16 blocks], scales}:
 * with int8 a float for every token follows the blocks of a head. */
struct kv_view {
    device_ptr base;      /* slot 0 of this layer */
    size_t page_bytes;    /* one slot of this layer: kv_page_bytes() */
    uint32_t page_tokens; /* a multiple of 16 */
    uint32_t kv_heads, head_dim;
    enum kv_dtype dtype;
};

/* One sequence's part of a batch. Host memory. */
struct batch_sequence {
    uint32_t first_row, row_count; /* its rows in the batch, row_count >= 1 */
    uint32_t position;             /* absolute position of its first row */
    const uint32_t *slots;         /* block table: page index -> slot, covers every position */
};

struct attention_args {
    device_ptr q;   /* [T][H][D], rotated */
    device_ptr out; /* [T][H][D] */
    uint32_t heads; /* H, a multiple of kv.kv_heads */
    float scale;    /* on the scores, 1/sqrt(D) as a rule */
    float soft_cap; /* c: scores become c * tanh(score / c); 0: they stay */
    /* A row at position p sees p - window + 1 … p; 0: all. The block table's entries for pages
     * that no row sees are not looked at. */
    uint32_t window;
    struct kv_view kv;
    const struct batch_sequence *sequences;
    uint32_t sequence_count;
};

struct matmul_args {
    const struct weight *weight; /* [N][K] */
    device_ptr x;                /* [T][K] */
    device_ptr out;              /* [T][N] */
    device_ptr bias;             /* [N] or null */
    bool accumulate;             /* out += instead of out = (the residual) */
    uint32_t rows;               /* T */
};

/* Several products of the same rows, after a norm of theirs: the same bits as the norm and the
 * products one by one, with less to write, read and wait for. */
struct project_output {
    const struct weight *weight; /* [N][K] */
    device_ptr out;              /* [T][N] */
    device_ptr bias;             /* [N] or null */
};
struct project_args {
    device_ptr x;    /* [T][K] */
    device_ptr gain; /* [K], of rms_norm; null: the rows as they are */
    float epsilon;
    const struct project_output *outputs;
    uint32_t output_count; /* 1 to PROJECT_OUTPUTS_MAX */
    uint32_t rows;         /* T */
};
enum { PROJECT_OUTPUTS_MAX = 3 };

/* The largest outputs of a product of normed rows, and nothing else of it: what `project` would
 * give, larger values first, equal ones by id; a NaN goes before every number. */
struct top_entry {
    float value;
    int32_t id; /* of the output */
};
struct project_top_args {
    device_ptr x;    /* [T][K] */
    device_ptr gain; /* [K], of rms_norm; null: the rows as they are */
    float epsilon;
    const struct weight *weight; /* [N][K] */
    uint32_t id_count;           /* outputs that are looked at, the first ones; 1 to N */
    uint32_t count;              /* entries of a row, 1 to PROJECT_TOP_MAX, at most id_count */
    uint32_t rows;               /* T */
    struct top_entry *out;       /* [T][count], host memory */
};
enum { PROJECT_TOP_MAX = 64 };

/* x += down(silu(gate(n)) * up(n)) with n = rms_norm(x): the same bits as the steps one by one. */
struct feed_forward_args {
    device_ptr x;    /* [T][E] */
    device_ptr gain; /* [E] */
    float epsilon;
    const struct weight *gate, *up; /* [F][E] */
    const struct weight *down;      /* [E][F] */
    uint32_t rows;                  /* T */
};

/* out = (x - mean) / sqrt(variance + epsilon) * gain + bias, per row; x and out may be the same. */
struct layer_norm_args {
    device_ptr x, out;     /* [T][width] */
    device_ptr gain, bias; /* [width] */
    float epsilon;
    uint32_t rows, width;
};

/* The experts that rows go to: softmax over a row's logits, then its `used` largest, the larger
 * first and equal ones by id. */
struct route_args {
    device_ptr logits;      /* [T][experts] */
    uint32_t experts, used; /* 1 <= used <= experts */
    bool normalise;         /* the weights of a row sum to one */
    uint32_t rows;          /* T */
    uint32_t *ids;          /* [T][used], host memory */
    float *weights;         /* [T][used], host memory */
};

/* out[indices[i]] += weights[i] * y[i], or sigmoid(gates[i]) * y[i], or y[i] alone. */
struct rows_add_args {
    device_ptr out;          /* [*][width] */
    device_ptr y;            /* [rows][width] */
    const uint32_t *indices; /* [rows], all different, host memory; NULL: i */
    const float *weights;    /* [rows], host memory, or NULL */
    device_ptr gates;        /* [rows] or null; not beside weights */
    uint32_t rows, width;
};

enum rope_pairing {
    ROPE_NEIGHBOURS, /* (0,1) (2,3) …: GGUF `llama`, whose Q and K are permuted for it */
    ROPE_HALVES,     /* (i, i + rotary/2): Hugging Face, GGUF `qwen2` */
};

struct rope_args {
    device_ptr x;   /* [T][heads][D], in place */
    device_ptr cos; /* [T][rotary / 2] */
    device_ptr sin; /* [T][rotary / 2] */
    uint32_t rows, heads, head_dim;
    uint32_t rotary; /* leading dims that turn, <= D, even */
    enum rope_pairing pairing;
};

/* rope of q and of k, then kv_write: the same bits in one pass over the rows. q is turned in place;
 * k stays as it is, turned keys stand in the pages only. */
struct rope_kv_args {
    device_ptr q;        /* [T][H][D] */
    device_ptr k, v;     /* [T][K][D] */
    device_ptr cos, sin; /* [T][rotary / 2] */
    uint32_t heads;      /* H */
    uint32_t rotary;     /* leading dims that turn, <= D, even */
    enum rope_pairing pairing;
    struct kv_view kv;
    const struct batch_sequence *sequences;
    uint32_t sequence_count;
};

struct backend;

struct backend_ops {
    /* Memory, 64-byte aligned, zeroed. STATUS_NO_MEMORY with the size in *error. */
    enum status (*allocate)(struct backend *, size_t bytes, device_ptr *out, struct error *error);
    void (*release)(struct backend *, device_ptr p); /* null is fine */
    void (*upload)(struct backend *, device_ptr to, const void *from, size_t bytes);
    void (*download)(struct backend *, void *to, device_ptr from, size_t bytes); /* synchronizes */
    /* Host address of device memory that the network may read and write, NULL if there is none. */
    void *(*host_view)(struct backend *, device_ptr p);
    void (*synchronize)(struct backend *);

    /* Weights: create, fill once, then use. Fill asks for every row once or twice, in any order,
     * and keeps a copy in a form of its own. */
    enum status (*weight_create)(struct backend *, enum weight_kind kind, uint32_t n, uint32_t k,
                                 struct weight **out, struct error *error);
    void (*weight_fill)(struct backend *, struct weight *, const struct weight_source *source);
    void (*weight_release)(struct backend *, struct weight *); /* NULL is fine */
    size_t (*weight_bytes)(const struct weight *);
    /* Activations enter products with this weight as floats in the NATIVE mode too: exact, and as
     * fast where few rows meet many weights. The profile does not name it: whoever compares results
     * must. Before the first use. */
    void (*weight_take_floats)(struct backend *, struct weight *);

    /* out[T][K] = rows `ids` (host memory, each < N) of the matrix, widened to float. */
    void (*embed)(struct backend *, const struct weight *, const int32_t *ids, uint32_t rows,
                  device_ptr out);
    /* out = x / sqrt(mean(x^2) + epsilon) * gain, per row of `width`; x and out may be the same. */
    void (*rms_norm)(struct backend *, device_ptr x, device_ptr gain, float epsilon, uint32_t rows,
                     uint32_t width, device_ptr out);
    void (*matmul)(struct backend *, const struct matmul_args *);
    void (*project)(struct backend *, const struct project_args *);
    void (*project_top)(struct backend *, const struct project_top_args *); /* synchronizes */
    void (*feed_forward)(struct backend *, const struct feed_forward_args *);
    void (*rope)(struct backend *, const struct rope_args *);
    /* Writes k, v [T][K][D] of every row to its page. All pages must be this caller's to write. */
    void (*kv_write)(struct backend *, device_ptr k, device_ptr v, const struct kv_view *kv,
                     const struct batch_sequence *sequences, uint32_t sequence_count);
    void (*rope_kv_write)(struct backend *, const struct rope_kv_args *);
    /* Causal: row i of a sequence sees positions up to position + i, all read from the pages. */
    void (*attention)(struct backend *, const struct attention_args *);
    /* out[T][width] = silu(gate) * up; out may be gate. */
    void (*swiglu)(struct backend *, device_ptr gate, device_ptr up, uint32_t rows, uint32_t width,
                   device_ptr out);
    void (*layer_norm)(struct backend *, const struct layer_norm_args *);
    /* out[T][width] = gelu(x) * up in its tanh form, gelu(x) where up is null; out may be x. */
    void (*gelu)(struct backend *, device_ptr x, device_ptr up, uint32_t rows, uint32_t width,
                 device_ptr out);
    void (*route)(struct backend *, const struct route_args *); /* synchronizes */
    void (*rows_add)(struct backend *, const struct rows_add_args *);
    /* x[T][width] *= factor */
    void (*scale)(struct backend *, device_ptr x, float factor, uint32_t rows, uint32_t width);
    /* x[T][width] = cap * tanh(x / cap) */
    void (*soft_cap)(struct backend *, device_ptr x, float cap, uint32_t rows, uint32_t width);
    /* out[i] = x[indices[i]] for rows of `width` floats; indices in host memory. */
    void (*gather_rows)(struct backend *, device_ptr x, const uint32_t *indices, uint32_t count,
                        uint32_t width, device_ptr out);
    void (*destroy)(struct backend *);
};

struct backend {
    const struct backend_ops *ops;
    const char *name;                 /* "cpu/avx2" */
    uint64_t profile_id;              /* names the numerics profile; equal ids promise equal bits */
    char profile[64];                 /* the same for people: "v2 act=f32 attn=64/512 kv=k16v16" */
    enum activation_mode activations; /* not AUTO */
    uint32_t members;                 /* that may ask a weight_source at the same time */
};

struct backend_limits {
    uint32_t rows;  /* largest T of one call */
    uint32_t width; /* largest N or K of a matrix whose product has `rows` rows */
    uint32_t heads, kv_heads, head_dim;
    uint32_t context_tokens; /* largest position + 1 */
    enum kv_dtype kv_dtype;  /* of the pages that the profile is for */
};

/* The CPU backend. `team` must outlive it. isa: NULL takes BATON_ISA or, unset, the best the CPU
 * has; a name that is unknown or that the CPU lacks is STATUS_UNSUPPORTED naming what there is. */
enum status backend_cpu_create(struct team *team, const char *isa, enum activation_mode mode,
                               const struct backend_limits *limits, struct backend **out,
                               struct error *error);

/* "f32", "bf16", "int8". */
const char *kv_dtype_name(enum kv_dtype dtype);
/* Bytes of one page of one layer, for both K and V and all heads. */
size_t kv_page_bytes(enum kv_dtype dtype, uint32_t page_tokens, uint32_t kv_heads,
                     uint32_t head_dim);
/* Names the order of elements inside a block; both ends of a hand-off must have the same. */
uint32_t kv_layout_id(enum kv_dtype dtype);

#endif
