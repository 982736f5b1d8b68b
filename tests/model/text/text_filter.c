/* A filter for differential tests: texts on standard input, their ids and what the ids stand for on
 * standard output, so that a reference implementation in another language can be compared over many
 * strings with one process.
 *
 *   text_filter MODEL [special]
 *
 * A record in is a u32 count of bytes and the bytes; a record out is a u32 count of ids, the ids as
 * i32, a u32 count of bytes and the decoded text. All little-endian. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "model/text/text.h"

enum { RECORD_BYTES_MAX = 1 << 26, EXIT_WRONG_USAGE = 2 };

static bool number_read(uint32_t *out)
{
    uint8_t bytes[4];
    if (fread(bytes, 1, sizeof bytes, stdin) != sizeof bytes)
        return false;
    *out = load_le32(bytes);
    return true;
}

static void number_write(uint32_t value)
{
    uint8_t bytes[4];
    store_le32(bytes, value);
    CHECK(fwrite(bytes, 1, sizeof bytes, stdout) == sizeof bytes);
}

static void answer(const struct text *text, const struct token_list *ids, struct buffer *decoded)
{
    struct text_stream stream;
    buffer_clear(decoded);
    text_stream_init_whole(&stream, text, false);
    number_write((uint32_t)ids->count);
    for (size_t i = 0; i < ids->count; i++) {
        number_write((uint32_t)ids->ids[i]);
        text_stream_push(&stream, ids->ids[i], decoded);
    }
    text_stream_finish(&stream, decoded);
    number_write((uint32_t)decoded->size);
    CHECK(fwrite(decoded->data, 1, decoded->size, stdout) == decoded->size);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("usage: text_filter MODEL [special]\n", stderr);
        return EXIT_WRONG_USAGE;
    }
    struct text *text;
    struct error error = {0};
    if (text_open(argv[1], &text, &error) != STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    const bool special = argc > 2 && strcmp(argv[2], "special") == 0;
    struct buffer input = {0};
    struct buffer decoded = {0};
    struct token_list ids = {0};
    /* Of no bytes as well there is a place, which is what fread and fwrite ask for. */
    buffer_reserve(&input, 1);
    buffer_reserve(&decoded, 1);
    for (uint32_t bytes; number_read(&bytes);) {
        CHECK(bytes <= RECORD_BYTES_MAX);
        buffer_clear(&input);
        buffer_reserve(&input, bytes);
        CHECK(fread(input.data, 1, bytes, stdin) == bytes);
        token_list_clear(&ids);
        if (text_encode(text, input.data, bytes, special, RECORD_BYTES_MAX, &ids, &error) !=
            STATUS_OK) {
            fprintf(stderr, "%s\n", error.text);
            return 1;
        }
        answer(text, &ids, &decoded);
    }
    token_list_free(&ids);
    buffer_free(&input);
    buffer_free(&decoded);
    text_close(text);
    return 0;
}
