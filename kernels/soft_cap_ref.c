/* Values held below a cap, smoothly. */
#include "kernels/kernels.h"
#include "kernels/ref_clones.h"
#include "kernels/tanh_approx.h"

REF_CLONES void soft_cap_f32__ref(const struct soft_cap_task *task)
{
    const float inverse_cap = 1.0f / task->cap;
    for (size_t i = 0; i < task->count; i++)
        task->x[i] = task->cap * tanh_approx(task->x[i] * inverse_cap);
}
