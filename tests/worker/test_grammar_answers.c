/* Answers that keep to a grammar, through real nodes: each is the one that the same seed gives in
 * one process, wherever its prompt was read, whatever was written before, preempted or not. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "model/text/grammar/grammar.h"
#include "tests/worker/nodes_fixture.h"

/* Bounded, so that every answer ends by itself. */
static const struct {
    enum grammar_kind kind;
    const char *source;
} grammars[] = {
    {GRAMMAR_CHOICE, "[\"yes\",\"no\",\"no way\",\"\xc3\xa9t\xc3\xa9\"]"},
    {GRAMMAR_REGEX, "[a-f]{3,9}-[0-9]{12}(\xe2\x82\xac|\\.)?"},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},"
     "\"kind\":{\"enum\":[\"one\",\"two\",3]},\"on\":{\"type\":\"boolean\"}},"
     "\"required\":[\"name\",\"kind\"],\"additionalProperties\":false}"},
    {GRAMMAR_EBNF, "root ::= (\"<\" [a-z]+ \">\"){1,3} [ \\n]? \"end\""},
};

static struct ask bound(size_t grammar, uint32_t prompt_count, uint32_t choices)
{
    return (struct ask){.prompt = prompt,
                        .prompt_count = prompt_count,
                        .max_tokens = 90,
                        .temperature = 1.2f,
                        .seed = prompt_count,
                        .choices = choices,
                        .grammar_kind = (uint32_t)grammars[grammar].kind,
                        .grammar = grammars[grammar].source};
}

/* Around the edges of pages. */
static const uint32_t lengths[] = {1, 64, 65, 300};

static void check_lengths(bool apart)
{
    nodes_open(apart, NULL);
    for (size_t g = 0; g < ARRAY_COUNT(grammars); g++) {
        for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
            const uint32_t choices = i % 2 == 0 ? 1 : 4;
            struct ask ask = bound(g, lengths[i], choices);
            ask.temperature = i == 0 ? 0 : 1.2f;
            struct fake_answer *answers = fake_router_ask(&router, decode, prefill, &ask);
            for (uint32_t k = 0; k < choices; k++)
                fake_router_expect(&router, &answers[k], FINISH_STOP);
            for (uint32_t k = 0; k < choices; k++)
                oracle_compare_ended(&oracle, &answers[k]);
        }
    }
    nodes_close();
}

Test(grammar_answers, are_those_of_one_process_behind_a_hand_off)
{
    check_lengths(true);
}

Test(grammar_answers, are_those_of_one_process_where_the_prompt_is_read)
{
    check_lengths(false);
}

/* A node that takes over knows what was written by its tokens alone. */
static void check_placed_again(bool apart)
{
    static int32_t tokens[200];
    uint32_t placed = 0;
    nodes_open(apart, NULL);
    for (size_t g = 1; g < ARRAY_COUNT(grammars); g++) {
        struct ask ask = bound(g, 100, 1);
        ask.prompt = prompt;
        struct fake_answer *whole = fake_router_ask(&router, decode, prefill, &ask);
        fake_router_expect(&router, whole, FINISH_STOP);
        const uint32_t count = whole->token_count;
        cr_assert_gt(count, 1);
        memcpy(tokens, prompt, 100 * sizeof *tokens);
        memcpy(tokens + 100, whole->tokens, count * sizeof *tokens);
        ask.prompt = tokens;
        for (uint32_t emitted = 1; emitted < count; emitted += 1 + count / 8) {
            ask.emitted_count = emitted;
            struct fake_answer *rest = fake_router_ask(&router, decode, prefill, &ask);
            fake_router_expect(&router, rest, FINISH_STOP);
            cr_assert_eq(rest->token_count, count - emitted);
            cr_assert_eq(memcmp(rest->tokens + emitted, whole->tokens + emitted,
                                (count - emitted) * sizeof *tokens),
                         0);
            cr_assert_eq(rest->stop_id, whole->stop_id);
            placed++;
        }
    }
    cr_assert_gt(placed, 6);
    nodes_close();
}

Test(grammar_answers, that_are_placed_again_go_on_where_they_were)
{
    check_placed_again(true);
}

Test(grammar_answers, that_are_placed_again_where_the_prompt_is_read_go_on)
{
    check_placed_again(false);
}

static bool one_was_preempted(const void *worker)
{
    return ((const struct fake_worker *)worker)->heartbeat.decode.preemptions > 0;
}

