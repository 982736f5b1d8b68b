/* Block types: the reference conversion, bit for bit, and that the canonical form and quantising
 * agree with it. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "model/format/quant_types.h"

enum { BLOCKS = 64, VALUES = BLOCKS * 256, SMALL_VALUES = BLOCKS * 32 };

static const char *shared_path(const char *name, const char *suffix)
{
    static char path[512];
    const char *folder = getenv("BATON_SHARED");
    snprintf(path, sizeof path, "%s/golden/quant/%s.%s", folder != NULL ? folder : BATON_SHARED_DIR,
             name, suffix);
    return path;
}

static void *file_read(const char *path, size_t *bytes_out)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    cr_assert_eq(fseek(file, 0, SEEK_END), 0);
    *bytes_out = (size_t)ftell(file);
    rewind(file);
    void *data = malloc(*bytes_out);
    cr_assert_eq(fread(data, 1, *bytes_out, file), *bytes_out);
    fclose(file);
    return data;
}

Test(quant, dequantising_is_the_reference_bit_for_bit)
{
    size_t row_count;
    size_t compared = 0;
    const struct quant_type *rows = quant_type_rows(&row_count);
    for (size_t i = 0; i < row_count; i++) {
        const struct quant_type *type = &rows[i];
        size_t block_bytes = 0;
        size_t value_bytes = 0;
        void *blocks = file_read(shared_path(type->name, "bin"), &block_bytes);
        float *expected = file_read(shared_path(type->name, "f32"), &value_bytes);
        if (blocks == NULL || expected == NULL) {
            free(blocks);
            free(expected);
            continue;
        }
        const size_t count = block_bytes / type->block_bytes;
        cr_assert_eq(block_bytes % type->block_bytes, 0);
        cr_assert_eq(count * type->block_values * sizeof(float), value_bytes);
        float *values = malloc(value_bytes);
        type->dequantize(blocks, values, count);
        for (size_t k = 0; k < value_bytes / sizeof(float); k++)
            cr_assert_eq(memcmp(&values[k], &expected[k], sizeof(float)), 0,
                         "%s value %zu is %.9g, the reference has %.9g", type->name, k,
                         (double)values[k], (double)expected[k]);
        compared++;
        free(values);
        free(expected);
        free(blocks);
    }
    if (compared == 0)
        cr_skip_test("no reference data in %s", shared_path("TYPE", "bin"));
    cr_assert_geq(compared, 14);
}

Test(quant, rows_are_found_by_id_and_by_name_in_any_case)
{
    size_t row_count;
    const struct quant_type *rows = quant_type_rows(&row_count);
    cr_assert_eq(row_count, 15);
    for (size_t i = 0; i < row_count; i++) {
        cr_assert_eq(quant_type_by_id(rows[i].gguf_id), &rows[i]);
        cr_assert_eq(quant_type_by_name(rows[i].name), &rows[i]);
    }
    cr_assert_eq(quant_type_by_name("q4_k"), quant_type_by_id(12));
    cr_assert_null(quant_type_by_id(19));
    cr_assert_null(quant_type_by_name("Q4"));
}

Test(quant, every_half_goes_to_float_and_back)
{
    for (uint32_t half = 0; half < 65536; half++) {
        _Float16 builtin;
        const uint16_t bits = (uint16_t)half;
        memcpy(&builtin, &bits, sizeof bits);
        const float expected = (float)builtin;
        const float value = half_to_float(bits);
        if (expected != expected) {
            cr_assert(value != value, "%04x is not a NaN", half);
            cr_assert(half_to_float(float_to_half(value)) != half_to_float(float_to_half(value)));
            continue;
        }
        cr_assert_eq(memcmp(&value, &expected, sizeof value), 0, "%04x", half);
        cr_assert_eq(float_to_half(value), bits, "%04x", half);
    }
}

Test(quant, floats_round_to_the_nearest_half)
{
    for (uint64_t i = 0; i < 2000000; i++) {
        const uint32_t bits = (uint32_t)random_at(5, i, 0);
        float value;
        memcpy(&value, &bits, sizeof value);
        if (value != value)
            continue;
        const _Float16 rounded = (_Float16)value;
        uint16_t expected;
        memcpy(&expected, &rounded, sizeof expected);
        cr_assert_eq(float_to_half(value), expected, "%a", (double)value);
    }
}

static void random_fill(float *values, size_t count, uint64_t seed)
{
    struct random random;
    random_init(&random, seed);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)random_normal(&random);
}

/* Random bytes with scales that are not NaN, as blocks of a type. */
static uint8_t *blocks_make(const struct quant_type *type)
{
    uint8_t *blocks = malloc((size_t)BLOCKS * type->block_bytes);
    for (size_t i = 0; i < (size_t)BLOCKS * type->block_bytes; i++)
        blocks[i] = (uint8_t)random_at(9, i, 0);
    /* Exponents of the halves, which stand first or last, stay below the largest. */
    for (size_t b = 0; b < BLOCKS; b++) {
        uint8_t *block = blocks + b * type->block_bytes;
        block[1] &= 0xbb;
        block[type->block_bytes - 1] &= 0xbb;
        if (strchr(type->name, '1') != NULL || type->block_values == 256) {
            block[3] &= 0xbb;
            block[type->block_bytes - 3] &= 0xbb;
        }
    }
    return blocks;
}

