/* Encoding: merges, special tokens, bytes that are no characters, limits, and the growth of work.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/random.h"
#include "model/text/bpe.h"
#include "tests/model/text/small_vocabulary.h"

#define ENCODES(text, string, special, ...)                                                        \
    cr_assert(small_ids_are(small_encode(text, string, sizeof string - 1, special),                \
                            (const int32_t[]){__VA_ARGS__},                                        \
                            sizeof(const int32_t[]){__VA_ARGS__} / sizeof(int32_t)))

Test(text_encode, merges_apply_by_rank_then_from_the_left)
{
    struct text *text = small_vocabulary_open(&(struct small_vocabulary){0});
    ENCODES(text, "hello", false, SMALL_HELLO);
    ENCODES(text, "hell hel", false, SMALL_HELL, ' ', SMALL_HE, 'l');
    ENCODES(text, "aaaaaaa", false, SMALL_AAAA, SMALL_AA, 'a');
    ENCODES(text, "aaaaa a", false, SMALL_AAAA, 'a', ' ', 'a');
    ENCODES(text, "lll", false, SMALL_LL, 'l');
    ENCODES(text, "x w", false, 'x', SMALL_SPACE_W);
    cr_assert_eq(small_encode(text, "", 0, false)->count, 0);
    text_close(text);
}

Test(text_encode, pieces_are_not_crossed)
{
    struct text *gpt2 = small_vocabulary_open(&(struct small_vocabulary){.pre = "gpt-2"});
    /* "  w" is cut before its last space, "\n\n" at the end is one piece. */
    ENCODES(gpt2, "x  w", false, 'x', ' ', SMALL_SPACE_W);
    ENCODES(gpt2, "x\n\n", false, 'x', SMALL_NEWLINES);
    ENCODES(gpt2, "x\n\ny", false, 'x', '\n', '\n', 'y');
    text_close(gpt2);
    struct text *qwen2 = small_vocabulary_open(&(struct small_vocabulary){.pre = "qwen2"});
    ENCODES(qwen2, "x\n\ny", false, 'x', SMALL_NEWLINES, 'y');
    text_close(qwen2);
}

