/* `baton eval --kl`: the divergence itself, and the command on tiny models and the real one. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/json.h"
#include "ops/baton/commands.h"
#include "ops/baton/eval_kl.h"
#include "tests/model/net/tiny_model.h"
#include "tests/ops/command_call.h"

#ifdef __SANITIZE_ADDRESS__
static const char real_positions[] = "300"; /* each takes ten times as long */
#else
static const char real_positions[] = "600";
#endif

Test(eval_kl, divergence_of_known_distributions)
{
    const float even[] = {0, 0}, quarter[] = {logf(0.25f), logf(0.75f)}, bad[] = {NAN, 0};
    const float shifted[] = {100 + logf(0.25f), 100 + logf(0.75f)};
    const double expected = 0.5 * log(2) + 0.5 * log(0.5 / 0.75);
    cr_assert_float_eq(eval_kl_divergence(even, quarter, 2), expected, 1e-6);
    cr_assert_float_eq(eval_kl_divergence(even, shifted, 2), expected, 1e-5);
    cr_assert_float_eq(eval_kl_divergence(quarter, even, 2), 0.25 * log(0.5) + 0.75 * log(1.5),
                       1e-6);
    cr_assert_eq(eval_kl_divergence(quarter, quarter, 2), 0);
    cr_assert(isnan(eval_kl_divergence(even, bad, 2)));
    cr_assert(isnan(eval_kl_divergence(bad, even, 2)));
}

static struct json *parse(const struct outcome *outcome)
{
    struct json *root;
    struct error error = {0};
    cr_assert_eq(outcome->exit_code, 0, "%s", outcome->error.data);
    cr_assert_eq(json_parse(outcome->out.data, outcome->out.size, &root, &error), STATUS_OK, "%s",
                 error.text);
    return root;
}

static double number(const struct json *root, const char *key)
{
    const struct json *value = json_get(root, key);
    cr_assert_not_null(value, "there is no %s", key);
    return json_number(value);
}

/* A file with this text; removed by the caller. */
static const char *write_text(const char *text)
{
    static char name[64];
    snprintf(name, sizeof name, "/tmp/baton-kl-XXXXXX");
    const int fd = mkstemp(name);
    CHECK(fd >= 0);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    return name;
}

static const char *tiny_path(const char *type)
{
    struct buffer bytes = tiny_model_bytes("llama", type, NULL);
    const char *path = tiny_model_write(&bytes);
    buffer_free(&bytes);
    return path;
}

static const char words[] = "The cat that sat on the mat has left; the hat on the cat is what is "
                            "left of the mat that the rat had when the cat was at the bat.\n";

Test(eval_kl, the_reference_is_itself)
{
    const char *model = tiny_path("q4_0"), *text = write_text(words);
    struct outcome outcome =
        CALL(command_eval, "--model", model, "--kl", "--text", text, "--positions", "40",
             "--activations", "f32", "--kv-dtype", "f32", "--chunk-tokens", "9", "--json");
    struct json *root = parse(&outcome);
    cr_assert_eq(number(root, "positions"), 40);
    cr_assert_eq(number(root, "kl_mean"), 0);
    cr_assert_eq(number(root, "kl_p99"), 0);
    cr_assert_eq(number(root, "kl_max"), 0);
    cr_assert_eq(number(root, "top1_agreement"), 1);
    json_free(root);
    outcome_free(&outcome);
    unlink(text);
    tiny_model_unlink();
}

/* Against bf16 KV the run keeps its own activations: bf16 itself is no divergence, int8 is. */
Test(eval_kl, the_cache_alone_is_compared_with_bf16)
{
    const char *model = tiny_path("q4_0"), *text = write_text(words);
    struct outcome same =
        CALL(command_eval, "--model", model, "--kl", "--against", "bf16-kv", "--text", text,
             "--positions", "40", "--activations", "native", "--json");
    struct outcome int8 =
        CALL(command_eval, "--model", model, "--kl", "--against", "bf16-kv", "--text", text,
             "--positions", "40", "--activations", "native", "--kv-dtype", "int8", "--json");
    struct json *root = parse(&same), *other = parse(&int8);
    cr_assert_eq(number(root, "kl_max"), 0);
    cr_assert_gt(number(other, "kl_mean"), 0);
    size_t bytes;
    cr_assert_str_eq(json_string(json_get(other, "reference_kv_dtype"), &bytes), "bf16");
    cr_assert_str_eq(json_string(json_get(other, "kv_dtype"), &bytes), "int8");
    json_free(root);
    json_free(other);
    outcome_free(&same);
    outcome_free(&int8);
    unlink(text);
    tiny_model_unlink();
}

