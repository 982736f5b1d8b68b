#include <criterion/criterion.h>
#include <string.h>

#include "base/utf8.h"

static int sequence(const char *text, size_t bytes, uint32_t *out)
{
    return utf8_sequence((const uint8_t *)text, bytes, out);
}

static size_t encode(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

/* Every code point, whole and cut short: surrogates and what lies above U+10FFFF are malformed. */
Test(utf8, every_code_point)
{
    for (uint32_t c = 0; c < 0x120000; c++) {
        char text[4];
        const size_t bytes = encode(c, text);
        const bool good = c < 0xD800 || (c > 0xDFFF && c <= 0x10FFFF);
        uint32_t out = 0;
        cr_assert_eq(sequence(text, 4 < bytes ? 4 : bytes, &out), good ? (int)bytes : 0, "U+%X", c);
        if (!good)
            continue;
        cr_assert_eq(out, c);
        for (size_t cut = 1; cut < bytes; cut++) {
            cr_assert_eq(sequence(text, cut, NULL), (int)cut - (int)bytes);
            cr_assert_eq(utf8_unfinished(text, cut), cut);
        }
        cr_assert_eq(utf8_unfinished(text, bytes), 0);
    }
}

Test(utf8, malformed_sequences)
{
    static const char *const bad[] = {
        "\x80",             /* continuation first */
        "\xBF\xBF",         /* the same */
        "\xC0\x80",         /* overlong NUL */
        "\xC1\xBF",         /* overlong */
        "\xE0\x80\x80",     /* overlong */
        "\xE0\x9F\xBF",     /* overlong */
        "\xF0\x80\x80\x80", /* overlong */
        "\xF0\x8F\xBF\xBF", /* overlong */
        "\xED\xA0\x80",     /* surrogate */
        "\xED\xBF\xBF",     /* surrogate */
        "\xF4\x90\x80\x80", /* above U+10FFFF */
        "\xF5\x80\x80\x80",
        "\xFE",
        "\xFF",
        "\xC3(",         /* second byte is not a continuation */
        "\xE2\x82(",     /* nor the third */
        "\xF0\x9F\x98(", /* nor the fourth */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_assert_eq(sequence(bad[i], strlen(bad[i]), NULL), 0, "row %zu", i);
        cr_assert_not(utf8_valid(bad[i], strlen(bad[i])));
    }
    /* Wrong already before it ends. */
    cr_assert_eq(sequence("\xED\xA0", 2, NULL), 0);
    cr_assert_eq(sequence("\xF4\x90", 2, NULL), 0);
    cr_assert_eq(sequence("", 0, NULL), 0);
}

Test(utf8, valid_looks_at_the_whole_text)
{
    const char text[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z\0b";
    cr_assert(utf8_valid(text, sizeof text - 1));
    cr_assert(utf8_valid("", 0));
    cr_assert_not(utf8_valid(text, 2)); /* cut inside a sequence */
    cr_assert_not(utf8_valid("ok\xFF", 3));
}

Test(utf8, unfinished_counts_only_a_good_beginning)
{
    cr_assert_eq(utf8_unfinished("", 0), 0);
    cr_assert_eq(utf8_unfinished("abc", 3), 0);
    cr_assert_eq(utf8_unfinished("abc\xF0\x9F\x98", 6), 3);
    cr_assert_eq(utf8_unfinished("abc\xE2\x82", 5), 2);
    cr_assert_eq(utf8_unfinished("abc\xE2\x82\xAC", 6), 0);
    cr_assert_eq(utf8_unfinished("abc\x80\x80", 5), 0);
    cr_assert_eq(utf8_unfinished("\x80\x80\x80\x80", 4), 0);
    cr_assert_eq(utf8_unfinished("abc\xFF", 4), 0);
    cr_assert_eq(utf8_unfinished("abc\xED\xA0", 5), 0);
}
