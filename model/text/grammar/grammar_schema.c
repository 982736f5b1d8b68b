/* Conjunctions of JSON schemas; see the header. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "model/text/grammar/grammar_schema_internal.h"

enum { RULE_SLOTS = 1 << 14 };

/* Keywords that change what is valid and are not kept. */
static const char *const refused[] = {
    "not",           "if",       "dependentRequired", "dependentSchemas", "dependencies",
    "propertyNames", "contains", "unevaluatedItems",  "$dynamicRef",      "$recursiveRef",
    "disallow",      "extends",  "divisibleBy",
};

uint32_t schema_place(struct schema *schema, uint32_t parent, const char *key, uint32_t index)
{
    if (schema->place_count == SCHEMA_PLACES_MAX) {
        build_fail(schema->build, STATUS_LIMIT, "the schema has more than %d parts",
                   SCHEMA_PLACES_MAX);
        return 0;
    }
    if (schema->place_count == schema->place_capacity) {
        schema->place_capacity = schema->place_capacity > 0 ? schema->place_capacity * 2 : 64;
        schema->places = realloc(schema->places, schema->place_capacity * sizeof *schema->places);
        CHECK(schema->places != NULL);
    }
    schema->places[schema->place_count] = (struct schema_place){parent, key, index};
    return schema->place_count++;
}

const char *schema_path(const struct schema *schema, uint32_t place, const char *keyword,
                        char out[BUILD_PLACE_BYTES])
{
    enum { STEPS_SHOWN = 24, KEY_SHOWN = 40 };
    uint32_t steps[STEPS_SHOWN];
    uint32_t count = 0;
    int used = 0;
    while (place != BUILD_NONE && count < STEPS_SHOWN) {
        steps[count++] = place;
        place = schema->places[place].parent;
    }
    while (count > 0 && used < BUILD_PLACE_BYTES) {
        const struct schema_place *step = &schema->places[steps[--count]];
        const bool first = step->parent == BUILD_NONE;
        const size_t room = (size_t)(BUILD_PLACE_BYTES - used);
        used += step->key != NULL
                    ? snprintf(out + used, room, "%s%.*s", first ? "" : "/", KEY_SHOWN, step->key)
                    : snprintf(out + used, room, "/%u", step->index);
    }
    if (keyword != NULL && used < BUILD_PLACE_BYTES)
        snprintf(out + used, (size_t)(BUILD_PLACE_BYTES - used), "/%s", keyword);
    return out;
}

