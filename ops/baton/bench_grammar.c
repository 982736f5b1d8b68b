/* `baton bench grammar`: what a token mask costs over a vocabulary, beside the limit that it is
 * held to, and what compiling and meeting a position for the first time cost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/json.h"
#include "model/text/grammar/grammar.h"
#include "model/text/text.h"
#include "ops/baton/bench_commands.h"

enum { ROUNDS = 200, TOKENS_MAX = 4096, CACHE_BYTES = 8 << 20, LIMIT_US = 50, P99 = 99 };

static const double NS_A_US = 1e3;
static const double NS_A_MS = 1e6;

struct options {
    const char *model;
    bool json;
};

static const struct config_row option_rows[] = {
    {"model", CONFIG_TEXT, offsetof(struct options, model), NULL, "PATH",
     "the GGUF file or Hugging Face folder whose vocabulary is used", 0, 0},
    {"json", CONFIG_FLAG, offsetof(struct options, json), NULL, NULL, "one JSON object", 0, 0},
};

static const struct config_command description = {
    .program = "baton bench grammar",
    .summary = "Measures structured output: microseconds a token mask, beside its limit of 50.",
    .examples = "  baton bench grammar --model model.gguf\n",
    .rows = option_rows,
    .row_count = ARRAY_COUNT(option_rows),
    .needed = "model",
};

#define PERSON                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"       \
    "\"integer\",\"minimum\":0,\"maximum\":150},\"email\":{\"type\":\"string\",\"format\":"        \
    "\"email\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":40}},"   \
    "\"friend\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}},\"required\":[\"name\","       \
    "\"age\"],\"additionalProperties\":false}"
#define PERSON_TEXT                                                                                \
    "{\"name\": \"Ada Lovelace, Countess of \xc3\x89toile\", \"age\": 36, \"email\": "             \
    "\"ada@example.org\", \"tags\": [\"mathematics\", \"the analytical engine\"], \"friend\": "    \
    "{\"name\": \"Charles Babbage\", \"age\": 79, \"friend\": null}}"

/* A source and an answer that fits it. */
static const struct {
    const char *label, *source, *answer;
    enum grammar_kind kind;
} rows[] = {
    {"JSON schema", PERSON, PERSON_TEXT, GRAMMAR_JSON_SCHEMA},
    {"any JSON object", "", PERSON_TEXT, GRAMMAR_JSON_OBJECT},
    {"expression", "\\+?\\d{1,3}( \\d{2,4}){2,5}|[A-Za-z ]{1,80}\\.",
     "Some words of plain prose that end with a full stop.", GRAMMAR_REGEX},
    {"rules", "root ::= expr\nexpr ::= term ([-+*/] term)*\nterm ::= [0-9]+ | \"(\" expr \")\"\n",
     "(12+7)*(3-(4/5))*1000+((2))", GRAMMAR_EBNF},
};

struct figures {
    double compile_ms, first_us, mean_us, p99_us;
    size_t tokens, kept_bytes;
};

