/* Reading. The names that jansson's header shares with ours are moved out of the way here; nothing
 * else in the tree sees that header. */
#include "base/json.h"

#define json_string  jansson_string
#define JSON_OBJECT  JANSSON_OBJECT
#define JSON_ARRAY   JANSSON_ARRAY
#define JSON_STRING  JANSSON_STRING
#define JSON_INTEGER JANSSON_INTEGER
#define JSON_REAL    JANSSON_REAL
#define JSON_TRUE    JANSSON_TRUE
#define JSON_FALSE   JANSSON_FALSE
#define JSON_NULL    JANSSON_NULL
#include <jansson.h>
#undef json_string
#undef JSON_OBJECT
#undef JSON_ARRAY
#undef JSON_STRING
#undef JSON_INTEGER
#undef JSON_REAL
#undef JSON_TRUE
#undef JSON_FALSE
#undef JSON_NULL

#include "base/check.h"

static const json_t *inner(const struct json *value)
{
    return (const json_t *)value;
}

static const struct json *outer(const json_t *value)
{
    return (const struct json *)value;
}

/* The parser recurses, so depth is bounded before it starts. Says where it is passed. */
static enum status check_depth(const char *text, size_t bytes, struct error *error)
{
    size_t depth = 0, line = 1, line_start = 0;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        if (c == '"') {
            in_string = true;
        } else if (c == '\n') {
            line++;
            line_start = i + 1;
        } else if ((c == '[' || c == '{') && ++depth > JSON_DEPTH_MAX) {
            return error_set(error, STATUS_INVALID,
                             "the JSON text nests deeper than the limit of %d at line %zu, "
                             "column %zu",
                             JSON_DEPTH_MAX, line, i - line_start + 1);
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return STATUS_OK;
}

enum status json_parse(const char *text, size_t bytes, struct json **root_out, struct error *error)
{
    TRY(check_depth(text, bytes, error));
    json_error_t cause;
    json_t *root = json_loadb(text ? text : "", bytes,
                              JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &cause);
    if (!root)
        return error_set(error, STATUS_INVALID,
                         "the JSON text is not valid at line %d, column %d: %s", cause.line,
                         cause.column, cause.text);
    *root_out = (struct json *)root;
    return STATUS_OK;
}

void json_free(struct json *root)
{
    json_decref((json_t *)root);
}

enum json_kind json_kind(const struct json *value)
{
    switch (json_typeof(inner(value))) {
    case JANSSON_NULL:
        return JSON_NULL;
    case JANSSON_TRUE:
    case JANSSON_FALSE:
        return JSON_BOOL;
    case JANSSON_INTEGER:
        return JSON_INT;
    case JANSSON_REAL:
        return JSON_REAL;
    case JANSSON_STRING:
        return JSON_STRING;
    case JANSSON_ARRAY:
        return JSON_ARRAY;
    case JANSSON_OBJECT:
        return JSON_OBJECT;
    }
    CHECK(!"a JSON value has a type that does not exist");
}

const char *json_kind_name(enum json_kind kind)
{
    static const char *const names[] = {
        [JSON_NULL] = "null",        [JSON_BOOL] = "a boolean",  [JSON_INT] = "an integer",
        [JSON_REAL] = "a number",    [JSON_STRING] = "a string", [JSON_ARRAY] = "an array",
        [JSON_OBJECT] = "an object",
    };
    return (size_t)kind < ARRAY_COUNT(names) ? names[kind] : "an unknown value";
}

bool json_bool(const struct json *value)
{
    CHECK(json_kind(value) == JSON_BOOL);
    return json_typeof(inner(value)) == JANSSON_TRUE;
}

int64_t json_int(const struct json *value)
{
    CHECK(json_kind(value) == JSON_INT);
    return json_integer_value(inner(value));
}

double json_number(const struct json *value)
{
    const enum json_kind kind = json_kind(value);
    CHECK(kind == JSON_INT || kind == JSON_REAL);
    return json_number_value(inner(value));
}

const char *json_string(const struct json *value, size_t *bytes_out)
{
    CHECK(json_kind(value) == JSON_STRING);
    if (bytes_out)
        *bytes_out = json_string_length(inner(value));
    return json_string_value(inner(value));
}

size_t json_count(const struct json *value)
{
    const enum json_kind kind = json_kind(value);
    CHECK(kind == JSON_ARRAY || kind == JSON_OBJECT);
    return kind == JSON_ARRAY ? json_array_size(inner(value)) : json_object_size(inner(value));
}

const struct json *json_at(const struct json *array, size_t index)
{
    CHECK(json_kind(array) == JSON_ARRAY && index < json_array_size(inner(array)));
    return outer(json_array_get(inner(array), index));
}

const struct json *json_get(const struct json *object, const char *key)
{
    CHECK(json_kind(object) == JSON_OBJECT);
    return outer(json_object_get(inner(object), key));
}

bool json_next(const struct json *object, void **cursor, const char **key_out,
               const struct json **value_out)
{
    CHECK(json_kind(object) == JSON_OBJECT);
    /* jansson takes the object of a walk as writable; the walk does not change it. */
    json_t *members = (json_t *)object;
    *cursor = *cursor ? json_object_iter_next(members, *cursor) : json_object_iter(members);
    if (!*cursor)
        return false;
    *key_out = json_object_iter_key(*cursor);
    *value_out = outer(json_object_iter_value(*cursor));
    return true;
}
