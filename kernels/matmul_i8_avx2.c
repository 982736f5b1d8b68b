/* int8 activations times 4- or 8-bit weights: 4 rows by a panel of 16 outputs.
 *
 * vpmaddubsw takes unsigned times signed bytes and adds pairs in int16 with saturation, which none
 * of the kinds can reach: nibbles give at most 15 * 127 * 2 a pair, so that all 8 quads of a group
 * fit int16 (30,480); Q8A at most 127 * 127 * 2; Q8 multiplies |w| <= 128 by x with the sign of w,
 * at most 128 * 127 * 2 = 32,512. */
#include "kernels/kernels.h"
#include "kernels/lanes_avx2.h"
#include "kernels/quantize_i8.h"

enum { TILE_ROWS = 4 }; /* 8 accumulators; with more, gcc spills */

/* int16 sums of one row of quads for every row: nibbles `w` times x at `quad`. */
#define ADD_NIBBLE_QUAD(rows, w_low, w_high, quad)                                                 \
    UNROLL for (uint32_t r = 0; r < (rows); r++)                                                   \
    {                                                                                              \
        const __m256i quad_x = broadcast_quad(x[r * groups].q + (quad)*4);                         \
        pairs[r][0] = _mm256_add_epi16(pairs[r][0], _mm256_maddubs_epi16(w_low, quad_x));          \
        pairs[r][1] = _mm256_add_epi16(pairs[r][1], _mm256_maddubs_epi16(w_high, quad_x));         \
    }

/* dots[row][half] of one group. */
AVX2_INLINE void group_dots_q4(const uint32_t rows, const uint8_t *group,
                               const struct quantized_group *x, size_t groups, __m256i dots[][2])
{
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i pairs[TILE_ROWS][2];
    UNROLL for (uint32_t r = 0; r < rows; r++) pairs[r][0] = pairs[r][1] = _mm256_setzero_si256();
    UNROLL for (uint32_t quad = 0; quad < 4; quad++)
    {
        const uint8_t *values = group + quad * PANEL_VECTOR_BYTES;
        const __m256i low = _mm256_and_si256(load_bytes(values), mask);
        const __m256i high = _mm256_and_si256(load_bytes(values + 32), mask);
        ADD_NIBBLE_QUAD(rows, low, high, quad)
    }
    UNROLL for (uint32_t quad = 0; quad < 4; quad++)
    {
        const uint8_t *values = group + quad * PANEL_VECTOR_BYTES;
        const __m256i low = _mm256_and_si256(_mm256_srli_epi16(load_bytes(values), 4), mask);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(load_bytes(values + 32), 4), mask);
        ADD_NIBBLE_QUAD(rows, low, high, quad + 4)
    }
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        dots[r][0] = _mm256_madd_epi16(pairs[r][0], ones);
        dots[r][1] = _mm256_madd_epi16(pairs[r][1], ones);
    }
}

AVX2_INLINE __m256i dot_q8(const enum weight_kind kind, __m256i w, __m256i x)
{
    if (kind == WEIGHT_Q8)
        w = _mm256_xor_si256(w, _mm256_set1_epi8((char)PANEL_Q8_BIAS));
    const __m256i pairs = kind == WEIGHT_Q8A
                              ? _mm256_maddubs_epi16(w, x)
                              : _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* Adds to the dots. */
AVX2_INLINE void group_dots_q8(const enum weight_kind kind, const uint32_t rows,
                               const uint8_t *group, const struct quantized_group *x, size_t groups,
                               __m256i dots[][2])
{
    UNROLL for (uint32_t quad = 0; quad < WEIGHT_GROUP / 4; quad++)
    {
        const __m256i low = load_bytes(group + quad * PANEL_VECTOR_BYTES);
        const __m256i high = load_bytes(group + quad * PANEL_VECTOR_BYTES + 32);
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            const __m256i quad_x = broadcast_quad(x[r * groups].q + quad * 4);
            dots[r][0] = _mm256_add_epi32(dots[r][0], dot_q8(kind, low, quad_x));
            dots[r][1] = _mm256_add_epi32(dots[r][1], dot_q8(kind, high, quad_x));
        }
    }
}

