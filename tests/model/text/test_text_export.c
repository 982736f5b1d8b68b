/* A folder's tokenizer as a GGUF file: the same ids for every text, or a refusal by name. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/random.h"
#include "model/format/gguf_writer.h"
#include "model/text/byte_alphabet.h"
#include "model/text/text_export.h"
#include "model/text/text.h"

enum { FIRST_MERGED = 256, ROWS = 300 };

static const char *const merged[][2] = {
    {"h", "e"},   {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {" ", "w"}, {"1", "2"},      {"12", "3"},
    {"\n", "\n"}, {" ", " "}, {"'", "s"},   {"!", "!"},    {"A", "b"}, {"\xc3", "\xa9"}};

#define BYTE_LEVEL(regex)                                                                          \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":" regex "}"
#define SPLIT(regex)                                                                               \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex                                          \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define SEQUENCE(steps) "{\"type\":\"Sequence\",\"pretokenizers\":[" steps "]}"
#define CL100K(digits)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" digits                 \
    "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define QWEN2  SEQUENCE(SPLIT(CL100K("\\\\p{N}")) "," BYTE_LEVEL("false"))
#define LLAMA3 SEQUENCE(SPLIT(CL100K("\\\\p{N}{1,3}")) "," BYTE_LEVEL("false"))
#define SMOLLM SEQUENCE("{\"type\":\"Digits\",\"individual_digits\":true}," BYTE_LEVEL("true"))

#define ADDED(id, content, flags)                                                                  \
    "{\"id\":" #id ",\"content\":\"" content "\",\"normalized\":false" flags "}"
#define TOKENS                                                                                     \
    ADDED(269, "<|end|>", ",\"special\":true") "," ADDED(270, "<tool>", ",\"special\":false")
#define AFTER_HOLE "," ADDED(280, "<|im_end|>", ",\"special\":true")

struct parts {
    const char *added, *normalizer, *pretokenizer, *decoder, *model; /* model: more members */
};

static void side_add(struct buffer *json, const char *bytes)
{
    struct buffer text = {0};
    for (; *bytes != '\0'; bytes++)
        byte_alphabet_add((uint8_t)*bytes, &text);
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == '"' || text.data[i] == '\\')
            buffer_add_char(json, '\\');
        buffer_add_char(json, text.data[i]);
    }
    buffer_free(&text);
}

static void json_make(const struct parts *parts, struct buffer *json)
{
    buffer_printf(json,
                  "{\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":%s,"
                  "\"model\":{\"type\":\"BPE\"%s,\"vocab\":{",
                  parts->added, parts->normalizer, parts->pretokenizer, parts->decoder,
                  parts->model);
    for (int byte = 0; byte < 256; byte++) {
        char one[2] = {(char)byte, '\0'};
        buffer_add_text(json, "\"");
        if (byte == 0)
            byte_alphabet_add(0, json);
        side_add(json, one);
        buffer_printf(json, "\":%d,", byte);
    }
    for (size_t i = 0; i < ARRAY_COUNT(merged); i++) {
        buffer_add_text(json, i > 0 ? ",\"" : "\"");
        side_add(json, merged[i][0]);
        side_add(json, merged[i][1]);
        buffer_printf(json, "\":%zu", FIRST_MERGED + i);
    }
    buffer_add_text(json, "},\"merges\":[");
    for (size_t i = 0; i < ARRAY_COUNT(merged); i++) { // in both ways of writing them
        buffer_add_text(json, i == 0 ? "\"" : i % 2 == 0 ? ",\"" : ",[\"");
        side_add(json, merged[i][0]);
        buffer_add_text(json, i % 2 == 0 ? " " : "\",\"");
        side_add(json, merged[i][1]);
        buffer_add_text(json, i % 2 == 0 ? "\"" : "\"]");
    }
    buffer_add_text(json, "]}}");
}

struct places {
    char folder[64], json[96], config[96], out[96];
};

