/* Peaks of AVX-512 F and VNNI. */
#include <immintrin.h>

#include "kernels/lanes_avx512.h"
#include "kernels/peak_internal.h"

double peak_f32__avx512(uint64_t rounds)
{
    const __m512 x = _mm512_set1_ps(0.5f);
    const __m512 y = _mm512_set1_ps(1.25f);
#define CHAIN(i) __m512 sum##i = _mm512_set1_ps(i);
    PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    for (uint64_t round = 0; round < rounds; round++) {
#define CHAIN(i) sum##i = _mm512_fmadd_ps(sum##i, x, y);
        PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    }
    __m512 total = _mm512_setzero_ps();
#define CHAIN(i) total = _mm512_add_ps(total, sum##i);
    PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    return (double)_mm512_reduce_add_ps(total);
}

double peak_int8__avx512vnni(uint64_t rounds)
{
    const __m512i x = _mm512_set1_epi8(5);
    const __m512i w = _mm512_set1_epi8(3);
#define CHAIN(i) __m512i sum##i = _mm512_set1_epi32(i);
    PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    for (uint64_t round = 0; round < rounds; round++) {
#define CHAIN(i) sum##i = _mm512_dpbusd_epi32(sum##i, x, w);
        PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    }
    __m512i total = _mm512_setzero_si512();
#define CHAIN(i) total = _mm512_add_epi32(total, sum##i);
    PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    return (double)_mm512_reduce_add_epi32(total);
}

/* The compiler does not see that a register holds what it held before. */
#define CHANGE(value) __asm__ volatile("" : "+v"(value))

/* A tile of matmul_i8_avx512vnni.c with nothing to load and nowhere to go. */
AVX512_INLINE double peak_groups(uint64_t rounds, const bool offsets)
{
    __m512i w = _mm512_set1_epi8(3), x = _mm512_set1_epi8(2);
    __m512 scale = _mm512_set1_ps(0.5f), offset = scale, x_scale = scale;
    __m512 sums[PEAK_CHAINS];
    UNROLL for (uint32_t i = 0; i < PEAK_CHAINS; i++) sums[i] = _mm512_setzero_ps();
    for (uint64_t round = 0; round < rounds; round++) {
        __m512i dots[PEAK_CHAINS];
        UNROLL for (uint32_t i = 0; i < PEAK_CHAINS; i++)
        {
            dots[i] = _mm512_setzero_si512();
            CHANGE(dots[i]);
        }
        UNROLL for (uint32_t step = 0; step < PEAK_GROUP_STEPS; step++)
            UNROLL for (uint32_t i = 0; i < PEAK_CHAINS; i++) DOT_BYTES(dots[i], w, x);
        UNROLL for (uint32_t i = 0; i < PEAK_CHAINS; i++)
        {
            CHANGE(x_scale);
            sums[i] = _mm512_fmadd_ps(_mm512_mul_ps(scale, x_scale), _mm512_cvtepi32_ps(dots[i]),
                                      sums[i]);
            if (offsets)
                sums[i] = _mm512_fmadd_ps(offset, x_scale, sums[i]);
        }
    }
    __m512 total = _mm512_setzero_ps();
    UNROLL for (uint32_t i = 0; i < PEAK_CHAINS; i++) total = _mm512_add_ps(total, sums[i]);
    return (double)_mm512_reduce_add_ps(total);
}

double peak_int8_groups__avx512vnni(uint64_t rounds)
{
    return peak_groups(rounds, false);
}

double peak_int8_offsets__avx512vnni(uint64_t rounds)
{
    return peak_groups(rounds, true);
}

uint64_t stream_read__avx512(const void *data, size_t bytes)
{
    const char *p = data;
    __m512i sum0 = _mm512_setzero_si512();
    __m512i sum1 = sum0;
    __m512i sum2 = sum0;
    __m512i sum3 = sum0;
    for (size_t at = 0; at < bytes; at += 4 * sizeof(__m512i)) {
        const char *line = p + at;
        for (size_t ahead = 0; ahead < 4 * sizeof(__m512i); ahead += sizeof(__m512i))
            _mm_prefetch(line + STREAM_PREFETCH_BYTES + ahead, _MM_HINT_T0);
        sum0 = _mm512_add_epi64(sum0, _mm512_load_si512(line));
        sum1 = _mm512_add_epi64(sum1, _mm512_load_si512(line + sizeof(__m512i)));
        sum2 = _mm512_add_epi64(sum2, _mm512_load_si512(line + 2 * sizeof(__m512i)));
        sum3 = _mm512_add_epi64(sum3, _mm512_load_si512(line + 3 * sizeof(__m512i)));
    }
    sum0 = _mm512_add_epi64(_mm512_add_epi64(sum0, sum1), _mm512_add_epi64(sum2, sum3));
    return (uint64_t)_mm512_reduce_add_epi64(sum0);
}
