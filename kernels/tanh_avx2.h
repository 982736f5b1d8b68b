/* tanh_approx.h on eight lanes, operation by operation. For files compiled with AVX2 only. */
#ifndef BATON_KERNELS_TANH_AVX2_H
#define BATON_KERNELS_TANH_AVX2_H

#include "kernels/lanes_avx2.h"
#include "kernels/tanh_approx.h"

AVX2_INLINE __m256 tanh_avx2(__m256 x)
{
    x = _mm256_min_ps(_mm256_set1_ps(TANH_HIGHEST), x); /* in this order a NaN stays */
    x = _mm256_max_ps(_mm256_set1_ps(-TANH_HIGHEST), x);
    const __m256 square = _mm256_mul_ps(x, x);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(TANH_P4), square, _mm256_set1_ps(TANH_P3));
    p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(TANH_P2));
    p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(TANH_P1));
    p = _mm256_fmadd_ps(p, square, _mm256_set1_ps(1.0f));
    __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(TANH_Q4), square, _mm256_set1_ps(TANH_Q3));
    q = _mm256_fmadd_ps(q, square, _mm256_set1_ps(TANH_Q2));
    q = _mm256_fmadd_ps(q, square, _mm256_set1_ps(TANH_Q1));
    q = _mm256_fmadd_ps(q, square, _mm256_set1_ps(1.0f));
    return _mm256_div_ps(_mm256_mul_ps(x, p), q);
}

AVX2_INLINE __m256 cap_avx2(__m256 score, float cap, float inverse)
{
    return _mm256_mul_ps(_mm256_set1_ps(cap),
                         tanh_avx2(_mm256_mul_ps(score, _mm256_set1_ps(inverse))));
}

#endif
