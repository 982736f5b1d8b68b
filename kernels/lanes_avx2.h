/* Two YMM registers stand for the 16 lanes of a panel. For files compiled with AVX2 only. */
#ifndef BATON_KERNELS_LANES_AVX2_H
#define BATON_KERNELS_LANES_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "kernels/matmul_epilogue.h"

#define AVX2_INLINE static inline __attribute__((always_inline))
#define UNROLL      _Pragma("GCC unroll 16")

AVX2_INLINE __m256i load_bytes(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Four bytes in every lane. */
AVX2_INLINE __m256i broadcast_quad(const void *p)
{
    int32_t quad;
    memcpy(&quad, p, sizeof(quad));
    return _mm256_set1_epi32(quad);
}

/* Eight scales, halves or floats; index counts from the start of the group's. */
AVX2_INLINE __m256 load_scales(const bool half_scales, const void *scales, uint32_t index)
{
    return half_scales ? _mm256_cvtph_ps(
                             _mm_loadu_si128((const __m128i *)((const uint16_t *)scales + index)))
                       : _mm256_loadu_ps((const float *)scales + index);
}

/* The two bf16 values of every 32-bit lane as floats. */
AVX2_INLINE __m256 bf16_even(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}
AVX2_INLINE __m256 bf16_odd(__m256i pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000)));
}

/* matmul_store for sums in registers. */
AVX2_INLINE void matmul_store_avx2(const struct matmul_task *task, uint32_t row, uint32_t panel,
                                   __m256 low, __m256 high)
{
    const uint32_t first = panel * PANEL_ROWS;
    if (task->n - first < PANEL_ROWS) {
        float sums[PANEL_ROWS];
        _mm256_storeu_ps(sums, low);
        _mm256_storeu_ps(sums + 8, high);
        matmul_store(task, row, panel, sums);
        return;
    }
    float *out = matmul_out(task, row, panel);
    if (task->bias) {
        low = _mm256_add_ps(low, _mm256_loadu_ps(task->bias + first));
        high = _mm256_add_ps(high, _mm256_loadu_ps(task->bias + first + 8));
    }
    if (task->accumulate) {
        low = _mm256_add_ps(_mm256_loadu_ps(out), low);
        high = _mm256_add_ps(_mm256_loadu_ps(out + 8), high);
    }
    _mm256_storeu_ps(out, low);
    _mm256_storeu_ps(out + 8, high);
}

#endif
