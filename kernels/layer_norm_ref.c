/* Layer norm: mean and variance are summed in 16 lanes, the squares of what is left of the mean by
 * fma. */
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/lane_tree.h"
#include "kernels/ref_clones.h"

REF_CLONES void layer_norm_f32__ref(const struct layer_norm_task *task)
{
    for (size_t row = 0; row < task->rows; row++) {
        const float *x = task->x + row * task->width;
        float *out = task->out + row * task->width;
        float lanes[LANE_COUNT] = {0};
        for (uint32_t i = 0; i < task->width; i++)
            lanes[i % LANE_COUNT] += x[i];
        const float mean = lane_tree_sum(lanes) / (float)task->width;
        float squares[LANE_COUNT] = {0};
        for (uint32_t i = 0; i < task->width; i++)
            squares[i % LANE_COUNT] = fmaf(x[i] - mean, x[i] - mean, squares[i % LANE_COUNT]);
        const float variance = lane_tree_sum(squares) / (float)task->width;
        const float inverse = 1.0f / sqrtf(variance + task->epsilon);
        for (uint32_t i = 0; i < task->width; i++)
            out[i] = (x[i] - mean) * inverse * task->gain[i] + task->bias[i];
    }
}
