/* Masks. What a state allows whatever stands below it is worked out once and kept: the tokens that
 * stay within its rule, and the nodes of the vocabulary's tree at which the rule ends, below which
 * the rest of a token depends on the stack and is walked each time. Inside of a string that is
 * nearly every token at once, and a walk of the few hundred that begin behind its closing quote.
 * (The division is XGrammar's, Dong et al. 2024.)
 *
 * A kept mask: its head, then either a bit for each token or the list of those allowed; pairs
 * {token, bytes to the rule's end after it} of those that take the end further away; and the nodes.
 * When they fill the cache, all go. */
#include "base/check.h"
#include "model/text/grammar/grammar_walk_internal.h"

struct entry {
    uint32_t listed; /* tokens in the list; LISTED_NONE: all bits are there */
    uint32_t growing_count;
    uint32_t node_count;
    uint32_t depth; /* of the stacks that its tokens need */
};
enum { HEAD_WORDS = sizeof(struct entry) / sizeof(uint32_t), PAIR_WORDS = 2 };
static const uint32_t LISTED_NONE = UINT32_MAX;
static const uint32_t NO_LIMIT = AUTOMATON_REST_MAX;

/* A walk over a part of the tree, and what is done at each node that is reached. */
struct visitor {
    struct grammar_program *program;
    struct walk walk;
    uint32_t most;     /* bytes to the end after a token at most */
    bool none_allowed; /* not even none */
    uint32_t *mask;
    /* For a mask that is kept: */
    uint32_t rest;
    size_t pairs, nodes; /* in program->cache: pairs go up, nodes come down */
    bool kept, full;
};

static void bit_set(uint32_t *mask, uint32_t id)
{
    mask[id / 32] |= 1u << id % 32;
}

static void bits_set(const struct grammar_tokens *tokens, uint32_t node, uint32_t *mask)
{
    for (uint32_t i = tokens->id_begin[node]; i < tokens->id_begin[node + 1]; i++)
        bit_set(mask, tokens->ids[i]);
}

/* A node of a mask that is kept. */
static void node_keep(struct visitor *visitor, uint32_t node, const struct item_set *set)
{
    struct grammar_program *program = visitor->program;
    const struct grammar_tokens *tokens = program->tokens;
    if (set->popped && tokens->ends[node] > node + 1) {
        visitor->full |= visitor->nodes <= visitor->pairs;
        if (visitor->full)
            return;
        program->cache[--visitor->nodes] = node;
    }
    if (tokens->id_begin[node] == tokens->id_begin[node + 1])
        return;
    const uint32_t rest = item_set_rest(&visitor->walk, set);
    if (rest == AUTOMATON_REST_NONE)
        return;
    bits_set(tokens, node, visitor->mask);
    if (rest <= visitor->rest)
        return;
    for (uint32_t i = tokens->id_begin[node]; i < tokens->id_begin[node + 1]; i++) {
        visitor->full |= visitor->pairs + PAIR_WORDS > visitor->nodes;
        if (visitor->full)
            return;
        program->cache[visitor->pairs++] = tokens->ids[i];
        program->cache[visitor->pairs++] = rest;
    }
}

static void node_visit(struct visitor *visitor, uint32_t node, const struct item_set *set)
{
    const struct grammar_tokens *tokens = visitor->program->tokens;
    if (visitor->kept)
        node_keep(visitor, node, set);
    else if (tokens->id_begin[node] != tokens->id_begin[node + 1] && !visitor->none_allowed &&
             item_set_rest(&visitor->walk, set) <= visitor->most)
        bits_set(tokens, node, visitor->mask);
}

/* Nodes first..end - 1, whole subtrees below a node of `depth` bytes, from program->sets[0]. */
static void tree_walk(struct visitor *visitor, uint32_t first, uint32_t end, uint32_t depth)
{
    const struct grammar_program *program = visitor->program;
    const struct grammar_tokens *tokens = program->tokens;
    const uint16_t *class_of = program->grammar->automaton.class_of;
    struct item_set *sets = program->sets;
    for (uint32_t node = first; node < end && !visitor->walk.failed && !visitor->full;) {
        const uint32_t level = tokens->depths[node] - depth;
        struct item_set *set = &sets[level];
        item_set_step(&visitor->walk, &sets[level - 1], class_of[tokens->bytes[node]], set);
        if (!item_set_empty(set))
            node_visit(visitor, node, set);
        node = set->count > 0 ? node + 1 : tokens->ends[node];
    }
}

/* The tokens of one stack by a walk over all of them: what a mask that is kept saves. */
static bool item_walk(struct visitor *visitor, struct item item, uint32_t node_count)
{
    struct grammar_program *program = visitor->program;
    const struct grammar_tokens *tokens = program->tokens;
    struct item_set *set = &program->sets[0];
    item_set_clear(set);
    set->node_count = node_count;
    set->items[set->count++] = item;
    program->walks++;
    tree_walk(visitor, 1, tokens->node_count, 0);
    stack_nodes_drop(visitor->walk.nodes, node_count);
    return !visitor->walk.failed;
}

