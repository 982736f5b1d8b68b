/* NFC: decompose, order combining marks by class, compose. utf8proc's own ordering is quadratic in
 * the length of a run of marks, which a hostile text can make as long as it likes, so the ordering
 * is done here. */
#include "model/text/normalize.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "base/check.h"
#include "base/utf8.h"

/* Everything below U+0300 is in NFC and combines with nothing before it. */
enum { FIRST_AFFECTED_BYTE = 0xcc, CLASS_COUNT = 256, DECOMPOSED_MAX = 32 };

static bool certainly_nfc(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((uint8_t)text[i] >= FIRST_AFFECTED_BYTE)
            return false;
    return true;
}

static int combining_class(int32_t point)
{
    return utf8proc_get_property(point)->combining_class;
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

/* The canonical decomposition of every character. */
static int32_t *text_decompose(const char *text, size_t bytes, size_t *count_out)
{
    size_t capacity = bytes + DECOMPOSED_MAX;
    int32_t *points = malloc(capacity * sizeof *points);
    CHECK(points != NULL);
    size_t count = 0;
    for (size_t at = 0; at < bytes;) {
        if (capacity - count < DECOMPOSED_MAX) {
            capacity *= 2;
            points = realloc(points, capacity * sizeof *points);
            CHECK(points != NULL);
        }
        uint32_t point = 0;
        const int length = utf8_sequence((const uint8_t *)text + at, bytes - at, &point);
        CHECK(length > 0);
        at += (size_t)length;
        int last_class = 0;
        const utf8proc_ssize_t written =
            utf8proc_decompose_char((int32_t)point, points + count, DECOMPOSED_MAX,
                                    UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &last_class);
        CHECK(written > 0 && written <= DECOMPOSED_MAX);
        count += (size_t)written;
    }
    *count_out = count;
    return points;
}

void normalize_nfc(const char *text, size_t bytes, struct buffer *scratch, const char **text_out,
                   size_t *bytes_out)
{
    *text_out = text;
    *bytes_out = bytes;
    if (certainly_nfc(text, bytes))
        return;
    size_t count;
    int32_t *points = text_decompose(text, bytes, &count);
    int32_t *spare = malloc(count * sizeof *spare);
    CHECK(spare != NULL);
    marks_order(points, spare, count);
    free(spare);
    const utf8proc_ssize_t composed = utf8proc_normalize_utf32(points, (utf8proc_ssize_t)count,
                                                               UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    CHECK(composed >= 0);
    buffer_clear(scratch);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        uint8_t encoded[4];
        buffer_add(scratch, encoded, (size_t)utf8proc_encode_char(points[i], encoded));
    }
    free(points);
    *text_out = scratch->data;
    *bytes_out = scratch->size;
}
