/* From graph to deterministic automata: the subset construction (Rabin and Scott 1959) over classes
 * of symbols that no edge tells apart, with calls as symbols of their own. */
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "model/text/grammar/grammar_automaton_internal.h"

/* The states of the graph that one state of an automaton stands for: those with an edge that reads
 * or calls, or that end their rule; sorted. */
struct set {
    size_t begin;
    uint32_t count;
    uint32_t rule;
};

struct subset {
    struct grammar_build *build;
    struct automaton *out;
    const bool *nullable;
    struct set *sets; /* [out->state_count] */
    uint32_t *members;
    size_t member_count, member_capacity;
    uint32_t *slots; /* hash table of states + 1 */
    uint32_t slot_mask;
    uint32_t *mark; /* [build->state_count] the closure a state was last in */
    uint32_t closure;
    uint32_t *found, *stack; /* [build->state_count] */
    uint32_t *rule_of;       /* [build->rule_count] its start in *out + 1 */
    uint32_t *heads;         /* [class_count] first target of a class, one more than its index */
    struct {
        uint32_t state, next;
    } * targets;
    uint32_t target_count, target_capacity;
    uint32_t work;
};

enum { SLOT_COUNT = 1 << 17, SORT_WORK = 8, STATES_FIRST = 64, MEMBERS_FIRST = 1024 };

static void classes_find(const struct grammar_build *build, struct automaton *out)
{
    bool begins[SYMBOL_COUNT + 1] = {[0] = true, [SYMBOL_SPECIAL] = true, [SYMBOL_BEGIN] = true};
    bool ends = false;
    for (uint32_t i = 0; i < build->special_count; i++)
        begins[SYMBOL_SPECIAL + i + 1] = true;
    for (uint32_t i = 0; i < build->edge_count; i++)
        if (build->edges[i].low < SYMBOL_COUNT) {
            begins[build->edges[i].low] = true;
            begins[build->edges[i].high + 1] = true;
            ends |= build->edges[i].low >= SYMBOL_BEGIN;
        }
    uint32_t class = 0;
    for (uint32_t symbol = 0; symbol < SYMBOL_COUNT; symbol++) {
        class += symbol > 0 && begins[symbol] ? 1 : 0;
        out->class_of[symbol] = (uint16_t) class;
    }
    /* What nothing reads needs no column. */
    const uint32_t last = ends ? SYMBOL_END : SYMBOL_SPECIAL + build->special_count - 1;
    out->class_count = out->class_of[last] + 1u;
}

static bool limit(struct subset *subset, const char *what, uint32_t most)
{
    struct grammar_build *build = subset->build;
    return build_fail(build, STATUS_LIMIT, "%s%sthe grammar needs more than %u %s", build->place,
                      build->place[0] != '\0' ? ": " : "", most, what);
}

