/* The block types a weight file may hold, one row each, with what can be done with them.
 *
 * Block layouts are those of GGUF files; K is a multiple of the block's values. */
#ifndef BATON_MODEL_FORMAT_QUANT_TYPES_H
#define BATON_MODEL_FORMAT_QUANT_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"

#define QUANT_NO_ID UINT32_MAX

struct quant_type {
    const char *name;      /* "Q4_0" */
    uint32_t gguf_id;      /* ggml type number; QUANT_NO_ID: none */
    uint32_t block_values; /* 32, 256, or 1 */
    uint32_t block_bytes;
    /* float32 values of `blocks` blocks; bit-exact with the reference conversion. */
    void (*dequantize)(const void *blocks_data, float *out, size_t blocks);
    /* Quantises (round to nearest, absolute maximum); NULL where Baton does not write the type. */
    void (*quantize)(const float *values, void *blocks_out, size_t blocks);
    /* The canonical form that products are computed on, and whether it has the very values of the
     * blocks; where it has not (scales of 16 values, float8) they are rounded to it. */
    enum weight_kind kind;
    bool exact;
    bool scaled; /* values are to be multiplied by factors that stand elsewhere in the file */
    /* Canonical form of `blocks` blocks of a Q kind, by groups of 32 values: q [groups * 32],
     * scale [groups], offset [groups] (NULL unless the kind has one). NULL for the kinds without
     * groups. */
    void (*split)(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks);
};

/* NULL when the id or name (any case) is not known. */
const struct quant_type *quant_type_by_id(uint32_t gguf_id);
/* Knows F8_E4M3 besides, which GGUF files have not. */
const struct quant_type *quant_type_by_name(const char *name);
/* All rows of GGUF, for tables and tests. */
const struct quant_type *quant_type_rows(size_t *count_out);

/* A group of 32 values as int8 with one scale, round to nearest; the scale is NaN where a value is
 * not finite. */
void quant_int8_group(const float *values, int8_t *q, float *scale);

/* The 32 values as integers of 8 or 4 bits with a scale, and an offset for those of 4, that are
 * exactly halves. int8: round to nearest. int4: of 21 grids the one with the least squares of
 * differences, each with its best scale and offset. Where a value is not finite the scale is NaN,
 * beyond the range of halves it is infinite. */
void quant_fit_int8(const float *values, int8_t *q, float *scale);
void quant_fit_int4(const float *values, int8_t *q, float *scale, float *offset);

float half_to_float(uint16_t half);
uint16_t float_to_half(float value);
uint16_t float_to_bf16(float value); /* round to nearest even, NaN kept */

#endif
