/* Where int4 puts its 4 bits: the spending of a budget, and that what was chosen is within it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/random.h"
#include "model/model.h"
#include "model/model_convert.h"
#include "model/net/quantize_internal.h"
#include "tests/model/net/tiny_model.h"

enum { LAYERS = 8 };

static struct quantize_plan plan_open(void)
{
    struct quantize_plan plan;
    struct error error = {0};
    cr_assert_eq(quantize_plan_init(&plan, QUANTIZE_INT4, LAYERS, &error), STATUS_OK);
    cr_assert(!quantize_plan_any(&plan));
    return plan;
}

static uint32_t layers_of(const struct quantize_plan *plan, size_t row)
{
    uint32_t count = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        count += quantize_plan_narrow(plan, layer, row);
    return count;
}

/* Row 8 costs most for its values, row 10 least. */
Test(quantize_plan, the_cheapest_roles_come_first_and_the_middle_before_the_ends)
{
    uint64_t many[LAYERS], few[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        many[i] = 1000;
        few[i] = 100;
    }
    struct quantize_role roles[] = {
        {.row = 8, .values = few, .total = 800, .cost = 0.010},
        {.row = 9, .values = many, .total = 8000, .cost = 0.020},
        {.row = 10, .values = many, .total = 8000, .cost = 0.005},
    };
    struct quantize_plan plan = plan_open();
    cr_assert_eq(quantize_plan_spend(&plan, roles, 3, 0.0151), 8000 + 4000);
    cr_assert_eq(layers_of(&plan, 10), LAYERS);
    cr_assert_eq(layers_of(&plan, 9), 4);
    cr_assert_eq(layers_of(&plan, 8), 0);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        cr_assert_eq(quantize_plan_narrow(&plan, layer, 9), layer >= 2 && layer < 6);
    cr_assert_eq(quantize_plan_spend(&plan, roles, 3, 1), 8000 + 8000 + 800);
    cr_assert_eq(layers_of(&plan, 8), LAYERS);
    cr_assert_eq(quantize_plan_spend(&plan, roles, 3, 0.0001), 0);
    cr_assert(!quantize_plan_any(&plan));
    quantize_plan_release(&plan);
}

Test(quantize_plan, another_choice_is_described_otherwise)
{
    struct quantize_plan plan = plan_open();
    struct buffer before = {0}, after = {0};
    quantize_plan_describe(&plan, &before);
    *quantize_plan_at(&plan, 3, 9) = true;
    quantize_plan_describe(&plan, &after);
    cr_assert_eq(before.size, after.size);
    cr_assert_neq(memcmp(before.data, after.data, before.size), 0);
    buffer_free(&before);
    buffer_free(&after);
    quantize_plan_release(&plan);
}

/* ---- whole models ---- */

static const char *folder_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/golden/tiny/%s", shared_folder(), name);
    return access(path, R_OK) == 0 ? path : NULL;
}

struct setting {
    uint32_t threads, max_rows;
    const char *calibrate, *isa;
    bool floats; /* activations */
};

static enum status open_int4(const char *path, struct setting setting, struct model **out,
                             struct error *error)
{
    const struct model_options options = {.path = path,
                                          .quantize = QUANTIZE_INT4,
                                          .calibrate = setting.calibrate,
                                          .activations =
                                              setting.floats ? ACTIVATION_F32 : ACTIVATION_NATIVE,
                                          .kv_dtype = KV_BF16,
                                          .isa = setting.isa,
                                          .threads = setting.threads,
                                          .max_rows = setting.max_rows,
                                          .context_tokens = 128};
    return model_open(&options, out, error);
}

static struct model *open_sure(const char *path, struct setting setting)
{
    struct model *model = NULL;
    struct error error = {0};
    cr_assert_eq(open_int4(path, setting, &model, &error), STATUS_OK, "%s", error.text);
    return model;
}

/* Random weights lose much at 4 bits: some of them keep 8, and it is the same ones however the load
 * was computed. */
