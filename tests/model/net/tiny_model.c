#include "tests/model/net/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "ops/baton/commands.h"

enum { HEADER_BYTES = 24, KEY_COUNT_OFFSET = 16, ALIGNMENT = 32, TYPE_U32 = 4, TYPE_TEXT = 8 };

static char path[128];

static void new_path(void)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/baton-tiny-XXXXXX", folder != NULL ? folder : "/tmp");
    const int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
}

void tiny_model_unlink(void)
{
    CHECK(unlink(path) == 0);
}

static struct buffer read_all(const char *name)
{
    struct buffer bytes = {0};
    char piece[65536];
    size_t got;
    FILE *file = fopen(name, "rb");
    CHECK(file != NULL);
    while ((got = fread(piece, 1, sizeof piece, file)) > 0)
        buffer_add(&bytes, piece, got);
    fclose(file);
    return bytes;
}

struct buffer tiny_model_bytes(const char *arch, const char *type, const char *extra)
{
    new_path();
    const char *arguments[] = {"baton make-model", "--arch", arch, "--type", type, path, extra};
    int count = extra == NULL ? 6 : 7;
    CHECK(command_make_model(count, (char **)arguments) == 0);
    struct buffer bytes = read_all(path);
    tiny_model_unlink();
    return bytes;
}

const char *tiny_model_write(const struct buffer *bytes)
{
    new_path();
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK(bytes->size == 0 || fwrite(bytes->data, 1, bytes->size, file) == bytes->size);
    CHECK(fclose(file) == 0);
    return path;
}

/* The name as files hold it: a 64-bit length, then the letters. */
static char *find_name(struct buffer *bytes, const char *name)
{
    char needle[8 + 128];
    const size_t length = strlen(name);
    CHECK(length < 128);
    store_le64(needle, length);
    memcpy(needle + 8, name, length);
    char *found = memmem(bytes->data, bytes->size, needle, 8 + length);
    CHECK(found != NULL);
    return found + 8;
}

void tiny_model_set_u32(struct buffer *bytes, const char *key, uint32_t value)
{
    store_le32(find_name(bytes, key) + strlen(key) + 4, value);
}

void tiny_model_set_f32(struct buffer *bytes, const char *key, float value)
{
    memcpy(find_name(bytes, key) + strlen(key) + 4, &value, sizeof value);
}

void tiny_model_rename(struct buffer *bytes, const char *from, const char *to)
{
    CHECK(strlen(from) == strlen(to));
    memcpy(find_name(bytes, from), to, strlen(to));
}

static void put_key(struct buffer *out, const char *key, uint32_t type)
{
    char word[8];
    store_le64(word, strlen(key));
    buffer_add(out, word, 8);
    buffer_add_text(out, key);
    store_le32(word, type);
    buffer_add(out, word, 4);
}

static void put_text(struct buffer *out, const char *text, size_t count)
{
    char word[8];
    store_le64(word, count);
    buffer_add(out, word, 8);
    buffer_add(out, text, count);
}

/* Inserts the new key and a filler key that keeps the tensors aligned. */
static void insert_key(struct buffer *bytes, struct buffer *key)
{
    static const char spaces[ALIGNMENT] = "                                ";
    struct buffer result = {0};
    put_key(key, "filler", TYPE_TEXT);
    put_text(key, spaces, (ALIGNMENT - (key->size + 8) % ALIGNMENT) % ALIGNMENT);
    CHECK(key->size % ALIGNMENT == 0);
    store_le64(bytes->data + KEY_COUNT_OFFSET, load_le64(bytes->data + KEY_COUNT_OFFSET) + 2);
    buffer_add(&result, bytes->data, HEADER_BYTES);
    buffer_add(&result, key->data, key->size);
    buffer_add(&result, bytes->data + HEADER_BYTES, bytes->size - HEADER_BYTES);
    buffer_free(key);
    buffer_free(bytes);
    *bytes = result;
}

void tiny_model_add_u32(struct buffer *bytes, const char *key, uint32_t value)
{
    struct buffer added = {0};
    char word[4];
    put_key(&added, key, TYPE_U32);
    store_le32(word, value);
    buffer_add(&added, word, 4);
    insert_key(bytes, &added);
}

