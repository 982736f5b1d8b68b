/* Activations to bf16, eight at a time. */
#include "kernels/float_bits.h"
#include "kernels/kernels.h"
#include "kernels/lanes_avx2.h"

/* bf16_from_float_flushed in every lane, the result in the low half. */
AVX2_INLINE __m256i round_lanes(__m256i bits)
{
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i top = _mm256_srli_epi32(bits, 16);
    const __m256i tie = _mm256_and_si256(top, _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(tie, _mm256_set1_epi32(0x7fff));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
    rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(top, _mm256_set1_epi32(0x40)), nan);
    const __m256i denormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), magnitude);
    const __m256i zero = _mm256_and_si256(top, _mm256_set1_epi32(0x8000));
    return _mm256_blendv_epi8(rounded, zero, denormal);
}

void round_bf16__avx2(const struct round_task *task)
{
    const uint32_t padded = (task->k + 1) / 2 * 2;
    for (size_t row = 0; row < task->rows; row++) {
        const float *x = task->x + row * task->x_stride;
        uint16_t *out = task->out + row * task->out_stride;
        uint32_t i = 0;
        for (; i + 8 <= task->k; i += 8) {
            const __m256i lanes = round_lanes(load_bytes(x + i));
            const __m128i packed =
                _mm_packus_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
            _mm_storeu_si128((__m128i *)(void *)(out + i), packed);
        }
        for (; i < task->k; i++)
            out[i] = bf16_from_float_flushed(x[i]);
        if (padded != task->k)
            out[task->k] = 0;
    }
}
