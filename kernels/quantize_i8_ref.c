/* Activations to int8, a scale for every 32: scale = amax / 127, q = round(x * (127 / amax)), ties
 * to even. |x| <= amax keeps |q| <= 127 without a clamp. */
#include "kernels/quantize_i8.h"

#include <math.h>

#include "kernels/float_bits.h"
#include "kernels/kernels.h"
#include "kernels/weight_panel.h"

static void quantize_group(const float *x, struct quantized_group *out)
{
    /* Magnitudes order like their bits, with infinity and then every NaN on top. */
    uint32_t amax_bits = 0;
    for (uint32_t i = 0; i < WEIGHT_GROUP; i++) {
        const uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
        amax_bits = bits > amax_bits ? bits : amax_bits;
    }
    const float amax = float_from_bits(amax_bits);
    const bool finite = amax_bits < FLOAT_INFINITY_BITS;
    const bool zero = amax_bits < QUANTIZE_SMALLEST_BITS;
    const float inverse = QUANTIZE_LEVELS / amax;
    int32_t sum = 0;
    for (uint32_t i = 0; i < WEIGHT_GROUP; i++) {
        out->q[i] = finite && !zero ? (int8_t)float_round_to_int(x[i] * inverse) : 0;
        sum += out->q[i];
    }
    out->scale = zero ? 0.0f : finite ? amax / QUANTIZE_LEVELS : NAN;
    out->scaled_sum = out->scale * (float)sum;
    out->start = -PANEL_Q8_BIAS * sum;
    out->unused = 0;
}

void quantize_i8__ref(const struct quantize_task *task)
{
    const size_t groups = task->k / WEIGHT_GROUP;
    for (size_t row = 0; row < task->rows; row++)
        for (size_t group = 0; group < groups; group++)
            quantize_group(task->x + row * task->k + group * WEIGHT_GROUP,
                           task->out + row * task->out_stride + group);
}
