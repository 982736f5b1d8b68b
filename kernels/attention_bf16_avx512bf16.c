/* Causal attention over bf16 pages, up to 24 query rows together. For every block of 64 tokens and
 * up to 6 rows: scores with tokens in lanes, kept in registers through the softmax, then the
 * weighted sum of V with dims in lanes, 64 dims at a time. The first tile of a block asks for the
 * next block's K and V, which a decode step finds in memory only. */
#include "kernels/attention_bf16.h"
#include "kernels/lanes_avx512.h"

enum { TILE_ROWS = 6, DIM_VECTORS = 4 };

#define DOT_PAIRS(sum, a, b) __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b))

/* A tile at work on a block. */
struct tile {
    const struct attention_rows *rows;
    uint32_t row; /* the first */
    const uint16_t *q;
    uint16_t *weights;
    const struct block_parts *parts, *ahead; /* ahead: to be asked for, or NULL */
    struct attention_sums *sums;
    uint32_t first; /* token of the block */
    float corrections[TILE_ROWS];
};

AVX512_INLINE __m512 broadcast_pair(const uint16_t *pair)
{
    int32_t bits;
    __builtin_memcpy(&bits, pair, sizeof(bits));
    return _mm512_castsi512_ps(_mm512_set1_epi32(bits));
}

AVX512_INLINE __m512 load_pairs(const uint8_t *pairs)
{
    return _mm512_castsi512_ps(_mm512_loadu_si512(pairs));
}

AVX512_INLINE __m512 exp2_avx512(__m512 x)
{
    const __mmask16 zero = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP2_LOWEST), _CMP_LT_OQ);
    const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(x, n);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(EXP2_P4), r, _mm512_set1_ps(EXP2_P3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP2_P2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP2_P1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps((__mmask16)~zero, p, n);
}

/* Scores of 64 tokens of a row, in registers, become weights: bf16 in the scratch, sums by lane. */
AVX512_INLINE void weigh_row(struct tile *tile, uint32_t r, __m512 scores[BLOCK_PARTS])
{
    const uint32_t row = tile->row + r;
    const uint32_t visible = visible_in_block(tile->rows, row, tile->first);
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    if (visible < ATTENTION_BLOCK) {
        const uint64_t seen = (UINT64_C(1) << visible) - 1;
        UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++) scores[i] =
            _mm512_mask_blend_ps((__mmask16)(seen >> (16 * i)), lowest, scores[i]);
    }
    __m512 largest = lowest;
    UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++) largest =
        _mm512_max_ps(scores[i], largest); /* drops a NaN, which the weights keep */
    const float found = _mm512_reduce_max_ps(largest);
    const float before = tile->sums->maximum[row];
    const float maximum = found > before ? found : before;
    tile->corrections[r] = 1.0f;
    if (!(maximum == before)) {
        tile->corrections[r] = exp2_approx(before - maximum);
        tile->sums->maximum[row] = maximum;
    }
    UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++) scores[i] =
        exp2_avx512(_mm512_sub_ps(scores[i], _mm512_set1_ps(maximum)));
    uint16_t *weights = tile->weights + (size_t)row * ATTENTION_BLOCK;
    _mm512_storeu_si512(weights, (__m512i)_mm512_cvtne2ps_pbh(scores[1], scores[0]));
    _mm512_storeu_si512(weights + 32, (__m512i)_mm512_cvtne2ps_pbh(scores[3], scores[2]));
    float *lanes = tile->sums->lanes + (size_t)row * LANE_COUNT;
    const __m512 sum =
        _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(scores[0], scores[1]), scores[2]), scores[3]);
    _mm512_storeu_ps(
        lanes, _mm512_fmadd_ps(_mm512_loadu_ps(lanes), _mm512_set1_ps(tile->corrections[r]), sum));
}

AVX512_INLINE void ask(const uint8_t *line)
{
    _mm_prefetch((const char *)line, _MM_HINT_T0);
}

