/* The block types a weight file may hold, one row each, with what can be done with them.
 *
 * Block layouts are those of GGUF files; K is a multiple of the block's values. */
#ifndef BATON_MODEL_FORMAT_QUANT_TYPES_H
#define BATON_MODEL_FORMAT_QUANT_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"

struct quant_type {
    const char *name;      /* "Q4_0" */
    uint32_t gguf_id;      /* ggml type number */
    uint32_t block_values; /* 32, 256, or 1 */
    uint32_t block_bytes;
    /* float32 values of `blocks` blocks; bit-exact with the reference conversion. */
    void (*dequantize)(const void *blocks_data, float *out, size_t blocks);
    /* Quantises (round to nearest, absolute maximum); NULL where Baton does not write the type. */
    void (*quantize)(const float *values, void *blocks_out, size_t blocks);
    /* Whether products are computed on it, and in which canonical form. */
    bool computable;
    enum weight_kind kind;
    /* Canonical form of `blocks` blocks of a Q kind: q [blocks * 32], scale [blocks],
     * offset [blocks] (NULL unless the kind has one). NULL for F32, F16 and BF16. */
    void (*split)(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks);
};

/* NULL when the id or name (any case) is not known. */
const struct quant_type *quant_type_by_id(uint32_t gguf_id);
const struct quant_type *quant_type_by_name(const char *name);
/* All rows, for tables and tests. */
const struct quant_type *quant_type_rows(size_t *count_out);

float half_to_float(uint16_t half);
uint16_t float_to_half(float value); /* round to nearest even */

#endif
