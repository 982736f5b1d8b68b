/* The corners of the architectures against reference logits: layers without experts among layers
 * with them, biases, windows by layer, caps, heads tied and not, rotations by type of layer. Both
 * as a folder and as the GGUF file it converts to. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/json.h"
#include "model/model.h"
#include "model/model_convert.h"
#include "tests/model/format/model_folder.h"
#include "tests/model/net/tiny_model.h"
#include "tests/model/net/variant_folder.h"

enum { TOKENS_MAX = 64, VOCAB = 48 };

struct variant {
    char name[32];
    char no_file[64]; /* why there is no GGUF file of it; empty: there is */
};

static struct variant variants[] = {
    {"llama-biases", ""},
    {"llama-tied", ""},
    {"qwen2-upper-window", "windows of 2 of its 4 layers cannot be said"},
    {"qwen2-layer-types", "windows of 2 of its 4 layers cannot be said"},
    {"qwen2-moe-step", ""},
    {"qwen2-moe-no-bias", "have no biases"},
    {"qwen3-bias", ""},
    {"qwen3-moe-only", ""},
    {"gemma2", ""},
    {"gemma2-uncapped", ""},
    {"gemma3-cap", ""},
    {"gemma3-scaled", "scores of attention are scaled by"},
    {"gemma3-untied", ""},
    {"gemma3-rotations", "rotations are scaled of layers with a window"},
    {"gpt2-untied", ""},
};

/* Reference logits within this of ours; their standard deviation is from 1.3 to 2. */
static const float tolerance = 0.02f;

static uint32_t read_ids(const struct json *list, int32_t ids[TOKENS_MAX])
{
    const size_t count = json_count(list);
    cr_assert(count > 0 && count <= TOKENS_MAX);
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)json_int(json_at(list, i));
    return (uint32_t)count;
}

static struct model *open_model(const char *path, const char *what)
{
    struct model *model = NULL;
    struct error error = {0};
    const struct model_options options = {.path = path,
                                          .activations = ACTIVATION_F32,
                                          .kv_dtype = KV_F32,
                                          .context_tokens = TOKENS_MAX,
                                          .page_tokens = 16,
                                          .max_logit_rows = TOKENS_MAX};
    cr_assert_eq(model_open(&options, &model, &error), STATUS_OK, "%s: %s", what, error.text);
    return model;
}

/* Every reference logit, and the likeliest tokens that are found without logits. */
static void compare(const char *path, const char *what, const struct json *variant)
{
    struct model *model = open_model(path, what);
    struct error error = {0};
    const float *logits = NULL;
    int32_t ids[TOKENS_MAX];
    int32_t best_ids[TOKENS_MAX];
    uint32_t slots[TOKENS_MAX / 16 + 1];
    const uint32_t count = read_ids(json_get(variant, "ids"), ids);
    tiny_model_take(model, count, slots);
    const struct forward_sequence sequence = {
        .tokens = ids, .count = count, .slots = slots, .logit_rows = count};
    const struct forward_best *best = NULL;
    cr_assert_eq(model_forward_best(model, &sequence, 1, NULL, &best, &error), STATUS_OK, "%s",
                 error.text);
    for (uint32_t row = 0; row < count; row++)
        best_ids[row] = best[row].id;
    cr_assert_eq(model_forward(model, &sequence, 1, NULL, &logits, &error), STATUS_OK, "%s",
                 error.text);
    for (uint32_t row = 0; row < count; row++) {
        const float *own = logits + (size_t)row * VOCAB;
        for (size_t id = 0; id < VOCAB; id++)
            cr_assert(own[id] <= own[best_ids[row]]);
    }
    const struct json *rows = json_get(variant, "rows"), *expected = json_get(variant, "logits");
    for (size_t i = 0; i < json_count(rows); i++) {
        const float *row = logits + json_int(json_at(rows, i)) * VOCAB;
        cr_assert_eq(json_count(json_at(expected, i)), VOCAB);
        for (size_t id = 0; id < VOCAB; id++) {
            const float wanted = (float)json_number(json_at(json_at(expected, i), id));
            cr_assert(fabsf(row[id] - wanted) <= tolerance, "%s: row %zu, id %zu is %g, not %g",
                      what, i, id, (double)row[id], (double)wanted);
        }
    }
    tiny_model_give(model, count, slots);
    model_close(model);
}

