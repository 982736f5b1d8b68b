/* Masks: held against what is plainly known of the texts of a grammar, against the matcher, and to
 * the promise that an answer is whole when its tokens run out. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/text/grammar/grammar_walk_internal.h"
#include "tests/model/grammar/grammar_case.h"

enum { CACHE_BYTES = 1 << 20, WALK_TOKENS_MAX = 60 };

/* A token that a source's answers may have next, by nothing but their texts. */
typedef bool (*next_oracle)(const char *written, size_t bytes, const char *token, size_t count);

static const char *const choices[] = {
    "aaaaab", "aab", "a", "hello", "hell", "he said \"}},", "\xc3\xa9\xc3\xa9", "true12"};

static bool choice_next(const char *written, size_t bytes, const char *token, size_t count)
{
    for (size_t i = 0; i < ARRAY_COUNT(choices); i++)
        if (strlen(choices[i]) >= bytes + count && memcmp(choices[i], written, bytes) == 0 &&
            memcmp(choices[i] + bytes, token, count) == 0)
            return true;
    return false;
}

/* Brackets that close what they opened: ([{a}])a… */
static bool bracket_next(const char *written, size_t bytes, const char *token, size_t count)
{
    char open[256];
    size_t depth = 0;
    for (size_t i = 0; i < bytes + count; i++) {
        const char c = i < bytes ? written[i] : token[i - bytes];
        const char *opens = strchr("([{", c);
        if (c == 'a')
            continue;
        if (c != '\0' && opens != NULL)
            open[depth++] = ")]}"[opens - "([{"];
        else if (depth == 0 || open[--depth] != c)
            return false;
    }
    return true;
}

static void oracle_walk(struct grammar_case *at, next_oracle next)
{
    struct buffer written = {0};
    grammar_matcher_init(at->matcher, at->program);
    for (uint32_t i = 0; i < WALK_TOKENS_MAX && !grammar_matcher_must_end(at->matcher); i++) {
        cr_assert_eq(grammar_matcher_mask(at->matcher, 0, &at->end, 1, at->mask), STATUS_OK);
        for (uint32_t id = 0; id < text_info(at->text)->vocab_count; id++) {
            size_t count;
            const char *token = text_token_bytes(at->text, (int32_t)id, &count);
            if (text_token_special(at->text, (int32_t)id))
                continue;
            cr_assert_eq(grammar_case_allowed(at, id),
                         next(written.size > 0 ? written.data : "", written.size, token, count),
                         "token %u behind '%s'", id, written.size > 0 ? written.data : "");
        }
        size_t count;
        const int32_t chosen = grammar_case_token(at);
        if (chosen == at->end)
            break;
        const char *token = text_token_bytes(at->text, chosen, &count);
        cr_assert(grammar_matcher_accept(at->matcher, chosen));
        buffer_add(&written, token, count);
    }
    buffer_free(&written);
}

Test(grammar_mask, a_choice_allows_what_begins_one_of_its_texts)
{
    struct grammar_case at;
    grammar_case_open(&at, GRAMMAR_CHOICE,
                      "[\"aaaaab\",\"aab\",\"a\",\"hello\",\"hell\",\"he said \\\"}},\","
                      "\"\\u00e9\\u00e9\",\"true12\"]",
                      CACHE_BYTES);
    for (uint32_t i = 0; i < 200; i++)
        oracle_walk(&at, choice_next);
    grammar_case_close(&at);
}

Test(grammar_mask, rules_that_recurse_allow_what_may_follow_at_any_depth)
{
    struct grammar_case at;
    grammar_case_open(&at, GRAMMAR_EBNF,
                      "root ::= item*\n"
                      "item ::= \"a\" | \"(\" root \")\" | \"[\" root \"]\" | \"{\" root \"}\"\n",
                      CACHE_BYTES);
    for (uint32_t i = 0; i < 60; i++)
        oracle_walk(&at, bracket_next);
    grammar_case_close(&at);
}

