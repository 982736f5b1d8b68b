/* Causal attention over float32 pages, up to 24 query rows together: for every block of 64 tokens
 * the scores of 6 rows at a time (tokens in lanes), then the softmax row by row, then the weighted
 * sum of V for 6 rows at a time (dims in lanes). The order of every sum is attention_f32_ref.c's.
 */
#include <math.h>
#include <string.h>

#include "kernels/attention_rows.h"
#include "kernels/exp_avx2.h"
#include "kernels/lanes_avx2.h"
#include "kernels/tanh_avx2.h"

enum { TILE_ROWS = 6 };

/* What one task works on. */
struct rows {
    struct attention_rows of;              /* the task's */
    float (*scores)[ATTENTION_BLOCK];      /* [row] */
    float correction[ATTENTION_TILE_ROWS]; /* of the running block */
};

/* Unnormalised weighted sums of V of every row. */
struct partials {
    float maximum[ATTENTION_TILE_ROWS], total[ATTENTION_TILE_ROWS];
    float *values; /* [row][padded_dim] */
};

AVX2_INLINE void add_dim(const struct rows *rows, const uint32_t count, uint32_t row, uint32_t dim,
                         __m256 low, __m256 high, __m256 dots[][2])
{
    UNROLL for (uint32_t r = 0; r < count; r++)
    {
        const __m256 q = _mm256_set1_ps(rows->of.q[row + r][dim]);
        dots[r][0] = _mm256_fmadd_ps(q, low, dots[r][0]);
        dots[r][1] = _mm256_fmadd_ps(q, high, dots[r][1]);
    }
}

/* Scores of `count` rows and the 16 tokens of one block of K. */
AVX2_INLINE void score_part(const struct rows *rows, const uint32_t count, uint32_t row,
                            const uint8_t *k, uint32_t part)
{
    const uint32_t head_dim = rows->of.task->head_dim;
    __m256 dots[TILE_ROWS][2];
    UNROLL for (uint32_t r = 0; r < count; r++) dots[r][0] = dots[r][1] = _mm256_setzero_ps();
    for (uint32_t dim = 0; dim < head_dim; dim++, k += 64)
        add_dim(rows, count, row, dim, _mm256_loadu_ps((const float *)(const void *)k),
                _mm256_loadu_ps((const float *)(const void *)(k + 32)), dots);
    const float cap = rows->of.task->soft_cap;
    const __m256 scale = _mm256_set1_ps(rows->of.task->scale);
    UNROLL for (uint32_t r = 0; r < count; r++)
    {
        float *scores = rows->scores[row + r] + (size_t)part * KV_BLOCK_TOKENS;
        UNROLL for (uint32_t half = 0; half < 2; half++)
        {
            __m256 score = _mm256_mul_ps(dots[r][half], scale);
            if (cap != 0.0f)
                score = cap_avx2(score, cap, 1.0f / cap);
            _mm256_storeu_ps(scores + (size_t)8 * half, score);
        }
    }
}

AVX2_INLINE float largest_lane(__m256 lanes)
{
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    half = _mm_max_ss(half, _mm_movehdup_ps(half));
    return _mm_cvtss_f32(half);
}

/* Scores of a row become weights exp(score - maximum), 0 where the row does not see. */
AVX2_INLINE void weigh_row(struct rows *rows, uint32_t row, uint32_t first,
                           struct partials *partials)
{
    float *scores = rows->scores[row];
    const struct block_span span = seen_in_block(&rows->of, row, first);
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
    const float before = partials->maximum[row];
    const float found = largest_lane(largest);
    const float maximum = found > before ? found : before;
    UNROLL for (int i = 0; i < ATTENTION_BLOCK / 8; i++)
    {
        block[i] = exp_avx2(_mm256_sub_ps(block[i], _mm256_set1_ps(maximum)));
        _mm256_storeu_ps(scores + 8 * i, block[i]);
    }
    float lanes[LANE_COUNT];
    UNROLL for (int half = 0; half < 2; half++)
    {
        __m256 sum = _mm256_add_ps(block[half], block[half + 2]);
        sum = _mm256_add_ps(sum, block[half + 4]);
        _mm256_storeu_ps(lanes + (size_t)8 * (size_t)half, _mm256_add_ps(sum, block[half + 6]));
    }
    rows->correction[row] = exp_approx(before - maximum);
    partials->maximum[row] = maximum;
    partials->total[row] = fmaf(partials->total[row], rows->correction[row], lane_tree_sum(lanes));
}

AVX2_INLINE void add_token(const struct rows *rows, const uint32_t count, uint32_t row,
                           uint32_t token, __m256 low, __m256 high, __m256 sums[][2])
{
    UNROLL for (uint32_t r = 0; r < count; r++)
    {
        const __m256 weight = _mm256_set1_ps(rows->scores[row + r][token]);
        sums[r][0] = _mm256_fmadd_ps(weight, low, sums[r][0]);
        sums[r][1] = _mm256_fmadd_ps(weight, high, sums[r][1]);
    }
}

