/* int8 activations times 4- or 8-bit weights with vpdpbusd: up to 6 rows by two panels (32
 * outputs).
 *
 * The instruction adds four products of an unsigned and a signed byte to an int32, exactly. Weights
 * are the unsigned side, as they are stored; what the bias of Q8 and Q4 adds too much is a multiple
 * of the sum of x, with which the dot product starts.
 *
 * A strip of panels is gone through in passes, over which the rows are shared out evenly, and every
 * load of a pass asks for its share of what is read next. Nibbles are unpacked in every pass: that
 * is done by units which the products leave idle. Where groups share their scales, a dot product
 * goes on through the span of them.
 *
 * Every shape of a tile is a function of its own: where several are inlined in one, the compiler
 * spills accumulators. */
#include "kernels/lanes_avx512.h"
#include "kernels/quantize_i8.h"

enum { TILE_ROWS = 6, GROUP_QUADS = WEIGHT_GROUP / 4 };

/* Some rows through a strip of panels that follow each other. */
struct pass {
    const struct matmul_task *task;
    const uint8_t *values, *scales;
    size_t stride; /* from a panel to the next */
    uint32_t panel, row;
    struct asking asking;
};

/* Lines of a group of a panel, its share of the scales among them. */
AVX512_INLINE uint32_t group_lines(const enum weight_kind kind, const bool half)
{
    const size_t bytes = panel_group_bytes(kind) + panel_scale_bytes(kind, half);
    return (uint32_t)((bytes + ASK_LINE_BYTES - 1) / ASK_LINE_BYTES);
}

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

/* What dots[row][panel] of a span begin with; x: its first group. */
AVX512_INLINE void dots_begin(const enum weight_kind kind, const uint32_t rows,
                              const uint32_t panels, const struct quantized_group *x, size_t groups,
                              __m512i dots[][TILE_PANELS])
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
}

/* Adds one group and asks for its share. */
AVX512_INLINE void dots_add(const enum weight_kind kind, const uint32_t rows, const uint32_t panels,
                            const uint8_t *values, size_t stride, const struct quantized_group *x,
                            size_t groups, __m512i dots[][TILE_PANELS], const uint32_t lines,
                            struct asking *asking)
{
    UNROLL for (uint32_t quad = 0; quad < GROUP_QUADS; quad++)
    {
        __m512i w[TILE_PANELS];
        if (quad < lines)
            asking_go_on(asking, panels);
        UNROLL for (uint32_t p = 0; p < panels; p++) w[p] =
            load_quad(kind, values + p * stride, quad);
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            const __m512i quad_x = broadcast_quad(x[r * groups].q + quad * 4);
            UNROLL for (uint32_t p = 0; p < panels; p++) DOT_BYTES(dots[r][p], w[p], quad_x);
        }
    }
    UNROLL for (uint32_t line = GROUP_QUADS; line < lines; line++) asking_go_on(asking, panels);
}

