/* The largest values of rows: the variant's lists are those of a sort. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "tests/kernels/check/kernel_check.h"

enum { ROUNDS = 90, LIST_STRIDE = PROJECT_TOP_MAX + 3 };

/* The order as backend.h has it, in words of its own: the variants share theirs with `ref`. */
static int in_order(const void *a, const void *b)
{
    const struct top_entry *x = a, *y = b;
    const int x_is_nan = isnan(x->value) != 0, y_is_nan = isnan(y->value) != 0;
    if (x_is_nan || y_is_nan)
        return x_is_nan != y_is_nan ? y_is_nan - x_is_nan : x->id - y->id;
    if (x->value > y->value || x->value < y->value)
        return x->value > y->value ? -1 : 1;
    return x->id - y->id;
}

static void compare_row(struct check *check, const struct top_task *task,
                        const struct top_entry *all, size_t row)
{
    const struct top_entry *list = task->lists + row * LIST_STRIDE;
    for (uint32_t i = 0; i < task->held[row]; i++) {
        floats_equal(check, "value", &all[i].value, &list[i].value, 1, 1);
        if (list[i].id != all[i].id)
            check_fail(check, "entry %u of row %zu is id %d, not %d", i, row, list[i].id,
                       all[i].id);
    }
}

/* Offers columns in two parts, the later one first, as members of a team may. */
static void check_lists(struct check *check, struct top_task task, uint32_t cut)
{
    const uint32_t columns = task.columns;
    const uint32_t expected = task.count < columns ? task.count : columns;
    const float *values = task.values;
    task.values = values + cut;
    task.first_id = (int32_t)cut;
    task.columns = columns - cut;
    ((top_kernel *)check->function)(&task);
    task.values = values;
    task.first_id = 0;
    task.columns = cut;
    ((top_kernel *)check->function)(&task);
    struct top_entry *all = guard_allocate(columns * sizeof(*all));
    for (size_t row = 0; row < task.rows; row++) {
        for (uint32_t i = 0; i < columns; i++)
            all[i] = (struct top_entry){values[row * task.stride + i], (int32_t)i};
        qsort(all, columns, sizeof(*all), in_order);
        if (task.held[row] != expected)
            check_fail(check, "row %zu holds %u entries, not %u", row, task.held[row], expected);
        else
            compare_row(check, &task, all, row);
    }
}

void check_top(struct check *check)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const enum flavour flavour = (enum flavour)(round % FLAVOUR_COUNT);
        const uint32_t rows = check_pick(check, 1, 4);
        const uint32_t columns = check_pick(check, 1, round % 2 ? 20 : 300);
        const size_t stride = columns + check_pick(check, 0, 5);
        struct top_task task = {.stride = stride,
                                .rows = rows,
                                .columns = columns,
                                .list_stride = LIST_STRIDE,
                                .count = round % 3 ? 1 : check_pick(check, 1, PROJECT_TOP_MAX)};
        check_case(check, "rows=%u columns=%u count=%u %s", rows, columns, task.count,
                   flavour_name(flavour));
        float *values = guard_allocate(rows * stride * sizeof(float));
        fill_floats(check, flavour, values, rows * stride);
        for (size_t i = 0; round % 4 == 0 && i < rows * stride; i++)
            values[i] = rintf(values[i] / 2); /* many equals */
        task.values = values;
        task.lists = guard_allocate(rows * LIST_STRIDE * sizeof(*task.lists));
        task.held = guard_allocate(rows * sizeof(*task.held));
        memset(task.held, 0, rows * sizeof(*task.held));
        check_lists(check, task, check_pick(check, 0, columns));
        guards_check(check);
        guards_release();
    }
}
