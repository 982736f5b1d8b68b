/* Products: bits against the reference over shapes round the tile, cut anywhere; NaN rows; error
 * against double. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "tests/kernels/check/kernel_check.h"
#include "kernels/float_bits.h"
#include "kernels/weight_panel.h"

enum form { FORM_F32, FORM_BF16, FORM_I8 };

struct product {
    enum weight_kind kind;
    enum form form;
    struct packed_weight weight;
    uint32_t rows;
    uint32_t span; /* groups that share a scale; the first one's counts */
    float *x;      /* [rows][k] */
    struct matmul_task task;
};

static void find_kind(enum kernel_slot slot, enum weight_kind *kind, enum form *form)
{
    static const struct {
        enum kernel_slot slot;
        enum weight_kind kind;
        enum form form;
    } slots[] = {
        {KERNEL_SLOT_matmul_f32, WEIGHT_F32, FORM_F32},
        {KERNEL_SLOT_matmul_f32_bf16, WEIGHT_BF16, FORM_F32},
        {KERNEL_SLOT_matmul_f32_q8, WEIGHT_Q8, FORM_F32},
        {KERNEL_SLOT_matmul_f32_q8a, WEIGHT_Q8A, FORM_F32},
        {KERNEL_SLOT_matmul_f32_q4, WEIGHT_Q4, FORM_F32},
        {KERNEL_SLOT_matmul_f32_q4a, WEIGHT_Q4A, FORM_F32},
        {KERNEL_SLOT_matmul_bf16, WEIGHT_BF16, FORM_BF16},
        {KERNEL_SLOT_matmul_i8_q8, WEIGHT_Q8, FORM_I8},
        {KERNEL_SLOT_matmul_i8_q8a, WEIGHT_Q8A, FORM_I8},
        {KERNEL_SLOT_matmul_i8_q4, WEIGHT_Q4, FORM_I8},
        {KERNEL_SLOT_matmul_i8_q4a, WEIGHT_Q4A, FORM_I8},
    };
    for (size_t i = 0; i < ARRAY_COUNT(slots); i++) {
        if (slots[i].slot == slot) {
            *kind = slots[i].kind;
            *form = slots[i].form;
            return;
        }
    }
    CHECK(!"a product without a row in check_matmul.c");
}

static size_t activation_row_bytes(enum form form, size_t k)
{
    return form == FORM_F32    ? k * sizeof(float)
           : form == FORM_BF16 ? (k + 1) / 2 * 2 * sizeof(uint16_t)
                               : k / WEIGHT_GROUP * sizeof(struct quantized_group);
}

/* Activations by the reference quantiser, whose own checker stands in check_rows.c. */
static void convert_activations(struct product *product)
{
    const uint32_t k = product->weight.k;
    const size_t values = (size_t)product->rows * k;
    product->task.x = product->x;
    if (product->form == FORM_BF16) {
        uint16_t *out = guard_allocate(((size_t)k + 1) / 2 * 2 * product->rows * 2);
        round_bf16__ref(&(struct round_task){.x = product->x,
                                             .x_stride = k,
                                             .rows = product->rows,
                                             .k = k,
                                             .out = out,
                                             .out_stride = (k + 1) / 2 * 2});
        product->task.x = out;
    } else if (product->form == FORM_I8) {
        struct quantized_group *out = guard_allocate(values / WEIGHT_GROUP * sizeof(*out));
        quantize_i8__ref(&(struct quantize_task){.x = product->x,
                                                 .rows = product->rows,
                                                 .k = k,
                                                 .span = product->span,
                                                 .out = out,
                                                 .out_stride = k / WEIGHT_GROUP});
        product->task.x = out;
    }
}

/* Any but 1 only where a kernel knows spans. */
static uint32_t pick_span(struct check *check, uint32_t k)
{
    const uint32_t spans[] = {0, 1, 2, 4, k / WEIGHT_GROUP};
    return check->row->slot == KERNEL_SLOT_matmul_i8_q8
               ? spans[random_below(&check->random, ARRAY_COUNT(spans))]
               : 1;
}

