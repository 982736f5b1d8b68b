/* Causal attention over bf16 and int8 pages, up to 24 query rows together: for every block of 64
 * tokens the scores of up to 6 rows (tokens in lanes), then the softmax row by row, then the
 * weighted sum of V (dims in lanes). bf16 products are two fused multiply-adds a pair, the odd one
 * first. int8 blocks are widened to bf16 first, once for all rows. */
#include "kernels/attention_bf16.h"
#include "kernels/lanes_avx2.h"
#include "kernels/tanh_avx2.h"

enum { TILE_ROWS = 6 };

/* A tile at work on a block. */
struct tile {
    const struct attention_rows *rows;
    uint32_t row;   /* the first */
    const float *q; /* [row][padded_dim], scaled and rounded */
    float *weights; /* [row][64], rounded */
    const struct block_parts *parts;
    const struct attention_sums *sums;
    uint32_t first; /* token of the block */
    float corrections[TILE_ROWS];
};

/* Nearest even in the upper half of every lane; weights are neither denormal nor infinite. */
AVX2_INLINE __m256 round_weights(__m256 weights)
{
    const __m256i bits = _mm256_castps_si256(weights);
    const __m256i tie = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(tie, _mm256_set1_epi32(0x7fff));
    const __m256i top = _mm256_set1_epi32((int)0xffff0000);
    const __m256 rounded = _mm256_castsi256_ps(_mm256_and_si256(_mm256_add_epi32(bits, bias), top));
    return _mm256_blendv_ps(rounded, weights, _mm256_cmp_ps(weights, weights, _CMP_UNORD_Q));
}

AVX2_INLINE __m256 exp2_avx2(__m256 x)
{
    const __m256 shifted = _mm256_add_ps(x, _mm256_set1_ps(EXP2_ROUND));
    const __m256 r = _mm256_sub_ps(x, _mm256_sub_ps(shifted, _mm256_set1_ps(EXP2_ROUND)));
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(EXP2_P4), r, _mm256_set1_ps(EXP2_P3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP2_P2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP2_P1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    const __m256i power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(shifted), 23),
                                           _mm256_set1_epi32(0x3f800000));
    const __m256 below = _mm256_cmp_ps(x, _mm256_set1_ps(EXP2_LOWEST), _CMP_LT_OQ);
    return _mm256_andnot_ps(below, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}

/* Scores of `count` rows and the 16 tokens of one part. */
AVX2_INLINE void score_part(const struct tile *tile, const uint32_t count, uint32_t part)
{
    const uint32_t padded = tile->rows->padded_dim;
    const uint8_t *k = tile->parts->k[part];
    const float *q = tile->q + (size_t)tile->row * padded;
    __m256 dots[TILE_ROWS][2];
    UNROLL for (uint32_t r = 0; r < count; r++) dots[r][0] = dots[r][1] = _mm256_setzero_ps();
    for (uint32_t dim = 0; dim < padded; dim += 2, k += 64) {
        UNROLL for (uint32_t odd = 2; odd-- > 0;)
        {
            const __m256i low_pairs = load_bytes(k);
            const __m256i high_pairs = load_bytes(k + 32);
            const __m256 low = odd ? bf16_odd(low_pairs) : bf16_even(low_pairs);
            const __m256 high = odd ? bf16_odd(high_pairs) : bf16_even(high_pairs);
            UNROLL for (uint32_t r = 0; r < count; r++)
            {
                const __m256 value = _mm256_set1_ps(q[r * padded + dim + odd]);
                dots[r][0] = _mm256_fmadd_ps(value, low, dots[r][0]);
                dots[r][1] = _mm256_fmadd_ps(value, high, dots[r][1]);
            }
        }
    }
    UNROLL for (uint32_t r = 0; r < count; r++)
    {
        float *scores =
            tile->weights + (size_t)(tile->row + r) * ATTENTION_BLOCK + part * KV_BLOCK_TOKENS;
        _mm256_storeu_ps(scores, dots[r][0]);
        _mm256_storeu_ps(scores + 8, dots[r][1]);
    }
}

AVX2_INLINE float largest_lane(__m256 lanes)
{
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    half = _mm_max_ss(half, _mm_movehdup_ps(half));
    return _mm_cvtss_f32(half);
}

/* Scores of 64 tokens, capped in place. */
AVX2_INLINE void cap_scores(const struct attention_cap *cap, float *scores)
{
    for (uint32_t i = 0; i < ATTENTION_BLOCK; i += 8)
        _mm256_storeu_ps(scores + i, cap_avx2(_mm256_loadu_ps(scores + i), cap->cap, cap->inverse));
}

