/* The soft cap of attention scores, scalar; the variants repeat it operation by operation.
 *
 * cap(score) = c * tanh(score * (1 / c)); tanh(x) = x * P(x^2) / Q(x^2) with x held to [-9, 9], P
 * and Q of degree 4 by fma, fitted to the least relative error (3e-7 after rounding). Past 9 it is
 * 1 within that error; NaN stays NaN; 0 gives 0. */
#ifndef BATON_KERNELS_TANH_APPROX_H
#define BATON_KERNELS_TANH_APPROX_H

#include <math.h>

#define TANH_HIGHEST 9.0f
#define TANH_P1      0x1.120b2ep-3f
#define TANH_P2      0x1.ca2cf8p-9f
#define TANH_P3      0x1.59c44cp-16f
#define TANH_P4      0x1.cadf3cp-27f
#define TANH_Q1      0x1.de5ae0p-2f
#define TANH_Q2      0x1.a7f82cp-6f
#define TANH_Q3      0x1.5886b8p-12f
#define TANH_Q4      0x1.a181d8p-21f

static inline __attribute__((always_inline)) float tanh_approx(float x)
{
    x = x > TANH_HIGHEST ? TANH_HIGHEST : x;
    x = x < -TANH_HIGHEST ? -TANH_HIGHEST : x;
    const float square = x * x;
    float p = fmaf(TANH_P4, square, TANH_P3);
    p = fmaf(p, square, TANH_P2);
    p = fmaf(p, square, TANH_P1);
    p = fmaf(p, square, 1.0f);
    float q = fmaf(TANH_Q4, square, TANH_Q3);
    q = fmaf(q, square, TANH_Q2);
    q = fmaf(q, square, TANH_Q1);
    q = fmaf(q, square, 1.0f);
    return x * p / q;
}

#endif
