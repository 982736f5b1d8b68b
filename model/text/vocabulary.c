/* The tokens of a model: their texts, what they stand for, their types, and finding one. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "model/text/byte_alphabet.h"
#include "model/text/byte_token.h"
#include "model/text/text_internal.h"

/* Tokens that steer a chat or end a text under every vocabulary that has them. Some files call them
 * user-defined, which would let a user's text contain them. */
static const char *const control_names[] = {
    "<|im_start|>",      "<|im_end|>",      "<|endoftext|>",     "<|eot_id|>",
    "<|eom_id|>",        "<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>",
    "<|end_header_id|>", "<|end|>",         "<|system|>",        "<|user|>",
    "<|assistant|>",     "<start_of_turn>", "<end_of_turn>",
};

static const char *slice(const struct buffer *buffer, const uint32_t *starts, uint32_t count,
                         int32_t id, size_t *bytes_out)
{
    *bytes_out = 0;
    if (id < 0 || (uint32_t)id >= count)
        return "";
    *bytes_out = starts[id + 1] - starts[id];
    return buffer->data + starts[id];
}

const char *vocabulary_text(const struct vocabulary *vocabulary, int32_t id, size_t *bytes_out)
{
    return slice(&vocabulary->texts, vocabulary->text_starts, vocabulary->count, id, bytes_out);
}

const char *vocabulary_bytes(const struct vocabulary *vocabulary, int32_t id, size_t *count_out)
{
    return slice(&vocabulary->bytes, vocabulary->starts, vocabulary->count, id, count_out);
}

static uint32_t *slot_find(const struct vocabulary *vocabulary, const char *text, size_t bytes)
{
    for (size_t at = (size_t)hash64(text, bytes, vocabulary->key) & vocabulary->slot_mask;;
         at = (at + 1) & vocabulary->slot_mask) {
        uint32_t *slot = &vocabulary->slots[at];
        if (*slot == 0)
            return slot;
        size_t other_bytes;
        const char *other = vocabulary_text(vocabulary, (int32_t)(*slot - 1), &other_bytes);
        if (other_bytes == bytes && memcmp(other, text, bytes) == 0)
            return slot;
    }
}

int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *text, size_t bytes)
{
    return (int32_t)*slot_find(vocabulary, text, bytes) - 1;
}

int32_t vocabulary_find_ordinary(const struct vocabulary *vocabulary, const char *text,
                                 size_t bytes)
{
    const int32_t id = vocabulary_find(vocabulary, text, bytes);
    return id >= 0 && vocabulary->types[id] != TOKEN_CONTROL ? id : -1;
}

enum status vocabulary_check_id(const struct vocabulary *vocabulary, const char *what, int64_t id,
                                struct error *error)
{
    if (id >= 0 && id < vocabulary->count)
        return STATUS_OK;
    return error_set(error, STATUS_CORRUPT, "%s: %s is %lld, the vocabulary has %u tokens",
                     vocabulary->path, what, (long long)id, vocabulary->count);
}

/* Converters fill up the rows of the embedding with tokens that no text may match. */
static bool is_padding(const struct token_entry *token, uint64_t id)
{
    char padding[32];
    const int bytes = snprintf(padding, sizeof padding, "[PAD%llu]", (unsigned long long)id);
    return token->bytes == (size_t)bytes && memcmp(token->text, padding, token->bytes) == 0;
}

static bool is_control_name(const struct token_entry *token)
{
    for (size_t i = 0; i < ARRAY_COUNT(control_names); i++)
        if (strlen(control_names[i]) == token->bytes &&
            memcmp(control_names[i], token->text, token->bytes) == 0)
            return true;
    return false;
}

static enum status token_check(struct token_entry *token, uint64_t id, const char *path,
                               struct error *error)
{
    if (token->type == 0)
        *token = (struct token_entry){.text = "", .type = TOKEN_UNUSED};
    if (token->bytes > TOKEN_BYTES_MAX)
        return error_set(error, STATUS_CORRUPT, "%s: token %llu has %zu bytes, the limit is %d",
                         path, (unsigned long long)id, token->bytes, TOKEN_BYTES_MAX);
    if (token->type == TOKEN_BYTE && byte_token_parse(token->text, token->bytes) < 0)
        return error_set(error, STATUS_CORRUPT,
                         "%s: byte token %llu is '%.*s', it must be <0x00> to <0xFF>", path,
                         (unsigned long long)id, (int)(token->bytes < 40 ? token->bytes : 40),
                         token->text);
    if (token->type == TOKEN_USER_DEFINED && is_padding(token, id))
        token->type = TOKEN_UNUSED;
    if (is_control_name(token))
        token->type = TOKEN_CONTROL;
    return STATUS_OK;
}

/* Both texts of a token. At the byte level what is outside the alphabet stands for itself. */
static void token_texts_add(struct vocabulary *vocabulary, const struct token_entry *token,
                            enum text_level level, const struct decoder *decoder)
{
    const int byte = token->type == TOKEN_BYTE ? byte_token_parse(token->text, token->bytes) : -1;
    if (byte >= 0)
        buffer_add_char(&vocabulary->bytes, (char)byte);
    else
        decoder_token(decoder, token->text, token->bytes, &vocabulary->bytes);
    if (level == LEVEL_BYTES && byte >= 0)
        buffer_add_char(&vocabulary->texts, (char)byte);
    else if (level == LEVEL_CHARACTERS ||
             !byte_alphabet_decode(token->text, token->bytes, &vocabulary->texts))
        buffer_add(&vocabulary->texts, token->text, token->bytes);
}

