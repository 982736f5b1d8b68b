/* Token ids to text, as they come: whole characters go out, the bytes of an unfinished one wait. */
#include "base/utf8.h"
#include "model/text/text_internal.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

void text_stream_init(struct text_stream *stream, const struct text *text, bool skip_special)
{
    *stream = (struct text_stream){.text = text, .skip_special = skip_special};
}

/* Bytes of the malformed beginning at p: all that could have begun a character, at least one. They
 * become one U+FFFD, as the Unicode standard recommends and the reference does. */
static size_t malformed_bytes(const uint8_t *p, size_t bytes)
{
    size_t prefix = 1;
    while (prefix < bytes && utf8_sequence(p, prefix + 1, NULL) < 0)
        prefix++;
    return prefix;
}

/* Takes one byte behind the held ones. held is always a well-formed beginning of a character. */
static void byte_push(struct text_stream *stream, uint8_t byte, struct buffer *out)
{
    stream->held[stream->held_count++] = byte;
    while (stream->held_count > 0) {
        const int length = utf8_sequence(stream->held, stream->held_count, NULL);
        if (length < 0)
            return;
        size_t taken = (size_t)length;
        if (length > 0) {
            buffer_add(out, stream->held, taken);
        } else {
            taken = malformed_bytes(stream->held, stream->held_count);
            buffer_add(out, replacement, sizeof replacement - 1);
        }
        stream->held_count = (uint8_t)(stream->held_count - taken);
        memmove(stream->held, stream->held + taken, stream->held_count);
    }
}

void text_stream_push(struct text_stream *stream, int32_t id, struct buffer *out)
{
    if (stream->skip_special && text_token_special(stream->text, id))
        return;
    size_t count;
    const char *bytes = text_token_bytes(stream->text, id, &count);
    for (size_t i = 0; i < count; i++)
        byte_push(stream, (uint8_t)bytes[i], out);
}

void text_stream_finish(struct text_stream *stream, struct buffer *out)
{
    if (stream->held_count > 0)
        buffer_add(out, replacement, sizeof replacement - 1);
    stream->held_count = 0;
}
