/* Folders of float8 weights with scales compute what their values times their scales compute, in
 * every form that the scales come in. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "model/format/quant_types.h"
#include "model/model.h"
#include "model/model_convert.h"
#include "tests/model/format/model_folder.h"
#include "tests/model/net/tiny_model.h"
#include "tests/model/net/variant_folder.h"

enum { TOKENS = 24, VOCAB = 48, CODES = 256 };

/* Sides of a tile in values; 0: all of the matrix. */
struct form {
    char name[24], config[256], suffix[16], dtype[8];
    uint32_t rows, columns;
    bool scalar; /* one scale has no dimension */
    bool activations;
};

#define GROUP(more)                                                                                \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\",\"config_groups\":{"  \
    "\"group_0\":{\"weights\":{\"num_bits\":8,\"type\":\"float\",\"symmetric\":true" more "}}}}"

static struct form forms[] = {
    /* Neither side divides the matrices. */
    {"tiles", "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"weight_block_size\":[12,20]}",
     "_scale_inv", "F32", 12, 20, false, false},
    {"tiles of groups", GROUP(",\"strategy\":\"block\",\"block_structure\":[16,24]"), "_scale",
     "BF16", 16, 24, false, true},
    {"usual tiles", "", "_scale_inv", "F32", 128, 128, false, false},
    {"rows", GROUP(",\"strategy\":\"channel\""), "_scale", "BF16", 1, 0, false, true},
    {"rows of fbgemm", "{\"quant_method\":\"fbgemm_fp8\"}", "_scale", "F32", 1, 0, false, false},
    {"one", GROUP(",\"strategy\":\"tensor\""), "_scale", "F16", 0, 0, false, true},
    {"one without dimensions", "{\"quant_method\":\"fp8\"}", "_scale_inv", "F32", 0, 0, true,
     false},
};

static float codes[CODES];

static void codes_fill(void)
{
    uint8_t bytes[CODES];
    for (int i = 0; i < CODES; i++)
        bytes[i] = (uint8_t)i;
    quant_type_by_name("F8_E4M3")->dequantize(bytes, codes, CODES);
}

static uint8_t nearest_code(float value)
{
    uint8_t best = 0;
    for (int i = 1; i < CODES; i++)
        if (fabsf(codes[i] - value) < fabsf(codes[best] - value)) /* never of a NaN */
            best = (uint8_t)i;
    return best;
}

/* Matrices of layers, but for the router of experts, which such folders keep. */
static bool is_quantised(const char *name)
{
    return strstr(name, "_proj.weight") != NULL;
}

/* What is left of a scale in its type. */
static float scale_store(const char *dtype, float scale, uint8_t out[4])
{
    const struct quant_type *type = quant_type_by_name(dtype);
    float back;
    type->quantize(&scale, out, 1);
    type->dequantize(out, &back, 1);
    return back;
}

/* Puts values in `file` as float8, and as what that means back into `values`. */
static void add_quantised(struct tensor_file *file, const struct form *form, const char *name,
                          uint32_t rows, uint32_t columns, float *values)
{
    const uint32_t tile_rows = form->rows == 0 ? rows : form->rows;
    const uint32_t tile_columns = form->columns == 0 ? columns : form->columns;
    const uint32_t down = (rows + tile_rows - 1) / tile_rows;
    const uint32_t across = (columns + tile_columns - 1) / tile_columns;
    const size_t scale_bytes = quant_type_by_name(form->dtype)->block_bytes;
    uint8_t *bytes = malloc((size_t)rows * columns);
    uint8_t *scales = malloc((size_t)down * across * scale_bytes + 4);
    char scale_name[160];
    CHECK(bytes != NULL && scales != NULL);
    for (uint32_t tile = 0; tile < down * across; tile++) {
        const uint32_t first_row = tile / across * tile_rows;
        const uint32_t first_column = tile % across * tile_columns;
        float largest = 1e-6f;
        for (uint32_t pass = 0; pass < 2; pass++) {
            const float scale =
                scale_store(form->dtype, largest / 448.0f, scales + tile * scale_bytes);
            for (uint32_t r = first_row; r < rows && r < first_row + tile_rows; r++) {
                for (uint32_t c = first_column; c < columns && c < first_column + tile_columns;
                     c++) {
                    float *value = &values[(size_t)r * columns + c];
                    if (pass == 0) {
                        largest = fmaxf(largest, fabsf(*value));
                        continue;
                    }
                    const uint8_t code = nearest_code(*value / scale);
                    bytes[(size_t)r * columns + c] = code;
                    *value = codes[code] * scale;
                }
            }
        }
    }
    tensor_file_add(file, name, "F8_E4M3", rows, columns, bytes, (size_t)rows * columns);
    snprintf(scale_name, sizeof scale_name, "%s%s", name, form->suffix);
    tensor_file_add(file, scale_name, form->dtype, form->scalar ? 0 : down,
                    form->scalar ? 0 : across, scales, (size_t)down * across * scale_bytes);
    if (form->activations) {
        snprintf(scale_name, sizeof scale_name, "%.*s.input_scale",
                 (int)(strlen(name) - strlen(".weight")), name);
        tensor_file_add(file, scale_name, "F32", 1, 0, &(float){0.5f}, sizeof(float));
    }
    free(bytes);
    free(scales);
}

