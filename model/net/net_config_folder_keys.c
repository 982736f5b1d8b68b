#include "model/net/net_config_folder_internal.h"

#include <inttypes.h>

const struct json *folder_find(const struct folder_source *source, const char *key)
{
    const struct json *value = json_get(source->object, key);
    return value == NULL || json_kind(value) == JSON_NULL ? NULL : value;
}

const char *folder_either(const struct folder_source *source, const char *key, const char *other)
{
    return folder_find(source, key) == NULL && folder_find(source, other) != NULL ? other : key;
}

enum status folder_not_kind(const struct folder_source *source, const char *key, const char *wanted)
{
    const struct json *value = folder_find(source, key);
    if (value == NULL)
        return error_set(source->error, STATUS_NOT_FOUND, "%s: %s has no '%s'", source->name,
                         source->where, key);
    return error_set(source->error, STATUS_INVALID, "%s: '%s' in %s is %s, it must be %s",
                     source->name, key, source->where, json_kind_name(json_kind(value)), wanted);
}

enum status folder_read_count(const struct folder_source *source, const char *key, uint32_t max,
                              uint32_t *out)
{
    const struct json *value = folder_find(source, key);
    if (value == NULL || json_kind(value) != JSON_INT)
        return folder_not_kind(source, key, "an integer");
    if (json_int(value) < 1 || json_int(value) > max)
        return error_set(source->error, STATUS_INVALID,
                         "%s: '%s' in %s is %" PRId64 ", it must be from 1 to %" PRIu32,
                         source->name, key, source->where, json_int(value), max);
    *out = (uint32_t)json_int(value);
    return STATUS_OK;
}

enum status folder_read_count_or(const struct folder_source *source, const char *key, uint32_t max,
                                 uint32_t *out)
{
    return folder_find(source, key) == NULL ? STATUS_OK : folder_read_count(source, key, max, out);
}

enum status folder_read_real_or(const struct folder_source *source, const char *key, double max,
                                float *out)
{
    const struct json *value = folder_find(source, key);
    if (value == NULL)
        return STATUS_OK;
    if (json_kind(value) != JSON_INT && json_kind(value) != JSON_REAL)
        return folder_not_kind(source, key, "a number");
    const double number = json_number(value);
    /* As a float it may be nothing. */
    if (!(number > 0.0 && number <= max && (float)number > 0.0f))
        return error_set(source->error, STATUS_INVALID,
                         "%s: '%s' in %s is %g, it must be above 0 and at most %g", source->name,
                         key, source->where, number, max);
    *out = (float)number;
    return STATUS_OK;
}

enum status folder_read_bool_or(const struct folder_source *source, const char *key, bool *out)
{
    const struct json *value = folder_find(source, key);
    if (value == NULL)
        return STATUS_OK;
    if (json_kind(value) != JSON_BOOL)
        return folder_not_kind(source, key, "true or false");
    *out = json_bool(value);
    return STATUS_OK;
}

enum status folder_read_text(const struct folder_source *source, const char *key, const char **out)
{
    const struct json *value = folder_find(source, key);
    if (value == NULL || json_kind(value) != JSON_STRING)
        return folder_not_kind(source, key, "a string");
    *out = json_string(value, NULL);
    return STATUS_OK;
}

enum status folder_refused(const struct folder_source *source, const char *key, const char *what)
{
    return error_set(source->error, STATUS_UNSUPPORTED,
                     "%s: '%s' in %s is %s, which Baton does not compute", source->name, key,
                     source->where, what);
}

enum status folder_refuse_number(const struct folder_source *source, const char *key,
                                 double neutral)
{
    const struct json *value = folder_find(source, key);
    if (value == NULL || (json_kind(value) == JSON_ARRAY && json_count(value) == 0))
        return STATUS_OK;
    if (json_kind(value) != JSON_INT && json_kind(value) != JSON_REAL)
        return folder_refused(source, key, json_kind_name(json_kind(value)));
    return json_number(value) == neutral ? STATUS_OK
                                         : folder_refused(source, key, "another number than usual");
}
