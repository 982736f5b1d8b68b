#include "base/utf8.h"

/* Well-formed sequences as in table 3-7 of the Unicode standard: only the second byte has a range
 * that depends on the first. */
struct shape {
    int length; /* 0: not a first byte */
    uint8_t second_low, second_high, first_bits;
};

static struct shape shape_of(uint8_t first)
{
    if (first >= 0xC2 && first <= 0xDF)
        return (struct shape){2, 0x80, 0xBF, 0x1F};
    if (first >= 0xE0 && first <= 0xEF) {
        const uint8_t low = first == 0xE0 ? 0xA0 : 0x80;  /* no overlong forms */
        const uint8_t high = first == 0xED ? 0x9F : 0xBF; /* no surrogates */
        return (struct shape){3, low, high, 0x0F};
    }
    if (first >= 0xF0 && first <= 0xF4) {
        const uint8_t low = first == 0xF0 ? 0x90 : 0x80;  /* no overlong forms */
        const uint8_t high = first == 0xF4 ? 0x8F : 0xBF; /* nothing above U+10FFFF */
        return (struct shape){4, low, high, 0x07};
    }
    return (struct shape){0, 0, 0, 0};
}

int utf8_sequence(const uint8_t *p, size_t bytes, uint32_t *code_point_out)
{
    if (bytes == 0)
        return 0;
    if (p[0] < 0x80) {
        if (code_point_out)
            *code_point_out = p[0];
        return 1;
    }
    const struct shape shape = shape_of(p[0]);
    if (shape.length == 0)
        return 0;
    uint32_t code_point = p[0] & shape.first_bits;
    for (int i = 1; i < shape.length; i++) {
        if ((size_t)i >= bytes)
            return i - shape.length;
        const uint8_t low = i == 1 ? shape.second_low : 0x80;
        const uint8_t high = i == 1 ? shape.second_high : 0xBF;
        if (p[i] < low || p[i] > high)
            return 0;
        code_point = code_point << 6 | (p[i] & 0x3Fu);
    }
    if (code_point_out)
        *code_point_out = code_point;
    return shape.length;
}

bool utf8_valid(const char *text, size_t bytes)
{
    const uint8_t *p = (const uint8_t *)text;
    for (size_t at = 0; at < bytes;) {
        const int length = utf8_sequence(p + at, bytes - at, NULL);
        if (length <= 0)
            return false;
        at += (size_t)length;
    }
    return true;
}

size_t utf8_unfinished(const char *text, size_t bytes)
{
    const uint8_t *p = (const uint8_t *)text;
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        const uint8_t *at = p + bytes - back;
        if (*at < 0x80)
            return 0;
        if (*at >= 0xC0)
            return utf8_sequence(at, back, NULL) < 0 ? back : 0;
    }
    return 0;
}
