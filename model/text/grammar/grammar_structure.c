/* Structures: texts, special tokens, schemas and expressions one after the other, or one of
 * several, again and again with a separator. */
#include "base/check.h"
#include "model/text/grammar/grammar_schema_internal.h"

enum { STRUCTURE_DEPTH_MAX = 16 };

static void structure_write(struct grammar_build *build, const struct json *structure,
                            uint32_t from, uint32_t to, uint32_t depth);

static const char *text_of(struct grammar_build *build, const struct json *value,
                           const char *keyword, size_t *bytes)
{
    if (json_kind(value) == JSON_STRING)
        return json_string(value, bytes);
    build_fail(build, STATUS_INVALID, "\"%s\" of a structure is %s, not a string", keyword,
               json_kind_name(json_kind(value)));
    *bytes = 0;
    return "";
}

static void special_write(struct grammar_build *build, const struct json *value, uint32_t from,
                          uint32_t to)
{
    size_t bytes;
    const char *text = text_of(build, value, "special", &bytes);
    if (build->status == STATUS_OK && (bytes == 0 || strlen(text) != bytes)) {
        build_fail(build, STATUS_INVALID, "\"special\" of a structure is the text of a token");
        return;
    }
    const uint32_t symbol = build_special(build, text);
    build_range(build, from, to, symbol, symbol);
}

static void any_write(struct grammar_build *build, const struct json *list, uint32_t from,
                      uint32_t to, uint32_t depth)
{
    const size_t count = json_kind(list) == JSON_ARRAY ? json_count(list) : 0;
    if (count == 0)
        build_fail(build, STATUS_INVALID,
                   "\"any\" of a structure is an array of at least one structure");
    for (size_t i = 0; i < count && build->status == STATUS_OK; i++)
        structure_write(build, json_at(list, i), from, to, depth + 1);
}

static void part_write(struct grammar_build *build, const struct json *part, uint32_t from,
                       uint32_t to, uint32_t depth)
{
    const char *key = "";
    const struct json *value = NULL;
    void *cursor = NULL;
    size_t bytes;
    if (json_kind(part) != JSON_OBJECT || json_count(part) != 1) {
        build_fail(build, STATUS_INVALID,
                   "a part of a structure is an object with one of text, special, schema, regex "
                   "and any");
        return;
    }
    json_next(part, &cursor, &key, &value);
    if (strcmp(key, "text") == 0) {
        const char *text = text_of(build, value, key, &bytes);
        build_empty(build, build_bytes(build, from, text, bytes), to);
    } else if (strcmp(key, "special") == 0) {
        special_write(build, value, from, to);
    } else if (strcmp(key, "schema") == 0) {
        schema_build(build, value, from, to);
    } else if (strcmp(key, "regex") == 0) {
        const char *text = text_of(build, value, key, &bytes);
        regex_build(build, text, bytes, from, to);
    } else if (strcmp(key, "any") == 0) {
        any_write(build, value, from, to, depth);
    } else {
        build_fail(build, STATUS_INVALID, "a structure has no part \"%.40s\"", key);
    }
}

/* [min, max] of "repeat"; both 1 without it. */
static bool repeat_read(struct grammar_build *build, const struct json *structure, uint32_t *least,
                        uint32_t *most)
{
    const struct json *repeat = json_get(structure, "repeat");
    *least = 1;
    *most = 1;
    if (repeat == NULL)
        return true;
    int64_t values[2] = {-1, -1};
    for (size_t i = 0; i < 2 && json_kind(repeat) == JSON_ARRAY && json_count(repeat) == 2; i++)
        if (json_kind(json_at(repeat, i)) == JSON_INT)
            values[i] = json_int(json_at(repeat, i));
    if (values[0] < 0 || values[1] < values[0] || values[1] > GRAMMAR_REPEAT_MAX)
        return build_fail(build, STATUS_INVALID,
                          "\"repeat\" of a structure is [least, most] of 0 to %d",
                          GRAMMAR_REPEAT_MAX);
    *least = (uint32_t)values[0];
    *most = (uint32_t)values[1];
    return true;
}

/* The parts are a rule, so that repeating them costs a call each. */
static void structure_write(struct grammar_build *build, const struct json *structure,
                            uint32_t from, uint32_t to, uint32_t depth)
{
    const struct json *parts =
        json_kind(structure) == JSON_OBJECT ? json_get(structure, "parts") : NULL;
    uint32_t least;
    uint32_t most;
    if (parts == NULL || json_kind(parts) != JSON_ARRAY || depth > STRUCTURE_DEPTH_MAX) {
        build_fail(
            build, STATUS_INVALID,
            "a structure is an object with an array \"parts\", at most %d within one another",
            STRUCTURE_DEPTH_MAX);
        return;
    }
    const struct json *separator = json_get(structure, "separator");
    size_t bytes = 0;
    const char *text = separator != NULL ? text_of(build, separator, "separator", &bytes) : "";
    const uint32_t rule = build_rule(build, NULL);
    if (!repeat_read(build, structure, &least, &most) || build->status != STATUS_OK)
        return;
    uint32_t at = build->rules[rule].start;
    for (size_t i = 0; i < json_count(parts) && build->status == STATUS_OK; i++) {
        const uint32_t next = build_state(build);
        part_write(build, json_at(parts, i), at, next, depth);
        at = next;
    }
    if (build->status != STATUS_OK)
        return;
    build_empty(build, at, build->rules[rule].final);
    if (least == 0)
        build_empty(build, from, to);
    at = from;
    for (uint32_t i = 0; i < most && build->status == STATUS_OK; i++) {
        if (i > 0)
            at = build_bytes(build, at, text, bytes);
        const uint32_t next = build_state(build);
        build_call(build, at, next, rule);
        at = next;
        if (i + 1 >= least)
            build_empty(build, at, to);
    }
}

void structure_build(struct grammar_build *build, const struct json *structure, uint32_t from,
                     uint32_t to)
{
    structure_write(build, structure, from, to, 0);
}
