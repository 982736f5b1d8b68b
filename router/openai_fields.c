#include "router/openai_fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

const struct json *field_get(const struct json *object, const char *name)
{
    const struct json *value = json_get(object, name);
    return value && json_kind(value) != JSON_NULL ? value : NULL;
}

bool field_is_text(const struct json *value, const char *text)
{
    size_t bytes;
    if (!value || json_kind(value) != JSON_STRING)
        return false;
    const char *data = json_string(value, &bytes);
    return bytes == strlen(text) && memcmp(data, text, bytes) == 0;
}

/* At most 40 bytes of a string, cut at a character and without control characters. */
static void quote_text(const struct json *value, char out[FIELD_VALUE_BYTES])
{
    enum { SHOWN_BYTES = 40 };
    size_t bytes;
    const char *text = json_string(value, &bytes);
    size_t shown = bytes < SHOWN_BYTES ? bytes : SHOWN_BYTES;
    shown -= utf8_unfinished(text, shown);
    size_t used = 0;
    out[used++] = '"';
    for (size_t i = 0; i < shown; i++)
        out[used++] = (unsigned char)text[i] < ' ' ? '?' : text[i];
    snprintf(out + used, FIELD_VALUE_BYTES - used, "%s\"", shown < bytes ? "..." : "");
}

const char *field_value_text(const struct json *value, char out[FIELD_VALUE_BYTES])
{
    switch (json_kind(value)) {
    case JSON_BOOL:
        return json_bool(value) ? "true" : "false";
    case JSON_INT:
        snprintf(out, FIELD_VALUE_BYTES, "%" PRId64, json_int(value));
        return out;
    case JSON_REAL:
        snprintf(out, FIELD_VALUE_BYTES, "%.9g", json_number(value));
        return out;
    case JSON_STRING:
        quote_text(value, out);
        return out;
    case JSON_ARRAY:
        return json_count(value) == 0 ? "an empty array" : json_kind_name(JSON_ARRAY);
    default:
        return json_kind_name(json_kind(value));
    }
}

enum status field_wrong(const struct json *value, const char *name, const char *wanted,
                        struct openai_error *error)
{
    char text[FIELD_VALUE_BYTES];
    return openai_error_set(error, 400, name, NULL, "`%s` must be %s, but is %s.", name, wanted,
                            field_value_text(value, text));
}

enum status field_bool(const struct json *object, const char *name, bool *out,
                       struct openai_error *error)
{
    const struct json *value = field_get(object, name);
    if (!value)
        return STATUS_OK;
    if (json_kind(value) != JSON_BOOL)
        return field_wrong(value, name, "a boolean", error);
    *out = json_bool(value);
    return STATUS_OK;
}

enum status field_int(const struct json *object, const char *name, int64_t min, int64_t max,
                      int64_t *out, struct openai_error *error)
{
    const struct json *value = field_get(object, name);
    if (!value)
        return STATUS_OK;
    char wanted[96];
    snprintf(wanted, sizeof wanted, "an integer from %" PRId64 " to %" PRId64, min, max);
    /* 16.0 is an integer to many clients. */
    const bool whole = json_kind(value) == JSON_REAL &&
                       floor(json_number(value)) == json_number(value) &&
                       fabs(json_number(value)) < 9e15;
    if (json_kind(value) != JSON_INT && !whole)
        return field_wrong(value, name, wanted, error);
    const int64_t number = whole ? (int64_t)json_number(value) : json_int(value);
    if (number < min || number > max)
        return field_wrong(value, name, wanted, error);
    *out = number;
    return STATUS_OK;
}

enum status field_number(const struct json *object, const char *name, double min, bool min_open,
                         double max, double *out, struct openai_error *error)
{
    const struct json *value = field_get(object, name);
    if (!value)
        return STATUS_OK;
    char wanted[96];
    snprintf(wanted, sizeof wanted,
             min_open ? "a number above %g, at most %g" : "a number from %g to %g", min, max);
    if (json_kind(value) != JSON_INT && json_kind(value) != JSON_REAL)
        return field_wrong(value, name, wanted, error);
    const double number = json_number(value);
    if (!isfinite(number) || number > max || number < min || (min_open && number <= min))
        return field_wrong(value, name, wanted, error);
    *out = number;
    return STATUS_OK;
}

enum status field_ids(const struct json *object, const char *name, size_t limit,
                      uint32_t vocab_count, struct token_list *out, struct openai_error *error)
{
    const struct json *list = field_get(object, name);
    if (!list)
        return STATUS_OK;
    if (json_kind(list) != JSON_ARRAY)
        return field_wrong(list, name, "an array of token ids", error);
    if (json_count(list) > limit)
        return openai_error_set(error, 400, name, NULL, "`%s` holds %zu ids; the limit is %zu.",
                                name, json_count(list), limit);
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *item = json_at(list, i);
        char text[FIELD_VALUE_BYTES];
        if (json_kind(item) != JSON_INT || json_int(item) < 0 || json_int(item) >= vocab_count)
            return openai_error_set(error, 400, name, NULL,
                                    "`%s[%zu]` is %s, but token ids of this model go from 0 to "
                                    "%u.",
                                    name, i, field_value_text(item, text), vocab_count - 1);
        token_list_add(out, (int32_t)json_int(item));
    }
    return STATUS_OK;
}
