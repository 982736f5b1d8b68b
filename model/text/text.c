/* Opening the text half of a model, and what can be asked about it. */
#include "model/text/text.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/utf8.h"
#include "model/text/byte_alphabet.h"
#include "model/text/text_internal.h"

static const char *const end_names[] = {"<|im_end|>",    "<|eot_id|>",      "<|eom_id|>",
                                        "<|endoftext|>", "<|end_of_text|>", "<|end|>",
                                        "<end_of_turn>"};

void token_list_add(struct token_list *list, int32_t id)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity * 2 + 64;
        list->ids = realloc(list->ids, list->capacity * sizeof *list->ids);
        CHECK(list->ids != NULL);
    }
    list->ids[list->count++] = id;
}

void token_list_clear(struct token_list *list)
{
    list->count = 0;
}

void token_list_free(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){0};
}

/* Copies as much of a string as fits, in whole characters. */
static void text_copy(char *out, size_t room, const char *data, size_t bytes)
{
    size_t count = bytes < room - 1 ? bytes : room - 1;
    count -= utf8_unfinished(data, count);
    memcpy(out, data, count);
    out[count] = '\0';
}

static enum status names_read(struct text_info *info, const struct gguf *file, struct error *error)
{
    struct gguf_string string;
    TRY(gguf_get_string(file, "general.architecture", &string, error));
    text_copy(info->architecture, sizeof info->architecture, string.data, string.bytes);
    if (gguf_get_string(file, "general.name", &string, NULL) == STATUS_OK && string.bytes > 0) {
        text_copy(info->name, sizeof info->name, string.data, string.bytes);
    } else {
        const char *slash = strrchr(gguf_path(file), '/');
        const char *stem = slash != NULL ? slash + 1 : gguf_path(file);
        const char *dot = strrchr(stem, '.');
        text_copy(info->name, sizeof info->name, stem,
                  dot != NULL && dot != stem ? (size_t)(dot - stem) : strlen(stem));
    }
    char key[64];
    snprintf(key, sizeof key, "%s.context_length", info->architecture);
    return gguf_get_u32(file, key, &info->context_tokens, error);
}

/* An optional token id; -1 when absent. */
static enum status id_read(const struct text *text, const struct gguf *file, const char *key,
                           int32_t *out, struct error *error)
{
    uint32_t id;
    *out = -1;
    const enum status status = gguf_get_u32(file, key, &id, error);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    TRY(status);
    if (id >= text->vocabulary.count)
        return error_set(error, STATUS_CORRUPT, "%s: '%s' is %u, the vocabulary has %u tokens",
                         gguf_path(file), key, id, text->vocabulary.count);
    *out = (int32_t)id;
    return STATUS_OK;
}

static void end_add(struct text_info *info, int32_t id)
{
    for (uint32_t i = 0; i < info->eos_count; i++)
        if (info->eos_ids[i] == id)
            return;
    if (id >= 0 && info->eos_count < TEXT_EOS_MAX)
        info->eos_ids[info->eos_count++] = id;
}

static enum status control_ids_read(struct text *text, const struct gguf *file, struct error *error)
{
    struct text_info *info = &text->info;
    int32_t end_of_turn;
    int32_t end_of_message;
    TRY(id_read(text, file, "tokenizer.ggml.bos_token_id", &info->bos, error));
    TRY(id_read(text, file, "tokenizer.ggml.eos_token_id", &info->eos, error));
    TRY(id_read(text, file, "tokenizer.ggml.eot_token_id", &end_of_turn, error));
    TRY(id_read(text, file, "tokenizer.ggml.eom_token_id", &end_of_message, error));
    end_add(info, info->eos);
    end_add(info, end_of_turn);
    end_add(info, end_of_message);
    for (size_t i = 0; i < ARRAY_COUNT(end_names); i++) {
        const int32_t id = text_token_find(text, end_names[i], strlen(end_names[i]));
        if (id >= 0 && text_token_special(text, id))
            end_add(info, id);
    }
    info->add_bos = pretokenizer_adds_bos(text->pretokenizer);
    const enum status status =
        gguf_get_bool(file, "tokenizer.ggml.add_bos_token", &info->add_bos, error);
    if (status != STATUS_NOT_FOUND)
        TRY(status);
    info->add_bos = info->add_bos && info->bos >= 0;
    return STATUS_OK;
}