void tiny_model_add_text(struct buffer *bytes, const char *key, const char *value)
{
    struct buffer added = {0};
    put_key(&added, key, TYPE_TEXT);
    put_text(&added, value, strlen(value));
    insert_key(bytes, &added);
}

struct model *tiny_model_open(const char *arch, const char *type, struct model_options options)
{
    struct buffer bytes = tiny_model_bytes(arch, type, NULL);
    struct model *model = NULL;
    struct error error = {0};
    options.path = tiny_model_write(&bytes);
    const enum status status = model_open(&options, &model, &error);
    if (status != STATUS_OK)
        fprintf(stderr, "cannot open a tiny model: %s\n", error.text);
    CHECK(status == STATUS_OK);
    tiny_model_unlink();
    buffer_free(&bytes);
    return model;
}

enum status tiny_model_try(const struct buffer *bytes, struct error *error)
{
    struct model *model = NULL;
    *error = (struct error){0};
    const struct model_options options = {.path = tiny_model_write(bytes), .threads = 1};
    const enum status status = model_open(&options, &model, error);
    CHECK((status == STATUS_OK) == (model != NULL));
    CHECK(status == STATUS_OK || error->text[0] != '\0');
    model_close(model);
    tiny_model_unlink();
    return status;
}

static uint32_t pages_of(struct model *model, uint32_t tokens)
{
    const uint32_t page_tokens = page_pool_layout(model_pages(model))->page_tokens;
    return (tokens + page_tokens - 1) / page_tokens;
}

void tiny_model_take(struct model *model, uint32_t tokens, uint32_t *slots_out)
{
    const uint32_t count = pages_of(model, tokens);
    CHECK(page_pool_reserve(model_pages(model), count) == STATUS_OK);
    page_pool_take(model_pages(model), count, slots_out);
}

void tiny_model_give(struct model *model, uint32_t tokens, const uint32_t *slots)
{
    page_pool_free(model_pages(model), slots, pages_of(model, tokens));
}

float *tiny_model_logits(const char *path, const int32_t *ids, uint32_t count)
{
    enum { PAGE_TOKENS = 16, CONTEXT = 128 };
    struct model *model = NULL;
    struct error error = {0};
    const float *logits = NULL;
    uint32_t slots[CONTEXT / PAGE_TOKENS];
    const struct model_options options = {.path = path,
                                          .activations = ACTIVATION_F32,
                                          .kv_dtype = KV_F32,
                                          .context_tokens = CONTEXT,
                                          .page_tokens = PAGE_TOKENS,
                                          .max_logit_rows = count};
    CHECK(count <= CONTEXT);
    CHECK(model_open(&options, &model, &error) == STATUS_OK);
    tiny_model_take(model, count, slots);
    const struct forward_sequence sequence = {
        .tokens = ids, .count = count, .slots = slots, .logit_rows = count};
    CHECK(model_forward(model, &sequence, 1, NULL, &logits, &error) == STATUS_OK);
    const size_t bytes = sizeof *logits * count * model_info(model)->vocab_count;
    float *copy = malloc(bytes);
    CHECK(copy != NULL);
    memcpy(copy, logits, bytes);
    tiny_model_give(model, count, slots);
    model_close(model);
    return copy;
}

/* Where `variable` says, or in the cache. */
static const char *model_path(const char *variable, const char *name, char found[512])
{
    const char *named = getenv(variable);
    const char *home = getenv("HOME");
    if (named != NULL)
        snprintf(found, 512, "%s", named);
    else
        snprintf(found, 512, "%s/.cache/baton/%s", home != NULL ? home : "", name);
    return access(found, R_OK) == 0 ? found : NULL;
}

const char *real_model_path(void)
{
    static char found[512];
    return model_path("BATON_MODEL", "SmolLM2-135M-Instruct.Q4_1.gguf", found);
}

const char *gemma_model_path(void)
{
    static char found[512];
    return model_path("BATON_GEMMA_MODEL", "gemma-3-270m-q4_k_m.gguf", found);
}

const char *shared_folder(void)
{
    const char *named = getenv("BATON_SHARED");
    return named != NULL ? named : BATON_SHARED_DIR;
}
