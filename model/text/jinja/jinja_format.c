/* 'text %s' % value and 'text {}'.format(value), and text in lines. */
#include <stdio.h>

#include "model/text/jinja/jinja_internal.h"

enum { WIDTH_MAX = 1000 };

/* One conversion: %-08.3f. */
struct conversion {
    char flags[8];
    int width, precision; /* -1: none */
    char letter;
};

struct formatter {
    struct jinja_run *run;
    struct builder out;
    const struct value *items, *mapping;
    size_t count, next;
    bool mapped;
};

static struct value format_next(struct formatter *formatter)
{
    if (formatter->next >= formatter->count)
        jinja_fail(&formatter->run->heap, STATUS_INVALID, "not enough arguments for format string");
    return formatter->items[formatter->next++];
}

static int format_number(struct formatter *formatter, const struct string *format, size_t *at)
{
    int number = 0;
    while (*at < format->bytes && format->data[*at] >= '0' && format->data[*at] <= '9') {
        number = number * 10 + (format->data[(*at)++] - '0');
        if (number > WIDTH_MAX)
            jinja_fail(&formatter->run->heap, STATUS_LIMIT,
                       "a format's width or precision is over %d, the limit", WIDTH_MAX);
    }
    return number;
}

/* Text in the width of its conversion. */
static void text_put(struct formatter *formatter, const struct conversion *conversion,
                     const struct string *text)
{
    struct jinja_heap *heap = &formatter->run->heap;
    if (conversion->precision >= 0)
        text =
            string_part(heap, text, 0, string_offset(text, (size_t)conversion->precision)).string;
    const int64_t count = (int64_t)string_count(heap, text);
    const bool left = strchr(conversion->flags, '-') != NULL;
    if (left)
        builder_add_string(&formatter->out, text);
    for (int64_t i = count; i < conversion->width; i++)
        builder_add_char(&formatter->out, ' ');
    if (!left)
        builder_add_string(&formatter->out, text);
}

static void number_put(struct formatter *formatter, const struct conversion *conversion,
                       struct value value)
{
    struct jinja_heap *heap = &formatter->run->heap;
    char spec[48], out[2 * WIDTH_MAX + 400];
    value_use(heap, value);
    if (!value_is_number(value))
        jinja_fail(heap, STATUS_INVALID, "%%%c format: a number is required, not '%s'",
                   conversion->letter, value_type(value));
    const bool real = strchr("eEfFgG", conversion->letter) != NULL;
    char precision[16] = "";
    if (conversion->precision >= 0)
        snprintf(precision, sizeof precision, ".%d", conversion->precision);
    snprintf(spec, sizeof spec, "%%%s%.0d%s%s%c", conversion->flags,
             conversion->width > 0 ? conversion->width : 0, precision, real ? "" : "ll",
             conversion->letter);
    int64_t integer = 0;
    if (!real && value.kind == KIND_FLOAT) {
        if (!(value.real > -0x1p63 && value.real < 0x1p63))
            jinja_fail(heap, STATUS_INVALID, "%%d format: the number does not fit into 64 bits");
        integer = (int64_t)value.real;
    } else if (!real) {
        integer = value_as_int(heap, value, "a number");
    }
    if (!real && integer < 0 && strchr("xXo", conversion->letter) != NULL)
        jinja_fail(heap, STATUS_UNSUPPORTED, "%%%c of a number below 0 is not supported",
                   conversion->letter);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" // made above, of checked parts
    const int bytes = real ? snprintf(out, sizeof out, spec, value_number(value))
                           : snprintf(out, sizeof out, spec, (long long)integer);
#pragma GCC diagnostic pop
    const struct value text = string_copy(heap, out, bytes > 0 ? (size_t)bytes : 0);
    builder_add_string(&formatter->out, text.string);
}

