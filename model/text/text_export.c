/* Everything is checked before the first key is written. What a reader of the new file would do
 * otherwise than the folder says is refused by name: a tokenizer that is nearly right gives ids
 * that look right. */
#include "model/text/text_export.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/format/gguf_writer.h"
#include "model/text/byte_alphabet.h"
#include "model/text/tokenizer_json_internal.h"

enum { CUTS_MAX = 4, PAD_BYTES = 24, ENDS_MAX = 3 };

/* How folders write the steps of a name. */
struct cut_row {
    const char *pre;
    const char *cuts[CUTS_MAX]; /* regular expressions of Split; DIGITS */
    bool pattern;               /* then ByteLevel with its own expression */
};

static const char DIGITS[] = "Digits";

#define CL100K(digits)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct cut_row cut_rows[] = {
    {"gpt-2", {NULL}, true},
    {"smollm", {DIGITS}, true},
    {"qwen2", {CL100K("\\p{N}")}, false},
    {"llama-bpe", {CL100K("\\p{N}{1,3}")}, false},
    {"deepseek-v3",
     {"\\p{N}{1,3}",
      "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
      "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
     false},
};

struct export
{
    const struct text *text;
    const struct json *root;
    struct token_entry *tokens; /* [token_count] as the folder has them */
    uint64_t token_count;
    uint32_t row_count;
    const struct cut_row *cuts;
    int32_t ends[ENDS_MAX]; /* eos, eot, eom; -1 */
    struct error *error;
};

static enum status refuse(const struct export *export, const char *what)
{
    return error_set(export->error, STATUS_UNSUPPORTED, "a GGUF file has no words for %s", what);
}

/* "" where there is no such text, also where what should be an object is none. */
static const char *member(const struct json *object, const char *key)
{
    const struct json *value = json_kind(object) == JSON_OBJECT ? json_get(object, key) : NULL;
    size_t bytes;
    return value != NULL && json_kind(value) == JSON_STRING ? json_string(value, &bytes) : "";
}

/* The expression of a step that cuts out its matches, DIGITS, or NULL for any other step. */
static const char *cut_of(const struct json *step)
{
    const char *type = member(step, "type");
    if (*type == '\0') // null stands for no step
        return NULL;
    const struct json *pattern = json_get(step, "pattern");
    if (strcmp(type, "Digits") == 0 && json_member_bool(step, "individual_digits", false))
        return DIGITS;
    const bool plain = strcmp(type, "Split") == 0 && !json_member_bool(step, "invert", false) &&
                       strcmp(member(step, "behavior"), "Isolated") == 0 && pattern != NULL &&
                       json_kind(pattern) == JSON_OBJECT;
    return plain ? member(pattern, "Regex") : NULL;
}

/* Whether the steps are those of the row, and ByteLevel behind them. */
static bool cuts_are(const struct json *const *steps, size_t count, const struct cut_row *row)
{
    const struct json *last = steps[count - 1];
    if (strcmp(member(last, "type"), "ByteLevel") != 0 ||
        json_member_bool(last, "add_prefix_space", true) ||
        json_member_bool(last, "use_regex", true) != row->pattern)
        return false;
    for (size_t i = 0; i < CUTS_MAX; i++) {
        const char *wanted = row->cuts[i];
        const char *written = i + 1 < count ? cut_of(steps[i]) : NULL;
        if ((wanted == NULL) != (i + 1 >= count))
            return false;
        if (wanted != NULL && (written == NULL || strcmp(wanted, written) != 0))
            return false;
    }
    return true;
}

