/* int8 activations times 4- or 8-bit weights with vpdpbusd: up to 6 rows by two panels (32
 * outputs).
 *
 * The instruction adds four products of an unsigned and a signed byte to an int32, exactly. Weights
 * are the unsigned side, as they are stored; what the bias of Q8 and Q4 adds too much is a multiple
 * of the sum of x, with which the dot product starts.
 *
 * Rows are shared out evenly over the passes a pair of panels needs, and each pass asks for its
 * share of the panels that come next. Many rows pay for unpacking: the nibbles of a pair become
 * bytes first, in the caller's scratch, which stays in the second-level cache. */
#include "kernels/lanes_avx512.h"

enum {
    TILE_ROWS = 6,
    TILE_PANELS = 2,
    WIDE_TILE_ROWS = 3, /* so few rows go by four panels: more streams, more chains */
    WIDE_TILE_PANELS = 4,
    STREAM_ROWS = 24, /* above, unpacking once is cheaper than in every pass, and no pass is of
                       * fewer than 5 rows */
};

/* What the compiler would spill with this many accumulators, it keeps for an assembly operand. */
#define DOT_BYTES(sum, w, x) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x))

/* Two panels that follow each other, and how they are asked for. */
struct pair {
    const uint8_t *values, *scales;
    size_t stride;         /* from a panel to the next */
    size_t ahead;          /* distance of prefetches */
    uint32_t pass, passes; /* group g is asked for in pass g % passes */
};

/* 16 rows of one quad of inputs as unsigned bytes. */
AVX512_INLINE __m512i load_quad(const enum weight_kind kind, const uint8_t *group, uint32_t quad)
{
    if (!weight_kind_nibbles(kind))
        return _mm512_load_si512(group + (size_t)quad * PANEL_VECTOR_BYTES);
    __m512i bytes = _mm512_load_si512(group + (size_t)(quad % 4) * PANEL_VECTOR_BYTES);
    if (quad >= 4)
        bytes = _mm512_srli_epi16(bytes, 4);
    return _mm512_and_si512(bytes, _mm512_set1_epi8(15));
}

AVX512_INLINE __m512i broadcast_quad(const int8_t *x)
{
    int32_t quad;
    __builtin_memcpy(&quad, x, sizeof(quad));
    return _mm512_set1_epi32(quad);
}

/* The address may lie past the weight: a prefetch of nothing is no fault. */
AVX512_INLINE void prefetch_group(const enum weight_kind kind, const struct pair *pair,
                                  const uint32_t panels, const uint8_t *values,
                                  const uint8_t *scales)
{
    UNROLL for (uint32_t p = 0; p < panels; p++)
    {
        const uintptr_t ahead = pair->ahead + p * pair->stride;
        UNROLL for (uint32_t line = 0; line < panel_group_bytes(kind); line += 64)
            _mm_prefetch((const char *)((uintptr_t)values + ahead + line), _MM_HINT_T1);
        _mm_prefetch((const char *)((uintptr_t)scales + ahead), _MM_HINT_T1);
    }
}

/* dots[row][panel] of one group. */
AVX512_INLINE void dot_group(const enum weight_kind kind, const uint32_t rows,
                             const uint32_t panels, const uint8_t *values, size_t stride,
                             const struct quantized_group *x, size_t groups,
                             __m512i dots[][WIDE_TILE_PANELS])
{
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        __m512i from = _mm512_setzero_si512();
        if (kind == WEIGHT_Q8)
            from = _mm512_set1_epi32(x[r * groups].start);
        else if (kind == WEIGHT_Q4) /* a multiple of 128 becomes one of 8 */
            from = _mm512_srai_epi32(_mm512_set1_epi32(x[r * groups].start), 4);
        UNROLL for (uint32_t p = 0; p < panels; p++) dots[r][p] = from;
    }
    UNROLL for (uint32_t quad = 0; quad < WEIGHT_GROUP / 4; quad++)
    {
        __m512i w[WIDE_TILE_PANELS];
        UNROLL for (uint32_t p = 0; p < panels; p++) w[p] =
            load_quad(kind, values + p * stride, quad);
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            const __m512i quad_x = broadcast_quad(x[r * groups].q + quad * 4);
            UNROLL for (uint32_t p = 0; p < panels; p++) DOT_BYTES(dots[r][p], w[p], quad_x);
        }
    }
}

