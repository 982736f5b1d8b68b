/* Canonical rows into panels. Runs once a weight, at load. */
#include "kernels/weight_panel.h"

#include <string.h>

#include "base/check.h"

static void pack_f32_row(uint32_t k, uint8_t *panel, uint32_t lane, const float *row)
{
    float *out = (float *)(void *)panel;
    for (uint32_t i = 0; i < k; i++)
        out[(size_t)i * PANEL_ROWS + lane] = row[i];
}

static void pack_bf16_row(uint32_t k, uint8_t *panel, uint32_t lane, const uint16_t *row)
{
    uint16_t *out = (uint16_t *)(void *)panel;
    for (uint32_t i = 0; i < k; i++)
        out[((size_t)(i / 2) * PANEL_ROWS + lane) * 2 + i % 2] = row[i];
}

static void pack_group_values(enum weight_kind kind, uint8_t *group, uint32_t lane, const int8_t *q)
{
    const int bias = panel_bias(kind);
    if (!weight_kind_nibbles(kind)) {
        for (uint32_t i = 0; i < WEIGHT_GROUP; i++)
            group[i / 4 * PANEL_VECTOR_BYTES + lane * 4 + i % 4] = (uint8_t)(q[i] + bias);
        return;
    }
    for (uint32_t i = 0; i < WEIGHT_GROUP / 2; i++) {
        const int low = q[i] + bias;
        const int high = q[i + WEIGHT_GROUP / 2] + bias;
        DCHECK(low >= 0 && low <= 15 && high >= 0 && high <= 15);
        group[i / 4 * PANEL_VECTOR_BYTES + lane * 4 + i % 4] =
            (uint8_t)((low & 15) | (high & 15) << 4);
    }
}

static void put_scale(bool half_scales, void *scales, size_t index, float value)
{
    if (!half_scales)
        ((float *)scales)[index] = value;
    else
        CHECK(half_from_float(value, &((uint16_t *)scales)[index]));
}

/* offset: NULL for the kinds without. */
static void pack_grouped_row(enum weight_kind kind, bool half_scales, uint32_t k, uint8_t *panel,
                             uint32_t lane, const int8_t *q, const float *scale,
                             const float *offset)
{
    const size_t stride = panel_scale_count(kind);
    uint8_t *scales = panel + k / WEIGHT_GROUP * panel_group_bytes(kind);
    for (size_t g = 0; g < k / WEIGHT_GROUP; g++) {
        pack_group_values(kind, panel + g * panel_group_bytes(kind), lane, q + g * WEIGHT_GROUP);
        put_scale(half_scales, scales, g * stride + lane, scale[g]);
        if (offset)
            put_scale(half_scales, scales, g * stride + PANEL_ROWS + lane, offset[g]);
    }
}

void weight_pack(enum weight_kind kind, bool half_scales, uint32_t k, uint8_t *panels,
                 uint32_t first_row, uint32_t row_count, const struct weight_rows *rows)
{
    CHECK(first_row % PANEL_ROWS == 0);
    CHECK(!weight_kind_grouped(kind) || (k % WEIGHT_GROUP == 0 && rows->q && rows->scale));
    CHECK(!weight_kind_offset(kind) || rows->offset);
    CHECK(kind != WEIGHT_F32 || rows->f32);
    CHECK(kind != WEIGHT_BF16 || rows->bf16);
    const size_t groups = k / WEIGHT_GROUP;
    for (size_t i = 0; i < row_count; i++) {
        const size_t row = first_row + i;
        uint8_t *panel = panels + row / PANEL_ROWS * panel_bytes(kind, half_scales, k);
        const uint32_t lane = (uint32_t)(row % PANEL_ROWS);
        if (kind == WEIGHT_F32)
            pack_f32_row(k, panel, lane, rows->f32 + i * k);
        else if (kind == WEIGHT_BF16)
            pack_bf16_row(k, panel, lane, rows->bf16 + i * k);
        else
            pack_grouped_row(kind, half_scales, k, panel, lane, rows->q + i * k,
                             rows->scale + i * groups,
                             weight_kind_offset(kind) ? rows->offset + i * groups : NULL);
    }
}

bool weight_scales_are_halves(enum weight_kind kind, uint32_t k, uint32_t row_count,
                              const struct weight_rows *rows)
{
    const size_t count = (size_t)row_count * (k / WEIGHT_GROUP);
    uint16_t half;
    for (size_t i = 0; i < count; i++)
        if (!half_from_float(rows->scale[i], &half) ||
            (weight_kind_offset(kind) && !half_from_float(rows->offset[i], &half)))
            return false;
    return true;
}

/* From the last panel to the first and inside a panel from its end, so that nothing is overwritten
 * before it was moved. */
void weight_scales_widen(enum weight_kind kind, uint32_t k, uint8_t *panels, uint32_t panel_count)
{
    const size_t values = k / WEIGHT_GROUP * panel_group_bytes(kind);
    const size_t count = k / WEIGHT_GROUP * panel_scale_count(kind);
    for (size_t panel = panel_count; panel-- > 0;) {
        const uint8_t *from = panels + panel * panel_bytes(kind, true, k);
        uint8_t *to = panels + panel * panel_bytes(kind, false, k);
        for (size_t i = count; i-- > 0;) {
            uint16_t half;
            memcpy(&half, from + values + i * sizeof(half), sizeof(half));
            const float wide = float_from_half(half);
            memcpy(to + values + i * sizeof(wide), &wide, sizeof(wide));
        }
        memmove(to, from, values);
    }
}
