/* Unicode as the reference tokenizers know it: normalisation forms and letter case. */
#ifndef BATON_MODEL_TEXT_UNICODE_H
#define BATON_MODEL_TEXT_UNICODE_H

#include <stdbool.h>

#include "base/bytes.h"

enum unicode_form { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD };

/* Well-formed UTF-8 in, its normalisation form out. *text_out is the input itself where that is
 * certainly in the form, else memory in `scratch`, valid until its next use. O(n log n) for any
 * input. False, and nothing out, when its decomposition has more than characters_max characters. */
bool unicode_normalize(enum unicode_form form, const char *text, size_t bytes,
                       size_t characters_max, struct buffer *scratch, const char **text_out,
                       size_t *bytes_out);
/* Appends the text in lower case, which may be longer: each character's own, whatever stands around
 * it. */
void unicode_lowercase(const char *text, size_t bytes, struct buffer *out);
/* Appends the text without its combining marks. */
void unicode_strip_marks(const char *text, size_t bytes, struct buffer *out);
/* The part of the text without the white space at its ends. */
void unicode_strip_spaces(const char *text, size_t bytes, bool left, bool right,
                          const char **text_out, size_t *bytes_out);
bool unicode_is_space(uint32_t point);
/* How a character takes part in grapheme clusters: Grapheme_Cluster_Break of Unicode 15. */
enum unicode_break {
    BREAK_OTHER,
    BREAK_CR,
    BREAK_LF,
    BREAK_CONTROL,
    BREAK_EXTEND,
    BREAK_ZWJ,
    BREAK_SPACING,
    BREAK_PREPEND,
    BREAK_HANGUL_L,
    BREAK_HANGUL_V,
    BREAK_HANGUL_T,
    BREAK_HANGUL_LV,
    BREAK_HANGUL_LVT,
};
enum unicode_break unicode_break(uint32_t point);
/* Letters, marks, digits, connectors and joiners. */
bool unicode_is_word(uint32_t point);
/* Letter case of one character, as Python's strings have it. */
enum unicode_case { UNICODE_CASE_NONE, UNICODE_CASE_LOWER, UNICODE_CASE_UPPER, UNICODE_CASE_TITLE };
enum unicode_case unicode_case(uint32_t point);
uint32_t unicode_to_lower(uint32_t point);
uint32_t unicode_to_upper(uint32_t point);
bool unicode_is_letter(uint32_t point);
bool unicode_is_digit(uint32_t point); /* decimal ones */
/* Whether Python's repr() shows the character as it is. */
bool unicode_is_printable(uint32_t point);

#endif
