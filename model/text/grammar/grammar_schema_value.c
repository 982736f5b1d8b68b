/* Types, counts, and values that a schema gives by name: enum and const. */
#include "base/check.h"
#include "model/text/grammar/grammar_schema_internal.h"

uint32_t schema_value_type(const struct json *value)
{
    switch (json_kind(value)) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_BOOL:
        return TYPE_BOOL;
    case JSON_INT:
        return TYPE_INTEGER;
    case JSON_REAL: {
        const double number = json_number(value);
        const bool whole = number >= -9e18 && number <= 9e18 && (double)(int64_t)number == number;
        return whole || number > 9e18 || number < -9e18 ? TYPE_INTEGER : TYPE_FRACTION;
    }
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_OBJECT:
        return TYPE_OBJECT;
    }
    return 0;
}

static uint32_t type_named(const struct json *name)
{
    static const struct {
        const char *name;
        uint32_t types;
    } rows[] = {{"null", TYPE_NULL},     {"boolean", TYPE_BOOL},  {"integer", TYPE_INTEGER},
                {"number", TYPE_NUMBER}, {"string", TYPE_STRING}, {"array", TYPE_ARRAY},
                {"object", TYPE_OBJECT}};
    size_t bytes;
    if (json_kind(name) != JSON_STRING)
        return 0;
    const char *text = json_string(name, &bytes);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        if (strcmp(text, rows[i].name) == 0)
            return rows[i].types;
    return 0;
}

bool schema_types(struct schema *schema, const struct conjunction *all, uint32_t *types)
{
    *types = TYPE_ANY;
    for (uint32_t m = 0; m < all->count; m++) {
        const struct json *type = member_get(all, m, "type");
        const uint32_t place = all->members[m].place;
        uint32_t allowed = 0;
        if (type == NULL)
            continue;
        const size_t count = json_kind(type) == JSON_ARRAY ? json_count(type) : 1;
        for (size_t i = 0; i < count; i++) {
            const uint32_t named =
                type_named(json_kind(type) == JSON_ARRAY ? json_at(type, i) : type);
            if (named == 0)
                return schema_fail(schema, STATUS_INVALID, place, "type",
                                   "a type is null, boolean, integer, number, string, array or "
                                   "object");
            allowed |= named;
        }
        *types &= allowed;
        if (*types == 0)
            return schema_unmet(schema, place, "type", "no type is left, so that nothing fits");
    }
    return true;
}

bool schema_count(struct schema *schema, const struct conjunction *all, const char *keyword,
                  bool least, uint32_t *out)
{
    for (uint32_t m = 0; m < all->count; m++) {
        const struct json *value = member_get(all, m, keyword);
        if (value == NULL)
            continue;
        const bool number = json_kind(value) == JSON_INT || json_kind(value) == JSON_REAL;
        const double count = number ? json_number(value) : -1;
        if (!(count >= 0) || schema_value_type(value) != TYPE_INTEGER)
            return schema_fail(schema, STATUS_INVALID, all->members[m].place, keyword,
                               "it is an integer of at least 0");
        const uint32_t bounded = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
        if (least ? bounded > *out : bounded < *out)
            *out = bounded;
    }
    return true;
}

static bool objects_same(const struct json *a, const struct json *b)
{
    void *cursor = NULL;
    const char *key;
    const struct json *value;
    if (json_count(a) != json_count(b))
        return false;
    while (json_next(a, &cursor, &key, &value)) {
        const struct json *other = json_get(b, key);
        if (other == NULL || !json_same(value, other))
            return false;
    }
    return true;
}

bool json_same(const struct json *a, const struct json *b)
{
    const enum json_kind kind = json_kind(a);
    const bool numbers = (kind == JSON_INT || kind == JSON_REAL) &&
                         (json_kind(b) == JSON_INT || json_kind(b) == JSON_REAL);
    if (numbers && kind != json_kind(b)) {
        const double real = json_number(kind == JSON_REAL ? a : b);
        const int64_t whole = json_int(kind == JSON_INT ? a : b);
        return real >= -0x1p63 && real < 0x1p63 && (int64_t)real == whole &&
               (double)(int64_t)real == real;
    }
    if (numbers)
        return kind == JSON_INT ? json_int(a) == json_int(b) : json_number(a) == json_number(b);
    if (kind != json_kind(b))
        return false;
    if (kind == JSON_BOOL)
        return json_bool(a) == json_bool(b);
    if (kind == JSON_OBJECT)
        return objects_same(a, b);
    if (kind == JSON_STRING) {
        size_t a_bytes;
        size_t b_bytes;
        const char *a_text = json_string(a, &a_bytes);
        const char *b_text = json_string(b, &b_bytes);
        return a_bytes == b_bytes && memcmp(a_text, b_text, a_bytes) == 0;
    }
    bool same = kind != JSON_ARRAY || json_count(a) == json_count(b);
    for (size_t i = 0; kind == JSON_ARRAY && same && i < json_count(a); i++)
        same = json_same(json_at(a, i), json_at(b, i));
    return same;
}

