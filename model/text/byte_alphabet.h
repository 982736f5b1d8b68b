/* The alphabet of byte-level vocabularies: every byte has a printable character that stands for it
 * in the texts of tokens (a space is "Ġ", a newline "Ċ"). Bytes that are printable in Latin-1 stand
 * for themselves, the 68 others for U+0100 and up, in ascending order. */
#ifndef BATON_MODEL_TEXT_BYTE_ALPHABET_H
#define BATON_MODEL_TEXT_BYTE_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/* Appends the character of a byte, in UTF-8 (one or two bytes). */
void byte_alphabet_add(uint8_t byte, struct buffer *out);
/* Appends the bytes that a token's text stands for. False, and nothing appended, when it holds a
 * character outside the alphabet or is not UTF-8. */
bool byte_alphabet_decode(const char *text, size_t bytes, struct buffer *out);

#endif