static enum status cuts_find(struct export *export)
{
    const struct json *steps[CUTS_MAX + 1] = {json_get(export->root, "pre_tokenizer")};
    size_t count = 1;
    if (strcmp(member(steps[0], "type"), "Sequence") == 0) {
        const struct json *members = json_get(steps[0], "pretokenizers");
        count = json_count(members);
        for (size_t i = 0; i < count && i <= CUTS_MAX; i++)
            steps[i] = json_at(members, i);
    }
    for (size_t i = 0; i < ARRAY_COUNT(cut_rows) && count > 0 && count <= CUTS_MAX + 1; i++)
        if (cuts_are(steps, count, &cut_rows[i]))
            export->cuts = &cut_rows[i];
    return export->cuts != NULL ? STATUS_OK : refuse(export, "the steps of its pre_tokenizer");
}

static enum status rules_check(const struct export *export)
{
    const struct text *text = export->text;
    const char *pre = export->cuts->pre;
    const struct pretokenize_rules *rules = pretokenize_rules_find(pre, strlen(pre));
    const struct json *normalizer = json_get(export->root, "normalizer");
    const bool normalizes = normalizer != NULL && json_kind(normalizer) != JSON_NULL;
    const bool composes = normalizes && strcmp(member(normalizer, "type"), "NFC") == 0;
    CHECK(rules != NULL);
    if (normalizes != rules->normalizes || (normalizes && !composes))
        return error_set(export->error, STATUS_UNSUPPORTED,
                         "in a GGUF file the pre-tokenizer '%s' goes with %s, and the folder has "
                         "another normalizer",
                         pre, rules->normalizes ? "NFC" : "no normalizer");
    if (text->ignore_merges != rules->ignores_merges)
        return error_set(export->error, STATUS_UNSUPPORTED,
                         "in a GGUF file the pre-tokenizer '%s' goes with 'ignore_merges' %s", pre,
                         rules->ignores_merges ? "true" : "false");
    if (text->byte_fallback)
        return refuse(export, "'byte_fallback' of a byte-level model");
    for (int byte = 0; byte < 256 && text->unknown >= 0; byte++)
        if (text->vocabulary.byte_ids[byte] < 0 && byte != 0xc0 && byte != 0xc1 && byte < 0xf5)
            return refuse(export, "'unk_token' in the place of bytes that have no token");
    return STATUS_OK;
}

/* What of a token of the folder the new file cannot say; NULL for nothing. */
static const char *token_fault(const struct export *export, uint32_t id, struct buffer *scratch)
{
    const struct vocabulary *vocabulary = &export->text->vocabulary;
    const struct token_entry *token = &export->tokens[id];
    const struct json *normalizer = json_get(export->root, "normalizer");
    const bool normalizes = normalizer != NULL && json_kind(normalizer) != JSON_NULL;
    const uint8_t flags = vocabulary->flags[id];
    if ((flags & ~(uint8_t)SPECIAL_NORMALIZED) != 0)
        return "'lstrip', 'rstrip' and 'single_word' of added tokens";
    if ((flags & SPECIAL_NORMALIZED) != 0 && normalizes)
        return "added tokens that are looked for in normalised text";
    size_t count;
    const char *decoded = vocabulary_bytes(vocabulary, (int32_t)id, &count);
    buffer_clear(scratch);
    if (token->type != 0 && !byte_alphabet_decode(token->text, token->bytes, scratch))
        buffer_add(scratch, token->text, token->bytes);
    if (scratch->size != count || (count > 0 && memcmp(scratch->data, decoded, count) != 0))
        return "what the decoder makes of a token";
    return NULL;
}

static enum status tokens_check(const struct export *export)
{
    const struct decoder_start *start = decoder_start(export->text->decoder);
    struct buffer scratch = {0};
    const char *fault = NULL;
    if (start->strip_count > 0 || start->first_token_bare || start->joined)
        fault = "what the decoder does at the beginning of a text";
    for (uint32_t i = 0; i < export->token_count && fault == NULL; i++)
        fault = token_fault(export, i, &scratch);
    buffer_free(&scratch);
    if (fault != NULL)
        return refuse(export, fault);
    if (export->token_count > export->row_count)
        return error_set(export->error, STATUS_UNSUPPORTED,
                         "it has %llu tokens and the embedding %u rows",
                         (unsigned long long)export->token_count, export->row_count);
    return STATUS_OK;
}

