/* The tanh form of GELU, scalar; gelu_avx2.c repeats it operation by operation.
 *
 * x * (1 + tanh(u)) / 2 with u = sqrt(2 / pi) * (x + 0.044715 x^3) is x / (1 + exp(-2 u)), which
 * is exactly zero far below zero, where the sum of one and a hyperbolic tangent is not. */
#ifndef BATON_KERNELS_GELU_APPROX_H
#define BATON_KERNELS_GELU_APPROX_H

#include <math.h>

#include "kernels/exp_approx.h"

#define GELU_CUBE  0x1.6e4e26p-5f  /* 0.044715 */
#define GELU_SCALE -0x1.988454p+0f /* -2 * sqrt(2 / pi) */

static inline __attribute__((always_inline)) float gelu_approx(float x)
{
    const float cubic = fmaf(GELU_CUBE * x * x, x, x);
    return x / (1.0f + exp_approx(cubic * GELU_SCALE));
}

#endif
