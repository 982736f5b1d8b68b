/* The tokens of a file: their bytes, their types, and finding one by its bytes. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "model/text/byte_alphabet.h"
#include "model/text/text_internal.h"

/* Tokens that steer a chat or end a text under every vocabulary that has them. Some files call them
 * user-defined, which would let a user's text contain them. */
static const char *const control_names[] = {
    "<|im_start|>",      "<|im_end|>",      "<|endoftext|>",     "<|eot_id|>",
    "<|eom_id|>",        "<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>",
    "<|end_header_id|>", "<|end|>",         "<|system|>",        "<|user|>",
    "<|assistant|>",     "<start_of_turn>", "<end_of_turn>",
};

static const char *const control_keys[] = {
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
};

const char *vocabulary_bytes(const struct vocabulary *vocabulary, int32_t id, size_t *count_out)
{
    *count_out = 0;
    if (id < 0 || (uint32_t)id >= vocabulary->count)
        return "";
    const uint32_t start = vocabulary->starts[id];
    *count_out = vocabulary->starts[id + 1] - start;
    return vocabulary->bytes.data + start;
}

static uint32_t *slot_find(const struct vocabulary *vocabulary, const char *bytes, size_t count)
{
    for (size_t at = (size_t)hash64(bytes, count, 0) & vocabulary->slot_mask;;
         at = (at + 1) & vocabulary->slot_mask) {
        uint32_t *slot = &vocabulary->slots[at];
        if (*slot == 0)
            return slot;
        size_t other_count;
        const char *other = vocabulary_bytes(vocabulary, (int32_t)(*slot - 1), &other_count);
        if (other_count == count && memcmp(other, bytes, count) == 0)
            return slot;
    }
}

int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *bytes, size_t count)
{
    return (int32_t)*slot_find(vocabulary, bytes, count) - 1;
}

/* Types of all tokens, normal where the file does not say. */
static enum status types_read(struct vocabulary *vocabulary, const struct gguf *file,
                              struct error *error)
{
    const char *key = "tokenizer.ggml.token_type";
    memset(vocabulary->types, TOKEN_NORMAL, vocabulary->count);
    const void *data;
    uint64_t count = 0;
    enum status status = gguf_get_numbers(file, key, GGUF_I32, &data, &count, error);
    if (status == STATUS_INVALID)
        status = gguf_get_numbers(file, key, GGUF_U32, &data, &count, error);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    TRY(status);
    if (count != vocabulary->count)
        return error_set(error, STATUS_CORRUPT, "%s: '%s' has %llu entries for %u tokens",
                         gguf_path(file), key, (unsigned long long)count, vocabulary->count);
    for (uint32_t i = 0; i < vocabulary->count; i++) {
        const uint32_t type = load_le32((const uint8_t *)data + 4 * (size_t)i);
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
            return error_set(error, STATUS_CORRUPT,
                             "%s: token %u is of type %u, the types are 1 to %d", gguf_path(file),
                             i, type, TOKEN_BYTE);
        vocabulary->types[i] = (uint8_t)type;
    }
    return STATUS_OK;
}

