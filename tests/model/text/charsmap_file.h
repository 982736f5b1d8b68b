/* Character maps made on the spot, for tests. */
#ifndef BATON_TESTS_MODEL_CHARSMAP_FILE_H
#define BATON_TESTS_MODEL_CHARSMAP_FILE_H

#include "base/bytes.h"

struct charsmap_pair {
    const char *from, *to;
};

/* Appends the map of these pairs, ended by a NULL, as charsmap.h describes it, before base64. All
 * pairs together must fit a trie of CHARSMAP_FILE_UNITS. */
enum { CHARSMAP_FILE_UNITS = 4096 };
void charsmap_file_make(const struct charsmap_pair *pairs, struct buffer *out);
void charsmap_file_base64(const void *bytes, size_t count, struct buffer *out);

#endif
