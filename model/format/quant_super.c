/* The types with two levels of scales (Q2_K … Q6_K, IQ4_XS) and IQ4_NL: dequantised only.
 *
 * A super-block holds 256 values. Its half-float scales multiply small integer scales, one a group
 * of 16 or 32 values; `d` is the super scale and `dmin` that of the subtracted minimums. */
#include "base/bytes.h"
#include "model/format/quant_internal.h"
#include "model/format/quant_types.h"

enum { SUPER = 256 };

/* 84 bytes: 16 bytes {scale:4, minimum:4}, 64 bytes of 2-bit values, d, dmin. Value bytes come in
 * halves of 32; bits 2j..2j+1 of a half are its values 32j..32j+31. */
void q2_k_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    const uint8_t *in = blocks_data;
    for (size_t b = 0; b < blocks; b++, in += 84) {
        const uint8_t *values = in + 16;
        const float d = half_to_float(load_le16(in + 80));
        const float dmin = half_to_float(load_le16(in + 82));
        for (size_t i = 0; i < SUPER; i++) {
            const uint8_t group = in[i / 16];
            const size_t half = i / 128;
            const unsigned shift = (unsigned)(i % 128 / 32 * 2);
            const int q = values[half * 32 + i % 32] >> shift & 3;
            const float scale = d * (float)(group & 15);
            const float minimum = dmin * (float)(group >> 4);
            *out++ = scale * (float)q - minimum;
        }
    }
}

/* The sixteen 6-bit scales of Q3_K: low four bits in the nibbles of bytes 0-7, high two in bytes
 * 8-11; stored with 32 added. */
int q3_k_scale(const uint8_t *scales, size_t group)
{
    const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
    const int high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

/* 110 bytes: 32 bytes of high bits, 64 bytes of 2-bit values, 12 bytes of scales, d. A high bit
 * that is not set takes 4 off. */
void q3_k_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    const uint8_t *in = blocks_data;
    for (size_t b = 0; b < blocks; b++, in += 110) {
        const uint8_t *values = in + 32;
        const float d = half_to_float(load_le16(in + 108));
        for (size_t i = 0; i < SUPER; i++) {
            const unsigned shift = (unsigned)(i % 128 / 32 * 2);
            const int low = values[i / 128 * 32 + i % 32] >> shift & 3;
            const int high = in[i % 32] >> (i / 32) & 1;
            const float scale = d * (float)q3_k_scale(in + 96, i / 16);
            *out++ = scale * (float)(low - (high ? 0 : 4));
        }
    }
}

/* The eight 6-bit scales and minimums that Q4_K and Q5_K share, in 12 bytes. */
void k4_scale_minimum(const uint8_t *packed, size_t group, int *scale_out, int *minimum_out)
{
    if (group < 4) {
        *scale_out = packed[group] & 63;
        *minimum_out = packed[group + 4] & 63;
    } else {
        *scale_out = (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
        *minimum_out = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
    }
}

/* 144 bytes: d, dmin, 12 bytes of scales, 128 bytes of nibbles. 32 bytes hold two groups: the low
 * halves, then the high ones. */
void q4_k_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    const uint8_t *in = blocks_data;
    for (size_t b = 0; b < blocks; b++, in += 144) {
        const float d = half_to_float(load_le16(in));
        const float dmin = half_to_float(load_le16(in + 2));
        for (size_t group = 0; group < 8; group++) {
            int scale_q;
            int minimum_q;
            k4_scale_minimum(in + 4, group, &scale_q, &minimum_q);
            const float scale = d * (float)scale_q;
            const float minimum = dmin * (float)minimum_q;
            const uint8_t *values = in + 16 + group / 2 * 32;
            for (size_t i = 0; i < 32; i++) {
                const int q = group % 2 ? values[i] >> 4 : values[i] & 15;
                *out++ = scale * (float)q - minimum;
            }
        }
    }
}

/* 176 bytes: d, dmin, 12 bytes of scales, 32 bytes of high bits (bit g for group g), 128 bytes of
 * nibbles as in Q4_K. */
void q5_k_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    const uint8_t *in = blocks_data;
    for (size_t b = 0; b < blocks; b++, in += 176) {
        const float d = half_to_float(load_le16(in));
        const float dmin = half_to_float(load_le16(in + 2));
        for (size_t group = 0; group < 8; group++) {
            int scale_q;
            int minimum_q;
            k4_scale_minimum(in + 4, group, &scale_q, &minimum_q);
            const float scale = d * (float)scale_q;
            const float minimum = dmin * (float)minimum_q;
            const uint8_t *values = in + 48 + group / 2 * 32;
            for (size_t i = 0; i < 32; i++) {
                const int low = group % 2 ? values[i] >> 4 : values[i] & 15;
                const int high = in[16 + i] >> group & 1;
                *out++ = scale * (float)(low | high << 4) - minimum;
            }
        }
    }
}

/* 210 bytes: 128 bytes of low nibbles, 64 bytes of high pairs, 16 signed scales, d. Each half of
 * 128 values has 64 low bytes (their low, then their high nibbles) and 32 high bytes (four pairs).
 */
void q6_k_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    const uint8_t *in = blocks_data;
    for (size_t b = 0; b < blocks; b++, in += 210) {
        const float d = half_to_float(load_le16(in + 208));
        for (size_t i = 0; i < SUPER; i++) {
            const size_t half = i / 128;
            const size_t within = i % 128;
            const uint8_t low_byte = in[half * 64 + within % 64];
            const int low = within < 64 ? low_byte & 15 : low_byte >> 4;
            const int high = in[128 + half * 32 + within % 32] >> (within / 32 * 2) & 3;
            const float scale = d * (float)(int8_t)in[192 + i / 16];
            *out++ = scale * (float)((low | high << 4) - 32);
        }
    }
}

/* The sixteen levels of the IQ4 types, denser around zero. */
const int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};

static float *iq4_group(const uint8_t *packed, float scale, float *out)
{
    for (size_t i = 0; i < 16; i++) {
        out[i] = scale * (float)iq4_levels[packed[i] & 15];
        out[i + 16] = scale * (float)iq4_levels[packed[i] >> 4];
    }
    return out + 32;
}

/* 18 bytes: d, 16 bytes of nibbles. */
void iq4_nl_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    const uint8_t *in = blocks_data;
    for (size_t b = 0; b < blocks; b++, in += 18)
        out = iq4_group(in + 2, half_to_float(load_le16(in)), out);
}

/* 136 bytes: d, 16 bits of high scale pairs, 4 bytes of low scale nibbles, 128 bytes of nibbles;
 * scales are stored with 32 added. */
void iq4_xs_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    const uint8_t *in = blocks_data;
    for (size_t b = 0; b < blocks; b++, in += 136) {
        const float d = half_to_float(load_le16(in));
        const uint16_t high_pairs = load_le16(in + 2);
        for (size_t group = 0; group < 8; group++) {
            const int low = in[4 + group / 2] >> (group % 2 * 4) & 15;
            const int high = high_pairs >> (2 * group) & 3;
            const float scale = d * (float)((low | high << 4) - 32);
            out = iq4_group(in + 8 + group * 16, scale, out);
        }
    }
}
