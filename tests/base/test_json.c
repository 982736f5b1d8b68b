#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"

static struct json *parse(const char *text)
{
    struct json *root = NULL;
    struct error error = {.text = ""};
    cr_assert_eq(json_parse(text, strlen(text), &root, &error), STATUS_OK, "%s: %s", text,
                 error.text);
    return root;
}

/* The error text of bytes that must be refused. */
static const char *refused(const char *text, size_t bytes)
{
    static struct error error;
    struct json *root = (struct json *)&error;
    cr_assert_eq(json_parse(text, bytes, &root, &error), STATUS_INVALID, "%.*s", (int)bytes, text);
    cr_assert_eq((void *)root, (void *)&error, "the output is set only on success");
    cr_assert_eq(error.status, STATUS_INVALID);
    return error.text;
}

Test(json, every_kind_reads)
{
    struct json *root =
        parse("{\"n\":null,\"t\":true,\"f\":false,\"i\":-7,\"r\":1.5e3,"
              "\"s\":\"a\\u00e9\\ud83d\\ude00\\n\",\"a\":[1,[],{}],\"o\":{\"x\":1}}");
    cr_assert_eq(json_kind(root), JSON_OBJECT);
    cr_assert_eq(json_count(root), 8);
    cr_assert_eq(json_kind(json_get(root, "n")), JSON_NULL);
    cr_assert(json_bool(json_get(root, "t")));
    cr_assert_not(json_bool(json_get(root, "f")));
    cr_assert_eq(json_int(json_get(root, "i")), -7);
    cr_assert_eq(json_number(json_get(root, "i")), -7.0);
    cr_assert_eq(json_kind(json_get(root, "r")), JSON_REAL);
    cr_assert_eq(json_number(json_get(root, "r")), 1500.0);
    size_t bytes;
    const char *text = json_string(json_get(root, "s"), &bytes);
    cr_assert_eq(bytes, 8);
    cr_assert_str_eq(text, "a\xC3\xA9\xF0\x9F\x98\x80\n");
    const struct json *array = json_get(root, "a");
    cr_assert_eq(json_count(array), 3);
    cr_assert_eq(json_int(json_at(array, 0)), 1);
    cr_assert_eq(json_count(json_at(array, 1)), 0);
    cr_assert_eq(json_kind(json_at(array, 2)), JSON_OBJECT);
    cr_assert_null(json_get(root, "absent"));
    json_free(root);
    json_free(NULL);
}

Test(json, a_nul_in_a_string_is_a_byte_like_any_other)
{
    struct json *root = parse("\"a\\u0000b\"");
    size_t bytes;
    const char *text = json_string(root, &bytes);
    cr_assert_eq(bytes, 3);
    cr_assert_eq(memcmp(text, "a\0b", 4), 0);
    json_free(root);
}

Test(json, any_value_may_be_the_root)
{
    struct json *root = parse(" \"x\" ");
    cr_assert_str_eq(json_string(root, NULL), "x");
    json_free(root);
    root = parse("9223372036854775807");
    cr_assert_eq(json_int(root), INT64_MAX);
    json_free(root);
    root = parse("-9223372036854775808");
    cr_assert_eq(json_int(root), INT64_MIN);
    json_free(root);
}

Test(json, what_is_not_strict_json_is_refused)
{
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "[1,]",
        "[1 2]",
        "{\"a\"}",
        "{a:1}",
        "{'a':1}",
        "[01]",
        "[1.]",
        "[.5]",
        "[+1]",
        "[NaN]",
        "[Infinity]",
        "[1e]",
        "nul",
        "[\"\t\"]",
        "[\"\\x41\"]",
        "[\"a",
        "[1]]",
        "{} {}",
        "[1] x",
        "// c\n[1]",
        "[1,2",
        "[\"\\ud800\"]",             /* a lone high surrogate */
        "[\"\\udc00\"]",             /* a lone low one */
        "[\"\\ud800\\u0041\"]",      /* half a pair */
        "{\"\\u0000\":1}",           /* NUL in a key */
        "[\"\xFF\"]",                /* not UTF-8 */
        "[\"\xC0\xAF\"]",            /* overlong */
        "[\"\xED\xA0\x80\"]",        /* a surrogate in UTF-8 */
        "{\"a\":1,\"b\":2,\"a\":3}", /* a key twice */
        "[9223372036854775808]",     /* beyond int64 */
        "[-9223372036854775809]",
        "[1e400]",
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        cr_assert_not_null(strstr(refused(bad[i], strlen(bad[i])), "at line"), "%s", bad[i]);
    refused("[1]\0", 4);
    refused("[1,\0 2]", 7);
}

