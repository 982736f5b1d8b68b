/* Regular expressions, and the languages of whole texts that they describe.
 *
 * A language is a deterministic automaton over bytes: of a text itself, or of what stands between
 * the quotes of a JSON string, where every character is written in one way only (as itself where
 * JSON allows that, else by its shortest escape), so that languages of strings can be intersected.
 */
#ifndef BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_REGEX_INTERNAL_H
#define BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_REGEX_INTERNAL_H

#include "model/text/grammar/grammar_automaton_internal.h"

enum { POINT_MAX = 0x10ffff, REGEX_DEPTH_MAX = 200, REGEX_NODES_MAX = 1 << 16 };
static const uint32_t REGEX_NO_END = UINT32_MAX; /* of a repetition */

enum regex_kind {
    REGEX_NOTHING, /* the empty text */
    REGEX_SET,     /* one character of a set */
    REGEX_THEN,    /* left, then right */
    REGEX_OR,
    REGEX_REPEAT, /* left, at_least to at_most times */
    REGEX_BEGIN,  /* ^ */
    REGEX_END,    /* $ */
};

struct point_range {
    uint32_t low, high;
};

struct regex_node {
    enum regex_kind kind;
    uint32_t left, right; /* nodes; of a set: its first range and their count */
    uint32_t at_least, at_most;
};

struct regex {
    struct regex_node *nodes;
    uint32_t node_count, node_capacity;
    struct point_range *ranges;
    uint32_t range_count, range_capacity;
    uint32_t root;
};

/* Sets of code points: ranges in order that do not touch. */
struct point_set {
    struct point_range *ranges;
    uint32_t count, capacity;
};
void point_set_add(struct point_set *set, uint32_t low, uint32_t high);
void point_set_finish(struct point_set *set); /* puts them in order */
void point_set_negate(struct point_set *set); /* of a finished one */
/* The set of \d, \w, \s and their opposites; false for another letter. Dialects differ on what is
 * not ASCII: inside it are only those on which they agree, or with `wide` all on which one does. */
bool point_set_class(struct point_set *set, char letter, bool wide);

/* schema: the dialect of JSON schema patterns (ECMA 262), else Python's. The build takes failures,
 * and its place is written before them. */
bool regex_parse(struct grammar_build *build, const char *text, size_t bytes, bool schema,
                 struct regex *out);
void regex_free(struct regex *regex);

struct language {
    uint16_t class_of[256];
    uint32_t class_count, state_count;
    uint16_t start; /* AUTOMATON_NONE: no text at all */
    uint16_t *next; /* [state_count][class_count] */
    bool *final;    /* [state_count] */
};

enum language_form { LANGUAGE_TEXT, LANGUAGE_JSON };
/* The texts that match: as a whole, or somewhere. */
bool language_regex(struct grammar_build *build, const struct regex *regex, bool somewhere,
                    enum language_form form, struct language *out);
/* Strings of at_least to at_most characters, for LANGUAGE_JSON. */
bool language_lengths(struct grammar_build *build, uint32_t at_least, uint32_t at_most,
                      struct language *out);
bool language_both(struct grammar_build *build, const struct language *a, const struct language *b,
                   struct language *out);
/* Takes the texts of b out of *a. */
bool language_subtract(struct grammar_build *build, struct language *a, const struct language *b);
/* The names themselves, for LANGUAGE_JSON. */
bool language_names(struct grammar_build *build, const char *const *names, uint32_t count,
                    struct language *out);
bool language_copy(const struct language *language, struct language *out);
bool language_has(const struct language *language, const char *bytes, size_t count);
bool language_empty(const struct language *language);
void language_free(struct language *language);
/* Writes it into a graph. Returns the state behind it. */
uint32_t build_language(struct grammar_build *build, uint32_t from,
                        const struct language *language);
/* A text as it stands between the quotes of a language of strings. */
void json_form(const char *text, size_t bytes, struct buffer *out);
/* One character of a JSON string in the one form of languages. */
void build_json_points(struct grammar_build *build, uint32_t from, uint32_t to, uint32_t low,
                       uint32_t high);

#endif
