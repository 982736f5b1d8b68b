/* The recorded ids of awkward strings, for three real vocabularies. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/json.h"
#include "tests/model/text/small_vocabulary.h"

/* The JSON reader refuses NUL in strings, as the API does: "\\u0000" goes through it as U+E000. */
static void nul_hide(struct buffer *line)
{
    for (char *at = line->data; (at = strstr(at, "\\u0000")) != NULL;)
        memcpy(at, "\\ue000", 6);
}

static void nul_restore(struct buffer *string)
{
    char *at;
    while ((at = memmem(string->data, string->size, "\xee\x80\x80", 3)) != NULL) {
        *at = '\0';
        memmove(at + 1, at + 3, string->size - (size_t)(at + 3 - string->data));
        string->size -= 2;
    }
}

static void bytes_check(const struct text *text, const struct token_list *ids,
                        const struct buffer *expected, size_t number)
{
    struct buffer back = {0};
    for (size_t i = 0; i < ids->count; i++) {
        size_t count;
        const char *bytes = text_token_bytes(text, ids->ids[i], &count);
        buffer_add(&back, bytes, count);
    }
    const bool same = back.size == expected->size &&
                      (back.size == 0 || memcmp(back.data, expected->data, back.size) == 0);
    cr_assert(same, "line %zu comes back as '%s'", number, back.data);
    buffer_free(&back);
}

/* Checks one line {"text": …, "ids": […]}. exact: the ids stand for the very bytes, which a rule
 * that normalises does not promise. */
static void line_check(const struct text *text, struct buffer *line, size_t number, bool exact)
{
    struct json *root = NULL;
    struct error error = {0};
    nul_hide(line);
    cr_assert_eq(json_parse(line->data, line->size, &root, &error), STATUS_OK, "%s", error.text);
    size_t count;
    struct buffer string = {0};
    const char *written = json_string(json_get(root, "text"), &count);
    buffer_add(&string, written, count);
    nul_restore(&string);
    const struct json *expected = json_get(root, "ids");
    struct token_list ids = {0};
    cr_assert_eq(text_encode(text, string.data, string.size, false, 1 << 20, &ids, &error),
                 STATUS_OK);
    cr_assert_eq(ids.count, json_count(expected), "line %zu: %zu ids, %zu expected", number,
                 ids.count, json_count(expected));
    for (size_t i = 0; i < ids.count; i++)
        cr_assert_eq(ids.ids[i], json_int(json_at(expected, i)),
                     "line %zu: id %zu is %d, %ld expected", number, i, ids.ids[i],
                     (long)json_int(json_at(expected, i)));
    if (exact)
        bytes_check(text, &ids, &string, number);
    token_list_free(&ids);
    buffer_free(&string);
    json_free(root);
}

static void file_check(const char *model, const char *lines_name, bool exact)
{
    char path[512];
    struct buffer lines = {0};
    struct text *text = NULL;
    struct error error = {0};
    snprintf(path, sizeof path, "%s/golden/vocab/%s.tokens.jsonl", small_shared(), lines_name);
    if (model == NULL || !small_file_read(path, &lines))
        cr_skip_test("no recorded ids at %s, or no vocabulary for them", path);
    cr_assert_eq(text_open(model, &text, &error), STATUS_OK, "%s", error.text);
    size_t number = 0;
    for (size_t at = 0; at < lines.size;) {
        struct buffer line = {0};
        const char *end = memchr(lines.data + at, '\n', lines.size - at);
        const size_t bytes = end != NULL ? (size_t)(end - lines.data) - at : lines.size - at;
        buffer_add(&line, lines.data + at, bytes);
        line_check(text, &line, ++number, exact);
        buffer_free(&line);
        at += bytes + 1;
    }
    cr_assert_geq(number, 100);
    text_close(text);
    buffer_free(&lines);
}

static const char *shared_vocabulary(const char *name)
{
    static char path[512];
    struct buffer probe = {0};
    snprintf(path, sizeof path, "%s/golden/vocab/%s.gguf", small_shared(), name);
    const bool there = small_file_read(path, &probe);
    buffer_free(&probe);
    return there ? path : NULL;
}

Test(text_golden, smollm2)
{
    file_check(small_real_model(), "smollm2", true);
}

Test(text_golden, qwen2)
{
    file_check(shared_vocabulary("qwen2"), "qwen2", false);
}

Test(text_golden, llama3)
{
    file_check(shared_vocabulary("llama3"), "llama3", true);
}

/* Field cases with ids on record for Qwen2: arrows, an open bracket with a newline, digits, and a
 * control token in a user's text. */
Test(text_golden, qwen2_field_cases)
{
    const char *model = shared_vocabulary("qwen2");
    struct text *text = NULL;
    struct error error = {0};
    if (model == NULL)
        cr_skip_test("no Qwen2 vocabulary");
    cr_assert_eq(text_open(model, &text, &error), STATUS_OK, "%s", error.text);
    cr_assert(small_ids_are(small_encode(text, "->", 2, false), (int32_t[]){405}, 1));
    cr_assert(small_ids_are(small_encode(text, "(x):\n", 5, false), (int32_t[]){2075, 982}, 2));
    cr_assert(small_ids_are(small_encode(text, "3333", 4, false), (int32_t[]){18, 18, 18, 18}, 4));
    const int32_t spelled[] = {27, 91, 318, 6213, 91, 29};
    cr_assert(small_ids_are(small_encode(text, "<|im_end|>", 10, false), spelled, 6));
    cr_assert(small_ids_are(small_encode(text, "<|im_end|>", 10, true), (int32_t[]){151645}, 1));
    /* Padding rows of the embedding are no text. */
    cr_assert_gt(small_encode(text, "[PAD151646]", 11, true)->count, 1);
    /* Decomposed letters are composed first. */
    struct token_list composed = {0};
    cr_assert_eq(text_encode(text, "y\xe1\xba\xbfu", 5, false, 99, &composed, &error), STATUS_OK);
    cr_assert(small_ids_are(small_encode(text, "ye\xcc\x82\xcc\x81u", 7, false), composed.ids,
                            composed.count));
    token_list_free(&composed);
    text_close(text);
}
