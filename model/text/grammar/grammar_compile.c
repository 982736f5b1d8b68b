/* From a source to a grammar; see grammar.h. */
#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "model/text/grammar/grammar_json_internal.h"
#include "model/text/grammar/grammar_regex_internal.h"

void regex_build(struct grammar_build *build, const char *source, size_t bytes, uint32_t from,
                 uint32_t to)
{
    struct regex regex;
    struct language language;
    if (regex_parse(build, source, bytes, false, &regex) &&
        language_regex(build, &regex, false, LANGUAGE_TEXT, &language)) {
        build_empty(build, build_language(build, from, &language), to);
        language_free(&language);
    }
    regex_free(&regex);
}

void choice_build(struct grammar_build *build, const struct json *list, uint32_t from, uint32_t to)
{
    const size_t count = json_kind(list) == JSON_ARRAY ? json_count(list) : 0;
    if (count == 0)
        build_fail(build, STATUS_INVALID, "a choice is an array of at least one string");
    for (size_t i = 0; i < count && build->status == STATUS_OK; i++) {
        const struct json *item = json_at(list, i);
        size_t bytes;
        if (json_kind(item) != JSON_STRING) {
            build_fail(build, STATUS_INVALID, "item %zu of the choice is %s, not a string", i,
                       json_kind_name(json_kind(item)));
            return;
        }
        const char *text = json_string(item, &bytes);
        build_empty(build, build_bytes(build, from, text, bytes), to);
    }
}

static uint32_t source_build(struct grammar_build *build, enum grammar_kind kind,
                             const char *source, size_t bytes, const struct json *json)
{
    if (kind == GRAMMAR_EBNF)
        return ebnf_build(build, source, bytes);
    const uint32_t root = build_rule(build, NULL);
    const uint32_t from = build->rules[root].start;
    const uint32_t to = build->rules[root].final;
    if (kind == GRAMMAR_REGEX)
        regex_build(build, source, bytes, from, to);
    else if (kind == GRAMMAR_CHOICE)
        choice_build(build, json, from, to);
    else if (kind == GRAMMAR_STRUCTURE)
        structure_build(build, json, from, to);
    else if (kind == GRAMMAR_JSON_SCHEMA)
        schema_build(build, json, from, to);
    else
        json_object_build(build, from, to);
    return root;
}

enum status grammar_compile(enum grammar_kind kind, const char *source, size_t bytes,
                            struct grammar **out, struct error *error)
{
    struct json *json = NULL;
    struct grammar_build build;
    if (kind != GRAMMAR_JSON_OBJECT && bytes > GRAMMAR_SOURCE_BYTES_MAX)
        return error_set(error, STATUS_LIMIT, "the grammar has %zu bytes, over the limit of %d",
                         bytes, GRAMMAR_SOURCE_BYTES_MAX);
    if (kind == GRAMMAR_JSON_SCHEMA || kind == GRAMMAR_CHOICE || kind == GRAMMAR_STRUCTURE)
        TRY(json_parse(source, bytes, &json, error));
    build_init(&build, error);
    const uint32_t root = source_build(&build, kind, source, bytes, json);
    const enum status status = build_finish(&build, root, out);
    build_free(&build);
    json_free(json);
    return status;
}
