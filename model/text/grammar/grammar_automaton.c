/* What holds for a whole grammar: rules that match nothing, and how far each state is from the end
 * of its rule. */
#include <stdlib.h>

#include "base/check.h"
#include "model/text/grammar/grammar_automaton_internal.h"

/* One rule: whether its end is reached without reading. */
static bool rule_nullable(const struct grammar_build *build, uint32_t rule, const bool *nullable,
                          uint32_t *mark, uint32_t stamp, uint32_t *stack, uint64_t *work)
{
    uint32_t depth = 0;
    stack[depth++] = build->rules[rule].start;
    mark[build->rules[rule].start] = stamp;
    while (depth > 0) {
        const uint32_t at = stack[--depth];
        if (at == build->rules[rule].final)
            return true;
        for (uint32_t e = build->states[at]; e != BUILD_NONE; e = build->edges[e].next) {
            const struct build_edge *edge = &build->edges[e];
            ++*work;
            if (edge->low < SYMBOL_COUNT || mark[edge->to] == stamp ||
                (edge->low == EDGE_CALL && !nullable[edge->rule]))
                continue;
            mark[edge->to] = stamp;
            stack[depth++] = edge->to;
        }
    }
    return false;
}

enum status automaton_nullable(struct grammar_build *build, bool *nullable)
{
    TRY(build->status);
    uint32_t *mark = calloc(build->state_count + 1, sizeof *mark);
    uint32_t *stack = calloc(build->state_count + 1, sizeof *stack);
    CHECK(mark != NULL && stack != NULL);
    uint64_t work = 0;
    uint32_t stamp = 0;
    memset(nullable, 0, build->rule_count * sizeof *nullable);
    for (bool changed = true; changed && build->status == STATUS_OK;) {
        changed = false;
        for (uint32_t rule = build->rule_count; rule-- > 0;) {
            if (nullable[rule])
                continue;
            nullable[rule] = rule_nullable(build, rule, nullable, mark, ++stamp, stack, &work);
            changed |= nullable[rule];
        }
        if (work > AUTOMATON_WORK_MAX)
            build_fail(build, STATUS_LIMIT, "the grammar needs more than %d steps to compile",
                       AUTOMATON_WORK_MAX);
    }
    free(mark);
    free(stack);
    return build->status;
}

static uint32_t rest_sum(uint32_t a, uint32_t b)
{
    if (a == AUTOMATON_REST_NONE || b == AUTOMATON_REST_NONE)
        return AUTOMATON_REST_NONE;
    return a + b < AUTOMATON_REST_MAX ? a + b : AUTOMATON_REST_MAX;
}

static uint32_t rest_of(const struct automaton *automaton, uint32_t state, const bool *class_usable,
                        const uint32_t *rest)
{
    uint32_t least = rest[state];
    for (uint32_t class = 0; class < automaton->class_count; class ++) {
        const uint16_t to = automaton_next(automaton, state, class);
        if (to == AUTOMATON_NONE || !class_usable[class])
            continue;
        const uint32_t through = rest_sum(rest[to], 1);
        least = through < least ? through : least;
    }
    for (uint32_t c = automaton->call_begin[state]; c < automaton->call_begin[state + 1]; c++) {
        const struct automaton_call *call = &automaton->calls[c];
        const uint32_t through =
            rest_sum(rest[automaton->rule_start[call->rule]], rest[call->back]);
        least = through < least ? through : least;
    }
    return least;
}

/* Shortest paths by relaxing until nothing changes; states further on have higher numbers as a
 * rule, so that few rounds are needed. */
bool automaton_rest(const struct automaton *automaton, const bool *class_usable, uint32_t *rest)
{
    uint64_t work = 0;
    for (uint32_t state = 0; state < automaton->state_count; state++)
        rest[state] = automaton->final[state] ? 0 : AUTOMATON_REST_NONE;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t state = automaton->state_count; state-- > 0;) {
            const uint32_t least = rest_of(automaton, state, class_usable, rest);
            changed |= least != rest[state];
            rest[state] = least;
        }
        work += (uint64_t)automaton->state_count * automaton->class_count + automaton->call_count;
        if (changed && work > 8ull * AUTOMATON_WORK_MAX)
            return false;
    }
    return true;
}