static void places_make(const struct parts *parts, const char *config, struct places *places)
{
    struct buffer json = {0};
    json_make(parts, &json);
    snprintf(places->folder, sizeof places->folder, "/tmp/baton-export-XXXXXX");
    CHECK(mkdtemp(places->folder) != NULL);
    snprintf(places->json, sizeof places->json, "%s/tokenizer.json", places->folder);
    snprintf(places->config, sizeof places->config, "%s/tokenizer_config.json", places->folder);
    snprintf(places->out, sizeof places->out, "%s/out.gguf", places->folder);
    FILE *file = fopen(places->json, "wb");
    CHECK(file != NULL && fwrite(json.data, 1, json.size, file) == json.size && fclose(file) == 0);
    file = fopen(places->config, "wb");
    CHECK(file != NULL && fputs(config, file) >= 0 && fclose(file) == 0);
    buffer_free(&json);
}

static void places_remove(const struct places *places)
{
    unlink(places->json);
    unlink(places->config);
    unlink(places->out);
    rmdir(places->folder);
}

static enum status export_to(const struct places *places, uint32_t rows, struct error *error)
{
    struct gguf_writer *writer;
    cr_assert_eq(gguf_writer_open(places->out, &writer, error), STATUS_OK, "%s", error->text);
    gguf_writer_put_string(writer, "general.architecture", "llama", 5);
    gguf_writer_put_u32(writer, "llama.context_length", 64);
    const enum status status = text_export(places->folder, rows, writer, error);
    if (status != STATUS_OK) {
        gguf_writer_abort(writer);
        return status;
    }
    return gguf_writer_finish(writer, error);
}

static void encode_alike(const struct text *a, const struct text *b, const char *text, size_t bytes,
                         bool special)
{
    struct token_list ids[2] = {{0}, {0}};
    struct buffer out[2] = {{0}, {0}};
    struct error error = {0};
    cr_assert_eq(text_encode(a, text, bytes, special, SIZE_MAX, &ids[0], &error), STATUS_OK);
    cr_assert_eq(text_encode(b, text, bytes, special, SIZE_MAX, &ids[1], &error), STATUS_OK);
    cr_assert_eq(ids[0].count, ids[1].count, "'%.*s'", (int)bytes, text);
    for (size_t i = 0; i < ids[0].count; i++)
        cr_assert_eq(ids[0].ids[i], ids[1].ids[i], "'%.*s'", (int)bytes, text);
    text_decode(a, ids[0].ids, ids[0].count, &out[0]);
    text_decode(b, ids[1].ids, ids[1].count, &out[1]);
    cr_assert(out[0].size == bytes && out[1].size == bytes);
    cr_assert(bytes == 0 || memcmp(out[0].data, out[1].data, bytes) == 0);
    for (size_t i = 0; i < 2; i++) {
        token_list_free(&ids[i]);
        buffer_free(&out[i]);
    }
}

#define CONFIG                                                                                     \
    "{\"bos_token\":\"<|end|>\",\"eos_token\":\"<|im_end|>\",\"add_bos_token\":true,"              \
    "\"chat_template\":\"{{'<|im_start|>' + x + '<|im_end|>'}}\"}"

static void export_is_alike(const struct parts *parts)
{
    static const char *const units[] = {
        "hello",     " w",           "123",  "1",         "\n\n",     "  ",      "'s",
        "'S",        "!!",           "Ab",   "a\t",       "\xc3\xa9", "<|end|>", "<tool>",
        "e\xcc\x81", "\xe6\xbc\xa2", "\xff", "<|im_end|>"};
    struct places places;
    struct text *texts[2];
    struct error error = {0};
    struct random random;
    random_init(&random, 1);
    places_make(parts, CONFIG, &places);
    cr_assert_eq(export_to(&places, ROWS, &error), STATUS_OK, "%s", error.text);
    cr_assert_eq(text_open(places.folder, &texts[0], &error), STATUS_OK, "%s", error.text);
    cr_assert_eq(text_open(places.out, &texts[1], &error), STATUS_OK, "%s", error.text);
    for (int round = 0; round < 500; round++) {
        struct buffer text = {0};
        for (uint64_t left = random_below(&random, 8); left > 0; left--)
            buffer_add_text(&text, units[random_below(&random, ARRAY_COUNT(units) - 4)]);
        buffer_add_text(&text, units[round % (int)ARRAY_COUNT(units)]);
        if (strcmp(parts->normalizer, "null") == 0 || memchr(text.data, '\xcc', text.size) == NULL)
            encode_alike(texts[0], texts[1], text.data, text.size, round % 2 == 0);
        buffer_free(&text);
    }
    const struct text_info *folder = text_info(texts[0]), *file = text_info(texts[1]);
    cr_assert_eq(folder->vocab_count, 281);
    cr_assert_eq(file->vocab_count, ROWS);
    cr_assert_eq(folder->picked_count, 281);
    cr_assert_eq(file->picked_count, 281);
    cr_assert(file->bos == 269 && file->eos == 280 && file->add_bos && folder->add_bos);
    cr_assert_eq(file->eos_count, folder->eos_count);
    text_close(texts[0]);
    text_close(texts[1]);
    places_remove(&places);
}

