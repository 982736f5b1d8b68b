/* What happens to a finished sum: out = sum + bias, or out = out + (sum + bias). */
#ifndef BATON_KERNELS_MATMUL_EPILOGUE_H
#define BATON_KERNELS_MATMUL_EPILOGUE_H

#include "kernels/kernels.h"
#include "kernels/weight_panel.h"

static inline __attribute__((always_inline)) float *matmul_out(const struct matmul_task *task,
                                                               uint32_t row, uint32_t panel)
{
    return task->out + row * task->out_stride + (size_t)(panel - task->out_panel) * PANEL_ROWS;
}

/* Lanes of one row and panel that exist. */
static inline __attribute__((always_inline)) void matmul_store(const struct matmul_task *task,
                                                               uint32_t row, uint32_t panel,
                                                               const float sums[PANEL_ROWS])
{
    const uint32_t first = panel * PANEL_ROWS;
    const uint32_t lanes = task->n - first < PANEL_ROWS ? task->n - first : PANEL_ROWS;
    float *out = matmul_out(task, row, panel);
    for (uint32_t lane = 0; lane < lanes; lane++) {
        const float sum = task->bias ? sums[lane] + task->bias[first + lane] : sums[lane];
        out[lane] = task->accumulate ? out[lane] + sum : sum;
    }
}

#endif
