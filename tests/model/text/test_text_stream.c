/* Incremental detokenising: whole characters only, and the pieces are the whole. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/random.h"
#include "base/utf8.h"
#include "tests/model/text/small_vocabulary.h"
#include "tests/model/text/tokenizer_folder.h"

#define REPLACEMENT "\xef\xbf\xbd"

/* What a decoder makes of all bytes at once: each maximal malformed part is one U+FFFD. */
static void whole_decode(const struct buffer *bytes, struct buffer *out)
{
    const uint8_t *data = (const uint8_t *)bytes->data;
    for (size_t at = 0; at < bytes->size;) {
        const int length = utf8_sequence(data + at, bytes->size - at, NULL);
        if (length > 0) {
            buffer_add(out, data + at, (size_t)length);
            at += (size_t)length;
            continue;
        }
        buffer_add_text(out, REPLACEMENT);
        size_t bad = 1; // grows while it could still begin a character
        while (at + bad < bytes->size && utf8_sequence(data + at, bad, NULL) < 0 &&
               utf8_sequence(data + at, bad + 1, NULL) < 0)
            bad++;
        at += bad;
    }
}

static void random_ids_check(const struct text *text, uint64_t seed, bool mostly_bytes)
{
    struct random random;
    random_init(&random, seed);
    for (int round = 0; round < 400; round++) {
        struct text_stream stream;
        struct buffer pieces = {0};
        struct buffer bytes = {0};
        struct buffer whole = {0};
        text_stream_init(&stream, text, true);
        for (uint64_t left = random_below(&random, 60); left > 0; left--) {
            const uint64_t bound = mostly_bytes ? 256 : text_info(text)->vocab_count;
            const int32_t id = (int32_t)random_below(&random, bound);
            const size_t before = pieces.size;
            text_stream_push(&stream, id, &pieces);
            cr_assert(before == pieces.size ||
                      utf8_valid(pieces.data + before, pieces.size - before));
            if (!text_token_special(text, id)) {
                size_t count;
                const char *token = text_token_bytes(text, id, &count);
                buffer_add(&bytes, token, count);
            }
        }
        text_stream_finish(&stream, &pieces);
        whole_decode(&bytes, &whole);
        cr_assert_eq(pieces.size, whole.size, "round %d", round);
        cr_assert(whole.size == 0 || memcmp(pieces.data, whole.data, whole.size) == 0);
        buffer_free(&pieces);
        buffer_free(&bytes);
        buffer_free(&whole);
    }
}

Test(text_stream, pieces_of_random_ids_are_the_whole)
{
    struct text *text = small_vocabulary_open(
        &(struct small_vocabulary){.tokens = {{"<|im_end|>", SMALL_CONTROL}}});
    random_ids_check(text, 1, true);
    random_ids_check(text, 2, false);
    text_close(text);
}

Test(text_stream, pieces_of_random_ids_of_a_real_vocabulary_are_the_whole)
{
    if (small_real_model() == NULL)
        cr_skip_test("no real model (BATON_MODEL)");
    struct text *text = NULL;
    struct error error = {0};
    cr_assert_eq(text_open(small_real_model(), &text, &error), STATUS_OK, "%s", error.text);
    random_ids_check(text, 3, false);
    text_close(text);
}

/* A whole text in pieces is what all its bytes at once decode to, whatever the decoder does where a
 * text begins and between tokens. */
static void random_wholes_check(const struct text *text, uint64_t seed)
{
    struct random random;
    random_init(&random, seed);
    for (int round = 0; round < 400; round++) {
        struct text_stream stream;
        struct token_list ids = {0};
        struct buffer pieces = {0};
        struct buffer bytes = {0};
        struct buffer whole = {0};
        text_stream_init_whole(&stream, text, false);
        for (uint64_t left = random_below(&random, 40); left > 0; left--) {
            token_list_add(&ids, (int32_t)random_below(&random, text_info(text)->vocab_count));
            const size_t before = pieces.size;
            text_stream_push(&stream, ids.ids[ids.count - 1], &pieces);
            cr_assert(before == pieces.size ||
                      utf8_valid(pieces.data + before, pieces.size - before));
        }
        text_stream_finish(&stream, &pieces);
        text_decode(text, ids.ids, ids.count, &bytes);
        whole_decode(&bytes, &whole);
        cr_assert_eq(pieces.size, whole.size, "round %d", round);
        cr_assert(whole.size == 0 || memcmp(pieces.data, whole.data, whole.size) == 0);
        token_list_free(&ids);
        buffer_free(&pieces);
        buffer_free(&bytes);
        buffer_free(&whole);
    }
}

#define MARK       "\xe2\x96\x81"
#define TO_SPACE   "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK "\"},\"content\":\" \"}"
#define BYTES_BACK "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}"

