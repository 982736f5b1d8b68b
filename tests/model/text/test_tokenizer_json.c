/* tokenizer.json and the files beside it: steps, flags, ends, and what is refused by name. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/random.h"
#include "tests/model/text/tokenizer_folder.h"
#include "tests/model/text/small_vocabulary.h"

/* Characters, "▁" for spaces, two bytes to fall back to. Ids: 0 <unk> 1 <s> 2 </s> 3 ▁ 4 a 5 b
 * 6 ▁a 7 ab 8 <0xC3> 9 <0xA9> 10 ▁ab */
#define CHARACTER_MODEL                                                                            \
    "{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,"          \
    "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</s>\":2,\"\xe2\x96\x81\":3,\"a\":4,\"b\":5,"              \
    "\"\xe2\x96\x81"                                                                               \
    "a\":6,\"ab\":7,\"<0xC3>\":8,\"<0xA9>\":9,\"\xe2\x96\x81"                                      \
    "ab\":10},"                                                                                    \
    "\"merges\":[[\"\xe2\x96\x81\",\"a\"],\"a b\",[\"\xe2\x96\x81\",\"ab\"],"                      \
    "[\"\xe2\x96\x81"                                                                              \
    "a\",\"b\"]]}"
#define CHARACTER_NORMALIZER                                                                       \
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"}," \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}]}"
#define CHARACTER_DECODER                                                                          \
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"                      \
    "{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"                \
    "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"
#define TEMPLATE                                                                                   \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"            \
    "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<s>\":{\"ids\":[1]}}}"
#define ADDED(id, content, flags)                                                                  \
    "{\"id\":" #id ",\"content\":\"" content "\",\"special\":true,\"normalized\":false" flags "}"
#define ADDED_TOKENS ADDED(0, "<unk>", "") "," ADDED(1, "<s>", "") "," ADDED(2, "</s>", "")

#define TOKENIZER(added, normalizer, pretokenizer, decoder, post, model)                           \
    "{\"added_tokens\":[" added "],\"normalizer\":" normalizer ",\"pre_tokenizer\":" pretokenizer  \
    ",\"decoder\":" decoder ",\"post_processor\":" post ",\"model\":" model "}"

static const char characters[] = TOKENIZER(ADDED_TOKENS, CHARACTER_NORMALIZER, "null",
                                           CHARACTER_DECODER, TEMPLATE, CHARACTER_MODEL);

static void encodes(const struct text *text, const char *bytes, bool special, const int32_t *ids,
                    size_t count)
{
    cr_expect(small_ids_are(small_encode(text, bytes, strlen(bytes), special), ids, count),
              "for '%s'", bytes);
}

#define ENCODES(text, bytes, special, ...)                                                         \
    encodes(text, bytes, special, (const int32_t[]){__VA_ARGS__},                                  \
            sizeof(const int32_t[]){__VA_ARGS__} / sizeof(int32_t))

static void decodes(const struct text *text, const int32_t *ids, size_t count, const char *whole)
{
    struct buffer out = {0};
    struct buffer exact = {0};
    struct text_stream stream;
    text_stream_init_whole(&stream, text, false);
    for (size_t i = 0; i < count; i++)
        text_stream_push(&stream, ids[i], &out);
    text_stream_finish(&stream, &out);
    text_decode(text, ids, count, &exact);
    cr_expect_str_eq(out.data, whole);
    cr_expect_str_eq(exact.data, whole);
    buffer_free(&out);
    buffer_free(&exact);
}

#define DECODES(text, whole, ...)                                                                  \
    decodes(text, (const int32_t[]){__VA_ARGS__},                                                  \
            sizeof(const int32_t[]){__VA_ARGS__} / sizeof(int32_t), whole)

Test(tokenizer_json, characters_with_byte_fallback)
{
    struct text *text = folder_open(&(struct folder){{{"tokenizer.json", characters}}});
    ENCODES(text, "ab", false, 10);
    ENCODES(text, "a ab b", false, 6, 10, 3, 5);
    ENCODES(text, "a\xc3\xa9", false, 6, 8, 9);
    ENCODES(text, "xyz", false, 3, 0);
    ENCODES(text, "<s>", false, 3, 0);
    ENCODES(text, "<s>ab", true, 1, 10);
    DECODES(text, "ab", 10);
    DECODES(text, "a \xc3\xa9", 6, 3, 8, 9);
    DECODES(text, " a", 3, 6);
    DECODES(text, "<s> a", 1, 6);
    cr_assert_eq(text_info(text)->bos, 1);
    cr_assert(text_info(text)->add_bos);
    text_close(text);
}

Test(tokenizer_json, an_answer_keeps_what_a_text_loses)
{
    struct text *text = folder_open(&(struct folder){{{"tokenizer.json", characters}}});
    struct buffer out = {0};
    struct text_stream stream;
    text_stream_init(&stream, text, true);
    text_stream_push(&stream, 6, &out);
    text_stream_push(&stream, 8, &out);
    cr_assert_str_eq(out.data, " a"); // half a character waits
    text_stream_push(&stream, 9, &out);
    text_stream_finish(&stream, &out);
    cr_assert_str_eq(out.data, " a\xc3\xa9");
    buffer_free(&out);
    text_close(text);
}

#define UNIGRAM                                                                                    \
    "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"\xe2\x96\x81\",-2.5],"         \
    "[\"a\",-3],[\"b\",-3.25],[\"ab\",-4],[\"\xe2\x96\x81"                                         \
    "a\",-5],[\"aa\",-5.75]]}"
#define METASPACE(scheme)                                                                          \
    "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"" scheme        \
    "\",\"split\":true}"

Test(tokenizer_json, unigram_takes_the_likeliest_cut)
{
    static const char json[] = TOKENIZER(ADDED(0, "<unk>", ""), "null", METASPACE("always"),
                                         METASPACE("always"), "null", UNIGRAM);
    struct text *text = folder_open(&(struct folder){{{"tokenizer.json", json}}});
    ENCODES(text, "ab", false, 1, 4);
    ENCODES(text, "a b", false, 5, 1, 3);
    ENCODES(text, "aaa", false, 5, 6);
    ENCODES(text, "axyb", false, 5, 0, 3);
    DECODES(text, "ab", 1, 4);
    DECODES(text, "a b", 5, 1, 3);
    text_close(text);
}

Test(tokenizer_json, added_tokens_take_white_space_and_mind_words)
{
    static const char json[] = TOKENIZER(
        ADDED(11, "<l>", ",\"lstrip\":true") "," ADDED(12, "<r>", ",\"rstrip\":true") "," ADDED(
            13, "w", ",\"single_word\":true") ",{\"id\":14,\"content\":\"T\",\"special\":false}",
        "{\"type\":\"Lowercase\"}", "null", "null", "null", CHARACTER_MODEL);
    struct text *text = folder_open(&(struct folder){{{"tokenizer.json", json}}});
    ENCODES(text, "a \n<l>a", true, 4, 11, 4);
    ENCODES(text, "a<r> \t a", true, 4, 12, 4);
    ENCODES(text, "w", true, 13);
    ENCODES(text, "aw", true, 4, 0);
    ENCODES(text, "w_", true, 0);
    ENCODES(text, "at", false, 4, 14); // looked for in normalised text, and found in any
    text_close(text);
}

#define ENDS "{\"bos_token\":null,\"eos_token\":{\"content\":\"</s>\"},\"add_bos_token\":false}"

Test(tokenizer_json, what_ends_a_generation)
{
    struct text *text = folder_open(
        &(struct folder){{{"tokenizer.json", characters},
                          {"tokenizer_config.json", ENDS},
                          {"generation_config.json", "{\"eos_token_id\":[5,2,1]}"},
                          {"config.json", "{\"model_type\":\"llama\",\"eos_token_id\":4,"
                                          "\"max_position_embeddings\":512}"}}});
    const struct text_info *info = text_info(text);
    const int32_t ends[] = {2, 5, 1};
    cr_assert_eq(info->eos, 2);
    cr_assert_eq(info->eos_count, 3);
    for (size_t i = 0; i < 3; i++)
        cr_assert_eq(info->eos_ids[i], ends[i]);
    cr_assert_not(info->add_bos);
    cr_assert_eq(info->bos, 1);
    cr_assert_eq(info->context_tokens, 512);
    cr_assert_str_eq(info->architecture, "llama");
    text_close(text);
    text = folder_open(&(struct folder){
        {{"tokenizer.json", characters}, {"config.json", "{\"eos_token_id\":4}"}}});
    cr_assert_eq(text_info(text)->eos, 4);
    text_close(text);
}

static void refused(const char *json, enum status status, const char *words)
{
    struct text *text = NULL;
    struct error error = {0};
    cr_expect_eq(folder_try_tokenizer(json, strlen(json), &text, &error), status, "%s in %s",
                 error.text, json);
    cr_expect_not_null(strstr(error.text, words), "wanted '%s', got: %s", words, error.text);
}

Test(tokenizer_json, what_is_not_known_is_refused_by_name)
{
    refused(TOKENIZER("", "{\"type\":\"Nmt\"}", "null", "null", "null", CHARACTER_MODEL),
            STATUS_UNSUPPORTED, "the normalizer step 'Nmt' is not known");
    refused(TOKENIZER("", "{\"type\":\"Precompiled\"}", "null", "null", "null", CHARACTER_MODEL),
            STATUS_CORRUPT, "'precompiled_charsmap' is missing");
    refused(TOKENIZER("", "null", "{\"type\":\"UnicodeScripts\"}", "null", "null", CHARACTER_MODEL),
            STATUS_UNSUPPORTED, "the pre_tokenizer step 'UnicodeScripts' is not known");
    refused(TOKENIZER("", "null", "null", "{\"type\":\"CTC\"}", "null", CHARACTER_MODEL),
            STATUS_UNSUPPORTED, "the decoder step 'CTC' is not known");
    refused(TOKENIZER("", "null", "null", "null", "{\"type\":\"X\"}", CHARACTER_MODEL),
            STATUS_UNSUPPORTED, "the post_processor step 'X' is not known");
    refused(TOKENIZER("", "null", "null", "null", "null", "{\"type\":\"WordPiece\"}"),
            STATUS_UNSUPPORTED, "the model 'WordPiece' is not known");
    refused(TOKENIZER("", "null",
                      "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
                      "{\"type\":\"Digits\"}]}",
                      "null", "null", CHARACTER_MODEL),
            STATUS_UNSUPPORTED, "'Digits' stands behind one that must be the last");
    refused(TOKENIZER("", "null",
                      "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a-z&&[^x]]\"},"
                      "\"behavior\":\"Isolated\"}",
                      "null", "null", CHARACTER_MODEL),
            STATUS_UNSUPPORTED, "which Baton does not know");
    refused(TOKENIZER("", "null",
                      "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},"
                      "\"behavior\":\"Isolated\"}",
                      "null", "null", CHARACTER_MODEL),
            STATUS_INVALID, "the regular expression is wrong");
}

Test(tokenizer_json, tables_must_fit_together)
{
    static const char vocab[] = "\"vocab\":{\"a\":0,\"b\":1}";
    char json[512];
    refused("[]", STATUS_CORRUPT, "there is no object 'model'");
    refused("{", STATUS_INVALID, "tokenizer.json: the JSON text is not valid");
    snprintf(json, sizeof json, "{\"model\":{\"type\":\"BPE\",%s,\"merges\":[\"a b\"]}}", vocab);
    refused(json, STATUS_CORRUPT, "merge 0 'a b' does not join two tokens to a third");
    snprintf(json, sizeof json, "{\"model\":{\"type\":\"BPE\",%s,\"merges\":[3]}}", vocab);
    refused(json, STATUS_CORRUPT, "merge 0 is not a pair of texts");
    refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4000000},\"merges\":[]}}",
            STATUS_CORRUPT, "the id of the token 'a' is not a number below");
    refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}",
            STATUS_CORRUPT, "two tokens have the id 1");
    refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", STATUS_UNSUPPORTED,
            "the vocabulary has 0 tokens");
    snprintf(json, sizeof json, "{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,%s,\"merges\":[]}}",
             vocab);
    refused(json, STATUS_UNSUPPORTED, "'dropout'");
    snprintf(json, sizeof json,
             "{\"added_tokens\":[{\"id\":0,\"content\":\"x\"}],\"model\":{\"type\":\"BPE\",%s,"
             "\"merges\":[]}}",
             vocab);
    refused(json, STATUS_CORRUPT, "the added token 'x' and the token 'a' have the id 0");
    refused("{\"model\":{\"type\":\"Unigram\",\"unk_id\":7,\"vocab\":[[\"a\",-1.5]]}}",
            STATUS_CORRUPT, "'unk_id' is 7, the vocabulary has 1 tokens");
    refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", STATUS_CORRUPT,
            "token 0 of the vocabulary is not a text and a score");
    refused("{\"added_tokens\":[1],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
            STATUS_CORRUPT, "an added token has no id");
}

