/* int8 activations times 4- or 8-bit weights: per group of 32, or span of such groups, an exact
 * integer dot product, then one fused multiply-add (two with an offset), groups ascending. */
#include "kernels/kernels.h"
#include "kernels/matmul_epilogue.h"
#include "kernels/quantize_i8.h"
#include "kernels/ref_clones.h"

REF_INLINE void add_dots(enum weight_kind kind, const uint8_t *group, const int8_t *x,
                         int32_t dots[PANEL_ROWS])
{
    for (uint32_t i = 0; i < WEIGHT_GROUP; i++)
        for (uint32_t lane = 0; lane < PANEL_ROWS; lane++)
            dots[lane] += panel_group_value(kind, group, i, lane) * x[i];
}

REF_INLINE void matmul_row(const struct matmul_task *task, enum weight_kind kind, uint32_t panel,
                           uint32_t row)
{
    const uint32_t groups = task->k / WEIGHT_GROUP, span = span_of(task->span);
    const uint8_t *packed = task->panels + panel * panel_bytes(kind, task->half_scales, task->k);
    const struct quantized_group *x =
        (const struct quantized_group *)task->x + row * (size_t)groups;
    float sums[PANEL_ROWS] = {0};
    for (uint32_t g = 0; g < groups; g += span) {
        float scale[2 * PANEL_ROWS];
        int32_t dots[PANEL_ROWS] = {0};
        panel_scales_load(kind, task->half_scales, packed, task->k, g, scale);
        for (uint32_t i = 0; i < span_groups(span, groups - g); i++)
            add_dots(kind, packed + (g + i) * panel_group_bytes(kind), x[g + i].q, dots);
        for (uint32_t lane = 0; lane < PANEL_ROWS; lane++) {
            sums[lane] = fmaf(scale[lane] * x[g].scale, (float)dots[lane], sums[lane]);
            if (weight_kind_offset(kind))
                sums[lane] = fmaf(scale[PANEL_ROWS + lane], x[g].scaled_sum, sums[lane]);
        }
    }
    matmul_store(task, row, panel, sums);
}

REF_INLINE void matmul_panels(const struct matmul_task *task, enum weight_kind kind)
{
    for (uint32_t panel = task->panel_first; panel < task->panel_end; panel++)
        for (uint32_t row = 0; row < task->rows; row++)
            matmul_row(task, kind, panel, row);
}

#define MATMUL(name, kind)                                                                         \
    REF_CLONES void name(const struct matmul_task *task)                                           \
    {                                                                                              \
        matmul_panels(task, kind);                                                                 \
    }
MATMUL(matmul_i8_q8__ref, WEIGHT_Q8)
MATMUL(matmul_i8_q8a__ref, WEIGHT_Q8A)
MATMUL(matmul_i8_q4__ref, WEIGHT_Q4)
MATMUL(matmul_i8_q4a__ref, WEIGHT_Q4A)
