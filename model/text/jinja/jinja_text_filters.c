/* Filters on strings and numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/text/jinja/jinja_internal.h"
#include "model/text/unicode.h"

#define FILTER(name)                                                                               \
    static struct value name(struct jinja_run *run, struct value self, const struct value *a,      \
                             const struct args *args)

static bool given(struct value value)
{
    return value.kind != KIND_ABSENT && value.kind != KIND_NONE;
}

/* The string method of the same name. */
static struct value as_method(struct jinja_run *run, const char *name, struct value self,
                              const struct value *a, size_t count)
{
    const struct string text = {.data = name, .bytes = strlen(name)};
    struct value values[PARAMS_MAX];
    struct args args = {.items = values};
    while (args.count < count && a[args.count].kind != KIND_ABSENT) {
        values[args.count] = a[args.count];
        args.count++;
    }
    const struct value string = {.kind = KIND_STRING,
                                 .string = string_part(&run->heap, value_str(&run->heap, self), 0,
                                                       value_str(&run->heap, self)->bytes)
                                               .string};
    return builtin_call(run, string_method_find(&text), string, &args, "filter");
}

FILTER(filter_trim)
{
    return as_method(run, "strip", self, a, 1);
}
FILTER(filter_upper)
{
    return as_method(run, "upper", self, a, 0);
}
FILTER(filter_lower)
{
    return as_method(run, "lower", self, a, 0);
}
FILTER(filter_capitalize)
{
    return as_method(run, "capitalize", self, a, 0);
}
FILTER(filter_center)
{
    const struct value width = a[0].kind != KIND_ABSENT ? a[0] : value_int(80);
    return as_method(run, "center", self, &width, 1);
}
FILTER(filter_replace)
{
    const struct value values[] = {
        string_part(&run->heap, value_str(&run->heap, a[0]), 0, value_str(&run->heap, a[0])->bytes),
        string_part(&run->heap, value_str(&run->heap, a[1]), 0, value_str(&run->heap, a[1])->bytes),
        given(a[2]) ? a[2] : value_int(-1)};
    return as_method(run, "replace", self, values, 3);
}

FILTER(filter_string)
{
    const struct string *text = value_str(&run->heap, self);
    return string_part(&run->heap, text, 0, text->bytes);
}

/* The first character of each word large, words being what stands between these and spaces. */
FILTER(filter_title)
{
    const struct string *text = value_str(&run->heap, self);
    struct builder out = {.heap = &run->heap};
    static const struct value none[1];
    uint32_t point;
    for (size_t at = 0; at < text->bytes;) {
        size_t end = at;
        bool breaks = false;
        while (end < text->bytes && !breaks) {
            const size_t next = string_next(text, end, &point);
            breaks = unicode_is_space(point) || (point < 0x80 && strchr("-({[<", (int)point));
            if (!breaks || end == at)
                end = next;
        }
        const struct value word = string_part(&run->heap, text, at, end);
        builder_add_string(&out, as_method(run, "capitalize", word, none, 0).string);
        at = end;
    }
    return builder_value(&out);
}

/* Python's int() and float() of a string; false when it is none. */
static bool text_number(const struct string *text, int base, bool real, struct value *out)
{
    enum { DIGITS_MAX = 400 };
    char copy[DIGITS_MAX + 1];
    size_t count = 0, from = 0, to = text->bytes;
    while (from < to && strchr(" \t\n\r\v\f", text->data[from]) != NULL)
        from++;
    while (to > from && strchr(" \t\n\r\v\f", text->data[to - 1]) != NULL)
        to--;
    if (to - from > DIGITS_MAX || from == to)
        return false;
    for (size_t i = from; i < to; i++) {
        const char c = text->data[i];
        const bool inside = i > from && i + 1 < to && text->data[i - 1] != '_';
        if (c == '_' && inside)
            continue;
        if (c == '\0' || c == '_' || (real && (c == 'x' || c == 'X' || c == 'p' || c == '(')))
            return false;
        copy[count++] = c;
    }
    copy[count] = '\0';
    char *end;
    *out = real ? value_real(strtod(copy, &end)) : value_int(strtoll(copy, &end, base));
    return *end == '\0' && (real || (out->integer != INT64_MAX && out->integer != INT64_MIN));
}

static bool real_fits(double real)
{
    return real > -0x1p63 && real < 0x1p63;
}