/* Puts what the visitor found behind the head at `begin`, as bits or as a list. */
static void entry_finish(struct visitor *visitor, size_t begin)
{
    struct grammar_program *program = visitor->program;
    uint32_t *words = program->cache + begin;
    const size_t pairs_begin = begin + HEAD_WORDS + program->mask_words;
    const size_t pair_words = visitor->pairs - pairs_begin;
    const size_t node_count = program->cache_words - visitor->nodes;
    uint32_t allowed = 0;
    for (uint32_t i = 0; i < program->mask_words; i++)
        allowed += (uint32_t)__builtin_popcount(program->scratch[i]);
    struct entry entry = {.listed = LISTED_NONE,
                          .growing_count = (uint32_t)(pair_words / PAIR_WORDS),
                          .node_count = (uint32_t)node_count,
                          .depth = visitor->walk.deepest};
    size_t used = HEAD_WORDS;
    if (allowed < program->mask_words / 2) {
        entry.listed = allowed;
        for (uint32_t id = 0; id < program->mask_words * 32; id++) {
            if (program->scratch[id / 32] == 0)
                id |= 31;
            else if ((program->scratch[id / 32] >> id % 32 & 1) != 0)
                words[used++] = id;
        }
    } else {
        memcpy(words + used, program->scratch, program->mask_words * sizeof *words);
        used += program->mask_words;
    }
    memcpy(words, &entry, sizeof entry);
    memmove(words + used, program->cache + pairs_begin, pair_words * sizeof *words);
    used += pair_words;
    memmove(words + used, program->cache + visitor->nodes, node_count * sizeof *words);
    program->cache_used = begin + used + node_count;
}

/* False when there is no room, or the walk failed. */
static bool entry_make(struct grammar_program *program, uint16_t state, bool *failed)
{
    const size_t begin = program->cache_used;
    if (begin + HEAD_WORDS + program->mask_words > program->cache_words)
        return false;
    struct visitor visitor = {
        .program = program,
        .walk = program_walk(program, program->nodes),
        .mask = program->scratch,
        .rest = program->rest[state],
        .pairs = begin + HEAD_WORDS + program->mask_words,
        .nodes = program->cache_words,
        .kept = true,
    };
    stack_nodes_clear(program->nodes);
    memset(program->scratch, 0, program->mask_words * sizeof *program->scratch);
    *failed = !item_walk(&visitor, (struct item){state, NODE_BASE}, 0);
    if (*failed || visitor.full)
        return false;
    entry_finish(&visitor, begin);
    program->entries[state] = (uint32_t)begin + 1;
    return true;
}

/* The kept mask of a state; NULL when it does not fit, or the walk failed. */
static const uint32_t *entry_of(struct grammar_program *program, uint16_t state, bool *failed)
{
    if (program->entries[state] == 0 && !entry_make(program, state, failed)) {
        if (*failed || program->cache_used == 0)
            return NULL;
        program->cache_used = 0;
        memset(program->entries, 0,
               program->grammar->automaton.state_count * sizeof *program->entries);
        if (!entry_make(program, state, failed))
            return NULL;
    }
    return program->cache + program->entries[state] - 1;
}

/* Tokens that stay in the state's rule. */
static void entry_apply(const struct visitor *visitor, const struct entry *entry,
                        const uint32_t *words, uint32_t below, uint32_t *mask)
{
    const struct grammar_program *program = visitor->program;
    const bool bits = entry->listed == LISTED_NONE;
    const uint32_t *pairs = words + (bits ? program->mask_words : entry->listed);
    uint32_t *scratch = program->scratch;
    bool all = true;
    for (uint32_t i = 0; i < entry->growing_count && all; i++)
        all = rest_add(pairs[PAIR_WORDS * i + 1], below) <= visitor->most;
    if (all && bits)
        for (uint32_t i = 0; i < program->mask_words; i++)
            mask[i] |= words[i];
    else if (all)
        for (uint32_t i = 0; i < entry->listed; i++)
            bit_set(mask, words[i]);
    if (all)
        return;
    /* Some would take the end too far away. */
    if (bits) {
        memcpy(scratch, words, program->mask_words * sizeof *scratch);
    } else {
        memset(scratch, 0, program->mask_words * sizeof *scratch);
        for (uint32_t i = 0; i < entry->listed; i++)
            bit_set(scratch, words[i]);
    }
    for (uint32_t i = 0; i < entry->growing_count; i++) {
        const uint32_t id = pairs[PAIR_WORDS * i];
        if (rest_add(pairs[PAIR_WORDS * i + 1], below) > visitor->most)
            scratch[id / 32] &= ~(1u << id % 32);
    }
    for (uint32_t i = 0; i < program->mask_words; i++)
        mask[i] |= scratch[i];
}