/* eos, and up to two ends besides that a reader does not know by their names. */
static enum status ends_find(struct export *export)
{
    const struct text_info *info = &export->text->info;
    struct text named = {.vocabulary = export->text->vocabulary,
                         .info = {.eos = -1, .vocab_count = info->vocab_count}};
    size_t count = 1;
    text_ends_by_name(&named);
    for (size_t i = 0; i < ENDS_MAX; i++)
        export->ends[i] = i == 0 ? info->eos : -1;
    for (uint32_t i = 0; i < info->eos_count; i++) {
        bool known = info->eos_ids[i] == info->eos;
        for (uint32_t k = 0; k < named.info.eos_count; k++)
            known = known || named.info.eos_ids[k] == info->eos_ids[i];
        if (!known && count == ENDS_MAX)
            return refuse(export, "so many tokens that end a generation");
        if (!known)
            export->ends[count++] = info->eos_ids[i];
    }
    for (size_t i = 0; i < count; i++)
        if (export->ends[i] >= 0 &&
            export->text->vocabulary.types[export->ends[i]] == TOKEN_USER_DEFINED)
            return refuse(export, "a token that ends a generation and is found in any text");
    return STATUS_OK;
}

static void tokens_put(const struct export *export, struct gguf_writer *writer)
{
    const uint32_t count = export->row_count;
    const char **texts = calloc(count, sizeof *texts);
    uint32_t *sizes = calloc(count, sizeof *sizes);
    int32_t *types = calloc(count, sizeof *types);
    char *pads = calloc(count, PAD_BYTES);
    CHECK(texts != NULL && sizes != NULL && types != NULL && pads != NULL);
    for (uint32_t i = 0; i < count; i++) {
        const bool there = i < export->token_count && export->tokens[i].type != 0;
        char *pad = pads + (size_t)i * PAD_BYTES;
        texts[i] = there ? export->tokens[i].text : pad;
        sizes[i] = there ? (uint32_t) export->tokens[i].bytes
                         : (uint32_t)snprintf(pad, PAD_BYTES, "[PAD%u]", i);
        types[i] = there ? export->text->vocabulary.types[i] : TOKEN_UNUSED;
    }
    gguf_writer_put_strings(writer, "tokenizer.ggml.tokens", texts, sizes, count);
    gguf_writer_put_i32s(writer, "tokenizer.ggml.token_type", types, count);
    free(texts);
    free(sizes);
    free(types);
    free(pads);
}

/* Merges as lines "left right" in one buffer, each ended by a NUL. */
static enum status merges_read(const struct export *export, struct buffer *lines)
{
    const struct json *merges = json_get(json_get(export->root, "model"), "merges");
    for (size_t i = 0; i < json_count(merges); i++) {
        const struct json *merge = json_at(merges, i);
        size_t bytes;
        if (json_kind(merge) == JSON_STRING) {
            const char *line = json_string(merge, &bytes);
            buffer_add(lines, line, bytes + 1);
            continue;
        }
        for (size_t side = 0; side < 2; side++) {
            const char *part = json_string(json_at(merge, side), &bytes);
            if (memchr(part, ' ', bytes) != NULL || memchr(part, '\0', bytes) != NULL)
                return refuse(export, "a merge of a text with a space");
            buffer_add(lines, part, bytes);
            buffer_add_char(lines, side == 0 ? ' ' : '\0');
        }
    }
    return STATUS_OK;
}

static void merges_put(const struct export *export, const struct buffer *lines,
                       struct gguf_writer *writer)
{
    const size_t count = json_count(json_get(json_get(export->root, "model"), "merges"));
    const char **texts = calloc(count + 1, sizeof *texts);
    uint32_t *sizes = calloc(count + 1, sizeof *sizes);
    CHECK(texts != NULL && sizes != NULL);
    const char *at = lines->data;
    for (size_t i = 0; i < count; i++) {
        texts[i] = at;
        sizes[i] = (uint32_t)strlen(at);
        at += sizes[i] + 1;
    }
    gguf_writer_put_strings(writer, "tokenizer.ggml.merges", texts, sizes, count);
    free(texts);
    free(sizes);
}

