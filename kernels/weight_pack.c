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
    if (!weight_kind_nibbles(kind)) {
        for (uint32_t quad = 0; quad < WEIGHT_GROUP / 4; quad++)
            memcpy(group + quad * PANEL_VECTOR_BYTES + lane * 4, q + quad * 4, 4);
        return;
    }
    const int bias = kind == WEIGHT_Q4 ? 8 : 0;
    for (uint32_t i = 0; i < WEIGHT_GROUP / 2; i++) {
        const int low = q[i] + bias;
        const int high = q[i + WEIGHT_GROUP / 2] + bias;
        DCHECK(low >= 0 && low <= 15 && high >= 0 && high <= 15);
        group[(i / 4) * PANEL_VECTOR_BYTES + lane * 4 + i % 4] =
            (uint8_t)((low & 15) | (high & 15) << 4);
    }
}

static void pack_grouped_row(enum weight_kind kind, uint32_t k, uint8_t *panel, uint32_t lane,
                             const int8_t *q, const float *scale, const float *offset)
{
    for (uint32_t g = 0; g < k / WEIGHT_GROUP; g++) {
        uint8_t *group = panel + (size_t)g * panel_group_bytes(kind);
        pack_group_values(kind, group, lane, q + (size_t)g * WEIGHT_GROUP);
        float *scales = (float *)(void *)(group + panel_group_values_bytes(kind));
        scales[lane] = scale[g];
        if (weight_kind_offset(kind))
            scales[PANEL_ROWS + lane] = offset[g];
    }
}

void weight_pack(enum weight_kind kind, uint32_t k, uint8_t *panels, uint32_t first_row,
                 uint32_t row_count, const struct weight_rows *rows)
{
    CHECK(first_row % PANEL_ROWS == 0);
    CHECK(!weight_kind_grouped(kind) || (k % WEIGHT_GROUP == 0 && rows->q && rows->scale));
    CHECK(!weight_kind_offset(kind) || rows->offset);
    CHECK(kind != WEIGHT_F32 || rows->f32);
    CHECK(kind != WEIGHT_BF16 || rows->bf16);
    const size_t groups = k / WEIGHT_GROUP;
    for (size_t i = 0; i < row_count; i++) {
        const size_t row = first_row + i;
        uint8_t *panel = panels + row / PANEL_ROWS * panel_bytes(kind, k);
        const uint32_t lane = (uint32_t)(row % PANEL_ROWS);
        if (kind == WEIGHT_F32)
            pack_f32_row(k, panel, lane, rows->f32 + i * k);
        else if (kind == WEIGHT_BF16)
            pack_bf16_row(k, panel, lane, rows->bf16 + i * k);
        else
            pack_grouped_row(kind, k, panel, lane, rows->q + i * k, rows->scale + i * groups,
                             weight_kind_offset(kind) ? rows->offset + i * groups : NULL);
    }
}
