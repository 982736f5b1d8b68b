/* Objects: the members that a schema names, in its order, then others where it allows them. */
#include <stdlib.h>

#include "base/check.h"
#include "base/utf8.h"
#include "model/text/grammar/grammar_schema_internal.h"

enum { PATTERNS_MAX = 8 };

struct property {
    const char *name;
    bool required;
};

struct pattern {
    struct language keys; /* as texts, for names that are known */
    struct language form; /* between quotes */
    const struct json *schema;
    uint32_t place, member;
};

struct object {
    struct schema *schema;
    const struct conjunction *all;
    struct property *properties; /* in order */
    uint32_t property_count, required_count;
    struct pattern patterns[PATTERNS_MAX];
    uint32_t pattern_count;
    struct conjunction others; /* what holds for a member that nothing names */
    bool open;                 /* such members are written */
};

static bool keyword_object(struct object *object, uint32_t member, const char *keyword,
                           const struct json **out)
{
    *out = member_get(object->all, member, keyword);
    if (*out == NULL || json_kind(*out) == JSON_OBJECT)
        return true;
    return schema_fail(object->schema, STATUS_INVALID, object->all->members[member].place, keyword,
                       "it is an object of schemas");
}

static bool property_add(struct object *object, uint32_t member, const char *name, bool required)
{
    for (uint32_t i = 0; i < object->property_count; i++)
        if (strcmp(object->properties[i].name, name) == 0) {
            object->required_count += required && !object->properties[i].required ? 1 : 0;
            object->properties[i].required |= required;
            return true;
        }
    if (object->property_count == SCHEMA_PROPERTIES_MAX)
        return schema_fail(object->schema, STATUS_LIMIT, object->all->members[member].place,
                           "properties", "more than %d members are named", SCHEMA_PROPERTIES_MAX);
    object->properties[object->property_count++] = (struct property){name, required};
    object->required_count += required ? 1 : 0;
    return true;
}

static bool properties_find(struct object *object)
{
    for (uint32_t m = 0; m < object->all->count; m++) {
        const struct json *properties;
        const struct json *value;
        const char *name;
        void *cursor = NULL;
        if (!keyword_object(object, m, "properties", &properties))
            return false;
        while (properties != NULL && json_next(properties, &cursor, &name, &value))
            if (!property_add(object, m, name, false))
                return false;
    }
    for (uint32_t m = 0; m < object->all->count; m++) {
        const struct json *required = member_get(object->all, m, "required");
        const uint32_t place = object->all->members[m].place;
        if (required == NULL || json_kind(required) == JSON_BOOL) // draft 3 has it within members
            continue;
        const bool list = json_kind(required) == JSON_ARRAY;
        for (size_t i = 0; i < (list ? json_count(required) : 1); i++) {
            size_t bytes;
            const struct json *item = list ? json_at(required, i) : required;
            if (!list || json_kind(item) != JSON_STRING)
                return schema_fail(object->schema, STATUS_INVALID, place, "required",
                                   "it is an array of strings");
            const char *name = json_string(item, &bytes);
            if (strlen(name) != bytes)
                return schema_fail(object->schema, STATUS_UNSUPPORTED, place, "required",
                                   "a NUL in a name is not supported");
            if (!property_add(object, m, name, true))
                return false;
        }
    }
    return true;
}

static bool pattern_add(struct object *object, uint32_t member, uint32_t place, const char *text,
                        const struct json *value)
{
    struct grammar_build *build = object->schema->build;
    if (object->pattern_count == PATTERNS_MAX)
        return schema_fail(object->schema, STATUS_LIMIT, place, NULL,
                           "more than %d patterns of names", PATTERNS_MAX);
    struct pattern *pattern = &object->patterns[object->pattern_count++];
    *pattern = (struct pattern){
        .schema = value,
        .place = schema_place(object->schema, place, text, 0),
        .member = member,
    };
    struct regex regex;
    schema_path(object->schema, pattern->place, NULL, build->place);
    const bool fine = regex_parse(build, text, strlen(text), true, &regex) &&
                      language_regex(build, &regex, true, LANGUAGE_TEXT, &pattern->keys) &&
                      language_regex(build, &regex, true, LANGUAGE_JSON, &pattern->form);
    regex_free(&regex);
    build->place[0] = '\0';
    return fine;
}