/* A value of the canonical form may be off by this much of its group's largest magnitude. */
static void compare_split(const struct quant_type *type, float allowed)
{
    static int8_t q[VALUES];
    static float scale[VALUES / 32], offset[VALUES / 32], values[VALUES];
    const bool affine = type->kind == WEIGHT_Q4A || type->kind == WEIGHT_Q8A;
    const int low = affine ? 0 : type->kind == WEIGHT_Q4 ? -8 : -128;
    const int high = type->kind == WEIGHT_Q4 ? 7 : type->kind == WEIGHT_Q4A ? 15 : 127;
    uint8_t *blocks = blocks_make(type);
    type->split(blocks, q, scale, affine ? offset : NULL, BLOCKS);
    type->dequantize(blocks, values, BLOCKS);
    for (size_t k = 0; k < (size_t)BLOCKS * type->block_values; k++) {
        float largest = 0;
        for (size_t i = k / 32 * 32; i < k / 32 * 32 + 32; i++)
            largest = fmaxf(largest, fabsf(values[i]));
        const float canonical = scale[k / 32] * (float)q[k] + (affine ? offset[k / 32] : 0.0f);
        cr_assert(q[k] >= low && q[k] <= high, "%s q[%zu] is %d", type->name, k, q[k]);
        cr_assert(fabsf(values[k] - canonical) <= allowed * largest,
                  "%s value %zu: %g, canonical %g", type->name, k, (double)values[k],
                  (double)canonical);
    }
    free(blocks);
}

Test(quant, the_canonical_form_is_what_dequantising_gives)
{
    size_t row_count, exact = 0, rounded = 0;
    const struct quant_type *rows = quant_type_rows(&row_count);
    for (size_t i = 0; i < row_count; i++) {
        if (rows[i].split == NULL)
            continue;
        exact += rows[i].exact;
        rounded += !rows[i].exact;
        compare_split(&rows[i], rows[i].exact ? 0.0f : 0.501f / 127.0f);
    }
    cr_assert_eq(exact, 10);
    cr_assert_eq(rounded, 2);
}

Test(quant, float8_is_what_its_bits_say)
{
    const struct quant_type *type = quant_type_by_name("F8_E4M3");
    for (int i = 0; i < 256; i++) {
        const uint8_t byte = (uint8_t)i;
        const int exponent = i >> 3 & 15, mantissa = i & 7;
        float value;
        type->dequantize(&byte, &value, 1);
        if (exponent == 15 && mantissa == 7) {
            cr_assert(isnan(value));
            continue;
        }
        const double magnitude =
            exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
        cr_assert_eq((double)value, i < 128 ? magnitude : -magnitude, "%02x is %g", (unsigned)i,
                     (double)value);
    }
    cr_assert_null(quant_type_by_id(QUANT_NO_ID));
}

Test(quant, quantising_stays_within_half_a_step)
{
    static float values[SMALL_VALUES], back[SMALL_VALUES];
    static const struct {
        const char *name;
        float steps; /* of the block's largest magnitude */
    } cases[] = {{"Q8_0", 127}, {"Q4_0", 8},   {"Q4_1", 7.5f},
                 {"Q4_K", 5},   {"F16", 1024}, {"BF16", 128}};
    random_fill(values, SMALL_VALUES, 4);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const struct quant_type *type = quant_type_by_name(cases[c].name);
        const size_t blocks = SMALL_VALUES / type->block_values;
        void *data = malloc(blocks * type->block_bytes);
        type->quantize(values, data, blocks);
        type->dequantize(data, back, blocks);
        for (size_t b = 0; b < SMALL_VALUES / 32; b++) {
            float largest = 0;
            for (size_t k = 0; k < 32; k++)
                largest = fmaxf(largest, fabsf(values[b * 32 + k]));
            /* Q4_0 has one value more below zero than above: a whole step at the far end. */
            const float step = largest / cases[c].steps;
            const float allowed = strcmp(cases[c].name, "Q4_0") == 0 ? 1.01f * step : 0.52f * step;
            for (size_t k = 0; k < 32; k++)
                cr_assert_leq(fabsf(back[b * 32 + k] - values[b * 32 + k]), allowed, "%s %zu",
                              cases[c].name, b * 32 + k);
        }
        free(data);
    }
}

Test(quant, quantising_odd_values_gives_finite_blocks_or_the_value_itself)
{
    float values[32] = {0};
    float back[32];
    uint8_t block[64];
    const char *const names[] = {"Q8_0", "Q4_0", "Q4_1"};
    for (size_t i = 0; i < 3; i++) {
        const struct quant_type *type = quant_type_by_name(names[i]);
        memset(values, 0, sizeof values);
        type->quantize(values, block, 1);
        type->dequantize(block, back, 1);
        for (size_t k = 0; k < 32; k++)
            cr_assert_eq(back[k], 0.0f, "%s of zeros", names[i]);
        values[3] = NAN; // must not be undefined behaviour; the sanitizers watch
        values[4] = INFINITY;
        values[5] = -INFINITY;
        type->quantize(values, block, 1);
        values[3] = 1e30f; // a scale beyond half range
        values[4] = values[5] = 0;
        type->quantize(values, block, 1);
    }
    const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, 0x1p-149f};
    uint16_t half[5];
    float wide[5];
    quant_type_by_name("BF16")->quantize(odd, half, 5);
    quant_type_by_name("BF16")->dequantize(half, wide, 5);
    cr_assert(wide[0] != wide[0]);
    cr_assert(wide[1] == INFINITY && wide[2] == -INFINITY);
}
