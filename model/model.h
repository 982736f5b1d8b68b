/* One model, loaded: the narrow door for both nodes and the command line.
 *
 * The noun is `struct model`: weights packed for a backend, a pool of KV pages and the forward
 * pass. The verb is model_forward: rows of several sequences in, their KV into pages, logits out
 * where asked. A model belongs to one thread, the engine thread, except where a function says
 * otherwise; everything is allocated by model_open. */
#ifndef BATON_MODEL_MODEL_H
#define BATON_MODEL_MODEL_H

#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"
#include "base/team.h"
#include "kernels/backend.h"
#include "model/kv/page_pool.h"

struct model;

/* Weights that a file has as floats (F32, F16, BF16, F8_E4M3) may be quantised when they are
 * loaded, by groups of 32 along the inputs. INT8: all matrices take 8 bits. INT4: as many matrices
 * of the layers take 4 as the divergence from 8 bits allows (see net/quantize_internal.h), also of
 * those that a file has in blocks of 5 to 8. Norms, biases, routers and positions stay. */
enum model_quantize { QUANTIZE_NONE, QUANTIZE_INT8, QUANTIZE_INT4 };

struct model_options {
    const char *path; /* a GGUF file, a part of a split one, or a Hugging Face folder */
    const char *isa;  /* NULL: BATON_ISA, else the best there is */
    enum activation_mode activations;
    enum kv_dtype kv_dtype;
    enum model_quantize quantize;
    /* INT4 alone: text to measure on what 4 bits cost; NULL: a built-in one. */
    const char *calibrate;
    uint32_t threads;        /* 0: all CPUs of the process */
    uint32_t page_tokens;    /* 0: 64; a multiple of 16 */
    uint32_t context_tokens; /* 0: the model's own; more than that is refused */
    uint64_t kv_bytes;       /* size of the page pool; 0: kv_tokens decides */
    uint64_t kv_tokens;      /* capacity in tokens when kv_bytes is 0; 0: one context */
    uint32_t max_rows;       /* largest number of rows in one forward call; 0: 256 */
    uint32_t max_sequences;  /* sequences in one forward call; 0: 1 */
    uint32_t max_logit_rows; /* rows with logits in one forward call; 0: max_sequences */
    /* Called during load with bytes done and to do; may be NULL. */
    void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_arg;
};

/* What two nodes must have in common to pass pages to each other. */
struct model_identity {
    struct digest128 weights;   /* tensors of the file, and how they were quantised */
    struct digest128 tokenizer; /* vocabulary and rules */
    uint64_t profile_id;        /* numerics profile */
    uint64_t probe_digest;      /* logits and KV of 64 fixed tokens, computed at load */
    struct kv_layout layout;
    char revision[65];     /* general.version of the file, empty where it has none */
    uint32_t rope_pairing; /* enum rope_pairing */
    uint32_t rope_rotary;  /* leading elements of a head that turn: keys are kept turned */
    float rope_base;
};

struct model_info {
    char name[64]; /* general.name or the file's stem */
    char architecture[32];
    uint32_t layers, embedding, heads, kv_heads, head_dim, feed_forward;
    uint32_t vocab_count;    /* rows of the head, width of a row of logits: ids are below this */
    uint32_t token_count;    /* ids of the tokenizer, <= vocab_count; the rest is padding of the
                              * matrix: taken as input, never to be sampled */
    uint32_t context_tokens; /* as served: min(model's, option) */
    uint64_t weight_bytes, kv_bytes;
    uint64_t tensor_bytes; /* what weight_bytes were made from, as the file has it */
    double pack_seconds;   /* what reading and packing them took */
    double narrow_share;   /* with QUANTIZE_INT4: how much of what might take 4 bits does */
};

/* What a model will need, known before its weights are read. */
struct model_outline {
    uint32_t layers, kv_heads, head_dim; /* of a page */
    uint32_t context_tokens;             /* the model's own */
    uint64_t tensor_bytes;               /* of its files: packed weights are about as large */
};
/* Fails as model_open would. Any thread. */
enum status model_outline_read(const char *path, struct model_outline *out, struct error *error);

/* Fails with one sentence (wrong file, architecture, tensor type, missing tensor, odd shape, pool
 * too small for one context, no memory with the sizes). */
enum status model_open(const struct model_options *options, struct model **out,
                       struct error *error);
/* All pages must be free. NULL is fine. */
void model_close(struct model *model);
const struct model_info *model_info(const struct model *model);         /* any thread */
const struct model_identity *model_identity(const struct model *model); /* any thread */
struct page_pool *model_pages(struct model *model);                     /* any thread */
const char *model_backend_text(const struct model *model); /* "cpu/avx2, act=…", any thread */

/* One sequence's rows in a forward call. */
struct forward_sequence {
    const int32_t *tokens; /* [count], each below vocab_count */
    uint32_t count;        /* q_len >= 1 */
    uint32_t position;     /* absolute position of tokens[0]: how many are in the pages already */
    const uint32_t *slots; /* block table: page index -> slot, covering position + count tokens */
    uint32_t logit_rows;   /* logits of the last so many of its rows; 0 for none */
};

/* What a forward call is made of, for those who measure where its time goes. */
enum forward_part {
    FORWARD_EMBEDDING,
    FORWARD_ROWS, /* what goes row by row: norms, rotation, writing of KV */
    FORWARD_QKV,  /* projections to queries, keys and values */
    FORWARD_ATTENTION,
    FORWARD_OUTPUT, /* projection after attention */
    FORWARD_MLP,
    FORWARD_HEAD,
    FORWARD_PART_COUNT,
};
/* Packed weights that a part reads in all layers together; of the embedding, all its rows. */
uint64_t model_part_bytes(const struct model *model, enum forward_part part); /* any thread */

/* On the engine thread; must not block. Every member but arg may be NULL. */
struct forward_hooks {
    /* KV of every row of this call is in the pages of `layer`. Called in layer order. */
    void (*layer_done)(void *arg, uint32_t layer);
    /* All work since the last call of this hook, or since the start, was `part`, and is done. */
    void (*part_done)(void *arg, enum forward_part part);
    void *arg;
};

/* Runs sum(count) rows. *logits_out is [sum(logit_rows)][vocab_count], in sequence order, host
 * memory of the model, valid until the next call; NULL when no logits were asked for. Rows are as
 * the head gives them, padding included: a sampler looks at the first token_count. hooks may be
 * NULL. Limits and token ids are checked (LIMIT, INVALID); a failed call has written nothing that
 * a later one could see. */
enum status model_forward(struct model *model, const struct forward_sequence *sequences,
                          uint32_t sequence_count, const struct forward_hooks *hooks,
                          const float **logits_out, struct error *error);

/* Work of the engine's own, between forward calls, for the threads that compute them: as
 * team_share. Members are below model_threads. */
void model_share(struct model *model, team_piece_function function, void *arg,
                 uint32_t piece_count);
uint32_t model_threads(const struct model *model); /* any thread */

/* The likeliest token of a row, where nothing else of its logits is wanted. */
struct forward_best {
    int32_t id; /* below token_count; the lowest of equals */
    float logit;
};
/* As model_forward, but for the largest logit of every logit row only, which is found while the
 * head is computed: no row of logits is stored. *best_out is [sum(logit_rows)], valid until the
 * next call. A NaN counts as the largest of all. */
enum status model_forward_best(struct model *model, const struct forward_sequence *sequences,
                               uint32_t sequence_count, const struct forward_hooks *hooks,
                               const struct forward_best **best_out, struct error *error);

#endif
