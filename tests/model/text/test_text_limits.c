/* Work and memory stay in proportion to the text, whatever the file says. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/text/normalizer.h"
#include "model/text/pattern.h"
#include "tests/model/text/charsmap_file.h"
#include "tests/model/text/tokenizer_folder.h"

#define CASED                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"    \
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}"                      \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Searches all of the text; the steps it took, or 0 when they were refused. */
static uint64_t search(const char *expression, const char *text, size_t bytes, struct error *error)
{
    struct pattern *pattern;
    struct pattern_scratch *scratch = pattern_scratch_create();
    cr_assert_eq(pattern_create(expression, strlen(expression), &pattern, error), STATUS_OK, "%s",
                 error->text);
    enum status status = STATUS_OK;
    bool found = true;
    pattern_scratch_allow(scratch, bytes);
    for (size_t at = 0, start, end; at < bytes && found && status == STATUS_OK;
         at = pattern_resume(text, bytes, start, end)) {
        status = pattern_find(pattern, scratch, text, bytes, at, &found, &start, &end, error);
        if (status != STATUS_OK || !found)
            break;
    }
    const uint64_t steps = pattern_scratch_steps(scratch);
    cr_assert(status == STATUS_OK || status == STATUS_LIMIT, "%s", error->text);
    pattern_destroy(pattern);
    pattern_scratch_destroy(scratch);
    return status == STATUS_OK ? steps : 0;
}

/* count times the unit, to be freed. */
static char *repeated(const char *unit, size_t count)
{
    const size_t bytes = strlen(unit);
    char *text = malloc(count * bytes + 1);
    CHECK(text != NULL);
    for (size_t i = 0; i < count; i++)
        memcpy(text + i * bytes, unit, bytes);
    text[count * bytes] = '\0';
    return text;
}

Test(text_limits, expressions_in_use_take_steps_in_proportion)
{
    enum { COUNT = 20000 };
    static const char *const units[] = {"a",   "A",  "aA",           " ", " a",        "\n",
                                        " \n", "1",  "\xe6\xbc\xa2", "!", "a\xcc\x81", "'s",
                                        "\t ", "x1 "};
    for (size_t i = 0; i < ARRAY_COUNT(units); i++) {
        struct error error = {0};
        char *text = repeated(units[i], 2 * COUNT);
        const size_t bytes = strlen(text);
        const uint64_t once = search(CASED, text, bytes / 2, &error);
        const uint64_t twice = search(CASED, text, bytes, &error);
        cr_expect(once > 0 && twice <= 2 * once + 100, "'%s': %lu and %lu steps", units[i],
                  (unsigned long)once, (unsigned long)twice);
        cr_expect(twice < bytes * PATTERN_STEPS_PER_BYTE / 4, "'%s': %lu steps for %zu bytes",
                  units[i], (unsigned long)twice, bytes);
        free(text);
    }
}

Test(text_limits, expressions_that_take_more_are_stopped)
{
    static const char *const expressions[] = {
        "(?:[a-z]|b)+1", "[a-z]*[a-z]*[a-z]*1", "(?:a+)+1", "(?:a|aa)+1", "(?=[a-z]+1)a",
    };
    enum { COUNT = 30000 };
    char *text = repeated("a", COUNT);
    text[COUNT - 1] = '-';
    text[COUNT - 2] = '1';
    text[COUNT - 3] = '-'; // so that the digit is there, and cannot be reached
    for (size_t i = 0; i < ARRAY_COUNT(expressions); i++) {
        struct error error = {0};
        cr_expect_eq(search(expressions[i], text, COUNT, &error), 0, "%s", expressions[i]);
        cr_expect_not_null(strstr(error.text, "steps"), "%s: %s", expressions[i], error.text);
    }
    free(text);
}

