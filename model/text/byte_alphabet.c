#include "model/text/byte_alphabet.h"

#include "base/utf8.h"

enum { MOVED_FIRST = 0x100, MOVED_COUNT = 68 };

static bool stands_for_itself(uint32_t byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
           (byte >= 0xae && byte <= 0xff);
}

/* The moved bytes in order are 0-32, 127-160 and 173. */
static uint32_t moved_rank(uint8_t byte)
{
    if (byte <= 32)
        return byte;
    return byte <= 160 ? byte - 127u + 33u : MOVED_COUNT - 1;
}

static uint8_t moved_byte(uint32_t rank)
{
    if (rank <= 32)
        return (uint8_t)rank;
    return rank < MOVED_COUNT - 1 ? (uint8_t)(rank - 33 + 127) : 173;
}

void byte_alphabet_add(uint8_t byte, struct buffer *out)
{
    const uint32_t point = stands_for_itself(byte) ? byte : MOVED_FIRST + moved_rank(byte);
    if (point < 0x80) {
        buffer_add_char(out, (char)point);
    } else {
        buffer_add_char(out, (char)(0xc0 | point >> 6));
        buffer_add_char(out, (char)(0x80 | (point & 0x3f)));
    }
}

bool byte_alphabet_decode(const char *text, size_t bytes, struct buffer *out)
{
    const size_t start = out->size;
    for (size_t at = 0; at < bytes;) {
        uint32_t point = 0;
        const int length = utf8_sequence((const uint8_t *)text + at, bytes - at, &point);
        const bool moved = point >= MOVED_FIRST && point < MOVED_FIRST + MOVED_COUNT;
        if (length <= 0 || !(moved || stands_for_itself(point))) {
            out->size = start;
            if (out->data != NULL)
                out->data[start] = '\0';
            return false;
        }
        buffer_add_char(out, (char)(moved ? moved_byte(point - MOVED_FIRST) : point));
        at += (size_t)length;
    }
    return true;
}
