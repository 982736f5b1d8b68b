/* From the graph of a front end to a grammar that can be walked. */
#include <stdlib.h>

#include "base/check.h"
#include "model/text/grammar/grammar_internal.h"

static void *array(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);
    CHECK(memory != NULL);
    return memory;
}

/* Takes away what leads to no end. */
static void dead_ends_remove(struct automaton *automaton, const uint32_t *rest)
{
    uint32_t kept = 0;
    for (uint32_t state = 0; state < automaton->state_count; state++) {
        uint16_t *row = &automaton->next[(size_t)state * automaton->class_count];
        for (uint32_t class = 0; class < automaton->class_count; class ++)
            if (row[class] != AUTOMATON_NONE && rest[row[class]] == AUTOMATON_REST_NONE)
                row[class] = AUTOMATON_NONE;
        const uint32_t begin = automaton->call_begin[state];
        automaton->call_begin[state] = kept;
        for (uint32_t c = begin; c < automaton->call_begin[state + 1]; c++) {
            const struct automaton_call call = automaton->calls[c];
            if (rest[automaton->rule_start[call.rule]] != AUTOMATON_REST_NONE &&
                rest[call.back] != AUTOMATON_REST_NONE)
                automaton->calls[kept++] = call;
        }
    }
    automaton->call_begin[automaton->state_count] = kept;
    automaton->call_count = kept;
}

struct first_walk {
    const struct grammar_build *build;
    struct grammar *grammar;
    uint8_t *seen; /* [rule_count] 0 not yet, 1 being walked, 2 done */
    struct grammar_build *fail;
};

/* What a rule can begin with. The rules it begins with are done first; one that begins with itself
 * would call itself for ever. */
static bool first_find(struct first_walk *walk, uint32_t rule, uint32_t depth)
{
    const struct automaton *automaton = &walk->grammar->automaton;
    const char *name = walk->build->rules[rule].name;
    if (walk->seen[rule] == 2)
        return true;
    if (walk->seen[rule] == 1)
        return build_fail(walk->fail, STATUS_UNSUPPORTED,
                          "%s: this begins with itself (left recursion), which never ends",
                          name != NULL ? name : "a rule");
    if (depth > GRAMMAR_DEPTH_MAX)
        return build_fail(walk->fail, STATUS_LIMIT, "%s: more than %d rules begin with one another",
                          name != NULL ? name : "a rule", GRAMMAR_DEPTH_MAX);
    walk->seen[rule] = 1;
    const uint32_t start = automaton->rule_start[rule];
    uint64_t *first = walk->grammar->first[rule];
    for (uint32_t class = 0; class < automaton->class_count; class ++)
        if (automaton_next(automaton, start, class) != AUTOMATON_NONE)
            first[class / 64] |= 1ull << class % 64;
    for (uint32_t c = automaton->call_begin[start]; c < automaton->call_begin[start + 1]; c++) {
        const uint32_t called = automaton->calls[c].rule;
        if (!first_find(walk, called, depth + 1))
            return false;
        for (uint32_t word = 0; word < CLASS_WORDS; word++)
            first[word] |= walk->grammar->first[called][word];
    }
    walk->seen[rule] = 2;
    return true;
}

static enum status firsts_find(struct grammar_build *build, struct grammar *grammar)
{
    const struct automaton *automaton = &grammar->automaton;
    struct first_walk walk = {.build = build, .grammar = grammar, .fail = build};
    grammar->first = array(build->rule_count, sizeof *grammar->first);
    walk.seen = array(build->rule_count, sizeof *walk.seen);
    bool fine = true;
    for (uint32_t rule = 0; rule < build->rule_count && fine; rule++)
        if (automaton->rule_start[rule] != AUTOMATON_NONE)
            fine = first_find(&walk, rule, 0);
    free(walk.seen);
    return build->status;
}

static void lasts_find(struct grammar *grammar)
{
    const struct automaton *automaton = &grammar->automaton;
    grammar->last = array(automaton->state_count, sizeof *grammar->last);
    for (uint32_t state = 0; state < automaton->state_count; state++) {
        bool last = automaton->final[state] &&
                    automaton->call_begin[state] == automaton->call_begin[state + 1];
        for (uint32_t class = 0; class < automaton->class_count && last; class ++)
            last = automaton_next(automaton, state, class) == AUTOMATON_NONE;
        grammar->last[state] = last;
    }
}

static enum status check(struct grammar_build *build, struct grammar *grammar)
{
    struct automaton *automaton = &grammar->automaton;
    uint32_t *rest = array(automaton->state_count, sizeof *rest);
    bool usable[SYMBOL_COUNT];
    memset(usable, true, sizeof usable);
    if (!automaton_rest(automaton, usable, rest))
        build_fail(build, STATUS_LIMIT, "the grammar needs more than %d steps to compile",
                   AUTOMATON_WORK_MAX);
    else if (rest[grammar->start] == AUTOMATON_REST_NONE && !grammar->nullable)
        build_fail(build, STATUS_INVALID, "%s",
                   build->unmet[0] != '\0' ? build->unmet : "nothing fits this grammar");
    else
        dead_ends_remove(automaton, rest);
    free(rest);
    TRY(build->status);
    TRY(firsts_find(build, grammar));
    lasts_find(grammar);
    return STATUS_OK;
}

enum status build_finish(struct grammar_build *build, uint32_t root, struct grammar **out)
{
    TRY(build->status);
    struct grammar *grammar = array(1, sizeof *grammar);
    bool *nullable = array(build->rule_count, sizeof *nullable);
    enum status status = automaton_nullable(build, nullable);
    if (status == STATUS_OK)
        status = automaton_build(build, root, nullable, &grammar->automaton);
    if (status == STATUS_OK) {
        grammar->nullable = nullable[root];
        grammar->start = grammar->automaton.rule_start[root];
        status = check(build, grammar);
    }
    free(nullable);
    if (status != STATUS_OK) {
        grammar_free(grammar);
        return status;
    }
    memcpy(grammar->specials, build->specials, sizeof grammar->specials);
    grammar->special_count = build->special_count;
    build->special_count = 0;
    *out = grammar;
    return STATUS_OK;
}

void grammar_free(struct grammar *grammar)
{
    if (grammar == NULL)
        return;
    automaton_free(&grammar->automaton);
    free(grammar->last);
    free(grammar->first);
    for (uint32_t i = 0; i < grammar->special_count; i++)
        free(grammar->specials[i]);
    free(grammar);
}
