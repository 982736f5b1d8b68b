/* K and V into bf16 and int8 pages, 16 dims at a time. A pair of tokens of V stands side by side,
 * so it is written at once where the call has both; one alone is written value by value, because
 * its neighbour may be another thread's. */
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/kv_layout.h"
#include "kernels/lanes_avx2.h"
#include "kernels/quantize_i8.h"

enum { CHUNK = 16 };

/* Sixteen values as they are stored: bf16, or int8 in the lower half. */
union chunk {
    __m256i lanes;
    uint16_t bf16[CHUNK];
    int8_t i8[CHUNK];
};

/* How a row of one head becomes int8; without a meaning for bf16. */
struct scaling {
    float scale, inverse; /* inverse 0: all are zero */
};

AVX2_INLINE __m256 load_some(const float *x, uint32_t left)
{
    const __m256i step = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return left >= 8
               ? _mm256_loadu_ps(x)
               : _mm256_maskload_ps(x, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)left), step));
}

/* 16 values from `dim` on, zero past the head's end. */
AVX2_INLINE void load_chunk(const float *x, uint32_t head_dim, uint32_t dim, __m256 out[2])
{
    const uint32_t left = head_dim - dim;
    out[0] = load_some(x + dim, left);
    out[1] = left > 8 ? load_some(x + dim + 8, left - 8) : _mm256_setzero_ps();
}

/* bf16_from_float in the lower half of every lane. */
AVX2_INLINE __m256i round_lanes(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i tie = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(tie, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, nan);
}

AVX2_INLINE struct scaling scaling_of(const float *x, uint32_t head_dim)
{
    /* Magnitudes order like their bits, with infinity and then every NaN on top. */
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_setzero_si256();
    for (uint32_t dim = 0; dim < head_dim; dim += CHUNK) {
        __m256 values[2];
        load_chunk(x, head_dim, dim, values);
        UNROLL for (int i = 0; i < 2; i++) largest =
            _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(values[i]), magnitude));
    }
    __m128i half =
        _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epu32(half, _mm_shuffle_epi32(half, 0xb1));
    const uint32_t bits = (uint32_t)_mm_cvtsi128_si32(half);
    if (bits < QUANTIZE_SMALLEST_BITS)
        return (struct scaling){0.0f, 0.0f};
    if (bits >= FLOAT_INFINITY_BITS)
        return (struct scaling){NAN, 0.0f};
    const float amax = float_from_bits(bits);
    return (struct scaling){amax / QUANTIZE_LEVELS, QUANTIZE_LEVELS / amax};
}

AVX2_INLINE __m256i quantize_chunk(const struct scaling *scaling, const __m256 x[2])
{
    if (scaling->inverse == 0.0f)
        return _mm256_setzero_si256();
    const __m256 inverse = _mm256_set1_ps(scaling->inverse);
    const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(x[0], inverse));
    const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(x[1], inverse));
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    return _mm256_castsi128_si256(
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

/* One head of a token of K or of V. */
struct source {
    const float *x; /* [head_dim] */
    struct scaling scaling;
};

AVX2_INLINE __m256i make_chunk(const enum kv_dtype dtype, const struct source *from,
                               uint32_t head_dim, uint32_t dim)
{
    __m256 x[2];
    load_chunk(from->x, head_dim, dim, x);
    if (dtype == KV_I8)
        return quantize_chunk(&from->scaling, x);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(round_lanes(x[0]), round_lanes(x[1])),
                                    0xd8);
}

/* Scales the row for int8 and writes its scale. */
AVX2_INLINE struct source begin_row(const enum kv_dtype dtype, const struct kv_write_task *task,
                                    enum kv_part part, uint32_t head, uint32_t row)
{
    const struct kv_view *kv = task->kv;
    const float *x = part == KV_PART_K ? task->k : task->v;
    struct source from = {.x = x + ((size_t)row * kv->kv_heads + head) * kv->head_dim};
    if (dtype == KV_I8) {
        from.scaling = scaling_of(from.x, kv->head_dim);
        *kv_scale(kv, task->slots, part, head, task->position + row) = from.scaling.scale;
    }
    return from;
}