Test(eval_kl, other_settings_diverge_the_same_in_any_chunks)
{
    const char *model = tiny_path("q4_0"), *text = write_text(words);
    struct outcome a = CALL(command_eval, "--model", model, "--kl", "--text", text, "--positions",
                            "40", "--activations", "native", "--json");
    struct outcome b =
        CALL(command_eval, "--model", model, "--kl", "--text", text, "--positions", "40",
             "--activations", "native", "--json", "--chunk-tokens", "7", "--threads", "1");
    struct json *root = parse(&a);
    cr_assert_gt(number(root, "kl_mean"), 0);
    cr_assert_geq(number(root, "kl_p99"), number(root, "kl_mean"));
    cr_assert_geq(number(root, "kl_max"), number(root, "kl_p99"));
    cr_assert(a.out.size == b.out.size && memcmp(a.out.data, b.out.data, a.out.size) == 0);
    json_free(root);
    outcome_free(&a);
    outcome_free(&b);
    unlink(text);
    tiny_model_unlink();
}

/* Two lines of ids are two windows; the context of 8 cuts a text in windows of 8. */
Test(eval_kl, lines_and_contexts_make_windows)
{
    const char *model = tiny_path("f32");
    const char *ids = write_text("[5, 6, 7, 8, 9]\n[10, 20, 30, 40]\n");
    struct outcome outcome =
        CALL(command_eval, "--model", model, "--kl", "--ids", ids, "--positions", "8", "--json");
    struct json *root = parse(&outcome);
    cr_assert_eq(number(root, "positions"), 8);
    cr_assert_eq(number(root, "windows"), 2);
    json_free(root);
    outcome_free(&outcome);
    unlink(ids);
    const char *text = write_text(words);
    outcome = CALL(command_eval, "--model", model, "--kl", "--text", text, "--positions", "20",
                   "--context", "8");
    cr_assert_eq(outcome.exit_code, 0, "%s", outcome.error.data);
    cr_assert_not_null(strstr(outcome.out.data, "20 in 3 windows of up to 8 tokens"));
    cr_assert_not_null(strstr(outcome.out.data, "KL divergence    mean"));
    outcome_free(&outcome);
    unlink(text);
    tiny_model_unlink();
}

/* Writes a tiny model whose tokenizer puts bos first. */
static const char *bos_path(void)
{
    static const char key[] = "tokenizer.ggml.add_bos_token";
    struct buffer bytes = tiny_model_bytes("llama", "f32", NULL);
    char *found = memmem(bytes.data, bytes.size, key, sizeof key - 1);
    CHECK(found != NULL);
    found[sizeof key - 1 + sizeof(uint32_t)] = 1; /* behind the type of the value */
    const char *path = tiny_model_write(&bytes);
    buffer_free(&bytes);
    return path;
}

/* Appends `[bos, seven ids]` lines of the text, as windows of 8 should be. */
static void write_windows(const char *model, struct buffer *lines)
{
    struct text *text;
    struct error error = {0};
    struct token_list ids = {0};
    char number[16];
    CHECK(text_open(model, &text, &error) == STATUS_OK);
    cr_assert(text_info(text)->add_bos && text_info(text)->bos >= 0);
    CHECK(text_encode(text, words, strlen(words), false, 1000, &ids, &error) == STATUS_OK);
    cr_assert_gt(ids.count, 21);
    for (size_t i = 0; i < 21; i++) {
        if (i % 7 == 0) {
            snprintf(number, sizeof number, "[%d", text_info(text)->bos);
            buffer_add_text(lines, number);
        }
        snprintf(number, sizeof number, ", %d%s", ids.ids[i], i % 7 == 6 ? "]\n" : "");
        buffer_add_text(lines, number);
    }
    buffer_add_char(lines, 0);
    token_list_free(&ids);
    text_close(text);
}

Test(eval_kl, every_window_of_a_text_begins_with_bos)
{
    const char *model = bos_path(), *text = write_text(words);
    struct outcome of_text = CALL(command_eval, "--model", model, "--kl", "--text", text,
                                  "--positions", "24", "--context", "8", "--json");
    unlink(text);
    struct buffer lines = {0};
    write_windows(model, &lines);
    const char *ids = write_text(lines.data);
    struct outcome of_ids = CALL(command_eval, "--model", model, "--kl", "--ids", ids,
                                 "--positions", "24", "--context", "8", "--json");
    struct json *root = parse(&of_text);
    cr_assert_gt(number(root, "kl_mean"), 0);
    cr_assert(of_text.out.size == of_ids.out.size &&
                  memcmp(of_text.out.data, of_ids.out.data, of_ids.out.size) == 0,
              "%s against %s", of_text.out.data, of_ids.out.data);
    json_free(root);
    outcome_free(&of_text);
    outcome_free(&of_ids);
    buffer_free(&lines);
    unlink(ids);
    tiny_model_unlink();
}