AVX512_INLINE void matmul_tile(const struct matmul_task *task, const enum weight_kind kind,
                               const bool half, const bool stream, const uint32_t rows,
                               const uint32_t panels, const struct pair *pair, uint32_t panel,
                               uint32_t row)
{
    const size_t groups = task->k / WEIGHT_GROUP;
    const uint8_t *values = pair->values;
    const uint8_t *scales = pair->scales;
    const struct quantized_group *x = (const struct quantized_group *)task->x + row * groups;
    uint32_t until_ask = pair->pass;
    __m512 sums[TILE_ROWS][WIDE_TILE_PANELS];
    UNROLL for (uint32_t r = 0; r < rows; r++) UNROLL for (uint32_t p = 0; p < panels; p++)
        sums[r][p] = _mm512_setzero_ps();
    for (size_t g = 0; g < groups; g++, x++) {
        __m512i dots[TILE_ROWS][WIDE_TILE_PANELS];
        if (stream && until_ask-- == 0) {
            prefetch_group(kind, pair, panels, values, scales);
            until_ask = pair->passes - 1;
        }
        dot_group(kind, rows, panels, values, pair->stride, x, groups, dots);
        __m512 scale[WIDE_TILE_PANELS];
        __m512 offset[WIDE_TILE_PANELS];
        UNROLL for (uint32_t p = 0; p < panels; p++)
        {
            const uint8_t *from = scales + p * pair->stride;
            scale[p] = load_scales_avx512(half, from);
            offset[p] = weight_kind_offset(kind)
                            ? load_scales_avx512(half, from + panel_scale_bytes(kind, half) / 2)
                            : scale[p];
        }
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            const __m512 x_scale = _mm512_set1_ps(x[r * groups].scale);
            UNROLL for (uint32_t p = 0; p < panels; p++)
            {
                sums[r][p] = _mm512_fmadd_ps(_mm512_mul_ps(scale[p], x_scale),
                                             _mm512_cvtepi32_ps(dots[r][p]), sums[r][p]);
                if (weight_kind_offset(kind))
                    sums[r][p] = _mm512_fmadd_ps(
                        offset[p], _mm512_set1_ps(x[r * groups].scaled_sum), sums[r][p]);
            }
        }
        values += panel_group_bytes(kind);
        scales += panel_scale_bytes(kind, half);
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) UNROLL for (uint32_t p = 0; p < panels; p++)
        matmul_store_avx512(task, row + r, panel + p, sums[r][p]);
}

#define TILE_CASE(count)                                                                           \
    case count:                                                                                    \
        matmul_tile(task, kind, half, true, count, panels, pair, panel, row);                      \
        break;

/* A few rows, in passes of 1 to 6, through one pair (or the last single panel). */
AVX512_INLINE void stream_pair(const struct matmul_task *task, const enum weight_kind kind,
                               const bool half, const uint32_t panels, struct pair *pair,
                               uint32_t panel)
{
    uint32_t row = 0;
    for (pair->pass = 0; pair->pass < pair->passes; pair->pass++) {
        const uint32_t left = pair->passes - pair->pass;
        const uint32_t rows = (task->rows - row + left - 1) / left;
        switch (rows) {
            TILE_CASE(6)
            TILE_CASE(5)
            TILE_CASE(4)
            TILE_CASE(3)
            TILE_CASE(2)
        default:
            matmul_tile(task, kind, half, true, 1, panels, pair, panel, row);
            break;
        }
        row += rows;
    }
}
#undef TILE_CASE

/* One to three rows through four panels. */
AVX512_INLINE void stream_wide(const struct matmul_task *task, const enum weight_kind kind,
                               const bool half, const struct pair *pair, uint32_t panel)
{
    switch (task->rows) {
    case 3:
        matmul_tile(task, kind, half, true, 3, WIDE_TILE_PANELS, pair, panel, 0);
        break;
    case 2:
        matmul_tile(task, kind, half, true, 2, WIDE_TILE_PANELS, pair, panel, 0);
        break;
    default:
        matmul_tile(task, kind, half, true, 1, WIDE_TILE_PANELS, pair, panel, 0);
        break;
    }
}

/* Many rows: passes of 6 and of 5. */
AVX512_INLINE void multiply_pair(const struct matmul_task *task, const enum weight_kind kind,
                                 const bool half, const uint32_t panels, const struct pair *pair,
                                 uint32_t panel)
{
    uint32_t row = 0;
    for (uint32_t left = pair->passes; left > 0; left--) {
        if ((task->rows - row + left - 1) / left == TILE_ROWS) {
            matmul_tile(task, kind, half, false, TILE_ROWS, panels, pair, panel, row);
            row += TILE_ROWS;
        } else {
            matmul_tile(task, kind, half, false, TILE_ROWS - 1, panels, pair, panel, row);
            row += TILE_ROWS - 1;
        }
    }
}

