/* exp_approx.h in eight lanes, operation by operation. */
#ifndef BATON_KERNELS_EXP_AVX2_H
#define BATON_KERNELS_EXP_AVX2_H

#include <immintrin.h>

#include "kernels/exp_approx.h"

static inline __attribute__((always_inline)) __m256 exp_avx2(__m256 x)
{
    const __m256 shifted =
        _mm256_fmadd_ps(x, _mm256_set1_ps(EXP_INVERSE_LN2), _mm256_set1_ps(EXP_ROUND));
    const __m256 n = _mm256_sub_ps(shifted, _mm256_set1_ps(EXP_ROUND));
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_HIGH), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-EXP_LN2_LOW), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(EXP_P4), r, _mm256_set1_ps(EXP_P3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_P0));
    p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
    const __m256i power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(shifted), 23),
                                           _mm256_set1_epi32(0x3f800000));
    __m256 result = _mm256_mul_ps(p, _mm256_castsi256_ps(power));
    const __m256 above = _mm256_cmp_ps(x, _mm256_set1_ps(EXP_HIGHEST), _CMP_GT_OQ);
    const __m256 below = _mm256_cmp_ps(x, _mm256_set1_ps(EXP_LOWEST), _CMP_LT_OQ);
    result = _mm256_blendv_ps(result, _mm256_set1_ps(INFINITY), above);
    return _mm256_andnot_ps(below, result);
}

#endif
