/* UTF-8 checking, shared by what reads text from outside and what writes text out. */
#ifndef BATON_BASE_UTF8_H
#define BATON_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the well-formed sequence at p (1-4), 0 if it is malformed, -n if it is a well-formed
 * beginning that needs n more bytes. */
int utf8_sequence(const uint8_t *p, size_t bytes, uint32_t *code_point_out);
bool utf8_valid(const char *text, size_t bytes);
/* Bytes at the end of text that are the unfinished beginning of a sequence (0-3). */
size_t utf8_unfinished(const char *text, size_t bytes);

#endif
