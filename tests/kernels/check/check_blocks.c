/* Kernels of some architectures only: layer norm, GELU, the router, weighted sums of rows. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "tests/kernels/check/kernel_check.h"

enum { ROUNDS = 60 };

static void layer_norm_precision(struct check *check, const struct layer_norm_task *task)
{
    const size_t values = (size_t)task->rows * task->width;
    double *exact = guard_allocate(values * sizeof(double));
    float *plain = guard_allocate(values * sizeof(float));
    for (size_t row = 0; row < task->rows; row++) {
        const float *x = task->x + row * task->width;
        double sum = 0, squares = 0;
        float sum_plain = 0, squares_plain = 0;
        for (uint32_t i = 0; i < task->width; i++) {
            sum += x[i];
            sum_plain += x[i];
        }
        const double mean = sum / task->width;
        const float mean_plain = sum_plain / (float)task->width;
        for (uint32_t i = 0; i < task->width; i++) {
            squares += (x[i] - mean) * (x[i] - mean);
            squares_plain += (x[i] - mean_plain) * (x[i] - mean_plain);
        }
        for (uint32_t i = 0; i < task->width; i++) {
            const size_t at = row * task->width + i;
            exact[at] =
                (x[i] - mean) / sqrt(squares / task->width + task->epsilon) * task->gain[i] +
                task->bias[i];
            plain[at] = (x[i] - mean_plain) /
                            sqrtf(squares_plain / (float)task->width + task->epsilon) *
                            task->gain[i] +
                        task->bias[i];
        }
    }
    precision_check(check, exact, plain, task->out, values);
}

void check_layer_norm(struct check *check)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const enum flavour flavour = (enum flavour)(round % FLAVOUR_COUNT);
        const uint32_t rows = flavour == FLAVOUR_NORMAL ? 16 : check_pick(check, 1, 5);
        const uint32_t width = round % 2 ? check_pick(check, 1, 70) : check_pick(check, 500, 1600);
        const size_t bytes = (size_t)rows * width * sizeof(float);
        check_case(check, "rows=%u width=%u %s", rows, width, flavour_name(flavour));
        float *x = guard_allocate(bytes);
        float *gain = guard_allocate(width * sizeof(float));
        float *bias = guard_allocate(width * sizeof(float));
        fill_floats(check, flavour, x, (size_t)rows * width);
        fill_floats(check, FLAVOUR_NORMAL, gain, width);
        fill_floats(check, FLAVOUR_NORMAL, bias, width);
        struct layer_norm_task task = {
            .x = x, .gain = gain, .bias = bias, .epsilon = 1e-5f, .rows = rows, .width = width};
        float *expected = task.out = guard_allocate(bytes);
        ((layer_norm_kernel *)check->reference)(&task);
        float *actual = task.out = guard_allocate(bytes);
        ((layer_norm_kernel *)check->function)(&task);
        floats_equal(check, "out", expected, actual, rows, width);
        if (flavour == FLAVOUR_NORMAL && width > 500)
            layer_norm_precision(check, &task);
        task.out = x; /* in place */
        ((layer_norm_kernel *)check->function)(&task);
        floats_equal(check, "out in place", expected, x, rows, width);
        guards_check(check);
        guards_release();
    }
}

static void gelu_precision(struct check *check, const struct gelu_task *task)
{
    double *exact = guard_allocate(task->count * sizeof(double));
    float *plain = guard_allocate(task->count * sizeof(float));
    for (size_t i = 0; i < task->count; i++) {
        const double x = task->x[i], up = task->up ? (double)task->up[i] : 1;
        const float f = task->x[i], up_plain = task->up ? task->up[i] : 1;
        const double root = sqrt(2 / acos(-1.0));
        exact[i] = 0.5 * x * (1 + tanh(root * (x + 0.044715 * x * x * x))) * up;
        plain[i] = 0.5f * f * (1 + tanhf((float)root * (f + 0.044715f * f * f * f))) * up_plain;
    }
    precision_check(check, exact, plain, task->out, task->count);
}

