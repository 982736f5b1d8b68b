/* Writing. A level's bit in has_item says that the next value needs a comma before it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"

enum { LEVELS_MAX = 64 };

void json_writer_init(struct json_writer *writer, struct buffer *out)
{
    *writer = (struct json_writer){.out = out};
}

static void begin_value(struct json_writer *writer)
{
    if (writer->depth == 0)
        return;
    const uint64_t bit = 1ull << (writer->depth - 1);
    if (writer->has_item & bit)
        buffer_add_text(writer->out, writer->spaced ? ", " : ",");
    writer->has_item |= bit;
}

static void open_level(struct json_writer *writer, char bracket)
{
    begin_value(writer);
    CHECK(writer->depth < LEVELS_MAX);
    buffer_add_char(writer->out, bracket);
    writer->has_item &= ~(1ull << writer->depth);
    writer->depth++;
}

static void close_level(struct json_writer *writer, char bracket)
{
    CHECK(writer->depth > 0);
    writer->depth--;
    buffer_add_char(writer->out, bracket);
}

void json_open_object(struct json_writer *writer)
{
    open_level(writer, '{');
}

void json_close_object(struct json_writer *writer)
{
    close_level(writer, '}');
}

void json_open_array(struct json_writer *writer)
{
    open_level(writer, '[');
}

void json_close_array(struct json_writer *writer)
{
    close_level(writer, ']');
}

/* The two-character escape of c, 0 if there is none. */
static char short_escape(uint8_t c)
{
    switch (c) {
    case '"':
    case '\\':
        return (char)c;
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return 0;
    }
}

/* Appends one character or one malformed piece of the text; returns the bytes it stood for. */
static size_t put_special(struct buffer *out, const uint8_t *at, size_t bytes)
{
    if (*at < 0x80) {
        const char escape = short_escape(*at);
        if (escape)
            buffer_add(out, (const char[]){'\\', escape}, 2);
        else
            buffer_printf(out, "\\u%04x", *at);
        return 1;
    }
    const int length = utf8_sequence(at, bytes, NULL);
    if (length > 0) {
        buffer_add(out, at, (size_t)length);
        return (size_t)length;
    }
    buffer_add_text(out, "\xEF\xBF\xBD");
    return length < 0 ? bytes : 1;
}

static void put_quoted(struct buffer *out, const char *text, size_t bytes)
{
    const uint8_t *p = (const uint8_t *)text;
    buffer_reserve(out, bytes + 2);
    buffer_add_char(out, '"');
    for (size_t at = 0; at < bytes;) {
        size_t plain = at;
        while (plain < bytes && p[plain] >= 0x20 && p[plain] < 0x80 && p[plain] != '"' &&
               p[plain] != '\\')
            plain++;
        buffer_add(out, p + at, plain - at);
        at = plain;
        if (at < bytes)
            at += put_special(out, p + at, bytes - at);
    }
    buffer_add_char(out, '"');
}

void json_key(struct json_writer *writer, const char *key)
{
    CHECK(writer->depth > 0);
    begin_value(writer);
    put_quoted(writer->out, key, strlen(key));
    buffer_add_text(writer->out, writer->spaced ? ": " : ":");
    writer->has_item &= ~(1ull << (writer->depth - 1)); /* no comma between key and value */
}

void json_put_string(struct json_writer *writer, const char *text, size_t bytes)
{
    begin_value(writer);
    put_quoted(writer->out, text, bytes);
}

void json_put_text(struct json_writer *writer, const char *text)
{
    if (text)
        json_put_string(writer, text, strlen(text));
    else
        json_put_null(writer);
}

void json_put_int(struct json_writer *writer, int64_t value)
{
    begin_value(writer);
    buffer_printf(writer->out, "%lld", (long long)value);
}

void json_put_u64(struct json_writer *writer, uint64_t value)
{
    begin_value(writer);
    buffer_printf(writer->out, "%llu", (unsigned long long)value);
}

void json_put_number(struct json_writer *writer, double value, int digits)
{
    if (!isfinite(value)) {
        json_put_null(writer);
        return;
    }
    begin_value(writer);
    buffer_printf(writer->out, "%.*g", digits, value);
}

void json_put_bool(struct json_writer *writer, bool value)
{
    begin_value(writer);
    buffer_add_text(writer->out, value ? "true" : "false");
}

void json_put_null(struct json_writer *writer)
{
    begin_value(writer);
    buffer_add_text(writer->out, "null");
}

void json_put_written(struct json_writer *writer, const struct buffer *values)
{
    if (values->size == 0)
        return;
    begin_value(writer);
    buffer_add(writer->out, values->data, values->size);
}

/* With as few digits as read back to the same number. */
static void put_exact(struct json_writer *writer, double value)
{
    enum { FEW_DIGITS = 15, ALL_DIGITS = 17 };
    char text[32];
    int digits = FEW_DIGITS;
    for (; digits < ALL_DIGITS; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    json_put_number(writer, value, digits);
}

static enum status put_members(struct json_writer *writer, const struct json *value)
{
    const char *key;
    const struct json *member;
    void *cursor = NULL;
    json_open_object(writer);
    while (json_next(value, &cursor, &key, &member)) {
        json_key(writer, key);
        TRY(json_put_value(writer, member));
    }
    json_close_object(writer);
    return STATUS_OK;
}

static enum status put_items(struct json_writer *writer, const struct json *value)
{
    json_open_array(writer);
    for (size_t i = 0; i < json_count(value); i++)
        TRY(json_put_value(writer, json_at(value, i)));
    json_close_array(writer);
    return STATUS_OK;
}

/* As deep as the levels of a writer at most. */
enum status json_put_value(struct json_writer *writer, const struct json *value)
{
    size_t bytes;
    const char *text;
    switch (json_kind(value)) {
    case JSON_NULL:
        json_put_null(writer);
        return STATUS_OK;
    case JSON_BOOL:
        json_put_bool(writer, json_bool(value));
        return STATUS_OK;
    case JSON_INT:
        json_put_int(writer, json_int(value));
        return STATUS_OK;
    case JSON_REAL:
        put_exact(writer, json_number(value));
        return STATUS_OK;
    case JSON_STRING:
        text = json_string(value, &bytes);
        json_put_string(writer, text, bytes);
        return STATUS_OK;
    case JSON_ARRAY:
        return writer->depth < LEVELS_MAX ? put_items(writer, value) : STATUS_LIMIT;
    case JSON_OBJECT:
        return writer->depth < LEVELS_MAX ? put_members(writer, value) : STATUS_LIMIT;
    }
    return STATUS_INTERNAL;
}
