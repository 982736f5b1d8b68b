/* Reading single fields of a request body: absent and null mean "not set", another type or a value
 * out of range is a 400 that names the field and the value. Any thread. */
#ifndef BATON_ROUTER_OPENAI_FIELDS_H
#define BATON_ROUTER_OPENAI_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "model/text/text.h"
#include "router/openai_error.h"

/* NULL when the field is absent or null. */
const struct json *field_get(const struct json *object, const char *name);
/* Whether the value is a string, and this one to its last byte; NULL is not. */
bool field_is_text(const struct json *value, const char *text);
/* Each leaves *out as it is when the field is not set. */
enum status field_bool(const struct json *object, const char *name, bool *out,
                       struct openai_error *error);
enum status field_int(const struct json *object, const char *name, int64_t min, int64_t max,
                      int64_t *out, struct openai_error *error);
/* min_open: the minimum itself is not allowed. */
enum status field_number(const struct json *object, const char *name, double min, bool min_open,
                         double max, double *out, struct openai_error *error);
/* An array of at most `limit` token ids below vocab_count; they are added to *out. */
enum status field_ids(const struct json *object, const char *name, size_t limit,
                      uint32_t vocab_count, struct token_list *out, struct openai_error *error);
/* Says "`name` must be <wanted>, but is <the value>". */
enum status field_wrong(const struct json *value, const char *name, const char *wanted,
                        struct openai_error *error);
enum { FIELD_VALUE_BYTES = 96 };
/* A value as a person reads it in a message, cut to fit: 2.1, "abc…", an object. */
const char *field_value_text(const struct json *value, char out[FIELD_VALUE_BYTES]);

#endif