/* Scores of a row become weights, 0 where the row does not see. */
AVX2_INLINE void weigh_row(struct tile *tile, uint32_t r)
{
    const uint32_t row = tile->row + r;
    float *scores = tile->weights + (size_t)row * ATTENTION_BLOCK;
    const struct block_span span = seen_in_block(tile->rows, row, tile->first);
    const __m256i from = _mm256_set1_epi32((int)span.from - 1);
    const __m256i to = _mm256_set1_epi32((int)span.to);
    const __m256i step = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256 lowest = _mm256_set1_ps(-INFINITY);
    __m256 block[ATTENTION_BLOCK / 8];
    __m256 largest = lowest;
    UNROLL for (int i = 0; i < ATTENTION_BLOCK / 8; i++)
    {
        const __m256i token = _mm256_add_epi32(step, _mm256_set1_epi32(8 * i));
        const __m256 seen = _mm256_castsi256_ps(
            _mm256_and_si256(_mm256_cmpgt_epi32(to, token), _mm256_cmpgt_epi32(token, from)));
        block[i] = _mm256_blendv_ps(lowest, _mm256_loadu_ps(scores + 8 * i), seen);
        largest = _mm256_max_ps(block[i], largest); /* drops a NaN, which the weights keep */
    }
    const float before = tile->sums->maximum[row];
    const float found = largest_lane(largest);
    const float maximum = found > before ? found : before;
    const float correction = exp2_approx(before - maximum);
    tile->corrections[r] = correction;
    tile->sums->maximum[row] = maximum;
    UNROLL for (int i = 0; i < ATTENTION_BLOCK / 8; i++)
    {
        block[i] = exp2_avx2(_mm256_sub_ps(block[i], _mm256_set1_ps(maximum)));
        _mm256_storeu_ps(scores + 8 * i, round_weights(block[i]));
    }
    float *lanes = tile->sums->lanes + (size_t)row * LANE_COUNT;
    UNROLL for (uint32_t half = 0; half < 2; half++)
    {
        __m256 sum = _mm256_add_ps(block[half], block[half + 2]);
        sum = _mm256_add_ps(_mm256_add_ps(sum, block[half + 4]), block[half + 6]);
        float *at = lanes + (size_t)8 * half;
        _mm256_storeu_ps(at, _mm256_fmadd_ps(_mm256_loadu_ps(at), _mm256_set1_ps(correction), sum));
    }
}

/* 16 dims of V of a pair of tokens: [half][odd]. */
AVX2_INLINE void load_v(const struct tile *tile, uint32_t token, uint32_t dim, __m256i pairs[2])
{
    const uint8_t *from =
        tile->parts->v[token / KV_BLOCK_TOKENS] +
        kv_v_index(KV_BF16, tile->rows->padded_dim, token % KV_BLOCK_TOKENS, dim) *
            sizeof(uint16_t);
    pairs[0] = load_bytes(from);
    pairs[1] = load_bytes(from + 32);
}

/* values = values * correction + weights * V for `count` rows and the tokens [from, to), pairs that
 * all of them see. */
AVX2_INLINE void add_values(const struct tile *tile, const uint32_t count, uint32_t from,
                            uint32_t to)
{
    const uint32_t padded = tile->rows->padded_dim;
    const float *weights = tile->weights + (size_t)tile->row * ATTENTION_BLOCK;
    for (uint32_t dim = 0; dim < padded; dim += 16) {
        float *values = tile->sums->values + (size_t)tile->row * padded + dim;
        __m256 sums[TILE_ROWS][2];
        UNROLL for (uint32_t r = 0; r < count; r++)
        {
            const __m256 correction = _mm256_set1_ps(tile->corrections[r]);
            sums[r][0] = _mm256_mul_ps(_mm256_loadu_ps(values + r * padded), correction);
            sums[r][1] = _mm256_mul_ps(_mm256_loadu_ps(values + r * padded + 8), correction);
        }
        for (uint32_t token = from; token < to; token += 2) {
            __m256i pairs[2];
            load_v(tile, token, dim, pairs);
            UNROLL for (uint32_t odd = 2; odd-- > 0;)
            {
                const __m256 low = odd ? bf16_odd(pairs[0]) : bf16_even(pairs[0]);
                const __m256 high = odd ? bf16_odd(pairs[1]) : bf16_even(pairs[1]);
                UNROLL for (uint32_t r = 0; r < count; r++)
                {
                    const __m256 weight =
                        _mm256_set1_ps(weights[r * ATTENTION_BLOCK + token + odd]);
                    sums[r][0] = _mm256_fmadd_ps(weight, low, sums[r][0]);
                    sums[r][1] = _mm256_fmadd_ps(weight, high, sums[r][1]);
                }
            }
        }
        UNROLL for (uint32_t r = 0; r < count; r++)
        {
            _mm256_storeu_ps(values + r * padded, sums[r][0]);
            _mm256_storeu_ps(values + r * padded + 8, sums[r][1]);
        }
    }
}

