/* Peak of AVX-512 BF16. */
#include <immintrin.h>

#include "kernels/peak_internal.h"

double peak_bf16__avx512bf16(uint64_t rounds)
{
    const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
    const __m512bh w = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.5f), _mm512_set1_ps(0.75f));
#define CHAIN(i) __m512 sum##i = _mm512_set1_ps(i);
    PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    for (uint64_t round = 0; round < rounds; round++) {
#define CHAIN(i) sum##i = _mm512_dpbf16_ps(sum##i, x, w);
        PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    }
    __m512 total = _mm512_setzero_ps();
#define CHAIN(i) total = _mm512_add_ps(total, sum##i);
    PEAK_EACH_CHAIN(CHAIN)
#undef CHAIN
    return (double)_mm512_reduce_add_ps(total);
}