/* Writes the folder whose values are `twin`s, as float8 or as floats. */
static void write_folder(const char *variant_name, const struct form *form, bool quantised)
{
    struct json *variant = variant_read(variant_name);
    struct tensor_file file = {0}, unused = {0};
    struct buffer config = {0}, text = {0};
    for (size_t i = 0; i < json_count(json_get(variant, "tensors")); i++) {
        const char *name = variant_tensor_name(variant, i);
        size_t count;
        float *values = variant_values(variant, i, &count);
        uint32_t rows, columns;
        variant_shape(variant, i, &rows, &columns);
        if (is_quantised(name))
            add_quantised(quantised ? &file : &unused, form, name, rows, columns, values);
        if (!is_quantised(name) || !quantised)
            tensor_file_add(&file, name, "F32", rows, columns, values, count * sizeof *values);
        free(values);
    }
    tensor_file_write(&file, "model.safetensors");
    buffer_free(&unused.header);
    buffer_free(&unused.data);
    variant_config(variant_name, &config);
    buffer_add_char(&text, '{');
    if (quantised && form->config[0] != 0)
        buffer_printf(&text, "\"quantization_config\":%s,", form->config);
    buffer_add(&text, config.data + 1, config.size - 1);
    model_folder_write("config.json", text.data, text.size);
    buffer_free(&config);
    buffer_free(&text);
    json_free(variant);
}

static void logits_of(const char *path, float *out)
{
    int32_t ids[TOKENS];
    for (int32_t i = 0; i < TOKENS; i++)
        ids[i] = i * 5 % VOCAB;
    float *logits = tiny_model_logits(path, ids, TOKENS);
    memcpy(out, logits, sizeof *out * TOKENS * VOCAB);
    free(logits);
}

ParameterizedTestParameters(net_float8, is_what_its_values_times_its_scales_are)
{
    return cr_make_param_array(struct form, forms, ARRAY_COUNT(forms));
}

ParameterizedTest(struct form *form, net_float8, is_what_its_values_times_its_scales_are)
{
    static const char *const names[] = {"qwen3-bias", "qwen3-moe-only"};
    static float eight[TOKENS * VOCAB], twin[TOKENS * VOCAB], file[TOKENS * VOCAB];
    char out[128];
    bool text;
    struct error error = {0};
    codes_fill();
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        const char *folder = model_folder_make();
        snprintf(out, sizeof out, "%s/out.gguf", folder);
        const struct model_conversion conversion = {
            .in = folder, .out = out, .type = quant_type_by_name("F32")};
        write_folder(names[i], form, true);
        logits_of(folder, eight);
        cr_assert_eq(model_convert(&conversion, &text, &error), STATUS_OK, "%s", error.text);
        logits_of(out, file);
        write_folder(names[i], form, false);
        logits_of(folder, twin);
        cr_assert_eq(memcmp(eight, twin, sizeof eight), 0, "%s %s", form->name, names[i]);
        cr_assert_eq(memcmp(eight, file, sizeof eight), 0, "%s %s", form->name, names[i]);
        model_folder_remove();
    }
}

struct refusal {
    const char *dtype, *suffix, *words;
    uint64_t rows, columns;
};

Test(net_float8, scales_that_do_not_fit_are_refused_by_name)
{
    static const struct refusal refusals[] = {
        {"F32", "s_scale", "has neither 'model.layers.0.mlp.down_proj.weight_scale_inv' nor", 1, 0},
        {"F32", "_scale", "holds neither one scale, nor one for each of 32 rows", 2, 0},
        {"F32", "_scale", "nor one for each 128 by 128 of [32, 64] values", 1, 32},
        {"I32", "_scale", "is I32, Baton reads scales of F32, F16 and BF16", 1, 0},
    };
    static const uint8_t zeros[64 * 32 * 4];
    for (size_t i = 0; i < ARRAY_COUNT(refusals); i++) {
        struct json *variant = variant_read("qwen3-bias");
        struct tensor_file file = {0};
        struct model_outline outline;
        struct error error = {0};
        struct buffer config = {0};
        char name[160];
        const char *folder = model_folder_make();
        for (size_t t = 0; t < json_count(json_get(variant, "tensors")); t++) {
            uint32_t rows, columns;
            const char *own = variant_tensor_name(variant, t);
            variant_shape(variant, t, &rows, &columns);
            const bool eight = strcmp(own, "model.layers.0.mlp.down_proj.weight") == 0;
            tensor_file_add(&file, own, eight ? "F8_E4M3" : "F32", rows, columns, zeros,
                            (size_t)rows * (columns == 0 ? 1 : columns) * (eight ? 1 : 4));
        }
        snprintf(name, sizeof name, "model.layers.0.mlp.down_proj.weight%s", refusals[i].suffix);
        const uint64_t values =
            refusals[i].rows * (refusals[i].columns == 0 ? 1 : refusals[i].columns);
        tensor_file_add(&file, name, refusals[i].dtype, refusals[i].rows, refusals[i].columns,
                        zeros, values * 4);
        tensor_file_write(&file, "model.safetensors");
        variant_config("qwen3-bias", &config);
        model_folder_write("config.json", config.data, config.size);
        cr_assert_neq(model_outline_read(folder, &outline, &error), STATUS_OK);
        cr_assert_not_null(strstr(error.text, refusals[i].words), "%s", error.text);
        model_folder_remove();
        buffer_free(&config);
        json_free(variant);
    }
}