/* The pairs of tokens [token, end) of one row, not all tokens of which it sees. Those that it does
 * not see count as zero, whatever stands in the page. */
AVX2_INLINE void add_edge(const struct tile *tile, uint32_t row, uint32_t token, uint32_t end)
{
    const uint32_t padded = tile->rows->padded_dim;
    const struct block_span seen = seen_in_block(tile->rows, row, tile->first);
    const float *weights = tile->weights + (size_t)row * ATTENTION_BLOCK;
    const __m256 none = _mm256_setzero_ps();
    for (; token < end; token += 2) {
        const bool even_seen = token >= seen.from;
        const bool odd_seen = token + 1 < seen.to;
        for (uint32_t dim = 0; dim < padded; dim += 16) {
            __m256i pairs[2];
            load_v(tile, token, dim, pairs);
            for (uint32_t half = 0; half < 2; half++) {
                float *at = tile->sums->values + (size_t)row * padded + dim + (size_t)8 * half;
                const __m256 odd = odd_seen ? bf16_odd(pairs[half]) : none;
                const __m256 even = even_seen ? bf16_even(pairs[half]) : none;
                __m256 sum = _mm256_loadu_ps(at);
                sum = _mm256_fmadd_ps(_mm256_set1_ps(weights[token + 1]), odd, sum);
                sum = _mm256_fmadd_ps(_mm256_set1_ps(weights[token]), even, sum);
                _mm256_storeu_ps(at, sum);
            }
        }
    }
}

AVX2_INLINE void correct_row(const struct tile *tile, uint32_t r)
{
    const uint32_t padded = tile->rows->padded_dim;
    float *values = tile->sums->values + (size_t)(tile->row + r) * padded;
    for (uint32_t dim = 0; dim < padded; dim += 8)
        _mm256_storeu_ps(values + dim, _mm256_mul_ps(_mm256_loadu_ps(values + dim),
                                                     _mm256_set1_ps(tile->corrections[r])));
}

/* Scores and weights of the tile; then for every row its pairs before those that all rows see
 * whole, those, and the rest. */
AVX2_INLINE void attend_tile(struct tile *tile, const uint32_t count)
{
    const struct block_span top = seen_in_block(tile->rows, tile->row, tile->first);
    const struct block_span bottom = seen_in_block(tile->rows, tile->row + count - 1, tile->first);
    const uint32_t from = (bottom.from + 1) / 2 * 2;
    const uint32_t to = top.to / 2 * 2 < from ? from : top.to / 2 * 2;
    const struct attention_cap cap = attention_cap_base2(tile->rows->task);
    for (uint32_t part = top.from / KV_BLOCK_TOKENS; part * KV_BLOCK_TOKENS < bottom.to; part++)
        score_part(tile, count, part);
    for (uint32_t r = 0; r < count; r++) {
        if (tile->rows->task->soft_cap != 0.0f)
            cap_scores(&cap, tile->weights + (size_t)(tile->row + r) * ATTENTION_BLOCK);
        weigh_row(tile, r);
    }
    for (uint32_t r = 0; from > 0 && r < count; r++) {
        const struct block_span seen = seen_in_block(tile->rows, tile->row + r, tile->first);
        correct_row(tile, r);
        tile->corrections[r] = 1.0f;
        add_edge(tile, tile->row + r, seen.from / 2 * 2, seen.to < from ? seen.to : from);
    }
    add_values(tile, count, from, to);
    for (uint32_t r = 0; r < count; r++)
        add_edge(tile, tile->row + r, to, seen_in_block(tile->rows, tile->row + r, tile->first).to);
}

/* 16 values of int8 as bf16(scale * q). */
AVX2_INLINE __m256i widen_pairs(const uint8_t *q, __m256 low, __m256 high)
{
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)q);
    const __m256i whole[2] = {_mm256_cvtepi8_epi32(bytes),
                              _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
    const __m256 x = round_weights(_mm256_mul_ps(low, _mm256_cvtepi32_ps(whole[0])));
    const __m256 y = round_weights(_mm256_mul_ps(high, _mm256_cvtepi32_ps(whole[1])));
    /* Upper halves of all lanes side by side; packing goes by 128 bits, so two quarters swap. */
    const __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(_mm256_castps_si256(x), 16),
                                               _mm256_srli_epi32(_mm256_castps_si256(y), 16));
    return _mm256_permute4x64_epi64(packed, 0xd8);
}

AVX2_INLINE void store_pairs(uint16_t *out, __m256i pairs)
{
    _mm256_storeu_si256((__m256i *)(void *)out, pairs);
}

