/* What the fuzz targets of structured output share: a source is compiled, and where that works
 * answers are written through its masks. */
#ifndef BATON_TESTS_FUZZ_MASKS_H
#define BATON_TESTS_FUZZ_MASKS_H

#include "model/text/grammar/grammar.h"

/* Compiles and walks; checks that a refused source has a sentence, that the matcher takes what its
 * masks allow, and that answers are whole in time. */
void fuzz_source(enum grammar_kind kind, const char *source, size_t bytes);

#endif
