/* Causal attention over bf16 and int8 pages, up to 24 query rows together. A tile is a block of 64
 * tokens and up to 6 rows, and goes through three steps: scores with tokens in lanes and the rows'
 * new maxima; weights; the weighted sum of V with dims in lanes, 64 dims at a time. Each step
 * leaves what it made in memory, and while a tile is scored the one before it is weighed and the
 * one before that is summed: so no step waits for the result of another, and the CPU finds work of
 * the next step while the last results of one are on their way. The tiles of a block ask for the
 * next block's K and V, which a decode step finds in memory only, each for its share. int8 is
 * widened to bf16 in registers, by the first tile of a block, and for the others in the scratch. */
#include "kernels/attention_bf16.h"
#include "kernels/attention_widen_avx512.h"
#include "kernels/lanes_avx512.h"

enum { TILE_ROWS = 6, DIM_VECTORS = 4, STEPS = 3, PART_PAIRS = KV_BLOCK_TOKENS / 2 };

#define DOT_PAIRS(sum, a, b) __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b))

/* Where a tile's K and V stand: in bf16 pages; in int8 pages, from which they are widened; in the
 * scratch, widened by the block's first tile. It asks for pages of the same kind. */
enum tile_form { FORM_BF16, FORM_I8, FORM_I8_KEPT };
struct block_pages {
    enum tile_form form;
    struct block_parts parts;
    struct block_scales scales; /* FORM_I8 */
    uint16_t *kept_k, *kept_v;  /* FORM_I8: [part][16 * padded_dim] to be filled, or NULL */
};

/* What a tile asks for while it is scored and summed: of the next block 4 >> shift quarters, from
 * `quarter` on, in the order in which they will be read: the lines of a pair in each 1 << shift
 * pairs. */
struct block_asks {
    struct block_parts ahead;
    struct block_scales scales;
    uint32_t quarter, shift, mask; /* mask: no pair asks that has not all of its bits */
    bool alone; /* no other tile does. In bf16 it then asks in line_asks, and of this block too,
                 * for what did not come, ASK_AGAIN_BYTES on, and reads at the pace of the
                 * arithmetic; V of more than 64 dims it sums in groups of GROUP_PAIRS */
};
enum { ASK_AGAIN_BYTES = 1024, GROUP_PAIRS = 4 };

/* What bf16 tiles that are alone ask for in a step of the pipeline: the K that is scored next and
 * the V that is summed next, line by line as they stand in memory and both at once. For memory that
 * is two streams all the time, of which it makes more than of the four parts of one of them after
 * those of the other. Each entry points to two parts in a row. */
struct line_asks {
    const uint8_t *const *scoring[2], *const *summing[2];
};

struct tile {
    const struct attention_rows *rows;
    uint32_t row, count; /* its rows */
    uint32_t first;      /* token of the block */
    bool whole;          /* every row sees all of the block */
    struct block_pages pages;
    struct block_asks asks;
    float maxima[LANE_COUNT], corrections[LANE_COUNT];
    float scores[TILE_ROWS][ATTENTION_BLOCK];
    uint16_t weights[TILE_ROWS][ATTENTION_BLOCK];
};

