/* The vocabulary, the model and the added tokens of a tokenizer.json. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/text/tokenizer_json_internal.h"

/* Tokens being gathered by id. */
struct entries {
    struct token_entry *tokens;
    uint64_t count, capacity;
    const char *path;
};

/* The entry of an id, growing the list; its type is 0 while nothing is known of it. */
static enum status entry_get(struct entries *entries, int64_t id, struct token_entry **out,
                             struct error *error)
{
    if (id < 0 || id >= VOCABULARY_MAX)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: a token has the id %lld, the limits are 0 and %d", entries->path,
                         (long long)id, VOCABULARY_MAX - 1);
    const uint64_t needed = (uint64_t)id + 1;
    if (needed > entries->capacity) {
        uint64_t capacity = entries->capacity * 2 + 1024;
        if (capacity < needed)
            capacity = needed;
        struct token_entry *tokens = realloc(entries->tokens, capacity * sizeof *tokens);
        if (tokens == NULL)
            return error_set(error, STATUS_NO_MEMORY, "no memory for the %llu tokens of %s",
                             (unsigned long long)capacity, entries->path);
        memset(tokens + entries->capacity, 0, (capacity - entries->capacity) * sizeof *tokens);
        entries->tokens = tokens;
        entries->capacity = capacity;
    }
    if (needed > entries->count)
        entries->count = needed;
    *out = &entries->tokens[id];
    return STATUS_OK;
}

static enum status entry_set(struct entries *entries, int64_t id, const char *text, size_t bytes,
                             struct error *error)
{
    struct token_entry *token;
    TRY(entry_get(entries, id, &token, error));
    if (token->type != 0)
        return error_set(error, STATUS_CORRUPT, "%s: two tokens have the id %lld", entries->path,
                         (long long)id);
    *token = (struct token_entry){.text = text, .bytes = bytes, .type = TOKEN_NORMAL};
    return STATUS_OK;
}

/* {"text": id, …}: ids above what so few tokens can explain are refused, because a table is made of
 * all ids. */
static enum status vocab_object_read(struct entries *entries, const struct json *vocab,
                                     struct error *error)
{
    enum { HOLES_MAX = 65536 };
    void *cursor = NULL;
    const char *key;
    const struct json *value;
    const int64_t limit = (int64_t)json_count(vocab) + HOLES_MAX;
    while (json_next(vocab, &cursor, &key, &value)) {
        if (json_kind(value) != JSON_INT || json_int(value) >= limit)
            return error_set(error, STATUS_CORRUPT,
                             "%s: the id of the token '%.40s' is not a number below %lld",
                             entries->path, key, (long long)limit);
        TRY(entry_set(entries, json_int(value), key, strlen(key), error));
    }
    return STATUS_OK;
}

/* [["text", score], …] */
static enum status vocab_array_read(struct entries *entries, const struct json *vocab,
                                    struct error *error)
{
    for (size_t i = 0; i < json_count(vocab); i++) {
        const struct json *pair = json_at(vocab, i);
        const bool whole =
            json_kind(pair) == JSON_ARRAY && json_count(pair) == 2 &&
            json_kind(json_at(pair, 0)) == JSON_STRING &&
            (json_kind(json_at(pair, 1)) == JSON_REAL || json_kind(json_at(pair, 1)) == JSON_INT);
        if (!whole)
            return error_set(error, STATUS_CORRUPT,
                             "%s: token %zu of the vocabulary is not a text and a score",
                             entries->path, i);
        size_t bytes;
        const char *text = json_string(json_at(pair, 0), &bytes);
        TRY(entry_set(entries, (int64_t)i, text, bytes, error));
    }
    return STATUS_OK;
}

