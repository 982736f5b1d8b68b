/* What the three files of config share: reading one value, and showing one. */
#ifndef BATON_BASE_CONFIG_INTERNAL_H
#define BATON_BASE_CONFIG_INTERNAL_H

#include "base/bytes.h"
#include "base/config.h"

enum { CONFIG_NAME_BYTES = 64 };

/* Reads text as the row's kind into the options struct; TEXT keeps the pointer. The error names the
 * value and the limit, not the option. */
enum status config_value_set(const struct config_row *row, const char *text, void *options,
                             struct error *error);
/* "BATON_KV_DTYPE" of "kv-dtype". */
void config_environment_name(const struct config_row *row, char out[CONFIG_NAME_BYTES]);
/* "--max-batch N" */
void config_row_usage(const struct config_row *row, struct buffer *out);
/* How many values a row of CONFIG_TEXTS takes. */
uint32_t config_texts_max(const struct config_row *row);
/* The number as a person writes it for this kind: 64K, 250ms, 8. */
void config_show_number(const struct config_row *row, double value, struct buffer *out);

#endif
