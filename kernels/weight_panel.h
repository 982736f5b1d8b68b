/* Packed weights: one format per kind for every instruction set and both roles.
 *
 * A panel holds PANEL_ROWS consecutive output rows, so that outputs sit in SIMD lanes and no kernel
 * ever sums across lanes. Rows past N are zero. Inside a panel, in order of K:
 *
 *   F32        [K][16] float
 *   BF16       [ceil(K / 2)][16][2] bf16, pairs of neighbouring inputs
 *   Q8, Q8A    per group of 32: [8 quads][16][4] int8 (inputs 4 * quad … + 3), float scale[16],
 *              for Q8A float offset[16]
 *   Q4, Q4A    per group of 32: [4][16][4] bytes, the low nibbles quads 0-3, the high nibbles quads
 *              4-7 (Q4 stores q + 8), then scale and offset as above
 *
 * Every panel and group is a multiple of 64 bytes. */
#ifndef BATON_KERNELS_WEIGHT_PANEL_H
#define BATON_KERNELS_WEIGHT_PANEL_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "kernels/float_bits.h"

enum {
    PANEL_ROWS = 16,
    PANEL_VECTOR_BYTES = 64, /* 16 rows of 4 bytes */
    PANEL_SCALE_BYTES = 64,
    PANEL_Q8_BYTES = WEIGHT_GROUP * PANEL_ROWS,
    PANEL_Q4_BYTES = WEIGHT_GROUP * PANEL_ROWS / 2,
};

static inline bool weight_kind_grouped(enum weight_kind kind)
{
    return kind >= WEIGHT_Q8;
}
static inline bool weight_kind_offset(enum weight_kind kind)
{
    return kind == WEIGHT_Q8A || kind == WEIGHT_Q4A;
}
static inline bool weight_kind_nibbles(enum weight_kind kind)
{
    return kind == WEIGHT_Q4 || kind == WEIGHT_Q4A;
}

/* Quantised values of one group, without scales. */
static inline size_t panel_group_values_bytes(enum weight_kind kind)
{
    return weight_kind_nibbles(kind) ? PANEL_Q4_BYTES : PANEL_Q8_BYTES;
}
static inline size_t panel_group_bytes(enum weight_kind kind)
{
    return panel_group_values_bytes(kind) + PANEL_SCALE_BYTES +
           (weight_kind_offset(kind) ? PANEL_SCALE_BYTES : 0);
}

static inline size_t panel_bytes(enum weight_kind kind, uint32_t k)
{
    switch (kind) {
    case WEIGHT_F32:
        return (size_t)k * PANEL_VECTOR_BYTES;
    case WEIGHT_BF16:
        return ((size_t)k + 1) / 2 * PANEL_VECTOR_BYTES;
    default:
        return (size_t)(k / WEIGHT_GROUP) * panel_group_bytes(kind);
    }
}
static inline uint32_t panel_count(uint32_t n)
{
    return (n + PANEL_ROWS - 1) / PANEL_ROWS;
}

/* The stored integer of one lane; input is the index inside the group. */
static inline __attribute__((always_inline)) int32_t
panel_group_value(enum weight_kind kind, const uint8_t *group, uint32_t input, uint32_t lane)
{
    const uint32_t quad = input / 4;
    const uint32_t at = lane * 4 + input % 4;
    if (!weight_kind_nibbles(kind))
        return (int8_t)group[quad * PANEL_VECTOR_BYTES + at];
    const uint8_t byte = group[(quad % 4) * PANEL_VECTOR_BYTES + at];
    const int32_t nibble = quad < 4 ? byte & 15 : byte >> 4;
    return kind == WEIGHT_Q4 ? nibble - 8 : nibble;
}

/* Scales (and behind them offsets) of a group, one per lane. */
static inline const float *panel_group_scale(enum weight_kind kind, const uint8_t *group)
{
    return (const float *)(const void *)(group + panel_group_values_bytes(kind));
}

/* The weight of one lane as a float: fmaf(scale, q, offset), scale * q, or the stored value. */
static inline __attribute__((always_inline)) float
panel_value(enum weight_kind kind, const uint8_t *panel, uint32_t input, uint32_t lane)
{
    if (kind == WEIGHT_F32)
        return ((const float *)(const void *)panel)[(size_t)input * PANEL_ROWS + lane];
    if (kind == WEIGHT_BF16) {
        const uint16_t *pairs = (const uint16_t *)(const void *)panel;
        return float_from_bf16(pairs[((size_t)(input / 2) * PANEL_ROWS + lane) * 2 + input % 2]);
    }
    const uint8_t *group = panel + (size_t)(input / WEIGHT_GROUP) * panel_group_bytes(kind);
    const float q = (float)panel_group_value(kind, group, input % WEIGHT_GROUP, lane);
    const float *scale = panel_group_scale(kind, group);
    return weight_kind_offset(kind) ? fmaf(scale[lane], q, scale[PANEL_ROWS + lane])
                                    : scale[lane] * q;
}

/* Packs row_count canonical rows that begin at first_row of the matrix (a multiple of PANEL_ROWS)
 * into panels that were zeroed. */
void weight_pack(enum weight_kind kind, uint32_t k, uint8_t *panels, uint32_t first_row,
                 uint32_t row_count, const struct weight_rows *rows);

#endif