/* An added token is a row of its own or marks one of the vocabulary. */
static enum status added_read(struct entries *entries, const struct json *added,
                              struct error *error)
{
    const struct json *id = json_kind(added) == JSON_OBJECT ? json_get(added, "id") : NULL;
    const char *text;
    size_t bytes;
    if (id == NULL || json_kind(id) != JSON_INT || json_int(id) > (int64_t)entries->count + 65536)
        return error_set(error, STATUS_CORRUPT,
                         "%s: an added token has no id, or one far above %llu", entries->path,
                         (unsigned long long)entries->count);
    TRY(json_member_string(added, "content", entries->path, &text, &bytes, error));
    struct token_entry *token;
    TRY(entry_get(entries, json_int(id), &token, error));
    if (token->type != 0 && (token->bytes != bytes || memcmp(token->text, text, bytes) != 0))
        return error_set(error, STATUS_CORRUPT,
                         "%s: the added token '%.40s' and the token '%.*s' have the id %lld",
                         entries->path, text, (int)(token->bytes < 40 ? token->bytes : 40),
                         token->text, (long long)json_int(id));
    token->text = text;
    token->bytes = bytes;
    token->type = json_member_bool(added, "special", false) ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    token->flags = 0;
    if (json_member_bool(added, "lstrip", false))
        token->flags |= SPECIAL_STRIP_LEFT;
    if (json_member_bool(added, "rstrip", false))
        token->flags |= SPECIAL_STRIP_RIGHT;
    if (json_member_bool(added, "single_word", false))
        token->flags |= SPECIAL_WORD;
    if (json_member_bool(added, "normalized", token->type == TOKEN_USER_DEFINED))
        token->flags |= SPECIAL_NORMALIZED;
    return STATUS_OK;
}

static enum status entries_read(struct entries *entries, const struct json *root,
                                const struct json *vocab, struct error *error)
{
    if (vocab == NULL || (json_kind(vocab) != JSON_OBJECT && json_kind(vocab) != JSON_ARRAY))
        return error_set(error, STATUS_CORRUPT, "%s: the model has no vocabulary", entries->path);
    TRY(json_kind(vocab) == JSON_OBJECT ? vocab_object_read(entries, vocab, error)
                                        : vocab_array_read(entries, vocab, error));
    const struct json *added = json_get(root, "added_tokens");
    if (added == NULL || json_kind(added) != JSON_ARRAY)
        return STATUS_OK;
    for (size_t i = 0; i < json_count(added); i++)
        TRY(added_read(entries, json_at(added, i), error));
    return STATUS_OK;
}

enum status tokenizer_json_tokens(const struct json *root, const char *path,
                                  struct token_entry **tokens_out, uint64_t *count_out,
                                  struct error *error)
{
    struct entries entries = {.path = path};
    const struct json *model = json_kind(root) == JSON_OBJECT ? json_get(root, "model") : NULL;
    const enum status status =
        entries_read(&entries, root, model != NULL ? json_get(model, "vocab") : NULL, error);
    if (status != STATUS_OK) {
        free(entries.tokens);
        return status;
    }
    *tokens_out = entries.tokens;
    *count_out = entries.count;
    return STATUS_OK;
}

/* Tokens that are looked for in normalised text are themselves normalised for that. */
static enum status normalized_add(struct text *text, const struct entries *entries,
                                  struct error *error)
{
    struct vocabulary *vocabulary = &text->vocabulary;
    struct normalizer_scratch scratch = {.pattern = pattern_scratch_create()};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < entries->count && status == STATUS_OK; i++) {
        const struct token_entry *token = &entries->tokens[i];
        const bool added = token->type == TOKEN_CONTROL || token->type == TOKEN_USER_DEFINED;
        if (!added || (token->flags & SPECIAL_NORMALIZED) == 0)
            continue;
        const char *normalized = token->text;
        size_t bytes = token->bytes;
        status = normalizer_run(text->normalizer, &scratch, token->text, token->bytes, false,
                                &normalized, &bytes, error);
        if (status == STATUS_OK)
            special_tokens_add(&vocabulary->normalized, normalized, bytes, (int32_t)i);
    }
    pattern_scratch_destroy(scratch.pattern);
    normalizer_scratch_free(&scratch);
    return status;
}

static enum status vocabulary_read(struct text *text, const struct json *root,
                                   const struct json *model, const char *path, struct error *error)
{
    struct entries entries = {.path = path};
    enum status status = entries_read(&entries, root, json_get(model, "vocab"), error);
    if (status == STATUS_OK)
        status = vocabulary_fill(&text->vocabulary, entries.tokens, entries.count, text->level,
                                 text->decoder, path, error);
    if (status == STATUS_OK)
        status = normalized_add(text, &entries, error);
    free(entries.tokens);
    TRY(status);
    text->info.vocab_count = text->vocabulary.count;
    text->whole = calloc(text->vocabulary.count, sizeof *text->whole);
    CHECK(text->whole != NULL);
    return STATUS_OK;
}