static const struct {
    enum grammar_kind kind;
    const char *source;
} sources[] = {
    {GRAMMAR_JSON_OBJECT, ""},
    {GRAMMAR_REGEX, "(a|aa|he(llo)*)*\\d{2,4}(true|\xc3\xa9+)?"},
    {GRAMMAR_REGEX, "[^b-y]{1,9}\\.(0\\.5|12)*"},
    {GRAMMAR_CHOICE, "[\"\",\"a\",\"aaaa\"]"},
    {GRAMMAR_EBNF, "root ::= expr\nexpr ::= term ([-+*/] term)*\n"
                   "term ::= [0-9]+ | \"(\" expr \")\" | \"aa\"{2,3}"},
    {GRAMMAR_EBNF, "root ::= \"a\" root \"b\" | \"a\" tail | \"x\"\ntail ::= \"a\"? \"x\" tail?"},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":-12,"
     "\"maximum\":120},\"b\":{\"type\":\"string\",\"maxLength\":4},\"hello\":{\"$ref\":\"#\"}},"
     "\"required\":[\"b\"]}"},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"number\","
     "\"exclusiveMinimum\":0.5},{\"pattern\":\"^h\\\\s?e\"}]},\"minItems\":1}"},
    {GRAMMAR_JSON_SCHEMA, "{\"additionalProperties\":{\"type\":[\"boolean\",\"null\"]},"
                          "\"properties\":{\"a\":true},\"type\":\"object\"}"},
    {GRAMMAR_STRUCTURE,
     "{\"parts\":[{\"special\":\"" JSON_VOCABULARY_SPECIAL "\"},{\"any\":[{\"parts\":[{\"text\":"
     "\"hell\"},{\"schema\":{\"type\":\"object\"}}]},{\"parts\":[{\"regex\":\"a+\"}],\"repeat\":"
     "[0,3],\"separator\":\"}}\"}]}],\"repeat\":[1,2],\"separator\":\" w\"}"},
};

Test(grammar_mask, every_mask_is_what_the_matcher_accepts)
{
    struct grammar_case at;
    grammar_case_open(&at, GRAMMAR_JSON_OBJECT, "", CACHE_BYTES);
    for (size_t s = 0; s < ARRAY_COUNT(sources); s++) {
        grammar_case_source(&at, sources[s].kind, sources[s].source, CACHE_BYTES);
        for (uint32_t walk = 0; walk < 12; walk++) {
            grammar_matcher_init(at.matcher, at.program);
            for (uint32_t i = 0; i < WALK_TOKENS_MAX; i++) {
                grammar_case_check(&at);
                const int32_t chosen = grammar_case_token(&at);
                if (chosen == at.end)
                    break;
                cr_assert(grammar_matcher_accept(at.matcher, chosen));
            }
        }
    }
    grammar_case_close(&at);
}

/* An answer of `budget` tokens at random; it must be whole, and with the room for it have its end.
 */
static void budget_walk(struct grammar_case *at, uint32_t budget, uint32_t rest, uint32_t ends)
{
    bool ended = false;
    grammar_matcher_init(at->matcher, at->program);
    for (uint32_t left = budget; left > 0 && !ended; left--) {
        const enum status status =
            grammar_matcher_mask(at->matcher, left, &at->end, ends, at->mask);
        if (status == STATUS_NOT_FOUND && ends == 0)
            break; // nothing more fits, so that it has to be whole
        cr_assert_eq(status, STATUS_OK);
        const int32_t chosen = grammar_case_token(at);
        ended = chosen == at->end;
        cr_assert(ended || grammar_matcher_accept(at->matcher, chosen));
    }
    cr_assert(grammar_matcher_can_end(at->matcher), "%u tokens, of at least %u", budget, rest);
    cr_assert(ended || ends == 0 || budget == rest, "%u tokens, of at least %u", budget, rest);
}

Test(grammar_mask, an_answer_is_whole_at_every_budget_from_the_shortest_on)
{
    struct grammar_case at;
    grammar_case_open(&at, GRAMMAR_JSON_OBJECT, "", CACHE_BYTES);
    for (size_t s = 0; s < ARRAY_COUNT(sources); s++) {
        grammar_case_source(&at, sources[s].kind, sources[s].source, CACHE_BYTES);
        grammar_matcher_init(at.matcher, at.program);
        const uint32_t rest = grammar_matcher_rest(at.matcher);
        for (uint32_t budget = rest; budget < rest + 24; budget++)
            for (uint32_t i = 0; i < 8; i++)
                budget_walk(&at, budget, rest, i % 2);
    }
    grammar_case_close(&at);
}

