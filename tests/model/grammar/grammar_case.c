#include "tests/model/grammar/grammar_case.h"

#include <criterion/criterion.h>
#include <stdlib.h>

void grammar_case_source(struct grammar_case *at, enum grammar_kind kind, const char *source,
                         size_t cache_bytes)
{
    struct grammar *grammar = NULL;
    struct error error = {0};
    grammar_program_destroy(at->program);
    at->program = NULL;
    cr_assert_eq(grammar_compile(kind, source, strlen(source), &grammar, &error), STATUS_OK,
                 "%s: %s", source, error.text);
    cr_assert_eq(grammar_program_create(grammar, at->tokens, cache_bytes, &at->program, &error),
                 STATUS_OK, "%s: %s", source, error.text);
    grammar_matcher_init(at->matcher, at->program);
}

void grammar_case_open(struct grammar_case *at, enum grammar_kind kind, const char *source,
                       size_t cache_bytes)
{
    *at = (struct grammar_case){.text = json_vocabulary_open(),
                                .matcher = grammar_matcher_create(),
                                .copy = grammar_matcher_create(),
                                .random = 1};
    at->end = json_vocabulary_end(at->text);
    at->tokens = grammar_tokens_create(at->text);
    at->mask = calloc(grammar_mask_words(at->tokens), sizeof *at->mask);
    cr_assert_not_null(at->mask);
    grammar_case_source(at, kind, source, cache_bytes);
}

void grammar_case_close(struct grammar_case *at)
{
    free(at->mask);
    grammar_program_destroy(at->program);
    grammar_tokens_destroy(at->tokens);
    grammar_matcher_destroy(at->matcher);
    grammar_matcher_destroy(at->copy);
    text_close(at->text);
}

bool grammar_case_allowed(const struct grammar_case *at, uint32_t id)
{
    return (at->mask[id / 32] >> id % 32 & 1) != 0;
}

uint32_t grammar_case_pick(struct grammar_case *at, uint32_t count)
{
    at->random = at->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((at->random >> 33) % count);
}

int32_t grammar_case_token(struct grammar_case *at)
{
    uint32_t count = 0;
    int32_t chosen = -1;
    for (uint32_t id = 0; id < text_info(at->text)->vocab_count; id++)
        if (grammar_case_allowed(at, id) && grammar_case_pick(at, ++count) == 0)
            chosen = (int32_t)id;
    return chosen;
}

bool grammar_case_fits(struct grammar_case *at, const char *text)
{
    grammar_matcher_init(at->matcher, at->program);
    for (; *text != '\0'; text++)
        if (!grammar_matcher_accept(at->matcher, (uint8_t)*text))
            return false;
    return grammar_matcher_can_end(at->matcher);
}

void grammar_case_check(struct grammar_case *at)
{
    const enum status status = grammar_matcher_mask(at->matcher, 0, &at->end, 1, at->mask);
    cr_assert_eq(status, STATUS_OK, "%s", status_name(status));
    for (uint32_t id = 0; id < text_info(at->text)->vocab_count; id++) {
        grammar_matcher_copy(at->copy, at->matcher);
        const bool fits = (int32_t)id == at->end ? grammar_matcher_can_end(at->copy)
                                                 : grammar_matcher_accept(at->copy, (int32_t)id);
        cr_assert_eq(fits, grammar_case_allowed(at, id), "token %u: accepted %d", id, fits);
    }
}