/* Whether a value is among those of every enum and const but those of one member. */
static bool named_by_others(const struct conjunction *all, uint32_t member,
                            const struct json *value)
{
    for (uint32_t m = 0; m < all->count; m++) {
        const struct json *list = member_get(all, m, "enum");
        const struct json *constant = member_get(all, m, "const");
        bool found = list == NULL || m == member;
        for (size_t i = 0; !found && i < json_count(list); i++)
            found = json_same(json_at(list, i), value);
        if (!found || (constant != NULL && !json_same(constant, value)))
            return false;
    }
    return true;
}

/* Of two numbers that large it is not known which is larger: then they do not. */
static bool bounds_hold(const struct number_bounds *bounds, double value)
{
    if (number_inexact(value) && ((bounds->has_low && number_inexact(bounds->low)) ||
                                  (bounds->has_high && number_inexact(bounds->high))))
        return false;
    return (!bounds->has_low || (bounds->low_open ? value > bounds->low : value >= bounds->low)) &&
           (!bounds->has_high ||
            (bounds->high_open ? value < bounds->high : value <= bounds->high));
}

struct conditions {
    struct number_bounds bounds;
    struct language strings;
    bool any_string;
};

/* Conditions on the insides of arrays and objects are not asked of values given by name. */
static bool insides_check(struct schema *schema, const struct conjunction *all, uint32_t type)
{
    static const char *const array_keywords[] = {"items",    "prefixItems", "minItems",
                                                 "maxItems", "uniqueItems", "additionalItems"};
    static const char *const object_keywords[] = {
        "properties",    "required",      "additionalProperties", "patternProperties",
        "minProperties", "maxProperties", "unevaluatedProperties"};
    const bool array = type == TYPE_ARRAY;
    const char *const *keywords = array ? array_keywords : object_keywords;
    const size_t count = array ? ARRAY_COUNT(array_keywords) : ARRAY_COUNT(object_keywords);
    for (uint32_t m = 0; m < all->count; m++)
        for (size_t i = 0; i < count; i++)
            if (member_get(all, m, keywords[i]) != NULL)
                return schema_fail(schema, STATUS_UNSUPPORTED, all->members[m].place, keywords[i],
                                   "beside enum or const of arrays or objects this keyword is not "
                                   "supported");
    return true;
}

static bool admitted(struct schema *schema, const struct conjunction *all, uint32_t member,
                     const struct conditions *conditions, uint32_t types, const struct json *value)
{
    const uint32_t type = schema_value_type(value);
    if ((type & types) == 0 || !named_by_others(all, member, value))
        return false;
    if ((type & TYPE_NUMBER) != 0) {
        bool whole = false;
        return schema_multiples(schema, all, &whole) && (!whole || type == TYPE_INTEGER) &&
               bounds_hold(&conditions->bounds, json_number(value));
    }
    if (type == TYPE_STRING && !conditions->any_string) {
        struct buffer form = {0};
        size_t bytes;
        const char *text = json_string(value, &bytes);
        json_form(text, bytes, &form);
        const bool has = language_has(&conditions->strings, form.data, form.size);
        buffer_free(&form);
        return has;
    }
    return type == TYPE_ARRAY || type == TYPE_OBJECT ? insides_check(schema, all, type) : true;
}

/* The values that the first enum or const of a conjunction names, one by one. */
struct constants {
    const struct conjunction *all;
    uint32_t member, types;
    struct conditions conditions;
};

static const struct json *constants_list(const struct constants *constants)
{
    return member_get(constants->all, constants->member, "enum");
}

static size_t constants_count(const struct constants *constants)
{
    const struct json *list = constants_list(constants);
    return list != NULL ? json_count(list) : 1;
}