void check_gelu(struct check *check)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const enum flavour flavour = (enum flavour)(round % FLAVOUR_COUNT);
        const uint32_t count = round % 2 ? check_pick(check, 1, 40) : check_pick(check, 1000, 5000);
        const bool gated = round % 3 != 0;
        check_case(check, "count=%u %s%s", count, flavour_name(flavour), gated ? " gated" : "");
        float *x = guard_allocate(count * sizeof(float));
        float *up = guard_allocate(count * sizeof(float));
        fill_floats(check, flavour, x, count);
        fill_floats(check, FLAVOUR_NORMAL, up, count);
        struct gelu_task task = {.x = x, .up = gated ? up : NULL, .count = count};
        float *expected = task.out = guard_allocate(count * sizeof(float));
        ((gelu_kernel *)check->reference)(&task);
        float *actual = task.out = guard_allocate(count * sizeof(float));
        ((gelu_kernel *)check->function)(&task);
        floats_equal(check, "out", expected, actual, 1, count);
        if (flavour == FLAVOUR_NORMAL && count >= 1000)
            gelu_precision(check, &task);
        for (uint32_t i = 0; i < count; i++) {
            if (isnan(x[i]) && !isnan(actual[i]))
                check_fail(check, "NaN %u gave %g", i, (double)actual[i]);
            if (x[i] < -20.0f && !isinf(x[i]) && !isnan(up[i]) && actual[i] != 0.0f)
                check_fail(check, "%g gave %g", (double)x[i], (double)actual[i]);
        }
        task.out = x; /* in place */
        ((gelu_kernel *)check->function)(&task);
        floats_equal(check, "out in place", expected, x, 1, count);
        guards_check(check);
        guards_release();
    }
}

/* Against a softmax in double: no expert that was left out is likelier than one that was taken. */
static void route_truth(struct check *check, const struct route_task *task)
{
    for (size_t row = 0; row < task->rows; row++) {
        const float *logits = task->logits + row * task->experts;
        const uint32_t *ids = task->ids + row * task->used;
        double all = 0, chosen = 0;
        for (uint32_t i = 0; i < task->experts; i++)
            all += exp((double)logits[i]);
        for (uint32_t i = 0; i < task->used; i++)
            chosen += exp((double)logits[ids[i]]);
        for (uint32_t i = 0; i < task->used; i++) {
            const double exact = exp((double)logits[ids[i]]) / (task->normalise ? chosen : all);
            const double actual = task->weights[row * task->used + i];
            if (!(fabs(actual - exact) <= 2e-6 * exact + 1e-30))
                check_fail(check, "weight %u of row %zu is %g instead of %g", i, row, actual,
                           exact);
            uint32_t before = 0;
            for (uint32_t other = 0; other < task->experts; other++)
                before += logits[other] > logits[ids[i]] ||
                          (logits[other] == logits[ids[i]] && other < ids[i]);
            if (before != i)
                check_fail(check, "expert %u of row %zu has %u before it, not %u", ids[i], row,
                           before, i);
        }
    }
}

void check_route(struct check *check)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const enum flavour flavour = (enum flavour)(round % FLAVOUR_COUNT);
        const uint32_t rows = check_pick(check, 1, 9);
        const uint32_t experts = check_pick(check, 1, 130);
        const uint32_t used = check_pick(check, 1, experts < 9 ? experts : 9);
        const size_t chosen = (size_t)rows * used;
        check_case(check, "rows=%u experts=%u used=%u %s", rows, experts, used,
                   flavour_name(flavour));
        float *logits = guard_allocate((size_t)rows * experts * sizeof(float));
        fill_floats(check, flavour, logits, (size_t)rows * experts);
        for (size_t i = 0; round % 4 == 0 && i < (size_t)rows * experts; i++)
            logits[i] = rintf(logits[i]); /* many ties */
        struct route_task task = {.logits = logits,
                                  .rows = rows,
                                  .experts = experts,
                                  .used = used,
                                  .normalise = round % 2};
        uint32_t *expected_ids = task.ids = guard_allocate(chosen * sizeof(uint32_t));
        float *expected = task.weights = guard_allocate(chosen * sizeof(float));
        ((route_kernel *)check->reference)(&task);
        task.ids = guard_allocate(chosen * sizeof(uint32_t));
        task.weights = guard_allocate(chosen * sizeof(float));
        ((route_kernel *)check->function)(&task);
        bytes_equal(check, "ids", expected_ids, task.ids, chosen * sizeof(uint32_t));
        floats_equal(check, "weights", expected, task.weights, rows, used);
        if (flavour == FLAVOUR_NORMAL || flavour == FLAVOUR_ZERO)
            route_truth(check, &task);
        guards_check(check);
        guards_release();
    }
}

