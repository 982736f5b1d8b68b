/* Activations to int8, a scale for every span of 32: scale = amax / 127, q = round(x * (127 /
 * amax)), ties to even. |x| <= amax keeps |q| <= 127 without a clamp. */
#include "kernels/quantize_i8.h"

#include <math.h>

#include "kernels/float_bits.h"
#include "kernels/kernels.h"
#include "kernels/weight_panel.h"

/* Groups that share a scale. */
static void quantize_span(const float *x, uint32_t groups, struct quantized_group *out)
{
    /* Magnitudes order like their bits, with infinity and then every NaN on top. */
    uint32_t amax_bits = 0;
    for (uint32_t i = 0; i < groups * WEIGHT_GROUP; i++) {
        const uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
        amax_bits = bits > amax_bits ? bits : amax_bits;
    }
    const float amax = float_from_bits(amax_bits);
    const bool finite = amax_bits < FLOAT_INFINITY_BITS;
    const bool zero = amax_bits < QUANTIZE_SMALLEST_BITS;
    const float inverse = QUANTIZE_LEVELS / amax;
    int32_t sum = 0;
    for (uint32_t g = 0; g < groups; g++, x += WEIGHT_GROUP) {
        out[g] = (struct quantized_group){0};
        for (uint32_t i = 0; i < WEIGHT_GROUP; i++) {
            out[g].q[i] = finite && !zero ? (int8_t)float_round_to_int(x[i] * inverse) : 0;
            sum += out[g].q[i];
        }
    }
    out->scale = zero ? 0.0f : finite ? amax / QUANTIZE_LEVELS : NAN;
    out->scaled_sum = out->scale * (float)sum;
    out->start = -PANEL_Q8_BIAS * sum;
}

void quantize_i8__ref(const struct quantize_task *task)
{
    const uint32_t groups = task->k / WEIGHT_GROUP, span = span_of(task->span);
    for (size_t row = 0; row < task->rows; row++)
        for (uint32_t group = 0; group < groups; group += span)
            quantize_span(task->x + row * task->k + (size_t)group * WEIGHT_GROUP,
                          span_groups(span, groups - group),
                          task->out + row * task->out_stride + group);
}
