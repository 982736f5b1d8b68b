/* Activations to int8: a group of 32 is four YMM registers. */
#include "kernels/quantize_i8.h"

#include <math.h>

#include "kernels/float_bits.h"
#include "kernels/kernels.h"
#include "kernels/lanes_avx2.h"

AVX2_INLINE uint32_t largest_magnitude_bits(const float *x)
{
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_and_si256(load_bytes(x), mask);
    for (uint32_t i = 8; i < WEIGHT_GROUP; i += 8)
        largest = _mm256_max_epi32(largest, _mm256_and_si256(load_bytes(x + i), mask));
    __m128i half =
        _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(half);
}

AVX2_INLINE int32_t sum_lanes(__m256i lanes)
{
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return _mm_cvtsi128_si32(half);
}

AVX2_INLINE __m256i scaled_lanes(const float *x, __m256 inverse)
{
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
}

AVX2_INLINE void quantize_group(const float *x, struct quantized_group *out)
{
    const uint32_t amax_bits = largest_magnitude_bits(x);
    if (amax_bits < QUANTIZE_SMALLEST_BITS || amax_bits >= FLOAT_INFINITY_BITS) {
        *out = (struct quantized_group){.scale = amax_bits < QUANTIZE_SMALLEST_BITS ? 0.0f : NAN};
        out->scaled_sum = out->scale;
        return;
    }
    const float amax = float_from_bits(amax_bits);
    const __m256 inverse = _mm256_set1_ps(QUANTIZE_LEVELS / amax);
    const __m256i a = scaled_lanes(x, inverse);
    const __m256i b = scaled_lanes(x + 8, inverse);
    const __m256i c = scaled_lanes(x + 16, inverse);
    const __m256i d = scaled_lanes(x + 24, inverse);
    out->scale = amax / QUANTIZE_LEVELS;
    const int32_t sum = sum_lanes(_mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d)));
    out->scaled_sum = out->scale * (float)sum;
    out->start = -PANEL_Q8_BIAS * sum;
    out->unused = 0;
    /* Packing works in 128-bit halves; the permutation puts the quads in order again. */
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)(void *)out->q, _mm256_permutevar8x32_epi32(packed, order));
}

void quantize_i8__avx2(const struct quantize_task *task)
{
    const size_t groups = task->k / WEIGHT_GROUP;
    for (size_t row = 0; row < task->rows; row++)
        for (size_t group = 0; group < groups; group++)
            quantize_group(task->x + row * task->k + group * WEIGHT_GROUP,
                           task->out + row * task->out_stride + group);
}
