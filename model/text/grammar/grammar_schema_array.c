/* Arrays: items by their place, and how many there are. */
#include "base/check.h"
#include "model/text/grammar/grammar_schema_internal.h"

/* The items before those that `items` is for: prefixItems, or items as an array in older drafts. */
static const struct json *prefix_of(const struct conjunction *all, uint32_t member,
                                    const char **keyword)
{
    const struct json *items = member_get(all, member, "items");
    *keyword = "prefixItems";
    if (items == NULL || json_kind(items) != JSON_ARRAY)
        return member_get(all, member, "prefixItems");
    *keyword = "items";
    return items;
}

static bool prefix_count(struct schema *schema, const struct conjunction *all, size_t *count)
{
    *count = 0;
    for (uint32_t m = 0; m < all->count; m++) {
        const char *keyword;
        const struct json *prefix = prefix_of(all, m, &keyword);
        if (prefix != NULL && json_kind(prefix) != JSON_ARRAY)
            return schema_fail(schema, STATUS_INVALID, all->members[m].place, keyword,
                               "it is an array of schemas");
        if (prefix != NULL && json_count(prefix) > *count)
            *count = json_count(prefix);
    }
    return true;
}

/* What holds for the item at an index. */
static void item_at(struct schema *schema, const struct conjunction *all, size_t index,
                    struct conjunction *out)
{
    *out = (struct conjunction){.count = 0};
    for (uint32_t m = 0; m < all->count; m++) {
        const char *keyword;
        const struct json *prefix = prefix_of(all, m, &keyword);
        const bool older = strcmp(keyword, "items") == 0;
        const char *rest_keyword = older ? "additionalItems" : "items";
        const struct json *rest = member_get(all, m, rest_keyword);
        const uint32_t place = all->members[m].place;
        if (prefix != NULL && index < json_count(prefix))
            conjunction_add(schema, out, json_at(prefix, index),
                            schema_place(schema, schema_place(schema, place, keyword, 0), NULL,
                                         (uint32_t)index),
                            BUILD_NONE);
        else if (rest != NULL)
            conjunction_add(schema, out, rest, schema_place(schema, place, rest_keyword, 0),
                            BUILD_NONE);
    }
}

static bool unique_check(struct schema *schema, const struct conjunction *all, uint32_t most)
{
    for (uint32_t m = 0; m < all->count; m++) {
        const struct json *unique = member_get(all, m, "uniqueItems");
        if (unique != NULL && json_kind(unique) != JSON_BOOL)
            return schema_fail(schema, STATUS_INVALID, all->members[m].place, "uniqueItems",
                               "it is true or false");
        if (unique != NULL && json_kind(unique) == JSON_BOOL && json_bool(unique) && most > 1)
            return schema_fail(schema, STATUS_UNSUPPORTED, all->members[m].place, "uniqueItems",
                               "this keyword is supported for at most one item only");
    }
    return true;
}

/* Items between the brackets: `count` of them written one by one, then any number of the same. */
static void items_write(struct schema *schema, const struct conjunction *all, uint32_t from,
                        uint32_t to, uint32_t least, uint32_t most, size_t prefix)
{
    struct grammar_build *build = schema->build;
    const size_t written = most != UINT32_MAX ? most : least > prefix ? least : prefix;
    const uint32_t open = build_text(build, from, "[");
    const uint32_t end = build_state(build);
    struct conjunction item;
    const uint32_t begin = json_call(build, open, schema->rules.blank);
    uint32_t at = build_state(build); // not `begin`: behind a comma an item has to come
    build_empty(build, begin, at);
    if (least == 0)
        build_empty(build, begin, end);
    for (size_t i = 0; i < written && build->status == STATUS_OK; i++) {
        item_at(schema, all, i, &item);
        if (i > 0)
            at = json_call(build, build_text(build, at, ","), schema->rules.blank);
        at = schema_value(schema, at, &item);
        if (i + 1 >= least)
            build_empty(build, json_call(build, at, schema->rules.blank), end);
    }
    if (most == UINT32_MAX) {
        item_at(schema, all, prefix, &item);
        const uint32_t next =
            written > 0 ? json_call(build, build_text(build, at, ","), schema->rules.blank) : at;
        const uint32_t behind = schema_value(schema, next, &item);
        build_empty(build, json_call(build, behind, schema->rules.blank), end);
        build_empty(build, json_call(build, build_text(build, behind, ","), schema->rules.blank),
                    next);
    }
    build_empty(build, build_text(build, end, "]"), to);
}

void schema_array(struct schema *schema, const struct conjunction *all, uint32_t from, uint32_t to)
{
    uint32_t least = 0;
    uint32_t most = UINT32_MAX;
    size_t prefix;
    const uint32_t place = all->count > 0 ? all->members[0].place : 0;
    if (!schema_count(schema, all, "minItems", true, &least) ||
        !schema_count(schema, all, "maxItems", false, &most) ||
        !prefix_count(schema, all, &prefix) || !unique_check(schema, all, most))
        return;
    if (least > most) {
        schema_unmet(schema, place, "minItems", "it is over maxItems");
        return;
    }
    if (least > GRAMMAR_REPEAT_MAX || (most > GRAMMAR_REPEAT_MAX && most != UINT32_MAX)) {
        schema_fail(schema, STATUS_LIMIT, place,
                    least > GRAMMAR_REPEAT_MAX ? "minItems" : "maxItems",
                    "more than %d items are over the limit", GRAMMAR_REPEAT_MAX);
        return;
    }
    items_write(schema, all, from, to, least, most, prefix);
}
