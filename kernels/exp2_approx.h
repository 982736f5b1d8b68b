/* The exponential of attention over bf16 pages, to base 2, scalar; the variants repeat it operation
 * by operation.
 *
 * 2^x = 2^n * 2^r, n = round(x), |r| <= 1/2; 2^r by a polynomial of degree 4 that is 1 at 0
 * (relative error 2.8e-6, far below the rounding of the weights to bf16). Below -125 the result is
 * zero (no denormals); NaN stays NaN; 2^0 is exactly 1. x is at most 0. */
#ifndef BATON_KERNELS_EXP2_APPROX_H
#define BATON_KERNELS_EXP2_APPROX_H

#include <math.h>

#include "kernels/float_bits.h"

#define EXP2_LOG2E  0x1.715476p+0f
#define EXP2_ROUND  0x1.8p23f /* adding it rounds to an integer, kept in the low bits */
#define EXP2_P1     0x1.62e12cp-1f
#define EXP2_P2     0x1.ec0378p-3f
#define EXP2_P3     0x1.c9fc46p-5f
#define EXP2_P4     0x1.3a02ccp-7f
#define EXP2_LOWEST -125.0f

static inline __attribute__((always_inline)) float exp2_approx(float x)
{
    const float shifted = x + EXP2_ROUND;
    const float r = x - (shifted - EXP2_ROUND);
    float p = fmaf(EXP2_P4, r, EXP2_P3);
    p = fmaf(p, r, EXP2_P2);
    p = fmaf(p, r, EXP2_P1);
    p = fmaf(p, r, 1.0f);
    const float power = float_from_bits((float_bits(shifted) << 23) + 0x3f800000u);
    const float result = p * power;
    return x < EXP2_LOWEST ? 0.0f : result;
}

#endif
