/* Opening a GGUF file's tokenizer: "gpt2" (byte-level merges) and "llama" (SentencePiece merges by
 * score). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/format/gguf.h"
#include "model/text/text_internal.h"

static const char space_mark[] = "\xe2\x96\x81"; /* U+2581 */
enum { SPACE_MARK_BYTES = sizeof space_mark - 1 };

static const char *const control_keys[] = {
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
};

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

/* A bool that may be absent, in which case *out stays. */
static enum status flag_read(const struct gguf *file, const char *key, bool *out,
                             struct error *error)
{
    const enum status status = gguf_get_bool(file, key, out, error);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
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
    char what[64];
    snprintf(what, sizeof what, "'%s'", key);
    TRY(vocabulary_check_id(&text->vocabulary, what, id, error));
    *out = (int32_t)id;
    return STATUS_OK;
}

static enum status control_ids_read(struct text *text, const struct gguf *file, struct error *error)
{
    struct text_info *info = &text->info;
    int32_t ids[ARRAY_COUNT(control_keys)];
    for (size_t i = 0; i < ARRAY_COUNT(control_keys); i++)
        TRY(id_read(text, file, control_keys[i], &ids[i], error));
    info->bos = ids[0];
    info->eos = ids[1];
    for (size_t i = 1; i < ARRAY_COUNT(control_keys); i++)
        if (ids[i] >= 0)
            TRY(text_end_add(text, ids[i], error));
    text_ends_by_name(text);
    TRY(flag_read(file, "tokenizer.ggml.add_bos_token", &info->add_bos, error));
    info->add_bos = info->add_bos && info->bos >= 0;
    return STATUS_OK;
}

