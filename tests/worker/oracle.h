/* The same model in the test's own process: what every answer is compared with. */
#ifndef BATON_TESTS_WORKER_ORACLE_H
#define BATON_TESTS_WORKER_ORACLE_H

#include "model/model.h"
#include "model/sampler.h"
#include "model/text/text.h"
#include "tests/worker/fake_router.h"

struct oracle {
    struct model *model;
    struct text *text; /* for the ids that end an answer */
    struct sampler *sampler;
    struct grammar_tokens *tokens; /* of text; made when they are needed */
};

void oracle_open(struct oracle *oracle, const char *path); /* keys and values in bf16 */
void oracle_open_as(struct oracle *oracle, const char *path, enum kv_dtype dtype);
void oracle_close(struct oracle *oracle);
/* `count` new tokens behind ask->prompt_count + ask->emitted_count, ends of any kind ignored, but
 * for those that min_tokens puts off and those that a grammar allows: behind one nothing more
 * comes. */
void oracle_generate(struct oracle *oracle, const struct ask *ask, uint32_t count, int32_t *out);
/* The answer has exactly these tokens and `count` of them. */
void oracle_compare(struct oracle *oracle, const struct fake_answer *answer, uint32_t count);
/* The same of an answer with a grammar, which has ended by itself: its tokens, and the id of its
 * end. */
void oracle_compare_ended(struct oracle *oracle, const struct fake_answer *answer);
/* Ids drawn from the vocabulary. */
void oracle_prompt(uint64_t seed, uint32_t vocab_count, uint32_t count, int32_t *out);

#endif
