/* What stands behind `is`. */
#include "model/text/jinja/jinja_internal.h"
#include "model/text/unicode.h"

#define TEST(name)                                                                                 \
    static struct value name(struct jinja_run *run, struct value self, const struct value *a,      \
                             const struct args *args)

TEST(is_defined)
{
    return value_bool(self.kind != KIND_UNDEFINED);
}
TEST(is_undefined)
{
    return value_bool(self.kind == KIND_UNDEFINED);
}
TEST(is_none)
{
    return value_bool(self.kind == KIND_NONE);
}
TEST(is_string)
{
    return value_bool(self.kind == KIND_STRING);
}
TEST(is_mapping)
{
    return value_bool(self.kind == KIND_DICT);
}
TEST(is_number)
{
    return value_bool(value_is_number(self));
}
TEST(is_integer)
{
    return value_bool(self.kind == KIND_INT);
}
TEST(is_float)
{
    return value_bool(self.kind == KIND_FLOAT);
}
TEST(is_boolean)
{
    return value_bool(self.kind == KIND_BOOL);
}
TEST(is_true)
{
    return value_bool(self.kind == KIND_BOOL && self.boolean);
}
TEST(is_false)
{
    return value_bool(self.kind == KIND_BOOL && !self.boolean);
}
TEST(is_sequence)
{
    return value_bool(self.kind == KIND_STRING || self.kind == KIND_DICT ||
                      self.kind == KIND_UNDEFINED || value_is_sequence(self));
}
TEST(is_iterable)
{
    return value_bool(self.kind == KIND_STRING || self.kind == KIND_DICT ||
                      self.kind == KIND_UNDEFINED || self.kind == KIND_VIEW ||
                      self.kind == KIND_GENERATOR || self.kind == KIND_LOOP ||
                      value_is_sequence(self));
}
TEST(is_callable)
{
    return value_bool(self.kind == KIND_BUILTIN || self.kind == KIND_MACRO ||
                      self.kind == KIND_LOOP || self.kind == KIND_JOINER ||
                      self.kind == KIND_UNDEFINED);
}
TEST(is_sameas)
{
    if (self.kind != a[0].kind)
        return value_bool(false);
    switch (self.kind) {
    case KIND_NONE:
    case KIND_BOOL:
    case KIND_INT:
        return value_bool(value_equal(&run->heap, self, a[0]));
    case KIND_STRING: // Python shares equal short strings, most of the time
        return value_bool(value_equal(&run->heap, self, a[0]));
    default:
        return value_bool(self.list == a[0].list);
    }
}
TEST(is_divisible)
{
    return value_bool(value_number(arithmetic(run, OP_MODULO, self, a[0])) == 0);
}
TEST(is_even)
{
    return value_bool(value_number(arithmetic(run, OP_MODULO, self, value_int(2))) == 0);
}
TEST(is_odd)
{
    return value_bool(value_number(arithmetic(run, OP_MODULO, self, value_int(2))) == 1);
}
TEST(is_in)
{
    return value_bool(value_contains(&run->heap, a[0], self));
}
TEST(is_eq)
{
    return value_bool(value_equal(&run->heap, self, a[0]));
}
TEST(is_ne)
{
    return value_bool(!value_equal(&run->heap, self, a[0]));
}
TEST(is_lt)
{
    return value_bool(value_compare(&run->heap, self, a[0], "<") < 0);
}
TEST(is_le)
{
    return value_bool(value_compare(&run->heap, self, a[0], "<=") <= 0);
}
TEST(is_gt)
{
    return value_bool(value_compare(&run->heap, self, a[0], ">") > 0);
}
TEST(is_ge)
{
    return value_bool(value_compare(&run->heap, self, a[0], ">=") >= 0);
}

static struct value has_case(struct jinja_run *run, struct value value, enum unicode_case wanted)
{
    const struct string *text = value_str(&run->heap, value);
    bool cased = false;
    uint32_t point;
    jinja_charge(&run->heap, text->bytes / 16);
    for (size_t at = 0; at < text->bytes;) {
        at = string_next(text, at, &point);
        const enum unicode_case is = unicode_case(point);
        if (is != UNICODE_CASE_NONE && is != wanted)
            return value_bool(false);
        cased |= is == wanted;
    }
    return value_bool(cased);
}
TEST(is_lower)
{
    return has_case(run, self, UNICODE_CASE_LOWER);
}
TEST(is_upper)
{
    return has_case(run, self, UNICODE_CASE_UPPER);
}
TEST(is_filter)
{
    return value_bool(self.kind == KIND_STRING && filter_find(self.string) != NULL);
}
TEST(is_test)
{
    return value_bool(self.kind == KIND_STRING && test_find(self.string) != NULL);
}
TEST(is_escaped)
{
    return value_bool(self.kind == KIND_STRING && self.string->safe);
}

static const struct builtin tests[] = {
    {"defined", "", 0, is_defined},
    {"undefined", "", 0, is_undefined},
    {"none", "", 0, is_none},
    {"string", "", 0, is_string},
    {"mapping", "", 0, is_mapping},
    {"number", "", 0, is_number},
    {"integer", "", 0, is_integer},
    {"float", "", 0, is_float},
    {"boolean", "", 0, is_boolean},
    {"true", "", 0, is_true},
    {"false", "", 0, is_false},
    {"sequence", "", 0, is_sequence},
    {"iterable", "", 0, is_iterable},
    {"callable", "", 0, is_callable},
    {"sameas", "other", 1, is_sameas},
    {"divisibleby", "num", 1, is_divisible},
    {"even", "", 0, is_even},
    {"odd", "", 0, is_odd},
    {"in", "seq", 1, is_in},
    {"eq", "other", 1, is_eq},
    {"equalto", "other", 1, is_eq},
    {"==", "other", 1, is_eq},
    {"ne", "other", 1, is_ne},
    {"!=", "other", 1, is_ne},
    {"lt", "other", 1, is_lt},
    {"lessthan", "other", 1, is_lt},
    {"<", "other", 1, is_lt},
    {"le", "other", 1, is_le},
    {"<=", "other", 1, is_le},
    {"gt", "other", 1, is_gt},
    {"greaterthan", "other", 1, is_gt},
    {">", "other", 1, is_gt},
    {"ge", "other", 1, is_ge},
    {">=", "other", 1, is_ge},
    {"lower", "", 0, is_lower},
    {"upper", "", 0, is_upper},
    {"filter", "", 0, is_filter},
    {"test", "", 0, is_test},
    {"escaped", "", 0, is_escaped},
};

const struct builtin *test_find(const struct string *name)
{
    return builtin_find(tests, ARRAY_COUNT(tests), name);
}