/* "left right", or ["left", "right"] in newer files. */
static enum status merge_read(struct text *text, const struct json *merge, uint64_t rank,
                              struct error *error)
{
    size_t left_bytes = 0;
    size_t right_bytes = 0;
    const char *left = NULL;
    const char *right = NULL;
    if (json_kind(merge) == JSON_STRING) {
        left = json_string(merge, &left_bytes);
        const char *space = memchr(left, ' ', left_bytes);
        if (space != NULL) {
            right = space + 1;
            right_bytes = left_bytes - (size_t)(right - left);
            left_bytes = (size_t)(space - left);
        }
    } else if (json_kind(merge) == JSON_ARRAY && json_count(merge) == 2 &&
               json_kind(json_at(merge, 0)) == JSON_STRING &&
               json_kind(json_at(merge, 1)) == JSON_STRING) {
        left = json_string(json_at(merge, 0), &left_bytes);
        right = json_string(json_at(merge, 1), &right_bytes);
    }
    if (right == NULL)
        return error_set(error, STATUS_CORRUPT, "%s: merge %llu is not a pair of texts",
                         text->vocabulary.path, (unsigned long long)rank);
    return merge_add(text, left, left_bytes, right, right_bytes, rank, error);
}

static bool is_set(const struct json *model, const char *key)
{
    const struct json *value = json_get(model, key);
    if (value == NULL || json_kind(value) == JSON_NULL)
        return false;
    size_t bytes = 1;
    if (json_kind(value) == JSON_STRING)
        json_string(value, &bytes);
    if (json_kind(value) == JSON_INT || json_kind(value) == JSON_REAL)
        return json_number(value) != 0;
    return bytes > 0;
}

static enum status unknown_read(struct text *text, const struct json *model, struct error *error)
{
    const char *name;
    size_t bytes;
    if (!is_set(model, "unk_token"))
        return STATUS_OK;
    TRY(json_member_string(model, "unk_token", text->vocabulary.path, &name, &bytes, error));
    text->unknown = vocabulary_find(&text->vocabulary, name, bytes);
    if (text->unknown < 0)
        return error_set(error, STATUS_CORRUPT,
                         "%s: the unk_token '%.40s' is not in the vocabulary",
                         text->vocabulary.path, name);
    return STATUS_OK;
}

static enum status bpe_read(struct text *text, const struct json *root, const struct json *model,
                            const char *path, struct error *error)
{
    static const char *const refused[] = {"dropout", "continuing_subword_prefix",
                                          "end_of_word_suffix"};
    for (size_t i = 0; i < ARRAY_COUNT(refused); i++)
        if (is_set(model, refused[i]))
            return error_set(error, STATUS_UNSUPPORTED, "%s: Baton knows no BPE with '%s'", path,
                             refused[i]);
    const struct json *merges = json_get(model, "merges");
    if (merges == NULL || json_kind(merges) != JSON_ARRAY)
        return error_set(error, STATUS_CORRUPT, "%s: the model has no array 'merges'", path);
    text->model = MODEL_MERGES;
    text->byte_fallback = json_member_bool(model, "byte_fallback", false);
    text->fuse_unknown = json_member_bool(model, "fuse_unk", false);
    text->ignore_merges = json_member_bool(model, "ignore_merges", false);
    TRY(vocabulary_read(text, root, model, path, error));
    TRY(unknown_read(text, model, error));
    text->bpe = bpe_create(json_count(merges));
    for (size_t i = 0; i < json_count(merges); i++)
        TRY(merge_read(text, json_at(merges, i), i, error));
    return text->level == LEVEL_CHARACTERS ? words_cut(text, error) : STATUS_OK;
}

/* A score as the reference reads it: all digits as one integer, which is then divided or multiplied
 * by a power of ten. That is off by a bit in one of six, and a bit decides between ways of cutting
 * a text whose scores would be equal. The digits are the fewest that give the number back, as every
 * writer of such files prints them. */