/* Patterns of names; a name that is not known matches one of them at most. */
static bool patterns_find(struct object *object)
{
    struct schema *schema = object->schema;
    for (uint32_t m = 0; m < object->all->count; m++) {
        const struct json *patterns;
        const struct json *value;
        const char *text;
        void *cursor = NULL;
        if (!keyword_object(object, m, "patternProperties", &patterns))
            return false;
        if (patterns == NULL)
            continue;
        const uint32_t place =
            schema_place(schema, object->all->members[m].place, "patternProperties", 0);
        while (json_next(patterns, &cursor, &text, &value))
            if (!pattern_add(object, m, place, text, value))
                return false;
    }
    for (uint32_t i = 0; i < object->pattern_count; i++)
        for (uint32_t j = 0; j < i; j++) {
            struct language both;
            if (!language_both(schema->build, &object->patterns[i].form, &object->patterns[j].form,
                               &both))
                return false;
            const bool disjoint = language_empty(&both);
            language_free(&both);
            if (!disjoint)
                return schema_fail(schema, STATUS_UNSUPPORTED, object->patterns[i].place, NULL,
                                   "a name may match this pattern and another one, which is not "
                                   "supported");
        }
    return true;
}

/* Whether every schema that holds was added by this member, so that all that they name counts as
 * evaluated for its unevaluatedProperties. */
static bool above_all(const struct conjunction *all, uint32_t member)
{
    for (uint32_t m = 0; m < all->count; m++) {
        uint32_t at = m;
        while (at != BUILD_NONE && at != member)
            at = all->members[at].from;
        if (at != member)
            return false;
    }
    return true;
}

/* What additionalProperties says, and whether other members are written at all. */
static bool others_find(struct object *object)
{
    bool closed = false;
    bool said = false;
    bool named = object->pattern_count > 0;
    for (uint32_t m = 0; m < object->all->count; m++) {
        const uint32_t place = object->all->members[m].place;
        const struct json *value = member_get(object->all, m, "additionalProperties");
        const struct json *last = member_get(object->all, m, "unevaluatedProperties");
        named |= member_get(object->all, m, "properties") != NULL;
        if (last != NULL && (json_kind(last) != JSON_BOOL || !json_bool(last))) {
            if (json_kind(last) != JSON_BOOL || !above_all(object->all, m))
                return schema_fail(object->schema, STATUS_UNSUPPORTED, place,
                                   "unevaluatedProperties",
                                   "only a boolean is supported, above all else that holds");
            closed = true;
        }
        if (value == NULL)
            continue;
        said = true;
        if (json_kind(value) == JSON_BOOL && !json_bool(value))
            closed = true;
        else
            conjunction_add(object->schema, &object->others, value,
                            schema_place(object->schema, place, "additionalProperties", 0),
                            BUILD_NONE);
    }
    object->open = !closed && (said || !named);
    return object->schema->build->status == STATUS_OK;
}

/* What holds for a member by its name. */
static void property_values(struct object *object, const char *name, struct conjunction *out)
{
    struct schema *schema = object->schema;
    bool known = false;
    bool closed = false;
    *out = (struct conjunction){.count = 0};
    for (uint32_t m = 0; m < object->all->count; m++) {
        const uint32_t place = object->all->members[m].place;
        const struct json *properties = member_get(object->all, m, "properties");
        const struct json *value = properties != NULL ? json_get(properties, name) : NULL;
        bool evaluated = value != NULL;
        if (value != NULL)
            conjunction_add(
                schema, out, value,
                schema_place(schema, schema_place(schema, place, "properties", 0), name, 0),
                BUILD_NONE);
        for (uint32_t i = 0; i < object->pattern_count; i++) {
            const struct pattern *pattern = &object->patterns[i];
            if (pattern->member != m || !language_has(&pattern->keys, name, strlen(name)))
                continue;
            evaluated = true;
            conjunction_add(schema, out, pattern->schema, pattern->place, BUILD_NONE);
        }
        const struct json *others = member_get(object->all, m, "additionalProperties");
        if (!evaluated && others != NULL)
            conjunction_add(schema, out, others,
                            schema_place(schema, place, "additionalProperties", 0), BUILD_NONE);
        const struct json *last = member_get(object->all, m, "unevaluatedProperties");
        closed |= last != NULL && json_kind(last) == JSON_BOOL && !json_bool(last);
        known |= evaluated || others != NULL;
    }
    out->never |= closed && !known; // a required name that nothing evaluates
}

