/* Rows of a quantised weight in coarser groups. Runs once a weight, at load. */
#include <math.h>

#include "base/check.h"
#include "kernels/quantize_i8.h"
#include "kernels/ref_clones.h"
#include "kernels/weight_panel.h"

/* The half nearest to a positive float, so that scales take two bytes; where that would be no
 * normal half, the float itself. */
static float scale_round(float scale)
{
    if (!(scale >= 0x1p-14f && scale < 65000.0f))
        return scale;
    const uint32_t bits = float_bits(scale);
    return float_from_bits((bits + 0xfff + (bits >> 13 & 1)) & ~UINT32_C(0x1fff));
}

/* The values of one group of a row. */
REF_INLINE void group_values(enum weight_kind kind, const struct weight_rows *rows, size_t group,
                             float out[WEIGHT_GROUP])
{
    const int8_t *q = rows->q + group * WEIGHT_GROUP;
    const float scale = rows->scale[group];
    const float offset = weight_kind_offset(kind) ? rows->offset[group] : 0;
    for (uint32_t i = 0; i < WEIGHT_GROUP; i++)
        out[i] = weight_kind_offset(kind) ? fmaf(scale, (float)q[i], offset) : scale * (float)q[i];
}

/* `groups` of a row from `first` on get one scale: amax / 127, of which the values are the nearest
 * multiples. As in an activation, a span of next to nothing is zero, and what is not finite makes
 * the scale NaN. */
REF_INLINE void requantize_span(enum weight_kind kind, const struct weight_rows *rows, size_t first,
                                uint32_t groups, int8_t *q_out, float *scale_out)
{
    float values[WEIGHT_GROUP];
    uint32_t amax_bits = 0;
    for (uint32_t g = 0; g < groups; g++) {
        group_values(kind, rows, first + g, values);
        for (uint32_t i = 0; i < WEIGHT_GROUP; i++) {
            const uint32_t bits = float_bits(values[i]) & 0x7fffffffu;
            amax_bits = bits > amax_bits ? bits : amax_bits;
        }
    }
    const bool finite = amax_bits < FLOAT_INFINITY_BITS;
    const bool zero = amax_bits < QUANTIZE_SMALLEST_BITS;
    const float scale = zero     ? 0
                        : finite ? scale_round(float_from_bits(amax_bits) / QUANTIZE_LEVELS)
                                 : NAN;
    const float inverse = zero || !finite ? 0 : 1 / scale;
    for (uint32_t g = 0; g < groups; g++) {
        group_values(kind, rows, first + g, values);
        for (uint32_t i = 0; i < WEIGHT_GROUP; i++)
            q_out[(first + g) * WEIGHT_GROUP + i] =
                inverse > 0 ? (int8_t)float_round_to_int(values[i] * inverse) : 0;
        scale_out[first + g] = scale;
    }
}

REF_CLONES void weight_requantize(enum weight_kind kind, uint32_t k, uint32_t span,
                                  uint32_t row_count, const struct weight_rows *rows, int8_t *q_out,
                                  float *scale_out)
{
    CHECK(weight_kind_grouped(kind) && k % WEIGHT_GROUP == 0);
    const uint32_t groups = k / WEIGHT_GROUP;
    for (uint32_t row = 0; row < row_count; row++)
        for (uint32_t g = 0; g < groups; g += span)
            requantize_span(kind, rows, (size_t)row * groups + g, span_groups(span, groups - g),
                            q_out, scale_out);
}
