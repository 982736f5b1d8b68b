/* `baton bench`: what it prints, what it counts and what it refuses. No figure of time is tested.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "kernels/kernels.h"
#include "ops/baton/bench_commands.h"
#include "ops/baton/bench_time.h"
#include "ops/baton/commands.h"
#include "tests/model/net/tiny_model.h"
#include "tests/ops/command_call.h"

enum {
    LINES_MAX = 1024,
    LAYERS = 3,
    EMBEDDING = 128,
    FEED_FORWARD = 160,
    HEADS = 4,
    HEAD_DIM = 32
};

/* The JSON objects of an output, a line each. */
struct lines {
    struct json *roots[LINES_MAX];
    size_t count;
};

static void lines_parse(const struct outcome *outcome, struct lines *lines)
{
    cr_assert_eq(outcome->exit_code, 0, "%s", outcome->error.data);
    lines->count = 0;
    for (const char *line = outcome->out.data; *line != '\0';) {
        const char *end = strchr(line, '\n');
        struct error error = {0};
        cr_assert_not_null(end);
        cr_assert_lt(lines->count, LINES_MAX);
        cr_assert_eq(json_parse(line, (size_t)(end - line), &lines->roots[lines->count++], &error),
                     STATUS_OK, "%s", error.text);
        line = end + 1;
    }
}

static void lines_free(struct lines *lines)
{
    for (size_t i = 0; i < lines->count; i++)
        json_free(lines->roots[i]);
}

static const char *word(const struct json *object, const char *key)
{
    const struct json *value = json_get(object, key);
    size_t bytes;
    cr_assert_not_null(value, "there is no %s", key);
    cr_assert_eq(json_kind(value), JSON_STRING, "%s is no string", key);
    return json_string(value, &bytes);
}

static double number(const struct json *object, const char *key)
{
    const struct json *value = json_get(object, key);
    cr_assert_not_null(value, "there is no %s", key);
    cr_assert(json_kind(value) == JSON_INT || json_kind(value) == JSON_REAL, "%s is no number",
              key);
    return json_number(value);
}

static void expect_near(double value, double expected, const char *what)
{
    cr_assert(fabs(value - expected) <= 1e-4 * fabs(expected), "%s is %g, not %g", what, value,
              expected);
}

static bool is_replaced(const struct kernel_row *rows, uint32_t count, uint32_t index)
{
    for (uint32_t i = index + 1; i < count; i++) {
        if (rows[i].slot == rows[index].slot && rows[i].isa == rows[index].isa)
            return true;
    }
    return false;
}

static const struct json *line_of(const struct lines *lines, const char *name)
{
    for (size_t i = 0; i < lines->count; i++) {
        if (strcmp(word(lines->roots[i], "name"), name) == 0)
            return lines->roots[i];
    }
    return NULL;
}

