/* The real models against reference logits: prompt and reference continuation are fed in one call,
 * and every step's logits are compared. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "tests/model/net/tiny_model.h"

enum { ROWS = 320, STEPS_MAX = 64, TOP = 10 };

/* Rows of a comparison; prompts that would go over are left out. */
#ifdef __SANITIZE_ADDRESS__
static const uint32_t rows_max = 160; /* each takes ten times as long */
#else
static const uint32_t rows_max = UINT32_MAX;
#endif

struct golden_step {
    int32_t id;
    int32_t top_ids[TOP];
    float top_logits[TOP];
};

/* One prompt of the file. */
struct golden {
    int32_t tokens[ROWS]; /* the prompt, then the continuation without its last token */
    uint32_t prompt_count, step_count;
    struct golden_step steps[STEPS_MAX];
};

static void read_golden(const struct json *line, struct golden *golden)
{
    const struct json *ids = json_get(line, "ids"), *steps = json_get(line, "steps");
    golden->prompt_count = (uint32_t)json_count(ids);
    golden->step_count = (uint32_t)json_count(steps);
    cr_assert(golden->step_count > 0 && golden->step_count <= STEPS_MAX);
    cr_assert(golden->prompt_count > 0 && golden->prompt_count + golden->step_count <= ROWS);
    for (uint32_t i = 0; i < golden->prompt_count; i++)
        golden->tokens[i] = (int32_t)json_int(json_at(ids, i));
    for (uint32_t i = 0; i < golden->step_count; i++) {
        const struct json *step = json_at(steps, i), *top = json_get(step, "top");
        cr_assert_eq(json_count(top), TOP);
        golden->steps[i].id = (int32_t)json_int(json_get(step, "id"));
        golden->tokens[golden->prompt_count + i] = golden->steps[i].id;
        for (uint32_t t = 0; t < TOP; t++) {
            const struct json *pair = json_at(top, t);
            golden->steps[i].top_ids[t] = (int32_t)json_int(json_at(pair, 0));
            golden->steps[i].top_logits[t] = (float)json_number(json_at(pair, 1));
        }
    }
}

static uint32_t argmax(const float *logits, uint32_t count)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* What a comparison has seen, so that it cannot pass by seeing nothing. */
struct seen {
    uint32_t prompts, steps, margins;
    double worst;
};

static void compare_step(const struct golden_step *step, const float *logits, uint32_t vocab,
                         bool exact, struct seen *seen)
{
    for (uint32_t t = 0; t < TOP; t++) {
        const double gap = fabs((double)logits[step->top_ids[t]] - (double)step->top_logits[t]);
        seen->worst = gap > seen->worst ? gap : seen->worst;
        if (exact)
            cr_assert(gap <= 0.02, "prompt %u step %u: token %d has %g, the reference %g",
                      seen->prompts, seen->steps, step->top_ids[t],
                      (double)logits[step->top_ids[t]], (double)step->top_logits[t]);
    }
    seen->steps++;
    if (step->top_logits[0] - step->top_logits[1] <= 0.5f)
        return;
    seen->margins++;
    cr_assert_eq(argmax(logits, vocab), (uint32_t)step->top_ids[0],
                 "prompt %u: another likeliest token than %d", seen->prompts, step->top_ids[0]);
}

static void compare_prompt(struct model *model, const struct golden *golden, bool exact,
                           struct seen *seen)
{
    uint32_t slots[ROWS];
    struct error error = {0};
    const float *logits = NULL;
    const uint32_t vocab = model_info(model)->vocab_count;
    const uint32_t count = golden->prompt_count + golden->step_count - 1;
    tiny_model_take(model, count, slots);
    const struct forward_sequence sequence = {
        .tokens = golden->tokens,
        .count = count,
        .slots = slots,
        .logit_rows = golden->step_count,
    };
    cr_assert_eq(model_forward(model, &sequence, 1, NULL, &logits, &error), STATUS_OK, "%s",
                 error.text);
    for (uint32_t i = 0; i < golden->step_count; i++)
        compare_step(&golden->steps[i], logits + (size_t)i * vocab, vocab, exact, seen);
    tiny_model_give(model, count, slots);
    seen->prompts++;
}

