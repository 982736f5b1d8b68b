/* Opening vocabularies: what is read, and what is refused by name. */
#include <criterion/criterion.h>

#include "base/json.h"
#include "base/random.h"
#include "tests/model/text/small_vocabulary.h"

static void refused(struct small_vocabulary vocabulary, enum status status, const char *words)
{
    struct text *text = NULL;
    struct error error = {0};
    cr_expect_eq(small_vocabulary_try(&vocabulary, &text, &error), status, "%s", error.text);
    cr_expect_not_null(strstr(error.text, words), "wanted '%s', got: %s", words, error.text);
}

static void ends_put(struct gguf_writer *writer)
{
    gguf_writer_put_u32(writer, "tokenizer.ggml.bos_token_id", SMALL_FIRST_ADDED);
    gguf_writer_put_u32(writer, "tokenizer.ggml.eos_token_id", SMALL_FIRST_ADDED + 1);
    gguf_writer_put_u32(writer, "tokenizer.ggml.eot_token_id", SMALL_FIRST_ADDED + 2);
    gguf_writer_put_bool(writer, "tokenizer.ggml.add_bos_token", true);
}

Test(text_open, what_a_file_says_about_itself)
{
    const struct small_vocabulary vocabulary = {.tokens = {{"<s>", SMALL_CONTROL},
                                                           {"</s>", SMALL_CONTROL},
                                                           {"<turn>", SMALL_CONTROL},
                                                           {"<|im_end|>", SMALL_CONTROL}},
                                                .more_keys = ends_put};
    struct text *text = small_vocabulary_open(&vocabulary);
    const struct text_info *info = text_info(text);
    cr_assert_eq(info->vocab_count, SMALL_FIRST_ADDED + 4);
    cr_assert_eq(info->bos, SMALL_FIRST_ADDED);
    cr_assert_eq(info->eos, SMALL_FIRST_ADDED + 1);
    cr_assert(info->add_bos);
    cr_assert_eq(info->eos_count, 3);
    for (int32_t i = 0; i < 3; i++)
        cr_assert_eq(info->eos_ids[i], SMALL_FIRST_ADDED + 1 + i);
    cr_assert_eq(info->context_tokens, 77);
    cr_assert_str_eq(info->name, "small");
    cr_assert_str_eq(info->architecture, "llama");
    text_close(text);
}

Test(text_open, no_special_ids_are_minus_one)
{
    struct text *text = small_vocabulary_open(&(struct small_vocabulary){0});
    cr_assert_eq(text_info(text)->bos, -1);
    cr_assert_eq(text_info(text)->eos, -1);
    cr_assert_eq(text_info(text)->eos_count, 0);
    cr_assert_not(text_info(text)->add_bos);
    text_close(text);
}