AVX512_INLINE void matmul_tile(struct pass *pass, const enum weight_kind kind, const bool spans,
                               const bool half, const uint32_t panels, const uint32_t rows)
{
    const struct matmul_task *task = pass->task;
    const size_t groups = task->k / WEIGHT_GROUP, stride = pass->stride;
    const uint8_t *values = pass->values;
    const uint8_t *scales = pass->scales;
    const struct quantized_group *x = (const struct quantized_group *)task->x + pass->row * groups;
    const uint32_t lines = group_lines(kind, half);
    struct asking asking = pass->asking;
    matmul_ask_out(task, pass->row, rows, pass->panel, panels);
    __m512 sums[TILE_ROWS][TILE_PANELS];
    UNROLL for (uint32_t r = 0; r < rows; r++) UNROLL for (uint32_t p = 0; p < panels; p++)
        sums[r][p] = _mm512_setzero_ps();
    for (uint32_t left = (uint32_t)groups, some; left > 0; left -= some, x += some) {
        __m512i dots[TILE_ROWS][TILE_PANELS];
        some = spans ? span_groups(task->span, left) : 1;
        dots_begin(kind, rows, panels, x, groups, dots);
        for (uint32_t i = 0; i < some; i++, values += panel_group_bytes(kind))
            dots_add(kind, rows, panels, values, stride, x + i, groups, dots, lines, &asking);
        __m512 scale[TILE_PANELS];
        __m512 offset[TILE_PANELS];
        UNROLL for (uint32_t p = 0; p < panels; p++)
        {
            const uint8_t *from = scales + p * stride;
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
        scales += some * panel_scale_bytes(kind, half);
    }
    pass->asking = asking;
    matmul_store_avx512(task, pass->row, rows, pass->panel, panels, sums);
}

/* tile_<kind>_<span>_<scales>_<panels>_<rows> */
enum { FLOATS, HALVES };
enum { GROUP, SPAN };
typedef void tile_function(struct pass *pass);
#define TILE(kind, span, scales, panels, rows)                                                     \
    static __attribute__((noinline)) void tile_##kind##_##span##_##scales##_##panels##_##rows(     \
        struct pass *pass)                                                                         \
    {                                                                                              \
        matmul_tile(pass, WEIGHT_##kind, span, scales, panels, rows);                              \
    }
#define TILES_OF(kind, span, scales)                                                               \
    TILE(kind, span, scales, 1, 1)                                                                 \
    TILE(kind, span, scales, 1, 2)                                                                 \
    TILE(kind, span, scales, 1, 3)                                                                 \
    TILE(kind, span, scales, 1, 4)                                                                 \
    TILE(kind, span, scales, 1, 5)                                                                 \
    TILE(kind, span, scales, 1, 6)                                                                 \
    TILE(kind, span, scales, 2, 1)                                                                 \
    TILE(kind, span, scales, 2, 2)                                                                 \
    TILE(kind, span, scales, 2, 3)                                                                 \
    TILE(kind, span, scales, 2, 4)                                                                 \
    TILE(kind, span, scales, 2, 5)                                                                 \
    TILE(kind, span, scales, 2, 6)
#define TILES(kind, span) TILES_OF(kind, span, FLOATS) TILES_OF(kind, span, HALVES)
TILES(Q8, GROUP)
TILES(Q8, SPAN)
TILES(Q8A, GROUP)
TILES(Q4, GROUP)
TILES(Q4A, GROUP)

#define TILE_ROW(prefix)                                                                           \
    {                                                                                              \
        prefix##1, prefix##2, prefix##3, prefix##4, prefix##5, prefix##6                           \
    }
#define TILE_TABLE(prefix)                                                                         \
    {                                                                                              \
        TILE_ROW(prefix##_1_), TILE_ROW(prefix##_2_)                                               \
    }
#define TILE_TABLES(prefix)                                                                        \
    {                                                                                              \
        TILE_TABLE(prefix##_FLOATS), TILE_TABLE(prefix##_HALVES)                                   \
    }
/* [scales][panels - 1][rows - 1] */
typedef tile_function *const tile_tables[2][TILE_PANELS][TILE_ROWS];
static const tile_tables tiles_q8 = TILE_TABLES(tile_Q8_GROUP);
static const tile_tables tiles_q8_spans = TILE_TABLES(tile_Q8_SPAN);
static const tile_tables tiles_q8a = TILE_TABLES(tile_Q8A_GROUP);
static const tile_tables tiles_q4 = TILE_TABLES(tile_Q4_GROUP);
static const tile_tables tiles_q4a = TILE_TABLES(tile_Q4A_GROUP);

/* No strip is larger than what can be asked for a strip ahead. */
static uint32_t strip_panels(size_t stride, uint32_t left)
{
    return left >= TILE_PANELS && TILE_PANELS * stride <= ASK_STRIP_BYTES ? TILE_PANELS : 1;
}

static void matmul_panels(const struct matmul_task *task, enum weight_kind kind,
                          const tile_tables tiles)
{
    const uint32_t groups = task->k / WEIGHT_GROUP;
    const size_t stride = panel_bytes(kind, task->half_scales, task->k);
    const uint32_t passes = (task->rows + TILE_ROWS - 1) / TILE_ROWS;
    struct pass pass = {.task = task, .stride = stride};
    uint32_t panels;
    if (task->rows == 0)
        return;
    for (pass.panel = task->panel_first; pass.panel < task->panel_end; pass.panel += panels) {
        panels = strip_panels(stride, task->panel_end - pass.panel);
        const uint8_t *packed = task->panels + pass.panel * stride;
        const bool last = pass.panel + panels == task->panel_end;
        pass.asking = asking_begin(
            last && task->next ? task->next : packed + panels * stride, panels * stride,
            (size_t)passes * groups * panels * group_lines(kind, task->half_scales));
        pass.values = packed;
        pass.scales = panel_scales(kind, task->half_scales, packed, task->k, 0);
        pass.row = 0;
        for (uint32_t left = passes; left > 0; left--) {
            const uint32_t rows = (task->rows - pass.row + left - 1) / left;
            tiles[task->half_scales][panels - 1][rows - 1](&pass);
            pass.row += rows;
        }
    }
}

#define MATMUL(name, kind, tiles)                                                                  \
    void name(const struct matmul_task *task)                                                      \
    {                                                                                              \
        matmul_panels(task, kind, tiles);                                                          \
    }
MATMUL(matmul_i8_q8__avx512vnni_6x32, WEIGHT_Q8,
       span_of(task->span) > 1 ? tiles_q8_spans : tiles_q8)
MATMUL(matmul_i8_q8a__avx512vnni_6x32, WEIGHT_Q8A, tiles_q8a)
MATMUL(matmul_i8_q4__avx512vnni_6x32, WEIGHT_Q4, tiles_q4)
MATMUL(matmul_i8_q4a__avx512vnni_6x32, WEIGHT_Q4A, tiles_q4a)