#define PLAIN "{\"type\":\"ByteLevel\"}"

Test(text_export, a_file_gives_the_ids_of_the_folder)
{
    static const struct parts kinds[] = {
        {TOKENS AFTER_HOLE, "null", BYTE_LEVEL("true"), PLAIN, ""},
        {TOKENS AFTER_HOLE, "null",
         "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"pretokenizers\":[1]}", PLAIN, ""},
        {TOKENS AFTER_HOLE, "null", SMOLLM, PLAIN, ""},
        {TOKENS AFTER_HOLE, "{\"type\":\"NFC\"}", QWEN2, PLAIN, ""},
        {TOKENS AFTER_HOLE, "null", LLAMA3, PLAIN, ",\"ignore_merges\":true"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++)
        export_is_alike(&kinds[i]);
}

static void refused(const struct parts *parts, uint32_t rows, const char *words)
{
    struct places places;
    struct error error = {0};
    places_make(parts, "{}", &places);
    cr_expect_eq(export_to(&places, rows, &error), STATUS_UNSUPPORTED, "%s", words);
    cr_expect_not_null(strstr(error.text, words), "wanted '%s', got: %s", words, error.text);
    places_remove(&places);
}

Test(text_export, what_a_file_cannot_say_is_refused_by_name)
{
    const struct parts plain = {TOKENS, "null", BYTE_LEVEL("true"), PLAIN, ""};
    struct parts parts = plain;
    refused(&parts, 270, "it has 271 tokens and the embedding 270 rows");
    parts.pretokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}";
    refused(&parts, ROWS, "the steps of its pre_tokenizer");
    parts.pretokenizer = SEQUENCE(SPLIT("a+") "," BYTE_LEVEL("false"));
    refused(&parts, ROWS, "the steps of its pre_tokenizer");
    parts.pretokenizer = SEQUENCE(SPLIT(CL100K("\\\\p{N}")) "," BYTE_LEVEL("true"));
    refused(&parts, ROWS, "the steps of its pre_tokenizer");
    parts.pretokenizer = SEQUENCE("null," BYTE_LEVEL("true"));
    refused(&parts, ROWS, "the steps of its pre_tokenizer");
    parts.pretokenizer = QWEN2;
    refused(&parts, ROWS, "the pre-tokenizer 'qwen2' goes with NFC");
    parts = plain;
    parts.normalizer = "{\"type\":\"NFC\"}";
    refused(&parts, ROWS, "the pre-tokenizer 'gpt-2' goes with no normalizer");
    parts = plain;
    parts.model = ",\"ignore_merges\":true";
    refused(&parts, ROWS, "goes with 'ignore_merges' false");
    parts = plain;
    parts.decoder = "{\"type\":\"Fuse\"}";
    refused(&parts, ROWS, "what the decoder makes of a token");
    parts = plain;
    parts.added = ADDED(269, "<|end|>", ",\"special\":true,\"lstrip\":true");
    refused(&parts, ROWS, "'lstrip', 'rstrip' and 'single_word'");
    parts = plain;
    parts.pretokenizer = "{\"type\":\"Whitespace\"}";
    refused(&parts, ROWS, "a BPE of characters");
}

Test(text_export, a_folder_without_a_tokenizer_has_nothing_to_say)
{
    struct places places = {.folder = "/tmp/baton-export-XXXXXX"};
    struct error error = {0};
    CHECK(mkdtemp(places.folder) != NULL);
    snprintf(places.out, sizeof places.out, "%s/out.gguf", places.folder);
    cr_assert_eq(export_to(&places, ROWS, &error), STATUS_NOT_FOUND);
    cr_assert_eq(rmdir(places.folder), 0); // and nothing lies there
}
