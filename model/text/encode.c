/* Text to token ids: special tokens are cut out, the rest is normalised, cut into pieces and
 * encoded piece by piece. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "model/text/piece_cache.h"
#include "model/text/text_internal.h"

/* Nothing pending. */
enum { NO_UNKNOWN = -1 };

struct encoder {
    const struct text *text;
    struct token_list *ids;
    size_t max_tokens;
    bool special;         /* control tokens are looked for */
    const uint8_t *marks; /* unless NULL: of the bytes of the whole text, 1: not within one */
    const char *whole;    /* the bytes that marks are for */
    bool first;           /* what is encoded begins a text */
    bool unknown_last;    /* of a piece: the last part had no token */
    struct bpe_scratch bpe;
    struct unigram_scratch unigram;
    struct normalizer_scratch normalizer;
    struct piece_cache *cache; /* NULL for a short text */
    struct error *error;
};

static enum status room_check(const struct encoder *encoder)
{
    if (encoder->ids->count <= encoder->max_tokens)
        return STATUS_OK;
    encoder->ids->count = encoder->max_tokens;
    return error_set(encoder->error, STATUS_LIMIT, "the text has more than %zu tokens, the limit",
                     encoder->max_tokens);
}

static enum status token_add(struct encoder *encoder, int32_t id)
{
    token_list_add(encoder->ids, id);
    return room_check(encoder);
}

/* The tokens of a text's bytes, all or none. */
static bool bytes_add(const struct encoder *encoder, const char *text, size_t bytes)
{
    const int32_t *byte_ids = encoder->text->vocabulary.byte_ids;
    for (size_t i = 0; i < bytes; i++)
        if (byte_ids[(uint8_t)text[i]] < 0)
            return false;
    for (size_t i = 0; i < bytes; i++)
        token_list_add(encoder->ids, byte_ids[(uint8_t)text[i]]);
    return true;
}

/* A part of a piece, as the model has cut it: id -1 is what has no token. */
static void part_add(void *arg, int32_t id, const char *text, size_t bytes)
{
    struct encoder *encoder = arg;
    const bool after_unknown = encoder->unknown_last;
    encoder->unknown_last = false;
    if (id >= 0) {
        token_list_add(encoder->ids, id);
        return;
    }
    if (encoder->text->byte_fallback && bytes_add(encoder, text, bytes))
        return;
    encoder->unknown_last = true;
    if (encoder->text->unknown >= 0 && !(after_unknown && encoder->text->fuse_unknown))
        token_list_add(encoder->ids, encoder->text->unknown);
}

/* Symbols for merges by a table. What has no token becomes `unknown`, one for all neighbours where
 * they are fused; it is held back until the next known character, as in the reference. */
static void symbols_add(struct encoder *encoder, const char *piece, size_t bytes)
{
    const struct text *text = encoder->text;
    const struct vocabulary *vocabulary = &text->vocabulary;
    struct bpe_scratch *scratch = &encoder->bpe;
    int32_t unknown = NO_UNKNOWN;
    for (size_t at = 0; at < bytes;) {
        size_t length = 1;
        int32_t id;
        if (text->level == LEVEL_BYTES) {
            id = vocabulary->byte_ids[(uint8_t)piece[at]];
        } else {
            length = (size_t)utf8_sequence((const uint8_t *)piece + at, bytes - at, NULL);
            id = vocabulary_find_ordinary(vocabulary, piece + at, length);
        }
        bool fallen_back = false;
        if (id < 0 && text->byte_fallback && text->level == LEVEL_CHARACTERS) {
            fallen_back = true;
            for (size_t i = 0; i < length; i++)
                fallen_back = fallen_back && vocabulary->byte_ids[(uint8_t)piece[at + i]] >= 0;
            for (size_t i = 0; i < length && fallen_back; i++)
                bpe_symbol_add(scratch, vocabulary->byte_ids[(uint8_t)piece[at + i]], at + i, 1);
        }
        if (id >= 0 || (!fallen_back && !text->fuse_unknown)) {
            if (unknown >= 0)
                bpe_symbol_add(scratch, unknown, at, 0);
            unknown = NO_UNKNOWN;
        }
        if (id >= 0)
            bpe_symbol_add(scratch, id, at, length);
        else if (!fallen_back)
            unknown = text->unknown;
        at += length;
    }
    if (unknown >= 0)
        bpe_symbol_add(scratch, unknown, bytes, 0);
}

/* Symbols for merges by text: a character without a token may still be part of one. */
static void characters_add(struct encoder *encoder, const char *piece, size_t bytes)
{
    const struct vocabulary *vocabulary = &encoder->text->vocabulary;
    for (size_t at = 0; at < bytes;) {
        const int length = utf8_sequence((const uint8_t *)piece + at, bytes - at, NULL);
        const int32_t id = vocabulary_find_ordinary(vocabulary, piece + at, (size_t)length);
        const bool normal = id >= 0 && (vocabulary->types[id] == TOKEN_NORMAL ||
                                        vocabulary->types[id] == TOKEN_USER_DEFINED);
        bpe_symbol_add(&encoder->bpe, normal ? id : -1, at, (size_t)length);
        at += (size_t)length;
    }
}

