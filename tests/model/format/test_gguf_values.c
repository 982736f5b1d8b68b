/* Keys of GGUF files: every getter, what converts and what does not. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/model/format/gguf_bytes.h"

static struct gguf *opened(const struct buffer *bytes)
{
    struct gguf *file = NULL;
    struct error error = {0};
    cr_assert_eq(gguf_bytes_open(bytes, &file, &error), STATUS_OK, "%s", error.text);
    return file;
}

Test(gguf_values, a_good_file_gives_what_was_put_in)
{
    for (uint32_t version = 2; version <= 3; version++) {
        struct buffer bytes = {0};
        put_good_file(&bytes, version);
        struct gguf *file = opened(&bytes);
        uint32_t count;
        float scale;
        bool flag;
        struct gguf_string text;
        struct gguf_string *words;
        uint64_t word_count;
        uint64_t number_count;
        const void *numbers;
        enum gguf_value_type type;
        cr_assert_eq(gguf_get_u32(file, "test.count", &count, NULL), STATUS_OK);
        cr_assert_eq(count, 7);
        cr_assert_eq(gguf_get_f32(file, "test.scale", &scale, NULL), STATUS_OK);
        cr_assert_eq(scale, 0.5f);
        cr_assert_eq(gguf_get_bool(file, "test.flag", &flag, NULL), STATUS_OK);
        cr_assert(flag);
        cr_assert_eq(gguf_get_string(file, "general.architecture", &text, NULL), STATUS_OK);
        cr_assert(text.bytes == 4 && memcmp(text.data, "test", 4) == 0);
        cr_assert_eq(gguf_get_strings(file, "test.words", &words, &word_count, NULL), STATUS_OK);
        cr_assert_eq(word_count, 3);
        cr_assert(words[2].bytes == 5 && memcmp(words[2].data, "three", 5) == 0);
        cr_assert_eq(words[1].bytes, 0);
        free(words);
        cr_assert_eq(
            gguf_get_numbers(file, "test.numbers", GGUF_I32, &numbers, &number_count, NULL),
            STATUS_OK);
        cr_assert_eq(number_count, 2);
        cr_assert_eq((int32_t)load_le32((const uint8_t *)numbers + 4), -12);
        cr_assert_eq(gguf_get_array(file, "test.words", &type, &word_count, NULL), STATUS_OK);
        cr_assert(type == GGUF_STRING && word_count == 3);

        cr_assert_eq(gguf_tensor_count(file), 2);
        const struct tensor_view *b = gguf_tensor_find(file, "b");
        cr_assert_not_null(b);
        cr_assert_str_eq(b->type->name, "Q8_0");
        cr_assert(b->dimension_count == 2 && b->dimensions[0] == 32 && b->dimensions[1] == 3);
        cr_assert(b->dimensions[2] == 1 && b->dimensions[3] == 1);
        cr_assert_eq(b->bytes, 3 * 34);
        cr_assert_eq(((const uint8_t *)b->data)[33], 33);
        cr_assert_eq(gguf_tensor_at(file, 1), b);
        cr_assert_null(gguf_tensor_find(file, "c"));
        cr_assert_eq(gguf_file_bytes(file), bytes.size);
        gguf_close(file);
        buffer_free(&bytes);
    }
}

Test(gguf_values, integers_of_any_width_convert_where_they_fit)
{
    static const struct {
        uint32_t type;
        uint64_t bits;
        size_t bytes;
        enum status status; /* of gguf_get_u32 */
        uint32_t value;
    } cases[] = {
        {GGUF_U8, 200, 1, STATUS_OK, 200},
        {GGUF_I8, 0x80, 1, STATUS_INVALID, 0},
        {GGUF_U16, 65535, 2, STATUS_OK, 65535},
        {GGUF_I16, 0xffff, 2, STATUS_INVALID, 0},
        {GGUF_I32, 5, 4, STATUS_OK, 5},
        {GGUF_I32, 0xffffffff, 4, STATUS_INVALID, 0},
        {GGUF_U64, UINT32_MAX, 8, STATUS_OK, UINT32_MAX},
        {GGUF_U64, 1ull << 32, 8, STATUS_INVALID, 0},
        {GGUF_U64, UINT64_MAX, 8, STATUS_INVALID, 0},
        {GGUF_I64, UINT64_MAX, 8, STATUS_INVALID, 0},
        {GGUF_BOOL, 1, 1, STATUS_INVALID, 0},
        {GGUF_F32, 0, 4, STATUS_INVALID, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buffer bytes = {0};
        put_header(&bytes, 3, 0, 1);
        put_key(&bytes, "k", cases[i].type);
        buffer_add(&bytes, &cases[i].bits, cases[i].bytes);
        struct gguf *file = opened(&bytes);
        uint32_t value = 1234;
        struct error error = {0};
        cr_assert_eq(gguf_get_u32(file, "k", &value, &error), cases[i].status, "case %zu", i);
        if (cases[i].status == STATUS_OK)
            cr_assert_eq(value, cases[i].value, "case %zu", i);
        else
            cr_assert(value == 1234 && strstr(error.text, "'k'") != NULL, "case %zu: %s", i,
                      error.text);
        gguf_close(file);
        buffer_free(&bytes);
    }
}

