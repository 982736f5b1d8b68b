/* NFC: decomposing, ordering by class and composing, on characters that need each. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "model/text/unicode.h"

static void becomes(const char *from, const char *to)
{
    struct buffer scratch = {0};
    const char *text;
    size_t bytes;
    unicode_normalize(UNICODE_NFC, from, strlen(from), SIZE_MAX, &scratch, &text, &bytes);
    cr_expect(bytes == strlen(to) && memcmp(text, to, bytes) == 0, "'%s' became '%.*s'", from,
              (int)bytes, text);
    buffer_free(&scratch);
}

Test(unicode, composes)
{
    becomes("cafe\xcc\x81", "caf\xc3\xa9");
    becomes("ye\xcc\x82\xcc\x81u", "y\xe1\xba\xbfu");                // yếu
    becomes("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c"); // Hangul
    becomes("\xe2\x84\xa6", "\xce\xa9");                             // ohm is omega
    becomes("plain text, \xc3\xa9", "plain text, \xc3\xa9");
}

Test(unicode, orders_marks_by_class)
{
    becomes("q\xcc\x87\xcc\xa3", "q\xcc\xa3\xcc\x87");
    becomes("a\xcc\x81\xcc\xa3", "\xe1\xba\xa1\xcc\x81"); // the dot below goes first and composes
    becomes("\xcc\x81\xcc\xa3", "\xcc\xa3\xcc\x81");
}

Test(unicode, leaves_what_composition_excludes)
{
    becomes("\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"); // Devanagari qa
    becomes("\xef\xac\x81", "\xef\xac\x81");             // the ligature fi is no canonical one
    becomes("\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7", "\xf0\x9f\x91\xa9\xe2\x80\x8d"
                                                            "\xf0\x9f\x91\xa7");
}

/* Marks younger than Unicode 9 stay where they are, as in the reference (U+08D3 has class 220). */
Test(unicode, younger_marks_do_not_move)
{
    becomes("q\xcc\x87\xe0\xa3\x93", "q\xcc\x87\xe0\xa3\x93");
    becomes("\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0", "\xf0\x91\xa4\xb5\xf0\x91\xa4\xb0");
    becomes("\xf0\x91\xa4\xb8", "\xf0\x91\xa4\xb8");
}

Test(unicode, a_long_run_of_marks_is_ordered_in_linear_time)
{
    enum { PAIRS = 200000 };
    struct buffer marks = {0};
    struct buffer scratch = {0};
    const char *text;
    size_t bytes;
    buffer_add(&marks, "q", 1);
    for (size_t i = 0; i < PAIRS; i++)
        buffer_add(&marks, "\xcc\x87\xcc\xa3", 4);
    unicode_normalize(UNICODE_NFC, marks.data, marks.size, SIZE_MAX, &scratch, &text, &bytes);
    cr_assert_eq(bytes, marks.size);
    cr_assert_eq(memcmp(text + 1, "\xcc\xa3\xcc\xa3", 4), 0);
    cr_assert_eq(memcmp(text + bytes - 4, "\xcc\x87\xcc\x87", 4), 0);
    buffer_free(&marks);
    buffer_free(&scratch);
}

Test(unicode, strips_marks_and_lowers_case)
{
    struct buffer out = {0};
    unicode_strip_marks("e\xcc\x81\xe0\xa4\xb9\xe0\xa5\x80x", 10, &out); // acute, vowel sign
    cr_expect_str_eq(out.data, "e\xe0\xa4\xb9x");
    buffer_clear(&out);
    unicode_lowercase("\xc4\xb0\xc3\x89", 4, &out);
    cr_expect_str_eq(out.data, "i\xcc\x87\xc3\xa9");
    buffer_free(&out);
}

Test(unicode, compatibility_forms_know_what_unicode_9_knew)
{
    struct buffer scratch = {0};
    const char *text;
    size_t bytes;
    unicode_normalize(UNICODE_NFKC, "\xef\xac\x81\xe3\x8b\xbf", 6, SIZE_MAX, &scratch, &text,
                      &bytes);
    cr_expect(bytes == 5 && memcmp(text, "fi\xe3\x8b\xbf", 5) == 0); // U+32FF is of Unicode 12
    unicode_normalize(UNICODE_NFKD, "\xc3\xa9\xe2\x91\xa0", 5, SIZE_MAX, &scratch, &text, &bytes);
    cr_expect(bytes == 4 && memcmp(text, "e\xcc\x81\x31", 4) == 0);
    buffer_free(&scratch);
}
