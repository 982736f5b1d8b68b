/* Packed weights: one format per kind for every instruction set and both roles.
 *
 * A panel holds PANEL_ROWS consecutive output rows, so that outputs sit in SIMD lanes and no kernel
 * ever sums across lanes. Rows past N are zero. Inside a panel, in order of K:
 *
 *   F32        [K][16] float
 *   BF16       [ceil(K / 2)][16][2] bf16, pairs of neighbouring inputs
 *   Q8, Q8A    per group of 32: [8 quads][16][4] bytes (inputs 4 * quad … + 3); Q8 stores q + 128
 *   Q4, Q4A    per group of 32: [4][16][4] bytes, the low nibbles quads 0-3, the high nibbles quads
 *              4-7; Q4 stores q + 8
 *
 * Behind the values of the four grouped kinds stand their scales, [K / 32][16], for the kinds with
 * an offset [K / 32]{scale[16], offset[16]}: as halves where every one of the weight is exactly a
 * half (what most files hold), else as floats. Every panel is a multiple of 64 bytes. */
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
    PANEL_Q8_BYTES = WEIGHT_GROUP * PANEL_ROWS,
    PANEL_Q4_BYTES = WEIGHT_GROUP * PANEL_ROWS / 2,
    PANEL_Q8_BIAS = 128, /* added to the values of Q8 */
    PANEL_Q4_BIAS = 8,   /* and of Q4 */
};

#define PANEL_INLINE static inline __attribute__((always_inline))

PANEL_INLINE bool weight_kind_grouped(enum weight_kind kind)
{
    return kind >= WEIGHT_Q8;
}
PANEL_INLINE bool weight_kind_offset(enum weight_kind kind)
{
    return kind == WEIGHT_Q8A || kind == WEIGHT_Q4A;
}
PANEL_INLINE bool weight_kind_nibbles(enum weight_kind kind)
{
    return kind == WEIGHT_Q4 || kind == WEIGHT_Q4A;
}
PANEL_INLINE int32_t panel_bias(enum weight_kind kind)
{
    return kind == WEIGHT_Q8 ? PANEL_Q8_BIAS : kind == WEIGHT_Q4 ? PANEL_Q4_BIAS : 0;
}

/* Quantised values of one group. */
PANEL_INLINE size_t panel_group_bytes(enum weight_kind kind)
{
    return weight_kind_nibbles(kind) ? PANEL_Q4_BYTES : PANEL_Q8_BYTES;
}
/* Scales (and offsets) of one group: 16 or 32 numbers. */
PANEL_INLINE size_t panel_scale_count(enum weight_kind kind)
{
    return weight_kind_offset(kind) ? 2 * PANEL_ROWS : PANEL_ROWS;
}
PANEL_INLINE size_t panel_scale_bytes(enum weight_kind kind, bool half_scales)
{
    return panel_scale_count(kind) * (half_scales ? sizeof(uint16_t) : sizeof(float));
}

PANEL_INLINE size_t panel_bytes(enum weight_kind kind, bool half_scales, uint32_t k)
{
    if (kind == WEIGHT_F32)
        return (size_t)k * PANEL_VECTOR_BYTES;
    if (kind == WEIGHT_BF16)
        return ((size_t)k + 1) / 2 * PANEL_VECTOR_BYTES;
    const size_t groups = k / WEIGHT_GROUP;
    const size_t scales = groups * panel_scale_bytes(kind, half_scales);
    return groups * panel_group_bytes(kind) +
           (scales + PANEL_VECTOR_BYTES - 1) / PANEL_VECTOR_BYTES * PANEL_VECTOR_BYTES;
}
PANEL_INLINE uint32_t panel_count(uint32_t n)
{
    return (n + PANEL_ROWS - 1) / PANEL_ROWS;
}

