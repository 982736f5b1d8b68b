/* Peaks of AVX-512 F and VNNI. */
#include <immintrin.h>

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