/* A cache that holds a few masks is emptied again and again; the masks stay the same. */
Test(grammar_mask, a_full_cache_changes_no_mask)
{
    struct grammar_case large;
    struct grammar_case small;
    const char *source = sources[6].source;
    grammar_case_open(&large, GRAMMAR_JSON_SCHEMA, source, CACHE_BYTES);
    grammar_case_open(&small, GRAMMAR_JSON_SCHEMA, source, 0);
    const size_t bytes = grammar_mask_words(large.tokens) * sizeof *large.mask;
    for (uint32_t walk = 0; walk < 60; walk++) {
        grammar_matcher_init(large.matcher, large.program);
        grammar_matcher_init(small.matcher, small.program);
        for (uint32_t i = 0; i < WALK_TOKENS_MAX; i++) {
            const uint32_t left = walk % 2 == 0 ? 0 : WALK_TOKENS_MAX - i;
            cr_assert_eq(grammar_matcher_mask(large.matcher, left, &large.end, 1, large.mask),
                         STATUS_OK);
            cr_assert_eq(grammar_matcher_mask(small.matcher, left, &small.end, 1, small.mask),
                         STATUS_OK);
            cr_assert_arr_eq(large.mask, small.mask, bytes);
            const int32_t chosen = grammar_case_token(&large);
            if (chosen == large.end)
                break;
            cr_assert(grammar_matcher_accept(large.matcher, chosen));
            cr_assert(grammar_matcher_accept(small.matcher, chosen));
        }
    }
    grammar_case_close(&large);
    grammar_case_close(&small);
}

Test(grammar_mask, special_tokens_match_no_text_and_their_text_is_no_token)
{
    struct grammar_case at;
    const char *special = JSON_VOCABULARY_SPECIAL;
    grammar_case_open(&at, GRAMMAR_STRUCTURE,
                      "{\"parts\":[{\"special\":\"" JSON_VOCABULARY_SPECIAL
                      "\"},{\"text\":\"a\"}]}",
                      CACHE_BYTES);
    const int32_t id = text_token_find(at.text, special, strlen(special));
    cr_assert(!grammar_matcher_accept(at.matcher, '['));
    cr_assert_eq(grammar_matcher_mask(at.matcher, 0, NULL, 0, at.mask), STATUS_OK);
    for (uint32_t i = 0; i < text_info(at.text)->vocab_count; i++)
        cr_assert_eq(grammar_case_allowed(&at, i), (int32_t)i == id);
    cr_assert(grammar_matcher_accept(at.matcher, id));
    cr_assert(!grammar_matcher_accept(at.matcher, id));
    cr_assert(grammar_matcher_accept(at.matcher, 'a'));
    cr_assert(grammar_matcher_must_end(at.matcher));
    cr_assert_eq(grammar_matcher_mask(at.matcher, 0, NULL, 0, at.mask), STATUS_NOT_FOUND);
    grammar_case_source(&at, GRAMMAR_REGEX, "\\[CALL\\]|<end>", CACHE_BYTES);
    cr_assert(!grammar_matcher_accept(at.matcher, id));
    cr_assert(!grammar_matcher_accept(at.matcher, at.end));
    cr_assert(grammar_case_fits(&at, "[CALL]"));
    grammar_case_close(&at);
}

Test(grammar_mask, a_vocabulary_without_a_special_token_is_told_so)
{
    struct grammar_case at;
    struct grammar *grammar;
    struct grammar_program *program;
    struct error error = {0};
    const char *source = "{\"parts\":[{\"special\":\"[NONE]\"}]}";
    grammar_case_open(&at, GRAMMAR_JSON_OBJECT, "", CACHE_BYTES);
    cr_assert_eq(grammar_compile(GRAMMAR_STRUCTURE, source, strlen(source), &grammar, &error),
                 STATUS_OK);
    cr_assert_eq(grammar_program_create(grammar, at.tokens, CACHE_BYTES, &program, &error),
                 STATUS_UNSUPPORTED);
    cr_assert_str_eq(error.text, "the vocabulary has no special token '[NONE]'");
    grammar_case_close(&at);
}

Test(grammar_mask, a_refused_token_changes_nothing)
{
    struct grammar_case at;
    grammar_case_open(&at, GRAMMAR_REGEX, "hello", CACHE_BYTES);
    cr_assert(grammar_matcher_accept(at.matcher, 'h'));
    cr_assert(!grammar_matcher_accept(at.matcher, 'h'));
    cr_assert(!grammar_matcher_accept(at.matcher, -1));
    cr_assert(!grammar_matcher_accept(at.matcher, 1 << 20));
    for (const char *c = "ello"; *c != '\0'; c++)
        cr_assert(grammar_matcher_accept(at.matcher, *c));
    cr_assert(grammar_matcher_must_end(at.matcher));
    grammar_case_close(&at);
}

