/* Weights that are quantised when they are loaded: how far off they are, and that they are other
 * weights to the cluster. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "model/format/quant_types.h"
#include "model/model.h"
#include "tests/model/net/tiny_model.h"

enum { TOKENS = 48, GROUPS = 400 };

static void draw_group(struct random *random, float values[32])
{
    for (int i = 0; i < 32; i++)
        values[i] = (float)random_normal(random) * 0.05f;
}

Test(net_quantize, int8_is_within_half_a_step)
{
    struct random random;
    random_init(&random, 3);
    for (int g = 0; g < GROUPS; g++) {
        float values[32], scale;
        int8_t q[32];
        draw_group(&random, values);
        quant_fit_int8(values, q, &scale);
        cr_assert_eq(half_to_float(float_to_half(scale)), scale);
        for (int i = 0; i < 32; i++)
            cr_assert(fabsf(scale * q[i] - values[i]) <= 0.57f * scale, "%g", (double)values[i]);
    }
}

/* Against the grid from the least to the largest value. */
Test(net_quantize, int4_is_better_than_the_obvious_grid)
{
    struct random random;
    double fitted = 0, obvious = 0;
    random_init(&random, 4);
    for (int g = 0; g < GROUPS; g++) {
        float values[32], scale, offset, low = INFINITY, high = -INFINITY;
        int8_t q[32];
        draw_group(&random, values);
        quant_fit_int4(values, q, &scale, &offset);
        for (int i = 0; i < 32; i++) {
            low = fminf(low, values[i]);
            high = fmaxf(high, values[i]);
            cr_assert(q[i] >= 0 && q[i] <= 15);
        }
        const float step = (high - low) / 15.0f;
        for (int i = 0; i < 32; i++) {
            const float own = scale * q[i] + offset - values[i];
            const float other = rintf((values[i] - low) / step) * step + low - values[i];
            fitted += (double)(own * own);
            obvious += (double)(other * other);
        }
    }
    cr_assert(fitted < 0.9 * obvious, "%g against %g", fitted, obvious);
}

Test(net_quantize, groups_that_cannot_be_kept_say_so)
{
    float values[32] = {0}, scale, offset;
    int8_t q[32];
    quant_fit_int8(values, q, &scale);
    cr_assert(scale == 0.0f && q[7] == 0);
    quant_fit_int4(values, q, &scale, &offset);
    cr_assert(scale * q[3] + offset == 0.0f);
    for (int i = 0; i < 32; i++)
        values[i] = 0.375f;
    quant_fit_int4(values, q, &scale, &offset);
    cr_assert(scale * q[3] + offset == 0.375f);
    values[9] = NAN;
    quant_fit_int8(values, q, &scale);
    cr_assert(isnan(scale));
    quant_fit_int4(values, q, &scale, &offset);
    cr_assert(isnan(scale));
}

static const char *folder_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/golden/tiny/%s", shared_folder(), name);
    return access(path, R_OK) == 0 ? path : NULL;
}

static struct model *open_folder(const char *name, enum model_quantize quantize)
{
    struct model *model = NULL;
    struct error error = {0};
    const struct model_options options = {.path = folder_path(name),
                                          .quantize = quantize,
                                          .activations = ACTIVATION_F32,
                                          .kv_dtype = KV_F32,
                                          .context_tokens = 64,
                                          .max_logit_rows = TOKENS};
    cr_assert_eq(model_open(&options, &model, &error), STATUS_OK, "%s", error.text);
    return model;
}

static const float *run_tokens(struct model *model)
{
    int32_t ids[TOKENS];
    uint32_t slots[4];
    const float *logits = NULL;
    struct error error = {0};
    for (int32_t i = 0; i < TOKENS; i++)
        ids[i] = i * 37 % 320;
    tiny_model_take(model, TOKENS, slots);
    const struct forward_sequence sequence = {
        .tokens = ids, .count = TOKENS, .slots = slots, .logit_rows = TOKENS};
    cr_assert_eq(model_forward(model, &sequence, 1, NULL, &logits, &error), STATUS_OK, "%s",
                 error.text);
    tiny_model_give(model, TOKENS, slots);
    return logits;
}

/* Root of the mean square of differences of logits, whose own deviation is about 2. */
static double distance(const float *a, const float *b, size_t count)
{
    double squares = 0;
    for (size_t i = 0; i < count; i++)
        squares += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(squares / (double)count);
}

Test(net_quantize, logits_stay_near_and_the_weights_are_others)
{
    static const char *const names[] = {"llama-tied", "gpt2", "qwen2-moe"};
    if (folder_path(names[0]) == NULL)
        cr_skip_test("no reference data");
    for (size_t i = 0; i < 3; i++) {
        struct model *plain = open_folder(names[i], QUANTIZE_NONE);
        struct model *eight = open_folder(names[i], QUANTIZE_INT8);
        struct model *four = open_folder(names[i], QUANTIZE_INT4);
        const size_t count = (size_t)TOKENS * model_info(plain)->vocab_count;
        const float *logits = run_tokens(plain);
        const double far8 = distance(logits, run_tokens(eight), count);
        const double far4 = distance(logits, run_tokens(four), count);
        /* A row that a rounding sends to another expert is far off. */
        cr_assert(far8 > 0 && far8 < (i == 2 ? 0.4 : 0.12), "%s int8: %g", names[i], far8);
        /* Random weights all lose the same: the limit of int4 decides how many of them may. */
        cr_assert(far4 >= far8 && far4 < (i == 2 ? 0.8 : 0.35), "%s int4: %g", names[i], far4);
        cr_assert(model_info(four)->weight_bytes <= model_info(eight)->weight_bytes);
        cr_assert(model_info(eight)->weight_bytes < model_info(plain)->weight_bytes);
        const struct digest128 a = model_identity(plain)->weights,
                               b = model_identity(eight)->weights,
                               c = model_identity(four)->weights;
        cr_assert(!digest128_equal(a, b) && !digest128_equal(b, c) && !digest128_equal(a, c));
        model_close(plain);
        model_close(eight);
        model_close(four);
    }
}

static struct model *open_type(const char *type, enum model_quantize quantize)
{
    return tiny_model_open("llama", type,
                           (struct model_options){.quantize = quantize,
                                                  .activations = ACTIVATION_F32,
                                                  .kv_dtype = KV_F32,
                                                  .max_logit_rows = TOKENS});
}

/* What a file has in 4 bits is not touched, whatever is asked for; nor what it has in 8 by int8. */
Test(net_quantize, blocks_that_are_narrow_enough_stay)
{
    static const struct {
        const char *type;
        enum model_quantize quantize;
    } cases[] = {{"q4_0", QUANTIZE_INT4}, {"q4_0", QUANTIZE_INT8}, {"q8_0", QUANTIZE_INT8}};
    for (size_t i = 0; i < 3; i++) {
        struct model *plain = open_type(cases[i].type, QUANTIZE_NONE);
        struct model *model = open_type(cases[i].type, cases[i].quantize);
        const size_t count = (size_t)TOKENS * model_info(plain)->vocab_count;
        cr_assert_eq(distance(run_tokens(plain), run_tokens(model), count), 0, "case %zu", i);
        cr_assert_eq(model_info(plain)->weight_bytes, model_info(model)->weight_bytes);
        model_close(plain);
        model_close(model);
    }
}
