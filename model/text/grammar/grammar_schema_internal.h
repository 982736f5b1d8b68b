/* JSON schemas as rules.
 *
 * The unit is a conjunction: schemas that all have to hold for one value, each with the place it
 * was found at. References and allOf add to it, anyOf and oneOf make one conjunction of each
 * branch, and what remains is written keyword by keyword over all of them. The value of a member or
 * an item is a rule of its own, found again by its conjunction, so that recursion ends. */
#ifndef BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_SCHEMA_INTERNAL_H
#define BATON_MODEL_TEXT_GRAMMAR_GRAMMAR_SCHEMA_INTERNAL_H

#include "base/json.h"
#include "model/text/grammar/grammar_json_internal.h"
#include "model/text/grammar/grammar_regex_internal.h"

enum {
    SCHEMA_MEMBERS_MAX = 32,    /* schemas that hold for one value */
    SCHEMA_BRANCH_DEPTH = 32,   /* anyOf within one another */
    SCHEMA_STEPS_MAX = 1 << 15, /* conjunctions written */
    SCHEMA_PLACES_MAX = 1 << 17,
    SCHEMA_PROPERTIES_MAX = 1024,
};
enum { SCHEMA_REF = 1, SCHEMA_ALL = 2, SCHEMA_ANY = 4, SCHEMA_ONE = 8 }; /* already dealt with */
enum {
    TYPE_NULL = 1,
    TYPE_BOOL = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8, /* numbers that are no integers */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
    TYPE_ANY = 127,
};

/* A step of a path; parents come first. */
struct schema_place {
    uint32_t parent; /* BUILD_NONE: a key that is a whole path */
    const char *key; /* NULL: an index */
    uint32_t index;
};

struct schema_member {
    const struct json *schema;
    uint32_t place, dealt;
    uint32_t from; /* the member that added it, BUILD_NONE: none */
};

struct conjunction {
    struct schema_member members[SCHEMA_MEMBERS_MAX];
    uint32_t count;
    bool never; /* no value fits */
};

/* A rule that is still to be written. */
struct schema_rule {
    struct conjunction conjunction;
    uint32_t rule;
};

struct schema {
    struct grammar_build *build;
    const struct json *root;
    bool moved; /* a schema within it has an address of its own ($id) */
    struct json_rules rules;
    struct schema_place *places;
    uint32_t place_count, place_capacity;
    struct schema_rule **queue; /* also the memory of what has its rule */
    uint32_t queue_count, queue_capacity;
    uint32_t *slots;
    uint32_t steps, depth;
    uint32_t pairs, compared;      /* branches of oneOf, values of theirs */
    char unmet[BUILD_UNMET_BYTES]; /* why the first conjunction that nothing fits is so */
};

uint32_t schema_place(struct schema *schema, uint32_t parent, const char *key, uint32_t index);
/* A keyword of a member: its place as text, e.g. for errors. */
const char *schema_path(const struct schema *schema, uint32_t place, const char *keyword,
                        char out[BUILD_PLACE_BYTES]);
bool schema_fail(struct schema *schema, enum status status, uint32_t place, const char *keyword,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Nothing fits this conjunction, which is no error where another branch does. Returns false. */
bool schema_unmet(struct schema *schema, uint32_t place, const char *keyword, const char *sentence);

void conjunction_add(struct schema *schema, struct conjunction *all, const struct json *value,
                     uint32_t place, uint32_t from);
/* Adds what references and allOf say. */
bool conjunction_flatten(struct schema *schema, struct conjunction *all);
/* A rule for the values that fit, called between two states; returns the second. */
uint32_t schema_value(struct schema *schema, uint32_t from, const struct conjunction *all);
/* The keyword of one member; NULL when it has none. */
static inline const struct json *member_get(const struct conjunction *all, uint32_t member,
                                            const char *keyword)
{
    return json_get(all->members[member].schema, keyword);
}
/* The types that all members allow; false after a failure. */
bool schema_types(struct schema *schema, const struct conjunction *all, uint32_t *types);
/* A count: 0 or more. *out is left when it is not there. `least`: the larger of two is kept. */
bool schema_count(struct schema *schema, const struct conjunction *all, const char *keyword,
                  bool least, uint32_t *out);

/* Numbers. The bounds of all members; open: the bound itself is not allowed. */
struct number_bounds {
    double low, high;
    bool has_low, has_high, low_open, high_open;
};
bool schema_bounds(struct schema *schema, const struct conjunction *all, struct number_bounds *out);
/* multipleOf: *whole is set where only integers fit; false after a failure. */
bool schema_multiples(struct schema *schema, const struct conjunction *all, bool *whole);
bool number_inexact(double value); /* so large that an integer of a schema may not be this double */
void schema_number(struct schema *schema, const struct conjunction *all, uint32_t types,
                   uint32_t from, uint32_t to);

/* Strings. strings_of: the language of their conditions; *any: there are none. */
bool schema_strings(struct schema *schema, const struct conjunction *all, bool *any,
                    struct language *out);
void schema_string(struct schema *schema, const struct conjunction *all, uint32_t from,
                   uint32_t to);
const char *schema_format_regex(const char *name, size_t bytes);

void schema_array(struct schema *schema, const struct conjunction *all, uint32_t from, uint32_t to);
void schema_object(struct schema *schema, const struct conjunction *all, uint32_t from,
                   uint32_t to);

/* enum and const. *found: there is one, and its values are written. */
bool schema_constants(struct schema *schema, const struct conjunction *all, uint32_t types,
                      uint32_t from, uint32_t to, bool *found);
/* The values, each once, of an enum or const and the rest of the conjunction: *count of them, most
 * + 1 where there are more, or no enum and no const. */
bool schema_constants_list(struct schema *schema, const struct conjunction *all, uint32_t types,
                           uint32_t most, const struct json **values, uint32_t *count);
/* Just this value, between two states. */
bool schema_constant(struct schema *schema, const struct json *value, uint32_t place, uint32_t from,
                     uint32_t to);
bool json_same(const struct json *a, const struct json *b);
/* Whether no value fits both; errs on the side of false. */
bool schema_disjoint(struct schema *schema, const struct conjunction *a,
                     const struct conjunction *b, uint32_t depth);
uint32_t schema_value_type(const struct json *value); /* TYPE_ of a value */

#endif
