/* Kernels that take rows one by one: conversions of activations, norm, rotation, SwiGLU. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "tests/kernels/check/kernel_check.h"
#include "kernels/float_bits.h"

enum { ROUNDS = 60 };

void check_quantize(struct check *check)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const enum flavour flavour = (enum flavour)(round % FLAVOUR_COUNT);
        const uint32_t rows = check_pick(check, 1, 5);
        const uint32_t k = 32 * check_pick(check, 1, 20);
        const size_t values = (size_t)rows * k;
        const size_t groups = values / WEIGHT_GROUP;
        const uint32_t spans[] = {0, 1, 2, 4, k / WEIGHT_GROUP};
        const uint32_t span = spans[random_below(&check->random, ARRAY_COUNT(spans))];
        check_case(check, "rows=%u k=%u span=%u %s", rows, k, span, flavour_name(flavour));
        float *x = guard_allocate(values * sizeof(float));
        fill_floats(check, flavour, x, values);
        for (size_t i = 0; round % 4 == 0 && i < values; i++)
            x[i] = rintf(x[i] * 8) / 2; /* many ties */
        struct quantize_task task[2];
        for (int i = 0; i < 2; i++)
            task[i] = (struct quantize_task){.x = x,
                                             .rows = rows,
                                             .k = k,
                                             .span = span,
                                             .out = guard_allocate(groups * sizeof(*task->out)),
                                             .out_stride = k / WEIGHT_GROUP};
        ((quantize_kernel *)check->reference)(&task[0]);
        ((quantize_kernel *)check->function)(&task[1]);
        for (size_t g = 0; g < groups; g++) {
            const struct quantized_group *a = &task[0].out[g];
            const struct quantized_group *b = &task[1].out[g];
            bytes_equal(check, "q", a->q, b->q, sizeof(a->q));
            floats_equal(check, "scale", &a->scale, &b->scale, 1, 1);
            floats_equal(check, "scaled_sum", &a->scaled_sum, &b->scaled_sum, 1, 1);
            bytes_equal(check, "start", &a->start, &b->start, 2 * sizeof(a->start));
        }
        /* scale * q is x to half a step, whoever computed it. */
        for (size_t i = 0; flavour == FLAVOUR_NORMAL && i < values; i++) {
            const size_t row_group = i / k * (k / WEIGHT_GROUP), group = i % k / WEIGHT_GROUP;
            const size_t first = span > 1 ? group / span * span : group;
            const float scale = task[1].out[row_group + first].scale;
            const float back = scale * task[1].out[i / WEIGHT_GROUP].q[i % WEIGHT_GROUP];
            if (!(fabsf(back - x[i]) <= 0.5001f * scale))
                check_fail(check, "x %zu is %g, quantised to %g with step %g", i, (double)x[i],
                           (double)back, (double)scale);
        }
        guards_check(check);
        guards_release();
    }
}

void check_round(struct check *check)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const enum flavour flavour = (enum flavour)(round % FLAVOUR_COUNT);
        const uint32_t rows = check_pick(check, 1, 5);
        const uint32_t k = check_pick(check, 1, 70);
        const size_t values = (size_t)rows * k;
        const size_t out_bytes = (size_t)rows * ((k + 1) / 2 * 2) * sizeof(uint16_t);
        check_case(check, "rows=%u k=%u %s", rows, k, flavour_name(flavour));
        float *x = guard_allocate(values * sizeof(float));
        fill_floats(check, flavour, x, values);
        for (size_t i = 0; round % 3 == 0 && i < values; i++)
            x[i] = float_from_bits((float_bits(x[i]) & 0xffff0000u) | 0x8000u); /* ties */
        uint16_t *expected = guard_allocate(out_bytes);
        uint16_t *actual = guard_allocate(out_bytes);
        struct round_task task = {.x = x,
                                  .x_stride = k,
                                  .rows = rows,
                                  .k = k,
                                  .out = expected,
                                  .out_stride = (k + 1) / 2 * 2};
        ((round_kernel *)check->reference)(&task);
        task.out = actual;
        ((round_kernel *)check->function)(&task);
        bytes_equal(check, "out", expected, actual, out_bytes);
        guards_check(check);
        guards_release();
    }
}

