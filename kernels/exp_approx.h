/* The one exponential of the profile, scalar. exp_avx2.h repeats it operation by operation.
 *
 * exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2; exp(r) by 1 + r + r^2 p(r) with p of
 * degree 4, interpolated at Chebyshev nodes (relative error 1.1e-8 before rounding). Above 88 the
 * result is infinity, below -87 zero (no denormals); NaN stays NaN; exp_approx(0) is exactly 1. */
#ifndef BATON_KERNELS_EXP_APPROX_H
#define BATON_KERNELS_EXP_APPROX_H

#include <math.h>

#include "kernels/float_bits.h"

#define EXP_INVERSE_LN2 0x1.715476p+0f
#define EXP_LN2_HIGH    0x1.63p-1f
#define EXP_LN2_LOW     -0x1.bd0106p-13f
#define EXP_ROUND       0x1.8p23f /* adding it rounds to an integer, kept in the low bits */
#define EXP_P0          0x1.0p-1f
#define EXP_P1          0x1.5554dcp-3f
#define EXP_P2          0x1.55551ap-5f
#define EXP_P3          0x1.120ba2p-7f
#define EXP_P4          0x1.6d113cp-10f
#define EXP_HIGHEST     88.0f
#define EXP_LOWEST      -87.0f

static inline __attribute__((always_inline)) float exp_approx(float x)
{
    const float shifted = fmaf(x, EXP_INVERSE_LN2, EXP_ROUND);
    const float n = shifted - EXP_ROUND;
    float r = fmaf(n, -EXP_LN2_HIGH, x);
    r = fmaf(n, -EXP_LN2_LOW, r);
    float p = fmaf(EXP_P4, r, EXP_P3);
    p = fmaf(p, r, EXP_P2);
    p = fmaf(p, r, EXP_P1);
    p = fmaf(p, r, EXP_P0);
    p = fmaf(p, r * r, r);
    p = p + 1.0f;
    const float power = float_from_bits((float_bits(shifted) << 23) + 0x3f800000u);
    float result = p * power;
    result = x > EXP_HIGHEST ? INFINITY : result;
    return x < EXP_LOWEST ? 0.0f : result;
}

/* x * sigmoid(x) */
static inline __attribute__((always_inline)) float silu_approx(float x)
{
    return x / (1.0f + exp_approx(-x));
}

#endif
