/* x times a factor. */
#include "kernels/kernels.h"

void scale_f32__ref(const struct scale_task *task)
{
    for (size_t i = 0; i < task->count; i++)
        task->x[i] *= task->factor;
}