static void rms_norm_precision(struct check *check, const struct rms_norm_task *task)
{
    const size_t values = (size_t)task->rows * task->width;
    double *exact = guard_allocate(values * sizeof(double));
    float *plain = guard_allocate(values * sizeof(float));
    for (size_t row = 0; row < task->rows; row++) {
        const float *x = task->x + row * task->width;
        double squares = 0;
        float squares_plain = 0;
        for (uint32_t i = 0; i < task->width; i++) {
            squares += (double)x[i] * x[i];
            squares_plain += x[i] * x[i];
        }
        for (uint32_t i = 0; i < task->width; i++) {
            exact[row * task->width + i] =
                x[i] / sqrt(squares / task->width + task->epsilon) * task->gain[i];
            plain[row * task->width + i] =
                x[i] / sqrtf(squares_plain / (float)task->width + task->epsilon) * task->gain[i];
        }
    }
    precision_check(check, exact, plain, task->out, values);
}

void check_rms_norm(struct check *check)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const enum flavour flavour = (enum flavour)(round % FLAVOUR_COUNT);
        /* A rounding of the factor is common to a row: precision takes many rows. */
        const uint32_t rows = flavour == FLAVOUR_NORMAL ? 16 : check_pick(check, 1, 5);
        const uint32_t width = round % 2 ? check_pick(check, 1, 70) : check_pick(check, 500, 1600);
        const size_t bytes = (size_t)rows * width * sizeof(float);
        check_case(check, "rows=%u width=%u %s", rows, width, flavour_name(flavour));
        float *x = guard_allocate(bytes);
        float *gain = guard_allocate(width * sizeof(float));
        fill_floats(check, flavour, x, (size_t)rows * width);
        fill_floats(check, FLAVOUR_NORMAL, gain, width);
        struct rms_norm_task task = {
            .x = x, .gain = gain, .epsilon = 1e-5f, .rows = rows, .width = width};
        float *expected = task.out = guard_allocate(bytes);
        ((rms_norm_kernel *)check->reference)(&task);
        float *actual = task.out = guard_allocate(bytes);
        ((rms_norm_kernel *)check->function)(&task);
        floats_equal(check, "out", expected, actual, rows, width);
        if (flavour == FLAVOUR_NORMAL && width > 500)
            rms_norm_precision(check, &task);
        task.out = x; /* in place */
        ((rms_norm_kernel *)check->function)(&task);
        floats_equal(check, "out in place", expected, x, rows, width);
        guards_check(check);
        guards_release();
    }
}

/* Against double; what does not turn must stay as it is. */
static void rope_precision(struct check *check, const struct rope_task *task, const float *before)
{
    const bool halves = check->row->slot == KERNEL_SLOT_rope_halves;
    const size_t values = (size_t)task->rows * task->heads * task->head_dim;
    double *exact = guard_allocate(values * sizeof(double));
    float *plain = guard_allocate(values * sizeof(float));
    for (size_t i = 0; i < values; i++)
        exact[i] = plain[i] = before[i];
    const size_t pairs = task->rotary / 2;
    for (size_t row = 0; row < task->rows; row++) {
        for (size_t head = 0; head < task->heads; head++) {
            for (size_t i = 0; i < pairs; i++) {
                const size_t at = (row * task->heads + head) * task->head_dim;
                const size_t a = at + (halves ? i : 2 * i);
                const size_t b = at + (halves ? i + pairs : 2 * i + 1);
                const float cos = task->cos[row * pairs + i];
                const float sin = task->sin[row * pairs + i];
                exact[a] = (double)before[a] * cos - (double)before[b] * sin;
                exact[b] = (double)before[b] * cos + (double)before[a] * sin;
                plain[a] = before[a] * cos - before[b] * sin;
                plain[b] = before[b] * cos + before[a] * sin;
            }
        }
    }
    if (values > 100)
        precision_check(check, exact, plain, task->x, values);
    for (size_t i = 0; i < values; i++)
        if (i % task->head_dim >= task->rotary && task->x[i] != before[i])
            check_fail(check, "element %zu does not turn, yet changed", i);
}