/* Types of all tokens, normal where the file does not say. */
static enum status types_read(struct token_entry *tokens, uint64_t count, const struct gguf *file,
                              struct error *error)
{
    const char *key = "tokenizer.ggml.token_type";
    for (uint64_t i = 0; i < count; i++)
        tokens[i].type = TOKEN_NORMAL;
    const void *data;
    uint64_t type_count = 0;
    enum status status = gguf_get_numbers(file, key, GGUF_I32, &data, &type_count, error);
    if (status == STATUS_INVALID)
        status = gguf_get_numbers(file, key, GGUF_U32, &data, &type_count, error);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    TRY(status);
    if (type_count != count)
        return error_set(error, STATUS_CORRUPT, "%s: '%s' has %llu entries for %llu tokens",
                         gguf_path(file), key, (unsigned long long)type_count,
                         (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t type = load_le32((const uint8_t *)data + 4 * i);
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
            return error_set(error, STATUS_CORRUPT,
                             "%s: token %llu is of type %u, the types are 1 to %d", gguf_path(file),
                             (unsigned long long)i, type, TOKEN_BYTE);
        tokens[i].type = (uint8_t)type;
    }
    for (size_t i = 0; i < ARRAY_COUNT(control_keys); i++) {
        uint32_t id;
        if (gguf_get_u32(file, control_keys[i], &id, NULL) == STATUS_OK && id < count &&
            tokens[id].type == TOKEN_USER_DEFINED)
            tokens[id].type = TOKEN_CONTROL;
    }
    return STATUS_OK;
}

/* The scores, [count] little-endian floats; *data_out NULL when the file has none. */
static enum status scores_get(const struct gguf *file, uint64_t count, const void **data_out,
                              struct error *error)
{
    const char *key = "tokenizer.ggml.scores";
    uint64_t score_count = 0;
    *data_out = NULL;
    const enum status status = gguf_get_numbers(file, key, GGUF_F32, data_out, &score_count, error);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    TRY(status);
    if (score_count != count)
        return error_set(error, STATUS_CORRUPT, "%s: '%s' has %llu entries for %llu tokens",
                         gguf_path(file), key, (unsigned long long)score_count,
                         (unsigned long long)count);
    return STATUS_OK;
}

/* User-defined tokens are looked for in raw text, where a space is a space. The changed texts go to
 * `plain`, which must outlive the entries. */
static void user_defined_unmark(struct token_entry *tokens, uint64_t count, struct buffer *plain)
{
    size_t bytes = 0;
    for (uint64_t i = 0; i < count; i++)
        if (tokens[i].type == TOKEN_USER_DEFINED)
            bytes += tokens[i].bytes;
    buffer_reserve(plain, bytes); // so that it does not move
    for (uint64_t i = 0; i < count; i++) {
        struct token_entry *token = &tokens[i];
        if (token->type != TOKEN_USER_DEFINED)
            continue;
        const char *from = token->text;
        const char *end = from + token->bytes;
        const size_t start = plain->size;
        while (from < end) {
            const bool mark =
                end - from >= SPACE_MARK_BYTES && memcmp(from, space_mark, SPACE_MARK_BYTES) == 0;
            buffer_add_char(plain, mark ? ' ' : *from);
            from += mark ? SPACE_MARK_BYTES : 1;
        }
        token->text = plain->data + start;
        token->bytes = plain->size - start;
    }
}

static enum status entries_read(struct text *text, const struct gguf *file,
                                const struct gguf_string *texts, uint64_t count,
                                struct error *error)
{
    struct token_entry *tokens = calloc(count + 1, sizeof *tokens);
    if (tokens == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for the %llu tokens of %s",
                         (unsigned long long)count, gguf_path(file));
    for (uint64_t i = 0; i < count; i++)
        tokens[i] = (struct token_entry){.text = texts[i].data, .bytes = texts[i].bytes};
    struct buffer plain = {0};
    enum status status = types_read(tokens, count, file, error);
    if (status == STATUS_OK && text->level == LEVEL_CHARACTERS)
        user_defined_unmark(tokens, count, &plain);
    if (status == STATUS_OK)
        status = vocabulary_fill(&text->vocabulary, tokens, count, text->level, text->decoder,
                                 gguf_path(file), error);
    buffer_free(&plain);
    free(tokens);
    return status;
}

static enum status tokens_read(struct text *text, const struct gguf *file, struct error *error)
{
    struct gguf_string *texts;
    uint64_t count;
    TRY(gguf_get_strings(file, "tokenizer.ggml.tokens", &texts, &count, error));
    const enum status status = entries_read(text, file, texts, count, error);
    free(texts);
    TRY(status);
    text->info.vocab_count = text->vocabulary.count;
    text->whole = calloc(count, sizeof *text->whole);
    CHECK(text->whole != NULL);
    return STATUS_OK;
}

/* "left right" */
static enum status line_add(struct text *text, const struct gguf_string *line, uint64_t rank,
                            struct error *error)
{
    const char *space = line->bytes > 2 ? memchr(line->data + 1, ' ', line->bytes - 2) : NULL;
    if (space == NULL)
        return error_set(error, STATUS_CORRUPT,
                         "%s: merge %llu '%.*s' does not join two tokens to a third",
                         text->vocabulary.path, (unsigned long long)rank,
                         (int)(line->bytes < 60 ? line->bytes : 60), line->data);
    const size_t left_bytes = (size_t)(space - line->data);
    return merge_add(text, line->data, left_bytes, space + 1, line->bytes - left_bytes - 1, rank,
                     error);
}

static enum status merges_read(struct text *text, const struct gguf *file, struct error *error)
{
    struct gguf_string *lines;
    uint64_t count = 0;
    TRY(gguf_get_strings(file, "tokenizer.ggml.merges", &lines, &count, error));
    text->bpe = bpe_create((size_t)count);
    enum status status = STATUS_OK;
    for (uint64_t i = 0; i < count && status == STATUS_OK; i++)
        status = line_add(text, &lines[i], i, error);
    /* The strings stand one after another in the file, so that they hash as one block. */
    if (count > 0) {
        const struct digest128 digest = hash128(
            lines[0].data, (size_t)(lines[count - 1].data + lines[count - 1].bytes - lines[0].data),
            count);
        buffer_add(&text->rules, &digest, sizeof digest);
    }
    free(lines);
    return status;
}

static enum status byte_level_read(struct text *text, const struct gguf *file, struct error *error)
{
    struct gguf_string pre = {0};
    const enum status status = gguf_get_string(file, "tokenizer.ggml.pre", &pre, error);
    if (status != STATUS_NOT_FOUND)
        TRY(status);
    struct error reason;
    if (pretokenizer_add_named(text->pretokenizer, pre.data, pre.bytes, &reason) != STATUS_OK)
        return error_set(error, reason.status, "%s: %s", gguf_path(file), reason.text);
    const struct pretokenize_rules *rules = pretokenize_rules_find(pre.data, pre.bytes);
    if (rules->normalizes)
        TRY(normalizer_add_form(text->normalizer, UNICODE_NFC, error));
    text->level = LEVEL_BYTES;
    text->model = MODEL_MERGES;
    text->ignore_merges = rules->ignores_merges;
    text->info.add_bos = rules->adds_bos;
    TRY(decoder_add_byte_level(text->decoder, error));
    buffer_add_text(&text->rules, rules->names);
    TRY(tokens_read(text, file, error));
    const void *scores; // of no use here; a file that has them must at least have them right
    TRY(scores_get(file, text->vocabulary.count, &scores, error));
    return merges_read(text, file, error);
}

struct scored {
    float score;
    uint32_t id;
};

static int score_compare(const void *a, const void *b)
{
    const float left = ((const struct scored *)a)->score;
    const float right = ((const struct scored *)b)->score;
    return (left < right) - (left > right);
}

/* Equal scores are of equal rank: among them the leftmost pair merges first. */
static enum status ranks_make(struct text *text, const void *scores, struct error *error)
{
    const uint32_t count = text->vocabulary.count;
    struct scored *order = malloc(count * sizeof *order);
    text->ranks = malloc(count * sizeof *text->ranks);
    CHECK(order != NULL && text->ranks != NULL);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t bits = load_le32((const uint8_t *)scores + 4 * (size_t)i);
        memcpy(&order[i].score, &bits, sizeof bits);
        order[i].id = i;
        if (isnan(order[i].score)) {
            free(order);
            return error_set(error, STATUS_CORRUPT, "%s: the score of token %u is not a number",
                             text->vocabulary.path, i);
        }
    }
    qsort(order, count, sizeof *order, score_compare);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && order[i].score < order[i - 1].score)
            rank++;
        text->ranks[order[i].id] = rank;
    }
    free(order);
    buffer_add(&text->rules, text->ranks, count * sizeof *text->ranks);
    return STATUS_OK;
}

