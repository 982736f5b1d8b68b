#include "tests/router/tiny_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model/format/gguf_writer.h"
#include "tests/router/scratch_folder.h"

/* The character that stands for a byte in a byte-level vocabulary, as UTF-8. */
static size_t byte_character(int byte, char out[4])
{
    int code = byte;
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    if (!printable) {
        code = 256;
        for (int b = 0; b < byte; b++)
            code += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
    }
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

static void write_model(const char *path, const char *const *special, size_t count)
{
    static const char *const joined[] = {
        "he", "ll", "hell", "hello", "<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    static const char *const merges[] = {"h e", "l l", "he ll", "hell o"};
    static char characters[256][4];
    const char *tokens[TINY_VOCAB + TINY_MORE_MAX];
    uint32_t bytes[TINY_VOCAB + TINY_MORE_MAX], merge_bytes[4];
    int32_t types[TINY_VOCAB + TINY_MORE_MAX];
    CHECK(count <= TINY_MORE_MAX);
    for (int i = 0; i < 256; i++) {
        bytes[i] = (uint32_t)byte_character(i, characters[i]);
        tokens[i] = characters[i];
        types[i] = 1;
    }
    for (size_t i = 0; i < ARRAY_COUNT(joined); i++) {
        tokens[256 + i] = joined[i];
        bytes[256 + i] = (uint32_t)strlen(joined[i]);
        types[256 + i] = 256 + i >= TINY_BYTES_END ? 3 : 1;
    }
    for (size_t i = 0; i < count; i++) {
        tokens[TINY_VOCAB + i] = special[i];
        bytes[TINY_VOCAB + i] = (uint32_t)strlen(special[i]);
        types[TINY_VOCAB + i] = 3;
    }
    for (size_t i = 0; i < ARRAY_COUNT(merges); i++)
        merge_bytes[i] = (uint32_t)strlen(merges[i]);
    struct gguf_writer *writer;
    struct error error;
    CHECK(gguf_writer_open(path, &writer, &error) == STATUS_OK);
    gguf_writer_put_string(writer, "general.architecture", "llama", 5);
    gguf_writer_put_string(writer, "general.name", "tiny", 4);
    gguf_writer_put_u32(writer, "llama.context_length", TINY_CONTEXT);
    gguf_writer_put_string(writer, "tokenizer.ggml.model", "gpt2", 4);
    gguf_writer_put_string(writer, "tokenizer.ggml.pre", "gpt-2", 5);
    gguf_writer_put_strings(writer, "tokenizer.ggml.tokens", tokens, bytes, TINY_VOCAB + count);
    gguf_writer_put_i32s(writer, "tokenizer.ggml.token_type", types, TINY_VOCAB + count);
    gguf_writer_put_strings(writer, "tokenizer.ggml.merges", merges, merge_bytes, 4);
    gguf_writer_put_u32(writer, "tokenizer.ggml.bos_token_id", TINY_BYTES_END);
    gguf_writer_put_u32(writer, "tokenizer.ggml.eos_token_id", TINY_END);
    gguf_writer_put_bool(writer, "tokenizer.ggml.add_bos_token", false);
    CHECK(gguf_writer_finish(writer, &error) == STATUS_OK);
}

const char *tiny_model_path(void)
{
    static char path[512];
    if (path[0])
        return path;
    snprintf(path, sizeof path, "%s/tiny.gguf", scratch_folder());
    write_model(path, NULL, 0);
    return path;
}

static struct text *open_file(const char *path)
{
    struct text *text;
    struct error error = {.text = ""};
    if (text_open(path, &text, &error) != STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        abort();
    }
    return text;
}

struct text *tiny_text_open(void)
{
    return open_file(tiny_model_path());
}

struct text *tiny_text_open_with(const char *const *special, size_t count)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tiny_more.gguf", scratch_folder());
    write_model(path, special, count);
    return open_file(path);
}
