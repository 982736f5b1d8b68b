/* The constants of int8 activations, and spans of their groups. */
#ifndef BATON_KERNELS_QUANTIZE_I8_H
#define BATON_KERNELS_QUANTIZE_I8_H

#include <stdint.h>

#define QUANTIZE_LEVELS 127.0f
/* A group whose largest magnitude is below this is all zero: 127 / amax must stay finite. */
#define QUANTIZE_SMALLEST      0x1p-100f
#define QUANTIZE_SMALLEST_BITS ((127u - 100u) << 23)
#define FLOAT_INFINITY_BITS    0x7f800000u

/* Groups of 32 that share their numbers: a task's span, and how many of `left` the next one has. */
static inline uint32_t span_of(uint32_t span)
{
    return span > 1 ? span : 1;
}
static inline uint32_t span_groups(uint32_t span, uint32_t left)
{
    return left < span ? left : span;
}

#endif
