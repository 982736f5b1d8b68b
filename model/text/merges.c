/* Merges from the texts of their sides, and where words may be cut apart. */
#include "model/text/byte_alphabet.h"
#include "model/text/text_internal.h"

static const char space_mark[] = "\xe2\x96\x81"; /* U+2581 */

/* Appends the text of one side as the vocabulary has it. */
static void side_add(const struct text *text, const char *side, size_t bytes, struct buffer *out)
{
    if (text->level == LEVEL_CHARACTERS || !byte_alphabet_decode(side, bytes, out))
        buffer_add(out, side, bytes);
}

enum status merge_add(struct text *text, const char *left, size_t left_bytes, const char *right,
                      size_t right_bytes, uint64_t rank, struct error *error)
{
    const struct vocabulary *vocabulary = &text->vocabulary;
    struct buffer both = {0};
    side_add(text, left, left_bytes, &both);
    const size_t middle = both.size;
    side_add(text, right, right_bytes, &both);
    const bool sides = middle > 0 && both.size > middle;
    const int32_t left_id = sides ? vocabulary_find(vocabulary, both.data, middle) : -1;
    const int32_t right_id =
        sides ? vocabulary_find(vocabulary, both.data + middle, both.size - middle) : -1;
    const int32_t merged = sides ? vocabulary_find(vocabulary, both.data, both.size) : -1;
    buffer_free(&both);
    if (left_id < 0 || right_id < 0 || merged < 0)
        return error_set(
            error, STATUS_CORRUPT, "%s: merge %llu '%.*s %.*s' does not join two tokens to a third",
            vocabulary->path, (unsigned long long)rank, (int)(left_bytes < 30 ? left_bytes : 30),
            left, (int)(right_bytes < 30 ? right_bytes : 30), right);
    /* A user's text may not become a control token by way of merges either. */
    if (vocabulary->types[merged] != TOKEN_CONTROL)
        bpe_add(text->bpe, left_id, right_id, merged);
    return STATUS_OK;
}

/* Notes the byte before every mark that follows something else inside the token: there the token
 * reaches from one word into the next. */
static void crossings_note(const char *token, size_t bytes, bool joins[256])
{
    const size_t unit = sizeof space_mark - 1;
    bool after_mark = true;
    for (size_t at = 0; at < bytes;) {
        const bool mark = bytes - at >= unit && memcmp(token + at, space_mark, unit) == 0;
        if (mark && !after_mark)
            joins[(uint8_t)token[at - 1]] = true;
        after_mark = mark;
        at += mark ? unit : 1;
    }
}

enum status words_cut(struct text *text, struct error *error)
{
    const struct vocabulary *vocabulary = &text->vocabulary;
    bool joins[256] = {false};
    if (text->ignore_merges ||
        vocabulary_find_ordinary(vocabulary, space_mark, sizeof space_mark - 1) < 0)
        return STATUS_OK;
    for (uint32_t i = 0; i < vocabulary->count; i++) {
        size_t bytes;
        const char *token = vocabulary_text(vocabulary, (int32_t)i, &bytes);
        if (vocabulary->types[i] != TOKEN_CONTROL && vocabulary->types[i] != TOKEN_UNUSED)
            crossings_note(token, bytes, joins);
    }
    return pretokenizer_add_words(text->pretokenizer, space_mark, sizeof space_mark - 1, joins,
                                  error);
}
