/* What the compiler makes of plain C: the yardstick of the `ref` rung and of unknown CPUs. */
#include <math.h>

#include "kernels/peak_internal.h"
#include "kernels/ref_clones.h"

enum { STREAM_WORDS = 8 };

REF_CLONES double peak_f32__ref(uint64_t rounds)
{
    float sums[PEAK_REF_LANES] = {0};
    float x[PEAK_REF_LANES];
    double total = 0;
    for (int i = 0; i < PEAK_REF_LANES; i++)
        x[i] = 0.5f + (float)i;
    for (uint64_t round = 0; round < rounds; round++)
        for (int i = 0; i < PEAK_REF_LANES; i++)
            sums[i] = fmaf(sums[i], 0.5f, x[i]);
    for (int i = 0; i < PEAK_REF_LANES; i++)
        total += (double)sums[i];
    return total;
}

REF_CLONES double peak_int8__ref(uint64_t rounds)
{
    uint32_t sums[PEAK_REF_LANES] = {0};
    int8_t x[PEAK_REF_LANES];
    double total = 0;
    for (int i = 0; i < PEAK_REF_LANES; i++)
        x[i] = (int8_t)i;
    for (uint64_t round = 0; round < rounds; round++) {
        const int32_t w = (int8_t)round;
        for (int i = 0; i < PEAK_REF_LANES; i++)
            sums[i] += (uint32_t)(x[i] * w);
    }
    for (int i = 0; i < PEAK_REF_LANES; i++)
        total += (double)sums[i];
    return total;
}

REF_CLONES uint64_t stream_read__ref(const void *data, size_t bytes)
{
    const uint64_t *words = data;
    uint64_t sums[STREAM_WORDS] = {0};
    uint64_t total = 0;
    for (size_t at = 0; at < bytes / sizeof *words; at += STREAM_WORDS)
        for (size_t i = 0; i < STREAM_WORDS; i++)
            sums[i] += words[at + i];
    for (size_t i = 0; i < STREAM_WORDS; i++)
        total += sums[i];
    return total;
}
