/* Whether two conjunctions exclude one another, as oneOf needs it. Only what is plain to see
 * counts: types, values given by name, and members that objects of both must have or may not have.
 */
#include "base/check.h"
#include "model/text/grammar/grammar_schema_internal.h"

enum { DEPTH_MAX = 4, PAIRS_MAX = 1 << 17, COMPARED_MAX = 1 << 22 };

/* The values that the first enum or const names. */
static const struct json *named_value(const struct conjunction *all, size_t index, bool *any)
{
    for (uint32_t m = 0; m < all->count; m++) {
        const struct json *constant = member_get(all, m, "const");
        const struct json *list = member_get(all, m, "enum");
        *any = constant != NULL || (list != NULL && json_kind(list) == JSON_ARRAY);
        if (constant != NULL)
            return index == 0 ? constant : NULL;
        if (*any)
            return index < json_count(list) ? json_at(list, index) : NULL;
    }
    *any = false;
    return NULL;
}

static bool values_disjoint(struct schema *schema, const struct conjunction *a,
                            const struct conjunction *b)
{
    bool any_a;
    bool any_b;
    named_value(a, 0, &any_a);
    named_value(b, 0, &any_b);
    if (!any_a || !any_b)
        return false;
    const struct json *x;
    const struct json *y;
    for (size_t i = 0; (x = named_value(a, i, &any_a)) != NULL; i++)
        for (size_t j = 0; (y = named_value(b, j, &any_b)) != NULL; j++)
            if (++schema->compared > COMPARED_MAX || json_same(x, y))
                return false;
    return true;
}

/* The types that a conjunction allows by type, const and enum. */
static uint32_t types_of(const struct conjunction *all, struct schema *schema)
{
    uint32_t types = 0;
    bool any;
    const struct json *value = named_value(all, 0, &any);
    if (!any)
        return schema_types(schema, all, &types) ? types : 0;
    for (size_t i = 1; value != NULL; i++) {
        types |= schema_value_type(value);
        value = named_value(all, i, &any);
    }
    return types;
}

static bool requires(struct schema *schema, const struct conjunction *all, const char *name)
{
    for (uint32_t m = 0; m < all->count; m++) {
        const struct json *required = member_get(all, m, "required");
        const size_t count =
            required != NULL && json_kind(required) == JSON_ARRAY ? json_count(required) : 0;
        for (size_t i = 0; i < count && ++schema->compared <= COMPARED_MAX; i++) {
            size_t bytes;
            const struct json *item = json_at(required, i);
            if (json_kind(item) == JSON_STRING && strcmp(json_string(item, &bytes), name) == 0)
                return true;
        }
    }
    return false;
}

/* What holds for a member by its name; *closed: there is no such member. Patterns are not looked
 * at, so that less is known with them. */
static void member_values(struct schema *schema, const struct conjunction *all, const char *name,
                          struct conjunction *out, bool *closed)
{
    *out = (struct conjunction){.count = 0};
    *closed = false;
    for (uint32_t m = 0; m < all->count; m++) {
        const struct json *properties = member_get(all, m, "properties");
        const struct json *others = member_get(all, m, "additionalProperties");
        const struct json *value = properties != NULL && json_kind(properties) == JSON_OBJECT
                                       ? json_get(properties, name)
                                       : NULL;
        if (value != NULL)
            conjunction_add(schema, out, value, all->members[m].place, BUILD_NONE);
        else if (others != NULL && json_kind(others) == JSON_BOOL && !json_bool(others) &&
                 member_get(all, m, "patternProperties") == NULL)
            *closed = true;
    }
}

static bool objects_disjoint(struct schema *schema, const struct conjunction *a,
                             const struct conjunction *b, uint32_t depth)
{
    for (uint32_t m = 0; m < a->count; m++) {
        const struct json *required = member_get(a, m, "required");
        const size_t count =
            required != NULL && json_kind(required) == JSON_ARRAY ? json_count(required) : 0;
        for (size_t i = 0; i < count && ++schema->compared <= COMPARED_MAX; i++) {
            const struct json *item = json_at(required, i);
            size_t bytes;
            if (json_kind(item) != JSON_STRING)
                continue;
            const char *name = json_string(item, &bytes);
            struct conjunction in_a;
            struct conjunction in_b;
            bool closed_a;
            bool closed_b;
            member_values(schema, a, name, &in_a, &closed_a);
            member_values(schema, b, name, &in_b, &closed_b);
            if (closed_b ||
                (requires(schema, b, name) && schema_disjoint(schema, &in_a, &in_b, depth + 1)))
                return true;
        }
    }
    return false;
}

static bool numbers_disjoint(struct schema *schema, const struct conjunction *a,
                             const struct conjunction *b)
{
    struct number_bounds x;
    struct number_bounds y;
    if (!schema_bounds(schema, a, &x) || !schema_bounds(schema, b, &y))
        return false;
    const bool below = x.has_high && y.has_low &&
                       (x.high < y.low || (x.high == y.low && (x.high_open || y.low_open)));
    const bool above = y.has_high && x.has_low &&
                       (y.high < x.low || (y.high == x.low && (y.high_open || x.low_open)));
    return below || above;
}

bool schema_disjoint(struct schema *schema, const struct conjunction *a,
                     const struct conjunction *b, uint32_t depth)
{
    struct conjunction x = *a;
    struct conjunction y = *b;
    if (depth > DEPTH_MAX || ++schema->pairs > PAIRS_MAX || !conjunction_flatten(schema, &x) ||
        !conjunction_flatten(schema, &y))
        return false;
    if (x.never || y.never || values_disjoint(schema, &x, &y))
        return true;
    const uint32_t types = types_of(&x, schema) & types_of(&y, schema);
    if (types == 0)
        return schema->build->status == STATUS_OK;
    if ((types & ~(uint32_t)TYPE_NUMBER) == 0)
        return numbers_disjoint(schema, &x, &y);
    return types == TYPE_OBJECT &&
           (objects_disjoint(schema, &x, &y, depth) || objects_disjoint(schema, &y, &x, depth));
}