static void make_product(struct check *check, struct product *product, uint32_t rows, uint32_t n,
                         uint32_t k, uint32_t span, enum flavour of_x, enum flavour of_weights)
{
    find_kind(check->row->slot, &product->kind, &product->form);
    product->span = span;
    packed_weight_make(check, &product->weight, product->kind, n, k, of_weights);
    product->rows = rows;
    product->x = guard_allocate((size_t)rows * k * sizeof(float));
    fill_floats(check, of_x, product->x, (size_t)rows * k);
    product->task = (struct matmul_task){
        .panels = product->weight.panels,
        .n = n,
        .k = k,
        .rows = rows,
        .half_scales = product->weight.half_scales,
        .span = span,
        .out_stride = n,
        .panel_end = panel_count(n),
    };
    if (random_below(&check->random, 2)) {
        float *bias = guard_allocate(n * sizeof(float));
        fill_floats(check, FLAVOUR_NORMAL, bias, n);
        product->task.bias = bias;
    }
    product->task.accumulate = random_below(&check->random, 2);
    convert_activations(product);
}

static float *make_output(const struct product *product)
{
    const size_t count = (size_t)product->rows * product->weight.n;
    float *out = guard_allocate(count * sizeof(float));
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(i % 97) - 48.0f;
    return out;
}

/* The panels from one on, into a window of another width that begins there. */
static void compare_window(struct check *check, const struct product *product,
                           const float *expected)
{
    const uint32_t n = product->weight.n;
    struct matmul_task task = product->task;
    task.panel_first = task.out_panel = check_pick(check, 0, panel_count(n) - 1);
    const uint32_t first = task.panel_first * PANEL_ROWS;
    task.out_stride = n - first + check_pick(check, 0, 5);
    task.out = guard_allocate(product->rows * task.out_stride * sizeof(float));
    for (size_t row = 0; row < product->rows; row++)
        for (size_t i = 0; i < task.out_stride; i++)
            task.out[row * task.out_stride + i] =
                i < n - first ? (float)((row * n + first + i) % 97) - 48.0f : 0.5f;
    ((matmul_kernel *)check->function)(&task);
    for (size_t row = 0; row < product->rows; row++) {
        const float *actual = task.out + row * task.out_stride;
        floats_equal(check, "out (window)", expected + row * n + first, actual, 1, n - first);
        for (size_t i = n - first; i < task.out_stride; i++)
            if (actual[i] != 0.5f)
                check_fail(check, "wrote past a row of a window, at (%zu, %zu)", row, i);
    }
}

/* The variant over the whole, then over panels and rows cut at random: the same bits. */
static void compare_cuts(struct check *check, struct product *product, const float *expected)
{
    matmul_kernel *kernel = (matmul_kernel *)check->function;
    const uint32_t n = product->weight.n;
    struct matmul_task task = product->task;
    task.out = make_output(product);
    kernel(&task);
    if (!floats_equal(check, "out", expected, task.out, product->rows, n))
        return;
    float *whole = make_output(product);
    const uint32_t row = check_pick(check, 0, product->rows - 1);
    const uint32_t panel = check_pick(check, 0, panel_count(n));
    const size_t row_bytes = activation_row_bytes(product->form, task.k);
    for (uint32_t part = 0; part < 4; part++) {
        task = product->task;
        const uint32_t first_row = part & 1 ? row : 0;
        task.rows = part & 1 ? product->rows - row : row;
        task.panel_first = part & 2 ? panel : 0;
        task.panel_end = part & 2 ? panel_count(n) : panel;
        task.x = (const uint8_t *)task.x + first_row * row_bytes;
        task.out = whole + (size_t)first_row * n;
        kernel(&task);
    }
    floats_equal(check, "out (cut in four)", expected, whole, product->rows, n);
    compare_window(check, product, expected);
}

/* A NaN (for int8 also an infinity) in a row of x makes the whole row NaN. */
static void check_nan_rows(struct check *check, const struct product *product, const float *out)
{
    const uint32_t k = product->weight.k;
    const uint32_t n = product->weight.n;
    for (size_t row = 0; row < product->rows; row++) {
        bool nan = false;
        for (size_t i = 0; i < k; i++) {
            const float x = product->x[row * k + i];
            nan |= product->form == FORM_I8 ? !isfinite(x) : isnan(x);
        }
        for (size_t i = 0; nan && i < n; i++) {
            if (!isnan(out[row * n + i])) {
                check_fail(check, "row %zu has a NaN input, but out (%zu, %zu) is %g", row, row, i,
                           (double)out[row * n + i]);
                return;
            }
        }
    }
}

