/* Values as text: Python's str() and repr(), and json.dumps(). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/text/jinja/jinja_internal.h"
#include "model/text/unicode.h"

enum { REAL_DIGITS_MAX = 17, REAL_PLAIN_BELOW = 16, REAL_PLAIN_FROM = -4 };

/* The shortest digits that read back as the same number, as Python writes them. */
void print_real(struct builder *builder, double real)
{
    char text[40], digits[REAL_DIGITS_MAX + 2];
    if (isnan(real) || isinf(real)) {
        builder_add_text(builder, isnan(real) ? "nan" : real > 0 ? "inf" : "-inf");
        return;
    }
    enum { STEPS = 8 }; /* of the tries below */
    int precision = 1;
    jinja_charge(builder->heap, STEPS);
    do {
        snprintf(text, sizeof text, "%.*e", precision - 1, real);
    } while (strtod(text, NULL) != real && ++precision <= REAL_DIGITS_MAX);
    const char *from = text;
    if (*from == '-') {
        builder_add_char(builder, '-');
        from++;
    }
    const char *mantissa_end = strchr(from, 'e');
    const int exponent = atoi(mantissa_end + 1);
    int count = 0;
    for (; from < mantissa_end; from++)
        if (*from != '.')
            digits[count++] = *from;
    digits[count] = '\0';
    if (exponent < REAL_PLAIN_FROM || exponent >= REAL_PLAIN_BELOW) {
        snprintf(text, sizeof text, "%c%s%se%c%02d", digits[0], count > 1 ? "." : "", digits + 1,
                 exponent < 0 ? '-' : '+', abs(exponent));
        builder_add_text(builder, text);
        return;
    }
    if (exponent < 0) {
        builder_add_text(builder, "0.");
        for (int i = -1; i > exponent; i--)
            builder_add_char(builder, '0');
        builder_add_text(builder, digits);
        return;
    }
    for (int i = 0; i < count || i <= exponent; i++) {
        if (i == exponent + 1)
            builder_add_char(builder, '.');
        builder_add_char(builder, i < count ? digits[i] : '0');
    }
    if (count <= exponent + 1)
        builder_add_text(builder, ".0");
}

/* The marks of a part of a string. */
static void part_add(struct builder *builder, const struct string *string, size_t from, size_t to)
{
    builder_add(builder, string->data + from, to - from,
                string->marks != NULL ? string->marks + from : NULL, string->origin);
}

static bool has_byte(const struct string *string, char c)
{
    return string->bytes > 0 && memchr(string->data, c, string->bytes) != NULL;
}

static void string_repr(struct builder *builder, const struct string *string)
{
    const char quote = has_byte(string, '\'') && !has_byte(string, '"') ? '"' : '\'';
    size_t done = 0;
    builder_add_char(builder, quote);
    for (size_t at = 0; at < string->bytes;) {
        uint32_t point;
        char escape[12] = "";
        const size_t next = string_next(string, at, &point);
        if (point == (uint8_t)quote || point == '\\')
            snprintf(escape, sizeof escape, "\\%c", (char)point);
        else if (point == '\n' || point == '\r' || point == '\t')
            snprintf(escape, sizeof escape, "\\%c",
                     point == '\n'   ? 'n'
                     : point == '\r' ? 'r'
                                     : 't');
        else if (!unicode_is_printable(point))
            snprintf(escape, sizeof escape,
                     point < 0x100     ? "\\x%02x"
                     : point < 0x10000 ? "\\u%04x"
                                       : "\\U%08x",
                     point);
        if (escape[0] != '\0') {
            part_add(builder, string, done, at);
            builder_add_text(builder, escape);
            done = next;
        }
        at = next;
    }
    part_add(builder, string, done, string->bytes);
    builder_add_char(builder, quote);
}

static void list_repr(struct builder *builder, struct value value, const char *open,
                      const char *close)
{
    builder_add_text(builder, open);
    for (size_t i = 0; i < value.list->count; i++) {
        if (i > 0)
            builder_add_text(builder, ", ");
        print_repr(builder, value.list->items[i]);
    }
    if (value.kind == KIND_TUPLE && value.list->count == 1)
        builder_add_char(builder, ',');
    builder_add_text(builder, close);
}