/* NULL: it does not fit the rest of the conjunction. */
static const struct json *constants_at(struct schema *schema, const struct constants *constants,
                                       size_t index)
{
    const struct json *list = constants_list(constants);
    const struct json *value = list != NULL
                                   ? json_at(list, index)
                                   : member_get(constants->all, constants->member, "const");
    return admitted(schema, constants->all, constants->member, &constants->conditions,
                    constants->types, value)
               ? value
               : NULL;
}

/* Comparing lists of values with one another takes their product; false over a limit of it. */
static bool lists_check(struct schema *schema, const struct conjunction *all)
{
    enum { COMPARED_MAX = 1 << 20 };
    uint64_t compared = 1;
    for (uint32_t m = 0; m < all->count; m++) {
        const struct json *list = member_get(all, m, "enum");
        if (list == NULL)
            continue;
        if (json_kind(list) != JSON_ARRAY)
            return schema_fail(schema, STATUS_INVALID, all->members[m].place, "enum",
                               "it is an array of values");
        compared *= json_count(list) + 1;
        if (compared > COMPARED_MAX)
            return schema_fail(schema, STATUS_LIMIT, all->members[m].place, "enum",
                               "more than %d pairs of values are to be compared", COMPARED_MAX);
    }
    return true;
}

/* *found: there is an enum or a const. False after a failure, else the caller closes *out. */
static bool constants_open(struct schema *schema, const struct conjunction *all, uint32_t types,
                           struct constants *out, bool *found)
{
    *found = false;
    *out = (struct constants){.all = all, .types = types, .conditions = {.any_string = true}};
    if (!lists_check(schema, all))
        return false;
    while (out->member < all->count && !*found) {
        *found = member_get(all, out->member, "enum") != NULL ||
                 member_get(all, out->member, "const") != NULL;
        out->member += !*found;
    }
    return !*found ||
           (schema_bounds(schema, all, &out->conditions.bounds) &&
            schema_strings(schema, all, &out->conditions.any_string, &out->conditions.strings));
}

static void constants_close(struct constants *constants)
{
    language_free(&constants->conditions.strings);
}

bool schema_constant(struct schema *schema, const struct json *value, uint32_t place, uint32_t from,
                     uint32_t to)
{
    struct buffer text = {0};
    struct json_writer writer;
    json_writer_init(&writer, &text);
    if (json_put_value(&writer, value) == STATUS_OK)
        build_empty(schema->build, build_bytes(schema->build, from, text.data, text.size), to);
    else
        schema_fail(schema, STATUS_LIMIT, place, NULL, "a value is nested too deep");
    buffer_free(&text);
    return schema->build->status == STATUS_OK;
}

bool schema_constants(struct schema *schema, const struct conjunction *all, uint32_t types,
                      uint32_t from, uint32_t to, bool *found)
{
    struct constants constants;
    bool written = false;
    if (!constants_open(schema, all, types, &constants, found))
        return false;
    if (!*found)
        return true;
    const uint32_t place = all->members[constants.member].place;
    const char *keyword = constants_list(&constants) != NULL ? "enum" : "const";
    for (size_t i = 0; i < constants_count(&constants) && schema->build->status == STATUS_OK; i++) {
        const struct json *value = constants_at(schema, &constants, i);
        if (value != NULL)
            written = schema_constant(schema, value, place, from, to);
    }
    constants_close(&constants);
    if (!written)
        schema_unmet(schema, place, keyword, "none of the values fits the rest of the schema");
    return schema->build->status == STATUS_OK;
}

static bool is_listed(const struct json *const *values, uint32_t count, const struct json *value)
{
    for (uint32_t i = 0; i < count; i++)
        if (json_same(values[i], value))
            return true;
    return false;
}

bool schema_constants_list(struct schema *schema, const struct conjunction *all, uint32_t types,
                           uint32_t most, const struct json **values, uint32_t *count)
{
    struct constants constants;
    bool found;
    *count = 0;
    if (!constants_open(schema, all, types, &constants, &found))
        return false;
    if (!found) {
        *count = most + 1;
        return true;
    }
    for (size_t i = 0; i < constants_count(&constants) && *count <= most; i++) {
        const struct json *value = constants_at(schema, &constants, i);
        if (value == NULL || is_listed(values, *count, value))
            continue;
        if (*count < most)
            values[*count] = value;
        ++*count;
    }
    constants_close(&constants);
    return schema->build->status == STATUS_OK;
}
