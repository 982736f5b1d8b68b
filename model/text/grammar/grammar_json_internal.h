/* The rules that JSON values share; see grammar.h for the form they have. */
#ifndef BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_JSON_INTERNAL_H
#define BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_JSON_INTERNAL_H

#include "model/text/grammar/grammar_build_internal.h"

enum { JSON_WHOLE_DIGITS = 18, JSON_FRACTION_DIGITS = 17, JSON_BREAK_BLANKS = 16 };

struct json_rules {
    uint32_t string, integer, number, value, object, array;
    uint32_t blank;     /* where a line may break */
    uint32_t character; /* one of a string, in any of its forms */
};
void json_rules_build(struct grammar_build *build, struct json_rules *rules);

/* Pieces; each returns the state behind it. */
uint32_t json_call(struct grammar_build *build, uint32_t from, uint32_t rule);
/* `: ` behind a key. */
uint32_t json_colon(struct grammar_build *build, uint32_t from);
/* At least `least` (0 or 1) and at most `most` digits. */
uint32_t json_digits(struct grammar_build *build, uint32_t from, uint32_t least, uint32_t most);
/* A string of at_least to at_most characters with its quotes; at_most UINT32_MAX: any. */
uint32_t json_string_of(struct grammar_build *build, const struct json_rules *rules, uint32_t from,
                        uint32_t at_least, uint32_t at_most);

/* {...} and JSON schemas as whole answers. */
void json_object_build(struct grammar_build *build, uint32_t from, uint32_t to);
/* A schema in the text of a JSON document (a value of it, for structures); path: of error texts. */
struct json;
void schema_build(struct grammar_build *build, const struct json *schema, uint32_t from,
                  uint32_t to);
/* The other sources, into the rule `root`. */
void regex_build(struct grammar_build *build, const char *source, size_t bytes, uint32_t from,
                 uint32_t to);
void choice_build(struct grammar_build *build, const struct json *list, uint32_t from, uint32_t to);
void structure_build(struct grammar_build *build, const struct json *structure, uint32_t from,
                     uint32_t to);
/* Adds its rules; returns the first, or `root`. */
uint32_t ebnf_build(struct grammar_build *build, const char *source, size_t bytes);

#endif