Test(bench, every_kernel_that_runs_here_is_measured)
{
    struct lines lines;
    uint32_t count;
    const struct kernel_row *rows = kernel_rows(&count);
    struct outcome outcome =
        CALL(command_bench, "kernels", "--like", "tiny", "--budget-ms", "1", "--json");
    lines_parse(&outcome, &lines);
    for (size_t i = 0; i < lines.count; i++) {
        const struct json *line = lines.roots[i];
        const bool kernel = strcmp(word(line, "kind"), "kernel") == 0;
        cr_assert(kernel || strcmp(word(line, "kind"), "limit") == 0);
        cr_assert(number(line, "value") > 0 && isfinite(number(line, "value")));
        cr_assert(number(line, "limit") > 0);
        cr_assert_not_null(strstr("GFLOP/s GOP/s GB/s", word(line, "unit")));
        expect_near(number(line, "pct_of_limit"),
                    100 * number(line, "value") / number(line, "limit"), "the percentage");
        if (kernel) {
            const bool compute = strcmp(word(line, "bound"), "compute") == 0;
            expect_near(number(line, compute ? "gop_per_s" : "gb_per_s"), number(line, "value"),
                        "the value");
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        const bool runs = kernel_isa_available(rows[i].isa) && !is_replaced(rows, count, i);
        const struct json *line = line_of(&lines, rows[i].name);
        cr_assert_eq(line != NULL, runs, "%s", rows[i].name);
        if (line != NULL)
            cr_assert_str_eq(word(line, "isa"), kernel_isa_name(rows[i].isa));
    }
    lines_free(&lines);
    outcome_free(&outcome);
}

Test(bench, a_filter_and_an_instruction_set_choose_kernels)
{
    struct lines lines;
    struct outcome outcome = CALL(command_bench, "kernels", "--like", "tiny", "--budget-ms", "1",
                                  "--filter", "rms_norm", "--isa", "ref", "--json");
    size_t kernels = 0;
    lines_parse(&outcome, &lines);
    for (size_t i = 0; i < lines.count; i++) {
        if (strcmp(word(lines.roots[i], "kind"), "kernel") != 0)
            continue;
        cr_assert_str_eq(word(lines.roots[i], "name"), "rms_norm_f32__ref");
        kernels++;
    }
    cr_assert_gt(kernels, 0);
    lines_free(&lines);
    outcome_free(&outcome);
    outcome = CALL(command_bench, "kernels", "--like", "tiny", "--budget-ms", "1", "--filter",
                   "swiglu_f32__ref");
    cr_assert_eq(outcome.exit_code, 0, "%s", outcome.error.data);
    cr_assert_not_null(strstr(outcome.out.data, "limits of this machine"));
    cr_assert_not_null(strstr(outcome.out.data, "bound by\nswiglu_f32__ref"));
    outcome_free(&outcome);
}

Test(bench, placement_is_measured_by_pages_and_prompts)
{
    struct lines lines;
    struct outcome outcome = CALL(command_bench, "placement", "--workers", "6", "--pages", "4096",
                                  "--budget-ms", "1", "--json");
    cr_assert_eq(outcome.exit_code, 0, "%s", outcome.error.data);
    lines_parse(&outcome, &lines);
    cr_assert_eq(lines.count, 9);
    static const double pages[] = {4, 128, 4096}, tokens[] = {200, 3000, 30000};
    for (size_t i = 0; i < lines.count; i++) {
        cr_expect_eq(number(lines.roots[i], "workers"), 6);
        cr_expect_eq(number(lines.roots[i], "index_pages"), pages[i / 3]);
        cr_expect_eq(number(lines.roots[i], "prompt_tokens"), tokens[i % 3]);
        cr_expect_gt(number(lines.roots[i], "hash_us"), 0);
        cr_expect_gt(number(lines.roots[i], "choose_us"), 0);
        cr_expect_gt(number(lines.roots[i], "expect_us"), 0);
    }
    lines_free(&lines);
    outcome_free(&outcome);
}

/* Arguments and the words of the refusal. */
struct refusal {
    const char *arguments[8];
    int exit_code;
    const char *words;
};

Test(bench, wrong_options_have_their_sentences)
{
    unsetenv("BATON_MODEL"); /* it would be the model that is missing */
    const char *model = tiny_model_write(&(struct buffer){0});
    const struct refusal cases[] = {
        {{NULL}, 2, "Usage: baton bench"},
        {{"wires"}, 2, "there is no bench 'wires'"},
        {{"kernels", "--isa", "sse9"}, 1, "'sse9', which is not known"},
        {{"kernels", "--filter", "warp", "--budget-ms", "1"}, 1, "'warp' in its name"},
        {{"kernels", "--budget-ms", "0"}, 2, "budget-ms"},
        {{"kernels", "--like", "7b"}, 2, "7b"},
        {{"placement", "--workers", "1"}, 2, "workers"},
        {{"placement", "--pages", "17000000"}, 2, "pages"},
        {{"grammar"}, 2, "--model PATH is needed"},
        {{"grammar", "--model", "/nowhere/model.gguf"}, 1, "/nowhere/model.gguf"},
        {{"model"}, 2, "--model is missing"},
        {{"model", "--model", "/nowhere/model.gguf"}, 1, "/nowhere/model.gguf"},
        {{"model", "--model", model, "--prefill", "0"}, 1, "--prefill is '0'"},
        {{"model", "--model", model, "--prefill", ""}, 1, "--prefill is ''"},
        {{"model", "--model", model, "--prefill", "12,"}, 1, "--prefill is '12,'"},
        {{"model", "--model", model, "--prefill", "-4"}, 1, "--prefill is '-4'"},
        {{"model", "--model", model, "--decode-batch", "1,x"}, 1, "--decode-batch is '1,x'"},
        {{"model", "--model", model, "--decode-batch", "9999999999999999999999"}, 1, "is '9999"},
        {{"model", "--model", model, "--prefill", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"},
         1,
         "more than 16 numbers"},
        {{"model", "--model", model, "--prefill", "none", "--decode-batch", "none"},
         1,
         "neither prefill nor decode"},
        {{"model", "--model", model, "--isa", "sse9"}, 1, "'sse9', which is not known"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct outcome outcome = command_call(command_bench, cases[i].arguments);
        cr_assert_eq(outcome.exit_code, cases[i].exit_code, "case %zu: %s", i, outcome.error.data);
        cr_assert_not_null(strstr(outcome.error.data, cases[i].words), "'%s' says nothing of '%s'",
                           outcome.error.data, cases[i].words);
        outcome_free(&outcome);
    }
    tiny_model_unlink();
}

static const char *tiny_path(const char *type)
{
    struct buffer bytes = tiny_model_bytes("llama", type, NULL);
    const char *path = tiny_model_write(&bytes);
    buffer_free(&bytes);
    return path;
}

Test(bench, masks_of_every_kind_of_source)
{
    static const char *const kinds[] = {"JSON schema", "any JSON object", "expression", "rules"};
    struct lines lines;
    struct outcome outcome = CALL(command_bench, "grammar", "--model", tiny_path("f32"), "--json");
    lines_parse(&outcome, &lines);
    cr_assert_eq(lines.count, 1);
    cr_expect_gt(number(lines.roots[0], "vocabulary"), 0);
    cr_expect_eq(number(lines.roots[0], "limit_us"), 50);
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        const struct json *row = json_get(lines.roots[0], kinds[i]);
        cr_assert_not_null(row, "there is no %s", kinds[i]);
        cr_expect_gt(number(row, "mean_us"), 0);
        cr_expect_geq(number(row, "p99_us"), 0);
        cr_expect_gt(number(row, "compile_ms"), 0);
        cr_expect_gt(number(row, "bytes"), 0);
    }
    lines_free(&lines);
    outcome_free(&outcome);
}

static const struct json *part_of(const struct json *line, const char *name)
{
    const struct json *parts = json_get(line, "breakdown");
    cr_assert_not_null(parts);
    for (size_t i = 0; i < json_count(parts); i++) {
        if (strcmp(word(json_at(parts, i), "part"), name) == 0)
            return json_at(parts, i);
    }
    cr_assert_fail("there is no part '%s'", name);
    return NULL;
}

static void expect_shares(const struct json *line)
{
    const struct json *parts = json_get(line, "breakdown");
    double sum = 0;
    for (size_t i = 0; i < json_count(parts); i++) {
        const struct json *part = json_at(parts, i);
        sum += number(part, "share_pct");
        cr_assert(number(part, "time_ms") >= 0);
        cr_assert_not_null(strstr("compute memory", word(part, "roof")));
        cr_assert(number(part, "pct_of_roof") >= 0);
    }
    expect_near(sum, 100, "the sum of shares");
}

/* The work of a prompt of n tokens: all of it in all layers but the last, where only the last token
 * goes on after its keys and values. */
static void expect_prompt_work(const struct json *line, double n)
{
    const double width = HEADS * HEAD_DIM;
    const double pairs = (LAYERS - 1) * n * (n + 1) / 2 + n;
    const double rows = (LAYERS - 1) * n + 1;
    cr_assert_str_eq(word(line, "phase"), "prefill");
    cr_assert_eq(number(line, "tokens"), n);
    cr_assert(number(line, "tokens_per_s") > 0);
    expect_near(number(part_of(line, "attention"), "flop"), 4 * width * pairs, "attention");
    expect_near(number(part_of(line, "MLP"), "flop"), 6.0 * EMBEDDING * FEED_FORWARD * rows, "MLP");
    expect_shares(line);
}

Test(bench, prefill_and_decode_of_a_tiny_model)
{
    const char *model = tiny_path("q8_0");
    struct lines lines;
    struct outcome outcome =
        CALL(command_bench, "model", "--model", model, "--prefill", "1,100", "--decode-batch",
             "1,3", "--context", "70", "--steps", "2", "--runs", "2", "--chunk-tokens", "32",
             "--threads", "2", "--breakdown", "--json");
    lines_parse(&outcome, &lines);
    cr_assert_eq(lines.count, 4);
    expect_prompt_work(lines.roots[0], 1);
    expect_prompt_work(lines.roots[1], 100);
    for (size_t i = 2; i < 4; i++) {
        const struct json *line = lines.roots[i];
        const double batch = i == 2 ? 1 : 3;
        cr_assert_str_eq(word(line, "phase"), "decode");
        cr_assert_eq(number(line, "batch"), batch);
        cr_assert_eq(number(line, "context"), 70);
        cr_assert(number(line, "tokens_per_s") > 0);
        /* Two steps see 71 and 72 tokens. */
        expect_near(number(part_of(line, "attention"), "flop"),
                    4.0 * HEADS * HEAD_DIM * LAYERS * batch * 71.5, "attention");
        expect_near(number(part_of(line, "MLP"), "flop"),
                    6.0 * EMBEDDING * FEED_FORWARD * LAYERS * batch, "MLP");
        /* A batch reads the weights once. */
        expect_near(number(part_of(line, "MLP"), "bytes"),
                    number(part_of(lines.roots[2], "MLP"), "bytes"), "MLP's bytes");
        expect_shares(line);
    }
    lines_free(&lines);
    outcome_free(&outcome);
    outcome = CALL(command_bench, "model", "--model", model, "--prefill", "8", "--decode-batch",
                   "none", "--runs", "1", "--breakdown");
    cr_assert_eq(outcome.exit_code, 0, "%s", outcome.error.data);
    cr_assert_not_null(strstr(outcome.out.data, "prefill 8 tokens"));
    cr_assert_not_null(strstr(outcome.out.data, " QKV projections "));
    outcome_free(&outcome);
    tiny_model_unlink();
}

Test(bench, work_is_counted_without_a_breakdown_too)
{
    const char *model = tiny_path("q8_0");
    struct lines timed, untimed;
    struct outcome outcome =
        CALL(command_bench, "model", "--model", model, "--prefill", "70", "--decode-batch", "2",
             "--context", "9", "--steps", "3", "--runs", "2", "--breakdown", "--json");
    lines_parse(&outcome, &timed);
    outcome_free(&outcome);
    outcome = CALL(command_bench, "model", "--model", model, "--prefill", "70", "--decode-batch",
                   "2", "--context", "9", "--steps", "3", "--runs", "2", "--json");
    lines_parse(&outcome, &untimed);
    outcome_free(&outcome);
    cr_assert_eq(timed.count, 2);
    cr_assert_eq(untimed.count, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct json *line = untimed.roots[i];
        const double rows = i == 0 ? 70 : 2;
        cr_assert_null(json_get(line, "breakdown"));
        cr_assert(number(line, "flop") > 0);
        expect_near(number(line, "flop"), number(timed.roots[i], "flop"), "flop");
        expect_near(number(line, "time_per_row_ms") * rows, number(line, "time_ms"), "time");
    }
    lines_free(&timed);
    lines_free(&untimed);
    outcome = CALL(command_bench, "model", "--model", model, "--prefill", "4,8", "--decode-batch",
                   "none", "--runs", "1", "--breakdown");
    cr_assert_eq(outcome.exit_code, 0, "%s", outcome.error.data);
    cr_assert_not_null(strstr(outcome.out.data, " times the time of 4 for "));
    cr_assert_not_null(strstr(outcome.out.data, "attention's share: prefill 4: "));
    outcome_free(&outcome);
    tiny_model_unlink();
}

Test(bench, loading_is_held_against_a_copy)
{
    const char *model = tiny_path("q4_0");
    struct lines lines;
    struct outcome outcome = CALL(command_bench, "model", "--model", model, "--load", "--prefill",
                                  "none", "--decode-batch", "none", "--runs", "2", "--json");
    lines_parse(&outcome, &lines);
    cr_assert_eq(lines.count, 1);
    cr_assert_str_eq(word(lines.roots[0], "phase"), "load");
    /* Four bits and a scale for each weight of a layer, at least. */
    cr_assert(number(lines.roots[0], "bytes") > 3.0 * LAYERS * EMBEDDING * FEED_FORWARD / 2);
    cr_assert(number(lines.roots[0], "copy_ms") > 0);
    cr_assert(number(lines.roots[0], "pack_ms") > 0);
    cr_assert(number(lines.roots[0], "open_ms") > number(lines.roots[0], "pack_ms"));
    lines_free(&lines);
    outcome_free(&outcome);
    outcome = CALL(command_bench, "model", "--model", model, "--load", "--prefill", "none",
                   "--decode-batch", "none", "--runs", "1");
    cr_assert_not_null(strstr(outcome.out.data, "copying them"));
    outcome_free(&outcome);
    tiny_model_unlink();
}

static void count_call(void *arg, uint64_t turn)
{
    uint64_t *next = arg;
    cr_assert_eq(turn, *next);
    (*next)++;
}

/* Real hand-offs between two processes, or two threads; the figures are whatever they are. */
Test(bench, hand_offs_over_every_transport)
{
    static const char *const transports[] = {"tcp", "shm", "loopback"};
    static const char *const shares[] = {"plain_of_raw", "checked_of_limit"};
    for (uint32_t i = 0; i < ARRAY_COUNT(transports); i++) {
        struct outcome outcome = CALL(bench_transfer, "--transport", transports[i], "--page-bytes",
                                      "4K", "--pages", "6", "--layers", "3", "--handoffs", "3",
                                      "--runs", "2", "--json", i == 1 ? "--scatter" : NULL);
        struct lines lines;
        lines_parse(&outcome, &lines);
        cr_assert_eq(lines.count, 1u);
        const struct json *root = lines.roots[0];
        cr_assert_str_eq(word(root, "transport"), transports[i]);
        expect_near(number(root, "pages"), 6, "pages");
        cr_assert_gt(number(root, "message_bytes"), 4095);
        cr_assert_leq(number(root, "message_bytes"), 6 * 3 * 4096);
        expect_near(number(root, "plain_gb_per_s") / number(root, "raw_gb_per_s"),
                    number(root, shares[0]), shares[0]);
        expect_near(1 / (1 / number(root, "raw_gb_per_s") + 1 / number(root, "crc32c_gb_per_s")),
                    number(root, "checked_limit_gb_per_s"), "the limit");
        expect_near(number(root, "checked_gb_per_s") / number(root, "checked_limit_gb_per_s"),
                    number(root, shares[1]), shares[1]);
        cr_assert_gt(number(root, "round_trip_us"), 0);
        cr_assert((json_get(root, "round_trip_of_raw") != NULL) == (i != 2));
        lines_free(&lines);
        outcome_free(&outcome);
    }
    struct outcome wrong = CALL(bench_transfer, "--pages", "65536", "--page-bytes", "1M");
    cr_assert_eq(wrong.exit_code, 1);
    cr_assert(strstr(wrong.error.data, "take more than 1024 MiB"), "%s", wrong.error.data);
    outcome_free(&wrong);
}

Test(bench, medians_and_turns)
{
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};
    uint64_t turns = 0;
    cr_assert_eq(bench_median(odd, 3), 2);
    cr_assert_eq(bench_median(even, 4), 2.5);
    const struct bench_time time = bench_measure(count_call, &turns, 1);
    cr_assert_geq(time.run_count, 3);
    cr_assert_gt(turns, time.run_count);
    cr_assert(time.least_ns <= time.median_ns);
}