static void model_run(struct encoder *encoder, const char *piece, size_t bytes)
{
    const struct text *text = encoder->text;
    encoder->unknown_last = false;
    switch (text->model) {
    case MODEL_MERGES:
        bpe_begin(&encoder->bpe, bytes + 1); // one more for an unknown at the end
        symbols_add(encoder, piece, bytes);
        bpe_merge(text->bpe, &encoder->bpe, piece, part_add, encoder);
        break;
    case MODEL_SCORES:
        bpe_begin(&encoder->bpe, bytes);
        characters_add(encoder, piece, bytes);
        bpe_merge(text->bpe, &encoder->bpe, piece, part_add, encoder);
        break;
    case MODEL_UNIGRAM:
        unigram_encode(text->unigram, &encoder->unigram, piece, bytes, part_add, encoder);
        break;
    }
}

/* Most pieces of most texts are tokens, and the model makes that token of them. It does for all
 * tokens that merges can reach, but this has to be seen once for each. */
static enum status piece_encode(void *arg, const char *piece, size_t bytes)
{
    struct encoder *encoder = arg;
    const struct text *text = encoder->text;
    const int32_t id = bytes <= text->vocabulary.longest
                           ? vocabulary_find_ordinary(&text->vocabulary, piece, bytes)
                           : -1;
    if (id >= 0 &&
        (text->ignore_merges || atomic_load_explicit(&text->whole[id], memory_order_relaxed) != 0))
        return token_add(encoder, id);
    const size_t before = encoder->ids->count;
    if (encoder->cache != NULL && piece_cache_find(encoder->cache, piece, bytes, encoder->ids))
        return room_check(encoder);
    model_run(encoder, piece, bytes);
    const size_t added = encoder->ids->count - before;
    if (encoder->cache != NULL && added > 0)
        piece_cache_keep(encoder->cache, piece, bytes, encoder->ids->ids + before, added);
    if (id >= 0 && encoder->ids->count == before + 1 && encoder->ids->ids[before] == id)
        atomic_store_explicit(&text->whole[id], 1, memory_order_relaxed);
    return room_check(encoder);
}

/* Whether a letter, digit or underscore ends at `at`, and whether one begins there. */
static bool word_before(const char *bytes, size_t at)
{
    uint32_t point = 0;
    size_t start = at;
    while (start > 0 && at - start < 4) {
        start--;
        if (((uint8_t)bytes[start] & 0xc0) != 0x80)
            break;
    }
    return start < at &&
           utf8_sequence((const uint8_t *)bytes + start, at - start, &point) == (int)(at - start) &&
           unicode_is_word(point);
}

static bool word_after(const char *bytes, size_t count, size_t at)
{
    uint32_t point = 0;
    return at < count && utf8_sequence((const uint8_t *)bytes + at, count - at, &point) > 0 &&
           unicode_is_word(point);
}

/* A special token in a text. */
struct found {
    int32_t id;
    size_t start, end;
};

/* Whether a control token may be made of these bytes. */
static bool may_control(const struct encoder *encoder, const char *bytes, size_t count)
{
    return encoder->special &&
           (encoder->marks == NULL || count == 0 ||
            memchr(encoder->marks + (bytes - encoder->whole), 1, count) == NULL);
}

/* The first special token that starts at or behind `at`, with the white space that belongs to it,
 * back to `from` at most. */
static bool special_find(const struct encoder *encoder, const struct special_tokens *special,
                         bool control, const char *bytes, size_t count, size_t from,
                         struct found *found)
{
    const struct vocabulary *vocabulary = &encoder->text->vocabulary;
    for (size_t at = from; at < count;) {
        size_t length = 0;
        int32_t id = special->root[(uint8_t)bytes[at]] < 0
                         ? -1
                         : special_tokens_match(special, vocabulary->types, control, bytes + at,
                                                count - at, &length);
        if (id >= 0 && vocabulary->types[id] == TOKEN_CONTROL && special == &vocabulary->special &&
            !may_control(encoder, bytes + at, length))
            id = special_tokens_match(special, vocabulary->types, false, bytes + at, count - at,
                                      &length);
        if (id < 0) {
            at++;
            continue;
        }
        const uint8_t flags = vocabulary->flags[id];
        if ((flags & SPECIAL_WORD) != 0 &&
            (word_before(bytes, at) || word_after(bytes, count, at + length))) {
            at += length;
            continue;
        }
        const char *part;
        size_t part_bytes;
        *found = (struct found){id, at, at + length};
        unicode_strip_spaces(bytes + from, at - from, false, (flags & SPECIAL_STRIP_LEFT) != 0,
                             &part, &part_bytes);
        found->start = from + part_bytes;
        unicode_strip_spaces(bytes + found->end, count - found->end,
                             (flags & SPECIAL_STRIP_RIGHT) != 0, false, &part, &part_bytes);
        found->end = (size_t)(part - bytes);
        return true;
    }
    return false;
}

