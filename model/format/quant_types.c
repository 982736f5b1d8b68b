/* The table of block types, the half-float conversions and the types without blocks. */
#include "model/format/quant_types.h"

#include <strings.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "model/format/quant_internal.h"

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float half_to_float(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1fu;
    const uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0x1f) // infinity and NaN, payload kept
        return bits_float(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) { // zero and subnormals: the mantissa counts units of 2^-24, exactly
        const float magnitude = (float)mantissa * 0x1p-24f;
        return sign != 0 ? -magnitude : magnitude;
    }
    return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t float_to_half(float value)
{
    const uint32_t bits = float_bits(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) // NaN stays one, quiet
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) // 65520 and above round to infinity
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { // below 2^-14: a subnormal
        /* Adding 0.5 puts the units of 2^-24 at the end of the mantissa; the addition rounds. */
        const float shifted = bits_float(magnitude) + 0.5f;
        return (uint16_t)(sign | (float_bits(shifted) - 0x3f000000u));
    }
    const uint32_t odd = magnitude >> 13 & 1u;
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

uint16_t float_to_bf16(float value)
{
    const uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) // NaN: rounding must not turn it into infinity
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static void f32_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    memcpy(out, blocks_data, blocks * sizeof *out);
}

static void f32_quantize(const float *values, void *blocks_out, size_t blocks)
{
    memcpy(blocks_out, values, blocks * sizeof *values);
}

static void f16_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    const uint8_t *in = blocks_data;
    for (size_t i = 0; i < blocks; i++)
        out[i] = half_to_float(load_le16(in + 2 * i));
}

static void f16_quantize(const float *values, void *blocks_out, size_t blocks)
{
    uint8_t *out = blocks_out;
    for (size_t i = 0; i < blocks; i++)
        store_le16(out + 2 * i, float_to_half(values[i]));
}

static void bf16_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    const uint8_t *in = blocks_data;
    for (size_t i = 0; i < blocks; i++)
        out[i] = bits_float((uint32_t)load_le16(in + 2 * i) << 16);
}

static void bf16_quantize(const float *values, void *blocks_out, size_t blocks)
{
    uint8_t *out = blocks_out;
    for (size_t i = 0; i < blocks; i++)
        store_le16(out + 2 * i, float_to_bf16(values[i]));
}

/* Half floats are computed on as float32: there is no canonical form of their own. */
static const struct quant_type rows[] = {
    {"F32", 0, 1, 4, f32_dequantize, f32_quantize, WEIGHT_F32, true, false, NULL},
    {"F16", 1, 1, 2, f16_dequantize, f16_quantize, WEIGHT_F32, true, false, NULL},
    {"BF16", 30, 1, 2, bf16_dequantize, bf16_quantize, WEIGHT_BF16, true, false, NULL},
    {"Q4_0", 2, 32, 18, q4_0_dequantize, q4_0_quantize, WEIGHT_Q4, true, false, q4_0_split},
    {"Q4_1", 3, 32, 20, q4_1_dequantize, q4_1_quantize, WEIGHT_Q4A, true, false, q4_1_split},
    {"Q5_0", 6, 32, 22, q5_0_dequantize, NULL, WEIGHT_Q8, true, false, q5_0_split},
    {"Q5_1", 7, 32, 24, q5_1_dequantize, NULL, WEIGHT_Q8A, true, false, q5_1_split},
    {"Q8_0", 8, 32, 34, q8_0_dequantize, q8_0_quantize, WEIGHT_Q8, true, false, q8_0_split},
    {"Q2_K", 10, 256, 84, q2_k_dequantize, NULL, WEIGHT_Q8, false, false, q2_k_split},
    {"Q3_K", 11, 256, 110, q3_k_dequantize, NULL, WEIGHT_Q8, true, false, q3_k_split},
    {"Q4_K", 12, 256, 144, q4_k_dequantize, q4_k_quantize, WEIGHT_Q4A, true, false, q4_k_split},
    {"Q5_K", 13, 256, 176, q5_k_dequantize, NULL, WEIGHT_Q8A, true, false, q5_k_split},
    {"Q6_K", 14, 256, 210, q6_k_dequantize, NULL, WEIGHT_Q8, false, false, q6_k_split},
    {"IQ4_NL", 20, 32, 18, iq4_nl_dequantize, NULL, WEIGHT_Q8, true, false, iq4_nl_split},
    {"IQ4_XS", 23, 256, 136, iq4_xs_dequantize, NULL, WEIGHT_Q8, true, false, iq4_xs_split},
};

/* 4 bits of exponent, 3 of mantissa, no infinity; 0x7f and 0xff are NaN. */
static void f8_e4m3_dequantize(const void *blocks_data, float *out, size_t blocks)
{
    const uint8_t *in = blocks_data;
    for (size_t i = 0; i < blocks; i++) {
        const uint32_t sign = (uint32_t)(in[i] & 0x80u) << 24;
        const uint32_t exponent = in[i] >> 3 & 15u, mantissa = in[i] & 7u;
        if (exponent == 15 && mantissa == 7)
            out[i] = bits_float(sign | 0x7fc00000u);
        else if (exponent == 0) // units of 2^-9
            out[i] = (sign != 0 ? -0x1p-9f : 0x1p-9f) * (float)mantissa;
        else
            out[i] = bits_float(sign | (exponent + 120) << 23 | mantissa << 20);
    }
}

/* Only in folders. Times its factor it is rounded to bf16, whose steps are 1/32 of its own. */
static const struct quant_type f8_e4m3 = {"F8_E4M3", QUANT_NO_ID, 1,     1,    f8_e4m3_dequantize,
                                          NULL,      WEIGHT_BF16, false, true, NULL};

const struct quant_type *quant_type_rows(size_t *count_out)
{
    *count_out = ARRAY_COUNT(rows);
    return rows;
}

const struct quant_type *quant_type_by_id(uint32_t gguf_id)
{
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        if (rows[i].gguf_id == gguf_id)
            return &rows[i];
    return NULL;
}

const struct quant_type *quant_type_by_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        if (strcasecmp(rows[i].name, name) == 0)
            return &rows[i];
    return strcasecmp(f8_e4m3.name, name) == 0 ? &f8_e4m3 : NULL;
}