static int32_t scored_find(const void *arg, const char *part, size_t bytes, uint32_t *rank_out)
{
    const struct text *text = arg;
    const int32_t id = vocabulary_find(&text->vocabulary, part, bytes);
    if (id < 0 || (text->vocabulary.types[id] != TOKEN_NORMAL &&
                   text->vocabulary.types[id] != TOKEN_USER_DEFINED))
        return -1;
    *rank_out = text->ranks[id];
    return id;
}

/* The space in front of a text, and spaces as U+2581. */
static enum status spaces_read(struct text *text, const struct gguf *file, struct error *error)
{
    bool prefix = true;
    TRY(flag_read(file, "tokenizer.ggml.add_space_prefix", &prefix, error));
    if (prefix)
        TRY(normalizer_add_prepend(text->normalizer, space_mark, SPACE_MARK_BYTES, error));
    TRY(normalizer_add_replace(text->normalizer, pattern_create_literal(" ", 1), space_mark,
                               SPACE_MARK_BYTES, error));
    TRY(decoder_add_replace(text->decoder, pattern_create_literal(space_mark, SPACE_MARK_BYTES),
                            " ", 1, error));
    if (prefix)
        decoder_set_start(text->decoder,
                          &(struct decoder_start){.mark = " ", .mark_bytes = 1, .strip_count = 1});
    buffer_add_text(&text->rules, prefix ? "scores, prefix" : "scores");
    return STATUS_OK;
}

static enum status scores_read(struct text *text, const struct gguf *file, struct error *error)
{
    text->level = LEVEL_CHARACTERS;
    text->model = MODEL_SCORES;
    text->byte_fallback = true;
    text->fuse_unknown = true;
    text->info.add_bos = true;
    TRY(spaces_read(text, file, error));
    TRY(tokens_read(text, file, error));
    TRY(id_read(text, file, "tokenizer.ggml.unknown_token_id", &text->unknown, error));
    const void *scores;
    TRY(scores_get(file, text->vocabulary.count, &scores, error));
    if (scores == NULL)
        return error_set(error, STATUS_CORRUPT,
                         "%s: 'tokenizer.ggml.scores' is missing, the tokenizer model llama needs "
                         "it",
                         gguf_path(file));
    TRY(ranks_make(text, scores, error));
    text->bpe = bpe_create_by_text(scored_find, text, text->vocabulary.longest);
    return words_cut(text, error);
}

static enum status template_read(const struct gguf *file, const char *key, struct buffer *out,
                                 struct error *error)
{
    struct gguf_string template;
    const enum status status = gguf_get_string(file, key, &template, error);
    if (status == STATUS_OK)
        buffer_add(out, template.data, template.bytes);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status templates_read(struct text *text, const struct gguf *file, struct error *error)
{
    struct buffer plain = {0}, with_tools = {0};
    enum status status = template_read(file, "tokenizer.chat_template", &plain, error);
    if (status == STATUS_OK)
        status = template_read(file, "tokenizer.chat_template.tool_use", &with_tools, error);
    if (status == STATUS_OK)
        chat_format_read(&text->chat, &text->vocabulary, plain, with_tools, gguf_path(file));
    buffer_free(&plain);
    buffer_free(&with_tools);
    return status;
}

enum status text_read_gguf(struct text *text, const struct gguf *file, struct error *error)
{
    TRY(names_read(&text->info, file, error));
    struct gguf_string model;
    TRY(gguf_get_string(file, "tokenizer.ggml.model", &model, error));
    if (model.bytes == 4 && memcmp(model.data, "gpt2", 4) == 0)
        TRY(byte_level_read(text, file, error));
    else if (model.bytes == 5 && memcmp(model.data, "llama", 5) == 0)
        TRY(scores_read(text, file, error));
    else
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s has the tokenizer model '%.*s', Baton reads gpt2 (byte-level BPE) and "
                         "llama (SentencePiece)",
                         gguf_path(file), (int)(model.bytes < 40 ? model.bytes : 40), model.data);
    TRY(control_ids_read(text, file, error));
    return templates_read(text, file, error);
}
