/* Regular expressions as tokenizer files write them (Oniguruma's syntax), run by PCRE2 with its JIT
 * where the system allows one, and with a limit on the steps of a match.
 *
 * White space, letters and numbers are those of the reference tokenizers' Unicode version. What the
 * two libraries read differently, or what Baton does not know to be the same, is refused. */
#ifndef BATON_MODEL_TEXT_PATTERN_H
#define BATON_MODEL_TEXT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct pattern;

/* Of an expression and of a literal: what PCRE2 compiles of so many bytes fits its 64 KiB. */
enum { PATTERN_BYTES_MAX = 16384 };
enum { PATTERN_STEPS_BASE = 1000000, PATTERN_STEPS_PER_BYTE = 64 };

/* From a regular expression; INVALID or UNSUPPORTED with the position. Immutable, any thread. */
enum status pattern_create(const char *expression, size_t bytes, struct pattern **out,
                           struct error *error);
/* From PCRE2's own syntax; the program's own patterns. */
struct pattern *pattern_create_own(const char *expression);
/* Matches exactly this text of 1 to PATTERN_BYTES_MAX bytes, well-formed UTF-8. */
struct pattern *pattern_create_literal(const char *text, size_t bytes);
void pattern_destroy(struct pattern *pattern); /* NULL is fine */

/* What a thread needs to match, and the steps that matching may still take. A step is a character
 * or an alternative that an expression of a file looks at; the program's own patterns, which are
 * known to look at every character a few times, are not counted. */
struct pattern_scratch;
/* With PATTERN_STEPS_BASE steps. */
struct pattern_scratch *pattern_scratch_create(void);
/* Adds PATTERN_STEPS_PER_BYTE steps a byte: before a text is searched to its end. */
void pattern_scratch_allow(struct pattern_scratch *scratch, size_t bytes);
uint64_t pattern_scratch_steps(const struct pattern_scratch *scratch); /* taken so far */
void pattern_scratch_destroy(struct pattern_scratch *scratch);         /* NULL is fine */

/* The first match in well-formed UTF-8 at or after `at`: *found_out, and its bounds, which may be
 * equal. LIMIT when the steps are used up, or one match takes more than 10^6 + 16 a byte of
 * PCRE2's own or 256 MiB. */
enum status pattern_find(const struct pattern *pattern, struct pattern_scratch *scratch,
                         const char *text, size_t bytes, size_t at, bool *found_out,
                         size_t *start_out, size_t *end_out, struct error *error);
/* Where to search next: behind the match, and behind a character when it was empty. */
static inline size_t pattern_resume(const char *text, size_t bytes, size_t start, size_t end)
{
    if (start != end)
        return end;
    do
        end++;
    while (end < bytes && ((unsigned char)text[end] & 0xc0) == 0x80);
    return end;
}

#endif
