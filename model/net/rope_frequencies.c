/* Frequencies of the rotation and the ways to stretch them over a longer context: linear (all are
 * divided), llama3 (slow ones are divided, fast ones kept, a ramp between), YaRN (the ramp over
 * dims, and a factor on the result; Peng et al. 2023). Rounded to float32 at the same places as the
 * public reference does. */
#include <math.h>

#include "model/net/net_config_internal.h"

static const double two_pi = 6.283185307179586;

static float scale_llama3(const struct rope_config *rope, float inverse)
{
    const double length = two_pi / (double)inverse;
    const double original = (double)rope->original_context;
    if (length < original / (double)rope->high)
        return inverse;
    if (length > original / (double)rope->low)
        return inverse / rope->factor;
    const double smooth =
        (original / length - (double)rope->low) / ((double)rope->high - (double)rope->low);
    return (float)((1.0 - smooth) * (double)inverse / (double)rope->factor +
                   smooth * (double)inverse);
}

/* The dim that makes so many turns in the original context. */
static double yarn_dim(const struct rope_config *rope, uint32_t rotary, float turns)
{
    return rotary * log((double)rope->original_context / ((double)turns * two_pi)) /
           (2.0 * log((double)rope->base));
}

static void scale_yarn(const struct rope_config *rope, uint32_t rotary, float *out)
{
    double low = yarn_dim(rope, rotary, rope->fast), high = yarn_dim(rope, rotary, rope->slow);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, rotary - 1.0);
    if (low == high)
        high += 0.001;
    for (uint32_t i = 0; i < rotary / 2; i++) {
        const double ramp = fmin(fmax((i - low) / (high - low), 0.0), 1.0);
        out[i] =
            (float)((double)out[i] / (double)rope->factor * ramp + (double)out[i] * (1.0 - ramp));
    }
}

float rope_yarn_magnitude(float factor)
{
    return factor <= 1.0f ? 1.0f : (float)(0.1 * log((double)factor) + 1.0);
}

void rope_frequencies(const struct rope_config *rope, uint32_t rotary, float *out,
                      float *magnitude_out)
{
    for (uint32_t i = 0; i < rotary / 2; i++) {
        const float exponent = (float)(2 * i) / (float)rotary;
        const float power = (float)pow((double)rope->base, (double)exponent);
        out[i] = 1.0f / power;
        if (rope->scaling == SCALING_LINEAR)
            out[i] /= rope->factor;
        else if (rope->scaling == SCALING_LLAMA3)
            out[i] = scale_llama3(rope, out[i]);
    }
    *magnitude_out = 1.0f;
    if (rope->scaling != SCALING_YARN)
        return;
    scale_yarn(rope, rotary, out);
    *magnitude_out =
        rope->attention_factor != 0.0f ? rope->attention_factor : rope_yarn_magnitude(rope->factor);
}