/* Of two tokens with the same text the ordinary one, then the first one is found. */
static void index_fill(struct vocabulary *vocabulary)
{
    for (int ordinary = 1; ordinary >= 0; ordinary--) {
        for (uint32_t i = 0; i < vocabulary->count; i++) {
            const uint8_t type = vocabulary->types[i];
            if (type == TOKEN_UNUSED || (type == TOKEN_NORMAL) != (ordinary == 1))
                continue;
            size_t bytes;
            const char *text = vocabulary_text(vocabulary, (int32_t)i, &bytes);
            uint32_t *slot = slot_find(vocabulary, text, bytes);
            if (*slot == 0)
                *slot = i + 1;
            if (bytes > vocabulary->longest && type != TOKEN_CONTROL)
                vocabulary->longest = (uint32_t)bytes;
        }
    }
}

static void bytes_index(struct vocabulary *vocabulary, enum text_level level)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        size_t bytes = 1;
        text[0] = (char)byte;
        if (level == LEVEL_CHARACTERS)
            bytes = (size_t)snprintf(text, sizeof text, "<0x%02X>", byte);
        vocabulary->byte_ids[byte] = vocabulary_find_ordinary(vocabulary, text, bytes);
    }
}

static enum status tables_allocate(struct vocabulary *vocabulary, uint64_t count,
                                   struct error *error)
{
    if (count == 0 || count > VOCABULARY_MAX)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: the vocabulary has %llu tokens, the limits are 1 and %d",
                         vocabulary->path, (unsigned long long)count, VOCABULARY_MAX);
    size_t slots = 1024;
    while (slots < count * 2)
        slots *= 2;
    vocabulary->count = (uint32_t)count;
    vocabulary->key = hash_process_key();
    vocabulary->text_starts = calloc(count + 1, sizeof *vocabulary->text_starts);
    vocabulary->starts = calloc(count + 1, sizeof *vocabulary->starts);
    vocabulary->types = calloc(count, sizeof *vocabulary->types);
    vocabulary->flags = calloc(count, sizeof *vocabulary->flags);
    vocabulary->slots = calloc(slots, sizeof *vocabulary->slots);
    vocabulary->slot_mask = slots - 1;
    if (vocabulary->text_starts == NULL || vocabulary->starts == NULL ||
        vocabulary->types == NULL || vocabulary->flags == NULL || vocabulary->slots == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for the %llu tokens of %s",
                         (unsigned long long)count, vocabulary->path);
    buffer_reserve(&vocabulary->texts, 0);
    buffer_reserve(&vocabulary->bytes, 0);
    return STATUS_OK;
}

enum status vocabulary_fill(struct vocabulary *vocabulary, struct token_entry *tokens,
                            uint64_t count, enum text_level level, const struct decoder *decoder,
                            const char *path, struct error *error)
{
    vocabulary->path = path;
    special_tokens_init(&vocabulary->special);
    special_tokens_init(&vocabulary->normalized);
    TRY(tables_allocate(vocabulary, count, error));
    for (uint32_t i = 0; i < count; i++) {
        struct token_entry *token = &tokens[i];
        TRY(token_check(token, i, path, error));
        vocabulary->types[i] = token->type;
        vocabulary->flags[i] = token->flags;
        token_texts_add(vocabulary, token, level, decoder);
        if (vocabulary->bytes.size - vocabulary->starts[i] > DECODED_BYTES_MAX)
            return error_set(error, STATUS_UNSUPPORTED,
                             "%s: token %u stands for %zu bytes, the limit is %d", path, i,
                             vocabulary->bytes.size - vocabulary->starts[i], DECODED_BYTES_MAX);
        if (vocabulary->bytes.size > UINT32_MAX || vocabulary->texts.size > UINT32_MAX)
            return error_set(error, STATUS_UNSUPPORTED, "%s: the texts of its tokens exceed 4 GiB",
                             path);
        vocabulary->starts[i + 1] = (uint32_t)vocabulary->bytes.size;
        vocabulary->text_starts[i + 1] = (uint32_t)vocabulary->texts.size;
        if ((token->type == TOKEN_CONTROL || token->type == TOKEN_USER_DEFINED) &&
            (token->flags & SPECIAL_NORMALIZED) == 0)
            special_tokens_add(&vocabulary->special, token->text, token->bytes, (int32_t)i);
    }
    index_fill(vocabulary);
    bytes_index(vocabulary, level);
    return STATUS_OK;
}

void vocabulary_free(struct vocabulary *vocabulary)
{
    special_tokens_free(&vocabulary->special);
    special_tokens_free(&vocabulary->normalized);
    buffer_free(&vocabulary->texts);
    buffer_free(&vocabulary->bytes);
    free(vocabulary->text_starts);
    free(vocabulary->starts);
    free(vocabulary->types);
    free(vocabulary->flags);
    free(vocabulary->slots);
}