static double score_as_reference(double score)
{
    char digits[40];
    int precision = 14;
    do
        snprintf(digits, sizeof digits, "%.*e", precision, fabs(score));
    while (strtod(digits, NULL) != fabs(score) && ++precision <= 16);
    char *exponent_text = strchr(digits, 'e');
    if (exponent_text == NULL) // no number; scores are checked to be finite
        return score;
    int exponent = (int)strtol(exponent_text + 1, NULL, 10);
    char *end = exponent_text;
    while (end > digits + 2 && end[-1] == '0')
        end--;
    uint64_t all = 0;
    for (const char *at = digits; at < end; at++) {
        if (*at == '.')
            continue;
        all = all * 10 + (uint64_t)(*at - '0');
        exponent -= at > digits ? 1 : 0;
    }
    const double power = pow(10.0, abs(exponent)); // exact up to 22, the nearest double beyond
    const double value = exponent < 0 ? (double)all / power : (double)all * power;
    return score < 0 ? -value : value;
}

static enum status unigram_read(struct text *text, const struct json *root,
                                const struct json *model, const char *path, struct error *error)
{
    if (text->level == LEVEL_BYTES)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: Baton knows no Unigram model behind ByteLevel", path);
    const struct json *vocab = json_get(model, "vocab");
    if (vocab == NULL || json_kind(vocab) != JSON_ARRAY)
        return error_set(error, STATUS_CORRUPT, "%s: the model has no array 'vocab'", path);
    text->model = MODEL_UNIGRAM;
    text->fuse_unknown = true;
    text->byte_fallback = json_member_bool(model, "byte_fallback", false);
    TRY(vocabulary_read(text, root, model, path, error));
    const struct json *unknown = json_get(model, "unk_id");
    if (unknown != NULL && json_kind(unknown) == JSON_INT) {
        TRY(vocabulary_check_id(&text->vocabulary, "'unk_id'", json_int(unknown), error));
        text->unknown = (int32_t)json_int(unknown);
    }
    text->unigram = unigram_create(text->vocabulary.count);
    double lowest = HUGE_VAL;
    for (uint32_t i = 0; i < json_count(vocab); i++) {
        const double score = score_as_reference(json_number(json_at(json_at(vocab, i), 1)));
        size_t bytes;
        const char *token = vocabulary_text(&text->vocabulary, (int32_t)i, &bytes);
        lowest = score < lowest ? score : lowest;
        /* A user's text may not become a control token. */
        if (text->vocabulary.types[i] != TOKEN_CONTROL)
            unigram_add(text->unigram, token, bytes, (int32_t)i, score);
    }
    unigram_set_lowest(text->unigram, lowest);
    return STATUS_OK;
}

enum status tokenizer_json_read(struct text *text, const struct json *root, const char *path,
                                struct error *error)
{
    const struct json *model = json_kind(root) == JSON_OBJECT ? json_get(root, "model") : NULL;
    const char *type;
    size_t bytes;
    if (model == NULL || json_kind(model) != JSON_OBJECT)
        return error_set(error, STATUS_CORRUPT, "%s: there is no object 'model'", path);
    TRY(tokenizer_json_pretokenizer(text, json_get(root, "pre_tokenizer"), path, error));
    TRY(tokenizer_json_normalizer(text, json_get(root, "normalizer"), path, error));
    TRY(tokenizer_json_decoder(text, json_get(root, "decoder"), path, error));
    if (json_get(model, "type") == NULL) // files of 2019 and 2020 had BPE only
        TRY(bpe_read(text, root, model, path, error));
    else {
        TRY(json_member_string(model, "type", path, &type, &bytes, error));
        if (strcmp(type, "BPE") == 0)
            TRY(bpe_read(text, root, model, path, error));
        else if (strcmp(type, "Unigram") == 0)
            TRY(unigram_read(text, root, model, path, error));
        else
            return error_set(error, STATUS_UNSUPPORTED,
                             "%s: the model '%.40s' is not known, Baton has: BPE Unigram", path,
                             type);
    }
    return tokenizer_json_template(text, json_get(root, "post_processor"), path, error);
}
