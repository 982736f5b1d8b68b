/* Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0: 32 values share a half-float scale, some also an offset.
 *
 * Every one of them is read in two moves: `*_split` gives the canonical form (integers, scale,
 * offset) that products are computed on, and dequantising is nothing but scale * q + offset of that
 * form, so that the two can never disagree. */
#include <math.h>

#include "base/bytes.h"
#include "model/format/quant_internal.h"
#include "model/format/quant_types.h"

enum { GROUP = WEIGHT_GROUP };

/* Byte i holds value i in its low half and value i + 16 in its high half. Bytes may alias anything:
 * without `restrict` they go one by one. */
static void unpack_nibbles(const uint8_t *restrict packed, int8_t *restrict q, int bias)
{
    for (size_t i = 0; i < GROUP / 2; i++) {
        q[i] = (int8_t)((packed[i] & 15) - bias);
        q[i + GROUP / 2] = (int8_t)((packed[i] >> 4) - bias);
    }
}

/* The same with bit i of `high` as bit 4 of value i. */
static void unpack_fives(const uint8_t *restrict packed, uint32_t high, int8_t *restrict q,
                         int bias)
{
    for (size_t i = 0; i < GROUP / 2; i++) {
        const int low_value = (packed[i] & 15) | (int)((high >> i & 1u) << 4);
        const int high_value = (packed[i] >> 4) | (int)((high >> (i + 16) & 1u) << 4);
        q[i] = (int8_t)(low_value - bias);
        q[i + GROUP / 2] = (int8_t)(high_value - bias);
    }
}

void q4_0_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks)
{
    const uint8_t *in = blocks_data; // half scale, 16 bytes of nibbles
    for (size_t b = 0; b < blocks; b++, in += 18) {
        scale[b] = half_to_float(load_le16(in));
        unpack_nibbles(in + 2, q + b * GROUP, 8);
    }
}

void q4_1_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks)
{
    const uint8_t *in = blocks_data; // half scale, half offset, 16 bytes of nibbles
    for (size_t b = 0; b < blocks; b++, in += 20) {
        scale[b] = half_to_float(load_le16(in));
        offset[b] = half_to_float(load_le16(in + 2));
        unpack_nibbles(in + 4, q + b * GROUP, 0);
    }
}

void q5_0_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks)
{
    const uint8_t *in = blocks_data; // half scale, 32 high bits, 16 bytes of nibbles
    for (size_t b = 0; b < blocks; b++, in += 22) {
        scale[b] = half_to_float(load_le16(in));
        unpack_fives(in + 6, load_le32(in + 2), q + b * GROUP, 16);
    }
}

void q5_1_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks)
{
    const uint8_t *in = blocks_data; // half scale, half offset, 32 high bits, 16 bytes of nibbles
    for (size_t b = 0; b < blocks; b++, in += 24) {
        scale[b] = half_to_float(load_le16(in));
        offset[b] = half_to_float(load_le16(in + 2));
        unpack_fives(in + 8, load_le32(in + 4), q + b * GROUP, 0);
    }
}

void q8_0_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks)
{
    const uint8_t *in = blocks_data; // half scale, 32 signed bytes
    for (size_t b = 0; b < blocks; b++, in += 34) {
        scale[b] = half_to_float(load_le16(in));
        memcpy(q + b * GROUP, in + 2, GROUP);
    }
}

typedef void (*split_function)(const void *, int8_t *, float *, float *, size_t);

static void dequantize_symmetric(split_function split, size_t block_bytes, const void *blocks_data,
                                 float *out, size_t blocks)
{
    const uint8_t *in = blocks_data;
    for (size_t b = 0; b < blocks; b++) {
        int8_t q[GROUP];
        float scale;
        split(in + b * block_bytes, q, &scale, NULL, 1);
        for (size_t i = 0; i < GROUP; i++)
            out[b * GROUP + i] = scale * (float)q[i];
    }
}

static void dequantize_affine(split_function split, size_t block_bytes, const void *blocks_data,
                              float *out, size_t blocks)
{
    const uint8_t *in = blocks_data;
    for (size_t b = 0; b < blocks; b++) {
        int8_t q[GROUP];
        float scale;
        float offset;
        split(in + b * block_bytes, q, &scale, &offset, 1);
        for (size_t i = 0; i < GROUP; i++)
            out[b * GROUP + i] = scale * (float)q[i] + offset;
    }
}

void q4_0_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    dequantize_symmetric(q4_0_split, 18, blocks_data, out, blocks);
}

void q4_1_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    dequantize_affine(q4_1_split, 20, blocks_data, out, blocks);
}

void q5_0_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    dequantize_symmetric(q5_0_split, 22, blocks_data, out, blocks);
}

void q5_1_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    dequantize_affine(q5_1_split, 24, blocks_data, out, blocks);
}

void q8_0_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    dequantize_symmetric(q8_0_split, 34, blocks_data, out, blocks);
}

/* Nearest integer within [low, high], halves away from zero; a NaN gives low. */
static int round_within(float value, int low, int high)
{
    if (!(value > (float)low))
        return low;
    if (value > (float)high)
        return high;
    return (int)roundf(value);
}

static void pack_nibbles(const int *q, uint8_t *packed)
{
    for (size_t i = 0; i < GROUP / 2; i++)
        packed[i] = (uint8_t)(q[i] | q[i + GROUP / 2] << 4);
}

/* The value of largest magnitude, with its sign. */
static float signed_maximum(const float *values)
{
    float best = 0.0f;
    for (size_t i = 0; i < GROUP; i++)
        if (fabsf(values[i]) > fabsf(best))
            best = values[i];
    return best;
}

void q8_0_quantize(const float *values, void *blocks_out, size_t blocks)
{
    uint8_t *out = blocks_out;
    for (size_t b = 0; b < blocks; b++, out += 34, values += GROUP) {
        const float scale = fabsf(signed_maximum(values)) / 127.0f;
        const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        store_le16(out, float_to_half(scale));
        for (size_t i = 0; i < GROUP; i++)
            out[2 + i] = (uint8_t)round_within(values[i] * inverse, -127, 127);
    }
}

/* The extreme value becomes -8, the end of the range that has one value more. */
void q4_0_quantize(const float *values, void *blocks_out, size_t blocks)
{
    uint8_t *out = blocks_out;
    for (size_t b = 0; b < blocks; b++, out += 18, values += GROUP) {
        const float scale = signed_maximum(values) / -8.0f;
        const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
        int q[GROUP];
        for (size_t i = 0; i < GROUP; i++)
            q[i] = round_within(values[i] * inverse, -8, 7) + 8;
        store_le16(out, float_to_half(scale));
        pack_nibbles(q, out + 2);
    }
}

void q4_1_quantize(const float *values, void *blocks_out, size_t blocks)
{
    uint8_t *out = blocks_out;
    for (size_t b = 0; b < blocks; b++, out += 20, values += GROUP) {
        float low = values[0];
        float high = values[0];
        for (size_t i = 1; i < GROUP; i++) {
            low = fminf(low, values[i]);
            high = fmaxf(high, values[i]);
        }
        const float scale = (high - low) / 15.0f;
        const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        int q[GROUP];
        for (size_t i = 0; i < GROUP; i++)
            q[i] = round_within((values[i] - low) * inverse, 0, 15);
        store_le16(out, float_to_half(scale));
        store_le16(out + 2, float_to_half(low));
        pack_nibbles(q, out + 4);
    }
}
