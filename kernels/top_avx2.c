/* The largest values of rows: eight at a time are held against the last of the list, which few
 * pass. */
#include "kernels/kernels.h"
#include "kernels/lanes_avx2.h"
#include "kernels/top_list.h"

/* What no value of a list that is not full, or whose last is a NaN, may be held against. */
AVX2_INLINE float list_edge(const struct top_entry *list, uint32_t held, uint32_t count)
{
    return held == count ? list[count - 1].value : NAN;
}

AVX2_INLINE void top_row(const struct top_task *task, size_t row)
{
    const float *values = task->values + row * task->stride;
    struct top_entry *list = task->lists + row * task->list_stride;
    uint32_t *held = &task->held[row];
    float edge = list_edge(list, *held, task->count);
    uint32_t i = 0;
    for (; i + 8 <= task->columns; i += 8) {
        /* Not less: an equal one may have a lower id, a NaN goes before all. */
        const __m256 passes =
            _mm256_cmp_ps(_mm256_loadu_ps(values + i), _mm256_set1_ps(edge), _CMP_NLT_UQ);
        uint32_t mask = (uint32_t)_mm256_movemask_ps(passes);
        if (mask == 0)
            continue;
        for (; mask != 0; mask &= mask - 1) {
            const uint32_t place = i + (uint32_t)__builtin_ctz(mask);
            top_offer(
                list, held, task->count,
                (struct top_entry){.value = values[place], .id = task->first_id + (int32_t)place});
        }
        edge = list_edge(list, *held, task->count);
    }
    for (; i < task->columns; i++)
        top_offer(list, held, task->count,
                  (struct top_entry){.value = values[i], .id = task->first_id + (int32_t)i});
}

void top_f32__avx2(const struct top_task *task)
{
    for (size_t row = 0; row < task->rows; row++)
        top_row(task, row);
}