/* 16 dims of V of one token. */
AVX2_INLINE void load_v(const uint8_t *const v[BLOCK_PARTS], uint32_t padded_dim, uint32_t token,
                        uint32_t dim, __m256 *low, __m256 *high)
{
    const float *block = (const float *)(const void *)v[token / KV_BLOCK_TOKENS];
    const float *from = block + kv_v_index(KV_F32, padded_dim, token % KV_BLOCK_TOKENS, dim);
    *low = _mm256_loadu_ps(from);
    *high = _mm256_loadu_ps(from + 8);
}

/* values = values * correction + weights * V for `count` rows and tokens all of them see. */
AVX2_INLINE void add_values(const struct rows *rows, const uint32_t count, uint32_t row,
                            struct block_span tokens, const uint8_t *const v[BLOCK_PARTS],
                            float *values)
{
    const uint32_t padded = rows->of.padded_dim;
    for (uint32_t dim = 0; dim < padded; dim += 16) {
        __m256 sums[TILE_ROWS][2];
        UNROLL for (uint32_t r = 0; r < count; r++)
        {
            const float *from = values + (size_t)(row + r) * padded + dim;
            const __m256 correction = _mm256_set1_ps(rows->correction[row + r]);
            sums[r][0] = _mm256_mul_ps(_mm256_loadu_ps(from), correction);
            sums[r][1] = _mm256_mul_ps(_mm256_loadu_ps(from + 8), correction);
        }
        __m256 low;
        __m256 high;
        uint32_t token = tokens.from;
        for (; token + 2 <= tokens.to; token += 2) {
            load_v(v, padded, token, dim, &low, &high);
            add_token(rows, count, row, token, low, high, sums);
            load_v(v, padded, token + 1, dim, &low, &high);
            add_token(rows, count, row, token + 1, low, high, sums);
        }
        if (token < tokens.to) {
            load_v(v, padded, token, dim, &low, &high);
            add_token(rows, count, row, token, low, high, sums);
        }
        UNROLL for (uint32_t r = 0; r < count; r++)
        {
            float *to = values + (size_t)(row + r) * padded + dim;
            _mm256_storeu_ps(to, sums[r][0]);
            _mm256_storeu_ps(to + 8, sums[r][1]);
        }
    }
}

/* Tokens that this row sees and others of its tile do not. */
AVX2_INLINE void add_edge(const struct rows *rows, uint32_t row, uint32_t from, uint32_t to,
                          const uint8_t *const v[BLOCK_PARTS], float *values)
{
    for (uint32_t token = from; token < to; token++) {
        const __m256 weight = _mm256_set1_ps(rows->scores[row][token]);
        for (uint32_t dim = 0; dim < rows->of.padded_dim; dim += 16) {
            float *at = values + (size_t)row * rows->of.padded_dim + dim;
            __m256 low;
            __m256 high;
            load_v(v, rows->of.padded_dim, token, dim, &low, &high);
            _mm256_storeu_ps(at, _mm256_fmadd_ps(weight, low, _mm256_loadu_ps(at)));
            _mm256_storeu_ps(at + 8, _mm256_fmadd_ps(weight, high, _mm256_loadu_ps(at + 8)));
        }
    }
}

AVX2_INLINE void correct_row(struct rows *rows, uint32_t row, float *values)
{
    const uint32_t padded = rows->of.padded_dim;
    const __m256 correction = _mm256_set1_ps(rows->correction[row]);
    for (uint32_t dim = 0; dim < padded; dim += 8) {
        float *at = values + (size_t)row * padded + dim;
        _mm256_storeu_ps(at, _mm256_mul_ps(_mm256_loadu_ps(at), correction));
    }
    rows->correction[row] = 1.0f;
}

/* One block of 64 tokens for rows [row, row + count), all of which see some of it: for every row
 * the tokens before those that all rows see, those, and the rest. */
AVX2_INLINE void attend_tile(struct rows *rows, const uint32_t count, uint32_t row, uint32_t first,
                             struct partials *partials)
{
    const struct block_span top = seen_in_block(&rows->of, row, first);
    const struct block_span bottom = seen_in_block(&rows->of, row + count - 1, first);
    const struct block_span common = {bottom.from, top.to < bottom.from ? bottom.from : top.to};
    struct block_parts parts;
    block_parts_find(rows->of.task, first, (struct block_span){top.from, bottom.to}, &parts);
    for (uint32_t part = top.from / KV_BLOCK_TOKENS; part * KV_BLOCK_TOKENS < bottom.to; part++)
        score_part(rows, count, row, parts.k[part], part);
    for (uint32_t r = row; r < row + count; r++)
        weigh_row(rows, r, first, partials);
    for (uint32_t r = row; common.from > 0 && r < row + count; r++) {
        const struct block_span seen = seen_in_block(&rows->of, r, first);
        correct_row(rows, r, partials->values);
        add_edge(rows, r, seen.from, seen.to < common.from ? seen.to : common.from, parts.v,
                 partials->values);
    }
    add_values(rows, count, row, common, parts.v, partials->values);
    for (uint32_t r = row; r < row + count; r++)
        add_edge(rows, r, common.to, seen_in_block(&rows->of, r, first).to, parts.v,
                 partials->values);
}