static void dict_repr(struct builder *builder, const struct dict *dict)
{
    builder_add_char(builder, '{');
    for (size_t i = 0; i < dict->count; i++) {
        if (i > 0)
            builder_add_text(builder, ", ");
        print_repr(builder, dict->entries[i].key);
        builder_add_text(builder, ": ");
        print_repr(builder, dict->entries[i].value);
    }
    builder_add_char(builder, '}');
}

static void range_repr(struct builder *builder, const struct list *range)
{
    char text[96];
    if (range->step == 1)
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ")", range->start, range->stop);
    else
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", range->start,
                 range->stop, range->step);
    builder_add_text(builder, text);
}

void print_repr(struct builder *builder, struct value value)
{
    char text[32];
    jinja_enter(builder->heap);
    jinja_charge(builder->heap, 1);
    switch (value.kind) {
    case KIND_UNDEFINED:
        builder_add_text(builder, "Undefined");
        break;
    case KIND_NONE:
        builder_add_text(builder, "None");
        break;
    case KIND_BOOL:
        builder_add_text(builder, value.boolean ? "True" : "False");
        break;
    case KIND_INT:
        snprintf(text, sizeof text, "%" PRId64, value.integer);
        builder_add_text(builder, text);
        break;
    case KIND_FLOAT:
        print_real(builder, value.real);
        break;
    case KIND_STRING:
        string_repr(builder, value.string);
        break;
    case KIND_LIST:
        list_repr(builder, value, "[", "]");
        break;
    case KIND_TUPLE:
        list_repr(builder, value, "(", ")");
        break;
    case KIND_RANGE:
        range_repr(builder, value.list);
        break;
    case KIND_VIEW:
        list_repr(builder, value, "dict_view([", "])");
        break;
    case KIND_DICT:
        dict_repr(builder, value.dict);
        break;
    case KIND_NAMESPACE:
        builder_add_text(builder, "<Namespace ");
        dict_repr(builder, value.dict);
        builder_add_char(builder, '>');
        break;
    default: // Python would print an address
        builder_add_char(builder, '<');
        builder_add_text(builder, value_type(value));
        builder_add_char(builder, '>');
    }
    jinja_leave(builder->heap);
}

void print_value(struct builder *builder, struct value value)
{
    if (value.kind == KIND_STRING)
        builder_add_string(builder, value.string);
    else if (value.kind != KIND_UNDEFINED)
        print_repr(builder, value);
}

const struct string *value_str(struct jinja_heap *heap, struct value value)
{
    struct builder builder = {.heap = heap};
    if (value.kind == KIND_STRING)
        return value.string;
    print_value(&builder, value);
    return builder_value(&builder).string;
}

