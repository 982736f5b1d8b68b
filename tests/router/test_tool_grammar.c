/* The grammar of calls that have to come, walked at random: whatever is written is read back as
 * whole calls of the tools, in every style, with marks that are special tokens and marks that are
 * text. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/random.h"
#include "model/text/grammar/grammar.h"
#include "router/answer.h"
#include "tests/router/tiny_text.h"

enum { TOKENS_MAX = 400, CACHE_BYTES = 1 << 20 };

#define BODY                                                                                       \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tool_choice\":\"required\","          \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{"            \
    "\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":0,"               \
    "\"maximum\":9},\"s\":{\"type\":\"string\"}},\"required\":[\"a\"]}}},"                         \
    "{\"type\":\"function\",\"function\":{\"name\":\"now\",\"parameters\":{\"type\":\"object\","   \
    "\"properties\":{},\"additionalProperties\":false}}}]}"

struct bench {
    struct text *text;
    struct openai_request request;
    struct grammar_tokens *tokens;
    struct grammar_program *program;
    struct grammar_matcher *matcher;
};

static void bench_open(struct bench *bench, enum tool_style style, bool marked)
{
    const struct tool_syntax *syntax = tool_syntax(style);
    const char *special[] = {syntax->open, syntax->close ? syntax->close : TOOL_MARK_ARGUMENTS};
    struct openai_error error = {0};
    struct error cause = {0};
    struct grammar *grammar;
    *bench = (struct bench){.text = marked ? tiny_text_open_with(special, ARRAY_COUNT(special))
                                           : tiny_text_open()};
    const struct openai_rules rules = {.text = bench->text,
                                       .model_name = "tiny",
                                       .context_tokens = TINY_CONTEXT,
                                       .tools = {.style = style}};
    cr_assert_eq(
        openai_request_parse(OPENAI_CHAT, BODY, strlen(BODY), &rules, &bench->request, &error),
        STATUS_OK, "%s", error.message);
    const struct buffer *source = &bench->request.grammar.source;
    cr_assert_eq(grammar_compile(GRAMMAR_STRUCTURE, source->data, source->size, &grammar, &cause),
                 STATUS_OK, "%s: %s", source->data, cause.text);
    bench->tokens = grammar_tokens_create(bench->text);
    cr_assert_eq(
        grammar_program_create(grammar, bench->tokens, CACHE_BYTES, &bench->program, &cause),
        STATUS_OK, "%s", cause.text);
    bench->matcher = grammar_matcher_create();
}

static void bench_close(struct bench *bench)
{
    grammar_matcher_destroy(bench->matcher);
    grammar_program_destroy(bench->program);
    grammar_tokens_destroy(bench->tokens);
    openai_request_free(&bench->request);
    text_close(bench->text);
}

/* The id at a random place of the mask. */
static int32_t pick(const uint32_t *mask, size_t words, struct random *random)
{
    uint32_t count = 0;
    for (size_t i = 0; i < words; i++)
        count += (uint32_t)__builtin_popcount(mask[i]);
    cr_assert_gt(count, 0);
    uint64_t left = random_below(random, count);
    for (size_t i = 0; i < words * 32; i++)
        if ((mask[i / 32] >> i % 32 & 1) != 0 && left-- == 0)
            return (int32_t)i;
    return -1;
}

/* Writes one answer into the calls; its tokens. */
static uint32_t write_answer(struct bench *bench, uint64_t seed, struct answer *answer)
{
    const int32_t end = TINY_END;
    const size_t words = grammar_mask_words(bench->tokens);
    uint32_t *mask = calloc(words, sizeof *mask);
    struct random random;
    random_init(&random, seed);
    grammar_matcher_init(bench->matcher, bench->program);
    uint32_t count = 0;
    for (; count < TOKENS_MAX; count++) {
        cr_assert_eq(grammar_matcher_mask(bench->matcher, TOKENS_MAX - count, &end, 1, mask),
                     STATUS_OK);
        const int32_t id = pick(mask, words, &random);
        if (id == end)
            break;
        cr_assert(grammar_matcher_accept(bench->matcher, id));
        answer_push(answer, id, 0, 0, NULL, NULL);
    }
    answer_finish(answer);
    free(mask);
    return count;
}

static void check_calls(const struct tool_calls *calls, const char *text)
{
    cr_assert_eq(calls->content.size, 0, "%s", text);
    cr_assert(calls->count > 0 && tool_calls_end(calls, true), "%s", text);
    for (uint32_t i = 0; i < calls->count; i++) {
        const struct buffer *arguments = &calls->calls[i].arguments;
        struct json *root;
        struct error error;
        cr_assert_eq(json_parse(arguments->data, arguments->size, &root, &error), STATUS_OK,
                     "%s: %s", arguments->data, error.text);
        const struct json *a = json_get(root, "a");
        if (strcmp(calls->calls[i].name, "add") == 0)
            cr_assert(a && json_kind(a) == JSON_INT && json_int(a) >= 0 && json_int(a) <= 9);
        else
            cr_assert_eq(json_count(root), 0);
        json_free(root);
    }
}

Test(tool_grammar, whatever_it_lets_through_is_read_as_calls)
{
    for (int style = TOOL_STYLE_NONE + 1; style < TOOL_STYLE_COUNT; style++) {
        for (int marked = 0; marked < 2; marked++) {
            struct bench bench;
            uint32_t calls_seen = 0, tokens_seen = 0;
            bench_open(&bench, (enum tool_style)style, marked != 0);
            for (uint64_t seed = 0; seed < 25; seed++) {
                struct answer answer;
                struct tool_calls calls;
                answer_init(&answer, bench.text, &bench.request);
                tool_calls_init(&calls, bench.request.tools.style, &bench.request.tools.names,
                                TOOL_CALLS_MAX, seed);
                tokens_seen += write_answer(&bench, seed, &answer);
                tool_calls_feed(&calls, answer.out.data, answer.out.size);
                tool_calls_finish(&calls);
                check_calls(&calls, answer.out.data);
                calls_seen += calls.count;
                tool_calls_free(&calls);
                answer_free(&answer);
            }
            cr_expect(calls_seen >= 25 && tokens_seen > calls_seen);
            cr_expect(calls_seen > 25 || tool_syntax((enum tool_style)style)->alone);
            bench_close(&bench);
        }
    }
}
