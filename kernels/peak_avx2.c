/* Peaks of AVX2 and FMA. */
#include <immintrin.h>

#include "kernels/peak_internal.h"

double peak_f32__avx2(uint64_t rounds)
{
    const __m256 x = _mm256_set1_ps(0.5f);
    const __m256 y = _mm256_set1_ps(1.25f);
#define CHAIN(i) __m256 sum##i = _mm256_set1_ps(i);
    PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    for (uint64_t round = 0; round < rounds; round++) {
#define CHAIN(i) sum##i = _mm256_fmadd_ps(sum##i, x, y);
        PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    }
    __m256 total = _mm256_setzero_ps();
#define CHAIN(i) total = _mm256_add_ps(total, sum##i);
    PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    return (double)_mm256_cvtss_f32(total);
}

/* Products of bytes, pairs to 16 bits, pairs of those to 32, then the sum: the cheapest way of four
 * products a lane without VNNI. */
double peak_int8__avx2(uint64_t rounds)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i w = _mm256_set1_epi8(3);
    __m256i x = _mm256_set1_epi8(5);
#define CHAIN(i) __m256i sum##i = _mm256_set1_epi32(i);
    PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    for (uint64_t round = 0; round < rounds; round++) {
        /* The products must be made again for every chain: x may have changed. */
#define CHAIN(i)                                                                                   \
    __asm__ volatile("" : "+x"(x));                                                                \
    sum##i = _mm256_add_epi32(sum##i, _mm256_madd_epi16(_mm256_maddubs_epi16(x, w), ones));
        PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    }
    __m256i total = _mm256_setzero_si256();
#define CHAIN(i) total = _mm256_add_epi32(total, sum##i);
    PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    return (double)_mm256_extract_epi32(total, 0);
}

uint64_t stream_read__avx2(const void *data, size_t bytes)
{
    const char *p = data;
    __m256i sum0 = _mm256_setzero_si256();
    __m256i sum1 = sum0;
    __m256i sum2 = sum0;
    __m256i sum3 = sum0;
    for (size_t at = 0; at < bytes; at += 4 * sizeof(__m256i)) {
        const __m256i *lines = (const __m256i *)(const void *)(p + at);
        _mm_prefetch(p + at + STREAM_PREFETCH_BYTES, _MM_HINT_T0);
        _mm_prefetch(p + at + STREAM_PREFETCH_BYTES + 64, _MM_HINT_T0);
        sum0 = _mm256_add_epi64(sum0, _mm256_load_si256(lines));
        sum1 = _mm256_add_epi64(sum1, _mm256_load_si256(lines + 1));
        sum2 = _mm256_add_epi64(sum2, _mm256_load_si256(lines + 2));
        sum3 = _mm256_add_epi64(sum3, _mm256_load_si256(lines + 3));
    }
    sum0 = _mm256_add_epi64(_mm256_add_epi64(sum0, sum1), _mm256_add_epi64(sum2, sum3));
    return (uint64_t)_mm256_extract_epi64(sum0, 0) + (uint64_t)_mm256_extract_epi64(sum0, 3);
}
