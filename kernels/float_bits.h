/* Conversions between float and bf16, and the treatment of denormals. */
#ifndef BATON_KERNELS_FLOAT_BITS_H
#define BATON_KERNELS_FLOAT_BITS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline float float_from_bf16(uint16_t value)
{
    return float_from_bits((uint32_t)value << 16);
}

/* Round to nearest even; a NaN stays a (quiet) NaN, overflow becomes infinity. */
static inline uint16_t bf16_from_float(float value)
{
    const uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)((bits >> 16) | 0x40);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* The same after flushing a denormal to zero of its sign: what vcvtneps2bf16 does. */
static inline uint16_t bf16_from_float_flushed(float value)
{
    const uint32_t bits = float_bits(value);
    if ((bits & 0x7f800000) == 0)
        return (uint16_t)((bits >> 16) & 0x8000);
    return bf16_from_float(value);
}

/* IEEE half precision, denormals included: every value of it is a normal float. */
static inline float float_from_half(uint16_t value)
{
    const uint32_t sign = (uint32_t)(value & 0x8000) << 16;
    const uint32_t exponent = (value >> 10) & 31;
    const uint32_t mantissa = value & 0x3ffu;
    if (exponent == 0) {
        const float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    const uint32_t biased = exponent == 31 ? 255 : exponent + 112;
    return float_from_bits(sign | biased << 23 | mantissa << 13);
}

/* The half that is exactly this float, any NaN for a NaN; false if there is none. */
static inline bool half_from_float(float value, uint16_t *half_out)
{
    const uint32_t bits = float_bits(value);
    const uint32_t magnitude = bits & 0x7fffffff;
    uint32_t half;
    if (magnitude >= 0x7f800000) { /* infinity, NaN */
        half = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
    } else if (magnitude >= 0x38800000) { /* from 2^-14: a normal half */
        half = (magnitude >> 13) - (112u << 10);
        if (magnitude & 0x1fff || half >= 0x7c00)
            return false;
    } else { /* a multiple of 2^-24 */
        const float units = float_from_bits(magnitude) * 0x1p24f;
        half = (uint32_t)units;
        if ((float)half != units)
            return false;
    }
    *half_out = (uint16_t)(half | (bits >> 16 & 0x8000));
    return true;
}

/* Round to nearest even integer, for |value| < 2^22. */
static inline int32_t float_round_to_int(float value)
{
    const float shift = 0x1.8p23f;
    return (int32_t)((value + shift) - shift);
}

/* Between begin and end this thread's arithmetic takes denormal inputs as zero and flushes denormal
 * results to zero, as vdpbf16ps always does. Call them round a call the compiler cannot inline. */
static inline uint64_t float_flush_begin(void)
{
#if defined(__x86_64__)
    const unsigned int saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040);
    return saved;
#elif defined(__aarch64__)
    uint64_t saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    const uint64_t flushing = saved | (1ULL << 24);
    __asm__ volatile("msr fpcr, %0" : : "r"(flushing));
    return saved;
#else
#error "say how this CPU flushes denormals"
#endif
}

static inline void float_flush_end(uint64_t saved)
{
#if defined(__x86_64__)
    _mm_setcsr((unsigned int)saved);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(saved));
#endif
}

#endif
