/* Normalising: decompose, order combining marks by class, compose. utf8proc's own ordering is
 * quadratic in the length of a run of marks, which a hostile text can make as long as it likes, so
 * the ordering is done here.
 *
 * The reference tokenizers normalise by the tables of Unicode 9. Characters that became marks or
 * composites later are ordinary ones here too, or ids would differ. */
#include "model/text/unicode.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "base/check.h"
#include "base/utf8.h"

enum { CLASS_COUNT = 256, DECOMPOSED_MAX = 32, DOTTED_CAPITAL_I = 0x130 };

/* What a form asks of utf8proc, and the first lead byte of a character that it may change: U+0300
 * for NFC, since everything below is composed and combines with nothing before it, else U+0080. */
static const struct {
    utf8proc_option_t decompose;
    bool composes;
    uint8_t first_affected;
} forms[] = {
    [UNICODE_NFC] = {UTF8PROC_DECOMPOSE, true, 0xcc},
    [UNICODE_NFD] = {UTF8PROC_DECOMPOSE, false, 0xc2},
    [UNICODE_NFKC] = {UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, true, 0xc2},
    [UNICODE_NFKD] = {UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, false, 0xc2},
};

static bool certainly_in_form(enum unicode_form form, const char *text, size_t bytes)
{
    const uint8_t first = forms[form].first_affected;
    for (size_t i = 0; i < bytes; i++)
        if ((uint8_t)text[i] >= first)
            return false;
    return true;
}

/* Ascending: marks, which normalisation would move, U+11930 and U+11938, which it would compose,
 * and characters that the compatibility forms would take apart. */