Test(text_stream, pieces_of_random_ids_are_the_whole_under_every_decoder)
{
    static const char *const decoders[] = {
        "null",
        "{\"type\":\"Fuse\"}",
        "{\"type\":\"ByteFallback\"}",
        "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"always\"}",
        "{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"never\"}",
        "{\"type\":\"Sequence\",\"decoders\":[" TO_SPACE "," BYTES_BACK "]}",
        "{\"type\":\"Sequence\",\"decoders\":[" TO_SPACE "," BYTES_BACK
        ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Strip\",\"content\":\"a\",\"start\":1,"
        "\"stop\":1}," TO_SPACE ",{\"type\":\"ByteFallback\"}]}",
        "{\"type\":\"ByteLevel\"}",
    };
    for (size_t i = 0; i < ARRAY_COUNT(decoders); i++) {
        struct buffer json = {0};
        struct text *text = NULL;
        struct error error = {0};
        buffer_printf(&json,
                      "{\"decoder\":%s,\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,"
                      "\"merges\":[],\"vocab\":{\"" MARK "\":0,\"" MARK "a\":1,\"a\":2,"
                      "\"\xe6\xbc\xa2\":3,\" \":4,\"" MARK MARK "\":5,\"a" MARK "b\":6",
                      decoders[i]);
        for (int byte = 0x70; byte < 0x100; byte += 5)
            buffer_printf(&json, ",\"<0x%02X>\":%d", byte, 7 + (byte - 0x70) / 5);
        buffer_add_text(&json, "}}}");
        cr_assert_eq(folder_try_tokenizer(json.data, json.size, &text, &error), STATUS_OK, "%s",
                     error.text);
        random_wholes_check(text, i);
        text_close(text);
        buffer_free(&json);
    }
}

/* Pushes ids and gives what came out. */
static const char *pushed(struct text_stream *stream, const int32_t *ids, size_t count)
{
    static struct buffer out;
    buffer_clear(&out);
    buffer_add(&out, "", 0);
    for (size_t i = 0; i < count; i++)
        text_stream_push(stream, ids[i], &out);
    return out.data;
}

static const char *finished(struct text_stream *stream)
{
    static struct buffer out;
    buffer_clear(&out);
    buffer_add(&out, "", 0);
    text_stream_finish(stream, &out);
    return out.data;
}

Test(text_stream, a_character_over_several_tokens_comes_out_once_whole)
{
    struct text *text = small_vocabulary_open(&(struct small_vocabulary){0});
    struct text_stream stream;
    text_stream_init(&stream, text, true);
    const int32_t smile[] = {0xf0, 0x9f, 0x98, 0x80};
    for (size_t i = 0; i < 3; i++)
        cr_assert_str_eq(pushed(&stream, &smile[i], 1), "");
    cr_assert_str_eq(pushed(&stream, &smile[3], 1), "\xf0\x9f\x98\x80");
    cr_assert_str_eq(finished(&stream), "");
    cr_assert_str_eq(pushed(&stream, (int32_t[]){'a', 0xec, 0x95}, 3), "a");
    cr_assert_str_eq(pushed(&stream, (int32_t[]){0x88, 'b'}, 2), "\xec\x95\x88"
                                                                 "b");
    text_close(text);
}

Test(text_stream, what_never_completes_becomes_one_replacement)
{
    struct text *text = small_vocabulary_open(&(struct small_vocabulary){0});
    struct text_stream stream;
    text_stream_init(&stream, text, true);
    cr_assert_str_eq(pushed(&stream, (int32_t[]){0xe2, 0x80}, 2), "");
    cr_assert_str_eq(finished(&stream), REPLACEMENT);
    cr_assert_str_eq(finished(&stream), "");
    cr_assert_str_eq(pushed(&stream, (int32_t[]){0xe2, 0x80, 'x'}, 3), REPLACEMENT "x");
    cr_assert_str_eq(pushed(&stream, (int32_t[]){0xff, 'x', 0x80}, 3), REPLACEMENT "x" REPLACEMENT);
    /* A surrogate's first byte may not be followed by its second: three replacements. */
    cr_assert_str_eq(pushed(&stream, (int32_t[]){0xed, 0xa0, 0x80}, 3),
                     REPLACEMENT REPLACEMENT REPLACEMENT);
    cr_assert_str_eq(pushed(&stream, (int32_t[]){0xf0, 0x9f, 0xc3, 0xa9}, 4),
                     REPLACEMENT "\xc3\xa9");
    text_close(text);
}

Test(text_stream, special_tokens_are_skipped_or_shown)
{
    struct text *text = small_vocabulary_open(&(struct small_vocabulary){
        .tokens = {{"<|im_end|>", SMALL_CONTROL}, {"a b", SMALL_USER_DEFINED}}});
    const int32_t ids[] = {'x', SMALL_FIRST_ADDED, SMALL_FIRST_ADDED + 1};
    struct text_stream stream;
    text_stream_init(&stream, text, true);
    cr_assert_str_eq(pushed(&stream, ids, 3), "xa b");
    text_stream_init(&stream, text, false);
    cr_assert_str_eq(pushed(&stream, ids, 3), "x<|im_end|>a b");
    /* Ids outside the vocabulary stand for nothing. */
    cr_assert_str_eq(pushed(&stream, (int32_t[]){-1, 1 << 30}, 2), "");
    text_close(text);
}

/* Added tokens whose text is in the byte alphabet are decoded like the others. */
Test(text_stream, the_byte_alphabet_is_undone_everywhere)
{
    struct text *text = small_vocabulary_open(
        &(struct small_vocabulary){.tokens = {{"\xc4\xa0yes\xc4\x8a", SMALL_USER_DEFINED}}});
    struct text_stream stream;
    text_stream_init(&stream, text, true);
    cr_assert_str_eq(pushed(&stream, (int32_t[]){SMALL_FIRST_ADDED}, 1), " yes\n");
    text_close(text);
}
