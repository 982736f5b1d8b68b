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

enum { UNIQUE_VALUES_MAX = 10 };

/* Items no two of which are the same, of values that are few. */
struct unique {
    bool wanted;
    uint32_t place;
    const struct json *values[UNIQUE_VALUES_MAX];
    uint32_t count;
};

static bool unique_find(struct schema *schema, const struct conjunction *all, struct unique *out)
{
    *out = (struct unique){.wanted = false};
    for (uint32_t m = 0; m < all->count; m++) {
        const struct json *unique = member_get(all, m, "uniqueItems");
        if (unique == NULL)
            continue;
        if (json_kind(unique) != JSON_BOOL)
            return schema_fail(schema, STATUS_INVALID, all->members[m].place, "uniqueItems",
                               "it is true or false");
        if (!json_bool(unique))
            continue;
        out->wanted = true;
        out->place = all->members[m].place;
    }
    return true;
}

static bool has_branches(const struct conjunction *all)
{
    for (uint32_t m = 0; m < all->count; m++)
        if (member_get(all, m, "anyOf") != NULL || member_get(all, m, "oneOf") != NULL)
            return true;
    return false;
}

/* The values that items may have. */
static bool unique_values(struct schema *schema, const struct conjunction *all, size_t prefix,
                          struct unique *unique)
{
    struct conjunction item;
    uint32_t types;
    item_at(schema, all, 0, &item);
    if (!conjunction_flatten(schema, &item) || !schema_types(schema, &item, &types))
        return false;
    unique->count = UNIQUE_VALUES_MAX + 1;
    if (prefix == 0 && !item.never && !has_branches(&item) &&
        !schema_constants_list(schema, &item, types, UNIQUE_VALUES_MAX, unique->values,
                               &unique->count))
        return false;
    return unique->count <= UNIQUE_VALUES_MAX ||
           schema_fail(schema, STATUS_UNSUPPORTED, unique->place, "uniqueItems",
                       "this keyword is supported for at most one item, or for items that are one "
                       "of at most %d values by an enum",
                       UNIQUE_VALUES_MAX);
}

/* Items between the brackets: a state for each set of values that are there. */
static void unique_write(struct schema *schema, const struct unique *unique, uint32_t from,
                         uint32_t to, uint32_t least, uint32_t most)
{
    struct grammar_build *build = schema->build;
    uint32_t rules[UNIQUE_VALUES_MAX] = {0}, behind[1 << UNIQUE_VALUES_MAX] = {0};
    const uint32_t end = build_state(build), sets = 1u << unique->count;
    for (uint32_t i = 0; i < unique->count && build->status == STATUS_OK; i++) {
        rules[i] = build_rule(build, NULL);
        if (build->status == STATUS_OK)
            schema_constant(schema, unique->values[i], unique->place, build->rules[rules[i]].start,
                            build->rules[rules[i]].final);
    }
    for (uint32_t set = 0; set < sets; set++)
        behind[set] = build_state(build);
    build_empty(build, build_text(build, from, "["), behind[0]);
    for (uint32_t set = 0; set < sets && build->status == STATUS_OK; set++) {
        const uint32_t count = (uint32_t)__builtin_popcount(set);
        if (count > most)
            continue;
        if (count >= least)
            build_empty(build, json_call(build, behind[set], schema->rules.blank), end);
        if (count == most)
            continue;
        const uint32_t comma = set == 0 ? behind[0] : build_text(build, behind[set], ",");
        const uint32_t at = json_call(build, comma, schema->rules.blank);
        for (uint32_t i = 0; i < unique->count; i++)
            if ((set >> i & 1) == 0)
                build_call(build, at, behind[set | 1u << i], rules[i]);
    }
    build_empty(build, build_text(build, end, "]"), to);
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
    struct unique unique;
    const uint32_t place = all->count > 0 ? all->members[0].place : 0;
    if (!schema_count(schema, all, "minItems", true, &least) ||
        !schema_count(schema, all, "maxItems", false, &most) ||
        !prefix_count(schema, all, &prefix) || !unique_find(schema, all, &unique))
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
    if (!unique.wanted || most <= 1) {
        items_write(schema, all, from, to, least, most, prefix);
        return;
    }
    if (!unique_values(schema, all, prefix, &unique))
        return;
    if (least > unique.count)
        schema_unmet(schema, unique.place, "uniqueItems", "minItems is over the values there are");
    else
        unique_write(schema, &unique, from, to, least, most);
}