void check_rope(struct check *check)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const enum flavour flavour = (enum flavour)(round % FLAVOUR_COUNT);
        const uint32_t rows = check_pick(check, 1, 5);
        const uint32_t heads = check_pick(check, 1, 5);
        const uint32_t head_dim = round % 2 ? 64 : 2 * check_pick(check, 1, 40);
        const uint32_t rotary = round % 3 ? head_dim : 2 * check_pick(check, 1, head_dim / 2);
        const size_t values = (size_t)rows * heads * head_dim;
        const size_t angles = (size_t)rows * rotary / 2;
        check_case(check, "rows=%u heads=%u head_dim=%u rotary=%u %s", rows, heads, head_dim,
                   rotary, flavour_name(flavour));
        float *cos = guard_allocate(angles * sizeof(float));
        float *sin = guard_allocate(angles * sizeof(float));
        for (size_t i = 0; i < angles; i++) {
            const double angle = random_unit(&check->random) * 6.28;
            cos[i] = cosf((float)angle);
            sin[i] = sinf((float)angle);
        }
        float *before = guard_allocate(values * sizeof(float));
        float *expected = guard_allocate(values * sizeof(float));
        float *actual = guard_allocate(values * sizeof(float));
        fill_floats(check, flavour, before, values);
        memcpy(expected, before, values * sizeof(float));
        memcpy(actual, before, values * sizeof(float));
        struct rope_task task = {.x = expected,
                                 .cos = cos,
                                 .sin = sin,
                                 .rows = rows,
                                 .heads = heads,
                                 .head_dim = head_dim,
                                 .rotary = rotary};
        ((rope_kernel *)check->reference)(&task);
        task.x = actual;
        ((rope_kernel *)check->function)(&task);
        floats_equal(check, "x", expected, actual, (size_t)rows * heads, head_dim);
        if (flavour == FLAVOUR_NORMAL)
            rope_precision(check, &task, before);
        guards_check(check);
        guards_release();
    }
}

static void swiglu_precision(struct check *check, const struct swiglu_task *task)
{
    double *exact = guard_allocate(task->count * sizeof(double));
    float *plain = guard_allocate(task->count * sizeof(float));
    for (size_t i = 0; i < task->count; i++) {
        exact[i] = task->gate[i] / (1 + exp(-(double)task->gate[i])) * task->up[i];
        plain[i] = task->gate[i] / (1.0f + expf(-task->gate[i])) * task->up[i];
    }
    precision_check(check, exact, plain, task->out, task->count);
}

void check_swiglu(struct check *check)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const enum flavour flavour = (enum flavour)(round % FLAVOUR_COUNT);
        const uint32_t count = round % 2 ? check_pick(check, 1, 40) : check_pick(check, 1000, 5000);
        check_case(check, "count=%u %s", count, flavour_name(flavour));
        float *gate = guard_allocate(count * sizeof(float));
        float *up = guard_allocate(count * sizeof(float));
        fill_floats(check, flavour, gate, count);
        fill_floats(check, FLAVOUR_NORMAL, up, count);
        for (uint32_t i = 0; flavour == FLAVOUR_HEAVY && i < count; i++)
            gate[i] = (float)(random_unit(&check->random) * 240 - 120); /* round exp's ends */
        struct swiglu_task task = {.gate = gate, .up = up, .count = count};
        float *expected = task.out = guard_allocate(count * sizeof(float));
        ((swiglu_kernel *)check->reference)(&task);
        float *actual = task.out = guard_allocate(count * sizeof(float));
        ((swiglu_kernel *)check->function)(&task);
        floats_equal(check, "out", expected, actual, 1, count);
        if (flavour == FLAVOUR_NORMAL && count >= 1000)
            swiglu_precision(check, &task);
        for (uint32_t i = 0; i < count; i++)
            if (isnan(gate[i]) && !isnan(actual[i]))
                check_fail(check, "NaN gate %u gave %g", i, (double)actual[i]);
        task.out = gate; /* in place */
        ((swiglu_kernel *)check->function)(&task);
        floats_equal(check, "out in place", expected, gate, 1, count);
        guards_check(check);
        guards_release();
    }
}