/* The tiles of a task that are under way: `begun` counts all since the last one was settled. */
struct pipeline {
    const struct attention_sums *sums;
    const uint16_t *q; /* [padded_dim / 2][24 rows][2 dims] */
    uint32_t begun;
    struct line_asks lines;
    struct tile tiles[STEPS];
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

AVX512_INLINE void ask(const uint8_t *line)
{
    _mm_prefetch((const char *)line, _MM_HINT_T0);
}

/* The offset, but known only when the sums are: what lies ahead is then asked for, and what comes
 * next read, at the pace of the arithmetic. A CPU that asks and reads as soon as it comes to see an
 * address has more under way than it can follow, and all of it arrives later. */
AVX512_INLINE size_t offset_after(size_t offset, __m512 sums)
{
    uint64_t zero;
    __asm__("vmovq %x1, %0\n\tand $0, %0" : "=r"(zero) : "v"(sums) : "cc");
    return offset + zero;
}

/* Asks for `lines` lines of each of two streams from `offset` on, which is even in lines where
 * `lines` is, so that they are all of one part. */
AVX512_INLINE void ask_streams(const uint8_t *const *const streams[2], size_t offset,
                               size_t part_bytes, const uint32_t lines)
{
    const size_t second = offset >= part_bytes;
    offset -= second * part_bytes;
    UNROLL for (uint32_t i = 0; i < lines; i++)
    {
        ask(streams[0][second] + offset + (size_t)i * 64);
        ask(streams[1][second] + offset + (size_t)i * 64);
    }
}

/* A block's parts, and the scales of int8. */
AVX512_INLINE void block_find(const struct attention_task *task, uint32_t first,
                              struct block_span seen, struct block_parts *parts,
                              struct block_scales *scales)
{
    block_parts_find(task, first, seen, parts);
    if (task->kv->dtype == KV_I8)
        block_scales_find(task, first, seen, scales);
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

AVX512_INLINE __m512 tanh_avx512(__m512 x)
{
    x = _mm512_min_ps(_mm512_set1_ps(TANH_HIGHEST), x); /* in this order a NaN stays */
    x = _mm512_max_ps(_mm512_set1_ps(-TANH_HIGHEST), x);
    const __m512 square = _mm512_mul_ps(x, x);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(TANH_P4), square, _mm512_set1_ps(TANH_P3));
    p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(TANH_P2));
    p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(TANH_P1));
    p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(1.0f));
    __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(TANH_Q4), square, _mm512_set1_ps(TANH_Q3));
    q = _mm512_fmadd_ps(q, square, _mm512_set1_ps(TANH_Q2));
    q = _mm512_fmadd_ps(q, square, _mm512_set1_ps(TANH_Q1));
    q = _mm512_fmadd_ps(q, square, _mm512_set1_ps(1.0f));
    return _mm512_div_ps(_mm512_mul_ps(x, p), q);
}

/* Scores of 16 tokens, capped. */
AVX512_INLINE __m512 cap_avx512(const struct attention_cap *cap, __m512 scores)
{
    const __m512 x = _mm512_mul_ps(scores, _mm512_set1_ps(cap->inverse));
    return _mm512_mul_ps(_mm512_set1_ps(cap->cap), tanh_avx512(x));
}

/* Lane r is the largest of the lanes of row r, r < 8; there is no NaN among them. */
AVX512_INLINE __m512 largest_of_rows(const __m512 rows[8])
{
    __m512 pairs[4];
    __m512 quads[2];
    UNROLL for (int i = 0; i < 4; i++) pairs[i] =
        _mm512_max_ps(_mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]),
                      _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]));
    UNROLL for (int i = 0; i < 2; i++)
    {
        const __m512d even = _mm512_castps_pd(pairs[2 * i]);
        const __m512d odd = _mm512_castps_pd(pairs[2 * i + 1]);
        quads[i] = _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(even, odd)),
                                 _mm512_castpd_ps(_mm512_unpackhi_pd(even, odd)));
    }
    /* Quarters: two of the first four rows, two of the others; then all in all of them. */
    __m512 all = _mm512_max_ps(_mm512_shuffle_f32x4(quads[0], quads[1], 0x44),
                               _mm512_shuffle_f32x4(quads[0], quads[1], 0xee));
    all = _mm512_max_ps(all, _mm512_shuffle_f32x4(all, all, 0xb1));
    return _mm512_shuffle_f32x4(all, all, 0x08);
}

/* New maxima and corrections of the rows, from the largest lanes of each. Maxima are read and
 * written 16 together, of rows of other tiles as they are and of the room behind the last: a masked
 * access that reaches into a memory page that nobody touched yet takes longer than all else. */
AVX512_INLINE void raise_maxima(const struct pipeline *pipeline, struct tile *tile,
                                const __m512 largest[8])
{
    const __mmask16 rows = (__mmask16)((1u << tile->count) - 1);
    float *kept = pipeline->sums->maximum + tile->row;
    const __m512 before = _mm512_loadu_ps(kept);
    const __m512 maxima = _mm512_mask_max_ps(before, rows, largest_of_rows(largest), before);
    _mm512_storeu_ps(kept, maxima);
    _mm512_storeu_ps(tile->maxima, maxima);
    _mm512_storeu_ps(tile->corrections, exp2_avx512(_mm512_sub_ps(before, maxima)));
}

/* Bit t: the row sees token t of the block. */
AVX512_INLINE uint64_t seen_mask(const struct tile *tile, uint32_t row)
{
    const struct block_span seen = seen_in_block(tile->rows, row, tile->first);
    return (UINT64_MAX >> (ATTENTION_BLOCK - seen.to)) & (UINT64_MAX << seen.from);
}

