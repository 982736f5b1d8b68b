/* Products without scales, float or bf16: an activation and 16 lanes of a panel are 32-bit units in
 * both (a float, or a pair of bf16), so one set of tiles serves both. The file that includes this
 * defines MULTIPLY_ADD(sum, w, x) on ZMM registers.
 *
 * A tile is up to 12 rows by 2 panels. Rows are shared out evenly over the passes that a strip of
 * panels needs. */
#ifndef BATON_KERNELS_MATMUL_TILES_AVX512_H
#define BATON_KERNELS_MATMUL_TILES_AVX512_H

#include "kernels/lanes_avx512.h"

enum { TILE_ROWS = 12 };

/* A strip of panels and one pass over it. */
struct strip {
    const uint8_t *values;
    size_t stride; /* from a panel to the next, in bytes */
    size_t units;  /* of K */
    uint32_t passes;
    struct asking asking;
};

AVX512_INLINE __m512 broadcast_unit(const uint32_t *x)
{
    return _mm512_castsi512_ps(_mm512_set1_epi32((int)*x));
}

AVX512_INLINE void matmul_tile(const struct matmul_task *task, const uint32_t rows,
                               const uint32_t panels, struct strip *strip, uint32_t panel,
                               uint32_t row)
{
    const size_t units = strip->units;
    const uint8_t *w = strip->values;
    const uint32_t *x = (const uint32_t *)task->x + row * units;
    struct asking asking = strip->asking;
    matmul_ask_out(task, row, rows, panel, panels);
    __m512 sums[TILE_ROWS][TILE_PANELS];
    UNROLL for (uint32_t r = 0; r < rows; r++) UNROLL for (uint32_t p = 0; p < panels; p++)
        sums[r][p] = _mm512_setzero_ps();
    for (size_t unit = 0; unit < units; unit++, x++, w += PANEL_VECTOR_BYTES) {
        __m512 lanes[TILE_PANELS];
        asking_go_on(&asking, panels);
        UNROLL for (uint32_t p = 0; p < panels; p++) lanes[p] =
            _mm512_load_ps(w + p * strip->stride);
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            const __m512 unit_x = broadcast_unit(x + r * units);
            UNROLL for (uint32_t p = 0; p < panels; p++) MULTIPLY_ADD(sums[r][p], lanes[p], unit_x);
        }
    }
    strip->asking = asking;
    matmul_store_avx512(task, row, rows, panel, panels, sums);
}

#define TILE_CASE(count)                                                                           \
    case count:                                                                                    \
        matmul_tile(task, count, panels, strip, panel, row);                                       \
        break;

AVX512_INLINE void matmul_pass(const struct matmul_task *task, const uint32_t panels,
                               struct strip *strip, uint32_t panel, uint32_t row, uint32_t rows)
{
    switch (rows) {
        TILE_CASE(1)
        TILE_CASE(2)
        TILE_CASE(3)
        TILE_CASE(4)
        TILE_CASE(5)
        TILE_CASE(6)
        TILE_CASE(7)
        TILE_CASE(8)
        TILE_CASE(9)
        TILE_CASE(10)
        TILE_CASE(11)
        TILE_CASE(12)
    default:
        break;
    }
}
#undef TILE_CASE

/* All rows through one strip. */
AVX512_INLINE void matmul_strip(const struct matmul_task *task, const uint32_t panels,
                                struct strip *strip, uint32_t panel)
{
    uint32_t row = 0;
    const size_t bytes = panels * strip->stride;
    strip->values = task->panels + panel * strip->stride;
    strip->asking = asking_begin(
        panel + panels == task->panel_end && task->next ? task->next : strip->values + bytes, bytes,
        strip->passes * strip->units * panels);
    for (uint32_t left = strip->passes; left > 0; left--) {
        const uint32_t rows = (task->rows - row + left - 1) / left;
        matmul_pass(task, panels, strip, panel, row, rows);
        row += rows;
    }
}

/* stride: bytes of a panel; units: of K. */
AVX512_INLINE void matmul_panels(const struct matmul_task *task, size_t stride, size_t units)
{
    struct strip strip = {.stride = stride, .units = units};
    strip.passes = (task->rows + TILE_ROWS - 1) / TILE_ROWS;
    uint32_t panel = task->panel_first;
    if (task->rows == 0)
        return;
    for (; panel + TILE_PANELS <= task->panel_end; panel += TILE_PANELS)
        matmul_strip(task, TILE_PANELS, &strip, panel);
    if (panel < task->panel_end)
        matmul_strip(task, 1, &strip, panel);
}

#endif