void check_rows_add(struct check *check)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const enum flavour flavour = (enum flavour)(round % FLAVOUR_COUNT);
        const uint32_t rows = check_pick(check, 1, 5), width = check_pick(check, 1, 70);
        const size_t values = (size_t)rows * width;
        const uint32_t mode = round % 3;
        check_case(check, "rows=%u width=%u mode=%u %s", rows, width, mode, flavour_name(flavour));
        float *y = guard_allocate(values * sizeof(float));
        float *before = guard_allocate(values * sizeof(float));
        float *factors = guard_allocate(rows * sizeof(float));
        uint32_t *indices = guard_allocate(rows * sizeof(uint32_t));
        fill_floats(check, flavour, y, values);
        fill_floats(check, FLAVOUR_NORMAL, before, values);
        fill_floats(check, FLAVOUR_NORMAL, factors, rows);
        for (uint32_t i = 0; i < rows; i++)
            indices[i] = rows - 1 - i;
        float *outs[2];
        for (int i = 0; i < 2; i++) {
            outs[i] = guard_allocate(values * sizeof(float));
            memcpy(outs[i], before, values * sizeof(float));
            const struct rows_add_task task = {.y = y,
                                               .indices = round % 2 ? indices : NULL,
                                               .weights = mode == 1 ? factors : NULL,
                                               .gates = mode == 2 ? factors : NULL,
                                               .rows = rows,
                                               .width = width,
                                               .out = outs[i]};
            ((rows_add_kernel *)(i ? check->function : check->reference))(&task);
        }
        floats_equal(check, "out", outs[0], outs[1], rows, width);
        for (size_t i = 0; flavour == FLAVOUR_NORMAL && i < values; i++) {
            const uint32_t row = (uint32_t)(i / width);
            const double f = (double)factors[row];
            const double weight = mode == 0 ? 1 : mode == 1 ? f : 1 / (1 + exp(-f));
            const size_t at = (round % 2 ? indices[row] : row) * (size_t)width + i % width;
            const double exact = (double)before[at] + weight * (double)y[i];
            if (!(fabs((double)outs[1][at] - exact) <= 1e-6 * (1 + fabs(exact))))
                check_fail(check, "value %zu is %g instead of %g", at, (double)outs[1][at], exact);
        }
        guards_check(check);
        guards_release();
    }
}

void check_scale(struct check *check)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const enum flavour flavour = (enum flavour)(round % FLAVOUR_COUNT);
        const uint32_t count = check_pick(check, 1, 200);
        check_case(check, "count=%u %s", count, flavour_name(flavour));
        float *x = guard_allocate(count * sizeof(float));
        float *expected = guard_allocate(count * sizeof(float));
        fill_floats(check, flavour, x, count);
        const float factor = (float)random_unit(&check->random) * 30;
        for (uint32_t i = 0; i < count; i++)
            expected[i] = x[i] * factor;
        ((scale_kernel *)check->function)(
            &(struct scale_task){.x = x, .factor = factor, .count = count});
        floats_equal(check, "x", expected, x, 1, count);
        guards_check(check);
        guards_release();
    }
}

/* Against libm's tanh, which tanh_approx.h is within 3e-7 of. */
void check_soft_cap(struct check *check)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const enum flavour flavour = (enum flavour)(round % FLAVOUR_COUNT);
        const uint32_t count = check_pick(check, 1, 200);
        const float cap = 0.5f + (float)random_unit(&check->random) * 50;
        check_case(check, "count=%u cap=%g %s", count, (double)cap, flavour_name(flavour));
        float *x = guard_allocate(count * sizeof(float));
        float *before = guard_allocate(count * sizeof(float));
        fill_floats(check, flavour, x, count);
        memcpy(before, x, count * sizeof *x);
        ((soft_cap_kernel *)check->function)(
            &(struct soft_cap_task){.x = x, .cap = cap, .count = count});
        for (uint32_t i = 0; i < count; i++) {
            const double wanted = (double)cap * tanh((double)before[i] / (double)cap);
            if (isnan(wanted) != isnan(x[i]) ||
                fabs((double)x[i] - wanted) > 1e-6 * fabs(wanted) + 1e-30)
                check_fail(check, "x[%u] %g becomes %g instead of %g", i, (double)before[i],
                           (double)x[i], wanted);
        }
        guards_check(check);
        guards_release();
    }
}