/* The soft cap, -infinity where a row does not see, and the maxima, for scores in memory. */
__attribute__((noinline)) static void mask_tile(const struct pipeline *pipeline, struct tile *tile)
{
    const struct attention_task *task = tile->rows->task;
    const struct attention_cap cap = attention_cap_base2(task);
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    __m512 largest[8];
    for (uint32_t r = 0; r < 8; r++)
        largest[r] = lowest;
    for (uint32_t r = 0; r < tile->count; r++) {
        const uint64_t seen = seen_mask(tile, tile->row + r);
        for (uint32_t i = 0; i < BLOCK_PARTS; i++) {
            float *at = tile->scores[r] + (size_t)i * 16;
            __m512 scores = _mm512_loadu_ps(at);
            if (task->soft_cap != 0.0f)
                scores = cap_avx512(&cap, scores);
            scores = _mm512_mask_blend_ps((__mmask16)(seen >> (16 * i)), lowest, scores);
            _mm512_storeu_ps(at, scores);
            largest[r] = _mm512_max_ps(scores, largest[r]);
        }
    }
    raise_maxima(pipeline, tile, largest);
}

/* The first step. */
AVX512_INLINE void score_tile(const struct pipeline *pipeline, struct tile *tile,
                              const uint32_t count, const enum tile_form form)
{
    const uint32_t pairs = tile->rows->padded_dim / 2;
    const uint32_t line_pairs = form == FORM_BF16 ? 1 : 2; /* pairs of 16 tokens in a line ahead */
    const uint16_t *q = pipeline->q + (size_t)tile->row * 2;
    __m512 lanes[BLOCK_PARTS][2];
    if (form == FORM_I8)
        UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++)
            scales_of_k(tile->pages.scales.k[i], lanes[i]);
    if (form != FORM_BF16 && tile->asks.quarter == 0 && tile->asks.mask != UINT32_MAX)
        UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++)
        {
            ask((const uint8_t *)tile->asks.scales.k[i]);
            ask((const uint8_t *)tile->asks.scales.v[i]);
        }
    __m512 scores[TILE_ROWS][BLOCK_PARTS];
    UNROLL for (uint32_t r = 0; r < count; r++) UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++)
        scores[r][i] = _mm512_setzero_ps();
    const uint32_t ask_mask = (tile->asks.mask + 1) * line_pairs - 1;
    size_t ahead = (size_t)tile->asks.quarter * pairs / BLOCK_PARTS / line_pairs * 64;
    for (uint32_t pair = 0; pair < pairs; pair++) {
        size_t at = (size_t)pair * (form == FORM_I8 ? 32 : 64);
        __m512 k[BLOCK_PARTS];
        if (form == FORM_BF16 && tile->asks.alone) {
            at = offset_after(at, scores[0][0]);
            UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++)
                ask(tile->pages.parts.k[i] + at + ASK_AGAIN_BYTES);
        }
        UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++) k[i] =
            form == FORM_I8 ? widen_pairs(tile->pages.parts.k[i] + at, lanes[i])
                            : load_pairs(tile->pages.parts.k[i] + at);
        if (form == FORM_I8 && tile->pages.kept_k)
            UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++)
                _mm512_storeu_ps(tile->pages.kept_k + ((size_t)i * pairs + pair) * 32, k[i]);
        if (form == FORM_BF16 && tile->asks.alone) {
            const size_t line = offset_after(2 * at, scores[count - 1][BLOCK_PARTS - 1]);
            ask_streams(pipeline->lines.scoring, line, (size_t)pairs * 64, 2);
        } else if ((pair & ask_mask) == ask_mask) {
            ahead = offset_after(ahead, scores[count - 1][BLOCK_PARTS - 1]);
            UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++) ask(tile->asks.ahead.k[i] + ahead);
            ahead += 64;
        }
        UNROLL for (uint32_t r = 0; r < count; r++)
        {
            const __m512 both = broadcast_pair(q + ((size_t)pair * ATTENTION_TILE_ROWS + r) * 2);
            UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++) DOT_PAIRS(scores[r][i], k[i], both);
        }
    }
    UNROLL for (uint32_t r = 0; r < count; r++) UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++)
        _mm512_storeu_ps(tile->scores[r] + (size_t)i * 16, scores[r][i]);
    if (!tile->whole || tile->rows->task->soft_cap != 0.0f) {
        mask_tile(pipeline, tile);
        return;
    }
    __m512 largest[8];
    UNROLL for (uint32_t r = 0; r < 8; r++) largest[r] = _mm512_set1_ps(-INFINITY);
    UNROLL for (uint32_t r = 0; r < count; r++) UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++)
        largest[r] =
            _mm512_max_ps(scores[r][i], largest[r]); /* drops a NaN, which the weights keep */
    raise_maxima(pipeline, tile, largest);
}