static enum status rules_read(struct text *text, const struct gguf *file, struct error *error)
{
    struct gguf_string model;
    TRY(gguf_get_string(file, "tokenizer.ggml.model", &model, error));
    if (model.bytes != 4 || memcmp(model.data, "gpt2", 4) != 0)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s has the tokenizer model '%.*s', Baton reads gpt2 (byte-level BPE)",
                         gguf_path(file), (int)(model.bytes < 40 ? model.bytes : 40), model.data);
    struct gguf_string pre = {0};
    const enum status status = gguf_get_string(file, "tokenizer.ggml.pre", &pre, error);
    if (status != STATUS_NOT_FOUND)
        TRY(status);
    struct error reason;
    if (pretokenizer_create(pre.data, pre.bytes, &text->pretokenizer, &reason) != STATUS_OK)
        return error_set(error, reason.status, "%s: %s", gguf_path(file), reason.text);
    text->normalize = pretokenizer_normalizes(text->pretokenizer);
    text->ignore_merges = pretokenizer_ignores_merges(text->pretokenizer);
    return STATUS_OK;
}

/* The token of one side of a merge, whose text is in the byte alphabet. */
static int32_t side_find(const struct text *text, const char *side, size_t bytes,
                         struct buffer *scratch)
{
    buffer_clear(scratch);
    if (byte_alphabet_decode(side, bytes, scratch))
        return vocabulary_find(&text->vocabulary, scratch->data, scratch->size);
    return vocabulary_find(&text->vocabulary, side, bytes);
}

/* "left right": both and their concatenation are tokens. */
static enum status merge_add(struct text *text, const struct gguf *file,
                             const struct gguf_string *line, uint64_t rank,
                             struct buffer scratch[2], struct error *error)
{
    const char *space = line->bytes > 2 ? memchr(line->data + 1, ' ', line->bytes - 2) : NULL;
    int32_t left = -1;
    int32_t right = -1;
    int32_t merged = -1;
    if (space != NULL) {
        const size_t left_bytes = (size_t)(space - line->data);
        left = side_find(text, line->data, left_bytes, &scratch[0]);
        right = side_find(text, space + 1, line->bytes - left_bytes - 1, &scratch[0]);
    }
    if (left >= 0 && right >= 0) {
        size_t count;
        buffer_clear(&scratch[1]);
        const char *bytes = vocabulary_bytes(&text->vocabulary, left, &count);
        buffer_add(&scratch[1], bytes, count);
        bytes = vocabulary_bytes(&text->vocabulary, right, &count);
        buffer_add(&scratch[1], bytes, count);
        merged = vocabulary_find(&text->vocabulary, scratch[1].data, scratch[1].size);
    }
    if (merged < 0)
        return error_set(error, STATUS_CORRUPT,
                         "%s: merge %llu '%.*s' does not join two tokens to a third",
                         gguf_path(file), (unsigned long long)rank,
                         (int)(line->bytes < 60 ? line->bytes : 60), line->data);
    /* A user's text may not become a control token by way of merges either. */
    if (text->vocabulary.types[merged] != TOKEN_CONTROL)
        bpe_add(text->bpe, left, right, merged);
    return STATUS_OK;
}