Test(gguf_values, a_wrong_type_or_a_missing_key_is_said_with_its_name)
{
    struct buffer bytes = {0};
    put_good_file(&bytes, 3);
    struct gguf *file = opened(&bytes);
    struct error error;
    struct gguf_string text;
    struct gguf_string *texts;
    uint64_t count;
    const void *numbers;
    bool flag;
    float number;
    cr_assert_eq(gguf_get_string(file, "test.count", &text, &error), STATUS_INVALID);
    cr_assert_not_null(strstr(error.text, "'test.count' is of type u32, a string is needed"));
    cr_assert_eq(gguf_get_string(file, "absent", &text, &error), STATUS_NOT_FOUND);
    cr_assert_not_null(strstr(error.text, "has no key 'absent'"));
    cr_assert_eq(gguf_get_strings(file, "test.numbers", &texts, &count, &error), STATUS_INVALID);
    cr_assert_not_null(strstr(error.text, "i32 array"));
    cr_assert_eq(gguf_get_numbers(file, "test.numbers", GGUF_F32, &numbers, &count, &error),
                 STATUS_INVALID);
    cr_assert_eq(gguf_get_numbers(file, "test.count", GGUF_U32, &numbers, &count, &error),
                 STATUS_INVALID);
    cr_assert_eq(gguf_get_bool(file, "test.count", &flag, &error), STATUS_INVALID);
    cr_assert_eq(gguf_get_f32(file, "test.count", &number, &error), STATUS_INVALID);
    gguf_close(file);
    buffer_free(&bytes);
}

Test(gguf_values, a_bool_that_is_neither_and_a_number_that_is_none_are_refused)
{
    struct buffer bytes = {0};
    put_header(&bytes, 3, 0, 2);
    put_key(&bytes, "flag", GGUF_BOOL);
    buffer_add_char(&bytes, 2);
    put_key(&bytes, "number", GGUF_F32);
    put_u32(&bytes, 0x7fc00000);
    struct gguf *file = opened(&bytes);
    bool flag;
    float number;
    cr_assert_eq(gguf_get_bool(file, "flag", &flag, NULL), STATUS_INVALID);
    cr_assert_eq(gguf_get_f32(file, "number", &number, NULL), STATUS_INVALID);
    gguf_close(file);
    buffer_free(&bytes);
}

Test(gguf_values, the_digest_is_of_names_types_shapes_and_bytes)
{
    struct buffer bytes = {0};
    const size_t end = put_good_file(&bytes, 3);
    struct gguf *file = opened(&bytes);
    const struct digest128 first = gguf_weights_digest(file);
    gguf_close(file);
    file = opened(&bytes);
    cr_assert(digest128_equal(first, gguf_weights_digest(file)));
    gguf_close(file);
    bytes.data[end - 1] ^= 1;
    file = opened(&bytes);
    cr_assert_not(digest128_equal(first, gguf_weights_digest(file)));
    gguf_close(file);
    buffer_free(&bytes);
}
