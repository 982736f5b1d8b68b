/* Token ids to text, as they come: whole characters go out, the bytes of an unfinished one wait. */
#include "base/utf8.h"
#include "model/text/text_internal.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

void text_stream_init(struct text_stream *stream, const struct text *text, bool skip_special)
{
    *stream = (struct text_stream){.text = text, .skip_special = skip_special};
}

void text_stream_init_whole(struct text_stream *stream, const struct text *text, bool skip_special)
{
    text_stream_init(stream, text, skip_special);
    stream->at_start = true;
    stream->strip_count = (uint32_t)decoder_start(text->decoder)->strip_count;
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

static void bytes_push(struct text_stream *stream, const char *bytes, size_t count,
                       struct buffer *out)
{
    if (stream->raw) {
        buffer_add(out, bytes, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        byte_push(stream, (uint8_t)bytes[i], out);
}

/* The first token of a whole text, where its marks are dropped. */
static void bare_push(struct text_stream *stream, int32_t id, struct buffer *out)
{
    const struct decoder_start *start = decoder_start(stream->text->decoder);
    size_t left;
    const char *at = vocabulary_text(&stream->text->vocabulary, id, &left);
    while (left > 0) {
        const char *mark = memmem(at, left, start->mark, start->mark_bytes);
        const size_t plain = mark != NULL ? (size_t)(mark - at) : left;
        bytes_push(stream, at, plain, out);
        const size_t taken = plain + (mark != NULL ? start->mark_bytes : 0);
        at += taken;
        left -= taken;
    }
}

void text_stream_push(struct text_stream *stream, int32_t id, struct buffer *out)
{
    if (stream->skip_special && text_token_special(stream->text, id))
        return;
    const struct decoder_start *start = decoder_start(stream->text->decoder);
    const bool first = stream->at_start;
    stream->at_start = false;
    size_t count;
    const char *bytes = vocabulary_text(&stream->text->vocabulary, id, &count);
    if (first && start->first_token_bare &&
        memmem(bytes, count, start->mark, start->mark_bytes) != NULL) {
        bare_push(stream, id, out);
        return;
    }
    if (start->joined && !first)
        bytes_push(stream, " ", 1, out);
    bytes = text_token_bytes(stream->text, id, &count);
    while (stream->strip_count > 0 && count > 0) {
        if (count < start->mark_bytes || memcmp(bytes, start->mark, start->mark_bytes) != 0) {
            stream->strip_count = 0;
            break;
        }
        stream->strip_count--;
        bytes += start->mark_bytes;
        count -= start->mark_bytes;
    }
    bytes_push(stream, bytes, count, out);
}

void text_stream_finish(struct text_stream *stream, struct buffer *out)
{
    if (stream->held_count > 0)
        buffer_add(out, replacement, sizeof replacement - 1);
    stream->held_count = 0;
}

void text_decode(const struct text *text, const int32_t *ids, size_t count, struct buffer *out)
{
    struct text_stream stream;
    text_stream_init_whole(&stream, text, false);
    stream.raw = true;
    for (size_t i = 0; i < count; i++)
        text_stream_push(&stream, ids[i], out);
}
