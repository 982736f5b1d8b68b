/* gelu(x), times `up` where there is one. */
#include "kernels/gelu_approx.h"
#include "kernels/kernels.h"
#include "kernels/ref_clones.h"

REF_CLONES void gelu_f32__ref(const struct gelu_task *task)
{
    for (size_t i = 0; i < task->count; i++) {
        const float value = gelu_approx(task->x[i]);
        task->out[i] = task->up ? value * task->up[i] : value;
    }
}