/* Arguments after --model and the words of the refusal. */
struct refusal {
    const char *arguments[9];
    int exit_code;
    const char *words;
};

Test(eval_kl, wrong_uses_have_their_sentences)
{
    const char *model = tiny_path("f32"), *text = write_text(words);
    const struct refusal cases[] = {
        {{"--model", model, "--kl"}, 2, "--ids or --text is missing"},
        {{"--model", model, "--text", text}, 2, "--text is for --kl only"},
        {{"--model", model, "--kl", "--text", text, "--ids", text}, 2, "exclude each other"},
        {{"--model", model, "--kl", "--text", "/nowhere/text"}, 1, "/nowhere/text"},
        {{"--model", model, "--kl", "--text", text}, 1, "--positions asks for 2000"},
        {{"--model", model, "--kl", "--text", text, "--positions", "0"}, 2, "positions"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct outcome outcome = command_call(command_eval, cases[i].arguments);
        cr_assert_eq(outcome.exit_code, cases[i].exit_code, "case %zu: %s", i, outcome.error.data);
        cr_assert_not_null(strstr(outcome.error.data, cases[i].words), "'%s' says nothing of '%s'",
                           outcome.error.data, cases[i].words);
        outcome_free(&outcome);
    }
    unlink(text);
    tiny_model_unlink();
}

/* Native activations and a bf16 cache on English prose, the licence of this very tree. */
Test(eval_kl, native_activations_stay_close_on_the_real_model)
{
    const char *model = real_model_path();
    if (model == NULL)
        cr_skip_test("the real model is not here");
    struct outcome outcome =
        CALL(command_eval, "--model", model, "--kl", "--text", BATON_TEST_PROSE, "--positions",
             real_positions, "--activations", "native", "--json");
    struct json *root = parse(&outcome);
    cr_assert_gt(number(root, "kl_mean"), 0);
    cr_assert_lt(number(root, "kl_mean"), 0.01);
    cr_assert_gt(number(root, "top1_agreement"), 0.9);
    json_free(root);
    outcome_free(&outcome);
}

/* Weights of 4 and 8 bits stay as they are; the head gets its activations unrounded, which shows.
 */
Test(eval_kl, quantising_what_is_quantised_only_helps_the_real_model)
{
    const char *model = real_model_path();
    if (model == NULL)
        cr_skip_test("the real model is not here");
    struct outcome plain = CALL(command_eval, "--model", model, "--kl", "--text", BATON_TEST_PROSE,
                                "--positions", "200", "--activations", "native", "--json");
    struct outcome int8 =
        CALL(command_eval, "--model", model, "--kl", "--text", BATON_TEST_PROSE, "--positions",
             "200", "--activations", "native", "--quantize", "int8", "--json");
    struct json *a = parse(&plain), *b = parse(&int8);
    cr_assert_lt(number(b, "kl_mean"), number(a, "kl_mean"));
    cr_assert_lt(number(b, "kl_mean"), 0.01);
    cr_assert_eq(number(a, "weights_mb"), number(b, "weights_mb"));
    json_free(a);
    json_free(b);
    outcome_free(&plain);
    outcome_free(&int8);
}

/* What int8 pages cost over bf16 ones: under 0.005 nats. With native activations the two runs would
 * round them apart wherever any bit of the cache differs, and even f32 pages would seem as far. */
Test(eval_kl, int8_pages_stay_close_on_the_real_model)
{
    const char *model = real_model_path();
    if (model == NULL)
        cr_skip_test("the real model is not here");
    struct outcome outcome = CALL(command_eval, "--model", model, "--kl", "--against", "bf16-kv",
                                  "--text", BATON_TEST_PROSE, "--positions", real_positions,
                                  "--activations", "f32", "--kv-dtype", "int8", "--json");
    struct json *root = parse(&outcome);
    cr_assert_gt(number(root, "kl_mean"), 0);
    cr_assert_lt(number(root, "kl_mean"), 0.005);
    json_free(root);
    outcome_free(&outcome);
}
