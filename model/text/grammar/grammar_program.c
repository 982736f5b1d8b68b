/* A grammar over a vocabulary; see grammar.h. */
#include <stdlib.h>

#include "base/check.h"
#include "model/text/grammar/grammar_walk_internal.h"
#include "model/text/text.h"

enum { CACHE_BYTES_MIN = 64 << 10, CACHE_MASKS_MIN = 3 };

static void *array(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);
    CHECK(memory != NULL);
    return memory;
}

static enum status specials_find(struct grammar_program *program, struct error *error)
{
    const struct text *text = program->tokens->text;
    for (uint32_t i = 0; i < program->grammar->special_count; i++) {
        const char *special = program->grammar->specials[i];
        const int32_t id = text_token_find(text, special, strlen(special));
        if (id < 0 || !text_token_special(text, id) ||
            (uint32_t)id >= text_info(text)->picked_count)
            return error_set(error, STATUS_UNSUPPORTED,
                             "the vocabulary has no special token '%.100s'", special);
        program->special_ids[i] = id;
    }
    return STATUS_OK;
}

/* How far each state is from the end of its rule, with the bytes that have a token of their own:
 * by those an answer can always be ended. */
static enum status rest_find(struct grammar_program *program, struct error *error)
{
    const struct grammar *grammar = program->grammar;
    const struct automaton *automaton = &grammar->automaton;
    bool usable[SYMBOL_COUNT] = {false};
    for (uint32_t byte = 0; byte < 256; byte++)
        if (program->tokens->single[byte])
            usable[automaton->class_of[byte]] = true;
    for (uint32_t i = 0; i < grammar->special_count; i++)
        usable[automaton->class_of[SYMBOL_SPECIAL + i]] = true;
    program->rest = array(automaton->state_count, sizeof *program->rest);
    if (!automaton_rest(automaton, usable, program->rest))
        return error_set(error, STATUS_LIMIT, "the grammar needs more than %d steps to compile",
                         AUTOMATON_WORK_MAX);
    if (program->rest[grammar->start] == AUTOMATON_REST_NONE && !grammar->nullable)
        return error_set(error, STATUS_UNSUPPORTED,
                         "the vocabulary lacks bytes without which no answer fits the grammar");
    return STATUS_OK;
}

/* What no answer can begin with is refused before one is begun, and need not be worked out then. */
static enum status first_mask(struct grammar_program *program, struct error *error)
{
    struct grammar_matcher *matcher = grammar_matcher_create();
    uint32_t *mask = array(program->mask_words, sizeof *mask);
    grammar_matcher_init(matcher, program);
    enum status status = grammar_matcher_mask(matcher, 0, NULL, 0, mask);
    if (status == STATUS_LIMIT)
        error_set(error, status, "no answer can begin: %s", grammar_matcher_limit(matcher));
    else
        status = STATUS_OK; /* also where nothing is allowed but the end */
    grammar_matcher_destroy(matcher);
    free(mask);
    return status;
}

enum status grammar_program_create(struct grammar *grammar, const struct grammar_tokens *tokens,
                                   size_t cache_bytes, struct grammar_program **out,
                                   struct error *error)
{
    struct grammar_program *program = array(1, sizeof *program);
    program->grammar = grammar;
    program->tokens = tokens;
    program->mask_words = (uint32_t)grammar_mask_words(tokens);
    enum status status = specials_find(program, error);
    if (status == STATUS_OK)
        status = rest_find(program, error);
    if (status != STATUS_OK) {
        grammar_program_destroy(program);
        return status;
    }
    const size_t least = CACHE_MASKS_MIN * program->mask_words * sizeof *program->cache;
    cache_bytes = cache_bytes > least ? cache_bytes : least;
    cache_bytes = cache_bytes > CACHE_BYTES_MIN ? cache_bytes : CACHE_BYTES_MIN;
    program->cache_words = cache_bytes / sizeof *program->cache;
    program->cache = array(program->cache_words, sizeof *program->cache);
    program->entries = array(grammar->automaton.state_count, sizeof *program->entries);
    program->scratch = array(program->mask_words, sizeof *program->scratch);
    program->nodes = array(1, sizeof *program->nodes);
    program->sets = array(TOKEN_BYTES_MAX + 1, sizeof *program->sets);
    status = first_mask(program, error);
    if (status != STATUS_OK) {
        grammar_program_destroy(program);
        return status;
    }
    *out = program;
    return STATUS_OK;
}

void grammar_program_destroy(struct grammar_program *program)
{
    if (program == NULL)
        return;
    grammar_free(program->grammar);
    free(program->rest);
    free(program->cache);
    free(program->entries);
    free(program->scratch);
    free(program->nodes);
    free(program->sets);
    free(program);
}

size_t grammar_program_bytes(const struct grammar_program *program)
{
    const struct automaton *automaton = &program->grammar->automaton;
    const size_t state_bytes = automaton->class_count * sizeof *automaton->next +
                               sizeof *automaton->call_begin + 2 * sizeof(bool) +
                               sizeof *program->rest + sizeof *program->entries;
    return sizeof *program + sizeof *program->grammar + automaton->state_count * state_bytes +
           automaton->call_count * sizeof *automaton->calls +
           automaton->rule_count * (sizeof *automaton->rule_start + CLASS_WORDS * 8) +
           program->cache_words * sizeof *program->cache +
           program->mask_words * sizeof *program->scratch + sizeof *program->nodes +
           (TOKEN_BYTES_MAX + 1) * sizeof *program->sets;
}