Test(json, errors_say_where_and_what)
{
    const char *text = refused("{\n  \"a\": 1,\n  \"a\": 2}", 22);
    cr_assert_not_null(strstr(text, "line 3"), "%s", text);
    cr_assert_not_null(strstr(text, "duplicate"), "%s", text);
    text = refused("[9223372036854775808]", 21);
    cr_assert_not_null(strstr(text, "line 1"), "%s", text);
    cr_assert_not_null(strstr(text, "too big"), "%s", text);
}

static char *nested(size_t depth, size_t *bytes_out)
{
    char *text = malloc(2 * depth);
    CHECK(text != NULL);
    memset(text, '[', depth);
    memset(text + depth, ']', depth);
    *bytes_out = 2 * depth;
    return text;
}

Test(json, depth_is_bounded)
{
    size_t bytes;
    char *text = nested(JSON_DEPTH_MAX, &bytes);
    struct json *root = NULL;
    cr_assert_eq(json_parse(text, bytes, &root, NULL), STATUS_OK);
    json_free(root);
    free(text);
    text = nested(JSON_DEPTH_MAX + 1, &bytes);
    const char *error = refused(text, bytes);
    cr_assert_not_null(strstr(error, "limit of 128 at line 1, column 129"), "%s", error);
    free(text);
    text = nested(1000000, &bytes);
    refused(text, bytes);
    free(text);
    /* Brackets in strings do not count, nor do those after an escaped quote. */
    struct buffer out = {0};
    buffer_add_text(&out, "[\"\\\"");
    for (int i = 0; i < 1000; i++)
        buffer_add_char(&out, '[');
    buffer_add_text(&out, "\"]");
    root = parse(out.data);
    json_free(root);
    buffer_free(&out);
}

Test(json, a_long_string_survives_whole)
{
    enum { BYTES = 1 << 20 };
    struct buffer text = {0};
    buffer_add_char(&text, '"');
    for (int i = 0; i < BYTES; i++)
        buffer_add_char(&text, (char)('a' + i % 26));
    buffer_add_char(&text, '"');
    struct json *root = NULL;
    cr_assert_eq(json_parse(text.data, text.size, &root, NULL), STATUS_OK);
    size_t bytes;
    const char *value = json_string(root, &bytes);
    cr_assert_eq(bytes, BYTES);
    cr_assert_arr_eq(value, text.data + 1, BYTES);
    struct buffer out = {0};
    struct json_writer writer;
    json_writer_init(&writer, &out);
    json_put_string(&writer, value, bytes);
    cr_assert_eq(out.size, text.size);
    cr_assert_arr_eq(out.data, text.data, text.size);
    json_free(root);
    buffer_free(&text);
    buffer_free(&out);
}

Test(json, members_are_walked_in_their_order)
{
    struct json *root = parse("{\"z\":1,\"a\":2,\"m\":3}");
    void *cursor = NULL;
    const char *key;
    const struct json *value;
    struct buffer keys = {0};
    int64_t sum = 0;
    while (json_next(root, &cursor, &key, &value)) {
        buffer_add_text(&keys, key);
        sum = sum * 10 + json_int(value);
    }
    cr_assert_str_eq(keys.data, "zam");
    buffer_free(&keys);
    cr_assert_eq(sum, 123);
    json_free(root);
}

Test(json, asking_a_string_for_its_number_is_a_fault, .signal = SIGABRT)
{
    json_int(parse("\"7\""));
}

Test(json, kinds_have_names_for_messages)
{
    cr_assert_str_eq(json_kind_name(JSON_OBJECT), "an object");
    cr_assert_str_eq(json_kind_name(JSON_NULL), "null");
    cr_assert_str_eq(json_kind_name((enum json_kind)99), "an unknown value");
}

Test(json, writing_places_the_commas)
{
    struct buffer out = {0};
    struct json_writer writer;
    json_writer_init(&writer, &out);
    json_open_object(&writer);
    json_key(&writer, "a");
    json_open_array(&writer);
    json_put_int(&writer, INT64_MIN);
    json_put_u64(&writer, UINT64_MAX);
    json_open_object(&writer);
    json_close_object(&writer);
    json_open_array(&writer);
    json_close_array(&writer);
    json_put_bool(&writer, true);
    json_put_null(&writer);
    json_close_array(&writer);
    json_key(&writer, "b\"");
    json_put_text(&writer, "x");
    json_key(&writer, "c");
    json_put_text(&writer, NULL);
    json_key(&writer, "d");
    json_open_object(&writer);
    json_key(&writer, "e");
    json_put_bool(&writer, false);
    json_close_object(&writer);
    json_close_object(&writer);
    cr_assert_str_eq(out.data, "{\"a\":[-9223372036854775808,18446744073709551615,{},[],true,null],"
                               "\"b\\\"\":\"x\",\"c\":null,\"d\":{\"e\":false}}");
    buffer_free(&out);
}

