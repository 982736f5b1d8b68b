/* Opening the text half of a model, and what can be asked about it. */
#include "model/text/text.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/utf8.h"
#include "model/format/model_file.h"
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

void text_copy(char *out, size_t room, const char *data, size_t bytes)
{
    size_t count = bytes < room - 1 ? bytes : room - 1;
    count -= utf8_unfinished(data, count);
    memcpy(out, data, count);
    out[count] = '\0';
}

static bool is_end(const struct text_info *info, int32_t id)
{
    for (uint32_t i = 0; i < info->eos_count; i++)
        if (info->eos_ids[i] == id)
            return true;
    return false;
}

enum status text_end_add(struct text *text, int32_t id, struct error *error)
{
    struct text_info *info = &text->info;
    if (is_end(info, id))
        return STATUS_OK;
    if (info->eos_count == TEXT_EOS_MAX)
        return error_set(error, STATUS_LIMIT, "%s: more than %d tokens end a generation, the limit",
                         text->vocabulary.path, TEXT_EOS_MAX);
    info->eos_ids[info->eos_count++] = id;
    return STATUS_OK;
}

void text_ends_by_name(struct text *text)
{
    for (size_t i = 0; i < ARRAY_COUNT(end_names); i++) {
        const int32_t id = text_token_find(text, end_names[i], strlen(end_names[i]));
        if (id >= 0 && text_token_special(text, id) && text->info.eos_count < TEXT_EOS_MAX)
            (void)text_end_add(text, id, NULL); // there is room
    }
}

static void digest_make(struct text *text)
{
    const struct vocabulary *vocabulary = &text->vocabulary;
    struct buffer record = {0};
    const struct digest128 parts[] = {
        hash128(vocabulary->texts.data, vocabulary->texts.size, 0),
        hash128(vocabulary->text_starts, (vocabulary->count + 1) * sizeof *vocabulary->text_starts,
                0),
        hash128(vocabulary->types, vocabulary->count, 0),
        hash128(vocabulary->flags, vocabulary->count, 0),
        hash128(text->rules.data, text->rules.size, 0),
    };
    buffer_add(&record, parts, sizeof parts);
    buffer_add(&record, text->info.eos_ids, text->info.eos_count * sizeof *text->info.eos_ids);
    buffer_add(&record, &text->info.bos, sizeof text->info.bos);
    buffer_add_char(&record, text->info.add_bos ? 1 : 0);
    text->info.digest = hash128(record.data, record.size, 0);
    buffer_free(&record);
    buffer_free(&text->rules);
}

static struct text *text_create(void)
{
    struct text *text = calloc(1, sizeof *text);
    CHECK(text != NULL);
    text->unknown = -1;
    text->info.bos = -1;
    text->info.eos = -1;
    text->normalizer = normalizer_create();
    text->pretokenizer = pretokenizer_create();
    text->decoder = decoder_create();
    return text;
}

/* What both kinds of model end with. */
static enum status text_finish(struct text *text, enum status status, struct text **text_out)
{
    if (status != STATUS_OK) {
        text_close(text);
        return status;
    }
    /* An end of a generation is picked whatever its type. */
    uint32_t picked = text->vocabulary.count;
    while (picked > 1 && text->vocabulary.types[picked - 1] == TOKEN_UNUSED &&
           !is_end(&text->info, (int32_t)picked - 1))
        picked--;
    text->info.picked_count = picked;
    digest_make(text);
    text->vocabulary.path = NULL;
    *text_out = text;
    return STATUS_OK;
}

enum status text_open_gguf(const struct gguf *file, struct text **text_out, struct error *error)
{
    struct text *text = text_create();
    return text_finish(text, text_read_gguf(text, file, error), text_out);
}

enum status text_open(const char *path, struct text **text_out, struct error *error)
{
    struct stat entry;
    if (stat(path, &entry) == 0 && S_ISDIR(entry.st_mode)) {
        struct text *text = text_create();
        return text_finish(text, text_read_folder(text, path, error), text_out);
    }
    struct model_file *file; // of several parts the first one has the vocabulary
    TRY(model_file_open(path, &file, error));
    const enum status status = text_open_gguf(model_file_gguf(file), text_out, error);
    model_file_close(file);
    return status;
}

void text_close(struct text *text)
{
    if (text == NULL)
        return;
    chat_format_free(&text->chat);
    buffer_free(&text->rules);
    vocabulary_free(&text->vocabulary);
    normalizer_destroy(text->normalizer);
    pretokenizer_destroy(text->pretokenizer);
    decoder_destroy(text->decoder);
    bpe_destroy(text->bpe);
    unigram_destroy(text->unigram);
    free(text->ranks);
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