FILTER(filter_int)
{
    const struct value otherwise = a[0].kind != KIND_ABSENT ? a[0] : value_int(0);
    const int64_t base = given(a[1]) ? value_as_int(&run->heap, a[1], "a base") : 10;
    struct value out;
    if (self.kind == KIND_INT || self.kind == KIND_BOOL)
        return value_int(value_as_int(&run->heap, self, "a number"));
    if (self.kind == KIND_FLOAT)
        return real_fits(self.real) ? value_int((int64_t)self.real) : otherwise;
    if (self.kind == KIND_UNDEFINED)
        value_use(&run->heap, self);
    if (self.kind != KIND_STRING || base < 2 || base > 36)
        return otherwise;
    if (text_number(self.string, (int)base, false, &out))
        return out;
    if (text_number(self.string, 10, true, &out) && real_fits(out.real))
        return value_int((int64_t)out.real);
    return otherwise;
}

FILTER(filter_float)
{
    struct value out;
    if (self.kind == KIND_UNDEFINED)
        value_use(&run->heap, self);
    if (value_is_number(self))
        return value_real(value_number(self));
    if (self.kind == KIND_STRING && text_number(self.string, 10, true, &out))
        return out;
    return a[0].kind != KIND_ABSENT ? a[0] : value_real(0);
}

FILTER(filter_abs)
{
    value_use(&run->heap, self);
    if (!value_is_number(self))
        jinja_fail(&run->heap, STATUS_INVALID, "bad operand type for abs(): '%s'",
                   value_type(self));
    if (self.kind == KIND_FLOAT)
        return value_real(fabs(self.real));
    const int64_t integer = value_as_int(&run->heap, self, "a number");
    return integer < 0 ? negative(run, value_int(integer)) : value_int(integer);
}

FILTER(filter_round)
{
    enum { PRECISION_MAX = 300 };
    struct jinja_heap *heap = &run->heap;
    const int64_t precision = given(a[0]) ? value_as_int(heap, a[0], "a precision") : 0;
    const struct string *method =
        given(a[1]) ? value_as_string(heap, a[1], "a method") : string_text(heap, "common").string;
    char text[PRECISION_MAX + 330];
    value_use(heap, self);
    if (!value_is_number(self))
        jinja_fail(heap, STATUS_INVALID, "type '%s' can not be rounded", value_type(self));
    if (precision > PRECISION_MAX || precision < -PRECISION_MAX)
        jinja_fail(heap, STATUS_LIMIT, "a precision of %lld is beyond %d, the limit",
                   (long long)precision, PRECISION_MAX);
    const double scale = pow(10, (double)precision);
    if (string_is(method, "ceil"))
        return value_real(ceil(value_number(self) * scale) / scale);
    if (string_is(method, "floor"))
        return value_real(floor(value_number(self) * scale) / scale);
    if (!string_is(method, "common"))
        jinja_fail(heap, STATUS_INVALID, "method must be common, ceil or floor");
    if (self.kind != KIND_FLOAT && precision >= 0)
        return value_int(value_as_int(heap, self, "a number"));
    if (precision < 0 || !isfinite(value_number(self))) {
        const double rounded = nearbyint(value_number(self) * scale) / scale;
        return self.kind == KIND_FLOAT ? value_real(rounded) : value_int((int64_t)rounded);
    }
    snprintf(text, sizeof text, "%.*f", (int)precision, self.real); // exact, halves to even
    return value_real(strtod(text, NULL));
}

FILTER(filter_indent)
{
    struct jinja_heap *heap = &run->heap;
    const struct value blank = string_text(heap, " ");
    const struct string *indent =
        a[0].kind == KIND_STRING
            ? a[0].string
            : arithmetic(run, OP_MULTIPLY, blank,
                         value_int(a[0].kind != KIND_ABSENT
                                       ? value_as_int(heap, a[0], "the width of an indent")
                                       : 4))
                  .string;
    struct builder text = {.heap = heap};
    builder_add_string(&text, value_as_string(heap, self, "what is indented"));
    builder_add_char(&text, '\n'); // or a line end at the end of the text would be lost
    const struct list *lines = string_lines(heap, builder_value(&text).string, false).list;
    struct builder out = {.heap = heap};
    for (size_t i = 0; i < lines->count; i++) {
        const struct string *line = lines->items[i].string;
        if (i > 0)
            builder_add_char(&out, '\n');
        if (i == 0 ? value_true(heap, a[1]) : line->bytes > 0 || value_true(heap, a[2]))
            builder_add_string(&out, indent);
        builder_add_string(&out, line);
    }
    return builder_value(&out);
}

