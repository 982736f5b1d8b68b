/* Activations to int8: a group of 32 is two ZMM registers, and four groups go together, so that
 * what is one number a group is done for four at once. */
#include "kernels/quantize_i8.h"

#include <math.h>

#include "kernels/float_bits.h"
#include "kernels/lanes_avx512.h"

enum { GROUPS = 4 };

/* Lane i % 4 of every 128 bits: the largest of lane i of all in vector i, as integers. */
AVX512_INLINE __m512i transpose_max(__m512i a, __m512i b, __m512i c, __m512i d)
{
    const __m512i ab = _mm512_max_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_max_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    return _mm512_max_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* The largest magnitude of each group as bits, a group a lane. */
AVX512_INLINE __m128i largest_magnitudes(const __m512 x[GROUPS][2])
{
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    __m512i largest[GROUPS];
    UNROLL for (uint32_t i = 0; i < GROUPS; i++) largest[i] =
        _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(x[i][0]), mask),
                         _mm512_and_si512(_mm512_castps_si512(x[i][1]), mask));
    const __m512i all = transpose_max(largest[0], largest[1], largest[2], largest[3]);
    const __m256i half =
        _mm256_max_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_max_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* Two groups: four bytes of each and four more of each, by turns, in every quarter. */
AVX512_INLINE __m512i pack_groups(const __m512 x[GROUPS][2], uint32_t first, __m512 inverse_first,
                                  __m512 inverse_second)
{
    const __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(x[first][0], inverse_first));
    const __m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(x[first][1], inverse_first));
    const __m512i c = _mm512_cvtps_epi32(_mm512_mul_ps(x[first + 1][0], inverse_second));
    const __m512i d = _mm512_cvtps_epi32(_mm512_mul_ps(x[first + 1][1], inverse_second));
    return _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
}

/* Packing works in 128-bit quarters; this puts the quads in order, a group a half. */
AVX512_INLINE __m512i order_groups(__m512i packed)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, packed);
}

