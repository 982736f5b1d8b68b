/* Block conversions, one set a type, named by the rows of quant_types.c. Private to model/format.
 *
 * Blocks come from a mapped file and may start at any address, so that every multi-byte field is
 * loaded bytewise. The float operations and their order are those of the reference conversion: a
 * compiler may not fuse them (the build says -ffp-contract=off). */
#ifndef BATON_MODEL_FORMAT_QUANT_INTERNAL_H
#define BATON_MODEL_FORMAT_QUANT_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

void q4_0_dequantize(const void *blocks_data, float *out, size_t blocks);
void q4_1_dequantize(const void *blocks_data, float *out, size_t blocks);
void q5_0_dequantize(const void *blocks_data, float *out, size_t blocks);
void q5_1_dequantize(const void *blocks_data, float *out, size_t blocks);
void q8_0_dequantize(const void *blocks_data, float *out, size_t blocks);
void q2_k_dequantize(const void *blocks_data, float *out, size_t blocks);
void q3_k_dequantize(const void *blocks_data, float *out, size_t blocks);
void q4_k_dequantize(const void *blocks_data, float *out, size_t blocks);
void q5_k_dequantize(const void *blocks_data, float *out, size_t blocks);
void q6_k_dequantize(const void *blocks_data, float *out, size_t blocks);
void iq4_nl_dequantize(const void *blocks_data, float *out, size_t blocks);
void iq4_xs_dequantize(const void *blocks_data, float *out, size_t blocks);

void q4_0_quantize(const float *values, void *blocks_out, size_t blocks);
void q4_1_quantize(const float *values, void *blocks_out, size_t blocks);
void q4_k_quantize(const float *values, void *blocks_out, size_t blocks);
void q8_0_quantize(const float *values, void *blocks_out, size_t blocks);

void q4_0_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks);
void q4_1_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks);
void q5_0_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks);
void q5_1_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks);
void q8_0_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks);
void q2_k_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks);
void q3_k_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks);
void q4_k_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks);
void q5_k_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks);
void q6_k_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks);
void iq4_nl_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks);
void iq4_xs_split(const void *blocks_data, int8_t *q, float *scale, float *offset, size_t blocks);

/* The parts of a super-block that dequantising and splitting share. */
int q3_k_scale(const uint8_t *scales, size_t group);
void k4_scale_minimum(const uint8_t *packed, size_t group, int *scale_out, int *minimum_out);
extern const int8_t iq4_levels[16];

#endif
