/* Canonical rows into panels. Runs once a weight, at load, at close to the speed of a copy. */
#include "kernels/weight_panel.h"

#include <string.h>

#include "base/check.h"

enum { WORD_BYTES = 4, BLOCK_WORDS = 16, GROUP_WORDS = WEIGHT_GROUP / WORD_BYTES };

#define EACH_BYTE(value) ((value)*UINT32_C(0x01010101))

PANEL_INLINE uint32_t word_load(const void *from)
{
    uint32_t word;
    memcpy(&word, from, sizeof(word));
    return word;
}

PANEL_INLINE void word_store(uint8_t *panel, size_t index, uint32_t lane, uint32_t word)
{
    memcpy(panel + index * PANEL_VECTOR_BYTES + lane * WORD_BYTES, &word, sizeof(word));
}

/* Words of rows become words of lanes, `flip` changed in each. In blocks, so that what is read and
 * what is written both stay in the first-level cache. */
static void pack_words(uint8_t *panel, const void *rows, size_t row_bytes, size_t word_count,
                       uint32_t lanes, uint32_t flip)
{
    const uint8_t *from = rows;
    for (size_t first = 0; first < word_count; first += BLOCK_WORDS) {
        const size_t rest = word_count - first;
        const size_t end = first + (rest < BLOCK_WORDS ? rest : BLOCK_WORDS);
        for (uint32_t lane = 0; lane < lanes; lane++)
            for (size_t i = first; i < end; i++)
                word_store(panel, i, lane,
                           word_load(from + lane * row_bytes + i * WORD_BYTES) ^ flip);
    }
}

/* The last input of an odd K is paired with zero. */
static void pack_bf16(uint8_t *panel, const uint16_t *rows, uint32_t k, uint32_t lanes)
{
    pack_words(panel, rows, k * sizeof(*rows), k / 2, lanes, 0);
    for (uint32_t lane = 0; k % 2 != 0 && lane < lanes; lane++)
        word_store(panel, k / 2, lane, rows[(size_t)lane * k + k - 1]);
}

/* Four values of four bits, made positive: each byte is added to on its own. */
PANEL_INLINE uint32_t nibbles(const int8_t *q, uint32_t bias)
{
    const uint32_t word = word_load(q), sign = EACH_BYTE(UINT32_C(0x80));
    const uint32_t biased = ((word & ~sign) + EACH_BYTE(bias)) ^ (word & sign);
    DCHECK((biased & EACH_BYTE(UINT32_C(0xf0))) == 0);
    return biased;
}

static void pack_nibbles(uint8_t *panel, const int8_t *rows, uint32_t k, uint32_t lanes,
                         uint32_t bias)
{
    for (size_t first = 0; first < k; first += WEIGHT_GROUP)
        for (uint32_t lane = 0; lane < lanes; lane++) {
            const int8_t *low = rows + (size_t)lane * k + first;
            for (size_t i = 0; i < GROUP_WORDS / 2; i++, low += WORD_BYTES)
                word_store(panel, first / WORD_BYTES / 2 + i, lane,
                           nibbles(low, bias) | nibbles(low + WEIGHT_GROUP / 2, bias) << 4);
        }
}

/* False if one of them is no half. */
static bool pack_halves(uint16_t *out, size_t stride, const float *rows, size_t groups,
                        uint32_t lanes)
{
    bool exact = true;
    for (uint32_t lane = 0; lane < lanes; lane++)
        for (size_t g = 0; g < groups; g++)
            exact &= half_from_float(rows[lane * groups + g], &out[g * stride + lane]);
    return exact;
}

static bool pack_floats(float *out, size_t stride, const float *rows, size_t groups, uint32_t lanes)
{
    for (uint32_t lane = 0; lane < lanes; lane++)
        for (size_t g = 0; g < groups; g++)
            out[g * stride + lane] = rows[lane * groups + g];
    return true;
}

static bool pack_scales(enum weight_kind kind, bool half_scales, void *out,
                        const struct weight_rows *rows, size_t groups, uint32_t lanes)
{
    const size_t stride = panel_scale_count(kind);
    const float *const parts[] = {rows->scale, weight_kind_offset(kind) ? rows->offset : NULL};
    bool exact = true;
    for (size_t i = 0; i < ARRAY_COUNT(parts) && parts[i]; i++)
        exact &=
            half_scales
                ? pack_halves((uint16_t *)out + i * PANEL_ROWS, stride, parts[i], groups, lanes)
                : pack_floats((float *)out + i * PANEL_ROWS, stride, parts[i], groups, lanes);
    return exact;
}

bool weight_pack_panel(enum weight_kind kind, bool half_scales, uint32_t k, uint8_t *panel,
                       uint32_t row_count, const struct weight_rows *rows)
{
    CHECK(row_count >= 1 && row_count <= PANEL_ROWS);
    CHECK(!weight_kind_grouped(kind) || (k % WEIGHT_GROUP == 0 && rows->q && rows->scale));
    CHECK(!weight_kind_offset(kind) || rows->offset);
    CHECK(kind != WEIGHT_F32 || rows->f32);
    CHECK(kind != WEIGHT_BF16 || rows->bf16);
    const size_t groups = k / WEIGHT_GROUP;
    if (row_count < PANEL_ROWS)
        memset(panel, 0, panel_bytes(kind, half_scales, k));
    switch (kind) {
    case WEIGHT_F32:
        pack_words(panel, rows->f32, k * sizeof(float), k, row_count, 0);
        return true;
    case WEIGHT_BF16:
        pack_bf16(panel, rows->bf16, k, row_count);
        return true;
    case WEIGHT_Q8:
    case WEIGHT_Q8A: /* another 128 turns the highest bit */
        pack_words(panel, rows->q, k, k / WORD_BYTES, row_count,
                   kind == WEIGHT_Q8 ? EACH_BYTE((uint32_t)PANEL_Q8_BIAS) : 0);
        break;
    case WEIGHT_Q4:
    case WEIGHT_Q4A:
        pack_nibbles(panel, rows->q, k, row_count, (uint32_t)panel_bias(kind));
        break;
    }
    return pack_scales(kind, half_scales, panel + groups * panel_group_bytes(kind), rows, groups,
                       row_count);
}
