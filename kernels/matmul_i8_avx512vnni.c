/* int8 activations times 4- or 8-bit weights with vpdpbusd: 6 rows by two panels (32 outputs).
 *
 * The instruction adds four products of an unsigned and a signed byte to an int32, exactly. Weights
 * are the unsigned side: nibbles and Q8A as they are, Q8 as q + 128; what that (and the q + 8 that
 * Q4 is stored as) adds too much is a multiple of the sum of x, with which the dot product starts.
 * The rows' quads are broadcast from memory by the instruction itself. */
#include <immintrin.h>

#include "kernels/kernels.h"
#include "kernels/matmul_epilogue.h"

#define AVX512_INLINE static inline __attribute__((always_inline))
#define UNROLL        _Pragma("GCC unroll 16")

/* Decode reads its weights from memory: asked for this far ahead. */
enum { TILE_ROWS = 6, TILE_PANELS = 2, PREFETCH_BYTES = 16384 };

/* How much larger the unsigned weights are than the true ones. */
AVX512_INLINE int32_t stored_bias(const enum weight_kind kind)
{
    return kind == WEIGHT_Q4 ? 8 : kind == WEIGHT_Q8 ? 128 : 0;
}

/* 16 rows of one quad of inputs as unsigned bytes. */
AVX512_INLINE __m512i load_quad(const enum weight_kind kind, const uint8_t *group, uint32_t quad)
{
    if (weight_kind_nibbles(kind)) {
        __m512i bytes = _mm512_load_si512(group + (size_t)(quad % 4) * PANEL_VECTOR_BYTES);
        if (quad >= 4)
            bytes = _mm512_srli_epi16(bytes, 4);
        return _mm512_and_si512(bytes, _mm512_set1_epi8(15));
    }
    const __m512i bytes = _mm512_load_si512(group + (size_t)quad * PANEL_VECTOR_BYTES);
    return kind == WEIGHT_Q8 ? _mm512_xor_si512(bytes, _mm512_set1_epi8((char)0x80)) : bytes;
}

AVX512_INLINE __m512i broadcast_quad(const int8_t *x)
{
    int32_t quad;
    __builtin_memcpy(&quad, x, sizeof(quad));
    return _mm512_set1_epi32(quad);
}

/* The address may lie past the weight: a prefetch of nothing is no fault. */
AVX512_INLINE void prefetch_group(const enum weight_kind kind, const uint8_t *group)
{
    const uintptr_t ahead = (uintptr_t)group + PREFETCH_BYTES;
    UNROLL for (uint32_t line = 0; line < panel_group_bytes(kind); line += 64)
        _mm_prefetch((const char *)(ahead + line), _MM_HINT_T0);
}

AVX512_INLINE __m512 add_group(const enum weight_kind kind, __m512 sum, __m512i dot,
                               const float *scale, __m512 x_scale, __m512 x_sum)
{
    const __m512 t = _mm512_mul_ps(_mm512_load_ps(scale), x_scale);
    sum = _mm512_fmadd_ps(t, _mm512_cvtepi32_ps(dot), sum);
    if (!weight_kind_offset(kind))
        return sum;
    const __m512 offset = _mm512_mul_ps(_mm512_load_ps(scale + PANEL_ROWS), x_scale);
    return _mm512_fmadd_ps(offset, x_sum, sum);
}

AVX512_INLINE void store(const struct matmul_task *task, uint32_t row, uint32_t panel, __m512 sum)
{
    const uint32_t first = panel * PANEL_ROWS;
    const uint32_t lanes = task->n - first < PANEL_ROWS ? task->n - first : PANEL_ROWS;
    const __mmask16 mask = (__mmask16)((1u << lanes) - 1);
    float *out = task->out + (size_t)row * task->n + first;
    if (task->bias)
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, task->bias + first));
    if (task->accumulate)
        sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), sum);
    _mm512_mask_storeu_ps(out, mask, sum);
}

