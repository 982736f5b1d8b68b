/* Rows onto rows: out[index] = out[index] + weight * y, the product rounded before the sum. */
#include "kernels/exp_approx.h"
#include "kernels/kernels.h"
#include "kernels/ref_clones.h"

REF_CLONES void rows_add_f32__ref(const struct rows_add_task *task)
{
    for (size_t row = 0; row < task->rows; row++) {
        const size_t to = task->indices ? task->indices[row] : row;
        const float *y = task->y + row * task->width;
        float *out = task->out + to * task->width;
        if (!task->weights && !task->gates) {
            for (uint32_t i = 0; i < task->width; i++)
                out[i] += y[i];
            continue;
        }
        const float weight =
            task->weights ? task->weights[row] : 1.0f / (1.0f + exp_approx(-task->gates[row]));
        for (uint32_t i = 0; i < task->width; i++)
            out[i] += weight * y[i];
    }
}