/* Scores belong to other tokenizers; a file that has them must at least have them right. */
static enum status scores_check(const struct vocabulary *vocabulary, const struct gguf *file,
                                struct error *error)
{
    const void *data;
    uint64_t count = 0;
    const enum status status =
        gguf_get_numbers(file, "tokenizer.ggml.scores", GGUF_F32, &data, &count, error);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    TRY(status);
    if (count != vocabulary->count)
        return error_set(error, STATUS_CORRUPT,
                         "%s: 'tokenizer.ggml.scores' has %llu entries for %u tokens",
                         gguf_path(file), (unsigned long long)count, vocabulary->count);
    return STATUS_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "<0x0A>" and nothing else. */
static bool byte_token_parse(const struct gguf_string *text, char *byte_out)
{
    if (text->bytes != 6 || memcmp(text->data, "<0x", 3) != 0 || text->data[5] != '>')
        return false;
    const int high = hex_digit(text->data[3]);
    const int low = hex_digit(text->data[4]);
    *byte_out = (char)(high * 16 + low);
    return high >= 0 && low >= 0;
}

/* Converters fill up the rows of the embedding with tokens that no text may match. */
static bool is_padding(const struct gguf_string *text, uint32_t id)
{
    char padding[32];
    const int bytes = snprintf(padding, sizeof padding, "[PAD%u]", id);
    return text->bytes == (size_t)bytes && memcmp(text->data, padding, text->bytes) == 0;
}

static bool is_control_name(const struct gguf_string *text)
{
    for (size_t i = 0; i < ARRAY_COUNT(control_names); i++)
        if (strlen(control_names[i]) == text->bytes &&
            memcmp(control_names[i], text->data, text->bytes) == 0)
            return true;
    return false;
}

static void types_mend(struct vocabulary *vocabulary, const struct gguf *file,
                       const struct gguf_string *texts)
{
    for (uint32_t i = 0; i < vocabulary->count; i++) {
        if (vocabulary->types[i] == TOKEN_USER_DEFINED && is_padding(&texts[i], i))
            vocabulary->types[i] = TOKEN_UNUSED;
        if (is_control_name(&texts[i]))
            vocabulary->types[i] = TOKEN_CONTROL;
    }
    for (size_t i = 0; i < ARRAY_COUNT(control_keys); i++) {
        uint32_t id;
        if (gguf_get_u32(file, control_keys[i], &id, NULL) == STATUS_OK && id < vocabulary->count &&
            vocabulary->types[id] == TOKEN_USER_DEFINED)
            vocabulary->types[id] = TOKEN_CONTROL;
    }
}

static enum status token_bytes_add(struct vocabulary *vocabulary, const struct gguf *file,
                                   const struct gguf_string *text, uint32_t id, struct error *error)
{
    if (text->bytes > TOKEN_BYTES_MAX)
        return error_set(error, STATUS_CORRUPT, "%s: token %u has %zu bytes, the limit is %d",
                         gguf_path(file), id, text->bytes, TOKEN_BYTES_MAX);
    char byte;
    if (vocabulary->types[id] == TOKEN_BYTE) {
        if (!byte_token_parse(text, &byte))
            return error_set(
                error, STATUS_CORRUPT, "%s: byte token %u is '%.*s', it must be <0x00> to <0xFF>",
                gguf_path(file), id, (int)(text->bytes < 40 ? text->bytes : 40), text->data);
        buffer_add_char(&vocabulary->bytes, byte);
    } else if (!byte_alphabet_decode(text->data, text->bytes, &vocabulary->bytes)) {
        buffer_add(&vocabulary->bytes, text->data, text->bytes); // stands for itself
    }
    if (vocabulary->bytes.size > UINT32_MAX)
        return error_set(error, STATUS_UNSUPPORTED, "%s: the texts of its tokens exceed 4 GiB",
                         gguf_path(file));
    return STATUS_OK;
}

/* Of two tokens with the same bytes the ordinary one, then the first one is found. */
static void index_fill(struct vocabulary *vocabulary)
{
    for (int ordinary = 1; ordinary >= 0; ordinary--) {
        for (uint32_t i = 0; i < vocabulary->count; i++) {
            const uint8_t type = vocabulary->types[i];
            if (type == TOKEN_UNUSED || (type == TOKEN_NORMAL) != (ordinary == 1))
                continue;
            size_t count;
            const char *bytes = vocabulary_bytes(vocabulary, (int32_t)i, &count);
            uint32_t *slot = slot_find(vocabulary, bytes, count);
            if (*slot == 0)
                *slot = i + 1;
        }
    }
    for (int byte = 0; byte < 256; byte++) {
        const char text = (char)byte;
        const int32_t id = vocabulary_find(vocabulary, &text, 1);
        const bool control = id >= 0 && vocabulary->types[id] == TOKEN_CONTROL;
        vocabulary->byte_ids[byte] = control ? -1 : id;
    }
}

static enum status vocabulary_allocate(struct vocabulary *vocabulary, const struct gguf *file,
                                       uint64_t count, struct error *error)
{
    if (count == 0 || count > VOCABULARY_MAX)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: 'tokenizer.ggml.tokens' has %llu tokens, the limits are 1 and %d",
                         gguf_path(file), (unsigned long long)count, VOCABULARY_MAX);
    size_t slots = 1024;
    while (slots < count * 2)
        slots *= 2;
    vocabulary->count = (uint32_t)count;
    vocabulary->starts = calloc(count + 1, sizeof *vocabulary->starts);
    vocabulary->types = calloc(count, sizeof *vocabulary->types);
    vocabulary->slots = calloc(slots, sizeof *vocabulary->slots);
    vocabulary->slot_mask = slots - 1;
    if (vocabulary->starts == NULL || vocabulary->types == NULL || vocabulary->slots == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for the %llu tokens of %s",
                         (unsigned long long)count, gguf_path(file));
    buffer_reserve(&vocabulary->bytes, 0);
    return STATUS_OK;
}

static enum status tokens_read(struct vocabulary *vocabulary, const struct gguf *file,
                               const struct gguf_string *texts, uint64_t count, struct error *error)
{
    TRY(vocabulary_allocate(vocabulary, file, count, error));
    TRY(types_read(vocabulary, file, error));
    TRY(scores_check(vocabulary, file, error));
    types_mend(vocabulary, file, texts);
    for (uint32_t i = 0; i < vocabulary->count; i++) {
        TRY(token_bytes_add(vocabulary, file, &texts[i], i, error));
        vocabulary->starts[i + 1] = (uint32_t)vocabulary->bytes.size;
        if (vocabulary->types[i] == TOKEN_CONTROL || vocabulary->types[i] == TOKEN_USER_DEFINED)
            special_tokens_add(&vocabulary->special, texts[i].data, texts[i].bytes, (int32_t)i);
    }
    index_fill(vocabulary);
    return STATUS_OK;
}

enum status vocabulary_read(struct vocabulary *vocabulary, const struct gguf *file,
                            struct error *error)
{
    special_tokens_init(&vocabulary->special);
    struct gguf_string *texts;
    uint64_t count;
    TRY(gguf_get_strings(file, "tokenizer.ggml.tokens", &texts, &count, error));
    const enum status status = tokens_read(vocabulary, file, texts, count, error);
    free(texts);
    return status;
}

void vocabulary_free(struct vocabulary *vocabulary)
{
    special_tokens_free(&vocabulary->special);
    buffer_free(&vocabulary->bytes);
    free(vocabulary->starts);
    free(vocabulary->types);
    free(vocabulary->slots);
}