static void keys_put(const struct export *export, const struct buffer *lines,
                     const struct buffer *template, struct gguf_writer *writer)
{
    static const char *const end_keys[ENDS_MAX] = {"tokenizer.ggml.eos_token_id",
                                                   "tokenizer.ggml.eot_token_id",
                                                   "tokenizer.ggml.eom_token_id"};
    const struct text_info *info = &export->text->info;
    gguf_writer_put_string(writer, "tokenizer.ggml.model", "gpt2", 4);
    gguf_writer_put_string(writer, "tokenizer.ggml.pre", export->cuts->pre,
                           strlen(export->cuts->pre));
    tokens_put(export, writer);
    merges_put(export, lines, writer);
    if (info->bos >= 0)
        gguf_writer_put_u32(writer, "tokenizer.ggml.bos_token_id", (uint32_t)info->bos);
    for (size_t i = 0; i < ENDS_MAX; i++)
        if (export->ends[i] >= 0)
            gguf_writer_put_u32(writer, end_keys[i], (uint32_t) export->ends[i]);
    gguf_writer_put_bool(writer, "tokenizer.ggml.add_bos_token", info->add_bos);
    if (template->size > 0)
        gguf_writer_put_string(writer, "tokenizer.chat_template", template->data, template->size);
}

static enum status byte_level_check(struct export *export)
{
    if (export->text->level != LEVEL_BYTES || export->text->model != MODEL_MERGES)
        return error_set(export->error, STATUS_UNSUPPORTED,
                         "only a byte-level BPE is written into a GGUF file, and this is %s",
                         export->text->model == MODEL_UNIGRAM ? "a Unigram model"
                                                              : "a BPE of characters");
    TRY(cuts_find(export));
    TRY(rules_check(export));
    TRY(tokens_check(export));
    return ends_find(export);
}

/* With the document and the tokens at hand. */
static enum status document_export(struct export *export, const char *folder,
                                   struct gguf_writer *writer)
{
    char path[FOLDER_PATH_BYTES];
    struct json *config = NULL;
    struct buffer template = {0}, lines = {0};
    enum status status = byte_level_check(export);
    buffer_reserve(&lines, 1);
    if (status == STATUS_OK)
        status = merges_read(export, &lines);
    if (status == STATUS_OK)
        status = folder_config_read(folder, "tokenizer_config.json", path, &config, export->error);
    if (status == STATUS_OK)
        status = folder_template_read(folder, config, path, &template, export->error);
    if (status == STATUS_OK)
        keys_put(export, &lines, &template, writer);
    buffer_free(&template);
    buffer_free(&lines);
    json_free(config);
    return status;
}

enum status text_export(const char *folder, uint32_t row_count, struct gguf_writer *writer,
                        struct error *error)
{
    char path[FOLDER_PATH_BYTES];
    struct text *text;
    struct json *root = NULL;
    struct digest128 digest;
    TRY(text_open(folder, &text, error));
    struct export export = {.text = text, .row_count = row_count, .error = error};
    enum status status = folder_tokenizer_read(folder, path, &root, &digest, error);
    if (status == STATUS_OK)
        status = tokenizer_json_tokens(root, path, &export.tokens, &export.token_count, error);
    if (status == STATUS_OK && export.token_count != text->vocabulary.count)
        status = error_set(error, STATUS_CORRUPT, "%s has changed while it was read", path);
    export.root = root;
    if (status == STATUS_OK)
        status = document_export(&export, folder, writer);
    free(export.tokens);
    json_free(root);
    text_close(text);
    return status;
}