/* The sums of the quantised values of two packed pairs, a group a lane. */
AVX512_INLINE __m128i sum_groups(__m512i first, __m512i second)
{
    const __m512i ones = _mm512_set1_epi8(1);
    const __m512 a = _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, first));
    const __m512 b = _mm512_castsi512_ps(_mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, second));
    const __m512i quarters =
        _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0))),
                         _mm512_castps_si512(_mm512_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1))));
    const __m256i halves =
        _mm256_add_epi32(_mm512_castsi512_si256(quarters), _mm512_extracti64x4_epi64(quarters, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}

/* Scale, scaled sum, start and zero of four groups, a group a lane, behind their values. */
AVX512_INLINE void store_numbers(__m128 scale, __m128i sum, struct quantized_group *const out[])
{
    const __m128i scaled = _mm_castps_si128(_mm_mul_ps(scale, _mm_cvtepi32_ps(sum)));
    const __m128i start = _mm_mullo_epi32(sum, _mm_set1_epi32(-PANEL_Q8_BIAS));
    const __m128i bits = _mm_castps_si128(scale), zero = _mm_setzero_si128();
    const __m128i low[2] = {_mm_unpacklo_epi32(bits, scaled), _mm_unpackhi_epi32(bits, scaled)};
    const __m128i high[2] = {_mm_unpacklo_epi32(start, zero), _mm_unpackhi_epi32(start, zero)};
    UNROLL for (uint32_t i = 0; i < 2; i++)
    {
        _mm_storeu_si128((__m128i *)(void *)&out[2 * i]->scale,
                         _mm_unpacklo_epi64(low[i], high[i]));
        _mm_storeu_si128((__m128i *)(void *)&out[2 * i + 1]->scale,
                         _mm_unpackhi_epi64(low[i], high[i]));
    }
}

AVX512_INLINE void load_groups(const float *const from[GROUPS], __m512 x[GROUPS][2])
{
    UNROLL for (uint32_t i = 0; i < GROUPS; i++)
    {
        x[i][0] = _mm512_loadu_ps(from[i]);
        x[i][1] = _mm512_loadu_ps(from[i] + 16);
    }
}

/* bits: largest_magnitudes. A group of zeros, or with NaN or infinity, is put right afterwards. */
AVX512_INLINE void quantize_groups(const __m512 x[GROUPS][2], __m128i bits,
                                   struct quantized_group *const out[GROUPS])
{
    const __m128 amax = _mm_castsi128_ps(bits);
    const __m512 inverse = _mm512_castps128_ps512(_mm_div_ps(_mm_set1_ps(QUANTIZE_LEVELS), amax));
    __m512 inverses[GROUPS];
    UNROLL for (int i = 0; i < GROUPS; i++) inverses[i] =
        _mm512_permutexvar_ps(_mm512_set1_epi32(i), inverse);
    const __m512i packed[2] = {pack_groups(x, 0, inverses[0], inverses[1]),
                               pack_groups(x, 2, inverses[2], inverses[3])};
    UNROLL for (uint32_t i = 0; i < 2; i++)
    {
        const __m512i ordered = order_groups(packed[i]);
        _mm256_storeu_si256((__m256i *)(void *)out[2 * i]->q, _mm512_castsi512_si256(ordered));
        _mm256_storeu_si256((__m256i *)(void *)out[2 * i + 1]->q,
                            _mm512_extracti64x4_epi64(ordered, 1));
    }
    store_numbers(_mm_div_ps(amax, _mm_set1_ps(QUANTIZE_LEVELS)), sum_groups(packed[0], packed[1]),
                  out);
    const __mmask8 small = _mm_cmplt_epi32_mask(bits, _mm_set1_epi32(QUANTIZE_SMALLEST_BITS));
    const __mmask8 large = _mm_cmpge_epu32_mask(bits, _mm_set1_epi32((int)FLOAT_INFINITY_BITS));
    if (small | large)
        for (uint32_t i = 0; i < GROUPS; i++)
            if ((small | large) >> i & 1) {
                const float scale = small >> i & 1 ? 0.0f : NAN;
                *out[i] = (struct quantized_group){.scale = scale, .scaled_sum = scale};
            }
}

/* A scale for every group; rows of fewer groups than go together are gone through as one. */
static void quantize_short_rows(const struct quantize_task *task)
{
    const size_t groups = task->k / WEIGHT_GROUP, count = task->rows * groups;
    struct quantized_group spare;
    size_t row = 0, group = 0;
    for (size_t done = 0; done < count; done += GROUPS) {
        const float *from[GROUPS];
        struct quantized_group *out[GROUPS];
        for (uint32_t i = 0; i < GROUPS; i++) {
            const bool exists = done + i < count;
            from[i] = task->x + (exists ? done + i : done) * WEIGHT_GROUP;
            out[i] = exists ? task->out + row * task->out_stride + group : &spare;
            row += exists && group + 1 == groups;
            group = group + 1 == groups ? 0 : group + 1;
        }
        __m512 x[GROUPS][2];
        load_groups(from, x);
        quantize_groups(x, largest_magnitudes(x), out);
    }
}

AVX512_INLINE void load_neighbours(const float *from, __m512 x[GROUPS][2])
{
    load_groups((const float *const[]){from, from + WEIGHT_GROUP, from + 2 * WEIGHT_GROUP,
                                       from + 3 * WEIGHT_GROUP},
                x);
}

/* Four or more groups. The last four are done together, though some may be done already. The
 * largest magnitudes of the next four are found before these are converted: the CPU does not look
 * far enough ahead to do so by itself. */
static void quantize_row(const float *x, size_t groups, struct quantized_group *out)
{
    const size_t last = groups - GROUPS;
    __m512 values[GROUPS][2];
    load_neighbours(x, values);
    __m128i next_bits = largest_magnitudes(values);
    for (size_t at = 0, next = 0;; at = next) {
        const __m128i bits = next_bits;
        next = at + GROUPS < last ? at + GROUPS : last;
        load_neighbours(x + next * WEIGHT_GROUP, values);
        next_bits = largest_magnitudes(values);
        load_neighbours(x + at * WEIGHT_GROUP, values);
        quantize_groups(
            values, bits,
            (struct quantized_group *const[]){out + at, out + at + 1, out + at + 2, out + at + 3});
        if (at == last)
            return;
    }
}

static void quantize_each(const struct quantize_task *task)
{
    const size_t groups = task->k / WEIGHT_GROUP;
    if (groups < GROUPS) {
        quantize_short_rows(task);
        return;
    }
    for (size_t row = 0; row < task->rows; row++)
        quantize_row(task->x + row * task->k, groups, task->out + row * task->out_stride);
}

AVX512_INLINE void set_numbers(struct quantized_group *out, float scale, int32_t sum)
{
    out->scale = scale;
    out->scaled_sum = scale * (float)sum;
    out->start = -PANEL_Q8_BIAS * sum;
    out->unused = 0;
}

/* Groups that share a scale. */
static void quantize_span(const float *x, uint32_t groups, struct quantized_group *out)
{
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    __m512i largest = _mm512_setzero_si512();
    for (size_t i = 0; i < (size_t)groups * WEIGHT_GROUP; i += 16)
        largest = _mm512_max_epi32(largest, _mm512_and_si512(_mm512_loadu_si512(x + i), mask));
    const uint32_t bits = (uint32_t)_mm512_reduce_max_epi32(largest);
    const bool zero = bits < QUANTIZE_SMALLEST_BITS, finite = bits < FLOAT_INFINITY_BITS;
    const float amax = float_from_bits(bits);
    const __m512 inverse = _mm512_set1_ps(QUANTIZE_LEVELS / amax);
    const __mmask16 stays = !zero && finite ? 0xffff : 0;
    __m512i sum = _mm512_setzero_si512();
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t i = 0; i < WEIGHT_GROUP; i += 16) {
            const __m512 at = _mm512_loadu_ps(x + (size_t)g * WEIGHT_GROUP + i);
            const __m512i q = _mm512_maskz_cvtps_epi32(stays, _mm512_mul_ps(at, inverse));
            sum = _mm512_add_epi32(sum, q);
            _mm_storeu_si128((__m128i *)(void *)(out[g].q + i), _mm512_cvtepi32_epi8(q));
            set_numbers(&out[g], 0, 0);
        }
    set_numbers(out,
                zero     ? 0.0f
                : finite ? amax / QUANTIZE_LEVELS
                         : NAN,
                _mm512_reduce_add_epi32(sum));
}

void quantize_i8__avx512vnni(const struct quantize_task *task)
{
    const uint32_t groups = task->k / WEIGHT_GROUP, span = span_of(task->span);
    if (span == 1) {
        quantize_each(task);
        return;
    }
    for (size_t row = 0; row < task->rows; row++)
        for (uint32_t g = 0; g < groups; g += span)
            quantize_span(task->x + row * task->k + (size_t)g * WEIGHT_GROUP,
                          span_groups(span, groups - g), task->out + row * task->out_stride + g);
}