Test(tokenizer_json, texts_to_search_for_and_what_tokens_stand_for_have_limits)
{
    enum { BYTES = 16385 };
    static char json[2 * BYTES];
    char run[BYTES + 1], run_of_b[101];
    memset(run, 'a', BYTES);
    run[BYTES] = '\0';
    memset(run_of_b, 'b', sizeof run_of_b - 1);
    run_of_b[sizeof run_of_b - 1] = '\0';
    snprintf(json, sizeof json,
             "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"%s\"}},"
             "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
             run);
    refused(json, STATUS_UNSUPPORTED, "a step's 'String' has 16385 bytes, the limit is 16384");
    snprintf(
        json, sizeof json,
        "{\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"b\"},\"content\":\"%s\"},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"%s\":0},\"merges\":[]}}",
        run, run_of_b);
    refused(json, STATUS_UNSUPPORTED, "the limit is 1048576");
}

Test(tokenizer_json, a_folder_without_a_tokenizer_is_refused)
{
    struct text *text = NULL;
    struct error error = {0};
    cr_assert_eq(folder_try(&(struct folder){{{"config.json", "{}"}}}, &text, &error),
                 STATUS_NOT_FOUND);
    cr_assert_not_null(strstr(error.text, "tokenizer.json is not there"), "%s", error.text);
}

