/* Where one answer stands; see grammar.h. */
#include <stdlib.h>

#include "base/check.h"
#include "model/text/grammar/grammar_walk_internal.h"
#include "model/text/text.h"

struct grammar_matcher *grammar_matcher_create(void)
{
    struct grammar_matcher *matcher = calloc(1, sizeof *matcher);
    CHECK(matcher != NULL);
    return matcher;
}

void grammar_matcher_destroy(struct grammar_matcher *matcher)
{
    free(matcher);
}

void grammar_matcher_init(struct grammar_matcher *matcher, struct grammar_program *program)
{
    const struct grammar *grammar = program->grammar;
    matcher->program = program;
    matcher->limit = NULL;
    stack_nodes_clear(&matcher->nodes);
    item_set_clear(&matcher->at);
    matcher->at.node_count = 0;
    matcher->at.ended = grammar->nullable;
    if (program->rest[grammar->start] != AUTOMATON_REST_NONE)
        matcher->at.items[matcher->at.count++] = (struct item){grammar->start, NODE_ROOT};
}

void grammar_matcher_copy(struct grammar_matcher *to, const struct grammar_matcher *from)
{
    to->program = from->program;
    to->limit = from->limit;
    to->at = from->at;
    to->nodes.count = from->nodes.count;
    memcpy(to->nodes.buckets, from->nodes.buckets, sizeof to->nodes.buckets);
    memcpy(to->nodes.nodes, from->nodes.nodes, from->nodes.count * sizeof *from->nodes.nodes);
}

/* Walks a token's bytes from the set at sets[0]; the set that is come to, NULL when it is empty. */
static struct item_set *bytes_walk(struct walk *walk, const struct grammar_program *program,
                                   const char *bytes, size_t count, struct item_set *sets)
{
    uint32_t node_count = walk->nodes->count;
    struct item_set *at = &sets[0];
    for (size_t i = 0; i < count; i++) {
        struct item_set *to = &sets[(i & 1) + 1];
        at->node_count = node_count;
        item_set_step(walk, at, program_class(program, (uint8_t)bytes[i]), to);
        node_count = walk->nodes->count;
        if (walk->failed || item_set_empty(to))
            return NULL;
        at = to;
    }
    return at;
}

static struct item_set *token_walk(struct walk *walk, const struct grammar_program *program,
                                   int32_t id, struct item_set *sets)
{
    for (uint32_t i = 0; i < program->grammar->special_count; i++)
        if (program->special_ids[i] == id) {
            item_set_step(walk, &sets[0], program_class(program, SYMBOL_SPECIAL + i), &sets[1]);
            return walk->failed || item_set_empty(&sets[1]) ? NULL : &sets[1];
        }
    size_t count;
    const char *bytes = text_token_bytes(program->tokens->text, id, &count);
    if (id < 0 || (uint32_t)id >= text_info(program->tokens->text)->picked_count || count == 0 ||
        count > TOKEN_BYTES_MAX || text_token_special(program->tokens->text, id))
        return NULL;
    return bytes_walk(walk, program, bytes, count, sets);
}

bool grammar_matcher_accept(struct grammar_matcher *matcher, int32_t id)
{
    struct grammar_program *program = matcher->program;
    if (matcher->limit != NULL)
        return false;
    program->work = (struct walk_work){0};
    struct walk walk = program_walk(program, &matcher->nodes);
    struct item_set sets[3];
    const uint32_t node_count = matcher->nodes.count;
    sets[0] = matcher->at;
    sets[0].node_count = node_count;
    const struct item_set *to = token_walk(&walk, program, id, sets);
    if (to == NULL || item_set_rest(&walk, to) == AUTOMATON_REST_NONE) {
        stack_nodes_drop(&matcher->nodes, node_count);
        matcher->limit = program->work.limit;
        return false;
    }
    matcher->at = *to;
    if (matcher->nodes.count > NODES_MAX / 4)
        stack_nodes_compact(&matcher->nodes, &matcher->at);
    matcher->at.node_count = matcher->nodes.count;
    return true;
}

const char *grammar_matcher_limit(const struct grammar_matcher *matcher)
{
    return matcher->limit;
}

bool grammar_matcher_can_end(const struct grammar_matcher *matcher)
{
    return matcher->at.ended && matcher->limit == NULL;
}

bool grammar_matcher_must_end(const struct grammar_matcher *matcher)
{
    return matcher->at.ended && matcher->at.count == 0 && matcher->limit == NULL;
}

uint32_t grammar_matcher_rest(const struct grammar_matcher *matcher)
{
    const struct walk walk = {.rest = matcher->program->rest,
                              .nodes = (struct stack_nodes *)&matcher->nodes};
    const uint32_t rest = item_set_rest(&walk, &matcher->at);
    return rest < AUTOMATON_REST_MAX ? rest : UINT32_MAX;
}
