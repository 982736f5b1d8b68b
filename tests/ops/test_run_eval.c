/* `baton run` and `baton eval` as a user meets them: output, exit codes and sentences. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/json.h"
#include "model/text/text.h"
#include "ops/baton/commands.h"
#include "tests/model/net/tiny_model.h"
#include "tests/ops/command_call.h"

/* A file with this text; removed by the caller. */
static const char *write_text(const char *text)
{
    static char name[64];
    snprintf(name, sizeof name, "/tmp/baton-ids-XXXXXX");
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

static void expect_same(struct outcome a, struct outcome b, const char *what)
{
    cr_assert_eq(a.exit_code, 0, "%s", a.error.data);
    cr_assert_eq(b.exit_code, 0, "%s", b.error.data);
    cr_assert(a.out.size > 0);
    cr_assert(a.out.size == b.out.size && memcmp(a.out.data, b.out.data, a.out.size) == 0, "%s",
              what);
    outcome_free(&a);
    outcome_free(&b);
}

static const char three_lines[] = "[1]\n\n[5, 6, 7, 8, 9]\n[10, 20, 30, 40, 50, 60, 70, 80]\n";

Test(run_eval, eval_prints_one_json_object_a_line)
{
    static const size_t counts[] = {1, 5, 8};
    const char *model = tiny_path("f32"), *ids = write_text(three_lines);
    struct outcome outcome = CALL(command_eval, "--model", model, "--ids", ids, "--json",
                                  "--greedy", "6", "--all-positions");
    cr_assert_eq(outcome.exit_code, 0, "%s", outcome.error.data);
    const char *line = outcome.out.data;
    for (size_t i = 0; i < 3; i++) {
        struct json *root;
        struct error error = {0};
        const char *end = strchr(line, '\n');
        cr_assert_not_null(end);
        cr_assert_eq(json_parse(line, (size_t)(end - line), &root, &error), STATUS_OK, "%s",
                     error.text);
        const struct json *last = json_get(root, "last_logits"), *all = json_get(root, "logits");
        const struct json *greedy = json_get(root, "greedy");
        cr_assert_eq(json_int(json_get(root, "ids")), (int64_t)counts[i]);
        cr_assert_eq(json_count(all), counts[i]);
        cr_assert_eq(json_count(greedy), 6);
        size_t best = 0;
        for (size_t id = 0; id < json_count(last); id++) {
            const double logit = json_number(json_at(last, id));
            cr_assert(isfinite(logit));
            cr_assert_eq(logit, json_number(json_at(json_at(all, counts[i] - 1), id)));
            best = logit > json_number(json_at(last, best)) ? id : best;
        }
        cr_assert_eq(json_int(json_at(greedy, 0)), (int64_t)best);
        json_free(root);
        line = end + 1;
    }
    cr_assert_eq(*line, '\0');
    unlink(ids);
    tiny_model_unlink();
    outcome_free(&outcome);
}

Test(run_eval, eval_does_not_depend_on_chunks_and_threads)
{
    const char *model = tiny_path("q4_0"), *ids = write_text(three_lines);
    expect_same(CALL(command_eval, "--model", model, "--ids", ids, "--json", "--greedy", "20"),
                CALL(command_eval, "--model", model, "--ids", ids, "--json", "--greedy", "20",
                     "--chunk-tokens", "3", "--threads", "1"),
                "chunks or threads change the result");
    unlink(ids);
    tiny_model_unlink();
}

Test(run_eval, eval_prints_tables_for_people)
{
    const char *model = tiny_path("f32"), *ids = write_text(three_lines);
    struct outcome outcome =
        CALL(command_eval, "--model", model, "--ids", ids, "--top", "3", "--greedy", "4");
    cr_assert_eq(outcome.exit_code, 0, "%s", outcome.error.data);
    cr_assert_not_null(strstr(outcome.out.data, "line 3: 5 ids"));
    cr_assert_not_null(strstr(outcome.out.data, "\n     3 "));
    cr_assert_null(strstr(outcome.out.data, "\n     4 "));
    cr_assert_not_null(strstr(outcome.out.data, "continuation: "));
    unlink(ids);
    tiny_model_unlink();
    outcome_free(&outcome);
}

/* A folder of weights alone has no text: ids in, ids out. */
Test(run_eval, eval_of_ids_needs_no_tokenizer)
{
    char folder[600];
    snprintf(folder, sizeof folder, "%s/golden/tiny/qwen2", shared_folder());
    if (access(folder, R_OK) != 0)
        cr_skip_test("the reference data %s is not there", folder);
    const char *ids = write_text("[1, 2, 3]\n");
    struct outcome outcome = CALL(command_eval, "--model", folder, "--ids", ids, "--greedy", "4");
    cr_assert_eq(outcome.exit_code, 0, "%s", outcome.error.data);
    cr_assert_null(strstr(outcome.out.data, "token\n"));
    cr_assert_not_null(strstr(outcome.out.data, "continuation: "));
    outcome_free(&outcome);
    outcome = CALL(command_eval, "--model", folder, "--kl", "--text", ids);
    cr_assert_eq(outcome.exit_code, 1);
    cr_assert_not_null(strstr(outcome.error.data, "tokenizer.json is not there"));
    outcome_free(&outcome);
    unlink(ids);
}

/* A file of ids and the words of the refusal. */
struct bad_file {
    const char *text, *words;
};

Test(run_eval, eval_refuses_bad_files_with_the_line)
{
    static const struct bad_file cases[] = {
        {"[1, 2", " line 1: "},
        {"[1]\n{\"a\": 1}\n", " line 2: it is not an array"},
        {"[1]\n\n[]\n", " line 3: it holds no ids"},
        {"[1, 2.5]\n", " line 1: item 1 is a"},
        {"[1, \"x\"]\n", " line 1: item 1 is a string"},
        {"[-1]\n", " line 1: item 0 is -1, ids are from 0 to "},
        {"[3, 100000]\n", " line 1: item 1 is 100000, ids are from 0 to "},
        {"[5279552648203111001]\n", "item 0 is 5279552648203111001"},
        {"[1,1,1,1,1,1,1,1,1]\n", "it holds 9 ids, the context is 8"},
        {"[1,1,1,1,1,1,1]\n", "7 ids and 2 more are over the context of 8"},
    };
    const char *model = tiny_path("f32");
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        const char *ids = write_text(cases[i].text);
        struct outcome outcome =
            CALL(command_eval, "--model", model, "--ids", ids, "--context", "8", "--greedy", "2");
        cr_assert_eq(outcome.exit_code, 1, "case %zu", i);
        cr_assert_not_null(strstr(outcome.error.data, cases[i].words), "'%s' says nothing of '%s'",
                           outcome.error.data, cases[i].words);
        cr_assert_not_null(strstr(outcome.error.data, ids));
        outcome_free(&outcome);
        unlink(ids);
    }
    tiny_model_unlink();
}

