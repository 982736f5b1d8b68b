/* A grammar over the vocabulary of the tests, and what is asked of it. Everything fails the test
 * that cannot be. */
#ifndef BATON_TESTS_MODEL_GRAMMAR_CASE_H
#define BATON_TESTS_MODEL_GRAMMAR_CASE_H

#include "base/bytes.h"
#include "model/text/grammar/grammar.h"
#include "tests/model/grammar/json_vocabulary.h"

struct grammar_case {
    struct text *text;
    struct grammar_tokens *tokens;
    struct grammar_program *program;
    struct grammar_matcher *matcher, *copy;
    uint32_t *mask;
    int32_t end;
    uint64_t random;
};

void grammar_case_open(struct grammar_case *at, enum grammar_kind kind, const char *source,
                       size_t cache_bytes);
void grammar_case_close(struct grammar_case *at);
/* Another source over the same vocabulary. */
void grammar_case_source(struct grammar_case *at, enum grammar_kind kind, const char *source,
                         size_t cache_bytes);
bool grammar_case_allowed(const struct grammar_case *at, uint32_t id);
uint32_t grammar_case_pick(struct grammar_case *at, uint32_t count);
/* A token of those in the mask, at random; -1: there is none. */
int32_t grammar_case_token(struct grammar_case *at);
/* Whether a text fits, by tokens of one byte. */
bool grammar_case_fits(struct grammar_case *at, const char *text);
/* The mask without a limit is what the matcher accepts, id by id. */
void grammar_case_check(struct grammar_case *at);

#endif
