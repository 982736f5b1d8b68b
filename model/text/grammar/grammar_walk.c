/* Sets of stacks; see the header. */
#include "base/check.h"
#include "model/text/grammar/grammar_walk_internal.h"

_Static_assert(NODES_MAX == 2048 && ITEMS_MAX == 192 && VISITS_MAX == 256 && WORK_MAX == 33554432,
               "the sentences below say these limits");

static void walk_fail(struct walk *walk, const char *limit)
{
    walk->failed = true;
    walk->work->limit = limit;
}

static void work_do(struct walk *walk, uint32_t steps)
{
    walk->work->done += steps;
    if (walk->work->done > WORK_MAX)
        walk_fail(walk, "the grammar takes more than 33554432 steps of work for one token");
}

void stack_nodes_clear(struct stack_nodes *nodes)
{
    nodes->count = 0;
    memset(nodes->buckets, 0xff, sizeof nodes->buckets);
    for (size_t i = 0; i < NODE_BUCKETS; i++)
        nodes->buckets[i] = NODE_NONE;
}

static uint32_t bucket_of(uint16_t state, uint16_t parent)
{
    const uint32_t mixed = (state * 0x9e3779b1u) ^ (parent * 0x85ebca6bu);
    return (mixed >> 16 ^ mixed) % NODE_BUCKETS;
}

void stack_nodes_drop(struct stack_nodes *nodes, uint32_t count)
{
    while (nodes->count > count) {
        const struct stack_node *node = &nodes->nodes[--nodes->count];
        nodes->buckets[bucket_of(node->state, node->parent)] = node->chain;
    }
}

uint32_t node_rest(const struct stack_nodes *nodes, uint16_t node)
{
    return node >= NODE_NONE ? 0 : nodes->nodes[node].rest;
}

/* The node for a state over a parent; NODE_NONE when it would be too deep (such a stack is not
 * taken: nesting has this limit) or there is no room (then the walk has failed). */
static uint16_t node_of(struct walk *walk, uint16_t state, uint16_t parent)
{
    struct stack_nodes *nodes = walk->nodes;
    const uint32_t bucket = bucket_of(state, parent);
    for (uint16_t n = nodes->buckets[bucket]; n != NODE_NONE; n = nodes->nodes[n].chain)
        if (nodes->nodes[n].state == state && nodes->nodes[n].parent == parent)
            return n;
    const uint32_t depth = node_depth(nodes, parent) + 1;
    if (depth > GRAMMAR_DEPTH_MAX)
        return NODE_NONE;
    if (nodes->count == NODES_MAX) {
        walk_fail(walk, "the grammar has more than 2048 calls of rules open at once");
        return NODE_NONE;
    }
    walk->deepest = depth > walk->deepest ? depth : walk->deepest;
    nodes->nodes[nodes->count] = (struct stack_node){
        .rest = rest_add(walk->rest[state], node_rest(nodes, parent)),
        .state = state,
        .parent = parent,
        .depth = (uint16_t)depth,
        .chain = nodes->buckets[bucket],
    };
    nodes->buckets[bucket] = (uint16_t)nodes->count;
    return (uint16_t)nodes->count++;
}

void stack_nodes_compact(struct stack_nodes *nodes, struct item_set *set)
{
    uint16_t moved[NODES_MAX];
    bool live[NODES_MAX] = {false};
    for (uint32_t i = 0; i < set->count; i++)
        if (set->items[i].parent < NODE_NONE)
            live[set->items[i].parent] = true;
    for (uint32_t n = nodes->count; n-- > 0;) // a parent is older than what stands on it
        if (live[n] && nodes->nodes[n].parent < NODE_NONE)
            live[nodes->nodes[n].parent] = true;
    const uint32_t count = nodes->count;
    stack_nodes_clear(nodes);
    for (uint32_t n = 0; n < count; n++) {
        if (!live[n])
            continue;
        struct stack_node node = nodes->nodes[n];
        if (node.parent < NODE_NONE)
            node.parent = moved[node.parent];
        const uint32_t bucket = bucket_of(node.state, node.parent);
        node.chain = nodes->buckets[bucket];
        moved[n] = (uint16_t)nodes->count;
        nodes->nodes[nodes->count] = node;
        nodes->buckets[bucket] = (uint16_t)nodes->count++;
    }
    for (uint32_t i = 0; i < set->count; i++)
        if (set->items[i].parent < NODE_NONE)
            set->items[i].parent = moved[set->items[i].parent];
}

