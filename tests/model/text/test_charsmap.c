/* SentencePiece's character maps: what they replace, and that damaged ones are refused. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/check.h"
#include "base/random.h"
#include "model/text/charsmap.h"
#include "model/text/grapheme.h"
#include "tests/model/text/charsmap_file.h"
#include "tests/model/text/tokenizer_folder.h"

#define ACUTE   "\xcc\x81"
#define JOINER  "\xe2\x80\x8d"
#define E_ACUTE "\xc3\xa9"
#define TM      "\xe2\x84\xa2"

static const struct charsmap_pair pairs[] = {
    {"e" ACUTE, E_ACUTE},      {"\r", " "},   {TM, "TM"},  {"\xef\xbd\xb6", "\xe3\x82\xab"},
    {"\xc2\xad", ""},          {"abc", "no"}, {"x", "yz"}, {"\xef\xbd\xb6\xef\xbe\x9e", "GA"},
    {"\xf0\x9d\x90\x80", "A"}, {NULL, NULL},
};

static struct charsmap *map_open(void)
{
    struct buffer file = {0}, text = {0};
    struct charsmap *map = NULL;
    struct error error = {0};
    charsmap_file_make(pairs, &file);
    charsmap_file_base64(file.data, file.size, &text);
    cr_assert_eq(charsmap_create(text.data, text.size, &map, &error), STATUS_OK, "%s", error.text);
    buffer_free(&file);
    buffer_free(&text);
    return map;
}

static void becomes(const struct charsmap *map, const char *from, const char *to)
{
    struct buffer out = {0};
    buffer_reserve(&out, 1);
    out.data[0] = '\0';
    cr_assert(charsmap_run(map, from, strlen(from), SIZE_MAX, &out));
    cr_expect_str_eq(out.data, to, "'%s' became '%s' and not '%s'", from, out.data, to);
    buffer_free(&out);
}

Test(charsmap, characters_and_clusters_are_replaced)
{
    struct charsmap *map = map_open();
    becomes(map, "", "");
    becomes(map, "plain words", "plain words");
    becomes(map, "ax", "ayz");
    becomes(map, "e" ACUTE "e", E_ACUTE "e");
    becomes(map, "a" TM "\xf0\x9d\x90\x80", "aTMA");
    becomes(map, "\xc2\xad-\xc2\xad", "-");
    becomes(map, "abc", "abc"); // three clusters, none of which is in the map
    charsmap_destroy(map);
}

/* What looks like a fault is what the models were trained with. */
Test(charsmap, a_short_cluster_becomes_what_its_beginning_does)
{
    struct charsmap *map = map_open();
    becomes(map, "x" ACUTE, "yz");
    becomes(map, "\r\n", " ");
    becomes(map, "\r\r\n\n", "  \n");
    becomes(map, TM ACUTE, "TM");                   // five bytes
    becomes(map, TM ACUTE ACUTE, "TM" ACUTE ACUTE); // seven: every character by itself
    becomes(map, "\xef\xbd\xb6\xef\xbe\x9e", "\xe3\x82\xab\xef\xbe\x9e");
    becomes(map, "\xd8\x80x", "\xd8\x80yz"); // U+0600 takes the next one in, and is not known
    charsmap_destroy(map);
}

Test(charsmap, growth_has_a_limit)
{
    struct charsmap *map = map_open();
    struct buffer out = {0};
    cr_assert(charsmap_run(map, "xxxx", 4, 8, &out));
    buffer_clear(&out);
    cr_assert_not(charsmap_run(map, "xxxxx", 5, 8, &out));
    cr_assert(out.size <= 10);
    buffer_free(&out);
    charsmap_destroy(map);
}

static size_t clusters(const char *text)
{
    size_t count = 0;
    for (size_t at = 0; text[at] != '\0'; count++)
        at = grapheme_end(text, strlen(text), at);
    return count;
}

Test(charsmap, clusters_follow_the_standard)
{
    cr_expect_eq(clusters("abc"), 3);
    cr_expect_eq(clusters("\r\n\r\r"), 3);
    cr_expect_eq(clusters("a" ACUTE ACUTE "b"), 2);
    cr_expect_eq(clusters("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8"), 1); // L V T
    cr_expect_eq(clusters("\xea\xb0\x80\xe1\x86\xa8\xea\xb0\x81\xe1\x85\xa1"), 3);
    cr_expect_eq(clusters("\xe2\x9d\xa4" JOINER "\xe2\x9d\xa4"), 1);
    cr_expect_eq(clusters("\xe2\x98\x85" JOINER "\xe2\x9d\xa4"), 2);   // U+2605, not since 17
    cr_expect_eq(clusters("\xe0\xa4\x95\xe0\xa5\x8d\xe0\xa4\x95"), 1); // ka, virama, ka
    cr_expect_eq(clusters("\xe0\xa4\x95\xe0\xa4\x95"), 2);
    cr_expect_eq(clusters("a\xe0\xa2\x97"), 1); // U+0897, a mark since 16
    cr_expect_eq(clusters("\xd8\x80"
                          "1"),
                 1);
    cr_expect_eq(clusters("\xd8\x80\n"), 2);
}