/* With "12" a token, digits show how each set of rules cuts them. */
Test(text_encode, digits_are_cut_as_the_rules_say)
{
    static const struct {
        const char *pre;
        bool pairs;       /* "12" stays together */
        bool space_digit; /* " 1" stays together */
    } cases[] = {{"gpt-2", true, true},
                 {"smollm", false, false},
                 {"qwen2", false, false},
                 {"llama-bpe", true, false},
                 {"default", true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct small_vocabulary vocabulary = {
            .pre = cases[i].pre, .tokens = {{"12", SMALL_NORMAL}}, .merge = "1 2"};
        struct text *text = small_vocabulary_open(&vocabulary);
        cr_assert_eq(small_encode(text, "12", 2, false)->count, cases[i].pairs ? 1 : 2, "%s",
                     cases[i].pre);
        text_close(text);
        vocabulary.tokens[0].text = "\xc4\xa0"
                                    "1"; // Ġ1
        vocabulary.merge = "\xc4\xa0 1";
        text = small_vocabulary_open(&vocabulary);
        cr_assert_eq(small_encode(text, "a 1", 3, false)->count, cases[i].space_digit ? 2 : 3, "%s",
                     cases[i].pre);
        text_close(text);
    }
}

Test(text_encode, control_tokens_only_where_asked_user_defined_everywhere)
{
    struct text *text = small_vocabulary_open(
        &(struct small_vocabulary){.tokens = {{"<|x|>", SMALL_CONTROL},
                                              {"<tool>", SMALL_USER_DEFINED},
                                              {"<tool>s", SMALL_USER_DEFINED}}});
    enum { X = SMALL_FIRST_ADDED, TOOL, TOOLS };
    ENCODES(text, "a<|x|>b", false, 'a', '<', '|', 'x', '|', '>', 'b');
    ENCODES(text, "a<|x|>b", true, 'a', X, 'b');
    ENCODES(text, "a<tool>b", false, 'a', TOOL, 'b');
    ENCODES(text, "<tool>s<tool>", true, TOOLS, TOOL);
    ENCODES(text, "<|x|", true, '<', '|', 'x', '|');
    ENCODES(text, "<|x|><|x|>", true, X, X);
    text_close(text);
}

static void eos_put(struct gguf_writer *writer)
{
    gguf_writer_put_u32(writer, "tokenizer.ggml.eos_token_id", SMALL_FIRST_ADDED + 1);
}

/* Files that call them user-defined must not make them reachable from a user's text. */
Test(text_encode, known_control_tokens_are_control_whatever_the_file_says)
{
    struct text *text = small_vocabulary_open(
        &(struct small_vocabulary){.tokens = {{"<|im_end|>", SMALL_USER_DEFINED},
                                              {"<end>", SMALL_USER_DEFINED},
                                              {"<|im_start|>", SMALL_NORMAL}},
                                   .more_keys = eos_put});
    for (int32_t i = 0; i < 3; i++) {
        size_t bytes;
        const char *marker = text_token_bytes(text, SMALL_FIRST_ADDED + i, &bytes);
        const struct token_list *ids = small_encode(text, marker, bytes, false);
        cr_assert_eq(ids->count, bytes, "%.*s", (int)bytes, marker);
        for (size_t k = 0; k < ids->count; k++)
            cr_assert_lt(ids->ids[k], 256);
        cr_assert(text_token_special(text, SMALL_FIRST_ADDED + i));
    }
    text_close(text);
}

Test(text_encode, merges_do_not_lead_to_control_tokens)
{
    struct text *text = small_vocabulary_open(
        &(struct small_vocabulary){.tokens = {{"xy", SMALL_CONTROL}}, .merge = "x y"});
    ENCODES(text, "xy", false, 'x', 'y');
    ENCODES(text, "xy", true, SMALL_FIRST_ADDED);
    text_close(text);
    /* Nor does the rule that a piece which is a token is that token. */
    text = small_vocabulary_open(
        &(struct small_vocabulary){.pre = "llama-bpe", .tokens = {{"xy", SMALL_CONTROL}}});
    ENCODES(text, "xy", false, 'x', 'y');
    text_close(text);
}

Test(text_encode, bytes_that_are_no_characters_stand_alone)
{
    struct text *text = small_vocabulary_open(&(struct small_vocabulary){0});
    ENCODES(text, "\xe2\x80", false, 0xe2, 0x80);
    ENCODES(text,
            "he\xe6\xad"
            "llo",
            false, SMALL_HE, 0xe6, 0xad, SMALL_LL, 'o');
    ENCODES(text, "\xff\xfe\xc0\x80\xed\xa0\x80", false, 0xff, 0xfe, 0xc0, 0x80, 0xed, 0xa0, 0x80);
    ENCODES(text, "a\0b", false, 'a', 0, 'b');
    text_close(text);
}

/* Whatever the bytes, their tokens stand for exactly them (no normalisation in these rules). */
Test(text_encode, any_bytes_come_back)
{
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "default"};
    for (size_t p = 0; p < 4; p++) {
        struct text *text = small_vocabulary_open(&(struct small_vocabulary){.pre = pres[p]});
        struct random random;
        random_init(&random, p);
        for (int round = 0; round < 300; round++) {
            char bytes[200];
            const size_t count = (size_t)random_below(&random, sizeof bytes);
            for (size_t i = 0; i < count; i++)
                bytes[i] = (char)(round % 2 ? random_next(&random)
                                            : (uint64_t) "hello w\n 1'\xc3\xa9"[i % 12]);
            struct buffer back = {0};
            const struct token_list *ids = small_encode(text, bytes, count, false);
            for (size_t i = 0; i < ids->count; i++) {
                size_t length;
                const char *piece = text_token_bytes(text, ids->ids[i], &length);
                buffer_add(&back, piece, length);
            }
            cr_assert(back.size == count && (count == 0 || memcmp(back.data, bytes, count) == 0),
                      "%s round %d", pres[p], round);
            buffer_free(&back);
        }
        text_close(text);
    }
}

Test(text_encode, the_limit_on_tokens_holds_exactly)
{
    struct text *text = small_vocabulary_open(&(struct small_vocabulary){0});
    struct token_list ids = {0};
    struct error error = {0};
    cr_assert_eq(text_encode(text, "abcd", 4, false, 4, &ids, &error), STATUS_OK);
    cr_assert_eq(ids.count, 4);
    cr_assert_eq(text_encode(text, "hello", 5, false, 4, &ids, &error), STATUS_LIMIT);
    cr_assert_not_null(strstr(error.text, "more than 4 tokens"));
    cr_assert_eq(ids.count, 4);
    token_list_clear(&ids);
    cr_assert_eq(text_encode(text, "abcd", 4, false, 3, &ids, &error), STATUS_LIMIT);
    cr_assert(ids.count == 3 && ids.ids[2] == 'c');
    token_list_clear(&ids);
    cr_assert_eq(text_encode(text, "", 0, false, 0, &ids, &error), STATUS_OK);
    token_list_free(&ids);
    text_close(text);
}