/* Two long answers and pages for one and a half: the newer one begins anew in the middle. */
Test(grammar_answers, that_are_preempted_go_on_where_they_were)
{
    /* The first answer is over before the others come, whose grammar is known by then. */
    nodes_open(false, (const char *[]){"--kv-memory", "294912", "--context", "256",
                                       "--enable-fault-injection", "--fault",
                                       "engine-step:4:stop,engine-step:5:delay", NULL});
    cr_assert_eq(decode->pages_total, 6);
    struct ask ask = {.prompt = prompt,
                      .prompt_count = 40,
                      .max_tokens = 3,
                      .temperature = 1,
                      .grammar_kind = GRAMMAR_REGEX,
                      .grammar = "([a-z]{4}[0-9]{2}){33,40}"};
    fake_router_expect(&router, fake_router_ask(&router, decode, NULL, &ask), FINISH_LENGTH);
    ask.max_tokens = 210;
    struct ask other = ask;
    other.prompt = prompt + 9;
    other.prompt_count = 50;
    other.max_tokens = 206;
    struct fake_answer *first = fake_router_ask(&router, decode, NULL, &ask);
    struct fake_answer *second = fake_router_ask(&router, decode, NULL, &other);
    fake_router_continue(&router, &decode_process);
    fake_router_expect(&router, first, FINISH_STOP);
    fake_router_expect(&router, second, FINISH_STOP);
    oracle_compare_ended(&oracle, first);
    oracle_compare_ended(&oracle, second);
    fake_router_wait(&router, "count of preemptions", one_was_preempted, decode);
    nodes_close();
}

/* All that a prefill node answers by itself. */
Test(grammar_answers, of_one_token_need_no_decode_node)
{
    nodes_open(true, NULL);
    for (uint32_t seed = 0; seed < 8; seed++) {
        struct ask ask = bound(0, 70, 1);
        int32_t expected;
        ask.max_tokens = 1;
        ask.seed = seed;
        struct fake_answer *answer = fake_router_ask(&router, NULL, prefill, &ask);
        fake_router_expect(&router, answer, FINISH_LENGTH);
        oracle_generate(&oracle, &ask, 1, &expected);
        cr_assert_eq(answer->tokens[0], expected);
    }
    nodes_close();
}

/* The budget is over where the document is: it is whole, and says that it ended. */
Test(grammar_answers, are_whole_however_few_tokens_they_may_have)
{
    nodes_open(true, NULL);
    for (uint32_t max_tokens = 40; max_tokens < 60; max_tokens += 3) {
        struct ask ask = {.prompt = prompt,
                          .prompt_count = 20,
                          .max_tokens = max_tokens,
                          .temperature = 1.5f,
                          .seed = max_tokens,
                          .grammar_kind = GRAMMAR_JSON_SCHEMA,
                          .grammar = "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}"};
        struct fake_answer *answer = fake_router_ask(&router, decode, prefill, &ask);
        fake_router_expect(&router, answer, FINISH_STOP);
        cr_assert_lt(answer->token_count, max_tokens);
        oracle_compare_ended(&oracle, answer);
    }
    nodes_close();
}

static bool answer_failed(const void *answer)
{
    const struct fake_answer *a = answer;
    return a->failures > 0 || a->refused != STATUS_OK;
}

Test(grammar_answers, that_cannot_be_are_refused_with_a_sentence)
{
    nodes_open(true, NULL);
    struct ask ask = bound(1, 10, 1);
    ask.grammar = "a(";
    for (int by_prefill = 0; by_prefill < 2; by_prefill++) {
        ask.max_tokens = by_prefill ? 1 : 9;
        struct fake_answer *answer =
            fake_router_ask(&router, by_prefill ? NULL : decode, by_prefill ? prefill : NULL, &ask);
        fake_router_wait(&router, "a refusal", answer_failed, answer);
        cr_assert_not_null(strstr(answer->text, "column"), "%s", answer->text);
    }
    ask.grammar_kind = 7;
    struct fake_answer *answer = fake_router_ask(&router, decode, NULL, &ask);
    fake_router_wait(&router, "a refusal", answer_failed, answer);
    cr_assert_not_null(strstr(answer->text, "kind 7"), "%s", answer->text);
    /* What was written is no beginning of it. */
    ask = bound(0, 10, 1);
    ask.emitted_count = 5;
    answer = fake_router_ask(&router, decode, NULL, &ask);
    fake_router_wait(&router, "a failure", answer_failed, answer);
    cr_assert_not_null(strstr(answer->text, "grammar"), "%s", answer->text);
    nodes_close();
}