Test(text_open, pre_tokenizers_are_known_by_name_or_refused)
{
    static const char *const names[] = {
        "gpt-2",    "gpt2",    "smollm",           "qwen2",        "llama-bpe",      "llama3",
        "llama-v3", "default", "deepseek-r1-qwen", "deepseek-llm", "deepseek-coder", "deepseek-v3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        text_close(small_vocabulary_open(&(struct small_vocabulary){.pre = names[i]}));
    refused((struct small_vocabulary){.pre = "qwen35"}, STATUS_UNSUPPORTED, "'qwen35'");
    refused((struct small_vocabulary){.pre = "qwen"}, STATUS_UNSUPPORTED, "'qwen'");
    refused((struct small_vocabulary){.pre = "gpt-2 gpt2"}, STATUS_UNSUPPORTED, "'gpt-2 gpt2'");
    refused((struct small_vocabulary){.pre = ""}, STATUS_UNSUPPORTED, "tokenizer.ggml.pre");
    refused((struct small_vocabulary){.pre = "-"}, STATUS_UNSUPPORTED, "tokenizer.ggml.pre");
    refused((struct small_vocabulary){.model = "bert"}, STATUS_UNSUPPORTED,
            "the tokenizer model 'bert'");
    refused((struct small_vocabulary){.model = "llama"}, STATUS_CORRUPT,
            "'tokenizer.ggml.scores' is missing");
}

static void scores_put(struct gguf_writer *writer)
{
    const int32_t scores[4] = {0};
    gguf_writer_put_i32s(writer, "tokenizer.ggml.scores", scores, 4);
}

static void types_put(struct gguf_writer *writer)
{
    const int32_t types[4] = {1, 1, 1, 1};
    gguf_writer_put_i32s(writer, "tokenizer.ggml.token_type", types, 4);
}

static void eos_put(struct gguf_writer *writer)
{
    gguf_writer_put_u32(writer, "tokenizer.ggml.eos_token_id", 100000);
}

static void bos_put(struct gguf_writer *writer)
{
    gguf_writer_put_string(writer, "tokenizer.ggml.bos_token_id", "1", 1);
}

Test(text_open, tables_of_a_wrong_type_or_length_are_refused)
{
    refused((struct small_vocabulary){.more_keys = scores_put}, STATUS_INVALID,
            "'tokenizer.ggml.scores' is of type i32 array");
    refused((struct small_vocabulary){.without_types = true, .more_keys = types_put},
            STATUS_CORRUPT, "has 4 entries for 264 tokens");
    refused((struct small_vocabulary){.more_keys = eos_put}, STATUS_CORRUPT,
            "is 100000, the vocabulary has 264 tokens");
    refused((struct small_vocabulary){.more_keys = bos_put}, STATUS_INVALID, "an integer");
    refused((struct small_vocabulary){.tokens = {{"x", 9}}}, STATUS_CORRUPT, "is of type 9");
}

Test(text_open, merges_must_join_two_tokens_to_a_third)
{
    refused((struct small_vocabulary){.merge = "q z"}, STATUS_CORRUPT, "merge 8 'q z'");
    refused((struct small_vocabulary){.merge = "hello"}, STATUS_CORRUPT, "merge 8 'hello'");
    refused((struct small_vocabulary){.merge = "h "}, STATUS_CORRUPT, "merge 8 'h '");
    refused((struct small_vocabulary){.merge = " "}, STATUS_CORRUPT, "merge 8 ' '");
    refused((struct small_vocabulary){.merge = "nothing like_it"}, STATUS_CORRUPT, "merge 8");
}

Test(text_open, byte_tokens_are_parsed_strictly)
{
    static const char *const wrong[] = {"<0x-1>", "<0x1>", "<0x0a>", "<0x100>", "0x10", "<0xG0>"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        refused((struct small_vocabulary){.tokens = {{wrong[i], SMALL_BYTE}}}, STATUS_CORRUPT,
                wrong[i]);
    struct text *text =
        small_vocabulary_open(&(struct small_vocabulary){.tokens = {{"<0xC0>", SMALL_BYTE}}});
    size_t bytes;
    cr_assert_eq(*(const uint8_t *)text_token_bytes(text, SMALL_FIRST_ADDED, &bytes), 0xc0);
    cr_assert_eq(bytes, 1);
    text_close(text);
}

Test(text_open, the_digest_is_of_tokens_and_rules)
{
    const struct small_vocabulary variants[] = {
        {0},
        {.pre = "smollm"},
        {.tokens = {{"x y", SMALL_USER_DEFINED}}},
        {.tokens = {{"x y", SMALL_CONTROL}}},
        {.tokens = {{"lo", SMALL_NORMAL}}, .merge = "l o"},
        {.tokens = {{"lo", SMALL_NORMAL}}},
    };
    enum { COUNT = sizeof variants / sizeof variants[0] };
    struct digest128 digests[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        struct text *text = small_vocabulary_open(&variants[i]);
        digests[i] = text_info(text)->digest;
        text_close(text);
        text = small_vocabulary_open(&variants[i]);
        cr_assert(digest128_equal(digests[i], text_info(text)->digest), "variant %zu", i);
        text_close(text);
        for (size_t k = 0; k < i; k++)
            cr_assert_not(digest128_equal(digests[i], digests[k]), "variants %zu and %zu", i, k);
    }
}

Test(text_open, tokens_are_found_by_their_bytes)
{
    struct text *text = small_vocabulary_open(
        &(struct small_vocabulary){.tokens = {{"<|im_end|>", SMALL_CONTROL},
                                              {"a b", SMALL_USER_DEFINED},
                                              {"[PAD266]", SMALL_USER_DEFINED}}});
    size_t bytes;
    cr_assert_eq(text_token_find(text, "hello", 5), SMALL_HELLO);
    cr_assert_eq(text_token_find(text, " w", 2), SMALL_SPACE_W);
    cr_assert_eq(text_token_find(text, "\0", 1), 0);
    cr_assert_eq(text_token_find(text, "<|im_end|>", 10), SMALL_FIRST_ADDED);
    cr_assert_eq(text_token_find(text, "a b", 3), SMALL_FIRST_ADDED + 1);
    cr_assert_eq(text_token_find(text, "nothing", 7), -1);
    cr_assert_eq(text_token_find(text, "[PAD266]", 8), -1);
    cr_assert(text_token_special(text, SMALL_FIRST_ADDED));
    cr_assert_not(text_token_special(text, SMALL_FIRST_ADDED + 1));
    cr_assert_not(text_token_special(text, SMALL_HELLO));
    cr_assert_not(text_token_special(text, -1));
    cr_assert_not(text_token_special(text, 100000));
    text_token_bytes(text, -1, &bytes);
    cr_assert_eq(bytes, 0);
    text_token_bytes(text, SMALL_FIRST_ADDED + 3, &bytes);
    cr_assert_eq(bytes, 0);
    const char *text_bytes = text_token_bytes(text, SMALL_FIRST_ADDED, &bytes);
    cr_assert(bytes == 10 && memcmp(text_bytes, "<|im_end|>", 10) == 0);
    text_close(text);
}

/* Uses everything of a vocabulary that opened in spite of its damage. */
static void exercise(const struct text *text)
{
    static const char sample[] = "hello  w\n\n12 aaaaa<|im_end|>\xc3\xa9\xff[PAD3]";
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"a <|im_end|> [PAD3]\"}]";
    struct json *root = NULL;
    struct token_list ids = {0};
    struct buffer out = {0};
    struct error error = {0};
    text_encode(text, sample, sizeof sample - 1, true, 999, &ids, &error);
    cr_assert_eq(json_parse(messages, sizeof messages - 1, &root, &error), STATUS_OK);
    const struct chat_input input = {.messages = root, .add_generation_prompt = true};
    text_encode_chat(text, &input, 999, &ids, &error);
    text_render_chat(text, &input, &out, &error);
    json_free(root);
    struct text_stream stream;
    text_stream_init(&stream, text, false);
    for (int32_t id = -1; id <= (int32_t)text_info(text)->vocab_count; id++)
        text_stream_push(&stream, id, &out);
    text_stream_finish(&stream, &out);
    token_list_free(&ids);
    buffer_free(&out);
}

Test(text_open, flipped_bytes_do_no_harm, .timeout = 120)
{
    enum { ROUNDS = 3000 };
    const struct small_vocabulary vocabulary = {.pre = "qwen2",
                                                .chat_template =
                                                    "{{ '<|im_start|>system\nYou.<|im_end|>' }}",
                                                .tokens = {{"<|im_start|>", SMALL_CONTROL},
                                                           {"<|im_end|>", SMALL_CONTROL},
                                                           {"<0xC0>", SMALL_BYTE},
                                                           {"<tool>", SMALL_USER_DEFINED}},
                                                .more_keys = ends_put};
    struct buffer good = {0};
    small_vocabulary_bytes(&vocabulary, &good);
    size_t open_count = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct random random;
        random_init(&random, round);
        struct buffer bytes = {0};
        buffer_add(&bytes, good.data, good.size);
        for (uint64_t flips = 1 + random_below(&random, 4); flips > 0; flips--) {
            const size_t at = (size_t)random_below(&random, good.size);
            if (random_below(&random, 2) == 0)
                bytes.data[at] = (char)random_next(&random);
            else
                bytes.data[at] ^= (char)(1u << random_below(&random, 8));
        }
        struct text *text = NULL;
        struct error error = {0};
        if (small_bytes_open(&bytes, &text, &error) == STATUS_OK) {
            open_count++;
            exercise(text);
            text_close(text);
        } else {
            cr_assert_neq(error.text[0], '\0', "round %lu", (unsigned long)round);
        }
        buffer_free(&bytes);
    }
    cr_assert(open_count > ROUNDS / 50 && open_count < ROUNDS * 9 / 10, "%zu", open_count);
    buffer_free(&good);
}