static void id_add(void *arg, int32_t id, const char *text, size_t bytes)
{
    token_list_add(arg, id);
}

/* Steps of the merge for `count` bytes of a repeated pattern. */
static uint64_t steps(const struct bpe *bpe, const char *pattern, size_t count)
{
    char *bytes = malloc(count);
    for (size_t i = 0; i < count; i++)
        bytes[i] = pattern[i % strlen(pattern)];
    struct bpe_scratch scratch = {0};
    struct token_list ids = {0};
    bpe_begin(&scratch, count);
    for (size_t i = 0; i < count; i++)
        bpe_symbol_add(&scratch, (uint8_t)bytes[i], i, 1);
    bpe_merge(bpe, &scratch, bytes, id_add, &ids);
    const uint64_t result = scratch.step_count;
    cr_assert_gt(result, 0);
    bpe_scratch_free(&scratch);
    token_list_free(&ids);
    free(bytes);
    return result;
}

Test(text_encode, work_grows_little_faster_than_the_text)
{
    enum { DOUBLINGS = 16, COUNT = 1 << 17 };
    struct bpe *bpe = bpe_create(DOUBLINGS + 1);
    bpe_add(bpe, 'a', 'b', 300);
    bpe_add(bpe, 'a', 'a', 400);
    for (int32_t i = 0; i < DOUBLINGS - 1; i++) // aa aaaa aaaaaaaa …
        bpe_add(bpe, 400 + i, 400 + i, 401 + i);
    static const char *const patterns[] = {"a", "ab", "aab", "aaaaaaab"};
    for (size_t i = 0; i < 4; i++) {
        const uint64_t once = steps(bpe, patterns[i], COUNT);
        const uint64_t twice = steps(bpe, patterns[i], COUNT * 2);
        cr_assert_lt((double)twice, 2.4 * (double)once, "%s: %lu then %lu steps", patterns[i],
                     (unsigned long)once, (unsigned long)twice);
        cr_assert_lt(once, 40ull * COUNT, "%s", patterns[i]);
    }
    bpe_destroy(bpe);
}

Test(text_encode, words_of_a_long_text_are_those_of_a_short_one)
{
    static const char words[] = " hello whell aaaaa\n\n12 he";
    enum { TIMES = 4000 };
    struct text *text = small_vocabulary_open(&(struct small_vocabulary){.pre = "gpt-2"});
    struct token_list once = {0};
    struct token_list all = {0};
    struct buffer bytes = {0};
    struct error error = {0};
    for (size_t i = 0; i < TIMES; i++)
        buffer_add(&bytes, words, sizeof words - 1);
    cr_assert_eq(text_encode(text, words, sizeof words - 1, false, 99, &once, &error), STATUS_OK);
    cr_assert_eq(text_encode(text, bytes.data, bytes.size, false, 1 << 20, &all, &error),
                 STATUS_OK);
    cr_assert_eq(all.count, TIMES * once.count);
    for (size_t i = 0; i < all.count; i++)
        cr_assert_eq(all.ids[i], once.ids[i % once.count], "id %zu", i);
    token_list_free(&once);
    token_list_free(&all);
    buffer_free(&bytes);
    text_close(text);
}

Test(text_encode, long_runs_of_one_character_are_no_trouble, .timeout = 120)
{
    static const char *const patterns[] = {"a", "_", " ", "\n", " \n", "\xe4\xbd\xa0", "1", "<|im"};
    static const char *const pres[] = {"smollm", "qwen2", "llama-bpe"};
    enum { BYTES = 1 << 20 };
    char *bytes = malloc(BYTES);
    for (size_t p = 0; p < 3; p++) {
        struct text *text = small_vocabulary_open(
            &(struct small_vocabulary){.pre = pres[p], .tokens = {{"<|im_end|>", SMALL_CONTROL}}});
        for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
            const size_t length = strlen(patterns[i]);
            struct token_list ids = {0};
            struct error error = {0};
            for (size_t k = 0; k < BYTES; k++)
                bytes[k] = patterns[i][k % length];
            cr_assert_eq(text_encode(text, bytes, BYTES, true, BYTES, &ids, &error), STATUS_OK,
                         "%s", error.text);
            cr_assert_gt(ids.count, BYTES / 8);
            token_list_free(&ids);
        }
        text_close(text);
    }
    free(bytes);
}