Test(json, numbers_are_written_short)
{
    struct buffer out = {0};
    struct json_writer writer;
    json_writer_init(&writer, &out);
    json_open_array(&writer);
    json_put_number(&writer, 0.7, 9);
    json_put_number(&writer, -1.0 / 3, 6);
    json_put_number(&writer, 1e300, 9);
    json_put_number(&writer, NAN, 9);
    json_put_number(&writer, INFINITY, 9);
    json_close_array(&writer);
    cr_assert_str_eq(out.data, "[0.7,-0.333333,1e+300,null,null]");
    buffer_free(&out);
}

Test(json, strings_are_escaped_and_bad_bytes_replaced)
{
    static const struct {
        const char *text;
        size_t bytes;
        const char *expected;
    } cases[] = {
        {"", 0, "\"\""},
        {"a\"b\\c/", 6, "\"a\\\"b\\\\c/\""},
        {"\b\f\n\r\t", 5, "\"\\b\\f\\n\\r\\t\""},
        {"\x01\x1F\0\x7F", 4, "\"\\u0001\\u001f\\u0000\x7F\""},
        {"\xC3\xA9\xF0\x9F\x98\x80", 6, "\"\xC3\xA9\xF0\x9F\x98\x80\""},
        {"a\xFF"
         "b",
         3,
         "\"a\xEF\xBF\xBD"
         "b\""},
        {"\xED\xA0\x80", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"x\xF0\x9F\x98", 4, "\"x\xEF\xBF\xBD\""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct buffer out = {0};
        struct json_writer writer;
        json_writer_init(&writer, &out);
        json_put_string(&writer, cases[i].text, cases[i].bytes);
        cr_assert_str_eq(out.data, cases[i].expected, "row %zu: %s", i, out.data);
        buffer_free(&out);
    }
}

Test(json, what_was_written_reads_back)
{
    char text[256];
    for (int i = 0; i < 255; i++)
        text[i] = (char)(i % 0x7F + 1);
    struct buffer out = {0};
    struct json_writer writer;
    json_writer_init(&writer, &out);
    json_put_string(&writer, text, 255);
    struct json *root = NULL;
    cr_assert_eq(json_parse(out.data, out.size, &root, NULL), STATUS_OK);
    size_t bytes;
    const char *value = json_string(root, &bytes);
    cr_assert_eq(bytes, 255);
    cr_assert_arr_eq(value, text, 255);
    json_free(root);
    buffer_free(&out);
}

Test(json, values_are_copied_in_their_order)
{
    static const char text[] = "{\"z\":[1,-2.5,1e+300,0.1,0.30000000000000004,true,null,"
                               "\"\\u0000\\u001f\xC3\xA9\"],"
                               "\"a\":{},\"b\":{\"y\":[],\"x\":[[{}]]}}";
    struct json *root;
    struct error error;
    struct buffer out = {0};
    struct json_writer writer;
    cr_assert_eq(json_parse(text, sizeof text - 1, &root, &error), STATUS_OK, "%s", error.text);
    json_writer_init(&writer, &out);
    cr_assert_eq(json_put_value(&writer, root), STATUS_OK);
    cr_assert(out.size == sizeof text - 1 && memcmp(out.data, text, out.size) == 0, "%.*s",
              (int)out.size, out.data);
    json_free(root);
    char deep[2 * 65 + 1] = "";
    for (size_t levels = 64; levels <= 65; levels++) {
        memset(deep, '[', levels);
        memset(deep + levels, ']', levels);
        cr_assert_eq(json_parse(deep, 2 * levels, &root, &error), STATUS_OK, "%s", error.text);
        out.size = 0;
        json_writer_init(&writer, &out);
        cr_assert_eq(json_put_value(&writer, root), levels == 64 ? STATUS_OK : STATUS_LIMIT);
        json_free(root);
    }
    buffer_free(&out);
}

Test(json, writing_deeper_than_64_levels_is_a_fault, .signal = SIGABRT)
{
    struct buffer out = {0};
    struct json_writer writer;
    json_writer_init(&writer, &out);
    for (int i = 0; i < 64; i++)
        json_open_array(&writer);
    cr_assert_eq(out.size, 64);
    json_open_array(&writer);
}

Test(json, spaced_writing_is_as_models_have_seen_it)
{
    static const char text[] = "{\"a\": [1, 0.1, [], {}], \"b\": {\"c\": \"x, y: z\"}}";
    struct json *root = NULL;
    cr_assert_eq(json_parse(text, sizeof text - 1, &root, NULL), STATUS_OK);
    struct buffer out = {0};
    struct json_writer writer;
    json_writer_init(&writer, &out);
    writer.spaced = true;
    cr_assert_eq(json_put_value(&writer, root), STATUS_OK);
    cr_expect_str_eq(out.data, text);
    json_free(root);
    buffer_free(&out);
}