/* A part of K: pairs of dims of 16 tokens, so every scale stands in two lanes. */
AVX2_INLINE void widen_k(const uint8_t *q, const float *scales, uint32_t padded, uint16_t *out)
{
    __m256 by_lane[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        const __m256 four = _mm256_broadcast_ps((const __m128 *)(const void *)(scales + 4 * i));
        by_lane[i] = _mm256_permutevar8x32_ps(four, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    }
    for (size_t at = 0; at < (size_t)padded * KV_BLOCK_TOKENS; at += 32) {
        store_pairs(out + at, widen_pairs(q + at, by_lane[0], by_lane[1]));
        store_pairs(out + at + 16, widen_pairs(q + at + 16, by_lane[2], by_lane[3]));
    }
}

/* A part of V: pairs of tokens of all dims, so two scales alternate. */
AVX2_INLINE void widen_v(const uint8_t *q, const float *scales, uint32_t padded, uint16_t *out)
{
    for (uint32_t pair = 0; pair < KV_BLOCK_TOKENS / 2; pair++, scales += 2) {
        const __m256 lanes = _mm256_setr_ps(scales[0], scales[1], scales[0], scales[1], scales[0],
                                            scales[1], scales[0], scales[1]);
        for (uint32_t i = 0; i < padded * 2; i += 16, q += 16, out += 16)
            store_pairs(out, widen_pairs(q, lanes, lanes));
    }
}

/* The parts of an int8 block that a row sees, as bf16 in the scratch. */
static void block_widen(const struct attention_rows *rows, const struct attention_space *space,
                        uint32_t first, struct block_span seen, struct block_parts *parts)
{
    block_parts_place(rows, space, seen, parts);
    for (uint32_t part = 0; part < BLOCK_PARTS; part++) {
        struct int8_part from;
        if (!int8_part_find(rows->task, first, seen, part, &from))
            continue;
        const size_t at = (size_t)part * KV_BLOCK_TOKENS * rows->padded_dim;
        widen_k(from.k, from.k_scales, rows->padded_dim, space->widened_k + at);
        widen_v(from.v, from.v_scales, rows->padded_dim, space->widened_v + at);
    }
}

static void attend_tile_of(struct tile *tile, uint32_t count)
{
    switch (count) {
    case 6:
        attend_tile(tile, 6);
        break;
    case 5:
        attend_tile(tile, 5);
        break;
    case 4:
        attend_tile(tile, 4);
        break;
    case 3:
        attend_tile(tile, 3);
        break;
    case 2:
        attend_tile(tile, 2);
        break;
    default:
        attend_tile(tile, 1);
        break;
    }
}

/* The rows of the range in tiles of 6 or fewer, shared out evenly. */
static void attend_block(const struct attention_rows *rows, const struct attention_space *space,
                         struct row_range range, uint32_t first, const struct attention_sums *sums)
{
    const struct block_span seen = seen_by_range(rows, range, first);
    struct block_parts parts;
    struct tile tile = {.rows = rows,
                        .row = range.first,
                        .q = space->q,
                        .weights = space->scores,
                        .parts = &parts,
                        .sums = sums,
                        .first = first};
    if (rows->task->kv->dtype == KV_I8)
        block_widen(rows, space, first, seen, &parts);
    else
        block_parts_find(rows->task, first, seen, &parts);
    for (uint32_t left = (range.end - range.first + TILE_ROWS - 1) / TILE_ROWS; left > 0; left--) {
        const uint32_t count = (range.end - tile.row + left - 1) / left;
        attend_tile_of(&tile, count);
        tile.row += count;
    }
}

/* Every block is done when its call ends. */
static void settle(const struct attention_space *space)
{
    (void)space;
}

/* Queries times the scale, rounded to bf16, padded with zeros. */
AVX2_INLINE void scale_queries(const struct attention_rows *rows, float *out)
{
    const struct attention_task *task = rows->task;
    const float scale = task->scale * EXP2_LOG2E;
    for (uint32_t r = 0; r < task->row_count; r++, out += rows->padded_dim)
        for (uint32_t dim = 0; dim < rows->padded_dim; dim++)
            out[dim] = dim < task->head_dim
                           ? float_from_bf16(bf16_from_float_flushed(rows->q[r][dim] * scale))
                           : 0.0f;
}

__attribute__((noinline)) static void attend(const struct attention_task *task)
{
    struct attention_rows rows;
    attention_rows_find(&rows, task);
    const struct attention_space space = attention_space_place(task, rows.padded_dim);
    scale_queries(&rows, space.q);
    attention_walk(&rows, &space, attend_block, settle);
}

void attention_bf16__avx2_6x16(const struct attention_task *task)
{
    const uint64_t saved = float_flush_begin();
    attend(task);
    float_flush_end(saved);
}

void attention_i8__avx2_6x16(const struct attention_task *task)
{
    attention_bf16__avx2_6x16(task);
}