static void one_case(struct check *check, uint32_t rows, uint32_t n, uint32_t k, enum flavour of_x,
                     enum flavour of_weights)
{
    const uint32_t span = pick_span(check, k);
    check_case(check, "rows=%u n=%u k=%u span=%u x=%s weights=%s", rows, n, k, span,
               flavour_name(of_x), flavour_name(of_weights));
    struct product product;
    make_product(check, &product, rows, n, k, span, of_x, of_weights);
    struct matmul_task task = product.task;
    task.out = make_output(&product);
    ((matmul_kernel *)check->reference)(&task);
    check_nan_rows(check, &product, task.out);
    compare_cuts(check, &product, task.out);
    guards_check(check);
    guards_release();
}

static uint32_t span_inputs(const struct product *product)
{
    return (product->span > 1 ? product->span : 1) * WEIGHT_GROUP;
}

static float weight_value(const struct product *product, uint32_t output, uint32_t input)
{
    const struct packed_weight *weight = &product->weight;
    if (product->span <= 1)
        return packed_weight_value(weight, output, input);
    const size_t row = (size_t)output * weight->k;
    const uint32_t first = input / span_inputs(product) * span_inputs(product);
    return weight->rows.scale[(row + first) / WEIGHT_GROUP] * (float)weight->rows.q[row + input];
}

/* What anyone would write first. */
static float plain_product(const struct product *product, uint32_t row, uint32_t output)
{
    const float *x = product->x + (size_t)row * product->weight.k;
    const uint32_t group = span_inputs(product);
    float sum = 0;
    float scale = 0;
    for (uint32_t i = 0; i < product->weight.k; i++) {
        float value = x[i];
        if (product->form == FORM_BF16)
            value = float_from_bf16(bf16_from_float(value));
        if (product->form == FORM_I8) {
            if (i % group == 0) {
                scale = 0;
                for (uint32_t j = 0; j < group && i + j < product->weight.k; j++)
                    scale = fmaxf(scale, fabsf(x[i + j]) / 127.0f);
            }
            value = roundf(value / scale) * scale;
        }
        sum += value * weight_value(product, output, i);
    }
    return sum;
}

static void precision_case(struct check *check, uint32_t rows, uint32_t n, uint32_t k)
{
    const uint32_t span = pick_span(check, k);
    check_case(check, "rows=%u n=%u k=%u span=%u against double", rows, n, k, span);
    struct product product;
    make_product(check, &product, rows, n, k, span, FLAVOUR_NORMAL, FLAVOUR_NORMAL);
    const size_t count = (size_t)rows * n;
    double *exact = guard_allocate(count * sizeof(double));
    float *plain = guard_allocate(count * sizeof(float));
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t output = 0; output < n; output++) {
            double sum = 0;
            for (uint32_t i = 0; i < k; i++)
                sum += (double)product.x[(size_t)row * k + i] * weight_value(&product, output, i);
            exact[(size_t)row * n + output] = sum;
            plain[(size_t)row * n + output] = plain_product(&product, row, output);
        }
    }
    struct matmul_task task = product.task;
    task.bias = NULL;
    task.accumulate = false;
    task.out = make_output(&product);
    ((matmul_kernel *)check->function)(&task);
    precision_check(check, exact, plain, task.out, count);
    guards_release();
}

void check_matmul(struct check *check)
{
    enum weight_kind kind;
    enum form form;
    find_kind(check->row->slot, &kind, &form);
    const uint32_t tile = check->row->tile;
    const uint32_t edges[] = {1, tile > 1 ? tile - 1 : 1, tile, tile + 1, 2 * tile + 1};
    for (size_t i = 0; i < ARRAY_COUNT(edges); i++) {
        for (uint32_t n = 15; n <= 17; n++)
            one_case(check, edges[i], n, 64, FLAVOUR_NORMAL, FLAVOUR_NORMAL);
        one_case(check, edges[i], 96, 576, FLAVOUR_HEAVY, FLAVOUR_HEAVY);
    }
    for (uint32_t round = 0; round < 60; round++) {
        const uint32_t k =
            weight_kind_grouped(kind) ? 32 * check_pick(check, 1, 12) : check_pick(check, 1, 300);
        one_case(check, check_pick(check, 1, 3 * tile + 2), check_pick(check, 1, 90), k,
                 (enum flavour)(round % FLAVOUR_COUNT),
                 (enum flavour)(round / FLAVOUR_COUNT % FLAVOUR_COUNT));
    }
    for (uint32_t round = 0; round < 4; round++)
        precision_case(check, tile + 1, 40, 576);
    precision_case(check, 1, 40, 2048);
}