static enum status merges_read(struct text *text, const struct gguf *file, struct digest128 *digest,
                               struct error *error)
{
    struct gguf_string *lines;
    uint64_t count = 0;
    TRY(gguf_get_strings(file, "tokenizer.ggml.merges", &lines, &count, error));
    text->bpe = bpe_create((size_t)count);
    struct buffer scratch[2] = {0};
    enum status status = STATUS_OK;
    for (uint64_t i = 0; i < count && status == STATUS_OK; i++)
        status = merge_add(text, file, &lines[i], i, scratch, error);
    /* The strings stand one after another in the file, so that they hash as one block. */
    if (count > 0)
        *digest = hash128(lines[0].data,
                          (size_t)(lines[count - 1].data + lines[count - 1].bytes - lines[0].data),
                          count);
    free(lines);
    buffer_free(&scratch[0]);
    buffer_free(&scratch[1]);
    return status;
}

static void digest_make(struct text *text, struct digest128 merges)
{
    const struct vocabulary *vocabulary = &text->vocabulary;
    const char *rules = pretokenizer_name(text->pretokenizer);
    struct buffer record = {0};
    const struct digest128 parts[] = {
        hash128(vocabulary->bytes.data, vocabulary->bytes.size, 0),
        hash128(vocabulary->starts, (vocabulary->count + 1) * sizeof *vocabulary->starts, 0),
        hash128(vocabulary->types, vocabulary->count, 0),
        merges,
    };
    buffer_add(&record, parts, sizeof parts);
    buffer_add(&record, rules, strlen(rules) + 1);
    buffer_add(&record, text->info.eos_ids, text->info.eos_count * sizeof *text->info.eos_ids);
    buffer_add(&record, &text->info.bos, sizeof text->info.bos);
    buffer_add_char(&record, text->info.add_bos ? 1 : 0);
    text->info.digest = hash128(record.data, record.size, 0);
    buffer_free(&record);
}

static enum status text_read(struct text *text, const struct gguf *file, struct error *error)
{
    struct digest128 merges = {0};
    TRY(names_read(&text->info, file, error));
    TRY(rules_read(text, file, error));
    TRY(vocabulary_read(&text->vocabulary, file, error));
    text->info.vocab_count = text->vocabulary.count;
    text->whole = calloc(text->vocabulary.count, sizeof *text->whole);
    CHECK(text->whole != NULL);
    TRY(merges_read(text, file, &merges, error));
    TRY(control_ids_read(text, file, error));
    TRY(chat_format_read(&text->chat, &text->vocabulary, file, error));
    digest_make(text, merges);
    return STATUS_OK;
}

enum status text_open_gguf(const struct gguf *file, struct text **text_out, struct error *error)
{
    struct text *text = calloc(1, sizeof *text);
    CHECK(text != NULL);
    const enum status status = text_read(text, file, error);
    if (status != STATUS_OK) {
        text_close(text);
        return status;
    }
    *text_out = text;
    return STATUS_OK;
}

enum status text_open(const char *path, struct text **text_out, struct error *error)
{
    struct gguf *file;
    TRY(gguf_open(path, &file, error));
    const enum status status = text_open_gguf(file, text_out, error);
    gguf_close(file);
    return status;
}

void text_close(struct text *text)
{
    if (text == NULL)
        return;
    buffer_free(&text->chat.default_system);
    vocabulary_free(&text->vocabulary);
    pretokenizer_destroy(text->pretokenizer);
    bpe_destroy(text->bpe);
    free((void *)text->whole);
    free(text);
}

const struct text_info *text_info(const struct text *text)
{
    return &text->info;
}

const char *text_token_bytes(const struct text *text, int32_t id, size_t *bytes_out)
{
    return vocabulary_bytes(&text->vocabulary, id, bytes_out);
}

bool text_token_special(const struct text *text, int32_t id)
{
    if (id < 0 || (uint32_t)id >= text->vocabulary.count)
        return false;
    const uint8_t type = text->vocabulary.types[id];
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
}

int32_t text_token_find(const struct text *text, const char *bytes, size_t count)
{
    return vocabulary_find(&text->vocabulary, bytes, count);
}
