/* The small byte-level vocabulary of models that `baton make-model` writes: three control tokens,
 * the 256 bytes, and merges for frequent English letter groups, so that any text round-trips. */
#ifndef BATON_OPS_BATON_MAKE_VOCABULARY_H
#define BATON_OPS_BATON_MAKE_VOCABULARY_H

#include <stdint.h>

#include "model/format/gguf_writer.h"

/* Control tokens stand first. */
enum { MAKE_ID_END_OF_TEXT, MAKE_ID_TURN_START, MAKE_ID_TURN_END, MAKE_CONTROL_COUNT };

/* Tokens that mean something; a model may have more rows. */
uint32_t make_vocabulary_count(void);
/* Writes every tokenizer.* key. pre: the pre-tokenizer's name. Rows from make_vocabulary_count() up
 * to row_count become unused padding. */
void make_vocabulary_write(struct gguf_writer *writer, const char *pre, uint32_t row_count);

#endif