static struct value format_mapped(struct formatter *formatter, const struct string *format,
                                  size_t *at)
{
    struct jinja_heap *heap = &formatter->run->heap;
    const size_t from = ++*at;
    while (*at < format->bytes && format->data[*at] != ')')
        ++*at;
    if (*at == format->bytes || formatter->mapping == NULL)
        jinja_fail(heap, STATUS_INVALID, "format requires a mapping");
    const struct value key = string_part(heap, format, from, (*at)++);
    const struct value *found = dict_find(heap, formatter->mapping->dict, key);
    if (found == NULL)
        jinja_fail(heap, STATUS_INVALID, "the format's mapping has no key '%.*s'",
                   (int)(key.string->bytes < 40 ? key.string->bytes : 40), key.string->data);
    formatter->mapped = true;
    return *found;
}

static void conversion_put(struct formatter *formatter, const struct conversion *conversion,
                           struct value value)
{
    struct jinja_heap *heap = &formatter->run->heap;
    struct builder repr = {.heap = heap};
    switch (conversion->letter) {
    case 's':
        text_put(formatter, conversion, value_str(heap, value));
        return;
    case 'r':
    case 'a':
        print_repr(&repr, value);
        text_put(formatter, conversion, builder_value(&repr).string);
        return;
    default:
        number_put(formatter, conversion, value);
    }
}

/* Behind '%'. Returns where the conversion ends. */
static size_t format_one(struct formatter *formatter, const struct string *format, size_t at)
{
    static const char flag_letters[] = {'-', '+', ' ', '#', '0'};
    struct jinja_heap *heap = &formatter->run->heap;
    struct conversion conversion = {.precision = -1};
    struct value value = {.kind = KIND_ABSENT};
    size_t flags = 0;
    if (at < format->bytes && format->data[at] == '%') {
        builder_add_char(&formatter->out, '%');
        return at + 1;
    }
    if (at < format->bytes && format->data[at] == '(')
        value = format_mapped(formatter, format, &at);
    while (at < format->bytes &&
           memchr(flag_letters, format->data[at], sizeof flag_letters) != NULL) {
        if (strchr(conversion.flags, format->data[at]) == NULL &&
            flags + 1 < sizeof conversion.flags)
            conversion.flags[flags++] = format->data[at];
        at++;
    }
    conversion.width = format_number(formatter, format, &at);
    if (at < format->bytes && format->data[at] == '.') {
        at++;
        conversion.precision = format_number(formatter, format, &at);
    }
    conversion.letter = at < format->bytes ? format->data[at] : '\0';
    if (conversion.letter == 'i' || conversion.letter == 'u')
        conversion.letter = 'd';
    if (conversion.letter == '\0' || strchr("sradxXoeEfFgG", conversion.letter) == NULL)
        jinja_fail(heap, STATUS_INVALID, "the format has a '%%' without a known letter");
    conversion_put(formatter, &conversion,
                   value.kind != KIND_ABSENT ? value : format_next(formatter));
    return at + 1;
}

struct value string_format(struct jinja_run *run, const struct string *format,
                           const struct value *items, size_t count, const struct value *mapping)
{
    struct formatter formatter = {.run = run,
                                  .out = {.heap = &run->heap},
                                  .items = items,
                                  .mapping = mapping,
                                  .count = count};
    for (size_t at = 0; at < format->bytes;) {
        const char *sign = memchr(format->data + at, '%', format->bytes - at);
        const size_t end = sign != NULL ? (size_t)(sign - format->data) : format->bytes;
        builder_add_string(&formatter.out, string_part(&run->heap, format, at, end).string);
        at = sign != NULL ? format_one(&formatter, format, end + 1) : end;
    }
    if (formatter.next < count && mapping == NULL &&
        !(count == 1 && formatter.next == 0 &&
          (items[0].kind == KIND_LIST || items[0].kind == KIND_UNDEFINED))) // as good as a mapping
        jinja_fail(&run->heap, STATUS_INVALID,
                   "not all arguments converted during string formatting");
    return builder_value(&formatter.out);
}

