/* Any bytes as a text, under a vocabulary of every kind: ids are in range, their bytes are the text
 * where the vocabulary promises that, and pieces of a stream are whole characters whose sum is what
 * all bytes give at once. The first byte of an input chooses the vocabulary. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/utf8.h"
#include "model/text/text.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {
    "<s>",    "</s>", "<tool>",   "\xe2\x96\x81",     "'ll",  "'\xc5\xbf", "\n\n",
    "   ",    "123",  "\xcc\x81", "\xf0\x9f\x98\x80", "\xff", "\xe2",      "aaaaaaaaaaaaaaaa",
    "<0x0A>", NULL};

#define BYTES_OF(kind)                                                                             \
    "{\"added_tokens\":[{\"id\":300,\"content\":\"<s>\",\"special\":true,\"normalized\":false},"   \
    "{\"id\":301,\"content\":\"<tool>\",\"special\":false,\"normalized\":false,"                   \
    "\"lstrip\":true,\"rstrip\":true}]," kind "}"
#define CHARACTERS                                                                                 \
    "\"vocab\":{\"<unk>\":0,\"\xe2\x96\x81\":1,\"a\":2,\"aa\":3,\"aaaa\":4,\"l\":5,"               \
    "\"\xe2\x96\x81"                                                                               \
    "a\":6,\"<0x0A>\":7},\"merges\":[\"a a\",\"aa aa\",\"\xe2\x96\x81 a\"]"
#define SPACES                                                                                     \
    "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"first\"}"

/* The vocabularies; the first has all bytes and is written by bytes_json. */
enum { VOCABULARY_COUNT = 4, IDS_MAX = 1 << 20 };
static const char *const written[VOCABULARY_COUNT] = {
    NULL,
    BYTES_OF("\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":" SPACES ",\"decoder\":" SPACES
             ",\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,"
             "\"byte_fallback\":true," CHARACTERS "}"),
    BYTES_OF("\"normalizer\":{\"type\":\"Lowercase\"},\"pre_tokenizer\":" SPACES
             ",\"decoder\":" SPACES ",\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":"
             "[[\"<unk>\",0],[\"\xe2\x96\x81\",-2],[\"a\",-3],[\"aa\",-5.5],[\"aaa\",-8.25],"
             "[\"\xe2\x96\x81"
             "a\",-4.5]]}"),
    BYTES_OF("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
             "{\"type\":\"Whitespace\"},{\"type\":\"Digits\",\"individual_digits\":true},"
             "{\"type\":\"Punctuation\"}]},\"model\":{\"type\":\"BPE\"," CHARACTERS "}"),
};

static struct text *texts[VOCABULARY_COUNT];

/* Every byte a token, by the alphabet of byte-level vocabularies. */
static void bytes_json(struct buffer *out)
{
    uint32_t moved = 0x100;
    buffer_add_text(out, "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                         "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
                         "\"merges\":[\"a a\",\"aa aa\",\"l l\",\"\\u0120 a\"],\"vocab\":{");
    for (uint32_t byte = 0; byte < 256; byte++) {
        const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
        buffer_printf(out, "\"\\u%04x\":%u,", itself ? byte : moved, byte);
        moved += itself ? 0 : 1;
    }
    buffer_add_text(out, "\"aa\":256,\"aaaa\":257,\"ll\":258,\"\\u0120a\":259}}}");
}

static void text_make(size_t index)
{
    char folder[64];
    char path[96];
    struct buffer json = {0};
    struct error error = {0};
    const char *temporary = getenv("TMPDIR");
    CHECK(snprintf(folder, sizeof folder, "%s/baton-fuzz-XXXXXX",
                   temporary != NULL ? temporary : "/tmp") < (int)sizeof folder);
    CHECK(mkdtemp(folder) != NULL);
    CHECK(snprintf(path, sizeof path, "%s/tokenizer.json", folder) < (int)sizeof path);
    if (written[index] == NULL)
        bytes_json(&json);
    else
        buffer_add_text(&json, written[index]);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(json.data, 1, json.size, file) == json.size && fclose(file) == 0);
    if (text_open(folder, &texts[index], &error) != STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        CHECK(!"a vocabulary does not open");
    }
    unlink(path);
    rmdir(folder);
    buffer_free(&json);
}

static void stream_check(const struct text *text, const struct token_list *ids,
                         const struct buffer *whole)
{
    struct buffer out = {0};
    struct text_stream stream;
    text_stream_init_whole(&stream, text, false);
    for (size_t i = 0; i < ids->count; i++) {
        const size_t before = out.size;
        text_stream_push(&stream, ids->ids[i], &out);
        CHECK(out.size == before || utf8_valid(out.data + before, out.size - before));
    }
    text_stream_finish(&stream, &out);
    if (whole->size == 0 || utf8_valid(whole->data, whole->size))
        CHECK(out.size == whole->size &&
              (out.size == 0 || memcmp(out.data, whole->data, out.size) == 0));
    buffer_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    const size_t index = data[0] % VOCABULARY_COUNT;
    const bool special = (data[0] & 0x80) != 0;
    if (texts[index] == NULL)
        text_make(index);
    const struct text *text = texts[index];
    const char *input = (const char *)data + 1;
    struct token_list ids = {0};
    struct buffer whole = {0};
    struct error error = {0};
    CHECK(text_encode(text, input, bytes - 1, special, IDS_MAX, &ids, &error) == STATUS_OK);
    for (size_t i = 0; i < ids.count; i++)
        CHECK(ids.ids[i] >= 0 && (uint32_t)ids.ids[i] < text_info(text)->vocab_count);
    text_decode(text, ids.ids, ids.count, &whole);
    if (written[index] == NULL) // all bytes are there, and nothing changes them
        CHECK(whole.size == bytes - 1 &&
              (whole.size == 0 || memcmp(whole.data, input, whole.size) == 0));
    stream_check(text, &ids, &whole);
    token_list_free(&ids);
    buffer_free(&whole);
    return 0;
}