/* Tokens that go on behind the end of the state's rule, from the nodes at which it ends. */
static void nodes_apply(struct visitor *visitor, const uint32_t *nodes, uint32_t count,
                        uint16_t parent)
{
    const struct grammar_program *program = visitor->program;
    const struct grammar_tokens *tokens = program->tokens;
    const uint16_t *class_of = program->grammar->automaton.class_of;
    struct item_set *set = &program->sets[0];
    const uint32_t node_count = visitor->walk.nodes->count;
    uint64_t classes[CLASS_WORDS];
    item_set_clear(set);
    set->node_count = node_count;
    item_set_pop(&visitor->walk, set, parent);
    item_set_classes(&visitor->walk, set, classes);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t child = nodes[i] + 1; child < tokens->ends[nodes[i]];
             child = tokens->ends[child])
            if (class_in(classes, class_of[tokens->bytes[child]]))
                tree_walk(visitor, child, tokens->ends[child], tokens->depths[nodes[i]]);
    stack_nodes_drop(visitor->walk.nodes, node_count);
}

static bool item_apply(struct visitor *visitor, struct item item)
{
    struct grammar_program *program = visitor->program;
    const uint32_t below = node_rest(visitor->walk.nodes, item.parent);
    const uint32_t node_count = visitor->walk.nodes->count;
    bool failed = false;
    if (visitor->none_allowed)
        return true;
    const uint32_t *words = rest_add(program->rest[item.state], below) <= visitor->most
                                ? entry_of(program, item.state, &failed)
                                : NULL;
    struct entry entry = {0};
    if (failed)
        return false;
    if (words != NULL)
        memcpy(&entry, words, sizeof entry);
    if (words == NULL ||
        entry.depth + node_depth(visitor->walk.nodes, item.parent) > GRAMMAR_DEPTH_MAX)
        return item_walk(visitor, item, node_count);
    words += HEAD_WORDS;
    entry_apply(visitor, &entry, words, below, visitor->mask);
    words += (entry.listed == LISTED_NONE ? program->mask_words : entry.listed) +
             (size_t)PAIR_WORDS * entry.growing_count;
    if (entry.node_count > 0)
        nodes_apply(visitor, words, entry.node_count, item.parent);
    return !visitor->walk.failed;
}

static void specials_apply(struct visitor *visitor, struct item_set *at)
{
    const struct grammar_program *program = visitor->program;
    struct item_set *to = &program->sets[0];
    for (uint32_t i = 0; i < program->grammar->special_count; i++) {
        item_set_step(&visitor->walk, at, program_class(program, SYMBOL_SPECIAL + i), to);
        if (!item_set_empty(to) && !visitor->none_allowed &&
            item_set_rest(&visitor->walk, to) <= visitor->most)
            bit_set(visitor->mask, (uint32_t)program->special_ids[i]);
        stack_nodes_drop(visitor->walk.nodes, at->node_count);
    }
}

/* How far the end may be after this token. */
static void limit_set(struct visitor *visitor, uint32_t rest, uint32_t left, uint32_t end_count)
{
    visitor->most = NO_LIMIT;
    if (left == 0 || rest > left)
        return;
    const uint32_t end = end_count > 0 && rest < left ? 1 : 0;
    visitor->none_allowed = left == end;
    visitor->most = left - end > NO_LIMIT ? NO_LIMIT : left - end - (left == end ? 0 : 1);
}

enum status grammar_matcher_mask(struct grammar_matcher *matcher, uint32_t tokens_left,
                                 const int32_t *ends, uint32_t end_count, uint32_t *mask)
{
    struct grammar_program *program = matcher->program;
    struct visitor visitor = {
        .program = program, .walk = program_walk(program, &matcher->nodes), .mask = mask};
    program->work = (struct walk_work){0};
    struct item_set *at = &matcher->at;
    memset(mask, 0, program->mask_words * sizeof *mask);
    limit_set(&visitor, item_set_rest(&visitor.walk, at), tokens_left, end_count);
    if (matcher->limit != NULL)
        return STATUS_LIMIT;
    bool fine = true;
    for (uint32_t i = 0; i < at->count && fine; i++)
        fine = item_apply(&visitor, at->items[i]);
    if (fine)
        specials_apply(&visitor, at);
    matcher->limit = program->work.limit;
    if (matcher->limit != NULL)
        return STATUS_LIMIT;
    for (uint32_t i = 0; i < end_count; i++) {
        const uint32_t id = (uint32_t)ends[i];
        if (id >= program->tokens->vocab_count)
            continue;
        if (at->ended)
            bit_set(mask, id);
        else
            mask[id / 32] &= ~(1u << id % 32);
    }
    for (uint32_t i = 0; i < program->mask_words; i++)
        if (mask[i] != 0)
            return STATUS_OK;
    return STATUS_NOT_FOUND;
}