Test(grammar_mask, nesting_ends_at_its_limit_and_masks_agree_there)
{
    struct grammar_case at;
    grammar_case_open(&at, GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\"}", CACHE_BYTES);
    uint32_t depth = 0;
    while (depth < 2 * GRAMMAR_DEPTH_MAX && grammar_matcher_accept(at.matcher, '['))
        if (++depth > GRAMMAR_DEPTH_MAX - 4)
            grammar_case_check(&at);
    cr_assert_geq(depth, GRAMMAR_DEPTH_MAX);
    cr_assert_lt(depth, GRAMMAR_DEPTH_MAX + 4);
    grammar_case_check(&at);
    for (uint32_t i = 0; i < depth; i++)
        cr_assert(grammar_matcher_accept(at.matcher, ']'));
    cr_assert(grammar_matcher_must_end(at.matcher));
    grammar_case_close(&at);
}

/* Every a may need a b or not, by rules of their own: one stack more with each. */
Test(grammar_mask, too_many_ways_to_read_an_answer_fail_it)
{
    struct grammar_case at;
    grammar_case_open(&at, GRAMMAR_EBNF,
                      "root ::= \"a\" x \"b\" | \"a\" y | \"x\"\nx ::= root\ny ::= root",
                      CACHE_BYTES);
    uint32_t count = 0;
    while (count < 1000 && grammar_matcher_accept(at.matcher, 'a'))
        count++;
    cr_assert_geq(count, 60);
    cr_assert_lt(count, 1000);
    cr_assert(strstr(grammar_matcher_limit(at.matcher), "the grammar enters more than 256 rules"));
    cr_assert_eq(grammar_matcher_mask(at.matcher, 0, &at.end, 1, at.mask), STATUS_LIMIT);
    grammar_case_close(&at);
}

/* Behind `first` one of `count` rules, none of which is told from the others before its end. */
static void wide_source(struct buffer *out, const char *first, uint32_t count)
{
    buffer_printf(out, "root ::= %s(r0", first);
    for (uint32_t i = 1; i < count; i++)
        buffer_printf(out, " | r%u", i);
    buffer_add_text(out, ")\n");
    for (uint32_t i = 0; i < count; i++)
        buffer_printf(out, "r%u ::= [^\\x01]* \"\\x01%u\"\n", i, i);
}

Test(grammar_mask, what_no_answer_can_begin_with_is_refused_at_once)
{
    struct grammar_case at;
    struct buffer source = {0};
    struct grammar *grammar;
    struct grammar_program *program;
    struct error error;
    grammar_case_open(&at, GRAMMAR_REGEX, "a", CACHE_BYTES);
    wide_source(&source, "", 200);
    cr_assert_eq(grammar_compile(GRAMMAR_EBNF, source.data, source.size, &grammar, &error),
                 STATUS_OK);
    cr_assert_eq(grammar_program_create(grammar, at.tokens, CACHE_BYTES, &program, &error),
                 STATUS_LIMIT);
    cr_assert_str_eq(error.text,
                     "no answer can begin: the grammar can be read in more than 192 ways at once");
    buffer_free(&source);
    grammar_case_close(&at);
}

/* The first mask of a state is work like any other: as many looks as the vocabulary has texts. */
Test(grammar_mask, the_first_mask_of_each_state_is_counted)
{
    enum { WIDE = 100 };
    struct grammar_case at;
    struct buffer source = {0};
    wide_source(&source, "\"a\" ", WIDE);
    grammar_case_open(&at, GRAMMAR_EBNF, source.data, CACHE_BYTES);
    const uint64_t walks = at.program->walks;
    cr_assert_gt(walks, 0, "the first mask of all is there");
    for (int i = 0; i < 2; i++) {
        cr_assert(grammar_matcher_accept(at.matcher, 'a'));
        cr_assert_eq(grammar_matcher_mask(at.matcher, 0, &at.end, 1, at.mask), STATUS_OK);
    }
    cr_assert_eq(at.program->walks, walks + 1 + WIDE);
    cr_assert_geq(at.program->work.done, WORK_STACK * WIDE * (at.tokens->node_count - 2));
    cr_assert(grammar_matcher_accept(at.matcher, 'a'));
    cr_assert_eq(grammar_matcher_mask(at.matcher, 0, &at.end, 1, at.mask), STATUS_OK);
    cr_assert_eq(at.program->work.done, 0, "they are kept");
    buffer_free(&source);
    grammar_case_close(&at);
}
