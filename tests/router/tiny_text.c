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

struct tiny_file {
    const char *name;
    uint32_t merge_count;
    const char *const *special; /* [special_count] more tokens; NULL when it is 0 */
    size_t special_count;
};

static void write_model(const struct tiny_file *file, const char *path)
{
    const size_t count = file->special_count;
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
        tokens[TINY_VOCAB + i] = file->special[i];
        bytes[TINY_VOCAB + i] = (uint32_t)strlen(file->special[i]);
        types[TINY_VOCAB + i] = 3;
    }
    for (size_t i = 0; i < ARRAY_COUNT(merges); i++)
        merge_bytes[i] = (uint32_t)strlen(merges[i]);
    struct gguf_writer *writer;
    struct error error;
    CHECK(gguf_writer_open(path, &writer, &error) == STATUS_OK);
    gguf_writer_put_string(writer, "general.architecture", "llama", 5);
    gguf_writer_put_string(writer, "general.name", file->name, strlen(file->name));
    gguf_writer_put_u32(writer, "llama.context_length", TINY_CONTEXT);
    gguf_writer_put_string(writer, "tokenizer.ggml.model", "gpt2", 4);
    gguf_writer_put_string(writer, "tokenizer.ggml.pre", "gpt-2", 5);
    gguf_writer_put_strings(writer, "tokenizer.ggml.tokens", tokens, bytes, TINY_VOCAB + count);
    gguf_writer_put_i32s(writer, "tokenizer.ggml.token_type", types, TINY_VOCAB + count);
    gguf_writer_put_strings(writer, "tokenizer.ggml.merges", merges, merge_bytes,
                            file->merge_count);
    gguf_writer_put_u32(writer, "tokenizer.ggml.bos_token_id", TINY_BYTES_END);
    gguf_writer_put_u32(writer, "tokenizer.ggml.eos_token_id", TINY_END);
    gguf_writer_put_bool(writer, "tokenizer.ggml.add_bos_token", false);
    CHECK(gguf_writer_finish(writer, &error) == STATUS_OK);
}

/* path: [PATH_BYTES], empty until the file is written. */
enum { PATH_BYTES = 512 };
static const char *path_of(const struct tiny_file *file, char *path)
{
    if (!path[0]) {
        snprintf(path, PATH_BYTES, "%s/%s.gguf", scratch_folder(), file->name);
        write_model(file, path);
    }
    return path;
}

const char *tiny_model_path(void)
{
    static const struct tiny_file file = {.name = "tiny", .merge_count = 4};
    static char path[PATH_BYTES];
    return path_of(&file, path);
}

const char *tiny_twin_path(void)
{
    static const struct tiny_file file = {.name = "twin", .merge_count = 4};
    static char path[PATH_BYTES];
    return path_of(&file, path);
}

const char *tiny_other_path(void)
{
    static const struct tiny_file file = {.name = "other", .merge_count = 1};
    static char path[PATH_BYTES];
    return path_of(&file, path);
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
    const struct tiny_file file = {
        .name = "tiny_more", .merge_count = 4, .special = special, .special_count = count};
    char path[PATH_BYTES] = "";
    return open_file(path_of(&file, path));
}