/* The second step: scores become weights in bf16, and sums of them by lane. */
AVX512_INLINE void weigh_tile(const struct pipeline *pipeline, struct tile *tile)
{
    for (uint32_t r = 0; r < tile->count; r++) {
        const __m512 maximum = _mm512_set1_ps(tile->maxima[r]);
        __m512 w[BLOCK_PARTS];
        UNROLL for (uint32_t i = 0; i < BLOCK_PARTS; i++) w[i] =
            exp2_avx512(_mm512_sub_ps(_mm512_loadu_ps(tile->scores[r] + (size_t)i * 16), maximum));
        _mm512_storeu_si512(tile->weights[r], (__m512i)_mm512_cvtne2ps_pbh(w[1], w[0]));
        _mm512_storeu_si512(tile->weights[r] + 32, (__m512i)_mm512_cvtne2ps_pbh(w[3], w[2]));
        float *lanes = pipeline->sums->lanes + (size_t)(tile->row + r) * LANE_COUNT;
        const __m512 sum = _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(w[0], w[1]), w[2]), w[3]);
        _mm512_storeu_ps(lanes, _mm512_fmadd_ps(_mm512_loadu_ps(lanes),
                                                _mm512_set1_ps(tile->corrections[r]), sum));
    }
}

/* Where the pair of the next block's V stands that is asked for with `pair`. */
AVX512_INLINE const uint8_t *line_ahead(const struct block_asks *asks, uint32_t pair,
                                        size_t pair_bytes)
{
    const uint32_t to_ask = asks->quarter * PART_PAIRS + (pair >> asks->shift);
    return asks->ahead.v[to_ask / PART_PAIRS] + to_ask % PART_PAIRS * pair_bytes;
}

/* Pairs that are summed for all dims before the next are. */
AVX512_INLINE uint32_t group_pairs(const struct tile *tile, const enum tile_form form)
{
    const bool small = form == FORM_BF16 && tile->asks.alone && tile->rows->padded_dim > 64;
    return small ? GROUP_PAIRS : ATTENTION_BLOCK / 2;
}

/* The offset in its streams of what a bf16 tile that is alone asks for with `pair`, where it sums
 * `group` pairs of 16 * vectors dims from `dim` on, after those of the dims before. */
AVX512_INLINE size_t stream_offset(uint32_t padded, uint32_t group, const uint32_t vectors,
                                   uint32_t dim, uint32_t pair)
{
    return (size_t)pair / group * group * padded * 2 + (size_t)group * dim * 2 +
           (size_t)pair % group * vectors * 32;
}

