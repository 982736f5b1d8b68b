/* Random weights in canonical form, and the checker of embed, which must give them back. */
#include <math.h>

#include "base/check.h"
#include "tests/kernels/check/kernel_check.h"
#include "kernels/float_bits.h"
#include "kernels/weight_panel.h"

static int8_t random_value(struct check *check, enum weight_kind kind)
{
    switch (kind) {
    case WEIGHT_Q8:
        /* The edges often: -128 has no positive twin. */
        return (int8_t)(random_below(&check->random, 4)   ? (int)check_pick(check, 0, 255) - 128
                        : random_below(&check->random, 2) ? -128
                                                          : 127);
    case WEIGHT_Q8A:
        return (int8_t)check_pick(check, 0, 127);
    case WEIGHT_Q4:
        return (int8_t)((int)check_pick(check, 0, 15) - 8);
    default:
        return (int8_t)check_pick(check, 0, 15);
    }
}

/* A half, down to the smallest denormal, that looks like the float. */
static float nearby_half(float value)
{
    const float bounded = fminf(fmaxf(value, -65000.0f), 65000.0f);
    int exponent;
    const float mantissa = frexpf(bounded, &exponent);
    const int bits = exponent < -13 ? 24 + exponent : 11;
    return isfinite(value) ? ldexpf(rintf(ldexpf(mantissa, bits)), exponent - bits) : value;
}

static void fill_grouped(struct check *check, struct packed_weight *weight, enum flavour flavour)
{
    const size_t values = (size_t)weight->n * weight->k;
    const size_t groups = values / WEIGHT_GROUP;
    int8_t *q = guard_allocate(values);
    for (size_t i = 0; i < values; i++)
        q[i] = random_value(check, weight->kind);
    float *scale = guard_allocate(groups * sizeof(float));
    float *offset = guard_allocate(groups * sizeof(float));
    fill_floats(check, flavour, scale, groups);
    fill_floats(check, flavour, offset, groups);
    weight->half_scales = random_below(&check->random, 2);
    for (size_t i = 0; weight->half_scales && i < groups; i++) {
        scale[i] = nearby_half(scale[i]);
        offset[i] = nearby_half(offset[i]);
    }
    weight->rows.q = q;
    weight->rows.scale = scale;
    weight->rows.offset = weight_kind_offset(weight->kind) ? offset : NULL;
}

static void pack_panel(const struct packed_weight *weight, uint32_t panel)
{
    const uint32_t first = panel * PANEL_ROWS, k = weight->k;
    const uint32_t count = weight->n - first < PANEL_ROWS ? weight->n - first : PANEL_ROWS;
    const struct weight_rows rows = weight_rows_from(&weight->rows, first, k);
    CHECK(weight_pack_panel(
        weight->kind, weight->half_scales, k,
        weight->panels + panel * panel_bytes(weight->kind, weight->half_scales, k), count, &rows));
}

void packed_weight_make(struct check *check, struct packed_weight *weight, enum weight_kind kind,
                        uint32_t n, uint32_t k, enum flavour flavour)
{
    *weight = (struct packed_weight){.kind = kind, .n = n, .k = k};
    const size_t values = (size_t)n * k;
    if (weight_kind_grouped(kind)) {
        fill_grouped(check, weight, flavour);
    } else {
        float *f32 = guard_allocate(values * sizeof(float));
        fill_floats(check, flavour, f32, values);
        uint16_t *bf16 = guard_allocate(values * sizeof(uint16_t));
        for (size_t i = 0; i < values; i++)
            bf16[i] = bf16_from_float(f32[i]);
        weight->rows.f32 = kind == WEIGHT_F32 ? f32 : NULL;
        weight->rows.bf16 = kind == WEIGHT_BF16 ? bf16 : NULL;
    }
    const size_t bytes = panel_count(n) * panel_bytes(kind, weight->half_scales, k);
    weight->panels = guard_allocate(bytes);
    for (size_t i = 0; i < bytes; i++)
        weight->panels[i] = 0;
    for (uint32_t panel = 0; panel < panel_count(n); panel++)
        pack_panel(weight, panel);
}

float packed_weight_value(const struct packed_weight *weight, uint32_t row, uint32_t input)
{
    const size_t at = (size_t)row * weight->k + input;
    if (weight->kind == WEIGHT_F32)
        return weight->rows.f32[at];
    if (weight->kind == WEIGHT_BF16)
        return float_from_bf16(weight->rows.bf16[at]);
    const float scale = weight->rows.scale[at / WEIGHT_GROUP];
    const float q = weight->rows.q[at];
    return weight->rows.offset ? fmaf(scale, q, weight->rows.offset[at / WEIGHT_GROUP]) : scale * q;
}

static enum weight_kind embed_kind(enum kernel_slot slot)
{
    switch (slot) {
    case KERNEL_SLOT_embed_f32:
        return WEIGHT_F32;
    case KERNEL_SLOT_embed_bf16:
        return WEIGHT_BF16;
    case KERNEL_SLOT_embed_q8:
        return WEIGHT_Q8;
    case KERNEL_SLOT_embed_q8a:
        return WEIGHT_Q8A;
    case KERNEL_SLOT_embed_q4:
        return WEIGHT_Q4;
    default:
        return WEIGHT_Q4A;
    }
}

void check_embed(struct check *check)
{
    embed_kernel *embed = (embed_kernel *)check->function;
    const enum weight_kind kind = embed_kind(check->row->slot);
    for (uint32_t round = 0; round < 24; round++) {
        const enum flavour flavour = (enum flavour)(round % FLAVOUR_COUNT);
        const uint32_t n = check_pick(check, 1, 70);
        const uint32_t k =
            weight_kind_grouped(kind) ? 32 * check_pick(check, 1, 5) : check_pick(check, 1, 70);
        const uint32_t rows = check_pick(check, 1, 9);
        check_case(check, "n=%u k=%u rows=%u %s", n, k, rows, flavour_name(flavour));
        struct packed_weight weight;
        packed_weight_make(check, &weight, kind, n, k, flavour);
        int32_t *ids = guard_allocate(rows * sizeof(int32_t));
        float *expected = guard_allocate((size_t)rows * k * sizeof(float));
        float *actual = guard_allocate((size_t)rows * k * sizeof(float));
        for (uint32_t row = 0; row < rows; row++) {
            ids[row] = (int32_t)check_pick(check, 0, n - 1);
            for (uint32_t i = 0; i < k; i++)
                expected[(size_t)row * k + i] = packed_weight_value(&weight, (uint32_t)ids[row], i);
        }
        embed(&(struct embed_task){.panels = weight.panels,
                                   .k = k,
                                   .half_scales = weight.half_scales,
                                   .ids = ids,
                                   .rows = rows,
                                   .out = actual});
        floats_equal(check, "out", expected, actual, rows, k);
        guards_check(check);
        guards_release();
    }
}