FILTER(filter_escape)
{
    const struct string *text = string_escaped(&run->heap, value_str(&run->heap, self));
    return string_part(&run->heap, text, 0, text->bytes);
}

FILTER(filter_safe)
{
    struct value text = filter_string(run, self, a, args);
    text.string->safe = true;
    return text;
}

FILTER(filter_urlencode)
{
    static const char kept[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~/";
    const struct string *text = value_str(&run->heap, self);
    struct builder out = {.heap = &run->heap};
    for (size_t at = 0; at < text->bytes; at++) {
        char escape[4];
        snprintf(escape, sizeof escape, "%%%02X", (uint8_t)text->data[at]);
        if (text->data[at] != '\0' && strchr(kept, text->data[at]) != NULL)
            builder_add_string(&out, string_part(&run->heap, text, at, at + 1).string);
        else
            builder_add_text(&out, escape);
    }
    return builder_value(&out);
}

FILTER(filter_wordcount)
{
    const struct string *text = value_str(&run->heap, self);
    int64_t words = 0;
    bool inside = false;
    uint32_t point;
    jinja_charge(&run->heap, text->bytes / 16);
    for (size_t at = 0; at < text->bytes;) {
        at = string_next(text, at, &point);
        const bool is_word = unicode_is_word(point);
        words += is_word && !inside;
        inside = is_word;
    }
    return value_int(words);
}

FILTER(filter_format)
{
    const struct string *text = value_str(&run->heap, self);
    if (args->named_count == 0)
        return string_format(run, text, args->items, args->count, NULL);
    struct value mapping = value_dict(&run->heap);
    for (size_t i = 0; i < args->named_count; i++)
        dict_set(&run->heap, mapping.dict,
                 string_part(&run->heap, args->named[i].name, 0, args->named[i].name->bytes),
                 args->named[i].value);
    return string_format(run, text, &mapping, 1, &mapping);
}

FILTER(filter_truncate)
{
    struct jinja_heap *heap = &run->heap;
    const struct string *text = value_str(heap, self);
    const int64_t length = given(a[0]) ? value_as_int(heap, a[0], "a length") : 255;
    const struct string *end =
        given(a[2]) ? value_as_string(heap, a[2], "an end") : string_text(heap, "...").string;
    const int64_t leeway = given(a[3]) ? value_as_int(heap, a[3], "a leeway") : 5;
    const int64_t count = (int64_t)string_count(heap, text);
    const int64_t kept = length - (int64_t)string_count(heap, end);
    if (kept < 0 || leeway < 0)
        jinja_fail(heap, STATUS_INVALID, "a text can not be truncated to %lld characters",
                   (long long)length);
    if (count <= length || count - length <= leeway)
        return string_part(heap, text, 0, text->bytes);
    size_t to = string_offset(text, (size_t)kept);
    if (!value_true(heap, a[1])) { // whole words
        size_t space = to;
        while (space > 0 && text->data[space - 1] != ' ')
            space--;
        to = space > 0 ? space - 1 : to;
    }
    struct builder out = {.heap = heap};
    builder_add_string(&out, string_part(heap, text, 0, to).string);
    builder_add_string(&out, end);
    return builder_value(&out);
}

FILTER(filter_pprint)
{
    struct builder out = {.heap = &run->heap};
    print_repr(&out, self);
    return builder_value(&out);
}

static const struct builtin filters[] = {
    {"trim", "chars", 0, filter_trim},
    {"upper", "", 0, filter_upper},
    {"lower", "", 0, filter_lower},
    {"capitalize", "", 0, filter_capitalize},
    {"title", "", 0, filter_title},
    {"center", "width", 0, filter_center},
    {"replace", "old new count", 2, filter_replace},
    {"string", "", 0, filter_string},
    {"safe", "", 0, filter_safe},
    {"int", "default base", 0, filter_int},
    {"float", "default", 0, filter_float},
    {"abs", "", 0, filter_abs},
    {"round", "precision method", 0, filter_round},
    {"indent", "width first blank", 0, filter_indent},
    {"escape", "", 0, filter_escape},
    {"e", "", 0, filter_escape},
    {"forceescape", "", 0, filter_escape},
    {"urlencode", "", 0, filter_urlencode},
    {"wordcount", "", 0, filter_wordcount},
    {"format", "*", 0, filter_format},
    {"truncate", "length killwords end leeway", 0, filter_truncate},
    {"pprint", "", 0, filter_pprint},
};

const struct builtin *text_filter_find(const struct string *name)
{
    return builtin_find(filters, ARRAY_COUNT(filters), name);
}
