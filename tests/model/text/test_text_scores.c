/* SentencePiece vocabularies (tokenizer.ggml.model "llama"): recorded ids of the Llama 2 one, and
 * small ones made on the spot. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/text/bpe.h"
#include "model/text/unigram.h"
#include "tests/model/text/small_vocabulary.h"

static struct text *llama_open(void)
{
    static char path[512];
    struct text *text = NULL;
    struct error error = {0};
    snprintf(path, sizeof path, "%s/golden/vocab/llama-spm.gguf", small_shared());
    if (access(path, R_OK) != 0)
        cr_skip_test("no vocabulary at %s", path);
    cr_assert_eq(text_open(path, &text, &error), STATUS_OK, "%s", error.text);
    return text;
}

/* From the Hugging Face tokenizers, special tokens not parsed. */
static const struct {
    const char *text;
    size_t bytes;
    int32_t ids[16];
} recorded[] = {
    {"Hello world", 11, {15043, 3186}},
    {" Hello  world", 13, {29871, 15043, 29871, 3186}},
    {" ", 1, {259}},
    {"", 0, {0}},
    {"\n\n", 2, {29871, 13, 13}},
    {"3333", 4, {29871, 29941, 29941, 29941, 29941}},
    {"<s>x</s>", 8, {529, 29879, 29958, 29916, 829, 29879, 29958}},
    {"a\0b", 3, {263, 3, 29890}},
    {"y\xe1\xba\xbfu caf\xc3\xa9", 11, {343, 30717, 29884, 274, 28059}},
    {"\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xe3\x81\xae\xf0\x9f\x98\x80",
     16,
     {29871, 30325, 30346, 30968, 30199, 243, 162, 155, 131}},
    {"\xe2\x96\x81"
     "a \xe2\x96\x81",
     8,
     {29871, 263, 259}},
    {"\t'RE you   sure?", 16, {29871, 12, 29915, 1525, 366, 259, 1854, 29973}},
    {"<0x0A>", 6, {529, 29900, 29916, 29900, 29909, 29958}},
};

static size_t ids_count(const int32_t *ids)
{
    size_t count = 0;
    while (count < 16 && ids[count] != 0)
        count++;
    return count;
}

Test(text_scores, recorded_ids_and_back)
{
    struct text *text = llama_open();
    for (size_t i = 0; i < sizeof recorded / sizeof recorded[0]; i++) {
        const size_t count = ids_count(recorded[i].ids);
        const struct token_list *ids =
            small_encode(text, recorded[i].text, recorded[i].bytes, false);
        cr_expect(small_ids_are(ids, recorded[i].ids, count), "case %zu", i);
        struct buffer back = {0};
        struct text_stream stream;
        text_stream_init_whole(&stream, text, false);
        for (size_t k = 0; k < ids->count; k++)
            text_stream_push(&stream, ids->ids[k], &back);
        text_stream_finish(&stream, &back);
        /* U+2581 in a text is a space to this tokenizer. */
        if (memmem(recorded[i].text, recorded[i].bytes, "\xe2\x96\x81", 3) == NULL)
            cr_expect(back.size == recorded[i].bytes &&
                          (back.size == 0 || memcmp(back.data, recorded[i].text, back.size) == 0),
                      "case %zu came back as '%s'", i, back.data);
        buffer_free(&back);
    }
    cr_assert(text_info(text)->add_bos);
    cr_assert_eq(text_info(text)->bos, 1);
    cr_assert_eq(text_info(text)->eos_ids[0], 2);
    text_close(text);
}

/* Steps of merging `count` letters where merges are found by text. */
static int32_t doubled_find(const void *arg, const char *text, size_t bytes, uint32_t *rank_out)
{
    *rank_out = (uint32_t)(1000 - bytes);
    return (bytes & (bytes - 1)) == 0 ? (int32_t)bytes : -1; // a, aa, aaaa, …
}

static void token_drop(void *arg, int32_t id, const char *text, size_t bytes)
{
    *(size_t *)arg += bytes;
}

static uint64_t merge_steps(size_t count)
{
    enum { LONGEST = 64 };
    struct bpe *bpe = bpe_create_by_text(doubled_find, NULL, LONGEST);
    struct bpe_scratch scratch = {0};
    char *letters = malloc(count);
    size_t bytes = 0;
    memset(letters, 'a', count);
    bpe_begin(&scratch, count);
    for (size_t i = 0; i < count; i++)
        bpe_symbol_add(&scratch, 1, i, 1);
    bpe_merge(bpe, &scratch, letters, token_drop, &bytes);
    cr_assert_eq(bytes, count);
    const uint64_t steps = scratch.step_count;
    free(letters);
    bpe_scratch_free(&scratch);
    bpe_destroy(bpe);
    return steps;
}

static uint64_t cut_steps(size_t count)
{
    struct unigram *unigram = unigram_create(4);
    struct unigram_scratch scratch = {0};
    char *letters = malloc(count);
    size_t bytes = 0;
    unigram_add(unigram, "a", 1, 1, -3);
    unigram_add(unigram, "aa", 2, 2, -5);
    unigram_add(unigram, "aaaaaaaa", 8, 3, -15);
    unigram_set_lowest(unigram, -15);
    memset(letters, 'a', count);
    unigram_encode(unigram, &scratch, letters, count, token_drop, &bytes);
    cr_assert_eq(bytes, count);
    const uint64_t steps = scratch.step_count;
    free(letters);
    unigram_scratch_free(&scratch);
    unigram_destroy(unigram);
    return steps;
}

Test(text_scores, work_grows_little_faster_than_one_repeated_letter)
{
    enum { COUNT = 1 << 17 };
    const uint64_t merges = merge_steps(COUNT);
    const uint64_t cuts = cut_steps(COUNT);
    cr_assert_lt((double)merge_steps(COUNT * 2), 2.4 * (double)merges);
    cr_assert_lt(merges, 40ull * COUNT);
    cr_assert_lt((double)cut_steps(COUNT * 2), 2.1 * (double)cuts);
    cr_assert_lt(cuts, 10ull * COUNT);
}

Test(text_scores, an_answer_keeps_its_first_space)
{
    struct text *text = llama_open();
    struct buffer out = {0};
    struct text_stream stream;
    text_stream_init(&stream, text, true);
    text_stream_push(&stream, 3186, &out);
    text_stream_finish(&stream, &out);
    cr_assert_str_eq(out.data, " world");
    buffer_free(&out);
    text_close(text);
}

Test(text_scores, bytes_outside_characters_become_byte_tokens)
{
    struct text *text = llama_open();
    const int32_t ids[] = {263, 0xff + 3, 29890, 0xe2 + 3, 0x96 + 3};
    cr_assert(small_ids_are(small_encode(text,
                                         "a\xff"
                                         "b\xe2\x96",
                                         5, false),
                            ids, 5));
    text_close(text);
}