/* Nibbles become the bytes of Q8 or Q8A, scales become floats. */
AVX512_INLINE void expand_panel(const enum weight_kind kind, const bool half, uint32_t groups,
                                const uint8_t *values, const uint8_t *scales, size_t ahead,
                                uint8_t *out)
{
    const __m512i bias = _mm512_set1_epi8(kind == WEIGHT_Q4 ? PANEL_Q8_BIAS - PANEL_Q4_BIAS : 0);
    for (uint32_t g = 0; g < groups; g++, values += PANEL_Q4_BYTES, out += PANEL_Q8_BYTES) {
        UNROLL for (uint32_t quad = 0; quad < WEIGHT_GROUP / 4; quad++) _mm512_store_si512(
            out + quad * PANEL_VECTOR_BYTES, _mm512_add_epi8(load_quad(kind, values, quad), bias));
        UNROLL for (uint32_t line = 0; line < PANEL_Q4_BYTES; line += 64)
            _mm_prefetch((const char *)((uintptr_t)values + ahead + line), _MM_HINT_T1);
    }
    const size_t vectors = groups * panel_scale_count(kind) / PANEL_ROWS;
    for (size_t i = 0; i < vectors; i++)
        _mm512_store_ps(out + i * PANEL_VECTOR_BYTES,
                        load_scales_avx512(half, scales + i * PANEL_ROWS * (half ? 2 : 4)));
}

/* The number of panels as a constant. */
#define MATMUL_PAIR(function, kind, half)                                                          \
    {                                                                                              \
        if (panels == TILE_PANELS)                                                                 \
            function(task, kind, half, TILE_PANELS, &pair, panel);                                 \
        else                                                                                       \
            function(task, kind, half, 1, &pair, panel);                                           \
    }

AVX512_INLINE void matmul_panels(const struct matmul_task *task, const enum weight_kind kind,
                                 const bool half)
{
    const enum weight_kind wide = kind == WEIGHT_Q4 ? WEIGHT_Q8 : WEIGHT_Q8A;
    const uint32_t groups = task->k / WEIGHT_GROUP;
    const size_t stride = panel_bytes(kind, half, task->k);
    const bool many = task->rows > STREAM_ROWS;
    const bool expand = weight_kind_nibbles(kind) && many && task->scratch;
    const size_t wide_stride = panel_bytes(wide, false, task->k);
    uint32_t panels;
    if (task->rows == 0)
        return;
    for (uint32_t panel = task->panel_first; panel < task->panel_end; panel += panels) {
        const uint32_t left = task->panel_end - panel;
        panels = task->rows <= WIDE_TILE_ROWS && left >= WIDE_TILE_PANELS ? WIDE_TILE_PANELS
                 : left >= TILE_PANELS                                    ? TILE_PANELS
                                                                          : 1;
        const uint8_t *packed = task->panels + panel * stride;
        struct pair pair = {.values = packed,
                            .scales = panel_scales(kind, half, packed, task->k, 0),
                            .stride = stride,
                            .passes = (task->rows + TILE_ROWS - 1) / TILE_ROWS};
        pair.ahead = prefetch_distance(panels, stride);
        if (expand) {
            uint8_t *out = task->scratch;
            for (uint32_t p = 0; p < panels; p++)
                expand_panel(kind, half, groups, packed + p * stride, pair.scales + p * stride,
                             pair.ahead, out + p * wide_stride);
            pair.values = out;
            pair.scales = panel_scales(wide, false, out, task->k, 0);
            pair.stride = wide_stride;
        }
        if (panels == WIDE_TILE_PANELS)
            stream_wide(task, kind, half, &pair, panel);
        else if (expand)
            MATMUL_PAIR(multiply_pair, wide, false)
        else if (many)
            MATMUL_PAIR(multiply_pair, kind, half)
        else
            MATMUL_PAIR(stream_pair, kind, half)
    }
}

#define MATMUL(name, kind)                                                                         \
    void name(const struct matmul_task *task)                                                      \
    {                                                                                              \
        if (task->half_scales)                                                                     \
            matmul_panels(task, kind, true);                                                       \
        else                                                                                       \
            matmul_panels(task, kind, false);                                                      \
    }
MATMUL(matmul_i8_q8__avx512vnni_6x32, WEIGHT_Q8)
MATMUL(matmul_i8_q8a__avx512vnni_6x32, WEIGHT_Q8A)
MATMUL(matmul_i8_q4__avx512vnni_6x32, WEIGHT_Q4)
MATMUL(matmul_i8_q4a__avx512vnni_6x32, WEIGHT_Q4A)