AVX2_INLINE void attend_block(struct rows *rows, struct row_range range, uint32_t first,
                              struct partials *partials)
{
    const uint32_t end = range.end;
    uint32_t row = range.first;
    for (; row + TILE_ROWS <= end; row += TILE_ROWS)
        attend_tile(rows, TILE_ROWS, row, first, partials);
    switch (end - row) {
    case 5:
        attend_tile(rows, 5, row, first, partials);
        break;
    case 4:
        attend_tile(rows, 4, row, first, partials);
        break;
    case 3:
        attend_tile(rows, 3, row, first, partials);
        break;
    case 2:
        attend_tile(rows, 2, row, first, partials);
        break;
    case 1:
        attend_tile(rows, 1, row, first, partials);
        break;
    default:
        break;
    }
}

AVX2_INLINE void merge_row(const struct rows *rows, uint32_t row, struct partials *into,
                           const struct partials *next)
{
    const float maximum =
        next->maximum[row] > into->maximum[row] ? next->maximum[row] : into->maximum[row];
    const float keep = exp_approx(into->maximum[row] - maximum);
    const float take = exp_approx(next->maximum[row] - maximum);
    into->maximum[row] = maximum;
    into->total[row] = fmaf(into->total[row], keep, next->total[row] * take);
    float *a = into->values + (size_t)row * rows->of.padded_dim;
    const float *b = next->values + (size_t)row * rows->of.padded_dim;
    for (uint32_t dim = 0; dim < rows->of.padded_dim; dim += 8) {
        const __m256 taken = _mm256_mul_ps(_mm256_loadu_ps(b + dim), _mm256_set1_ps(take));
        _mm256_storeu_ps(a + dim,
                         _mm256_fmadd_ps(_mm256_loadu_ps(a + dim), _mm256_set1_ps(keep), taken));
    }
}

/* The sums of a segment that the row sees: its first one is taken as it is. */
AVX2_INLINE void take_row(const struct rows *rows, uint32_t row, uint32_t segment,
                          struct partials *whole, const struct partials *part)
{
    const size_t padded = rows->of.padded_dim;
    if (rows->of.start[row] / ATTENTION_SEGMENT != segment / ATTENTION_SEGMENT) {
        merge_row(rows, row, whole, part);
        return;
    }
    whole->maximum[row] = part->maximum[row];
    whole->total[row] = part->total[row];
    memcpy(whole->values + row * padded, part->values + row * padded, padded * sizeof(float));
}

AVX2_INLINE void clear(const struct rows *rows, struct partials *partials)
{
    for (uint32_t r = 0; r < rows->of.task->row_count; r++) {
        partials->maximum[r] = -INFINITY;
        partials->total[r] = 0.0f;
    }
    memset(partials->values, 0,
           (size_t)rows->of.task->row_count * rows->of.padded_dim * sizeof(float));
}

void attention_f32__avx2_6x16(const struct attention_task *task)
{
    struct rows rows;
    attention_rows_find(&rows.of, task);
    struct partials whole = {.values = task->scratch};
    struct partials part = {.values = whole.values + ATTENTION_TILE_ROWS * rows.of.padded_dim};
    rows.scores =
        (float(*)[ATTENTION_BLOCK])(part.values + ATTENTION_TILE_ROWS * rows.of.padded_dim);
    const uint32_t longest = rows.of.visible[task->row_count - 1];
    const uint32_t start = rows.of.start[0] / ATTENTION_SEGMENT * ATTENTION_SEGMENT;
    for (uint32_t segment = start; segment < longest; segment += ATTENTION_SEGMENT) {
        clear(&rows, &part);
        for (uint32_t first = segment; first < longest && first < segment + ATTENTION_SEGMENT;
             first += ATTENTION_BLOCK) {
            const struct row_range range = rows_that_see(&rows.of, first, first + ATTENTION_BLOCK);
            if (range.first < range.end)
                attend_block(&rows, range, first, &part);
        }
        const struct row_range range =
            rows_that_see(&rows.of, segment, segment + ATTENTION_SEGMENT);
        for (uint32_t r = range.first; r < range.end; r++)
            take_row(&rows, r, segment, &whole, &part);
    }
    for (uint32_t r = 0; r < task->row_count; r++) {
        const float inverse = 1.0f / whole.total[r];
        for (uint32_t dim = 0; dim < task->head_dim; dim++)
            rows.of.out[r][dim] = whole.values[(size_t)r * rows.of.padded_dim + dim] * inverse;
    }
}
