#include "tests/fuzz/fuzz_masks.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "tests/fuzz/fuzz_memory.h"
#include "tests/model/grammar/json_vocabulary.h"

enum { WALK_TOKENS = 24, CACHE_BYTES = 64 << 10 };

/* A source may grow to the limits of grammars whatever its size, so that those bound it here. Not
 * linked where libFuzzer counts itself. */
#pragma weak fuzz_memory_limit

static struct text *text;
static struct grammar_tokens *tokens;
static struct grammar_matcher *matcher;
static uint32_t *mask;

static void setup(void)
{
    text = json_vocabulary_open();
    tokens = grammar_tokens_create(text);
    matcher = grammar_matcher_create();
    mask = calloc(grammar_mask_words(tokens), sizeof *mask);
    CHECK(mask != NULL);
}

/* The nth allowed token, counted in circles; the mask allows one at least. */
static int32_t token_pick(uint64_t random)
{
    uint32_t count = 0;
    const uint32_t vocab_count = text_info(text)->vocab_count;
    for (uint32_t id = 0; id < vocab_count; id++)
        count += mask[id / 32] >> id % 32 & 1;
    uint32_t left = (uint32_t)(random % count);
    for (uint32_t id = 0; id < vocab_count; id++)
        if ((mask[id / 32] >> id % 32 & 1) != 0 && left-- == 0)
            return (int32_t)id;
    CHECK(!"the mask is empty");
    return -1;
}

static void walk(struct grammar_program *program, uint64_t seed)
{
    const int32_t end = json_vocabulary_end(text);
    grammar_matcher_init(matcher, program);
    const uint32_t rest = grammar_matcher_rest(matcher);
    for (uint32_t left = WALK_TOKENS; left > 0; left--) {
        const enum status status = grammar_matcher_mask(matcher, left, &end, 1, mask);
        if (status == STATUS_LIMIT && grammar_matcher_limit(matcher) != NULL)
            return;
        CHECK(status == STATUS_OK);
        const int32_t id = token_pick(hash64(&left, sizeof left, seed));
        if (id == end)
            return;
        if (!grammar_matcher_accept(matcher, id)) {
            CHECK(grammar_matcher_limit(matcher) != NULL);
            return;
        }
    }
    CHECK(rest > WALK_TOKENS || grammar_matcher_can_end(matcher));
}

void fuzz_source(enum grammar_kind kind, const char *source, size_t bytes)
{
    struct error error = {0};
    struct grammar *grammar;
    struct grammar_program *program;
    if (text == NULL)
        setup();
    if (fuzz_memory_limit != NULL)
        fuzz_memory_limit(GRAMMAR_COMPILE_BYTES_MAX);
    enum status status = grammar_compile(kind, source, bytes, &grammar, &error);
    if (status == STATUS_OK)
        status = grammar_program_create(grammar, tokens, CACHE_BYTES, &program, &error);
    if (status != STATUS_OK) {
        CHECK(error.text[0] != '\0');
        return;
    }
    walk(program, 1);
    walk(program, hash64(source, bytes, 2));
    grammar_program_destroy(program);
}