static int order(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Adds what is reached from `state` without reading to found[]; returns the new count. */
static uint32_t closure_add(struct subset *subset, uint32_t state, uint32_t rule, uint32_t count)
{
    const struct grammar_build *build = subset->build;
    uint32_t depth = 0;
    if (subset->mark[state] == subset->closure)
        return count;
    subset->mark[state] = subset->closure;
    subset->stack[depth++] = state;
    while (depth > 0) {
        const uint32_t at = subset->stack[--depth];
        bool kept = at == build->rules[rule].final;
        for (uint32_t e = build->states[at]; e != BUILD_NONE; e = build->edges[e].next) {
            const struct build_edge *edge = &build->edges[e];
            subset->work++;
            kept |= edge->low != EDGE_NONE;
            if (edge->low < SYMBOL_COUNT ||
                (edge->low == EDGE_CALL && !subset->nullable[edge->rule]) ||
                subset->mark[edge->to] == subset->closure)
                continue;
            subset->mark[edge->to] = subset->closure;
            subset->stack[depth++] = edge->to;
        }
        if (kept)
            subset->found[count++] = at;
    }
    return count;
}

static bool set_same(const struct subset *subset, const struct set *set, uint32_t count)
{
    return set->count == count &&
           memcmp(subset->members + set->begin, subset->found, count * sizeof *subset->found) == 0;
}

static void states_resize(struct subset *subset, uint32_t capacity)
{
    struct automaton *out = subset->out;
    out->next = realloc(out->next, (size_t)capacity * out->class_count * sizeof *out->next);
    out->final = realloc(out->final, capacity * sizeof *out->final);
    out->call_begin = realloc(out->call_begin, (capacity + 1) * sizeof *out->call_begin);
    subset->sets = realloc(subset->sets, capacity * sizeof *subset->sets);
    CHECK(out->next != NULL && out->final != NULL && out->call_begin != NULL &&
          subset->sets != NULL);
    out->state_capacity = capacity;
}

static bool automaton_grow(struct subset *subset)
{
    struct automaton *out = subset->out;
    if (out->state_count >= AUTOMATON_STATES_MAX)
        return limit(subset, "states", AUTOMATON_STATES_MAX);
    if ((out->state_count + 1) * (uint64_t)out->class_count > AUTOMATON_CELLS_MAX)
        return limit(subset, "cells", AUTOMATON_CELLS_MAX);
    if (out->state_count == out->state_capacity)
        states_resize(subset, out->state_capacity * 2);
    return true;
}

/* A state for the set in found[count], which is sorted here. hidden: the start of a rule that
 * matches nothing too, which is no other state and does not end. */
static uint32_t set_state(struct subset *subset, uint32_t count, uint32_t rule, bool hidden)
{
    struct automaton *out = subset->out;
    qsort(subset->found, count, sizeof *subset->found, order);
    uint32_t slot =
        (uint32_t)hash64(subset->found, count * sizeof *subset->found, rule) & subset->slot_mask;
    for (; !hidden && subset->slots[slot] != 0; slot = (slot + 1) & subset->slot_mask) {
        const uint32_t state = subset->slots[slot] - 1;
        if (set_same(subset, &subset->sets[state], count))
            return state;
    }
    if (!automaton_grow(subset))
        return 0;
    while (subset->member_count + count > subset->member_capacity) {
        subset->member_capacity *= 2;
        subset->members =
            realloc(subset->members, subset->member_capacity * sizeof *subset->members);
        CHECK(subset->members != NULL);
    }
    const uint32_t state = out->state_count++;
    memcpy(subset->members + subset->member_count, subset->found, count * sizeof *subset->found);
    subset->sets[state] = (struct set){.begin = subset->member_count, .count = count, .rule = rule};
    subset->member_count += count;
    const uint32_t final = subset->build->rules[rule].final;
    out->final[state] = false;
    for (uint32_t i = 0; i < count && !hidden; i++)
        out->final[state] |= subset->found[i] == final;
    memset(&out->next[(size_t)state * out->class_count], 0xff,
           out->class_count * sizeof *out->next);
    if (!hidden)
        subset->slots[slot] = state + 1;
    return state;
}

static uint32_t rule_state(struct subset *subset, uint32_t rule)
{
    if (subset->rule_of[rule] != 0)
        return subset->rule_of[rule] - 1;
    subset->closure++;
    const uint32_t count = closure_add(subset, subset->build->rules[rule].start, rule, 0);
    const uint32_t state = set_state(subset, count, rule, subset->nullable[rule]);
    subset->rule_of[rule] = state + 1;
    subset->out->rule_start[rule] = (uint16_t)state;
    return state;
}

static void target_add(struct subset *subset, uint32_t *head, uint32_t state)
{
    if (subset->target_count == subset->target_capacity) {
        subset->target_capacity += subset->target_capacity / 2 + MEMBERS_FIRST;
        subset->targets =
            realloc(subset->targets, subset->target_capacity * sizeof *subset->targets);
        CHECK(subset->targets != NULL);
    }
    subset->targets[subset->target_count].state = state;
    subset->targets[subset->target_count].next = *head;
    *head = ++subset->target_count;
    subset->work++;
}

/* The state that the targets of one class or call lead to. */
static uint32_t targets_state(struct subset *subset, uint32_t head, uint32_t rule)
{
    uint32_t count = 0;
    subset->closure++;
    for (uint32_t t = head; t != 0; t = subset->targets[t - 1].next)
        count = closure_add(subset, subset->targets[t - 1].state, rule, count);
    subset->work += SORT_WORK * count;
    return set_state(subset, count, rule, false);
}

static bool targets_same(const struct subset *subset, uint32_t a, uint32_t b)
{
    while (a != 0 && b != 0 && subset->targets[a - 1].state == subset->targets[b - 1].state) {
        a = subset->targets[a - 1].next;
        b = subset->targets[b - 1].next;
    }
    return a == 0 && b == 0;
}

static void bytes_expand(struct subset *subset, uint32_t state)
{
    struct automaton *out = subset->out;
    const struct grammar_build *build = subset->build;
    const struct set set = subset->sets[state];
    memset(subset->heads, 0, out->class_count * sizeof *subset->heads);
    subset->target_count = 0;
    for (uint32_t i = 0; i < set.count; i++)
        for (uint32_t e = build->states[subset->members[set.begin + i]]; e != BUILD_NONE;
             e = build->edges[e].next) {
            const struct build_edge *edge = &build->edges[e];
            if (edge->low >= SYMBOL_COUNT)
                continue;
            const uint32_t last = out->class_of[edge->high];
            for (uint32_t class = out->class_of[edge->low]; class <= last; class ++)
                target_add(subset, &subset->heads[class], edge->to);
        }
    uint32_t before = UINT32_MAX;
    for (uint32_t class = 0; class < out->class_count && build->status == STATUS_OK; class ++) {
        const uint32_t head = subset->heads[class];
        if (head == 0)
            continue;
        uint16_t *cell = &out->next[(size_t)state * out->class_count + class];
        if (before != UINT32_MAX && targets_same(subset, subset->heads[before], head)) {
            *cell = automaton_next(out, state, before);
        } else {
            const uint16_t to = (uint16_t)targets_state(subset, head, set.rule);
            out->next[(size_t)state * out->class_count + class] = to; // next[] may have moved
        }
        before = class;
    }
}

static bool call_add(struct subset *subset, uint32_t rule, uint32_t back)
{
    struct automaton *out = subset->out;
    if (out->call_count >= AUTOMATON_CALLS_MAX)
        return limit(subset, "calls of rules", AUTOMATON_CALLS_MAX);
    if (out->call_count == out->call_capacity) {
        out->call_capacity = out->call_capacity > 0 ? out->call_capacity * 2 : 64;
        out->calls = realloc(out->calls, out->call_capacity * sizeof *out->calls);
        CHECK(out->calls != NULL);
    }
    out->calls[out->call_count++] = (struct automaton_call){.rule = rule, .back = (uint16_t)back};
    return true;
}

/* One call for each rule that the set calls; rules are few in one set. */
static void calls_expand(struct subset *subset, uint32_t state)
{
    struct automaton *out = subset->out;
    const struct grammar_build *build = subset->build;
    const struct set set = subset->sets[state];
    const uint32_t begin = out->call_count;
    out->call_begin[state] = begin;
    for (uint32_t i = 0; i < set.count; i++)
        for (uint32_t e = build->states[subset->members[set.begin + i]]; e != BUILD_NONE;
             e = build->edges[e].next) {
            if (build->edges[e].low != EDGE_CALL)
                continue;
            const uint32_t rule = build->edges[e].rule;
            bool known = false;
            for (uint32_t c = begin; c < out->call_count && !known; c++)
                known = out->calls[c].rule == rule;
            subset->work += out->call_count - begin;
            if (!known && !call_add(subset, rule, 0))
                return;
        }
    const uint32_t end = out->call_count;
    for (uint32_t c = begin; c < end && build->status == STATUS_OK; c++) {
        const uint32_t rule = out->calls[c].rule;
        uint32_t head = 0;
        subset->target_count = 0;
        for (uint32_t i = 0; i < set.count; i++)
            for (uint32_t e = build->states[subset->members[set.begin + i]]; e != BUILD_NONE;
                 e = build->edges[e].next) {
                subset->work++;
                if (build->edges[e].low == EDGE_CALL && build->edges[e].rule == rule)
                    target_add(subset, &head, build->edges[e].to);
            }
        rule_state(subset, rule);
        out->calls[c].back = (uint16_t)targets_state(subset, head, set.rule);
    }
}

static void *array(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);
    CHECK(memory != NULL);
    return memory;
}

