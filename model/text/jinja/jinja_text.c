/* Strings: Python's, by characters, each byte with where it came from. */
#include "base/utf8.h"
#include "model/text/jinja/jinja_internal.h"
#include "model/text/unicode.h"

enum { STEP_BYTES = 64 };

struct value string_value(struct jinja_heap *heap, const char *data, size_t bytes,
                          enum origin origin)
{
    struct string *string = jinja_take(heap, sizeof *string);
    *string = (struct string){.data = bytes > 0 ? data : "", .bytes = bytes, .origin = origin};
    return (struct value){.kind = KIND_STRING, .string = string};
}

struct value string_text(struct jinja_heap *heap, const char *text)
{
    return string_value(heap, text, strlen(text), FROM_TEMPLATE);
}

struct value string_copy(struct jinja_heap *heap, const char *data, size_t bytes)
{
    char *copy = jinja_take(heap, bytes + 1);
    if (bytes > 0)
        memcpy(copy, data, bytes);
    return string_value(heap, copy, bytes, FROM_TEMPLATE);
}

struct value string_part(struct jinja_heap *heap, const struct string *string, size_t from,
                         size_t to)
{
    struct value part = string_value(heap, string->data + from, to - from, string->origin);
    part.string->marks = string->origin == FROM_BOTH ? string->marks + from : NULL;
    part.string->safe = string->safe;
    return part;
}

bool string_is(const struct string *string, const char *text)
{
    return string->bytes == strlen(text) && memcmp(string->data, text, string->bytes) == 0;
}

size_t string_next(const struct string *string, size_t at, uint32_t *point_out)
{
    const int length =
        utf8_sequence((const uint8_t *)string->data + at, string->bytes - at, point_out);
    CHECK(length > 0); // strings are well-formed
    return at + (size_t)length;
}

static bool begins_character(char c)
{
    return ((uint8_t)c & 0xc0) != 0x80;
}

size_t string_count(struct jinja_heap *heap, const struct string *string)
{
    size_t count = 0;
    jinja_charge(heap, string->bytes / STEP_BYTES);
    for (size_t i = 0; i < string->bytes; i++)
        count += begins_character(string->data[i]);
    return count;
}

size_t string_offset(const struct string *string, size_t character)
{
    size_t at = 0;
    for (; character > 0 && at < string->bytes; character--) {
        at++;
        while (at < string->bytes && !begins_character(string->data[at]))
            at++;
    }
    return at;
}

size_t string_find(struct jinja_heap *heap, const struct string *string,
                   const struct string *needle, size_t from)
{
    if (from > string->bytes)
        return SIZE_MAX;
    if (needle->bytes == 0)
        return from;
    /* glibc's search is linear in both. */
    const char *found =
        memmem(string->data + from, string->bytes - from, needle->data, needle->bytes);
    const size_t end = found != NULL ? (size_t)(found - string->data) : string->bytes;
    jinja_charge(heap, (end - from + needle->bytes) / STEP_BYTES + 1);
    return found != NULL ? end : SIZE_MAX;
}

static bool is_stripped(const struct string *characters, const char *data, size_t bytes,
                        uint32_t point)
{
    if (characters == NULL) // Python also takes the separators of information
        return unicode_is_space(point) || (point >= 0x1c && point <= 0x1f);
    return memmem(characters->data, characters->bytes, data, bytes) != NULL;
}

struct value string_strip(struct jinja_heap *heap, const struct string *string,
                          const struct string *characters, bool left, bool right)
{
    size_t from = 0, to = string->bytes;
    uint32_t point;
    while (left && from < to) {
        const size_t next = string_next(string, from, &point);
        if (!is_stripped(characters, string->data + from, next - from, point))
            break;
        jinja_charge(heap, characters != NULL ? characters->bytes / STEP_BYTES : 0);
        from = next;
    }
    while (right && to > from) {
        size_t start = to - 1;
        while (!begins_character(string->data[start]))
            start--;
        string_next(string, start, &point);
        if (!is_stripped(characters, string->data + start, to - start, point))
            break;
        jinja_charge(heap, characters != NULL ? characters->bytes / STEP_BYTES : 0);
        to = start;
    }
    jinja_charge(heap, (string->bytes - (to - from)) / STEP_BYTES);
    return string_part(heap, string, from, to);
}

struct value string_characters(struct jinja_heap *heap, const struct string *string)
{
    struct value list = value_list(heap, KIND_LIST);
    uint32_t point;
    for (size_t at = 0; at < string->bytes;) {
        const size_t next = string_next(string, at, &point);
        list_add(heap, list.list, string_part(heap, string, at, next));
        at = next;
    }
    return list;
}

struct value string_replace(struct jinja_heap *heap, const struct string *string,
                            const struct string *old, const struct string *new, int64_t count)
{
    struct builder out = {.heap = heap};
    size_t done = 0, at = 0;
    while (count != 0 && at <= string->bytes) {
        const size_t found = string_find(heap, string, old, at);
        if (found == SIZE_MAX)
            break;
        size_t next = found + old->bytes;
        if (old->bytes == 0) // between all characters
            next = found < string->bytes ? string_next(string, found, &(uint32_t){0}) : found + 1;
        builder_add(&out, string->data + done, found - done,
                    string->marks != NULL ? string->marks + done : NULL, string->origin);
        builder_add_string(&out, new);
        done = found + old->bytes;
        at = next;
        count -= count > 0;
    }
    builder_add(&out, string->data + done, string->bytes - done,
                string->marks != NULL ? string->marks + done : NULL, string->origin);
    return builder_value(&out);
}

const struct string *string_escaped(struct jinja_heap *heap, const struct string *string)
{
    static const struct {
        char character;
        const char *text;
    } escapes[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    struct builder out = {.heap = heap};
    size_t done = 0;
    if (string->safe)
        return string;
    for (size_t at = 0; at < string->bytes; at++) {
        for (size_t i = 0; i < ARRAY_COUNT(escapes); i++) {
            if (string->data[at] != escapes[i].character)
                continue;
            builder_add_string(&out, string_part(heap, string, done, at).string);
            builder_add_text(&out, escapes[i].text);
            done = at + 1;
        }
    }
    builder_add_string(&out, string_part(heap, string, done, string->bytes).string);
    struct value escaped = builder_value(&out);
    escaped.string->safe = true;
    return escaped.string;
}
