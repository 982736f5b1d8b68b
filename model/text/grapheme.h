/* Extended grapheme clusters (Unicode Standard Annex 29), as the reference tokenizers find them. */
#ifndef BATON_MODEL_TEXT_GRAPHEME_H
#define BATON_MODEL_TEXT_GRAPHEME_H

#include <stddef.h>

/* Where the cluster that begins at `at` ends. The text is well-formed UTF-8 and at < bytes.
 * Regional indicators are not paired: clusters are wanted for what is shorter than two of them. */
size_t grapheme_end(const char *text, size_t bytes, size_t at);

#endif