static void refused(const struct buffer *file, enum status status, const char *words)
{
    struct buffer text = {0};
    struct charsmap *map = NULL;
    struct error error = {0};
    charsmap_file_base64(file->data, file->size, &text);
    cr_expect_eq(charsmap_create(text.data, text.size, &map, &error), status, "%s", words);
    cr_expect_null(map);
    cr_expect_not_null(strstr(error.text, words), "wanted '%s', got: %s", words, error.text);
    buffer_free(&text);
}

Test(charsmap, damaged_maps_are_refused)
{
    struct buffer file = {0}, bad = {0};
    struct charsmap *map = NULL;
    struct error error = {0};
    charsmap_file_make(pairs, &file);
    cr_expect_eq(charsmap_create("AAA", 3, &map, &error), STATUS_CORRUPT);
    cr_expect_eq(charsmap_create("AA*A", 4, &map, &error), STATUS_CORRUPT);
    cr_expect_not_null(strstr(error.text, "base64"), "%s", error.text);
    cr_expect_eq(charsmap_create("A=AA", 4, &map, &error), STATUS_CORRUPT);
    refused(&(struct buffer){.data = "", .size = 0}, STATUS_CORRUPT, "its trie has 0 bytes");
    for (size_t size = 1; size < 4 + CHARSMAP_FILE_UNITS * 4; size += 997)
        refused(&(struct buffer){.data = file.data, .size = size}, STATUS_CORRUPT, "its trie has");
    buffer_add(&bad, file.data, file.size);
    bad.data[bad.size - 2] = '\xff';
    refused(&bad, STATUS_CORRUPT, "not UTF-8");
    memcpy(bad.data, file.data, file.size);
    store_le32(bad.data + 4, 1u << 31);
    refused(&bad, STATUS_CORRUPT, "the root of its trie is a value");
    store_le32(bad.data + 4, CHARSMAP_FILE_UNITS << 10);
    refused(&bad, STATUS_CORRUPT, "unit 0 of the trie leads to unit");
    refused(&(struct buffer){.data = file.data, .size = 4 + CHARSMAP_FILE_UNITS * 4},
            STATUS_CORRUPT, "where none of the 0 bytes begins one");
    buffer_free(&file);
    buffer_free(&bad);
}

/* Whatever is accepted can be run without harm. */
Test(charsmap, random_damage_does_no_harm)
{
    enum { ROUNDS = 2000 };
    static const char sample[] = "e" ACUTE "x\r\n" TM "\xef\xbd\xb6\xc2\xad\xf0\x9d\x90\x80"
                                 "abc";
    struct buffer file = {0};
    charsmap_file_make(pairs, &file);
    size_t open_count = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct random random;
        struct buffer damaged = {0}, text = {0}, out = {0};
        struct charsmap *map = NULL;
        struct error error = {0};
        random_init(&random, round);
        buffer_add(&damaged, file.data, file.size);
        for (uint64_t left = 1 + random_below(&random, 3); left > 0; left--)
            damaged.data[random_below(&random, file.size)] = (char)random_next(&random);
        charsmap_file_base64(damaged.data, damaged.size, &text);
        if (charsmap_create(text.data, text.size, &map, &error) == STATUS_OK) {
            open_count++;
            charsmap_run(map, sample, sizeof sample - 1, 1000, &out);
        } else {
            cr_assert_neq(error.text[0], '\0');
        }
        charsmap_destroy(map);
        buffer_free(&damaged);
        buffer_free(&text);
        buffer_free(&out);
    }
    cr_assert(open_count > 0 && open_count < ROUNDS, "%zu", open_count);
    buffer_free(&file);
}

Test(charsmap, a_tokenizer_file_has_one)
{
    struct buffer file = {0}, json = {0};
    struct text *text = NULL;
    struct error error = {0};
    struct token_list ids = {0};
    charsmap_file_make(pairs, &file);
    buffer_add_text(&json, "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
    charsmap_file_base64(file.data, file.size, &json);
    buffer_add_text(&json, "\"},\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":"
                           "[[\"?\",0],[\"y\",-1],[\"z\",-1],[\"TM\",-2]]}}");
    cr_assert_eq(folder_try_tokenizer(json.data, json.size, &text, &error), STATUS_OK, "%s",
                 error.text);
    cr_assert_eq(text_encode(text, "x" TM, 4, false, 9, &ids, &error), STATUS_OK);
    cr_assert_eq(ids.count, 3);
    cr_assert(ids.ids[0] == 1 && ids.ids[1] == 2 && ids.ids[2] == 3);
    token_list_free(&ids);
    text_close(text);
    static const char damaged[] = "{\"normalizer\":{\"type\":\"Precompiled\","
                                  "\"precompiled_charsmap\":\"AAAA\"},\"model\":{}}";
    cr_assert_eq(folder_try_tokenizer(damaged, sizeof damaged - 1, &text, &error), STATUS_CORRUPT);
    cr_assert_not_null(strstr(error.text, "'precompiled_charsmap' is damaged"), "%s", error.text);
    buffer_free(&file);
    buffer_free(&json);
}
