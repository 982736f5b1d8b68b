/* Activations to int8: a group of 32 is two ZMM registers. */
#include "kernels/quantize_i8.h"

#include <math.h>

#include "kernels/float_bits.h"
#include "kernels/lanes_avx512.h"

AVX512_INLINE void quantize_group(const float *x, struct quantized_group *out)
{
    const __m512 a = _mm512_loadu_ps(x);
    const __m512 b = _mm512_loadu_ps(x + 16);
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    const __m512i largest = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), mask),
                                             _mm512_and_si512(_mm512_castps_si512(b), mask));
    const uint32_t amax_bits = (uint32_t)_mm512_reduce_max_epi32(largest);
    if (amax_bits < QUANTIZE_SMALLEST_BITS || amax_bits >= FLOAT_INFINITY_BITS) {
        *out = (struct quantized_group){.scale = amax_bits < QUANTIZE_SMALLEST_BITS ? 0.0f : NAN};
        out->scaled_sum = out->scale;
        return;
    }
    const float amax = float_from_bits(amax_bits);
    const __m512 inverse = _mm512_set1_ps(QUANTIZE_LEVELS / amax);
    const __m128i low = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)));
    const __m128i high = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)));
    _mm_storeu_si128((__m128i *)(void *)out->q, low);
    _mm_storeu_si128((__m128i *)(void *)(out->q + 16), high);
    /* Four sums of four in every lane, then across the lanes. */
    const __m128i ones = _mm_set1_epi8(1);
    __m128i sums = _mm_dpbusd_epi32(_mm_setzero_si128(), ones, low);
    sums = _mm_dpbusd_epi32(sums, ones, high);
    sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4e));
    sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0xb1));
    const int32_t sum = _mm_cvtsi128_si32(sums);
    out->scale = amax / QUANTIZE_LEVELS;
    out->scaled_sum = out->scale * (float)sum;
    out->start = -PANEL_Q8_BIAS * sum;
    out->unused = 0;
}

void quantize_i8__avx512vnni(const struct quantize_task *task)
{
    const size_t groups = task->k / WEIGHT_GROUP;
    for (size_t row = 0; row < task->rows; row++)
        for (size_t group = 0; group < groups; group++)
            quantize_group(task->x + row * task->k + group * WEIGHT_GROUP,
                           task->out + row * task->out_stride + group);
}
