/* int8 keys and values as the bf16 that they stand for, in registers. For files compiled with
 * AVX-512 and BF16 only. */
#ifndef BATON_KERNELS_ATTENTION_WIDEN_AVX512_H
#define BATON_KERNELS_ATTENTION_WIDEN_AVX512_H

#include "kernels/attention_rows.h"
#include "kernels/lanes_avx512.h"

/* 32 values of int8 as bf16(scale * q). */
AVX512_INLINE __m512 widen_pairs(const uint8_t *q, const __m512 scales[2])
{
    __m512 x[2];
    UNROLL for (int i = 0; i < 2; i++) x[i] =
        _mm512_mul_ps(scales[i], _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(
                                     (const __m128i *)(const void *)(q + 16 * i)))));
    return _mm512_castsi512_ps((__m512i)_mm512_cvtne2ps_pbh(x[1], x[0]));
}

/* Of K: pairs of dims of 16 tokens, so every scale stands in two lanes. */
AVX512_INLINE void scales_of_k(const float *scales, __m512 lanes[2])
{
    const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const __m512 all = _mm512_loadu_ps(scales);
    lanes[0] = _mm512_permutexvar_ps(low, all);
    lanes[1] = _mm512_permutexvar_ps(high, all);
}

/* Of V: a pair of tokens in all dims, so two scales alternate. */
AVX512_INLINE void scales_of_v(const float *scales, __m512 lanes[2])
{
    double both;
    __builtin_memcpy(&both, scales, sizeof(both));
    lanes[0] = lanes[1] = _mm512_castpd_ps(_mm512_set1_pd(both));
}

/* The parts of an int8 block that a row sees, as bf16 in the scratch. */
ATTENTION_INLINE void block_widen(const struct attention_rows *rows,
                                  const struct attention_space *space, uint32_t first,
                                  struct block_span seen)
{
    const uint32_t padded = rows->padded_dim;
    for (uint32_t part = 0; part < BLOCK_PARTS; part++) {
        struct int8_part from;
        if (!int8_part_find(rows->task, first, seen, part, &from))
            continue;
        uint16_t *k = space->widened_k + (size_t)part * KV_BLOCK_TOKENS * padded;
        uint16_t *v = space->widened_v + (size_t)part * KV_BLOCK_TOKENS * padded;
        __m512 lanes[2];
        scales_of_k(from.k_scales, lanes);
        for (size_t at = 0; at < (size_t)padded * KV_BLOCK_TOKENS; at += 32)
            _mm512_storeu_ps(k + at, widen_pairs(from.k + at, lanes));
        for (size_t pair = 0; pair < KV_BLOCK_TOKENS / 2; pair++) {
            scales_of_v(from.v_scales + pair * 2, lanes);
            for (size_t at = pair * padded * 2; at < (pair + 1) * padded * 2; at += 32)
                _mm512_storeu_ps(v + at, widen_pairs(from.v + at, lanes));
        }
    }
}

#endif