/* The field of "{...}": nothing, a number or a name. */
static struct value field_get(struct jinja_run *run, const struct string *name,
                              const struct args *args, size_t *next)
{
    struct jinja_heap *heap = &run->heap;
    size_t index = 0;
    bool digits = true;
    if (name->bytes == 0)
        index = (*next)++;
    for (size_t i = 0; i < name->bytes; i++) {
        digits = digits && name->data[i] >= '0' && name->data[i] <= '9' && i < 6;
        if (digits)
            index = index * 10 + (size_t)(name->data[i] - '0');
    }
    if (digits && index < args->count)
        return args->items[index];
    for (size_t i = 0; i < args->named_count && !digits; i++)
        if (args->named[i].name->bytes == name->bytes &&
            memcmp(args->named[i].name->data, name->data, name->bytes) == 0)
            return args->named[i].value;
    jinja_fail(heap, STATUS_INVALID, "format() has no argument '%.*s'",
               (int)(name->bytes < 40 ? name->bytes : 40), name->data);
}

struct value string_method_format(struct jinja_run *run, struct value self, const struct value *a,
                                  const struct args *args)
{
    struct jinja_heap *heap = &run->heap;
    const struct string *format = self.string;
    struct builder out = {.heap = heap};
    size_t next = 0;
    for (size_t at = 0; at < format->bytes; at++) {
        const char c = format->data[at];
        const bool twice = at + 1 < format->bytes && format->data[at + 1] == c;
        if (c != '{' && c != '}') {
            builder_add_string(&out, string_part(heap, format, at, at + 1).string);
        } else if (twice) {
            builder_add_char(&out, c);
            at++;
        } else {
            const char *close = memchr(format->data + at, '}', format->bytes - at);
            if (c == '}' || close == NULL)
                jinja_fail(heap, STATUS_INVALID, "the format has a single '%c'", c);
            const size_t end = (size_t)(close - format->data);
            const struct string *name = string_part(heap, format, at + 1, end).string;
            if (memchr(name->data, ':', name->bytes) != NULL ||
                memchr(name->data, '!', name->bytes) != NULL ||
                memchr(name->data, '.', name->bytes) != NULL ||
                memchr(name->data, '[', name->bytes) != NULL)
                jinja_fail(heap, STATUS_UNSUPPORTED,
                           "the field '%.*s' of format() is more than a name or a number",
                           (int)(name->bytes < 40 ? name->bytes : 40), name->data);
            print_value(&out, field_get(run, name, args, &next));
            at = end;
        }
    }
    return builder_value(&out);
}

/* Bytes of the line end at `at`, 0 for none: Python knows eleven of them. */
static size_t line_end(const struct string *text, size_t at)
{
    const uint8_t *bytes = (const uint8_t *)text->data + at;
    const size_t left = text->bytes - at;
    if (bytes[0] == '\r')
        return left > 1 && bytes[1] == '\n' ? 2 : 1;
    if ((bytes[0] >= '\n' && bytes[0] <= '\f') || (bytes[0] >= 0x1c && bytes[0] <= 0x1e))
        return 1;
    if (left > 1 && bytes[0] == 0xc2 && bytes[1] == 0x85)
        return 2;
    return left > 2 && bytes[0] == 0xe2 && bytes[1] == 0x80 && (bytes[2] & 0xfe) == 0xa8 ? 3 : 0;
}

struct value string_lines(struct jinja_heap *heap, const struct string *text, bool keep_ends)
{
    struct value list = value_list(heap, KIND_LIST);
    size_t from = 0;
    jinja_charge(heap, text->bytes / 16);
    for (size_t at = 0; at < text->bytes;) {
        const size_t end = line_end(text, at);
        if (end == 0) {
            at++;
            continue;
        }
        list_add(heap, list.list, string_part(heap, text, from, at + (keep_ends ? end : 0)));
        at += end;
        from = at;
    }
    if (from < text->bytes)
        list_add(heap, list.list, string_part(heap, text, from, text->bytes));
    return list;
}