void item_set_add(struct walk *walk, struct item_set *set, uint16_t state, uint16_t parent)
{
    const struct grammar *grammar = walk->grammar;
    for (;;) {
        if (!grammar->last[state]) {
            for (uint32_t i = 0; i < set->count; i++)
                if (set->items[i].state == state && set->items[i].parent == parent)
                    return;
            if (set->count == ITEMS_MAX) {
                walk_fail(walk, "the grammar can be read in more than 192 ways at once");
                return;
            }
            set->items[set->count++] = (struct item){state, parent};
        }
        if (!grammar->automaton.final[state])
            return;
        if (parent >= NODE_NONE) {
            *(parent == NODE_ROOT ? &set->ended : &set->popped) = true;
            return;
        }
        state = walk->nodes->nodes[parent].state;
        parent = walk->nodes->nodes[parent].parent;
    }
}

void item_set_pop(struct walk *walk, struct item_set *set, uint16_t parent)
{
    if (parent == NODE_ROOT)
        set->ended = true;
    else
        item_set_add(walk, set, walk->nodes->nodes[parent].state,
                     walk->nodes->nodes[parent].parent);
}

/* False when the rule was entered over this parent already. */
static bool visit(struct walk *walk, uint32_t rule, uint16_t parent)
{
    for (uint32_t i = 0; i < walk->visit_count; i++)
        if (walk->visits[i].rule == rule && walk->visits[i].parent == parent)
            return false;
    if (walk->visit_count == VISITS_MAX) {
        walk_fail(walk, "the grammar enters more than 256 rules at one byte");
        return false;
    }
    walk->visits[walk->visit_count].rule = rule;
    walk->visits[walk->visit_count++].parent = parent;
    return true;
}

/* One stack. Rules that a rule begins with are entered in turn, at most GRAMMAR_DEPTH_MAX. */
static void step(struct walk *walk, uint16_t state, uint16_t parent, uint32_t class,
                 struct item_set *to)
{
    const struct automaton *automaton = &walk->grammar->automaton;
    const uint16_t next = automaton_next(automaton, state, class);
    work_do(walk, WORK_STACK + to->count); /* each that is added is compared with those */
    if (walk->failed)
        return;
    if (next != AUTOMATON_NONE)
        item_set_add(walk, to, next, parent);
    for (uint32_t c = automaton->call_begin[state]; c < automaton->call_begin[state + 1]; c++) {
        const struct automaton_call call = automaton->calls[c];
        if (!class_in(walk->grammar->first[call.rule], class))
            continue;
        /* Nothing is left to do after the call where its caller ends too. */
        const uint16_t below =
            walk->grammar->last[call.back] ? parent : node_of(walk, call.back, parent);
        if (below != NODE_NONE && visit(walk, call.rule, below))
            step(walk, automaton->rule_start[call.rule], below, class, to);
    }
}

/* The usual case, inside of strings and words: one stack, in a state that calls nothing. */
static bool step_alone(struct walk *walk, const struct item_set *from, uint32_t class,
                       struct item_set *to)
{
    const struct automaton *automaton = &walk->grammar->automaton;
    const struct item item = from->items[0];
    if (from->count != 1 ||
        automaton->call_begin[item.state] != automaton->call_begin[item.state + 1u])
        return false;
    const uint16_t next = automaton_next(automaton, item.state, class);
    work_do(walk, WORK_STACK);
    if (next != AUTOMATON_NONE)
        item_set_add(walk, to, next, item.parent);
    return true;
}

void item_set_step(struct walk *walk, const struct item_set *from, uint32_t class,
                   struct item_set *to)
{
    if (walk->nodes->count > from->node_count)
        stack_nodes_drop(walk->nodes, from->node_count);
    item_set_clear(to);
    to->node_count = from->node_count;
    if (step_alone(walk, from, class, to))
        return;
    walk->visit_count = 0;
    for (uint32_t i = 0; i < from->count; i++)
        step(walk, from->items[i].state, from->items[i].parent, class, to);
    to->node_count = walk->nodes->count;
}

uint32_t item_set_rest(const struct walk *walk, const struct item_set *set)
{
    uint32_t least = set->ended || set->popped ? 0 : AUTOMATON_REST_NONE;
    for (uint32_t i = 0; i < set->count; i++) {
        const uint32_t rest =
            rest_add(walk->rest[set->items[i].state], node_rest(walk->nodes, set->items[i].parent));
        least = rest < least ? rest : least;
    }
    return least;
}

void item_set_classes(const struct walk *walk, const struct item_set *set,
                      uint64_t classes[CLASS_WORDS])
{
    const struct automaton *automaton = &walk->grammar->automaton;
    memset(classes, 0, CLASS_WORDS * sizeof *classes);
    for (uint32_t i = 0; i < set->count; i++) {
        const uint32_t state = set->items[i].state;
        for (uint32_t class = 0; class < automaton->class_count; class ++)
            if (automaton_next(automaton, state, class) != AUTOMATON_NONE)
                classes[class / 64] |= 1ull << class % 64;
        for (uint32_t c = automaton->call_begin[state]; c < automaton->call_begin[state + 1]; c++)
            for (uint32_t word = 0; word < CLASS_WORDS; word++)
                classes[word] |= walk->grammar->first[automaton->calls[c].rule][word];
    }
}
