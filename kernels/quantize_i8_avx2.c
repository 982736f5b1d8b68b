/* Activations to int8: a group of 32 is four YMM registers. */
#include "kernels/quantize_i8.h"

#include <math.h>

#include "kernels/float_bits.h"
#include "kernels/kernels.h"
#include "kernels/lanes_avx2.h"

AVX2_INLINE uint32_t largest_magnitude_bits(const float *x, size_t count)
{
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_and_si256(load_bytes(x), mask);
    for (size_t i = 8; i < count; i += 8)
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

/* Returns the sum of what it stored. */
AVX2_INLINE int32_t quantize_group(const float *x, __m256 inverse, struct quantized_group *out)
{
    const __m256i a = scaled_lanes(x, inverse);
    const __m256i b = scaled_lanes(x + 8, inverse);
    const __m256i c = scaled_lanes(x + 16, inverse);
    const __m256i d = scaled_lanes(x + 24, inverse);
    /* Packing works in 128-bit halves; the permutation puts the quads in order again. */
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)(void *)out->q, _mm256_permutevar8x32_epi32(packed, order));
    return sum_lanes(_mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d)));
}

AVX2_INLINE void set_numbers(struct quantized_group *out, float scale, int32_t sum)
{
    out->scale = scale;
    out->scaled_sum = scale * (float)sum;
    out->start = -PANEL_Q8_BIAS * sum;
    out->unused = 0;
}

/* Groups that share a scale. */
AVX2_INLINE void quantize_span(const float *x, const uint32_t groups, struct quantized_group *out)
{
    const uint32_t amax_bits = largest_magnitude_bits(x, (size_t)groups * WEIGHT_GROUP);
    if (amax_bits < QUANTIZE_SMALLEST_BITS || amax_bits >= FLOAT_INFINITY_BITS) {
        for (uint32_t g = 0; g < groups; g++)
            out[g] = (struct quantized_group){0};
        set_numbers(out, amax_bits < QUANTIZE_SMALLEST_BITS ? 0.0f : NAN, 0);
        return;
    }
    const float amax = float_from_bits(amax_bits);
    const __m256 inverse = _mm256_set1_ps(QUANTIZE_LEVELS / amax);
    int32_t sum = 0;
    for (uint32_t g = 0; g < groups; g++) {
        sum += quantize_group(x + (size_t)g * WEIGHT_GROUP, inverse, &out[g]);
        set_numbers(&out[g], 0, 0);
    }
    set_numbers(out, amax / QUANTIZE_LEVELS, sum);
}

void quantize_i8__avx2(const struct quantize_task *task)
{
    const uint32_t groups = task->k / WEIGHT_GROUP, span = span_of(task->span);
    for (size_t row = 0; row < task->rows; row++) {
        const float *x = task->x + row * task->k;
        struct quantized_group *out = task->out + row * task->out_stride;
        if (span == 1)
            for (size_t g = 0; g < groups; g++)
                quantize_span(x + g * WEIGHT_GROUP, 1, out + g);
        else
            for (uint32_t g = 0; g < groups; g += span)
                quantize_span(x + (size_t)g * WEIGHT_GROUP, span_groups(span, groups - g), out + g);
    }
}