/* values = values * correction + weights * V for the pairs [from, to) and 16 * vectors dims. */
AVX512_INLINE void add_values(const struct pipeline *pipeline, const struct tile *tile,
                              const uint32_t count, const enum tile_form form,
                              const uint32_t vectors, uint32_t dim, uint32_t from, uint32_t to)
{
    const uint32_t padded = tile->rows->padded_dim;
    const uint32_t group = group_pairs(tile, form);
    const size_t element = form == FORM_I8 ? 1 : 2;
    const size_t element_ahead = form == FORM_BF16 ? 2 : 1;
    const uint32_t lines_ahead = form == FORM_BF16 ? vectors : (vectors + 1) / 2;
    float *values = pipeline->sums->values + (size_t)tile->row * padded + dim;
    __m512 sums[TILE_ROWS][DIM_VECTORS];
    UNROLL for (uint32_t r = 0; r < count; r++) UNROLL for (uint32_t i = 0; i < vectors; i++)
        sums[r][i] = _mm512_mul_ps(_mm512_loadu_ps(values + r * padded + (size_t)i * 16),
                                   _mm512_set1_ps(tile->corrections[r]));
    for (uint32_t first = from; first < to;) {
        const uint32_t part = first / PART_PAIRS;
        const size_t at = (size_t)(first % PART_PAIRS) * padded + dim;
        const uint8_t *at_v = tile->pages.parts.v[part] + 2 * at * element;
        const size_t ahead_bytes = 2 * padded * element_ahead;
        const uint8_t *line = line_ahead(&tile->asks, first, ahead_bytes) + 2 * dim * element_ahead;
        const uint32_t end = (part + 1) * PART_PAIRS < to ? (part + 1) * PART_PAIRS : to;
        size_t offset = stream_offset(padded, group, vectors, dim, first);
        for (uint32_t pair = first; pair < end; pair++, at_v += 2 * padded * element) {
            __m512 v[DIM_VECTORS];
            if (form == FORM_BF16 && tile->asks.alone) {
                at_v += offset_after(0, sums[0][0]);
                UNROLL for (uint32_t i = 0; i < vectors; i++)
                    ask(at_v + (size_t)i * 64 + ASK_AGAIN_BYTES);
            }
            if (form == FORM_I8) {
                __m512 lanes[2];
                scales_of_v(tile->pages.scales.v[part] + (size_t)(pair % PART_PAIRS) * 2, lanes);
                UNROLL for (uint32_t i = 0; i < vectors; i++) v[i] =
                    widen_pairs(at_v + (size_t)i * 32, lanes);
                if (tile->pages.kept_v)
                    UNROLL for (uint32_t i = 0; i < vectors; i++) _mm512_storeu_ps(
                        tile->pages.kept_v + ((size_t)pair * padded + dim + i * 16) * 2, v[i]);
            } else {
                UNROLL for (uint32_t i = 0; i < vectors; i++) v[i] =
                    load_pairs(at_v + (size_t)i * 64);
            }
            if (form == FORM_BF16 && tile->asks.alone) {
                offset += offset_after(0, sums[count - 1][vectors - 1]);
                if (vectors > 1 || pair % 2 == 0)
                    ask_streams(pipeline->lines.summing, offset, (size_t)padded * 32,
                                (vectors + 1) / 2);
                offset += vectors * 32;
            } else if ((pair & tile->asks.mask) == tile->asks.mask) {
                line += offset_after(0, sums[count - 1][vectors - 1]);
                UNROLL for (uint32_t i = 0; i < lines_ahead; i++) ask(line + (size_t)i * 64);
                line += ahead_bytes;
            }
            UNROLL for (uint32_t r = 0; r < count; r++)
            {
                const __m512 weight = broadcast_pair(tile->weights[r] + pair * 2);
                UNROLL for (uint32_t i = 0; i < vectors; i++) DOT_PAIRS(sums[r][i], v[i], weight);
            }
        }
        first = end;
    }
    UNROLL for (uint32_t r = 0; r < count; r++) UNROLL for (uint32_t i = 0; i < vectors; i++)
        _mm512_storeu_ps(values + r * padded + (size_t)i * 16, sums[r][i]);
}

/* The pairs [pair, end) of one row, not all tokens of which it sees. Those that it does not see
 * count as zero, whatever stands in the page. */
AVX512_INLINE void add_edge(const struct pipeline *pipeline, const struct tile *tile, uint32_t r,
                            uint32_t pair, uint32_t end)
{
    const uint32_t padded = tile->rows->padded_dim;
    const uint64_t mask = seen_mask(tile, tile->row + r);
    float *values = pipeline->sums->values + (size_t)(tile->row + r) * padded;
    for (; pair < end; pair++) {
        const uint32_t token = pair * 2;
        const uint8_t *from = tile->pages.parts.v[token / KV_BLOCK_TOKENS] +
                              (size_t)(token % KV_BLOCK_TOKENS / 2) * padded * 4;
        const uint64_t both = mask >> token & 3;
        const __m512i seen =
            _mm512_set1_epi32((int)((both & 1 ? 0xffffu : 0) | (both & 2 ? 0xffff0000u : 0)));
        const __m512 weight = broadcast_pair(tile->weights[r] + token);
        for (size_t dim = 0; dim < padded; dim += 16) {
            const __m512 v =
                _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(from + dim * 4), seen));
            __m512 sum = _mm512_loadu_ps(values + dim);
            DOT_PAIRS(sum, v, weight);
            _mm512_storeu_ps(values + dim, sum);
        }
    }
}

AVX512_INLINE void correct_row(const struct pipeline *pipeline, const struct tile *tile, uint32_t r)
{
    const uint32_t padded = tile->rows->padded_dim;
    float *values = pipeline->sums->values + (size_t)(tile->row + r) * padded;
    for (size_t dim = 0; dim < padded; dim += 16)
        _mm512_storeu_ps(values + dim, _mm512_mul_ps(_mm512_loadu_ps(values + dim),
                                                     _mm512_set1_ps(tile->corrections[r])));
}