AVX512_INLINE void score_tile(struct tile *tile, const uint32_t count)
{
    const uint32_t padded = tile->rows->padded_dim;
    const uint16_t *q = tile->q + (size_t)tile->row * padded;
    const struct block_parts *parts = tile->parts;
    __m512 scores[TILE_ROWS][BLOCK_PARTS];
    UNROLL for (uint32_t r = 0; r < count; r++) UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++)
        scores[r][i] = _mm512_setzero_ps();
    for (size_t dim = 0, at = 0; dim < padded; dim += 2, at += 64) {
        __m512 k[BLOCK_PARTS];
        UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++) k[i] = load_pairs(parts->k[i] + at);
        if (tile->ahead)
            UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++) ask(tile->ahead->k[i] + at);
        UNROLL for (uint32_t r = 0; r < count; r++)
        {
            const __m512 pair = broadcast_pair(q + r * padded + dim);
            UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++) DOT_PAIRS(scores[r][i], k[i], pair);
        }
    }
    UNROLL for (uint32_t r = 0; r < count; r++) weigh_row(tile, r, scores[r]);
}

/* values = values * correction + weights * V for the first `pairs` pairs and 16 * vectors dims. */
AVX512_INLINE void add_values(struct tile *tile, const uint32_t count, const uint32_t vectors,
                              uint32_t dim, uint32_t pairs)
{
    enum { PART_PAIRS = KV_BLOCK_TOKENS / 2 };
    const uint32_t padded = tile->rows->padded_dim;
    const uint16_t *weights = tile->weights + (size_t)tile->row * ATTENTION_BLOCK;
    float *values = tile->sums->values + (size_t)tile->row * padded + dim;
    __m512 sums[TILE_ROWS][DIM_VECTORS];
    UNROLL for (uint32_t r = 0; r < count; r++) UNROLL for (uint32_t i = 0; i < vectors; i++)
        sums[r][i] = _mm512_mul_ps(_mm512_loadu_ps(values + r * padded + (size_t)i * 16),
                                   _mm512_set1_ps(tile->corrections[r]));
    for (uint32_t first = 0; first < pairs; first += PART_PAIRS) {
        const uint32_t part = first / PART_PAIRS;
        const uint8_t *from = tile->parts->v[part] + (size_t)dim * 4;
        const uint32_t end = pairs - first < PART_PAIRS ? pairs - first : PART_PAIRS;
        const uint8_t *ahead = tile->ahead ? tile->ahead->v[part] + (size_t)dim * 4 : NULL;
        for (uint32_t pair = 0; pair < end; pair++, from += (size_t)padded * 4) {
            __m512 v[DIM_VECTORS];
            UNROLL for (uint32_t i = 0; i < vectors; i++) v[i] = load_pairs(from + (size_t)i * 64);
            if (ahead)
                UNROLL for (uint32_t i = 0; i < vectors; i++)
                    ask(ahead + (size_t)pair * padded * 4 + (size_t)i * 64);
            UNROLL for (uint32_t r = 0; r < count; r++)
            {
                const __m512 weight =
                    broadcast_pair(weights + r * ATTENTION_BLOCK + (first + pair) * 2);
                UNROLL for (uint32_t i = 0; i < vectors; i++) DOT_PAIRS(sums[r][i], v[i], weight);
            }
        }
    }
    UNROLL for (uint32_t r = 0; r < count; r++) UNROLL for (uint32_t i = 0; i < vectors; i++)
        _mm512_storeu_ps(values + r * padded + (size_t)i * 16, sums[r][i]);
}

/* The pairs from `pair` on that this row sees and the first row of its tile does not see whole. A
 * token of the last pair that the row does not see counts as zero, whatever stands in the page. */
AVX512_INLINE void add_tail(struct tile *tile, uint32_t row, uint32_t pair)
{
    const uint32_t padded = tile->rows->padded_dim;
    const uint32_t visible = visible_in_block(tile->rows, row, tile->first);
    const uint16_t *weights = tile->weights + (size_t)row * ATTENTION_BLOCK;
    for (; pair * 2 < visible; pair++) {
        const uint32_t token = pair * 2;
        const uint8_t *from = tile->parts->v[token / KV_BLOCK_TOKENS] +
                              (size_t)(token % KV_BLOCK_TOKENS / 2) * padded * 4;
        const __m512i seen = _mm512_set1_epi32(token + 1 < visible ? -1 : 0xffff);
        const __m512 weight = broadcast_pair(weights + token);
        for (size_t dim = 0; dim < padded; dim += 16) {
            float *at = tile->sums->values + (size_t)row * padded + dim;
            const __m512 v =
                _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(from + dim * 4), seen));
            __m512 sum = _mm512_loadu_ps(at);
            DOT_PAIRS(sum, v, weight);
            _mm512_storeu_ps(at, sum);
        }
    }
}

