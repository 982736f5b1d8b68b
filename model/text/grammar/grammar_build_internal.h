/* What the front ends write a grammar into: automata that are not deterministic yet.
 *
 * A rule is a part of the graph between its start and its final state. Edges read symbols (bytes,
 * special tokens, the two ends of a text), read nothing, or call a rule. The first failure stays in
 * `status`: from then on every function does nothing, so that a front end looks only in loops whose
 * length its source chooses. */
#ifndef BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_BUILD_INTERNAL_H
#define BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_BUILD_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"
#include "model/text/grammar/grammar.h"

enum {
    SYMBOL_SPECIAL = 256,                                 /* and GRAMMAR_SPECIALS_MAX - 1 more */
    SYMBOL_BEGIN = SYMBOL_SPECIAL + GRAMMAR_SPECIALS_MAX, /* of a text, for ^ and $ */
    SYMBOL_END,
    SYMBOL_COUNT,
};
enum {
    BUILD_STATES_MAX = 1 << 18,
    BUILD_EDGES_MAX = 1 << 19,
    BUILD_RULES_MAX = 1 << 13,
    BUILD_PLACE_BYTES = 160,
    BUILD_UNMET_BYTES = BUILD_PLACE_BYTES + 100,
};
enum { EDGE_NONE = UINT16_MAX, EDGE_CALL = UINT16_MAX - 1 };
static const uint32_t BUILD_NONE = UINT32_MAX;

struct build_edge {
    uint32_t to, next;  /* next: the state's next edge, BUILD_NONE after the last */
    uint16_t low, high; /* symbols; EDGE_NONE reads nothing, EDGE_CALL calls `rule` */
    uint32_t rule;
};

struct build_rule {
    uint32_t start, final;
    char *name; /* for messages: a rule's name or a schema's path; may be NULL */
};

struct grammar_build {
    uint32_t *states; /* [state_count] the first edge of each */
    struct build_edge *edges;
    struct build_rule *rules;
    uint32_t state_count, state_capacity;
    uint32_t edge_count, edge_capacity;
    uint32_t rule_count, rule_capacity;
    char *specials[GRAMMAR_SPECIALS_MAX]; /* terminated */
    uint32_t special_count;
    enum status status;
    struct error *error;
    char place[BUILD_PLACE_BYTES]; /* where the source is being read, for LIMIT */
    char unmet[BUILD_UNMET_BYTES]; /* should nothing fit: why */
};

/* A state with its two ends: what a piece of a source becomes. */
struct build_part {
    uint32_t from, to;
};

void build_init(struct grammar_build *build, struct error *error);
void build_free(struct grammar_build *build);
/* Keeps the first failure. Returns false. */
bool build_fail(struct grammar_build *build, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

uint32_t build_state(struct grammar_build *build);
/* With both its states. The name is copied, and may be NULL. */
uint32_t build_rule(struct grammar_build *build, const char *name);
void build_range(struct grammar_build *build, uint32_t from, uint32_t to, uint32_t low,
                 uint32_t high);
void build_empty(struct grammar_build *build, uint32_t from, uint32_t to);
void build_call(struct grammar_build *build, uint32_t from, uint32_t to, uint32_t rule);
/* Returns the state after these bytes. */
uint32_t build_bytes(struct grammar_build *build, uint32_t from, const char *bytes, size_t count);
uint32_t build_text(struct grammar_build *build, uint32_t from, const char *text);
/* The UTF-8 of every code point low..high, surrogates left out. */
void build_points(struct grammar_build *build, uint32_t from, uint32_t to, uint32_t low,
                  uint32_t high);
/* The symbol of a special token, which is added when it is new. */
uint32_t build_special(struct grammar_build *build, const char *text);

/* Makes *out of the rules reachable from `root`. */
enum status build_finish(struct grammar_build *build, uint32_t root, struct grammar **out);

#endif
