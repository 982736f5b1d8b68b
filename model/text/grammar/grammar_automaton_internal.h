/* Deterministic automata that call one another, and how they come from a graph.
 *
 * Every rule is an automaton over classes of symbols; a state may also call rules and go on at a
 * state of its own. States of all rules are numbered together. */
#ifndef BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_AUTOMATON_INTERNAL_H
#define BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_AUTOMATON_INTERNAL_H

#include "model/text/grammar/grammar_build_internal.h"

enum {
    AUTOMATON_NONE = UINT16_MAX,
    AUTOMATON_STATES_MAX = 60000,
    AUTOMATON_CELLS_MAX = 6 << 20, /* states times classes */
    AUTOMATON_CALLS_MAX = 1 << 19,
    AUTOMATON_WORK_MAX = 24 << 20, /* states of the graph looked at */
    CLASS_WORDS = (SYMBOL_COUNT + 63) / 64,
};

struct automaton_call {
    uint32_t rule;
    uint16_t back; /* the state to go on at */
};

struct automaton {
    uint16_t class_of[SYMBOL_COUNT];
    uint32_t class_count;
    uint32_t state_count, state_capacity;
    uint16_t *next;       /* [state_count][class_count], AUTOMATON_NONE: nowhere */
    bool *final;          /* [state_count] the rule may end here */
    uint32_t *call_begin; /* [state_count + 1] */
    struct automaton_call *calls;
    uint32_t call_count, call_capacity;
    uint16_t *rule_start; /* [rule_count] */
    uint32_t rule_count;
};

void automaton_free(struct automaton *automaton);
/* Automata of the first rule_count rules, without those that nothing reaches from `root`.
 * nullable[rule]: it matches nothing too; then its automaton does not say so, and callers may skip
 * the call. LIMIT when it grows over the limits above. The caller frees *out, also after failure.
 */
enum status automaton_build(struct grammar_build *build, uint32_t root, const bool *nullable,
                            struct automaton *out);
/* Which rules match nothing: nullable[rule_count]. */
enum status automaton_nullable(struct grammar_build *build, bool *nullable);

static inline uint16_t automaton_next(const struct automaton *automaton, uint32_t state,
                                      uint32_t class)
{
    return automaton->next[(size_t)state * automaton->class_count + class];
}

/* Bytes (and special tokens) from each state to the end of its rule at least, by what a symbol of
 * each class costs (0: cannot be had). rest[state_count]; AUTOMATON_REST_NONE: there is no end. */
static const uint32_t AUTOMATON_REST_NONE = UINT32_MAX;
enum { AUTOMATON_REST_MAX = 1 << 30 };
bool automaton_rest(const struct automaton *automaton, const bool *class_usable, uint32_t *rest);

#endif