static void compare_file(FILE *file, struct model *model, bool exact)
{
    struct seen seen = {0};
    static struct golden golden;
    char *line = NULL;
    size_t capacity = 0, rows = 0;
    while (getline(&line, &capacity, file) > 0) {
        struct json *root;
        struct error error = {0};
        cr_assert_eq(json_parse(line, strlen(line), &root, &error), STATUS_OK, "%s", error.text);
        read_golden(root, &golden);
        json_free(root);
        if (rows + golden.prompt_count + golden.step_count > rows_max)
            continue;
        rows += golden.prompt_count + golden.step_count;
        compare_prompt(model, &golden, exact, &seen);
    }
    free(line);
    fprintf(stderr, "%s: %u prompts, %u steps, %u with a margin, worst gap %.4f\n",
            model_backend_text(model), seen.prompts, seen.steps, seen.margins, seen.worst);
    cr_assert(seen.prompts >= 3 && seen.steps > 100 && seen.margins > 50);
}

/* A model and the folder of its reference data. */
struct subject {
    const char *(*path)(void);
    const char *folder;
};
static const struct subject smollm2 = {real_model_path, "smollm2-135m"};
static const struct subject gemma3 = {gemma_model_path, "gemma3-270m"};

static void compare(const struct subject *subject, struct model_options options, bool exact)
{
    char name[512];
    struct error error = {0};
    struct model *model = NULL;
    options.path = subject->path();
    snprintf(name, sizeof name, "%s/golden/%s/greedy.jsonl", shared_folder(), subject->folder);
    FILE *file = fopen(name, "r");
    if (file == NULL || options.path == NULL) {
        if (file != NULL)
            fclose(file);
        cr_skip_test("%s is not there", file == NULL ? name : subject->folder);
    }
    options.context_tokens = 1024;
    options.max_rows = ROWS;
    options.max_logit_rows = STEPS_MAX;
    cr_assert_eq(model_open(&options, &model, &error), STATUS_OK, "%s", error.text);
    compare_file(file, model, exact);
    model_close(model);
    fclose(file);
}

static bool long_tests(void)
{
    return getenv("BATON_TEST_LONG") != NULL;
}

Test(net_golden, reference_path_has_the_reference_logits, .timeout = 580)
{
    compare(&smollm2, (struct model_options){.isa = "ref", .kv_dtype = KV_F32}, true);
}

/* The best instruction set in every run, all of them in the long form. */
Test(net_golden, fast_paths_keep_the_likeliest_token, .timeout = 580)
{
    for (enum kernel_isa isa = KERNEL_ISA_ref; isa < KERNEL_ISA_COUNT; isa++) {
        if (!kernel_isa_available(isa) || (isa != kernel_isa_best() && !long_tests()))
            continue;
        compare(&smollm2,
                (struct model_options){.isa = kernel_isa_name(isa),
                                       .activations = ACTIVATION_NATIVE,
                                       .kv_dtype = KV_BF16},
                false);
    }
}

Test(net_golden, int8_pages_keep_the_likeliest_token, .timeout = 580)
{
    compare(&smollm2, (struct model_options){.activations = ACTIVATION_NATIVE, .kv_dtype = KV_I8},
            false);
}

/* The best path in float32 is the reference path, faster. */
Test(net_golden, fast_float_path_has_the_reference_logits, .timeout = 580)
{
    compare(&smollm2, (struct model_options){.activations = ACTIVATION_F32, .kv_dtype = KV_F32},
            true);
}

/* Windows, norms after attention and feed-forward, heads of 256, Q4_K and Q6_K. */
Test(net_golden, gemma_has_the_reference_logits, .timeout = 580)
{
    compare(&gemma3, (struct model_options){.activations = ACTIVATION_F32, .kv_dtype = KV_F32},
            true);
}

Test(net_golden, gemma_keeps_the_likeliest_token, .timeout = 580)
{
    compare(&gemma3, (struct model_options){.activations = ACTIVATION_NATIVE, .kv_dtype = KV_BF16},
            false);
}
