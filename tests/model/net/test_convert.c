/* Conversion: what was a folder computes the same as a GGUF file, for every architecture, so that
 * names, shapes, keys and orders of rows of both kinds of file are told apart rightly. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "model/model_convert.h"
#include "model/format/gguf.h"
#include "model/format/model_file.h"
#include "model/model.h"
#include "tests/model/net/tiny_model.h"

enum { TOKENS = 120, LOGITS = 320 };

static char folders[][32] = {"llama-tied",     "llama-mqa", "llama-mha-yarn", "llama3-rope",
                             "mistral-window", "qwen2",     "qwen2-gqa7",     "qwen3",
                             "gemma3",         "gpt2",      "mixtral",        "qwen2-moe",
                             "qwen3-moe"};

static const char *folder_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/golden/tiny/%s", shared_folder(), name);
    return access(path, R_OK) == 0 ? path : NULL;
}

static const char *out_path(void)
{
    static char path[64];
    if (path[0] == 0) {
        snprintf(path, sizeof path, "/tmp/baton-convert-XXXXXX");
        const int fd = mkstemp(path);
        CHECK(fd >= 0);
        close(fd);
    }
    return path;
}

static void convert(const char *in, const char *type, bool text_expected)
{
    struct error error = {0};
    bool text = !text_expected;
    const struct model_conversion conversion = {
        .in = in, .out = out_path(), .type = quant_type_by_name(type)};
    cr_assert_eq(model_convert(&conversion, &text, &error), STATUS_OK, "%s", error.text);
    cr_assert_eq(text, text_expected);
}

/* The caller frees them. */
static float *logits_of(const char *path)
{
    int32_t ids[TOKENS];
    for (int32_t i = 0; i < TOKENS; i++)
        ids[i] = (i * i + 7 * i) % LOGITS;
    return tiny_model_logits(path, ids, TOKENS);
}

static double distance(const float *a, const float *b)
{
    double squares = 0;
    for (size_t i = 0; i < (size_t)TOKENS * LOGITS; i++)
        squares += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(squares / (TOKENS * LOGITS));
}

static void compare(const char *name, const char *type, const float *expected, double allowed)
{
    convert(folder_path(name), type, false);
    float *logits = logits_of(out_path());
    const double far = distance(logits, expected);
    cr_assert(far <= allowed, "%s as %s is off by %g", name, type, far);
    free(logits);
}

ParameterizedTestParameters(convert, a_folder_computes_the_same_as_a_file)
{
    return cr_make_param_array(char[32], folders, ARRAY_COUNT(folders));
}

ParameterizedTest(char (*folder)[32], convert, a_folder_computes_the_same_as_a_file)
{
    const char *name = *folder;
    if (folder_path(name) == NULL)
        cr_skip_test("no reference data");
    /* Rows of odd lengths stay floats; experts change where a rounding sends a row elsewhere. */
    const bool moe = strstr(name, "moe") != NULL || strcmp(name, "mixtral") == 0;
    float *expected = logits_of(folder_path(name));
    compare(name, "F32", expected, 2e-5);
    compare(name, "BF16", expected, moe ? 0.3 : 0.05);
    compare(name, "Q8_0", expected, moe ? 0.5 : 0.25);
    compare(name, "Q4_K", expected, moe ? 2.5 : 1.8);
    unlink(out_path());
    free(expected);
}

/* A file is converted as well as a folder, and keeps its keys, its tokenizer among them. */
Test(convert, a_file_keeps_its_keys)
{
    char in[64];
    struct error error = {0};
    struct model_file *file = NULL;
    struct gguf_string name;
    uint32_t number = 0;
    struct buffer bytes = tiny_model_bytes("llama", "f32", NULL);
    snprintf(in, sizeof in, "%s", tiny_model_write(&bytes));
    convert(in, "Q4_0", true);
    cr_assert_eq(model_file_open(out_path(), &file, &error), STATUS_OK, "%s", error.text);
    const struct gguf *gguf = model_file_gguf(file);
    cr_assert_eq(gguf_get_string(gguf, "general.name", &name, &error), STATUS_OK);
    cr_assert_eq(gguf_get_u32(gguf, "general.file_type", &number, &error), STATUS_OK);
    cr_assert_eq(number, 2);
    const struct tensor_view *query = model_file_tensor_find(file, "blk.0.attn_q.weight", NULL);
    const struct tensor_view *embedding = model_file_tensor_find(file, "token_embd.weight", NULL);
    const struct tensor_view *norm = model_file_tensor_find(file, "blk.0.attn_norm.weight", NULL);
    cr_assert_str_eq(query->type_name, "Q4_0");
    cr_assert_str_eq(embedding->type_name, "Q8_0");
    cr_assert_str_eq(norm->type_name, "F32");
    model_file_close(file);
    struct model *model = NULL;
    const struct model_options options = {.path = out_path()};
    cr_assert_eq(model_open(&options, &model, &error), STATUS_OK, "%s", error.text);
    cr_assert(model_info(model)->token_count < 1000);
    model_close(model);
    unlink(out_path());
    tiny_model_unlink();
    buffer_free(&bytes);
}

Test(convert, an_input_is_never_written_over)
{
    struct error error = {0};
    bool text;
    struct buffer bytes = tiny_model_bytes("llama", "f32", NULL);
    const char *path = tiny_model_write(&bytes);
    const struct model_conversion conversion = {
        .in = path, .out = path, .type = quant_type_by_name("Q8_0")};
    cr_assert_eq(model_convert(&conversion, &text, &error), STATUS_INVALID);
    cr_assert_not_null(strstr(error.text, "is a file of the model that is read"), "%s", error.text);
    tiny_model_unlink();
    buffer_free(&bytes);
}