Test(quantize_plan, the_choice_does_not_depend_on_how_it_was_computed)
{
    const char *path = folder_path("llama-tied");
    if (path == NULL)
        cr_skip_test("no reference data");
    struct model *one = open_sure(path, (struct setting){.threads = 1, .max_rows = 256});
    const struct model_identity *a = model_identity(one);
    cr_assert(model_info(one)->narrow_share >= 0 && model_info(one)->narrow_share < 1, "%g",
              model_info(one)->narrow_share);
    static const struct setting others[] = {{.threads = 3, .max_rows = 256},
                                            {.threads = 2, .max_rows = 7},
                                            {.threads = 1, .max_rows = 64, .isa = "ref"}};
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        struct model *other = open_sure(path, others[i]);
        const struct model_identity *b = model_identity(other);
        cr_assert(digest128_equal(a->weights, b->weights), "setting %zu", i);
        cr_assert_eq(a->probe_digest, b->probe_digest, "setting %zu", i);
        model_close(other);
    }
    model_close(one);
}

static const char *write_text(const char *text, size_t repeats)
{
    static char name[64];
    snprintf(name, sizeof name, "/tmp/baton-calibrate-XXXXXX");
    const int fd = mkstemp(name);
    CHECK(fd >= 0);
    for (size_t i = 0; i < repeats; i++)
        CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    return name;
}

Test(quantize_plan, a_text_is_read_or_refused)
{
    struct buffer bytes = tiny_model_bytes("llama", "f32", NULL);
    const char *path = tiny_model_write(&bytes);
    struct model *model = NULL;
    struct error error = {0};
    const char *text = write_text("The cat that sat on the mat has left; the hat is left. ", 40);
    model_close(open_sure(path, (struct setting){.calibrate = text}));
    unlink(text);
    text = write_text("Hello.", 1);
    cr_assert_eq(open_int4(path, (struct setting){.calibrate = text}, &model, &error),
                 STATUS_INVALID);
    cr_assert_not_null(strstr(error.text, "at least 64"), "%s", error.text);
    unlink(text);
    cr_assert_eq(open_int4(path, (struct setting){.calibrate = "/nowhere/text"}, &model, &error),
                 STATUS_IO);
    cr_assert_not_null(strstr(error.text, "/nowhere/text"), "%s", error.text);
    const struct model_options nothing = {.path = path, .calibrate = "/nowhere/text"};
    cr_assert_eq(model_open(&nothing, &model, &error), STATUS_INVALID);
    cr_assert_not_null(strstr(error.text, "nothing is to be quantised"), "%s", error.text);
    tiny_model_unlink();
    buffer_free(&bytes);
}

/* Random weights have nothing to spare, those that stood on grids of 4 bits before can nearly all
 * go back there. */
Test(quantize_plan, what_costs_little_takes_four_bits)
{
    struct buffer bytes = tiny_model_bytes("llama", "q4_0", NULL);
    struct error error = {0};
    bool text;
    char out[64] = "/tmp/baton-quantize-XXXXXX";
    const int fd = mkstemp(out);
    CHECK(fd >= 0);
    close(fd);
    const struct model_conversion conversion = {
        .in = tiny_model_write(&bytes), .out = out, .type = quant_type_by_name("bf16")};
    cr_assert_eq(model_convert(&conversion, &text, &error), STATUS_OK, "%s", error.text);
    struct model *model = open_sure(out, (struct setting){.threads = 2, .floats = true});
    cr_assert_gt(model_info(model)->narrow_share, 0.6);
    cr_assert(model_info(model)->weight_bytes * 2 < model_info(model)->tensor_bytes);
    model_close(model);
    unlink(out);
    tiny_model_unlink();
    buffer_free(&bytes);
    model = tiny_model_open(
        "llama", "f32",
        (struct model_options){.quantize = QUANTIZE_INT4, .activations = ACTIVATION_F32});
    cr_assert_lt(model_info(model)->narrow_share, 0.4);
    model_close(model);
}
