/* Every architecture against reference logits: tiny folders of random weights whose logits were
 * computed in float32 by other programs (golden/tiny of the shared data). */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "model/model.h"
#include "tests/model/net/tiny_model.h"

enum { TOKENS_MAX = 256, LOGITS = 320 };

static char folders[][32] = {"llama-tied",     "llama-mqa", "llama-mha-yarn", "llama3-rope",
                             "mistral-window", "qwen2",     "qwen2-gqa7",     "qwen3",
                             "gemma3",         "gpt2",      "mixtral",        "qwen2-moe",
                             "qwen3-moe"};

/* Reference logits within this of ours; their standard deviation is about 2. */
static const float tolerance = 0.02f;

static const char *folder_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/golden/tiny/%s", shared_folder(), name);
    return path;
}

static struct json *reference_read(const char *name)
{
    char path[600];
    struct error error;
    struct json *root = NULL;
    struct buffer text = {0};
    char part[4096];
    snprintf(path, sizeof path, "%s/reference.json", folder_path(name));
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    for (size_t bytes; (bytes = fread(part, 1, sizeof part, file)) > 0;)
        buffer_add(&text, part, bytes);
    fclose(file);
    cr_assert_eq(json_parse(text.data, text.size, &root, &error), STATUS_OK, "%s", error.text);
    buffer_free(&text);
    return root;
}

static uint32_t read_ids(const struct json *list, int32_t ids[TOKENS_MAX])
{
    const size_t count = json_count(list);
    cr_assert(count <= TOKENS_MAX / 2);
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)json_int(json_at(list, i));
    return (uint32_t)count;
}

static const float *logits_after(struct model *model, const int32_t *ids, uint32_t from,
                                 uint32_t count, const uint32_t *slots)
{
    const float *logits = NULL;
    struct error error = {0};
    const struct forward_sequence sequence = {
        .tokens = ids + from, .count = count, .position = from, .slots = slots, .logit_rows = 1};
    cr_assert_eq(model_forward(model, &sequence, 1, NULL, &logits, &error), STATUS_OK, "%s",
                 error.text);
    return logits;
}

/* The likeliest id, and by how much it leads. */
static int32_t likeliest(const float *logits, float *margin_out)
{
    int32_t best = 0;
    float second = -INFINITY;
    for (int32_t i = 1; i < LOGITS; i++) {
        if (logits[i] > logits[best]) {
            second = logits[best];
            best = i;
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    *margin_out = logits[best] - second;
    return best;
}

/* Returns the largest difference of any logit. */
static float run_case(struct model *model, const char *name, const struct json *c)
{
    int32_t ids[TOKENS_MAX];
    uint32_t slots[TOKENS_MAX / 16];
    float largest = 0.0f, margin;
    const struct json *expected = json_get(c, "last_logits"), *greedy = json_get(c, "greedy");
    uint32_t count = read_ids(json_get(c, "ids"), ids);
    cr_assert_eq(json_count(expected), LOGITS);
    tiny_model_take(model, TOKENS_MAX, slots);
    const float *logits = logits_after(model, ids, 0, count, slots);
    for (size_t i = 0; i < LOGITS; i++) {
        const float difference = fabsf(logits[i] - (float)json_number(json_at(expected, i)));
        largest = difference > largest || isnan(difference) ? difference : largest;
    }
    for (size_t i = 0; i < json_count(greedy); i++) {
        const int32_t wanted = (int32_t)json_int(json_at(greedy, i));
        const int32_t best = likeliest(logits, &margin);
        if (best != wanted && margin < 2 * tolerance)
            break; /* a tie: from here on another text would be as right */
        cr_assert_eq(best, wanted, "%s: token %zu of the answer is %d instead of %d, margin %g",
                     name, i, best, wanted, (double)margin);
        ids[count++] = best;
        logits = logits_after(model, ids, count - 1, 1, slots);
    }
    tiny_model_give(model, TOKENS_MAX, slots);
    return largest;
}

ParameterizedTestParameters(net_tiny, logits_are_the_reference)
{
    return cr_make_param_array(char[32], folders, ARRAY_COUNT(folders));
}

ParameterizedTest(char (*folder)[32], net_tiny, logits_are_the_reference)
{
    const char *name = *folder;
    struct model *model = NULL;
    struct error error = {0};
    struct json *reference = reference_read(name);
    if (reference == NULL)
        cr_skip_test("no reference data in %s", folder_path(name));
    const struct model_options options = {.path = folder_path(name),
                                          .activations = ACTIVATION_F32,
                                          .kv_dtype = KV_F32,
                                          .context_tokens = TOKENS_MAX,
                                          .page_tokens = 16};
    cr_assert_eq(model_open(&options, &model, &error), STATUS_OK, "%s", error.text);
    const struct json *cases = json_get(reference, "cases");
    cr_assert(json_count(cases) >= 5);
    for (size_t i = 0; i < json_count(cases); i++) {
        const float largest = run_case(model, name, json_at(cases, i));
        cr_assert(largest <= tolerance, "%s case %zu: a logit is off by %g", name, i,
                  (double)largest);
    }
    model_close(model);
    json_free(reference);
}