AVX512_INLINE void add_group(const struct pipeline *pipeline, const struct tile *tile,
                             const uint32_t count, const enum tile_form form, uint32_t from,
                             uint32_t to)
{
    const uint32_t padded = tile->rows->padded_dim;
    uint32_t dim = 0;
    for (; dim + 64 <= padded; dim += 64)
        add_values(pipeline, tile, count, form, 4, dim, from, to);
    if (dim + 32 <= padded) {
        add_values(pipeline, tile, count, form, 2, dim, from, to);
        dim += 32;
    }
    if (dim < padded)
        add_values(pipeline, tile, count, form, 1, dim, from, to);
}

/* The pairs [from, to), which every row sees. In groups, what is read next stands next. */
AVX512_INLINE void add_pairs(const struct pipeline *pipeline, struct tile *tile,
                             const uint32_t count, const enum tile_form form, uint32_t from,
                             uint32_t to)
{
    const uint32_t group = group_pairs(tile, form);
    for (;;) {
        const uint32_t next = (from / group + 1) * group;
        const uint32_t end = next < to ? next : to;
        add_group(pipeline, tile, count, form, from, end);
        if (end == to)
            return;
        _mm512_storeu_ps(tile->corrections, _mm512_set1_ps(1.0f)); /* they count once */
        from = end;
    }
}

/* The third step. Where rows do not see the whole block: for every row its pairs before those that
 * all rows see whole, then those, then the rest. */
AVX512_INLINE void add_tile(const struct pipeline *pipeline, struct tile *tile,
                            const uint32_t count, const enum tile_form form)
{
    if (form == FORM_I8) {
        add_pairs(pipeline, tile, count, form, 0, ATTENTION_BLOCK / 2);
        return;
    }
    const struct block_span top = seen_in_block(tile->rows, tile->row, tile->first);
    const struct block_span bottom = seen_in_block(tile->rows, tile->row + count - 1, tile->first);
    const uint32_t from = (bottom.from + 1) / 2;
    const uint32_t to = top.to / 2 < from ? from : top.to / 2;
    for (uint32_t r = 0; from > 0 && r < count; r++) {
        const struct block_span seen = seen_in_block(tile->rows, tile->row + r, tile->first);
        const uint32_t end = (seen.to + 1) / 2;
        correct_row(pipeline, tile, r);
        tile->corrections[r] = 1.0f;
        add_edge(pipeline, tile, r, seen.from / 2, end < from ? end : from);
    }
    add_pairs(pipeline, tile, count, form, from, to);
    for (uint32_t r = 0; !tile->whole && r < count; r++) {
        const struct block_span seen = seen_in_block(tile->rows, tile->row + r, tile->first);
        add_edge(pipeline, tile, r, to, (seen.to + 1) / 2);
    }
}

/* A step with the number of rows as a constant. */
#define BY_COUNT(step, pipeline, tile, form)                                                       \
    switch ((tile)->count) {                                                                       \
    case 6:                                                                                        \
        step(pipeline, tile, 6, form);                                                             \
        break;                                                                                     \
    case 5:                                                                                        \
        step(pipeline, tile, 5, form);                                                             \
        break;                                                                                     \
    case 4:                                                                                        \
        step(pipeline, tile, 4, form);                                                             \
        break;                                                                                     \
    case 3:                                                                                        \
        step(pipeline, tile, 3, form);                                                             \
        break;                                                                                     \
    case 2:                                                                                        \
        step(pipeline, tile, 2, form);                                                             \
        break;                                                                                     \
    default:                                                                                       \
        step(pipeline, tile, 1, form);                                                             \
        break;                                                                                     \
    }

static void tile_score(const struct pipeline *pipeline, struct tile *tile)
{
    if (tile->pages.form == FORM_BF16) {
        BY_COUNT(score_tile, pipeline, tile, FORM_BF16)
    } else if (tile->pages.form == FORM_I8) {
        BY_COUNT(score_tile, pipeline, tile, FORM_I8)
    } else {
        BY_COUNT(score_tile, pipeline, tile, FORM_I8_KEPT)
    }
}

static void tile_add(const struct pipeline *pipeline, struct tile *tile)
{
    if (tile->pages.form == FORM_BF16) {
        BY_COUNT(add_tile, pipeline, tile, FORM_BF16)
    } else if (tile->pages.form == FORM_I8) {
        BY_COUNT(add_tile, pipeline, tile, FORM_I8)
    } else {
        BY_COUNT(add_tile, pipeline, tile, FORM_I8_KEPT)
    }
}