AVX512_INLINE void matmul_tile(const struct matmul_task *task, const enum weight_kind kind,
                               const uint32_t rows, const uint32_t panels, uint32_t panel,
                               uint32_t row)
{
    const uint32_t k = task->k;
    const uint32_t groups = k / WEIGHT_GROUP;
    const size_t stride = panel_bytes(kind, k);
    const uint8_t *group = task->panels + panel * stride;
    const int8_t *x = (const int8_t *)task->x + (size_t)row * k;
    const float *x_scale = task->x_scale + (size_t)row * groups;
    const int32_t *x_sum = task->x_sum + (size_t)row * groups;
    __m512 sums[TILE_ROWS][TILE_PANELS];
    UNROLL for (uint32_t r = 0; r < rows; r++) UNROLL for (uint32_t p = 0; p < panels; p++)
        sums[r][p] = _mm512_setzero_ps();
    for (uint32_t g = 0; g < groups; g++) {
        __m512i dots[TILE_ROWS][TILE_PANELS];
        UNROLL for (uint32_t r = 0; r < rows; r++) UNROLL for (uint32_t p = 0; p < panels; p++)
            dots[r][p] = _mm512_set1_epi32(-stored_bias(kind) * x_sum[(size_t)r * groups + g]);
        UNROLL for (uint32_t p = 0; p < panels; p++) prefetch_group(kind, group + p * stride);
        UNROLL for (uint32_t quad = 0; quad < WEIGHT_GROUP / 4; quad++)
        {
            __m512i w[TILE_PANELS];
            UNROLL for (uint32_t p = 0; p < panels; p++) w[p] =
                load_quad(kind, group + p * stride, quad);
            UNROLL for (uint32_t r = 0; r < rows; r++)
            {
                const __m512i quad_x = broadcast_quad(x + (size_t)r * k + quad * 4);
                UNROLL for (uint32_t p = 0; p < panels; p++) dots[r][p] =
                    _mm512_dpbusd_epi32(dots[r][p], w[p], quad_x);
            }
        }
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            const __m512 scale = _mm512_set1_ps(x_scale[(size_t)r * groups + g]);
            const __m512 sum = _mm512_cvtepi32_ps(_mm512_set1_epi32(x_sum[(size_t)r * groups + g]));
            UNROLL for (uint32_t p = 0; p < panels; p++) sums[r][p] =
                add_group(kind, sums[r][p], dots[r][p], panel_group_scale(kind, group + p * stride),
                          scale, sum);
        }
        group += panel_group_bytes(kind);
        x += WEIGHT_GROUP;
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) UNROLL for (uint32_t p = 0; p < panels; p++)
        store(task, row + r, panel + p, sums[r][p]);
}

AVX512_INLINE void matmul_rows(const struct matmul_task *task, const enum weight_kind kind,
                               const uint32_t panels, uint32_t panel)
{
    uint32_t row = 0;
    for (; row + TILE_ROWS <= task->rows; row += TILE_ROWS)
        matmul_tile(task, kind, TILE_ROWS, panels, panel, row);
    switch (task->rows - row) {
    case 5:
        matmul_tile(task, kind, 5, panels, panel, row);
        break;
    case 4:
        matmul_tile(task, kind, 4, panels, panel, row);
        break;
    case 3:
        matmul_tile(task, kind, 3, panels, panel, row);
        break;
    case 2:
        matmul_tile(task, kind, 2, panels, panel, row);
        break;
    case 1:
        matmul_tile(task, kind, 1, panels, panel, row);
        break;
    default:
        break;
    }
}

AVX512_INLINE void matmul_panels(const struct matmul_task *task, const enum weight_kind kind)
{
    uint32_t panel = task->panel_first;
    for (; panel + TILE_PANELS <= task->panel_end; panel += TILE_PANELS)
        matmul_rows(task, kind, TILE_PANELS, panel);
    if (panel < task->panel_end)
        matmul_rows(task, kind, 1, panel);
}

void matmul_i8_q8__avx512vnni_6x32(const struct matmul_task *task)
{
    matmul_panels(task, WEIGHT_Q8);
}

void matmul_i8_q8a__avx512vnni_6x32(const struct matmul_task *task)
{
    matmul_panels(task, WEIGHT_Q8A);
}

void matmul_i8_q4__avx512vnni_6x32(const struct matmul_task *task)
{
    matmul_panels(task, WEIGHT_Q4);
}

void matmul_i8_q4a__avx512vnni_6x32(const struct matmul_task *task)
{
    matmul_panels(task, WEIGHT_Q4A);
}
