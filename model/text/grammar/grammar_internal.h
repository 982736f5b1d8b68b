/* A compiled grammar, a vocabulary laid out as a tree, and the two joined: for the files of this
 * folder and their tests. */
#ifndef BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_INTERNAL_H
#define BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_INTERNAL_H

#include "model/text/grammar/grammar_automaton_internal.h"

struct grammar {
    struct automaton automaton;     /* every state of it can reach the end of its rule */
    uint16_t start;                 /* of the rule that the whole answer is */
    bool nullable;                  /* so the empty answer fits */
    bool *last;                     /* [state_count] the rule ends there and nowhere else */
    uint64_t (*first)[CLASS_WORDS]; /* [rule_count] classes a rule can begin with */
    char *specials[GRAMMAR_SPECIALS_MAX];
    uint32_t special_count;
};

static inline bool class_in(const uint64_t *words, uint32_t class)
{
    return (words[class / 64] >> class % 64 & 1) != 0;
}

/* The vocabulary's texts as a tree, its nodes in the order of a walk that goes down first. Node 0
 * is the empty text. */
struct grammar_tokens {
    const struct text *text;
    uint32_t vocab_count; /* ids are below */
    uint32_t node_count;
    uint8_t *bytes;     /* [node_count] the last byte of the node's text */
    uint8_t *depths;    /* [node_count] bytes of it: longer tokens are never picked */
    uint32_t *ends;     /* [node_count] the first node that is not below it */
    uint32_t *ids;      /* [id_count] tokens with a text, in the order of their nodes */
    uint32_t *id_begin; /* [node_count + 1] those of each node: several may have one text */
    uint32_t depth_max;
    bool single[256]; /* a token of just this byte exists */
};
enum { TOKEN_BYTES_MAX = 255 };

#endif