/* The integer of one lane; input is the index inside the group. */
PANEL_INLINE int32_t panel_group_value(enum weight_kind kind, const uint8_t *group, uint32_t input,
                                       uint32_t lane)
{
    const uint32_t quad = input / 4;
    const uint32_t at = lane * 4 + input % 4;
    if (!weight_kind_nibbles(kind))
        return group[quad * PANEL_VECTOR_BYTES + at] - panel_bias(kind);
    const uint8_t byte = group[(quad % 4) * PANEL_VECTOR_BYTES + at];
    return (quad < 4 ? byte & 15 : byte >> 4) - panel_bias(kind);
}

/* Scales of a group, one per lane, behind them the offsets: halves or floats. */
PANEL_INLINE const void *panel_scales(enum weight_kind kind, bool half_scales, const uint8_t *panel,
                                      uint32_t k, uint32_t group)
{
    return panel + k / WEIGHT_GROUP * panel_group_bytes(kind) +
           group * panel_scale_bytes(kind, half_scales);
}
PANEL_INLINE float panel_scale(bool half_scales, const void *scales, size_t index)
{
    return half_scales ? float_from_half(((const uint16_t *)scales)[index])
                       : ((const float *)scales)[index];
}
/* All scales and offsets of a group as floats. */
PANEL_INLINE void panel_scales_load(enum weight_kind kind, bool half_scales, const uint8_t *panel,
                                    uint32_t k, uint32_t group, float out[2 * PANEL_ROWS])
{
    const void *scales = panel_scales(kind, half_scales, panel, k, group);
    for (uint32_t i = 0; i < panel_scale_count(kind); i++)
        out[i] = panel_scale(half_scales, scales, i);
}

/* A grouped weight as a float: fmaf(scale, q, offset) or scale * q. */
PANEL_INLINE float panel_scaled(enum weight_kind kind, const float scales[2 * PANEL_ROWS],
                                uint32_t lane, int32_t q)
{
    return weight_kind_offset(kind) ? fmaf(scales[lane], (float)q, scales[PANEL_ROWS + lane])
                                    : scales[lane] * (float)q;
}

/* The stored value of a kind without groups. */
PANEL_INLINE float panel_value(enum weight_kind kind, const uint8_t *panel, uint32_t input,
                               uint32_t lane)
{
    if (kind == WEIGHT_F32)
        return ((const float *)(const void *)panel)[(size_t)input * PANEL_ROWS + lane];
    const uint16_t *pairs = (const uint16_t *)(const void *)panel;
    return float_from_bf16(pairs[((size_t)(input / 2) * PANEL_ROWS + lane) * 2 + input % 2]);
}

/* The rows from `first` on. */
PANEL_INLINE struct weight_rows weight_rows_from(const struct weight_rows *rows, size_t first,
                                                 uint32_t k)
{
    const size_t at = first * k, group = first * (k / WEIGHT_GROUP);
    return (struct weight_rows){
        .f32 = rows->f32 ? rows->f32 + at : NULL,
        .bf16 = rows->bf16 ? rows->bf16 + at : NULL,
        .q = rows->q ? rows->q + at : NULL,
        .scale = rows->scale ? rows->scale + group : NULL,
        .offset = rows->offset ? rows->offset + group : NULL,
    };
}

/* Packs 1 to PANEL_ROWS canonical rows of K inputs as one whole panel; rows that are missing become
 * zero. False when half_scales is asked for and a scale or offset of theirs is no half: what the
 * panel holds is of no use then. Any thread. */
bool weight_pack_panel(enum weight_kind kind, bool half_scales, uint32_t k, uint8_t *panel,
                       uint32_t row_count, const struct weight_rows *rows);

/* Canonical rows of a grouped kind become rows of WEIGHT_Q8 in which `span` groups of 32 (at the
 * end of a row what is left) share a scale, each group with a copy of it. q_out: [row_count][k],
 * scale_out: [row_count][k / 32]. Any thread. */
void weight_requantize(enum weight_kind kind, uint32_t k, uint32_t span, uint32_t row_count,
                       const struct weight_rows *rows, int8_t *q_out, float *scale_out);

#endif