static void json_escape(char out[16], uint32_t point)
{
    static const char short_ones[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    for (size_t i = 0; short_ones[i] != '\0'; i += 2) {
        if (point == (uint8_t)short_ones[i]) {
            snprintf(out, 16, "\\%c", short_ones[i + 1]);
            return;
        }
    }
    if (point >= 0x10000) // as a pair
        snprintf(out, 16, "\\u%04x\\u%04x", 0xd7c0 + (point >> 10), 0xdc00 + (point & 0x3ff));
    else
        snprintf(out, 16, "\\u%04x", point);
}

static void json_string_add(struct builder *builder, const struct string *string, bool ascii)
{
    size_t done = 0;
    builder_add_char(builder, '"');
    for (size_t at = 0; at < string->bytes;) {
        uint32_t point;
        const size_t next = string_next(string, at, &point);
        if (point < ' ' || point == '"' || point == '\\' || (ascii && point >= 0x7f)) {
            char escape[16];
            if (point != 0x7f) {
                json_escape(escape, point);
                part_add(builder, string, done, at);
                builder_add_text(builder, escape);
                done = next;
            }
        }
        at = next;
    }
    part_add(builder, string, done, string->bytes);
    builder_add_char(builder, '"');
}

static void json_break(struct builder *builder, const struct json_style *style, uint32_t level)
{
    if (style->indent.kind == KIND_NONE)
        return;
    builder_add_char(builder, '\n');
    for (uint32_t i = 0; i < level; i++)
        builder_add_string(builder, style->indent.string);
}

static void json_key_add(struct builder *builder, struct value key, const struct json_style *style)
{
    if (key.kind == KIND_STRING) {
        json_string_add(builder, key.string, style->ascii);
        return;
    }
    if (key.kind != KIND_NONE && !value_is_number(key))
        jinja_fail(builder->heap, STATUS_INVALID,
                   "keys of JSON must be str, int, float, bool or None, not '%s'", value_type(key));
    builder_add_char(builder, '"');
    print_json(builder, key, style, 0);
    builder_add_char(builder, '"');
}

static int entries_order(struct jinja_heap *heap, const struct dict_entry *a,
                         const struct dict_entry *b)
{
    return value_compare(heap, a->key, b->key, "<");
}

/* By insertion into a sorted copy from the back: keys are few, or in order already. */
static const struct dict *dict_sorted(struct jinja_heap *heap, const struct dict *dict)
{
    struct dict *sorted = jinja_take(heap, sizeof *sorted);
    sorted->entries = jinja_take(heap, (dict->count + 1) * sizeof *sorted->entries);
    for (size_t i = 0; i < dict->count; i++) {
        size_t at = sorted->count++;
        for (; at > 0 && entries_order(heap, &sorted->entries[at - 1], &dict->entries[i]) > 0; at--)
            sorted->entries[at] = sorted->entries[at - 1];
        sorted->entries[at] = dict->entries[i];
    }
    return sorted;
}

static void json_dict_add(struct builder *builder, const struct dict *dict,
                          const struct json_style *style, uint32_t level)
{
    if (style->sort_keys)
        dict = dict_sorted(builder->heap, dict);
    builder_add_char(builder, '{');
    for (size_t i = 0; i < dict->count; i++) {
        if (i > 0)
            builder_add_string(builder, style->item_separator);
        json_break(builder, style, level + 1);
        json_key_add(builder, dict->entries[i].key, style);
        builder_add_string(builder, style->key_separator);
        print_json(builder, dict->entries[i].value, style, level + 1);
    }
    if (dict->count > 0)
        json_break(builder, style, level);
    builder_add_char(builder, '}');
}

static void json_list_add(struct builder *builder, const struct list *list,
                          const struct json_style *style, uint32_t level)
{
    builder_add_char(builder, '[');
    for (size_t i = 0; i < list->count; i++) {
        if (i > 0)
            builder_add_string(builder, style->item_separator);
        json_break(builder, style, level + 1);
        print_json(builder, list->items[i], style, level + 1);
    }
    if (list->count > 0)
        json_break(builder, style, level);
    builder_add_char(builder, ']');
}

void print_json(struct builder *builder, struct value value, const struct json_style *style,
                uint32_t level)
{
    jinja_enter(builder->heap);
    jinja_charge(builder->heap, 1);
    switch (value.kind) {
    case KIND_NONE:
        builder_add_text(builder, "null");
        break;
    case KIND_BOOL:
        builder_add_text(builder, value.boolean ? "true" : "false");
        break;
    case KIND_INT:
        print_repr(builder, value);
        break;
    case KIND_FLOAT:
        if (isnan(value.real))
            builder_add_text(builder, "NaN");
        else if (isinf(value.real))
            builder_add_text(builder, value.real > 0 ? "Infinity" : "-Infinity");
        else
            print_real(builder, value.real);
        break;
    case KIND_STRING:
        json_string_add(builder, value.string, style->ascii);
        break;
    case KIND_LIST:
    case KIND_TUPLE:
        json_list_add(builder, value.list, style, level);
        break;
    case KIND_DICT:
        json_dict_add(builder, value.dict, style, level);
        break;
    default:
        jinja_fail(builder->heap, STATUS_INVALID, "a value of type '%s' has no JSON form",
                   value_type(value));
    }
    jinja_leave(builder->heap);
}