Test(tokenizer_json, the_digest_is_of_the_file)
{
    static const char other[] =
        TOKENIZER(ADDED_TOKENS, "null", "null", CHARACTER_DECODER, TEMPLATE, CHARACTER_MODEL);
    struct text *a = folder_open(&(struct folder){{{"tokenizer.json", characters}}});
    struct text *same = folder_open(&(struct folder){{{"tokenizer.json", characters}}});
    struct text *b = folder_open(&(struct folder){{{"tokenizer.json", other}}});
    cr_assert(digest128_equal(text_info(a)->digest, text_info(same)->digest));
    cr_assert_not(digest128_equal(text_info(a)->digest, text_info(b)->digest));
    text_close(a);
    text_close(same);
    text_close(b);
}

Test(tokenizer_json, damaged_files_do_no_harm, .timeout = 120)
{
    enum { ROUNDS = 1500, DAMAGE_MAX = 3 };
    static const char sample[] = "a ab\xc3\xa9 <s> x\xff";
    size_t open_count = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct random random;
        random_init(&random, round);
        char json[sizeof characters];
        memcpy(json, characters, sizeof json);
        for (uint64_t left = 1 + random_below(&random, DAMAGE_MAX); left > 0; left--) {
            const size_t to = (size_t)random_below(&random, sizeof json - 1);
            json[to] = characters[random_below(&random, sizeof json - 1)];
        }
        struct text *text = NULL;
        struct error error = {0};
        if (folder_try_tokenizer(json, sizeof json - 1, &text, &error) == STATUS_OK) {
            struct token_list ids = {0};
            struct buffer out = {0};
            open_count++;
            text_encode(text, sample, sizeof sample - 1, true, 99, &ids, &error);
            text_decode(text, ids.ids, ids.count, &out);
            token_list_free(&ids);
            buffer_free(&out);
            text_close(text);
        } else {
            cr_assert_neq(error.text[0], '\0', "round %lu", (unsigned long)round);
        }
    }
    cr_assert(open_count > ROUNDS / 50 && open_count < ROUNDS * 9 / 10, "%zu", open_count);
}