/* A token of K: a pair of dims goes to every 16th place. */
AVX2_INLINE void write_k(const enum kv_dtype dtype, const struct kv_write_task *task, uint32_t head,
                         uint32_t row)
{
    const struct kv_view *kv = task->kv;
    const uint32_t position = task->position + row;
    const struct source from = begin_row(dtype, task, KV_PART_K, head, row);
    const size_t pair_bytes = 2 * kv_element_bytes(dtype);
    uint8_t *to = kv_block(kv, task->slots, KV_PART_K, head, position) +
                  position % KV_BLOCK_TOKENS * pair_bytes;
    for (uint32_t dim = 0; dim < kv_padded_dim(kv->head_dim); dim += CHUNK) {
        const union chunk chunk = {make_chunk(dtype, &from, kv->head_dim, dim)};
        UNROLL for (uint32_t i = 0; i < CHUNK; i += 2, to += KV_BLOCK_TOKENS * pair_bytes)
        {
            if (dtype == KV_I8)
                memcpy(to, chunk.i8 + i, 2);
            else
                memcpy(to, chunk.bf16 + i, 4);
        }
    }
}

/* A token of V of which the call does not have the pair's other one. */
AVX2_INLINE void write_v_alone(const enum kv_dtype dtype, const struct kv_write_task *task,
                               uint32_t head, uint32_t row)
{
    const struct kv_view *kv = task->kv;
    const uint32_t padded = kv_padded_dim(kv->head_dim);
    const uint32_t position = task->position + row;
    const struct source from = begin_row(dtype, task, KV_PART_V, head, row);
    uint8_t *block = kv_block(kv, task->slots, KV_PART_V, head, position);
    const size_t first = kv_v_index(dtype, padded, position % KV_BLOCK_TOKENS, 0);
    for (uint32_t dim = 0; dim < padded; dim += CHUNK) {
        const union chunk chunk = {make_chunk(dtype, &from, kv->head_dim, dim)};
        for (uint32_t i = 0; i < CHUNK; i++) {
            if (dtype == KV_I8)
                ((int8_t *)block)[first + (size_t)(dim + i) * 2] = chunk.i8[i];
            else
                ((uint16_t *)(void *)block)[first + (size_t)(dim + i) * 2] = chunk.bf16[i];
        }
    }
}

/* Two tokens of V that stand side by side. */
AVX2_INLINE void write_v_pair(const enum kv_dtype dtype, const struct kv_write_task *task,
                              uint32_t head, uint32_t row)
{
    const struct kv_view *kv = task->kv;
    const uint32_t padded = kv_padded_dim(kv->head_dim);
    const uint32_t position = task->position + row;
    const struct source even = begin_row(dtype, task, KV_PART_V, head, row);
    const struct source odd = begin_row(dtype, task, KV_PART_V, head, row + 1);
    uint8_t *to =
        kv_block(kv, task->slots, KV_PART_V, head, position) +
        kv_v_index(dtype, padded, position % KV_BLOCK_TOKENS, 0) * kv_element_bytes(dtype);
    for (uint32_t dim = 0; dim < padded; dim += CHUNK) {
        const __m256i a = make_chunk(dtype, &even, kv->head_dim, dim);
        const __m256i b = make_chunk(dtype, &odd, kv->head_dim, dim);
        if (dtype == KV_I8) {
            const __m128i x = _mm256_castsi256_si128(a);
            const __m128i y = _mm256_castsi256_si128(b);
            _mm_storeu_si128((__m128i *)(void *)to, _mm_unpacklo_epi8(x, y));
            _mm_storeu_si128((__m128i *)(void *)(to + 16), _mm_unpackhi_epi8(x, y));
            to += 32;
        } else {
            const __m256i low = _mm256_unpacklo_epi16(a, b);
            const __m256i high = _mm256_unpackhi_epi16(a, b);
            _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permute2x128_si256(low, high, 0x20));
            _mm256_storeu_si256((__m256i *)(void *)(to + 32),
                                _mm256_permute2x128_si256(low, high, 0x31));
            to += 64;
        }
    }
}

AVX2_INLINE void write_rows(const enum kv_dtype dtype, const struct kv_write_task *task)
{
    for (uint32_t row = 0; row < task->rows; row++) {
        const bool even = (task->position + row) % 2 == 0;
        const bool pair = even && row + 1 < task->rows;
        const bool done = !even && row > 0; /* with the row before it */
        for (uint32_t head = 0; head < task->kv->kv_heads; head++) {
            write_k(dtype, task, head, row);
            if (pair)
                write_v_pair(dtype, task, head, row);
            else if (!done)
                write_v_alone(dtype, task, head, row);
        }
    }
}

void kv_write_bf16__avx2(const struct kv_write_task *task)
{
    write_rows(KV_BF16, task);
}

void kv_write_i8__avx2(const struct kv_write_task *task)
{
    write_rows(KV_I8, task);
}