enum status automaton_build(struct grammar_build *build, uint32_t root, const bool *nullable,
                            struct automaton *out)
{
    struct subset subset = {.build = build, .out = out, .nullable = nullable};
    *out = (struct automaton){0};
    TRY(build->status);
    classes_find(build, out);
    out->rule_count = build->rule_count;
    out->rule_start = array(build->rule_count, sizeof *out->rule_start);
    subset.slots = array(SLOT_COUNT, sizeof *subset.slots);
    subset.slot_mask = SLOT_COUNT - 1;
    subset.mark = array(build->state_count, sizeof *subset.mark);
    subset.found = array(build->state_count, sizeof *subset.found);
    subset.stack = array(build->state_count, sizeof *subset.stack);
    subset.rule_of = array(build->rule_count, sizeof *subset.rule_of);
    subset.heads = array(out->class_count, sizeof *subset.heads);
    subset.member_capacity = subset.target_capacity = MEMBERS_FIRST;
    subset.members = array(subset.member_capacity, sizeof *subset.members);
    subset.targets = array(subset.target_capacity, sizeof *subset.targets);
    states_resize(&subset, STATES_FIRST);
    memset(out->rule_start, 0xff, build->rule_count * sizeof *out->rule_start);
    rule_state(&subset, root);
    for (uint32_t state = 0; state < out->state_count && build->status == STATUS_OK; state++) {
        bytes_expand(&subset, state);
        calls_expand(&subset, state);
        if (subset.work > AUTOMATON_WORK_MAX)
            limit(&subset, "steps to compile", AUTOMATON_WORK_MAX);
    }
    if (build->status == STATUS_OK)
        out->call_begin[out->state_count] = out->call_count;
    free(subset.sets);
    free(subset.members);
    free(subset.slots);
    free(subset.mark);
    free(subset.found);
    free(subset.stack);
    free(subset.rule_of);
    free(subset.heads);
    free(subset.targets);
    return build->status;
}

void automaton_free(struct automaton *automaton)
{
    free(automaton->next);
    free(automaton->final);
    free(automaton->call_begin);
    free(automaton->calls);
    free(automaton->rule_start);
    *automaton = (struct automaton){0};
}