bool schema_fail(struct schema *schema, enum status status, uint32_t place, const char *keyword,
                 const char *format, ...)
{
    char path[BUILD_PLACE_BYTES];
    char text[ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return build_fail(schema->build, status, "%s: %s", schema_path(schema, place, keyword, path),
                      text);
}

bool schema_unmet(struct schema *schema, uint32_t place, const char *keyword, const char *sentence)
{
    char path[BUILD_PLACE_BYTES];
    if (schema->unmet[0] == '\0')
        snprintf(schema->unmet, sizeof schema->unmet, "%s: %s",
                 schema_path(schema, place, keyword, path), sentence);
    return false;
}

void conjunction_add(struct schema *schema, struct conjunction *all, const struct json *value,
                     uint32_t place, uint32_t from)
{
    const enum json_kind kind = json_kind(value);
    if (kind == JSON_BOOL) {
        if (!json_bool(value) && !all->never)
            all->never = !schema_unmet(schema, place, NULL, "false, which nothing fits");
        return;
    }
    if (kind != JSON_OBJECT) {
        schema_fail(schema, STATUS_INVALID, place, NULL,
                    "a schema is an object or a boolean, not %s", json_kind_name(kind));
        return;
    }
    for (uint32_t m = from; m != BUILD_NONE; m = all->members[m].from)
        if (all->members[m].schema == value) {
            schema_fail(schema, STATUS_INVALID, place, NULL, "this refers to itself for ever");
            return;
        }
    for (uint32_t i = 0; i < all->count; i++)
        if (all->members[i].schema == value)
            return;
    if (all->count == SCHEMA_MEMBERS_MAX) {
        schema_fail(schema, STATUS_LIMIT, place, NULL, "more than %d schemas hold for one value",
                    SCHEMA_MEMBERS_MAX);
        return;
    }
    all->members[all->count++] = (struct schema_member){value, place, 0, from};
}

/* A key of a JSON pointer: ~ and % undone. */
static bool key_decode(const char *begin, size_t bytes, struct buffer *out)
{
    buffer_clear(out);
    for (size_t i = 0; i < bytes; i++) {
        char c = begin[i];
        if (c == '%' && i + 2 < bytes) {
            char digits[3] = {begin[i + 1], begin[i + 2], '\0'};
            char *end;
            c = (char)strtoul(digits, &end, 16);
            if (end != digits + 2)
                return false;
            i += 2;
        } else if (c == '~') {
            if (i + 1 == bytes || (begin[i + 1] != '0' && begin[i + 1] != '1'))
                return false;
            c = begin[++i] == '0' ? '~' : '/';
        }
        buffer_add_char(out, c);
    }
    return out->size == 0 || memchr(out->data, '\0', out->size) == NULL;
}

static const struct json *step_into(const struct json *at, const struct buffer *key)
{
    if (json_kind(at) == JSON_OBJECT)
        return json_get(at, key->size > 0 ? key->data : "");
    if (json_kind(at) != JSON_ARRAY || key->size == 0 || key->size > 6)
        return NULL;
    char *end;
    const unsigned long index = strtoul(key->data, &end, 10);
    return *end == '\0' && key->data[0] != '-' && index < json_count(at) ? json_at(at, index)
                                                                         : NULL;
}

/* The schema that `#/...` names. */
static const struct json *reference_find(const struct schema *schema, const char *text)
{
    const struct json *at = schema->root;
    struct buffer key = {0};
    text++;
    while (at != NULL && *text == '/') {
        const size_t bytes = strcspn(text + 1, "/");
        if (!key_decode(text + 1, bytes, &key))
            at = NULL;
        else
            at = step_into(at, &key);
        text += bytes + 1;
    }
    if (*text != '\0')
        at = NULL;
    buffer_free(&key);
    return at;
}

/* Whether a schema within the root has an address of its own: references may mean what is below it
 * then. (A const or enum with such a key is taken for one.) */
static bool addresses_in(const struct json *value, bool root)
{
    void *cursor = NULL;
    const char *key;
    const struct json *item;
    if (json_kind(value) == JSON_ARRAY)
        for (size_t i = 0; i < json_count(value); i++)
            if (addresses_in(json_at(value, i), false))
                return true;
    if (json_kind(value) != JSON_OBJECT)
        return false;
    while (json_next(value, &cursor, &key, &item)) {
        if ((!root && json_kind(item) == JSON_STRING && strcmp(key, "$id") == 0) ||
            addresses_in(item, false))
            return true;
    }
    return false;
}

static void reference_add(struct schema *schema, struct conjunction *all, uint32_t member)
{
    const struct json *value = member_get(all, member, "$ref");
    const uint32_t place = all->members[member].place;
    size_t bytes;
    if (value == NULL)
        return;
    if (json_kind(value) != JSON_STRING) {
        schema_fail(schema, STATUS_INVALID, place, "$ref", "a reference is a string");
        return;
    }
    const char *text = json_string(value, &bytes);
    if (strlen(text) != bytes || text[0] != '#' || (text[1] != '\0' && text[1] != '/')) {
        schema_fail(schema, STATUS_UNSUPPORTED, place, "$ref",
                    "only references into the schema itself are supported (#/...), not '%.60s'",
                    text);
        return;
    }
    const bool moved = schema->moved;
    const struct json *target = reference_find(schema, text);
    if (target == NULL || moved) {
        schema_fail(schema, moved ? STATUS_UNSUPPORTED : STATUS_INVALID, place, "$ref",
                    moved ? "beside schemas with addresses of their own '%.80s' is not supported"
                          : "there is nothing at '%.80s'",
                    text);
        return;
    }
    conjunction_add(schema, all, target, schema_place(schema, BUILD_NONE, text, 0), member);
}

static void all_of_add(struct schema *schema, struct conjunction *all, uint32_t member)
{
    const struct json *list = member_get(all, member, "allOf");
    const uint32_t place = all->members[member].place;
    if (list == NULL)
        return;
    if (json_kind(list) != JSON_ARRAY || json_count(list) == 0) {
        schema_fail(schema, STATUS_INVALID, place, "allOf", "it is an array of schemas");
        return;
    }
    const uint32_t list_place = schema_place(schema, place, "allOf", 0);
    for (size_t i = 0; i < json_count(list) && schema->build->status == STATUS_OK; i++)
        conjunction_add(schema, all, json_at(list, i),
                        schema_place(schema, list_place, NULL, (uint32_t)i), member);
}

static bool keywords_check(struct schema *schema, const struct schema_member *member)
{
    for (size_t i = 0; i < ARRAY_COUNT(refused); i++)
        if (json_get(member->schema, refused[i]) != NULL)
            return schema_fail(schema, STATUS_UNSUPPORTED, member->place, refused[i],
                               "this keyword is not supported");
    const struct json *id = json_get(member->schema, "$id");
    if (id != NULL && member->schema != schema->root && json_kind(id) == JSON_STRING)
        return schema_fail(schema, STATUS_UNSUPPORTED, member->place, "$id",
                           "a schema within a schema with an address of its own is not supported");
    return true;
}

bool conjunction_flatten(struct schema *schema, struct conjunction *all)
{
    for (uint32_t m = 0; m < all->count && schema->build->status == STATUS_OK; m++) {
        struct schema_member *member = &all->members[m];
        if ((member->dealt & SCHEMA_REF) != 0)
            continue;
        member->dealt |= SCHEMA_REF | SCHEMA_ALL;
        if (!keywords_check(schema, member))
            return false;
        reference_add(schema, all, m);
        all_of_add(schema, all, m);
    }
    return schema->build->status == STATUS_OK;
}

static void values_write(struct schema *schema, struct conjunction *all, uint32_t from,
                         uint32_t to);

/* Every branch with the other members. oneOf: no value may fit two of them. */
static void branches_write(struct schema *schema, const struct conjunction *all, uint32_t member,
                           const char *keyword, uint32_t from, uint32_t to)
{
    const struct json *list = member_get(all, member, keyword);
    const uint32_t place = all->members[member].place;
    if (json_kind(list) != JSON_ARRAY || json_count(list) == 0) {
        schema_fail(schema, STATUS_INVALID, place, keyword, "it is an array of schemas");
        return;
    }
    const size_t count = json_count(list);
    const bool one = strcmp(keyword, "oneOf") == 0;
    const uint32_t list_place = schema_place(schema, place, keyword, 0);
    struct conjunction *branches = calloc(count, sizeof *branches);
    CHECK(branches != NULL);
    for (size_t i = 0; i < count && schema->build->status == STATUS_OK; i++) {
        branches[i] = *all;
        conjunction_add(schema, &branches[i], json_at(list, i),
                        schema_place(schema, list_place, NULL, (uint32_t)i), member);
        for (size_t j = 0; j < i && one && schema->build->status == STATUS_OK; j++)
            if (!schema_disjoint(schema, &branches[j], &branches[i], 0))
                schema_fail(schema, STATUS_UNSUPPORTED, place, "oneOf",
                            "a value may fit the branches %zu and %zu both; give them different "
                            "types, or a required property with different values, or write anyOf",
                            j, i);
    }
    for (size_t i = 0; i < count && schema->build->status == STATUS_OK; i++)
        values_write(schema, &branches[i], from, to);
    free(branches);
}

/* Writes what is left when no keyword combines schemas any more. */
static void types_write(struct schema *schema, const struct conjunction *all, uint32_t from,
                        uint32_t to)
{
    struct grammar_build *build = schema->build;
    uint32_t types;
    bool constants;
    if (!schema_types(schema, all, &types) ||
        !schema_constants(schema, all, types, from, to, &constants) || constants)
        return;
    if ((types & TYPE_NULL) != 0)
        build_empty(build, build_text(build, from, "null"), to);
    if ((types & TYPE_BOOL) != 0) {
        build_empty(build, build_text(build, from, "true"), to);
        build_empty(build, build_text(build, from, "false"), to);
    }
    if ((types & TYPE_NUMBER) != 0)
        schema_number(schema, all, types, from, to);
    if ((types & TYPE_STRING) != 0)
        schema_string(schema, all, from, to);
    if ((types & TYPE_ARRAY) != 0)
        schema_array(schema, all, from, to);
    if ((types & TYPE_OBJECT) != 0)
        schema_object(schema, all, from, to);
}

static void values_write(struct schema *schema, struct conjunction *all, uint32_t from, uint32_t to)
{
    struct grammar_build *build = schema->build;
    if (build->status != STATUS_OK)
        return;
    if (++schema->steps > SCHEMA_STEPS_MAX || ++schema->depth > SCHEMA_BRANCH_DEPTH) {
        schema_fail(schema, STATUS_LIMIT, all->count > 0 ? all->members[0].place : 0, NULL,
                    "the schema branches more than %d times, or more than %d deep",
                    SCHEMA_STEPS_MAX, SCHEMA_BRANCH_DEPTH);
        return;
    }
    bool branched = false;
    if (conjunction_flatten(schema, all) && !all->never) {
        for (uint32_t m = 0; m < all->count && !branched; m++) {
            struct schema_member *member = &all->members[m];
            const bool any =
                (member->dealt & SCHEMA_ANY) == 0 && member_get(all, m, "anyOf") != NULL;
            const bool one =
                (member->dealt & SCHEMA_ONE) == 0 && member_get(all, m, "oneOf") != NULL;
            branched = any || one;
            if (!branched)
                continue;
            member->dealt |= any ? SCHEMA_ANY : SCHEMA_ONE;
            branches_write(schema, all, m, any ? "anyOf" : "oneOf", from, to);
        }
        if (!branched)
            types_write(schema, all, from, to);
    }
    schema->depth--;
}

static int order(const void *a, const void *b)
{
    const struct schema_member *x = a;
    const struct schema_member *y = b;
    return x->schema < y->schema ? -1 : x->schema > y->schema;
}

static bool conjunction_same(const struct conjunction *a, const struct conjunction *b)
{
    bool same = a->count == b->count && a->never == b->never;
    for (uint32_t i = 0; i < a->count && same; i++)
        same = a->members[i].schema == b->members[i].schema;
    return same;
}

uint32_t schema_value(struct schema *schema, uint32_t from, const struct conjunction *all)
{
    struct grammar_build *build = schema->build;
    struct conjunction key = *all;
    const struct json *schemas[SCHEMA_MEMBERS_MAX];
    if (build->status != STATUS_OK)
        return from;
    if (key.count == 0 && !key.never)
        return json_call(build, from, schema->rules.value);
    qsort(key.members, key.count, sizeof *key.members, order);
    for (uint32_t i = 0; i < key.count; i++) {
        schemas[i] = key.members[i].schema;
        key.members[i].from = BUILD_NONE;
        key.members[i].dealt = 0;
    }
    uint32_t slot = (uint32_t)hash64(schemas, key.count * sizeof *schemas, key.never) % RULE_SLOTS;
    for (; schema->slots[slot] != 0; slot = (slot + 1) % RULE_SLOTS) {
        const struct schema_rule *known = schema->queue[schema->slots[slot] - 1];
        if (conjunction_same(&known->conjunction, &key))
            return json_call(build, from, known->rule);
    }
    if (schema->queue_count == schema->queue_capacity) {
        schema->queue_capacity = schema->queue_capacity > 0 ? schema->queue_capacity * 2 : 32;
        schema->queue = realloc(schema->queue, schema->queue_capacity * sizeof(*schema->queue));
        CHECK(schema->queue != NULL);
    }
    char path[BUILD_PLACE_BYTES];
    struct schema_rule *entry = malloc(sizeof *entry);
    CHECK(entry != NULL);
    entry->conjunction = key;
    entry->rule = build_rule(
        build, key.count > 0 ? schema_path(schema, key.members[0].place, NULL, path) : NULL);
    schema->queue[schema->queue_count++] = entry;
    schema->slots[slot] = schema->queue_count;
    return json_call(build, from, entry->rule);
}

void schema_build(struct grammar_build *build, const struct json *root, uint32_t from, uint32_t to)
{
    struct schema schema = {.build = build, .root = root, .moved = addresses_in(root, true)};
    struct conjunction all = {.count = 0};
    schema.slots = calloc(RULE_SLOTS, sizeof *schema.slots);
    CHECK(schema.slots != NULL);
    json_rules_build(build, &schema.rules);
    conjunction_add(&schema, &all, root, schema_place(&schema, BUILD_NONE, "#", 0), BUILD_NONE);
    build_empty(build, schema_value(&schema, from, &all), to);
    for (uint32_t i = 0; i < schema.queue_count && build->status == STATUS_OK; i++) {
        struct schema_rule *entry = schema.queue[i];
        struct conjunction values = entry->conjunction;
        values_write(&schema, &values, build->rules[entry->rule].start,
                     build->rules[entry->rule].final);
    }
    snprintf(build->unmet, sizeof build->unmet, "%s",
             schema.unmet[0] != '\0' ? schema.unmet : "#: no value that ends somewhere fits");
    for (uint32_t i = 0; i < schema.queue_count; i++)
        free(schema.queue[i]);
    free(schema.queue);
    free(schema.slots);
    free(schema.places);
}
