/* silu(gate) * up. */
#include "kernels/exp_approx.h"
#include "kernels/kernels.h"
#include "kernels/ref_clones.h"

REF_CLONES void swiglu_f32__ref(const struct swiglu_task *task)
{
    for (size_t i = 0; i < task->count; i++)
        task->out[i] = silu_approx(task->gate[i]) * task->up[i];
}
