/* The canonical forms of the types with two levels of scales: groups of 32 int8 values with a float
 * scale.
 *
 * Q4_K, Q5_K and the IQ4 types have such groups. Q3_K has a scale for 16 values, but scale times
 * value is a small integer: all of a super-block is int8 with one scale, with its sign turned,
 * because the integers reach from -124 to 128. Q2_K has minimums for 16 values and the products of
 * Q6_K are too large, so those two are rounded to int8 anew: an error of 1/254 of a group's largest
 * magnitude, where their own steps are at best 1/63 of it. */
#include <math.h>

#include "base/bytes.h"
#include "model/format/quant_internal.h"
#include "model/format/quant_types.h"

enum { SUPER = 256, GROUP = 32, GROUPS = SUPER / GROUP };

void q3_k_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks)
{
    const uint8_t *in = blocks_data;
    (void)offset;
    for (size_t b = 0; b < blocks; b++, in += 110) {
        const uint8_t *values = in + 32;
        for (size_t group = 0; group < GROUPS; group++)
            *scale++ = -half_to_float(load_le16(in + 108));
        for (size_t i = 0; i < SUPER; i++) {
            const unsigned shift = (unsigned)(i % 128 / 32 * 2);
            const int low = values[i / 128 * 32 + i % 32] >> shift & 3;
            const int high = in[i % 32] >> (i / 32) & 1;
            *q++ = (int8_t)(-q3_k_scale(in + 96, i / 16) * (low - (high ? 0 : 4)));
        }
    }
}

/* Q4_K, and Q5_K where there are high bits. */
static void k4_split(const uint8_t *in, const uint8_t *high, const uint8_t *nibbles, int8_t *q,
                     float *scale, float *offset)
{
    const float d = half_to_float(load_le16(in));
    const float dmin = half_to_float(load_le16(in + 2));
    for (size_t group = 0; group < GROUPS; group++) {
        int scale_q, minimum_q;
        k4_scale_minimum(in + 4, group, &scale_q, &minimum_q);
        scale[group] = d * (float)scale_q;
        offset[group] = -(dmin * (float)minimum_q);
        const uint8_t *values = nibbles + group / 2 * GROUP;
        for (size_t i = 0; i < GROUP; i++) {
            const int low = group % 2 ? values[i] >> 4 : values[i] & 15;
            const int bit = high == NULL ? 0 : high[i] >> group & 1;
            q[group * GROUP + i] = (int8_t)(low | bit << 4);
        }
    }
}

void q4_k_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks)
{
    const uint8_t *in = blocks_data;
    for (size_t b = 0; b < blocks; b++, in += 144)
        k4_split(in, NULL, in + 16, q + b * SUPER, scale + b * GROUPS, offset + b * GROUPS);
}

void q5_k_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks)
{
    const uint8_t *in = blocks_data;
    for (size_t b = 0; b < blocks; b++, in += 176)
        k4_split(in, in + 16, in + 48, q + b * SUPER, scale + b * GROUPS, offset + b * GROUPS);
}

static void iq4_levels_of(const uint8_t *packed, int8_t *q)
{
    for (size_t i = 0; i < GROUP / 2; i++) {
        q[i] = iq4_levels[packed[i] & 15];
        q[i + GROUP / 2] = iq4_levels[packed[i] >> 4];
    }
}

void iq4_nl_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks)
{
    const uint8_t *in = blocks_data;
    (void)offset;
    for (size_t b = 0; b < blocks; b++, in += 18) {
        scale[b] = half_to_float(load_le16(in));
        iq4_levels_of(in + 2, q + b * GROUP);
    }
}

void iq4_xs_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks)
{
    const uint8_t *in = blocks_data;
    (void)offset;
    for (size_t b = 0; b < blocks; b++, in += 136) {
        const float d = half_to_float(load_le16(in));
        const uint16_t high_pairs = load_le16(in + 2);
        for (size_t group = 0; group < GROUPS; group++) {
            const int low = in[4 + group / 2] >> (group % 2 * 4) & 15;
            const int high = high_pairs >> (2 * group) & 3;
            *scale++ = d * (float)((low | high << 4) - 32);
            iq4_levels_of(in + 8 + group * 16, q);
            q += GROUP;
        }
    }
}

void quant_int8_group(const float *values, int8_t *q, float *scale)
{
    float largest = 0.0f;
    for (size_t i = 0; i < GROUP; i++)
        largest = fmaxf(largest, fabsf(values[i]));
    *scale = largest / 127.0f;
    const float inverse = *scale > 0.0f ? 1.0f / *scale : 0.0f;
    for (size_t i = 0; i < GROUP; i++) {
        const float steps = rintf(values[i] * inverse);
        /* A value that is not a number has no integer; its scale tells. */
        q[i] = steps >= -127.0f && steps <= 127.0f ? (int8_t)steps : 0;
        *scale = isfinite(values[i]) ? *scale : NAN;
    }
}

static void split_anew(const uint8_t *in, size_t block_bytes,
                       void (*dequantize)(const void *, float *, size_t), int8_t *q, float *scale,
                       size_t blocks)
{
    float values[SUPER];
    for (size_t b = 0; b < blocks; b++) {
        dequantize(in + b * block_bytes, values, 1);
        for (size_t group = 0; group < GROUPS; group++, q += GROUP)
            quant_int8_group(values + group * GROUP, q, scale++);
    }
}

void q2_k_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks)
{
    (void)offset;
    split_anew(blocks_data, 84, q2_k_dequantize, q, scale, blocks);
}

void q6_k_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks)
{
    (void)offset;
    split_anew(blocks_data, 210, q6_k_dequantize, q, scale, blocks);
}
