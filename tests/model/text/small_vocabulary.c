#include "tests/model/text/small_vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "model/text/byte_alphabet.h"

static const char *const merges[][2] = {
    {"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"},
    {" ", "w"}, {"a", "a"}, {"aa", "aa"}, {"\n", "\n"},
};

enum { LIST_MAX = 512, LIST_BYTES_MAX = 64 };

/* Strings for the writer. */
struct list {
    char texts[LIST_MAX][LIST_BYTES_MAX];
    const char *values[LIST_MAX];
    uint32_t bytes[LIST_MAX];
    int32_t types[LIST_MAX];
    size_t count;
};

static void list_add(struct list *list, const char *text, size_t bytes, int32_t type)
{
    CHECK(list->count < LIST_MAX && bytes <= LIST_BYTES_MAX);
    memcpy(list->texts[list->count], text, bytes);
    list->values[list->count] = list->texts[list->count];
    list->bytes[list->count] = (uint32_t)bytes;
    list->types[list->count++] = type;
}

static void alphabet_add(struct buffer *out, const char *bytes)
{
    for (; *bytes != '\0'; bytes++)
        byte_alphabet_add((uint8_t)*bytes, out);
}

static void tokens_write(struct gguf_writer *writer, const struct small_vocabulary *vocabulary)
{
    static struct list list;
    struct buffer text = {0};
    list.count = 0;
    for (int byte = 0; byte < 256; byte++) {
        buffer_clear(&text);
        byte_alphabet_add((uint8_t)byte, &text);
        list_add(&list, text.data, text.size, SMALL_NORMAL);
    }
    for (size_t i = 0; i < ARRAY_COUNT(merges); i++) {
        buffer_clear(&text);
        alphabet_add(&text, merges[i][0]);
        alphabet_add(&text, merges[i][1]);
        list_add(&list, text.data, text.size, SMALL_NORMAL);
    }
    for (size_t i = 0; i < SMALL_TOKENS_MAX && vocabulary->tokens[i].text != NULL; i++)
        list_add(&list, vocabulary->tokens[i].text, strlen(vocabulary->tokens[i].text),
                 vocabulary->tokens[i].type);
    gguf_writer_put_strings(writer, "tokenizer.ggml.tokens", list.values, list.bytes, list.count);
    if (!vocabulary->without_types)
        gguf_writer_put_i32s(writer, "tokenizer.ggml.token_type", list.types, list.count);
    buffer_free(&text);
}

static void merges_write(struct gguf_writer *writer, const struct small_vocabulary *vocabulary)
{
    static struct list list;
    struct buffer text = {0};
    list.count = 0;
    for (size_t i = 0; i < ARRAY_COUNT(merges); i++) {
        buffer_clear(&text);
        alphabet_add(&text, merges[i][0]);
        buffer_add_char(&text, ' ');
        alphabet_add(&text, merges[i][1]);
        list_add(&list, text.data, text.size, 0);
    }
    if (vocabulary->merge != NULL)
        list_add(&list, vocabulary->merge, strlen(vocabulary->merge), 0);
    gguf_writer_put_strings(writer, "tokenizer.ggml.merges", list.values, list.bytes, list.count);
    buffer_free(&text);
}

static void put_text(struct gguf_writer *writer, const char *key, const char *value)
{
    gguf_writer_put_string(writer, key, value, strlen(value));
}

static void file_write(const char *path, const struct small_vocabulary *vocabulary)
{
    struct gguf_writer *writer;
    struct error error;
    CHECK(gguf_writer_open(path, &writer, &error) == STATUS_OK);
    put_text(writer, "general.architecture", "llama");
    put_text(writer, "general.name", "small");
    gguf_writer_put_u32(writer, "llama.context_length", 77);
    put_text(writer, "tokenizer.ggml.model",
             vocabulary->model != NULL ? vocabulary->model : "gpt2");
    const char *pre = vocabulary->pre != NULL ? vocabulary->pre : "gpt-2";
    if (strcmp(pre, "-") != 0)
        put_text(writer, "tokenizer.ggml.pre", pre);
    tokens_write(writer, vocabulary);
    merges_write(writer, vocabulary);
    if (vocabulary->chat_template != NULL)
        put_text(writer, "tokenizer.chat_template", vocabulary->chat_template);
    if (vocabulary->more_keys != NULL)
        vocabulary->more_keys(writer);
    CHECK(gguf_writer_finish(writer, &error) == STATUS_OK);
}

/* A new empty file; its name is valid until the next call. */
static const char *file_new(void)
{
    static char path[128];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/baton-vocabulary-XXXXXX", folder != NULL ? folder : "/tmp");
    const int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    return path;
}

enum status small_vocabulary_try(const struct small_vocabulary *vocabulary, struct text **out,
                                 struct error *error)
{
    const char *path = file_new();
    file_write(path, vocabulary);
    const enum status status = text_open(path, out, error);
    unlink(path);
    return status;
}

void small_vocabulary_bytes(const struct small_vocabulary *vocabulary, struct buffer *out)
{
    const char *path = file_new();
    file_write(path, vocabulary);
    CHECK(small_file_read(path, out));
    unlink(path);
}

enum status small_bytes_open(const struct buffer *bytes, struct text **out, struct error *error)
{
    const char *path = file_new();
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(bytes->data, bytes->size, 1, file) == 1 && fclose(file) == 0);
    const enum status status = text_open(path, out, error);
    unlink(path);
    return status;
}

struct text *small_vocabulary_open(const struct small_vocabulary *vocabulary)
{
    struct text *text = NULL;
    struct error error = {0};
    if (small_vocabulary_try(vocabulary, &text, &error) != STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        CHECK(!"the small vocabulary does not open");
    }
    return text;
}

const struct token_list *small_encode(const struct text *text, const char *bytes, size_t count,
                                      bool special)
{
    static struct token_list list;
    struct error error = {0};
    token_list_clear(&list);
    if (text_encode(text, bytes, count, special, 4096, &list, &error) != STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        CHECK(!"the text does not encode");
    }
    return &list;
}

bool small_ids_are(const struct token_list *list, const int32_t *ids, size_t count)
{
    if (list->count == count && (count == 0 || memcmp(list->ids, ids, count * sizeof *ids) == 0))
        return true;
    fputs("got:", stderr);
    for (size_t i = 0; i < list->count; i++)
        fprintf(stderr, " %d", list->ids[i]);
    fputs("\n", stderr);
    return false;
}

const char *small_shared(void)
{
    const char *folder = getenv("BATON_SHARED");
    return folder != NULL ? folder : BATON_SHARED_DIR;
}

const char *small_real_model(void)
{
    static char path[512];
    const char *named = getenv("BATON_MODEL");
    const char *home = getenv("HOME");
    if (named != NULL)
        snprintf(path, sizeof path, "%s", named);
    else
        snprintf(path, sizeof path, "%s/.cache/baton/SmolLM2-135M-Instruct.Q4_1.gguf",
                 home != NULL ? home : "");
    return access(path, R_OK) == 0 ? path : NULL;
}

bool small_file_read(const char *path, struct buffer *out)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return false;
    char piece[65536];
    size_t count;
    while ((count = fread(piece, 1, sizeof piece, file)) > 0)
        buffer_add(out, piece, count);
    fclose(file);
    return true;
}