AVX512_INLINE void attend_tile(struct tile *tile, const uint32_t count)
{
    const uint32_t padded = tile->rows->padded_dim;
    const uint32_t pairs = visible_in_block(tile->rows, tile->row, tile->first) / 2;
    score_tile(tile, count);
    uint32_t dim = 0;
    for (; dim + 64 <= padded; dim += 64)
        add_values(tile, count, 4, dim, pairs);
    for (; dim < padded; dim += 16)
        add_values(tile, count, 1, dim, pairs);
    for (uint32_t r = 0; r < count; r++)
        if (visible_in_block(tile->rows, tile->row + r, tile->first) > 2 * pairs)
            add_tail(tile, tile->row + r, pairs);
}

/* Rows from `row` on in tiles of 6 or fewer, shared out evenly. */
static void attend_block(const struct attention_rows *rows, const struct attention_space *space,
                         uint32_t row, uint32_t first, struct attention_sums *sums)
{
    const uint32_t end = rows->task->row_count;
    const uint32_t longest = rows->visible[end - 1];
    struct block_parts parts;
    struct block_parts ahead;
    block_parts_find(rows->task, first, longest - first, &parts);
    struct tile tile = {.rows = rows,
                        .q = space->q,
                        .weights = (uint16_t *)(void *)space->weights,
                        .parts = &parts,
                        .sums = sums,
                        .first = first};
    if (longest - first > ATTENTION_BLOCK) {
        const uint32_t next = first + ATTENTION_BLOCK;
        block_parts_find(rows->task, next, longest - next, &ahead);
        tile.ahead = &ahead;
    }
    for (uint32_t left = (end - row + TILE_ROWS - 1) / TILE_ROWS; left > 0; left--) {
        const uint32_t count = (end - row + left - 1) / left;
        tile.row = row;
        switch (count) {
        case 6:
            attend_tile(&tile, 6);
            break;
        case 5:
            attend_tile(&tile, 5);
            break;
        case 4:
            attend_tile(&tile, 4);
            break;
        case 3:
            attend_tile(&tile, 3);
            break;
        case 2:
            attend_tile(&tile, 2);
            break;
        default:
            attend_tile(&tile, 1);
            break;
        }
        tile.ahead = NULL;
        row += count;
    }
}

/* Queries times the scale, to bf16, padded with zeros. */
AVX512_INLINE void scale_queries(const struct attention_rows *rows, uint16_t *out)
{
    const struct attention_task *task = rows->task;
    const __m512 scale = _mm512_set1_ps(task->scale * EXP2_LOG2E);
    for (uint32_t r = 0; r < task->row_count; r++, out += rows->padded_dim) {
        for (uint32_t dim = 0; dim < rows->padded_dim; dim += 16) {
            const uint32_t left = task->head_dim - dim;
            const __mmask16 in = (__mmask16)(left < 16 ? (1u << left) - 1 : 0xffff);
            const __m512 q = _mm512_maskz_loadu_ps(in, rows->q[r] + dim);
            _mm256_storeu_si256((__m256i *)(void *)(out + dim),
                                (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(q, scale)));
        }
    }
}

__attribute__((noinline)) static void attend(const struct attention_task *task)
{
    struct attention_rows rows;
    attention_rows_find(&rows, task);
    const struct attention_space space = attention_space_place(task, rows.padded_dim);
    scale_queries(&rows, space.q);
    attention_walk(&rows, &space, attend_block);
}

void attention_bf16__avx512bf16_6x64(const struct attention_task *task)
{
    const uint64_t saved = float_flush_begin();
    attend(task);
    float_flush_end(saved);
}
