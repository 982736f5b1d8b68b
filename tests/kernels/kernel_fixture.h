/* What the kernel tests share: backends by name, random floats, a cache of pages, comparisons. */
#ifndef BATON_TESTS_KERNELS_KERNEL_FIXTURE_H
#define BATON_TESTS_KERNELS_KERNEL_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"

enum {
    FIXTURE_ROWS = 64,
    FIXTURE_WIDTH = 576,
    FIXTURE_HEAD_DIM = 128,
    FIXTURE_CONTEXT = 2048,
};

/* A backend on a team of its own; both go with fixture_close. Aborts on failure. */
struct fixture {
    struct team *team;
    struct backend *backend;
};
struct fixture fixture_open(const char *isa, enum activation_mode mode, uint32_t threads);
void fixture_close(struct fixture *fixture);

/* "ref" and whatever else this CPU has; ended by NULL. */
const char *const *fixture_isas(void);

/* malloc'd, normal(0, 1), the same for the same seed. */
float *random_floats(uint64_t seed, size_t count);
static inline device_ptr on_device(const void *p)
{
    return (device_ptr){(uint64_t)(uintptr_t)p};
}

/* Canonical rows of any kind, and the weight made of them. */
struct fixture_weight {
    enum weight_kind kind;
    uint32_t n, k;
    struct weight_rows rows;
    struct weight *weight;
    void *owned[4];
};
void fixture_weight_make(struct fixture *fixture, struct fixture_weight *out, enum weight_kind kind,
                         uint32_t n, uint32_t k, uint64_t seed);
/* The weight of the rows that are given. */
void fixture_weight_fill(struct fixture *fixture, struct fixture_weight *weight);
void fixture_weight_free(struct fixture *fixture, struct fixture_weight *weight);
float fixture_weight_value(const struct fixture_weight *weight, uint32_t row, uint32_t input);

/* One sequence's K, V and Q, and pages poisoned with NaN before anything is written. */
struct fixture_sequence {
    uint32_t tokens, heads, kv_heads, head_dim;
    float *k, *v, *q; /* [tokens][heads or kv_heads][head_dim] */
    uint32_t *slots;  /* one a page of 64 */
    struct kv_view view;
    uint8_t *pages;
    uint32_t window; /* of attention_args; 0 when made */
    float soft_cap;
};
/* stride: page i has slot i * stride modulo the (prime) number of slots. */
void fixture_sequence_make(struct fixture_sequence *out, enum kv_dtype dtype, uint32_t tokens,
                           uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t stride,
                           uint64_t seed);
void fixture_sequence_free(struct fixture_sequence *sequence);
/* Writes and attends tokens [first, end) as one chunk; out is the whole [tokens][heads][D]. */
void fixture_chunk(struct fixture *fixture, const struct fixture_sequence *sequence, uint32_t first,
                   uint32_t end, float *out);

#endif
