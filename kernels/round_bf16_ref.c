/* Activations to bf16. */
#include "kernels/float_bits.h"
#include "kernels/kernels.h"

void round_bf16__ref(const struct round_task *task)
{
    const uint32_t padded = (task->k + 1) / 2 * 2;
    for (size_t row = 0; row < task->rows; row++) {
        uint16_t *out = task->out + row * task->out_stride;
        for (uint32_t i = 0; i < task->k; i++)
            out[i] = bf16_from_float_flushed(task->x[row * task->x_stride + i]);
        if (padded != task->k)
            out[task->k] = 0;
    }
}
