/* Walking a grammar byte by byte: a set of stacks, one for each way to read what was written.
 *
 * A stack is an item (the state it is in) over nodes (the states it goes on at when rules end).
 * Nodes are shared: equal stacks are one node, so that items are compared by value. A set is closed
 * at its ends: where a rule may end, what stands below is in the set too. */
#ifndef BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_WALK_INTERNAL_H
#define BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_WALK_INTERNAL_H

#include "model/text/grammar/grammar_internal.h"

enum {
    NODES_MAX = 2048,
    NODE_BUCKETS = 512,
    NODE_ROOT = UINT16_MAX,     /* below the first rule: the answer ends */
    NODE_BASE = UINT16_MAX - 1, /* below a position whose stack is not known */
    NODE_NONE = UINT16_MAX - 2,
    ITEMS_MAX = 192,    /* a call of each of 128 tools, and then some */
    VISITS_MAX = 256,   /* rules entered by one byte */
    WORK_MAX = 1 << 25, /* of one mask or token: stacks compared, and */
    WORK_STACK = 8,     /* each that is looked at counts as so many: some 10 ns */
};

struct stack_node {
    uint32_t rest;   /* bytes to the end of the answer when its state is gone back to */
    uint16_t state;  /* to go on at */
    uint16_t parent; /* and what is below that */
    uint16_t depth;
    uint16_t chain; /* the next node of its bucket */
};

struct stack_nodes {
    uint32_t count;
    uint16_t buckets[NODE_BUCKETS];
    struct stack_node nodes[NODES_MAX];
};

struct item {
    uint16_t state, parent;
};

struct item_set {
    uint32_t node_count; /* of the nodes when the set was made */
    uint16_t count;
    bool ended;  /* the answer may end here */
    bool popped; /* NODE_BASE was reached */
    struct item items[ITEMS_MAX];
};

/* The work of one mask or token, by all of its walks. */
struct walk_work {
    uint32_t done;
    const char *limit; /* which limit a walk met, as a sentence; NULL: none did */
};

/* What a walk needs. failed: a limit was met, and the set is not whole. */
struct walk {
    const struct grammar *grammar;
    const uint32_t *rest; /* [state_count] of the program */
    struct stack_nodes *nodes;
    uint32_t visit_count;
    struct {
        uint32_t rule;
        uint16_t parent;
    } visits[VISITS_MAX];
    uint32_t deepest; /* stack made so far */
    struct walk_work *work;
    bool failed;
};

void stack_nodes_clear(struct stack_nodes *nodes);
/* Drops the nodes made since there were `count`. */
void stack_nodes_drop(struct stack_nodes *nodes, uint32_t count);
/* Keeps only what the items of the set stand on. */
void stack_nodes_compact(struct stack_nodes *nodes, struct item_set *set);

static inline void item_set_clear(struct item_set *set)
{
    set->count = 0;
    set->ended = false;
    set->popped = false;
}
static inline bool item_set_empty(const struct item_set *set)
{
    return set->count == 0 && !set->ended && !set->popped;
}
/* Adds a stack and what it can go back to. */
void item_set_add(struct walk *walk, struct item_set *set, uint16_t state, uint16_t parent);
/* Adds what a stack goes on at when its rule ends. */
void item_set_pop(struct walk *walk, struct item_set *set, uint16_t parent);
/* *to: where the stacks of `from` are after a symbol of the class. Drops nodes made after `from`.
 */
void item_set_step(struct walk *walk, const struct item_set *from, uint32_t class,
                   struct item_set *to);
/* Bytes to the nearest end; AUTOMATON_REST_NONE: the vocabulary has none. NODE_BASE counts 0. */
uint32_t item_set_rest(const struct walk *walk, const struct item_set *set);
/* The classes that some stack can go on with. */
void item_set_classes(const struct walk *walk, const struct item_set *set,
                      uint64_t classes[CLASS_WORDS]);
uint32_t node_rest(const struct stack_nodes *nodes, uint16_t node);
static inline uint32_t node_depth(const struct stack_nodes *nodes, uint16_t node)
{
    return node >= NODE_NONE ? 0 : nodes->nodes[node].depth;
}

static inline uint32_t rest_add(uint32_t a, uint32_t b)
{
    if (a == AUTOMATON_REST_NONE || b == AUTOMATON_REST_NONE)
        return AUTOMATON_REST_NONE;
    return a + b < AUTOMATON_REST_MAX ? a + b : AUTOMATON_REST_MAX;
}

struct grammar_program {
    struct grammar *grammar;
    const struct grammar_tokens *tokens;
    int32_t special_ids[GRAMMAR_SPECIALS_MAX];
    uint32_t *rest; /* [state_count] with the bytes that the vocabulary has */
    /* Kept masks, one after the other; see grammar_mask.c. */
    uint32_t *cache; /* [cache_words] */
    size_t cache_words, cache_used;
    uint32_t *entries; /* [state_count] where a state's begins, one more than its index */
    uint32_t mask_words;
    uint32_t *scratch;         /* [mask_words] */
    struct stack_nodes *nodes; /* of positions whose stack is not known */
    struct item_set *sets;     /* [TOKEN_BYTES_MAX + 1] one for each byte of a token */
    struct walk_work work;
    uint64_t walks; /* of the whole vocabulary, for tests and benches */
};

static inline uint32_t program_class(const struct grammar_program *program, uint32_t symbol)
{
    return program->grammar->automaton.class_of[symbol];
}
static inline struct walk program_walk(struct grammar_program *program, struct stack_nodes *nodes)
{
    struct walk walk;
    walk.grammar = program->grammar;
    walk.rest = program->rest;
    walk.nodes = nodes;
    walk.visit_count = 0;
    walk.deepest = 0;
    walk.work = &program->work;
    walk.failed = false;
    return walk;
}

struct grammar_matcher {
    struct grammar_program *program;
    struct item_set at;
    struct stack_nodes nodes;
    const char *limit; /* that was met; NULL: none */
};

#endif
