/* Products with float32 activations: one chain of fused multiply-adds per output, ascending K. */
#include "kernels/kernels.h"
#include "kernels/matmul_epilogue.h"
#include "kernels/ref_clones.h"

enum { TILE_ROWS = 8 }; /* rows that share one widening of the weights */

REF_INLINE void matmul_tile(const struct matmul_task *task, enum weight_kind kind, uint32_t panel,
                            uint32_t row_first, uint32_t rows)
{
    const bool half = task->half_scales;
    const uint8_t *packed = task->panels + panel * panel_bytes(kind, half, task->k);
    const float *x = (const float *)task->x + (size_t)row_first * task->k;
    float sums[TILE_ROWS][PANEL_ROWS] = {{0}};
    float scales[2 * PANEL_ROWS];
    for (uint32_t i = 0; i < task->k; i++) {
        const uint32_t g = i / WEIGHT_GROUP;
        if (weight_kind_grouped(kind) && i % WEIGHT_GROUP == 0)
            panel_scales_load(kind, half, packed, task->k, g, scales);
        const uint8_t *group = packed + g * panel_group_bytes(kind);
        float w[PANEL_ROWS];
        for (uint32_t lane = 0; lane < PANEL_ROWS; lane++)
            w[lane] = weight_kind_grouped(kind)
                          ? panel_scaled(kind, scales, lane,
                                         panel_group_value(kind, group, i % WEIGHT_GROUP, lane))
                          : panel_value(kind, packed, i, lane);
        for (uint32_t row = 0; row < rows; row++)
            for (uint32_t lane = 0; lane < PANEL_ROWS; lane++)
                sums[row][lane] = fmaf(w[lane], x[(size_t)row * task->k + i], sums[row][lane]);
    }
    for (uint32_t row = 0; row < rows; row++)
        matmul_store(task, row_first + row, panel, sums[row]);
}

REF_INLINE void matmul_panels(const struct matmul_task *task, enum weight_kind kind)
{
    for (uint32_t panel = task->panel_first; panel < task->panel_end; panel++)
        for (uint32_t row = 0; row < task->rows; row += TILE_ROWS)
            matmul_tile(task, kind, panel, row,
                        task->rows - row < TILE_ROWS ? task->rows - row : TILE_ROWS);
}

#define MATMUL(name, kind)                                                                         \
    REF_CLONES void name(const struct matmul_task *task)                                           \
    {                                                                                              \
        matmul_panels(task, kind);                                                                 \
    }
MATMUL(matmul_f32__ref, WEIGHT_F32)
MATMUL(matmul_f32_bf16__ref, WEIGHT_BF16)
MATMUL(matmul_f32_q8__ref, WEIGHT_Q8)
MATMUL(matmul_f32_q8a__ref, WEIGHT_Q8A)
MATMUL(matmul_f32_q4__ref, WEIGHT_Q4)
MATMUL(matmul_f32_q4a__ref, WEIGHT_Q4A)