static const struct {
    int32_t first, last;
} later_ranges[] = {
    {0x07fd, 0x07fd},   {0x0898, 0x089f},   {0x08ca, 0x08d3},   {0x09fe, 0x09fe},
    {0x0c3c, 0x0c3c},   {0x0d3b, 0x0d3c},   {0x0eba, 0x0eba},   {0x1715, 0x1715},
    {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},
    {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x10781, 0x10785}, {0x10787, 0x107b0},
    {0x107b2, 0x107ba}, {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b},
    {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11938, 0x11938},
    {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34},
    {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45},
    {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e030, 0x1e06d},
    {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
};

static bool is_later(int32_t point)
{
    for (size_t i = 0; i < ARRAY_COUNT(later_ranges) && point >= later_ranges[i].first; i++)
        if (point <= later_ranges[i].last)
            return true;
    return false;
}

static int combining_class(int32_t point)
{
    const int class = utf8proc_get_property(point)->combining_class;
    return class != 0 && is_later(point) ? 0 : class;
}

/* Stable counting sort of a run of marks by class. */
static void marks_sort(int32_t *marks, int32_t *spare, size_t count)
{
    size_t starts[CLASS_COUNT + 1] = {0};
    for (size_t i = 0; i < count; i++)
        starts[combining_class(marks[i]) + 1]++;
    for (size_t class = 1; class <= CLASS_COUNT; class ++)
        starts[class] += starts[class - 1];
    for (size_t i = 0; i < count; i++)
        spare[starts[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, spare, count * sizeof *marks);
}

static void marks_order(int32_t *points, int32_t *spare, size_t count)
{
    for (size_t i = 0; i < count;) {
        if (combining_class(points[i]) == 0) {
            i++;
            continue;
        }
        size_t end = i;
        bool ordered = true;
        for (int before = 0; end < count; end++) {
            const int class = combining_class(points[end]);
            if (class == 0)
                break;
            ordered = ordered && class >= before;
            before = class;
        }
        if (!ordered)
            marks_sort(points + i, spare, end - i);
        i = end;
    }
}

/* The decomposition of every character; NULL when there are more than count_max. */
static int32_t *text_decompose(enum unicode_form form, const char *text, size_t bytes,
                               size_t count_max, size_t *count_out)
{
    size_t capacity = bytes + DECOMPOSED_MAX;
    int32_t *points = malloc(capacity * sizeof *points);
    CHECK(points != NULL);
    size_t count = 0;
    for (size_t at = 0; at < bytes;) {
        if (count > count_max) {
            free(points);
            return NULL;
        }
        if (capacity - count < DECOMPOSED_MAX) {
            capacity *= 2;
            points = realloc(points, capacity * sizeof *points);
            CHECK(points != NULL);
        }
        uint32_t point = 0;
        const int length = utf8_sequence((const uint8_t *)text + at, bytes - at, &point);
        CHECK(length > 0);
        at += (size_t)length;
        if (is_later((int32_t)point)) {
            points[count++] = (int32_t)point;
            continue;
        }
        int last_class = 0;
        const utf8proc_ssize_t written =
            utf8proc_decompose_char((int32_t)point, points + count, DECOMPOSED_MAX,
                                    UTF8PROC_STABLE | forms[form].decompose, &last_class);
        CHECK(written > 0 && written <= DECOMPOSED_MAX);
        count += (size_t)written;
    }
    *count_out = count;
    return points;
}

/* Composes what stands between later characters, in place; *count is the new length. */
static void points_compose(int32_t *points, size_t *count)
{
    size_t written = 0;
    for (size_t at = 0; at < *count;) {
        size_t end = at;
        while (end < *count && !is_later(points[end]))
            end++;
        const utf8proc_ssize_t composed = utf8proc_normalize_utf32(
            points + at, (utf8proc_ssize_t)(end - at), UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        CHECK(composed >= 0);
        memmove(points + written, points + at, (size_t)composed * sizeof *points);
        written += (size_t)composed;
        while (end < *count && is_later(points[end]))
            points[written++] = points[end++];
        at = end;
    }
    *count = written;
}

static void point_add(struct buffer *out, int32_t point)
{
    uint8_t encoded[4];
    buffer_add(out, encoded, (size_t)utf8proc_encode_char(point, encoded));
}

bool unicode_normalize(enum unicode_form form, const char *text, size_t bytes,
                       size_t characters_max, struct buffer *scratch, const char **text_out,
                       size_t *bytes_out)
{
    *text_out = text;
    *bytes_out = bytes;
    if (certainly_in_form(form, text, bytes))
        return true;
    size_t count;
    int32_t *points = text_decompose(form, text, bytes, characters_max, &count);
    if (points == NULL)
        return false;
    CHECK(count > 0); // the empty text is in every form
    int32_t *spare = malloc(count * sizeof *spare);
    CHECK(spare != NULL);
    marks_order(points, spare, count);
    free(spare);
    if (forms[form].composes)
        points_compose(points, &count);
    buffer_clear(scratch);
    for (size_t i = 0; i < count; i++)
        point_add(scratch, points[i]);
    free(points);
    *text_out = scratch->data;
    *bytes_out = scratch->size;
    return true;
}

void unicode_lowercase(const char *text, size_t bytes, struct buffer *out)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t point = 0;
        const int length = utf8_sequence((const uint8_t *)text + at, bytes - at, &point);
        CHECK(length > 0);
        at += (size_t)length;
        if (point == DOTTED_CAPITAL_I) // the one letter whose lower case is two characters
            buffer_add_text(out, "i\xcc\x87");
        else
            point_add(out, utf8proc_tolower((int32_t)point));
    }
}

void unicode_strip_marks(const char *text, size_t bytes, struct buffer *out)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t point = 0;
        const int length = utf8_sequence((const uint8_t *)text + at, bytes - at, &point);
        CHECK(length > 0);
        const utf8proc_category_t category = utf8proc_category((int32_t)point);
        const bool mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                          category == UTF8PROC_CATEGORY_ME;
        if (!mark || is_later((int32_t)point))
            buffer_add(out, text + at, (size_t)length);
        at += (size_t)length;
    }
}

