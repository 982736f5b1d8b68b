/* The two constants of int8 activations. */
#ifndef BATON_KERNELS_QUANTIZE_I8_H
#define BATON_KERNELS_QUANTIZE_I8_H

#define QUANTIZE_LEVELS 127.0f
/* A group whose largest magnitude is below this is all zero: 127 / amax must stay finite. */
#define QUANTIZE_SMALLEST      0x1p-100f
#define QUANTIZE_SMALLEST_BITS ((127u - 100u) << 23)
#define FLOAT_INFINITY_BITS    0x7f800000u

#endif
