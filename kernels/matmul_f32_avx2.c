/* float32 activations: 6 rows (4 where weights are widened, for want of registers) by a panel of 16
 * outputs, a chain of fused multiply-adds each. */
#include "kernels/kernels.h"
#include "kernels/lanes_avx2.h"

enum { TILE_ROWS = 6, TILE_ROWS_WIDENED = 4 };

/* Eight lanes of a grouped kind: byte `index` of every 32-bit lane, scaled. */
AVX2_INLINE __m256 widen_q8(const enum weight_kind kind, __m256i quads, uint32_t index,
                            __m256 scale, __m256 offset)
{
    const __m256i top = _mm256_slli_epi32(quads, (int)(24 - 8 * index));
    const __m256 q = _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 24));
    return weight_kind_offset(kind) ? _mm256_fmadd_ps(scale, q, offset) : _mm256_mul_ps(scale, q);
}

/* Eight lanes of quad `quad` of a group, as bytes. */
AVX2_INLINE __m256i group_quad(const enum weight_kind kind, const uint8_t *group, uint32_t quad,
                               uint32_t half)
{
    if (!weight_kind_nibbles(kind)) {
        const __m256i bytes = load_bytes(group + quad * PANEL_VECTOR_BYTES + half * 32);
        return kind == WEIGHT_Q8 ? _mm256_xor_si256(bytes, _mm256_set1_epi8((char)PANEL_Q8_BIAS))
                                 : bytes;
    }
    __m256i bytes = load_bytes(group + quad % 4 * PANEL_VECTOR_BYTES + half * 32);
    if (quad >= 4)
        bytes = _mm256_srli_epi16(bytes, 4);
    bytes = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
    return kind == WEIGHT_Q4 ? _mm256_sub_epi8(bytes, _mm256_set1_epi8(8)) : bytes;
}

AVX2_INLINE void add_input(const uint32_t rows, const float *x, uint32_t k, __m256 low, __m256 high,
                           __m256 sums[][2])
{
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        const __m256 value = _mm256_set1_ps(x[(size_t)r * k]);
        sums[r][0] = _mm256_fmadd_ps(low, value, sums[r][0]);
        sums[r][1] = _mm256_fmadd_ps(high, value, sums[r][1]);
    }
}

AVX2_INLINE void sum_f32(const uint32_t rows, const uint8_t *panel, const float *x, uint32_t k,
                         __m256 sums[][2])
{
    const float *w = (const float *)(const void *)panel;
    for (uint32_t i = 0; i < k; i++, w += PANEL_ROWS)
        add_input(rows, x + i, k, _mm256_loadu_ps(w), _mm256_loadu_ps(w + 8), sums);
}

AVX2_INLINE void sum_bf16(const uint32_t rows, const uint8_t *panel, const float *x, uint32_t k,
                          __m256 sums[][2])
{
    uint32_t i = 0;
    for (; i + 2 <= k; i += 2, panel += PANEL_VECTOR_BYTES) {
        const __m256i low = load_bytes(panel);
        const __m256i high = load_bytes(panel + 32);
        add_input(rows, x + i, k, bf16_even(low), bf16_even(high), sums);
        add_input(rows, x + i + 1, k, bf16_odd(low), bf16_odd(high), sums);
    }
    if (i < k)
        add_input(rows, x + i, k, bf16_even(load_bytes(panel)), bf16_even(load_bytes(panel + 32)),
                  sums);
}

AVX2_INLINE void sum_grouped(const enum weight_kind kind, const bool half, const uint32_t rows,
                             const uint8_t *panel, const float *x, uint32_t k, __m256 sums[][2])
{
    const uint8_t *group = panel;
    const uint8_t *scales = panel_scales(kind, half, panel, k, 0);
    for (uint32_t i = 0; i < k; i += WEIGHT_GROUP, group += panel_group_bytes(kind),
                  scales += panel_scale_bytes(kind, half)) {
        const __m256 scale[2] = {load_scales(half, scales, 0), load_scales(half, scales, 8)};
        __m256 offset[2] = {scale[0], scale[1]}; /* not used by the kinds without */
        if (weight_kind_offset(kind)) {
            offset[0] = load_scales(half, scales, PANEL_ROWS);
            offset[1] = load_scales(half, scales, PANEL_ROWS + 8);
        }
        for (uint32_t quad = 0; quad < WEIGHT_GROUP / 4; quad++) {
            const __m256i low = group_quad(kind, group, quad, 0);
            const __m256i high = group_quad(kind, group, quad, 1);
            UNROLL for (uint32_t index = 0; index < 4; index++) add_input(
                rows, x + i + quad * 4 + index, k, widen_q8(kind, low, index, scale[0], offset[0]),
                widen_q8(kind, high, index, scale[1], offset[1]), sums);
        }
    }
}

AVX2_INLINE void matmul_tile(const struct matmul_task *task, const enum weight_kind kind,
                             const uint32_t rows, uint32_t panel, uint32_t row)
{
    const uint8_t *packed = task->panels + panel * panel_bytes(kind, task->half_scales, task->k);
    const float *x = (const float *)task->x + (size_t)row * task->k;
    __m256 sums[TILE_ROWS][2];
    UNROLL for (uint32_t r = 0; r < rows; r++) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    if (kind == WEIGHT_F32)
        sum_f32(rows, packed, x, task->k, sums);
    else if (kind == WEIGHT_BF16)
        sum_bf16(rows, packed, x, task->k, sums);
    else if (task->half_scales)
        sum_grouped(kind, true, rows, packed, x, task->k, sums);
    else
        sum_grouped(kind, false, rows, packed, x, task->k, sums);
    UNROLL for (uint32_t r = 0; r < rows; r++)
        matmul_store_avx2(task, row + r, panel, sums[r][0], sums[r][1]);
}

AVX2_INLINE void matmul_panels(const struct matmul_task *task, const enum weight_kind kind)
{
    const uint32_t tile = kind == WEIGHT_F32 ? TILE_ROWS : TILE_ROWS_WIDENED;
    for (uint32_t panel = task->panel_first; panel < task->panel_end; panel++) {
        uint32_t row = 0;
        for (; row + tile <= task->rows; row += tile)
            matmul_tile(task, kind, tile, panel, row);
        for (; row + 2 <= task->rows; row += 2)
            matmul_tile(task, kind, 2, panel, row);
        if (row < task->rows)
            matmul_tile(task, kind, 1, panel, row);
    }
}

#define MATMUL(name, kind)                                                                         \
    void name(const struct matmul_task *task)                                                      \
    {                                                                                              \
        matmul_panels(task, kind);                                                                 \
    }
MATMUL(matmul_f32__avx2_6x16, WEIGHT_F32)
MATMUL(matmul_f32_bf16__avx2_4x16, WEIGHT_BF16)
MATMUL(matmul_f32_q8__avx2_4x16, WEIGHT_Q8)
MATMUL(matmul_f32_q8a__avx2_4x16, WEIGHT_Q8A)
MATMUL(matmul_f32_q4__avx2_4x16, WEIGHT_Q4)
MATMUL(matmul_f32_q4a__avx2_4x16, WEIGHT_Q4A)