bool unicode_is_space(uint32_t point)
{
    return (point >= 0x9 && point <= 0xd) || point == 0x20 || point == 0x85 || point == 0xa0 ||
           point == 0x1680 || (point >= 0x2000 && point <= 0x200a) || point == 0x2028 ||
           point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

bool unicode_is_word(uint32_t point)
{
    switch (utf8proc_category((int32_t)point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return point == 0x200c || point == 0x200d;
    }
}

enum unicode_case unicode_case(uint32_t point)
{
    switch (utf8proc_category((int32_t)point)) {
    case UTF8PROC_CATEGORY_LU:
        return UNICODE_CASE_UPPER;
    case UTF8PROC_CATEGORY_LL:
        return UNICODE_CASE_LOWER;
    case UTF8PROC_CATEGORY_LT:
        return UNICODE_CASE_TITLE;
    default:
        return UNICODE_CASE_NONE;
    }
}

uint32_t unicode_to_lower(uint32_t point)
{
    return (uint32_t)utf8proc_tolower((int32_t)point);
}

uint32_t unicode_to_upper(uint32_t point)
{
    return (uint32_t)utf8proc_toupper((int32_t)point);
}

bool unicode_is_letter(uint32_t point)
{
    const utf8proc_category_t category = utf8proc_category((int32_t)point);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool unicode_is_digit(uint32_t point)
{
    return utf8proc_category((int32_t)point) == UTF8PROC_CATEGORY_ND;
}

bool unicode_is_printable(uint32_t point)
{
    switch (utf8proc_category((int32_t)point)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return point == ' ';
    default:
        return true;
    }
}

enum unicode_break unicode_break(uint32_t point)
{
    switch (utf8proc_get_property((int32_t)point)->boundclass) {
    case UTF8PROC_BOUNDCLASS_CR:
        return BREAK_CR;
    case UTF8PROC_BOUNDCLASS_LF:
        return BREAK_LF;
    case UTF8PROC_BOUNDCLASS_CONTROL:
        return BREAK_CONTROL;
    case UTF8PROC_BOUNDCLASS_EXTEND:
        return BREAK_EXTEND;
    case UTF8PROC_BOUNDCLASS_ZWJ:
        return BREAK_ZWJ;
    case UTF8PROC_BOUNDCLASS_SPACINGMARK:
        return BREAK_SPACING;
    case UTF8PROC_BOUNDCLASS_PREPEND:
        return BREAK_PREPEND;
    case UTF8PROC_BOUNDCLASS_L:
        return BREAK_HANGUL_L;
    case UTF8PROC_BOUNDCLASS_V:
        return BREAK_HANGUL_V;
    case UTF8PROC_BOUNDCLASS_T:
        return BREAK_HANGUL_T;
    case UTF8PROC_BOUNDCLASS_LV:
        return BREAK_HANGUL_LV;
    case UTF8PROC_BOUNDCLASS_LVT:
        return BREAK_HANGUL_LVT;
    default:
        return BREAK_OTHER;
    }
}

/* Where the last character of a text begins. */
static size_t last_character(const char *text, size_t bytes)
{
    do
        bytes--;
    while (bytes > 0 && ((uint8_t)text[bytes] & 0xc0) == 0x80);
    return bytes;
}

void unicode_strip_spaces(const char *text, size_t bytes, bool left, bool right,
                          const char **text_out, size_t *bytes_out)
{
    uint32_t point = 0;
    while (left && bytes > 0) {
        const int length = utf8_sequence((const uint8_t *)text, bytes, &point);
        if (length <= 0 || !unicode_is_space(point))
            break;
        text += length;
        bytes -= (size_t)length;
    }
    while (right && bytes > 0) {
        const size_t start = last_character(text, bytes);
        if (utf8_sequence((const uint8_t *)text + start, bytes - start, &point) <= 0 ||
            !unicode_is_space(point))
            break;
        bytes = start;
    }
    *text_out = text;
    *bytes_out = bytes;
}