/* Eight lanes from `lane` on. */
AVX2_INLINE __m256 add_group(const enum weight_kind kind, const bool half, __m256 sum, __m256i dot,
                             const void *scales, uint32_t lane, const struct quantized_group *x)
{
    if (kind == WEIGHT_Q4) /* stored as q + 8 */
        dot = _mm256_add_epi32(dot, _mm256_set1_epi32(x->start / (PANEL_Q8_BIAS / PANEL_Q4_BIAS)));
    const __m256 scale = _mm256_mul_ps(load_scales(half, scales, lane), _mm256_set1_ps(x->scale));
    sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dot), sum);
    if (!weight_kind_offset(kind))
        return sum;
    return _mm256_fmadd_ps(load_scales(half, scales, PANEL_ROWS + lane),
                           _mm256_set1_ps(x->scaled_sum), sum);
}

AVX2_INLINE void matmul_tile(const struct matmul_task *task, const enum weight_kind kind,
                             const bool half, const bool spans, const uint32_t rows, uint32_t panel,
                             uint32_t row)
{
    const uint32_t k = task->k;
    const size_t groups = k / WEIGHT_GROUP;
    const uint8_t *group = task->panels + panel * panel_bytes(kind, half, k);
    const uint8_t *scales = panel_scales(kind, half, group, k, 0);
    const struct quantized_group *x = (const struct quantized_group *)task->x + row * groups;
    __m256 sums[TILE_ROWS][2];
    UNROLL for (uint32_t r = 0; r < rows; r++) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    const uint32_t span = spans ? task->span : 1;
    for (uint32_t left = (uint32_t)groups, some; left > 0; left -= some, x += some) {
        __m256i dots[TILE_ROWS][2];
        some = spans ? span_groups(span, left) : 1;
        UNROLL for (uint32_t r = 0; r < rows; r++) dots[r][0] = dots[r][1] = _mm256_setzero_si256();
        if (weight_kind_nibbles(kind))
            group_dots_q4(rows, group, x, groups, dots);
        else
            for (uint32_t i = 0; i < some; i++)
                group_dots_q8(kind, rows, group + i * PANEL_Q8_BYTES, x + i, groups, dots);
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            const struct quantized_group *of_row = x + r * groups;
            sums[r][0] = add_group(kind, half, sums[r][0], dots[r][0], scales, 0, of_row);
            sums[r][1] = add_group(kind, half, sums[r][1], dots[r][1], scales, 8, of_row);
        }
        group += some * panel_group_bytes(kind);
        scales += some * panel_scale_bytes(kind, half);
    }
    UNROLL for (uint32_t r = 0; r < rows; r++)
        matmul_store_avx2(task, row + r, panel, sums[r][0], sums[r][1]);
}

AVX2_INLINE void matmul_panels(const struct matmul_task *task, const enum weight_kind kind,
                               const bool half, const bool spans)
{
    for (uint32_t panel = task->panel_first; panel < task->panel_end; panel++) {
        uint32_t row = 0;
        for (; row + TILE_ROWS <= task->rows; row += TILE_ROWS)
            matmul_tile(task, kind, half, spans, TILE_ROWS, panel, row);
        switch (task->rows - row) {
        case 3:
            matmul_tile(task, kind, half, spans, 3, panel, row);
            break;
        case 2:
            matmul_tile(task, kind, half, spans, 2, panel, row);
            break;
        case 1:
            matmul_tile(task, kind, half, spans, 1, panel, row);
            break;
        default:
            break;
        }
    }
}

#define MATMUL(name, kind)                                                                         \
    void name(const struct matmul_task *task)                                                      \
    {                                                                                              \
        if (task->half_scales)                                                                     \
            matmul_panels(task, kind, true, false);                                                \
        else                                                                                       \
            matmul_panels(task, kind, false, false);                                               \
    }
MATMUL(matmul_i8_q8a__avx2_4x16, WEIGHT_Q8A)
MATMUL(matmul_i8_q4__avx2_4x16, WEIGHT_Q4)
MATMUL(matmul_i8_q4a__avx2_4x16, WEIGHT_Q4A)

void matmul_i8_q8__avx2_4x16(const struct matmul_task *task)
{
    const bool spans = span_of(task->span) > 1;
    if (task->half_scales && !spans)
        matmul_panels(task, WEIGHT_Q8, true, false);
    else if (task->half_scales)
        matmul_panels(task, WEIGHT_Q8, true, true);
    else if (!spans)
        matmul_panels(task, WEIGHT_Q8, false, false);
    else
        matmul_panels(task, WEIGHT_Q8, false, true);
}
