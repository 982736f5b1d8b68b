/* Unicode normalisation form C, for tokenizers that ask for it. */
#ifndef BATON_MODEL_TEXT_NORMALIZE_H
#define BATON_MODEL_TEXT_NORMALIZE_H

#include "base/bytes.h"

/* Well-formed UTF-8 in, its NFC out. *text_out is the input itself where that is certainly in NFC,
 * else memory in `scratch`, valid until its next use. O(n log n) for any input. */
void normalize_nfc(const char *text, size_t bytes, struct buffer *scratch, const char **text_out,
                   size_t *bytes_out);

#endif
