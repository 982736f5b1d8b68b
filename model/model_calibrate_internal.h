/* The ids that quantising is measured on: of a text, which may be the built-in one, or made up for
 * a model without a tokenizer. */
#ifndef BATON_MODEL_MODEL_CALIBRATE_INTERNAL_H
#define BATON_MODEL_MODEL_CALIBRATE_INTERNAL_H

#include <stdint.h>

#include "base/status.h"
#include "model/text/text.h"

/* Appends the first ids of the file, or of the built-in text where path is NULL, at most a context.
 * IO, or INVALID when it has too few. */
enum status calibration_read(const struct text *text, const char *path, uint32_t context_tokens,
                             struct token_list *ids, struct error *error);
void calibration_invent(uint32_t vocab_count, uint32_t context_tokens, struct token_list *ids);

#endif