static uint32_t key_write(struct grammar_build *build, uint32_t from, const char *name)
{
    struct buffer form = {0};
    json_form(name, strlen(name), &form);
    const uint32_t open = build_text(build, from, "\"");
    const uint32_t to = build_text(build, build_bytes(build, open, form.data, form.size), "\"");
    buffer_free(&form);
    return to;
}

/* The keys of a language, or every key, that are no names; less those of the patterns too. */
static bool keys_find(struct object *object, const struct language *of, struct language *out)
{
    struct grammar_build *build = object->schema->build;
    struct language names = {0};
    bool fine = of != NULL ? language_copy(of, out) : language_lengths(build, 0, UINT32_MAX, out);
    const char **list = calloc(object->property_count + 1, sizeof *list);
    CHECK(list != NULL);
    for (uint32_t i = 0; i < object->property_count; i++)
        list[i] = object->properties[i].name;
    fine = fine && language_names(build, list, object->property_count, &names) &&
           language_subtract(build, out, &names);
    language_free(&names);
    free(list);
    for (uint32_t i = 0; of == NULL && fine && i < object->pattern_count; i++)
        fine = language_subtract(build, out, &object->patterns[i].form);
    return fine;
}

/* One member that is not named, behind `from`; each kind of it leads to `to`. */
static void other_write(struct object *object, const struct language *of,
                        const struct conjunction *values, uint32_t from, uint32_t to)
{
    struct grammar_build *build = object->schema->build;
    struct language keys = {0};
    if (!keys_find(object, of, &keys)) {
        language_free(&keys);
        return;
    }
    const uint32_t open = build_text(build, from, "\"");
    const uint32_t key = build_text(build, build_language(build, open, &keys), "\"");
    language_free(&keys);
    build_empty(build, schema_value(object->schema, json_colon(build, key), values), to);
}

static void others_write(struct object *object, uint32_t from, uint32_t to)
{
    struct grammar_build *build = object->schema->build;
    if (object->open && object->property_count == 0 && object->pattern_count == 0) {
        const uint32_t key = json_call(build, from, object->schema->rules.string);
        build_empty(build, schema_value(object->schema, json_colon(build, key), &object->others),
                    to);
        return;
    }
    for (uint32_t i = 0; i < object->pattern_count && build->status == STATUS_OK; i++) {
        struct conjunction values = {.count = 0};
        const struct pattern *pattern = &object->patterns[i];
        conjunction_add(object->schema, &values, pattern->schema, pattern->place, BUILD_NONE);
        for (uint32_t m = 0; m < object->all->count; m++) {
            const struct json *others = member_get(object->all, m, "additionalProperties");
            if (m != pattern->member && others != NULL)
                conjunction_add(object->schema, &values, others,
                                schema_place(object->schema, object->all->members[m].place,
                                             "additionalProperties", 0),
                                BUILD_NONE);
        }
        other_write(object, &pattern->form, &values, from, to);
    }
    if (object->open && build->status == STATUS_OK)
        other_write(object, NULL, &object->others, from, to);
}

/* Two states for each place in the order of names: nothing was written before, or something was
 * and a comma comes first. */
