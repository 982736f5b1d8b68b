/* JSON in and out (jansson reads; writing is ours, because its doubles print badly).
 *
 * Reading is strict: bad UTF-8, NUL in keys, duplicate keys (last one wins is not accepted),
 * trailing bytes, numbers out of range and nesting over the limit are errors with line and column.
 * A document belongs to the thread that uses it. */
#ifndef BATON_BASE_JSON_H
#define BATON_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

struct json; /* a value; owned by the root it was parsed into */

enum { JSON_DEPTH_MAX = 128 }; /* arrays and objects within one another */

enum json_kind { JSON_NULL, JSON_BOOL, JSON_INT, JSON_REAL, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

enum status json_parse(const char *text, size_t bytes, struct json **root_out, struct error *error);
void json_free(struct json *root);

enum json_kind json_kind(const struct json *value);
const char *json_kind_name(enum json_kind kind); /* "a string", "an object" … for messages */
bool json_bool(const struct json *value);
int64_t json_int(const struct json *value);
double json_number(const struct json *value); /* INT or REAL */
/* Terminated, but a string may hold NUL bytes (\u0000): compare and copy by *bytes_out. */
const char *json_string(const struct json *value, size_t *bytes_out);
size_t json_count(const struct json *value); /* array items or object keys */
const struct json *json_at(const struct json *array, size_t index);
/* NULL when absent; a present null is a JSON_NULL value. */
const struct json *json_get(const struct json *object, const char *key);
/* Walks the members in their order; *cursor starts as NULL. False after the last one. */
bool json_next(const struct json *object, void **cursor, const char **key_out,
               const struct json **value_out);

/* Writing appends to a buffer; the caller keeps the order right, commas come by themselves. At most
 * 64 levels. */
struct json_writer {
    struct buffer *out;
    uint32_t depth;
    uint64_t has_item; /* one bit a level */
    bool spaced;       /* a space behind each comma and colon, as models have seen most of it */
};
void json_writer_init(struct json_writer *writer, struct buffer *out);
void json_open_object(struct json_writer *writer);
void json_close_object(struct json_writer *writer);
void json_open_array(struct json_writer *writer);
void json_close_array(struct json_writer *writer);
void json_key(struct json_writer *writer, const char *key);
/* Escapes; invalid UTF-8 becomes U+FFFD. */
void json_put_string(struct json_writer *writer, const char *text, size_t bytes);
void json_put_text(struct json_writer *writer, const char *text); /* NUL-terminated; NULL is null */
void json_put_int(struct json_writer *writer, int64_t value);
void json_put_u64(struct json_writer *writer, uint64_t value);
void json_put_number(struct json_writer *writer, double value, int digits); /* %.*g; NaN: null */
void json_put_bool(struct json_writer *writer, bool value);
void json_put_null(struct json_writer *writer);
/* What other writers have put into a buffer, with the commas that stand between; nothing if it is
 * empty. */
void json_put_written(struct json_writer *writer, const struct buffer *values);
/* A value that was read, members in their order. LIMIT when it is nested deeper than the levels
 * that are left: what is in the buffer then is cut off in the middle. */
enum status json_put_value(struct json_writer *writer, const struct json *value);

#endif