static int order(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* One answer through the masks; times[ids->count + 1] in microseconds. */
static enum status answer_walk(struct grammar_matcher *matcher, struct grammar_program *program,
                               const struct text_info *info, const struct token_list *ids,
                               uint32_t *mask, double *times, struct error *error)
{
    grammar_matcher_init(matcher, program);
    for (size_t i = 0; i <= ids->count; i++) {
        const uint64_t begin = clock_now_ns(clock_monotonic());
        const enum status status =
            grammar_matcher_mask(matcher, TOKENS_MAX, info->eos_ids, info->eos_count, mask);
        times[i] = (double)(clock_now_ns(clock_monotonic()) - begin) / NS_A_US;
        if (status != STATUS_OK)
            return error_set(error, status, "mask %zu: %s", i, status_sentence(status));
        if (i < ids->count && !grammar_matcher_accept(matcher, ids->ids[i]))
            return error_set(error, STATUS_INTERNAL, "token %zu of the answer does not fit", i);
    }
    return STATUS_OK;
}

static enum status row_measure(const struct text *text, const struct grammar_tokens *tokens,
                               size_t row, struct figures *out, struct error *error)
{
    struct grammar *grammar;
    struct grammar_program *program;
    struct token_list ids = {0};
    const char *source = rows[row].source;
    const uint64_t begin = clock_now_ns(clock_monotonic());
    TRY(grammar_compile(rows[row].kind, source, strlen(source), &grammar, error));
    TRY(grammar_program_create(grammar, tokens, CACHE_BYTES, &program, error));
    out->compile_ms = (double)(clock_now_ns(clock_monotonic()) - begin) / NS_A_MS;
    enum status status = text_encode(text, rows[row].answer, strlen(rows[row].answer), false,
                                     TOKENS_MAX, &ids, error);
    struct grammar_matcher *matcher = grammar_matcher_create();
    uint32_t *mask = calloc(grammar_mask_words(tokens), sizeof *mask);
    double *times = calloc((ids.count + 1) * ROUNDS, sizeof *times);
    CHECK(mask != NULL && times != NULL);
    const size_t count = ids.count + 1;
    for (size_t round = 0; round <= ROUNDS && status == STATUS_OK; round++) {
        double *at = round > 0 ? times + (round - 1) * count : times;
        status = answer_walk(matcher, program, text_info(text), &ids, mask, at, error);
        for (size_t i = 0; i < count && round == 0; i++) // the first round meets every position
            out->first_us = at[i] > out->first_us ? at[i] : out->first_us;
    }
    for (size_t i = 0; i < count * ROUNDS; i++)
        out->mean_us += times[i] / (double)(count * ROUNDS);
    qsort(times, count * ROUNDS, sizeof *times, order);
    out->p99_us = times[count * ROUNDS * P99 / 100];
    out->tokens = ids.count;
    out->kept_bytes = grammar_program_bytes(program);
    free(times);
    free(mask);
    grammar_matcher_destroy(matcher);
    grammar_program_destroy(program);
    token_list_free(&ids);
    return status;
}

static void figures_print(const struct figures *figures, uint32_t vocab_count, double tree_ms)
{
    printf("vocabulary of %u tokens, laid out in %.0f ms; a mask may take %d us\n", vocab_count,
           tree_ms, LIMIT_US);
    printf("%-16s %7s %9s %9s %11s %11s %10s\n", "", "tokens", "mean us", "p99 us", "% of limit",
           "first us", "compile ms");
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        printf("%-16s %7zu %9.2f %9.2f %11.1f %11.0f %10.2f\n", rows[i].label, figures[i].tokens,
               figures[i].mean_us, figures[i].p99_us, 100 * figures[i].mean_us / LIMIT_US,
               figures[i].first_us, figures[i].compile_ms);
}

static void figures_print_json(const struct figures *figures, uint32_t vocab_count, double tree_ms)
{
    enum { DIGITS = 6 };
    struct buffer out = {0};
    struct json_writer writer;
    json_writer_init(&writer, &out);
    json_open_object(&writer);
    json_key(&writer, "vocabulary");
    json_put_u64(&writer, vocab_count);
    json_key(&writer, "layout_ms");
    json_put_number(&writer, tree_ms, DIGITS);
    json_key(&writer, "limit_us");
    json_put_int(&writer, LIMIT_US);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct {
            const char *key;
            double value;
        } members[] = {{"mean_us", figures[i].mean_us},
                       {"p99_us", figures[i].p99_us},
                       {"first_us", figures[i].first_us},
                       {"compile_ms", figures[i].compile_ms},
                       {"bytes", (double)figures[i].kept_bytes}};
        json_key(&writer, rows[i].label);
        json_open_object(&writer);
        for (size_t m = 0; m < ARRAY_COUNT(members); m++) {
            json_key(&writer, members[m].key);
            json_put_number(&writer, members[m].value, DIGITS);
        }
        json_close_object(&writer);
    }
    json_close_object(&writer);
    puts(out.data);
    buffer_free(&out);
}

static enum status run(const void *arg, struct error *error)
{
    const struct options *options = arg;
    struct text *text;
    struct figures figures[ARRAY_COUNT(rows)] = {0};
    TRY(text_open(options->model, &text, error));
    const uint64_t begin = clock_now_ns(clock_monotonic());
    struct grammar_tokens *tokens = grammar_tokens_create(text);
    const double tree_ms = (double)(clock_now_ns(clock_monotonic()) - begin) / NS_A_MS;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < ARRAY_COUNT(rows) && status == STATUS_OK; i++)
        status = row_measure(text, tokens, i, &figures[i], error);
    const uint32_t vocab_count = text_info(text)->vocab_count;
    if (status == STATUS_OK && options->json)
        figures_print_json(figures, vocab_count, tree_ms);
    else if (status == STATUS_OK)
        figures_print(figures, vocab_count, tree_ms);
    grammar_tokens_destroy(tokens);
    text_close(text);
    return status;
}

int bench_grammar(int argc, char **argv)
{
    struct options options;
    return config_do(&description, argc, argv, &options, run);
}