Test(run_eval, missing_files_and_options_have_their_exit_codes)
{
    const char *model = tiny_path("f32");
    struct outcome outcome = CALL(command_eval, "--model", model, "--ids", "/nowhere/ids");
    cr_assert_eq(outcome.exit_code, 1);
    cr_assert_not_null(strstr(outcome.error.data, "/nowhere/ids"));
    outcome_free(&outcome);
    outcome = CALL(command_eval, "--model", model, "--json");
    cr_assert_eq(outcome.exit_code, 2);
    cr_assert_not_null(strstr(outcome.error.data, "--ids is missing"));
    outcome_free(&outcome);
    outcome = CALL(command_run, "--model", model, "--raw");
    cr_assert_eq(outcome.exit_code, 2);
    cr_assert_not_null(strstr(outcome.error.data, "one prompt is needed"));
    outcome_free(&outcome);
    outcome = CALL(command_run, "--model", "/nowhere/model.gguf", "hello");
    cr_assert_eq(outcome.exit_code, 1);
    cr_assert_not_null(strstr(outcome.error.data, "/nowhere/model.gguf"));
    outcome_free(&outcome);
    outcome = CALL(command_run, "--model", model, "--seed", "12x", "hello");
    cr_assert_eq(outcome.exit_code, 2);
    cr_assert_not_null(strstr(outcome.error.data, "'12x'"));
    outcome_free(&outcome);
    outcome = CALL(command_run, "--model", model, "--raw", "");
    cr_assert_eq(outcome.exit_code, 1);
    cr_assert_not_null(strstr(outcome.error.data, "the prompt is empty"));
    outcome_free(&outcome);
    outcome = CALL(command_run, "--model", model, "--raw", "--context", "5", "0 1 2 3 4 5");
    cr_assert_eq(outcome.exit_code, 1);
    cr_assert_not_null(strstr(outcome.error.data, "tokens and the context 5: no room"));
    outcome_free(&outcome);
    tiny_model_unlink();
}

