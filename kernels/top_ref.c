/* The largest values of rows. */
#include "kernels/kernels.h"
#include "kernels/top_list.h"

void top_f32__ref(const struct top_task *task)
{
    for (size_t row = 0; row < task->rows; row++)
        for (uint32_t i = 0; i < task->columns; i++)
            top_offer(task->lists + row * task->list_stride, &task->held[row], task->count,
                      (struct top_entry){.value = task->values[row * task->stride + i],
                                         .id = task->first_id + (int32_t)i});
}