static void encoding_is_refused(const char *json, const char *unit, size_t count, const char *words)
{
    struct text *text = NULL;
    struct error error = {0};
    struct token_list ids = {0};
    cr_assert_eq(folder_try_tokenizer(json, strlen(json), &text, &error), STATUS_OK, "%s",
                 error.text);
    char *long_text = repeated(unit, count);
    cr_expect_eq(text_encode(text, long_text, strlen(long_text), false, SIZE_MAX, &ids, &error),
                 STATUS_LIMIT);
    cr_expect_not_null(strstr(error.text, words), "wanted '%s', got: %s", words, error.text);
    free(long_text);
    token_list_free(&ids);
    text_close(text);
}

/* Many parts of a text, each of which alone would be let pass. */
Test(text_limits, steps_are_counted_over_the_whole_text)
{
    static const char json[] =
        "{\"added_tokens\":[{\"id\":1,\"content\":\"<|\",\"special\":false,\"normalized\":false}],"
        "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?=[a-z]+1)a\"},"
        "\"behavior\":\"Isolated\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}"
        "}";
    char unit[705];
    memset(unit, 'a', 700);
    memcpy(unit + 700, "-1<|", 5);
    encoding_is_refused(json, unit, 10, "steps, the limit");
    struct text *text = NULL;
    struct error error = {0};
    struct token_list ids = {0};
    cr_assert_eq(folder_try_tokenizer(json, strlen(json), &text, &error), STATUS_OK);
    cr_assert_eq(text_encode(text, unit, 704, false, SIZE_MAX, &ids, &error), STATUS_OK, "%s",
                 error.text);
    cr_assert_eq(ids.count, 701);
    token_list_free(&ids);
    text_close(text);
}

Test(text_limits, a_text_may_not_grow_without_end)
{
    char json[4096], run[1001];
    memset(run, 'b', sizeof run - 1);
    run[sizeof run - 1] = '\0';
    snprintf(json, sizeof json,
             "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},"
             "\"content\":\"%s\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
             run);
    encoding_is_refused(json, "a", 1000,
                        "normalising a text of 1000 bytes makes more than 81536 bytes, the limit");
    snprintf(json, sizeof json,
             "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
             "{\"type\":\"Prepend\",\"prepend\":\"%s\"},{\"type\":\"NFKD\"},"
             "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\"},\"content\":\"%s\"}]},"
             "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
             run, run);
    encoding_is_refused(json, "a", 1, "makes more than 65552 bytes, the limit");
}

Test(text_limits, a_map_of_characters_may_not_make_a_text_grow_without_end)
{
    struct buffer file = {0}, json = {0};
    char run[1001];
    memset(run, 'b', sizeof run - 1);
    run[sizeof run - 1] = '\0';
    charsmap_file_make((const struct charsmap_pair[]){{"a", run}, {NULL, NULL}}, &file);
    buffer_add_text(&json, "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
    charsmap_file_base64(file.data, file.size, &json);
    buffer_add_text(&json, "\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}");
    encoding_is_refused(json.data, "a", 1000, "makes more than 81536 bytes, the limit");
    buffer_free(&file);
    buffer_free(&json);
}

/* Compatibility decomposition makes eighteen characters, 33 bytes, of this one of three. */
Test(text_limits, unicode_may_grow_as_far_as_it_can)
{
    enum { COUNT = 100000 };
    struct normalizer *normalizer = normalizer_create();
    struct normalizer_scratch scratch = {.pattern = pattern_scratch_create()};
    struct error error = {0};
    char *text = repeated("\xef\xb7\xba", COUNT);
    const char *out;
    size_t bytes;
    cr_assert_eq(normalizer_add_form(normalizer, UNICODE_NFKD, &error), STATUS_OK);
    cr_assert_eq(
        normalizer_run(normalizer, &scratch, text, strlen(text), false, &out, &bytes, &error),
        STATUS_OK, "%s", error.text);
    cr_assert_eq(bytes, 33 * COUNT);
    free(text);
    pattern_scratch_destroy(scratch.pattern);
    normalizer_scratch_free(&scratch);
    normalizer_destroy(normalizer);
}
