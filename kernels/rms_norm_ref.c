/* Root-mean-square norm. The squares are summed in 16 lanes: lane i takes elements i, i + 16, …. */
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/lane_tree.h"
#include "kernels/ref_clones.h"

REF_CLONES void rms_norm_f32__ref(const struct rms_norm_task *task)
{
    for (size_t row = 0; row < task->rows; row++) {
        const float *x = task->x + row * task->width;
        float *out = task->out + row * task->width;
        float lanes[LANE_COUNT] = {0};
        for (uint32_t i = 0; i < task->width; i++)
            lanes[i % LANE_COUNT] = fmaf(x[i], x[i], lanes[i % LANE_COUNT]);
        const float mean = lane_tree_sum(lanes) / (float)task->width;
        const float inverse = 1.0f / sqrtf(mean + task->epsilon);
        for (uint32_t i = 0; i < task->width; i++)
            out[i] = x[i] * inverse * task->gain[i];
    }
}
