/* kernel_check: every variant of kernels.def against the plain reference of its slot and against
 * arithmetic in double.
 *
 * One process is forked for every variant, so that a crash is told with the variant's name. A
 * checker makes cases: shape, inputs of a flavour, guarded outputs; it runs the reference and the
 * variant and compares bits, and compares both with double on inputs of ordinary size. */
#ifndef BATON_TESTS_KERNELS_CHECK_KERNEL_CHECK_H
#define BATON_TESTS_KERNELS_CHECK_KERNEL_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/random.h"
#include "kernels/kernels.h"

struct check {
    const struct kernel_row *row;
    void (*function)(void);  /* the variant */
    void (*reference)(void); /* the `ref` variant of its slot */
    struct random random;
    char shape[200]; /* of the running case, for messages */
    uint32_t cases;
    uint32_t failures;
};

/* Kinds of input. */
enum flavour {
    FLAVOUR_NORMAL,    /* normal(0, 1) */
    FLAVOUR_HEAVY,     /* normal times 2^[-20, 20]: sums lose bits in any other order */
    FLAVOUR_EXTREME,   /* magnitudes up to the largest float */
    FLAVOUR_DENORMAL,  /* denormals among tiny normals */
    FLAVOUR_ZERO,      /* zeros of both signs */
    FLAVOUR_NONFINITE, /* normal with a few NaN and infinities */
    FLAVOUR_COUNT
};
const char *flavour_name(enum flavour flavour);
void fill_floats(struct check *check, enum flavour flavour, float *out, size_t count);

/* Says what is wrong with the running case; the first few failures of a variant are printed. */
void check_fail(struct check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Begins a case; the text names its shape. */
void check_case(struct check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint32_t check_pick(struct check *check, uint32_t low, uint32_t high); /* both included */

/* Buffers of a case, 64-byte aligned, with guard bytes on both sides. */
void *guard_allocate(size_t bytes);
/* Fails the case if any guard byte of any buffer changed. */
void guards_check(struct check *check);
void guards_release(void);

/* Bit for bit, any NaN equal to any other; prints the first difference with its coordinates. */
bool floats_equal(struct check *check, const char *what, const float *expected, const float *actual,
                  size_t rows, size_t columns);
bool bytes_equal(struct check *check, const char *what, const void *expected, const void *actual,
                 size_t bytes);

/* The root-mean-square error of `actual` against `exact` may be at most twice that of `plain`, an
 * ordinary implementation in the same precision. Fails too if the comparison says nothing. */
void precision_check(struct check *check, const double *exact, const float *plain,
                     const float *actual, size_t count);

void check_matmul(struct check *check);
void check_attention(struct check *check);
void check_kv_write(struct check *check);
void check_embed(struct check *check);
void check_quantize(struct check *check);
void check_round(struct check *check);
void check_rms_norm(struct check *check);
void check_rope(struct check *check);
void check_swiglu(struct check *check);
void check_top(struct check *check);
void check_layer_norm(struct check *check);
void check_gelu(struct check *check);
void check_route(struct check *check);
void check_rows_add(struct check *check);
void check_scale(struct check *check);
void check_soft_cap(struct check *check);

/* A canonical random weight and its panels. Released with guards_release. */
struct packed_weight {
    enum weight_kind kind;
    uint32_t n, k;
    bool half_scales;
    uint8_t *panels;
    struct weight_rows rows;
};
void packed_weight_make(struct check *check, struct packed_weight *weight, enum weight_kind kind,
                        uint32_t n, uint32_t k, enum flavour flavour);
/* The value the file meant, from the canonical rows. */
float packed_weight_value(const struct packed_weight *weight, uint32_t row, uint32_t input);

/* Deliberately wrong kernels; each must be caught. Returns the exit code. */
int selftest_run(uint64_t seed);
/* Runs one variant in a process of its own; prints its line. True if it passed. */
bool check_run_row(const struct kernel_row *row, uint64_t seed, bool quiet);

#endif