/* The tile begun `age` tiles before the newest. */
AVX512_INLINE struct tile *tile_of_age(struct pipeline *pipeline, uint32_t age)
{
    return &pipeline->tiles[(pipeline->begun - 1 - age) % STEPS];
}

/* Shares what tiles that are alone ask for: where one is scored and one summed, each step asks for
 * half of the K and half of the V, else for all of its own. NULL is none. */
static void lines_share(struct line_asks *lines, const struct tile *scored,
                        const struct tile *summed)
{
    const uint8_t *const *k = scored ? scored->asks.ahead.k : NULL;
    const uint8_t *const *v = summed ? summed->asks.ahead.v : NULL;
    const bool both = k && v && scored->asks.alone && summed->asks.alone;
    if (k) {
        lines->scoring[0] = k;
        lines->scoring[1] = both ? v : k + 2;
    }
    if (v) {
        lines->summing[0] = both ? k + 2 : v;
        lines->summing[1] = v + 2;
    }
}

/* The newest tile takes its first step, those before it their second and third. */
static void pipeline_step(struct pipeline *pipeline)
{
    lines_share(&pipeline->lines, tile_of_age(pipeline, 0),
                pipeline->begun > 2 ? tile_of_age(pipeline, 2) : NULL);
    tile_score(pipeline, tile_of_age(pipeline, 0));
    if (pipeline->begun > 1)
        weigh_tile(pipeline, tile_of_age(pipeline, 1));
    if (pipeline->begun > 2)
        tile_add(pipeline, tile_of_age(pipeline, 2));
}

/* All that was begun takes its last steps. */
static void pipeline_settle(struct pipeline *pipeline)
{
    if (pipeline->begun == 0)
        return;
    weigh_tile(pipeline, tile_of_age(pipeline, 0));
    for (uint32_t age = pipeline->begun > 1 ? 2 : 1; age-- > 0;) {
        lines_share(&pipeline->lines, NULL, tile_of_age(pipeline, age));
        tile_add(pipeline, tile_of_age(pipeline, age));
    }
    pipeline->begun = 0;
}

static void settle(const struct attention_space *space)
{
    pipeline_settle(space->under_way);
}

/* Where the block stands that is read after the one at `first`: the rows' next one, or the first of
 * the task that probably comes then. False if there is none, and nothing was written. */
static bool find_ahead(const struct attention_rows *rows, uint32_t first, struct block_asks *asks)
{
    const struct attention_task *task = rows->task;
    const struct row_range all = {0, task->row_count};
    const uint32_t next = first + ATTENTION_BLOCK;
    if (rows->visible[all.end - 1] > next && next / ATTENTION_SEGMENT < task->segment_end) {
        block_find(task, next, seen_by_range(rows, all, next), &asks->ahead, &asks->scales);
        return true;
    }
    if (!task->next.slots)
        return false;
    const uint32_t block = task->next.first / ATTENTION_BLOCK * ATTENTION_BLOCK;
    const uint32_t left = task->next.end - block;
    const struct block_span seen = {task->next.first - block,
                                    left < ATTENTION_BLOCK ? left : ATTENTION_BLOCK};
    const struct attention_task then = {
        .kv = task->kv, .slots = task->next.slots, .kv_head = task->next.kv_head};
    block_find(&then, block, seen, &asks->ahead, &asks->scales);
    return true;
}

static void asks_end(struct block_asks *asks)
{
    asks->shift = 0;
    asks->quarter = 0;
    asks->alone = false;
    asks->mask = UINT32_MAX;
}

/* What the first of the tiles of the block at `first` asks for. */
static void asks_begin(const struct attention_rows *rows, uint32_t first,
                       const struct block_parts *parts, uint32_t tiles, struct block_asks *asks)
{
    asks_end(asks);
    if (find_ahead(rows, first, asks)) {
        asks->shift = tiles < 3 ? tiles - 1 : tiles / 2;
        asks->mask = (1u << asks->shift) - 1;
        asks->alone = tiles == 1; /* of more the first waits, and the others go on meanwhile */
    } else {
        asks->ahead = *parts;
    }
}

/* What the next tile of the block asks for. */
static void asks_go_on(struct block_asks *asks)
{
    asks->quarter += BLOCK_PARTS >> asks->shift;
    if (asks->quarter >= BLOCK_PARTS)
        asks_end(asks);
}

/* Where the block at `first` is read. An int8 block of which a row does not see all is widened to
 * the scratch at once. */
