/* Text to token ids: special tokens are cut out, the rest is normalised, cut into pieces and
 * encoded piece by piece. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "model/text/normalize.h"
#include "model/text/text_internal.h"

struct encoder {
    const struct text *text;
    struct token_list *ids;
    size_t max_tokens;
    struct bpe_scratch bpe;
    struct buffer normalized;
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

/* Most pieces of most texts are tokens, and merging their bytes gives that token. It does for all
 * tokens that merges can reach, but this has to be seen once for each. */
static enum status piece_encode(void *arg, const char *piece, size_t bytes)
{
    struct encoder *encoder = arg;
    const struct text *text = encoder->text;
    const int32_t id = vocabulary_find(&text->vocabulary, piece, bytes);
    const bool known = id >= 0 && text->vocabulary.types[id] != TOKEN_CONTROL;
    if (known &&
        (text->ignore_merges || atomic_load_explicit(&text->whole[id], memory_order_relaxed) != 0))
        return token_add(encoder, id);
    const size_t before = encoder->ids->count;
    bpe_encode(text->bpe, text->vocabulary.byte_ids, piece, bytes, &encoder->bpe, encoder->ids);
    if (known && encoder->ids->count == before + 1 && encoder->ids->ids[before] == id)
        atomic_store_explicit(&text->whole[id], 1, memory_order_relaxed);
    return room_check(encoder);
}

/* Text that is well-formed and holds no special token. */
static enum status run_encode(struct encoder *encoder, const char *bytes, size_t count)
{
    if (encoder->text->normalize)
        normalize_nfc(bytes, count, &encoder->normalized, &bytes, &count);
    return pretokenize(encoder->text->pretokenizer, bytes, count, piece_encode, encoder,
                       encoder->error);
}

/* Every byte outside well-formed characters is a piece of its own. */
static enum status plain_encode(struct encoder *encoder, const char *bytes, size_t count)
{
    if (count == 0)
        return STATUS_OK;
    if (utf8_valid(bytes, count))
        return run_encode(encoder, bytes, count);
    size_t run_start = 0;
    for (size_t at = 0; at < count;) {
        const int length = utf8_sequence((const uint8_t *)bytes + at, count - at, NULL);
        if (length > 0) {
            at += (size_t)length;
            continue;
        }
        if (at > run_start)
            TRY(run_encode(encoder, bytes + run_start, at - run_start));
        TRY(piece_encode(encoder, bytes + at, 1));
        run_start = ++at;
    }
    return run_start < count ? run_encode(encoder, bytes + run_start, count - run_start)
                             : STATUS_OK;
}

static enum status segments_encode(struct encoder *encoder, const char *bytes, size_t count,
                                   bool special)
{
    const struct vocabulary *vocabulary = &encoder->text->vocabulary;
    size_t plain_start = 0;
    for (size_t at = 0; at < count;) {
        size_t length = 0;
        const int32_t id = special_tokens_match(&vocabulary->special, vocabulary->types, special,
                                                bytes + at, count - at, &length);
        if (id < 0) {
            at++;
            continue;
        }
        TRY(plain_encode(encoder, bytes + plain_start, at - plain_start));
        TRY(token_add(encoder, id));
        at += length;
        plain_start = at;
    }
    return plain_encode(encoder, bytes + plain_start, count - plain_start);
}

enum status text_encode(const struct text *text, const char *bytes, size_t count, bool special,
                        size_t max_tokens, struct token_list *ids, struct error *error)
{
    struct encoder encoder = {.text = text, .ids = ids, .max_tokens = max_tokens, .error = error};
    const enum status status = segments_encode(&encoder, bytes, count, special);
    bpe_scratch_free(&encoder.bpe);
    buffer_free(&encoder.normalized);
    return status;
}