ParameterizedTestParameters(net_variants, logits_are_the_reference)
{
    return cr_make_param_array(struct variant, variants, ARRAY_COUNT(variants));
}

ParameterizedTest(struct variant *v, net_variants, logits_are_the_reference)
{
    char out[128];
    bool text;
    struct error error = {0};
    struct json *variant = variant_read(v->name);
    const char *folder = variant_write(v->name);
    compare(folder, v->name, variant);
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    const struct model_conversion conversion = {
        .in = folder, .out = out, .type = quant_type_by_name("F32")};
    const enum status status = model_convert(&conversion, &text, &error);
    if (v->no_file[0] == 0) {
        cr_assert_eq(status, STATUS_OK, "%s: %s", v->name, error.text);
        compare(out, "the GGUF file", variant);
    } else {
        cr_assert_eq(status, STATUS_UNSUPPORTED);
        cr_assert_not_null(strstr(error.text, v->no_file), "%s", error.text);
    }
    json_free(variant);
    model_folder_remove();
}

/* The last row of `layers` layers of a case of four, each as often as it takes. */
static void write_deep(const char *name, uint32_t layers, const char *folder)
{
    struct json *variant = variant_read(name);
    struct tensor_file file = {0};
    struct buffer config = {0}, deep = {0};
    char count_text[64];
    variant_add_layers(variant, layers, &file);
    tensor_file_write(&file, "model.safetensors");
    variant_config(name, &config);
    buffer_add_char(&config, 0);
    char *types = strstr(config.data, "\"layer_types\""), *end = strchr(types, ']');
    memset(types, ' ', (size_t)(end - types) + 2); /* and the comma */
    char *count = strstr(config.data, "\"num_hidden_layers\": 4,");
    cr_assert_not_null(count);
    buffer_add(&deep, config.data, (size_t)(count - config.data));
    snprintf(count_text, sizeof count_text, "\"num_hidden_layers\": %u,", layers);
    buffer_add_text(&deep, count_text);
    buffer_add_text(&deep, strchr(count, ',') + 1);
    model_folder_write("config.json", deep.data, deep.size);
    buffer_free(&config);
    buffer_free(&deep);
    json_free(variant);
}

static void last_logits(const char *path, float out[VOCAB])
{
    struct model *model = open_model(path, path);
    struct error error = {0};
    const float *logits = NULL;
    int32_t ids[TOKENS_MAX];
    uint32_t slots[TOKENS_MAX / 16];
    for (int32_t i = 0; i < TOKENS_MAX; i++)
        ids[i] = i * 7 % VOCAB;
    tiny_model_take(model, TOKENS_MAX, slots);
    const struct forward_sequence sequence = {
        .tokens = ids, .count = TOKENS_MAX, .slots = slots, .logit_rows = 1};
    cr_assert_eq(model_forward(model, &sequence, 1, NULL, &logits, &error), STATUS_OK, "%s",
                 error.text);
    memcpy(out, logits, VOCAB * sizeof *out);
    tiny_model_give(model, TOKENS_MAX, slots);
    model_close(model);
}

/* Files of Gemma 3 do not say how scores are scaled: 62 layers do. The case's own scale is that of
 * the largest model, so 62 layers convert and any other number of them does not. Nor does six
 * divide 62. */
Test(net_variants, the_largest_of_a_family_is_known_by_its_layers)
{
    char out[128];
    bool text;
    float folder_logits[VOCAB], file_logits[VOCAB];
    struct error error = {0};
    const char *folder = model_folder_make();
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    const struct model_conversion conversion = {
        .in = folder, .out = out, .type = quant_type_by_name("F32")};
    write_deep("gemma3-scaled", 61, folder);
    cr_assert_eq(model_convert(&conversion, &text, &error), STATUS_UNSUPPORTED);
    write_deep("gemma3-scaled", 62, folder);
    cr_assert_eq(model_convert(&conversion, &text, &error), STATUS_OK, "%s", error.text);
    last_logits(folder, folder_logits);
    last_logits(out, file_logits);
    for (size_t id = 0; id < VOCAB; id++)
        cr_assert(fabsf(folder_logits[id] - file_logits[id]) <= 1e-4f);
    model_folder_remove();
}