static enum status pieces_encode(struct encoder *encoder, const char *bytes, size_t count,
                                 bool first, bool continues)
{
    const struct pretokenize_input input = {
        bytes, count, first, continues, encoder->normalizer.pattern,
    };
    return pretokenize(encoder->text->pretokenizer, &input, piece_encode, encoder, encoder->error);
}

/* Text that is well-formed and holds no special token that is looked for in raw text. */
static enum status run_encode(struct encoder *encoder, const char *bytes, size_t count, bool first,
                              bool continues)
{
    /* Normalised text has no marks: all of it, or none. */
    const bool control = may_control(encoder, bytes, count);
    TRY(normalizer_run(encoder->text->normalizer, &encoder->normalizer, bytes, count, continues,
                       &bytes, &count, encoder->error));
    const struct special_tokens *special = &encoder->text->vocabulary.normalized;
    struct found found;
    size_t done = 0;
    while (special->count > 0 &&
           special_find(encoder, special, control, bytes, count, done, &found)) {
        TRY(pieces_encode(encoder, bytes + done, found.start - done, first && done == 0,
                          continues));
        TRY(token_add(encoder, found.id));
        done = found.end;
    }
    return pieces_encode(encoder, bytes + done, count - done, first && done == 0, continues);
}

/* A byte outside well-formed characters is a piece of its own. */
static enum status byte_encode(struct encoder *encoder, const char *byte)
{
    const struct text *text = encoder->text;
    if (text->level == LEVEL_BYTES)
        return piece_encode(encoder, byte, 1);
    part_add(encoder, text->byte_fallback ? text->vocabulary.byte_ids[(uint8_t)*byte] : -1, byte,
             1);
    return room_check(encoder);
}

static enum status plain_encode(struct encoder *encoder, const char *bytes, size_t count,
                                bool first)
{
    if (count == 0)
        return STATUS_OK;
    if (utf8_valid(bytes, count))
        return run_encode(encoder, bytes, count, first, false);
    size_t run_start = 0;
    encoder->unknown_last = false;
    for (size_t at = 0; at < count;) {
        const int length = utf8_sequence((const uint8_t *)bytes + at, count - at, NULL);
        if (length > 0) {
            at += (size_t)length;
            continue;
        }
        if (at > run_start)
            TRY(run_encode(encoder, bytes + run_start, at - run_start, first && run_start == 0,
                           run_start > 0));
        TRY(byte_encode(encoder, bytes + at));
        run_start = ++at;
    }
    return run_start < count
               ? run_encode(encoder, bytes + run_start, count - run_start, false, run_start > 0)
               : STATUS_OK;
}

static enum status segments_encode(struct encoder *encoder, const char *bytes, size_t count)
{
    struct found found;
    size_t done = 0;
    while (special_find(encoder, &encoder->text->vocabulary.special, encoder->special, bytes, count,
                        done, &found)) {
        TRY(plain_encode(encoder, bytes + done, found.start - done, encoder->first && done == 0));
        TRY(token_add(encoder, found.id));
        done = found.end;
    }
    return plain_encode(encoder, bytes + done, count - done, encoder->first && done == 0);
}

static enum status encode(struct encoder *encoder, const char *bytes, size_t count)
{
    encoder->cache = count >= PIECE_CACHE_TEXT_MIN ? piece_cache_create() : NULL;
    encoder->normalizer.pattern = pattern_scratch_create();
    const enum status status = segments_encode(encoder, bytes, count);
    pattern_scratch_destroy(encoder->normalizer.pattern);
    piece_cache_destroy(encoder->cache);
    bpe_scratch_free(&encoder->bpe);
    unigram_scratch_free(&encoder->unigram);
    normalizer_scratch_free(&encoder->normalizer);
    return status;
}

enum status text_encode(const struct text *text, const char *bytes, size_t count, bool special,
                        size_t max_tokens, struct token_list *ids, struct error *error)
{
    struct encoder encoder = {.text = text,
                              .ids = ids,
                              .max_tokens = max_tokens,
                              .special = special,
                              .first = true,
                              .error = error};
    return encode(&encoder, bytes, count);
}

enum status text_encode_marked(const struct text *text, const char *bytes, const uint8_t *marks,
                               size_t count, size_t max_tokens, struct token_list *ids,
                               struct error *error)
{
    struct encoder encoder = {.text = text,
                              .ids = ids,
                              .max_tokens = max_tokens,
                              .special = true,
                              .marks = marks,
                              .whole = bytes,
                              .first = true,
                              .error = error};
    return encode(&encoder, bytes, count);
}
