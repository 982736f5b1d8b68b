/* A vocabulary for grammars: every byte, and tokens that span the symbols of JSON. */
#ifndef BATON_TESTS_MODEL_JSON_VOCABULARY_H
#define BATON_TESTS_MODEL_JSON_VOCABULARY_H

#include "model/text/text.h"

struct text *json_vocabulary_open(void);
/* The ids that end an answer. */
enum { JSON_VOCABULARY_ENDS = 1 };
int32_t json_vocabulary_end(const struct text *text);
#define JSON_VOCABULARY_SPECIAL "[CALL]" /* a special token */

#endif
