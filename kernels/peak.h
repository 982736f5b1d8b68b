/* What this CPU could do at most: loops that do nothing but the arithmetic of one kind, or read
 * memory, for the bench to hold kernels against. Two more do what an int8 product cannot do
 * without, all of it in registers: of groups of 32 inputs, the two scales and the sum of floats,
 * and where weights have offsets, those. They count the products of integers only, so that they are
 * the share of the peak that is left for such kernels: their ceiling.
 *
 * A `peak_row` is an instruction (sequence) in independent chains, enough of them to hide its
 * latency; a `stream_row` reads memory and adds up what it read. Both lists are in the order of the
 * ladder of kernels.h. Any thread; several at once measure what several cores reach together. */
#ifndef BATON_KERNELS_PEAK_H
#define BATON_KERNELS_PEAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

enum peak_arithmetic {
    PEAK_F32,
    PEAK_BF16,
    PEAK_INT8,
    PEAK_INT8_GROUPS,
    PEAK_INT8_OFFSETS,
    PEAK_ARITHMETIC_COUNT
};

struct peak_row {
    const char *name; /* "int8 vpdpbusd zmm" */
    enum peak_arithmetic arithmetic;
    enum kernel_isa isa;       /* the lowest rung that may use it */
    uint64_t round_operations; /* of one round: a multiply-add counts two */
    /* Does so many rounds; the result means nothing but keeps the work from being left out. */
    double (*run)(uint64_t rounds);
};
const struct peak_row *peak_rows(uint32_t *count_out);
/* Whether this CPU has the instructions. */
bool peak_available(const struct peak_row *row);
/* "f32", "bf16", "int8", "int8 groups", "int8 offsets". */
const char *peak_arithmetic_name(enum peak_arithmetic arithmetic);

enum { STREAM_GRAIN_BYTES = 1024 };
struct stream_row {
    const char *name;
    enum kernel_isa isa;
    /* data is 64-byte aligned, bytes a multiple of STREAM_GRAIN_BYTES. */
    uint64_t (*run)(const void *data, size_t bytes);
};
const struct stream_row *stream_rows(uint32_t *count_out);

#endif