static void members_write(struct object *object, uint32_t from, uint32_t end, uint32_t least,
                          uint32_t most)
{
    struct grammar_build *build = object->schema->build;
    uint32_t none = json_call(build, from, object->schema->rules.blank);
    uint32_t some = build_state(build);
    for (uint32_t i = 0; i < object->property_count && build->status == STATUS_OK; i++) {
        const struct property *property = &object->properties[i];
        struct conjunction values;
        property_values(object, property->name, &values);
        const uint32_t next_none = build_state(build);
        const uint32_t next_some = build_state(build);
        const uint32_t key = build_state(build);
        build_empty(build, none, key);
        build_empty(build,
                    json_call(build, build_text(build, some, ","), object->schema->rules.blank),
                    key);
        const uint32_t colon = json_colon(build, key_write(build, key, property->name));
        build_empty(build, schema_value(object->schema, colon, &values), next_some);
        if (!property->required) {
            build_empty(build, none, next_none);
            build_empty(build, some, next_some);
        }
        none = next_none;
        some = next_some;
    }
    const bool others = object->open || object->pattern_count > 0;
    const uint32_t counted = object->property_count == 0 && most != UINT32_MAX ? most : 0;
    if (others && !(object->property_count == 0 && most == 0)) {
        const uint32_t behind = build_state(build);
        const uint32_t rule = build_rule(build, NULL);
        if (build->status != STATUS_OK)
            return;
        others_write(object, build->rules[rule].start, build->rules[rule].final);
        build_call(build, none, some, rule);
        uint32_t at = some;
        for (uint32_t i = 1; i < counted && build->status == STATUS_OK; i++) {
            build_empty(build, at, behind);
            at = json_call(
                build, json_call(build, build_text(build, at, ","), object->schema->rules.blank),
                rule);
        }
        build_empty(build, at, behind);
        if (counted == 0)
            build_call(build,
                       json_call(build, build_text(build, some, ","), object->schema->rules.blank),
                       some, rule);
        some = behind;
    }
    if (least == 0)
        build_empty(build, none, end);
    build_empty(build, json_call(build, some, object->schema->rules.blank), end);
}

static bool counts_check(struct object *object, uint32_t least, uint32_t most)
{
    struct schema *schema = object->schema;
    const uint32_t place = object->all->count > 0 ? object->all->members[0].place : 0;
    const bool others = object->open || object->pattern_count > 0;
    if (least > most || (!others && least > object->property_count) ||
        object->required_count > most)
        return schema_unmet(schema, place, "minProperties",
                            "no object has so many or so few members");
    if (least > 1 && least > object->required_count)
        return schema_fail(schema, STATUS_UNSUPPORTED, place, "minProperties",
                           "more than 1 beyond those required is not supported");
    const bool bounded = most >= object->property_count && !others;
    if (most != UINT32_MAX && !bounded && object->property_count > 0)
        return schema_fail(schema, STATUS_UNSUPPORTED, place, "maxProperties",
                           "fewer than are named, or beside named ones, is not supported");
    if (most != UINT32_MAX && most > GRAMMAR_REPEAT_MAX)
        return schema_fail(schema, STATUS_LIMIT, place, "maxProperties",
                           "it is over the limit of %d", GRAMMAR_REPEAT_MAX);
    return true;
}

void schema_object(struct schema *schema, const struct conjunction *all, uint32_t from, uint32_t to)
{
    struct grammar_build *build = schema->build;
    struct object *object = calloc(1, sizeof *object);
    uint32_t least = 0;
    uint32_t most = UINT32_MAX;
    CHECK(object != NULL);
    object->schema = schema;
    object->all = all;
    object->properties = calloc(SCHEMA_PROPERTIES_MAX, sizeof *object->properties);
    CHECK(object->properties != NULL);
    if (properties_find(object) && patterns_find(object) && others_find(object) &&
        schema_count(schema, all, "minProperties", true, &least) &&
        schema_count(schema, all, "maxProperties", false, &most) &&
        counts_check(object, least, most)) {
        const uint32_t end = build_state(build);
        members_write(object, build_text(build, from, "{"), end, least, most);
        build_empty(build, build_text(build, end, "}"), to);
    }
    for (uint32_t i = 0; i < object->pattern_count; i++) {
        language_free(&object->patterns[i].keys);
        language_free(&object->patterns[i].form);
    }
    free(object->properties);
    free(object);
}