static void pages_find(const struct attention_rows *rows, const struct attention_space *space,
                       struct row_range range, uint32_t first, uint32_t tiles,
                       struct block_pages *pages)
{
    const struct block_span seen = seen_by_range(rows, range, first);
    block_find(rows->task, first, seen, &pages->parts, &pages->scales);
    pages->form = FORM_BF16;
    if (rows->task->kv->dtype != KV_I8)
        return;
    pages->form = FORM_I8;
    pages->kept_k = tiles > 1 ? space->widened_k : NULL;
    pages->kept_v = tiles > 1 ? space->widened_v : NULL;
    if (seen_in_block(rows, range.first, first).to < ATTENTION_BLOCK ||
        seen_in_block(rows, range.end - 1, first).from > 0) {
        pipeline_settle(space->under_way); /* it reads what is overwritten here */
        block_widen(rows, space, first, seen);
        block_parts_place(rows, space, seen, &pages->parts);
        pages->form = FORM_I8_KEPT;
    }
}

/* The rows of the range in tiles of 6 or fewer, shared out evenly. */
static void attend_block(const struct attention_rows *rows, const struct attention_space *space,
                         struct row_range range, uint32_t first, const struct attention_sums *sums)
{
    struct pipeline *pipeline = space->under_way;
    const uint32_t tiles = (range.end - range.first + TILE_ROWS - 1) / TILE_ROWS;
    struct block_pages pages;
    struct block_asks asks;
    pages_find(rows, space, range, first, tiles, &pages);
    asks_begin(rows, first, &pages.parts, tiles, &asks);
    pipeline->sums = sums;
    uint32_t row = range.first;
    for (uint32_t left = tiles; left > 0; left--) {
        const uint32_t count = (range.end - row + left - 1) / left;
        const struct block_span top = seen_in_block(rows, row, first);
        const struct block_span bottom = seen_in_block(rows, row + count - 1, first);
        struct tile *tile = &pipeline->tiles[pipeline->begun++ % STEPS];
        tile->rows = rows;
        tile->row = row;
        tile->count = count;
        tile->first = first;
        tile->whole = top.to == ATTENTION_BLOCK && bottom.from == 0;
        tile->pages = pages;
        tile->asks = asks;
        pipeline_step(pipeline);
        asks_go_on(&asks);
        row += count;
        if (pages.form == FORM_I8) { /* the first left it for the others */
            pages.form = FORM_I8_KEPT;
            block_parts_place(rows, space, (struct block_span){0, ATTENTION_BLOCK}, &pages.parts);
        }
    }
}

/* Queries times the scale, to bf16, padded with zeros: pairs of dims, the rows side by side. */
AVX512_INLINE void scale_queries(const struct attention_rows *rows, uint16_t *out)
{
    const struct attention_task *task = rows->task;
    const __m512 scale = _mm512_set1_ps(task->scale * EXP2_LOG2E);
    const __m256i step = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                                            _mm256_set1_epi32(ATTENTION_TILE_ROWS));
    for (uint32_t r = 0; r < task->row_count; r++) {
        for (uint32_t dim = 0; dim < rows->padded_dim; dim += 16) {
            const uint32_t left = task->head_dim - dim;
            const __mmask16 in = (__mmask16)(left < 16 ? (1u << left) - 1 : 0xffff);
            const __m512 q = _mm512_maskz_loadu_ps(in, rows->q[r] + dim);
            uint16_t *to = out + ((size_t)dim / 2 * ATTENTION_TILE_ROWS + r) * 2;
            _mm256_i32scatter_epi32(to, step, (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(q, scale)),
                                    sizeof(uint32_t));
        }
    }
}

__attribute__((noinline)) static void attend(const struct attention_task *task)
{
    struct attention_rows rows;
    attention_rows_find(&rows, task);
    struct attention_space space = attention_space_place(task, rows.padded_dim);
    struct pipeline pipeline;
    pipeline.q = space.q;
    pipeline.begun = 0;
    space.under_way = &pipeline;
    scale_queries(&rows, space.q);
    attention_walk(&rows, &space, attend_block, settle);
}

void attention_bf16__avx512bf16_6x64(const struct attention_task *task)
{
    const uint64_t saved = float_flush_begin();
    attend(task);
    float_flush_end(saved);
}

void attention_i8__avx512bf16_6x64(const struct attention_task *task)
{
    attention_bf16__avx512bf16_6x64(task);
}