/* Ids of a text as a JSON array on one line. */
static void encode(const struct text *text, const char *words, struct buffer *json)
{
    struct token_list ids = {0};
    struct error error = {0};
    cr_assert_eq(text_encode(text, words, strlen(words), false, 100, &ids, &error), STATUS_OK);
    for (size_t i = 0; i < ids.count; i++)
        buffer_printf(json, "%s%d", i == 0 ? "[" : ", ", ids.ids[i]);
    buffer_add_text(json, "]\n");
    token_list_free(&ids);
}

/* run --raw writes the text of eval's continuation, up to the first end token. */
Test(run_eval, run_writes_what_eval_continues)
{
    static const char words[] = "the cat and the hat";
    const char *model = tiny_path("f32");
    struct text *text;
    struct error error = {0};
    struct buffer line = {0}, expected = {0};
    struct text_stream stream;
    struct json *root;
    cr_assert_eq(text_open(model, &text, &error), STATUS_OK, "%s", error.text);
    encode(text, words, &line);
    const char *ids = write_text(line.data);
    struct outcome eval =
        CALL(command_eval, "--model", model, "--ids", ids, "--greedy", "40", "--json");
    cr_assert_eq(json_parse(eval.out.data, eval.out.size, &root, &error), STATUS_OK);
    const struct json *greedy = json_get(root, "greedy");
    text_stream_init(&stream, text, true);
    for (size_t i = 0; i < json_count(greedy); i++) {
        const int32_t id = (int32_t)json_int(json_at(greedy, i));
        bool ends = false;
        for (uint32_t e = 0; e < text_info(text)->eos_count; e++)
            ends |= text_info(text)->eos_ids[e] == id;
        if (ends)
            break;
        text_stream_push(&stream, id, &expected);
    }
    text_stream_finish(&stream, &expected);
    struct outcome run = CALL(command_run, "--model", model, "--raw", "--max-tokens", "40", words);
    cr_assert_eq(run.exit_code, 0, "%s", run.error.data);
    cr_assert(run.out.size == expected.size && expected.size > 0 &&
              memcmp(run.out.data, expected.data, expected.size) == 0);
    json_free(root);
    text_close(text);
    buffer_free(&line);
    buffer_free(&expected);
    outcome_free(&eval);
    outcome_free(&run);
    unlink(ids);
    tiny_model_unlink();
}

Test(run_eval, run_is_the_same_for_the_same_parameters)
{
    const char *model = tiny_path("q8_0");
    expect_same(CALL(command_run, "--model", model, "--max-tokens", "60", "hello"),
                CALL(command_run, "--model", model, "--max-tokens", "60", "--chunk-tokens", "5",
                     "--threads", "1", "--stats", "hello"),
                "chunks change the answer");
    expect_same(CALL(command_run, "--model", model, "--max-tokens", "60", "--temperature", "1",
                     "--seed", "7", "--top-p", "0.9", "hello"),
                CALL(command_run, "--model", model, "--max-tokens", "60", "--temperature", "1",
                     "--seed", "7", "--top-p", "0.9", "--chunk-tokens", "1", "hello"),
                "the same seed gives another answer");
    struct outcome one = CALL(command_run, "--model", model, "--max-tokens", "60", "--temperature",
                              "1", "--seed", "7", "hello");
    struct outcome two = CALL(command_run, "--model", model, "--max-tokens", "60", "--temperature",
                              "1", "--seed", "-8", "hello");
    cr_assert(one.out.size != two.out.size || memcmp(one.out.data, two.out.data, one.out.size));
    outcome_free(&one);
    outcome_free(&two);
    tiny_model_unlink();
}

Test(run_eval, stats_are_on_standard_error)
{
    const char *model = tiny_path("f32");
    struct outcome outcome =
        CALL(command_run, "--model", model, "--raw", "--max-tokens", "3", "--stats", "hello");
    cr_assert_eq(outcome.exit_code, 0, "%s", outcome.error.data);
    cr_assert_not_null(strstr(outcome.error.data, "first token after"));
    cr_assert_null(strstr(outcome.out.data, "first token after"));
    outcome_free(&outcome);
    tiny_model_unlink();
}
