/* Hostile GGUF files: each way of being wrong is refused with a sentence that names it, and no
 * truncation or flipped bit brings the reader down. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "tests/model/format/gguf_bytes.h"

enum { FLIP_ROUNDS = 6000 };

/* Opening fails with this status and a text that holds `words`. */
static void refused(struct buffer *bytes, enum status status, const char *words)
{
    struct gguf *file = NULL;
    struct error error = {0};
    const enum status got = gguf_bytes_open(bytes, &file, &error);
    cr_expect_eq(got, status, "%s: %s (%s)", words, status_name(got), error.text);
    cr_expect_not_null(strstr(error.text, words), "wanted '%s', got: %s", words, error.text);
    if (got == STATUS_OK)
        gguf_close(file);
    buffer_free(bytes);
}

static void accepted(struct buffer *bytes)
{
    struct gguf *file = NULL;
    struct error error = {0};
    cr_expect_eq(gguf_bytes_open(bytes, &file, &error), STATUS_OK, "%s", error.text);
    gguf_close(file);
    buffer_free(bytes);
}

Test(gguf_open, what_is_not_a_gguf_file_is_said_plainly)
{
    struct gguf *file;
    struct error error;
    cr_assert_eq(gguf_open("/tmp", &file, &error), STATUS_CORRUPT);
    cr_assert_not_null(strstr(error.text, "is a directory"));
    cr_assert_eq(gguf_open("/dev/null", &file, &error), STATUS_CORRUPT);
    cr_assert_not_null(strstr(error.text, "not a regular file"));
    cr_assert_eq(gguf_open("/no/such/file.gguf", &file, &error), STATUS_NOT_FOUND);
    cr_assert_not_null(strstr(error.text, "/no/such/file.gguf"));

    struct buffer bytes = {0};
    refused(&bytes, STATUS_CORRUPT, "is empty");
    buffer_add_text(&bytes, "PK\x03\x04 and more, but no model");
    refused(&bytes, STATUS_CORRUPT, "is not a GGUF file: it begins with 'PK");
    buffer_add_text(&bytes, "GG");
    refused(&bytes, STATUS_CORRUPT, "is not a GGUF file");
    buffer_add_text(&bytes, "FUGG and more");
    refused(&bytes, STATUS_UNSUPPORTED, "byte order");
}

Test(gguf_open, versions_other_than_2_and_3_are_refused)
{
    struct buffer bytes = {0};
    put_good_file(&bytes, 1);
    refused(&bytes, STATUS_UNSUPPORTED, "is a GGUF v1 file, Baton reads v2 and v3");
    put_good_file(&bytes, 4);
    refused(&bytes, STATUS_UNSUPPORTED, "GGUF v4");
    put_good_file(&bytes, 0x03000000);
    refused(&bytes, STATUS_UNSUPPORTED, "big-endian");
    put_good_file(&bytes, 0);
    refused(&bytes, STATUS_UNSUPPORTED, "GGUF v0");
}

Test(gguf_open, counts_are_bounded_by_the_bytes_that_are_there)
{
    const uint64_t huge[] = {UINT64_MAX, 1ull << 63, UINT64_MAX / 48, 1000};
    for (size_t i = 0; i < 4; i++) {
        struct buffer bytes = {0};
        put_header(&bytes, 3, 0, huge[i]);
        put_zeros(&bytes, 64);
        refused(&bytes, STATUS_CORRUPT, "keys, 64 bytes are left");
        put_header(&bytes, 3, huge[i], 0);
        put_zeros(&bytes, 64);
        refused(&bytes, STATUS_CORRUPT, "tensors, 64 bytes are left");
        put_header(&bytes, 3, 0, 1);
        put_key(&bytes, "list", GGUF_ARRAY);
        put_u32(&bytes, GGUF_U64);
        put_u64(&bytes, huge[i]);
        put_zeros(&bytes, 64);
        refused(&bytes, STATUS_CORRUPT, "'list' claims");
        put_header(&bytes, 3, 0, 1);
        put_key(&bytes, "text", GGUF_STRING);
        put_u64(&bytes, huge[i]);
        put_zeros(&bytes, 64);
        refused(&bytes, STATUS_CORRUPT, "in the value of 'text'");
        put_header(&bytes, 3, 0, 1);
        put_u64(&bytes, huge[i]);
        put_zeros(&bytes, 64);
        refused(&bytes, STATUS_CORRUPT, "in key 1 of 1");
    }
}

Test(gguf_open, keys_must_be_of_known_types_and_there_once)
{
    struct buffer bytes = {0};
    put_header(&bytes, 3, 0, 1);
    put_key(&bytes, "k", 13);
    put_zeros(&bytes, 64);
    refused(&bytes, STATUS_CORRUPT, "'k' has the value type 13");
    put_header(&bytes, 3, 0, 1);
    put_key(&bytes, "k", GGUF_ARRAY);
    put_u32(&bytes, 77);
    put_u64(&bytes, 1);
    put_zeros(&bytes, 64);
    refused(&bytes, STATUS_CORRUPT, "array of type 77");
    put_header(&bytes, 3, 0, 1);
    put_key(&bytes, "k", GGUF_ARRAY);
    put_u32(&bytes, GGUF_ARRAY);
    put_u64(&bytes, 1);
    put_zeros(&bytes, 64);
    refused(&bytes, STATUS_UNSUPPORTED, "array of arrays");
    put_header(&bytes, 3, 0, 2);
    put_key_u32(&bytes, "twice", 1);
    put_key_u32(&bytes, "twice", 2);
    refused(&bytes, STATUS_CORRUPT, "key 'twice' is there twice");
    put_header(&bytes, 3, 0, 1);
    put_key_u32(&bytes, "", 1);
    put_zeros(&bytes, 8);
    refused(&bytes, STATUS_CORRUPT, "has 0 bytes");
}

Test(gguf_open, alignments_that_are_no_power_of_two_are_refused)
{
    static const struct {
        uint32_t type, value;
        const char *words; /* NULL: fine */
    } cases[] = {
        {GGUF_U32, 0, "general.alignment is 0"},
        {GGUF_U32, 3, "general.alignment is 3"},
        {GGUF_U32, 24, "general.alignment is 24"},
        {GGUF_I32, UINT32_MAX, "'general.alignment' is -1"},
        {GGUF_U32, 1u << 30, "general.alignment is 1073741824"},
        {GGUF_F32, 32, "'general.alignment' is of type f32"},
        {GGUF_I32, 64, NULL},
        {GGUF_U32, 8, NULL},
        {GGUF_U32, 1, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buffer bytes = {0};
        put_header(&bytes, 3, 1, 1);
        put_key(&bytes, "general.alignment", cases[i].type);
        put_u32(&bytes, cases[i].value);
        put_tensor(&bytes, "t", 4, 1, 0, 0);
        put_padding(&bytes, 64);
        put_zeros(&bytes, 16);
        if (cases[i].words != NULL)
            refused(&bytes, STATUS_INVALID, cases[i].words);
        else
            accepted(&bytes);
    }
}

/* One tensor with everything else right; 4096 bytes of data. */
static struct buffer one_tensor(const char *name, uint64_t width, uint64_t rows, uint32_t type,
                                uint64_t offset)
{
    struct buffer bytes = {0};
    put_header(&bytes, 3, 1, 0);
    put_tensor(&bytes, name, width, rows, type, offset);
    put_padding(&bytes, 32);
    put_zeros(&bytes, 4096);
    return bytes;
}

Test(gguf_open, tensors_must_fit_the_file)
{
    static const struct {
        uint64_t width, rows;
        uint32_t type;
        uint64_t offset;
        enum status status;
        const char *words;
    } cases[] = {
        {32, 32, 0, 0, STATUS_OK, NULL},
        {32, 32, 0, 32, STATUS_CORRUPT, "needs 4096 bytes at offset 32"},
        {32, 31, 0, 128, STATUS_OK, NULL},
        {32, 1, 0, 1ull << 40, STATUS_CORRUPT, "at offset 1099511627776"},
        {32, 1, 0, UINT64_MAX - 31, STATUS_CORRUPT, "at offset"},
        {32, 1, 0, 7, STATUS_CORRUPT, "not a multiple of the alignment 32"},
        {32, (1ull << 42) + 1, 0, 0, STATUS_CORRUPT, "the whole file has"},
        {1ull << 32, 1ull << 32, 0, 0, STATUS_CORRUPT, "dimension 1 of tensor 't'"},
        {1ull << 31, 1ull << 31, 1, 0, STATUS_CORRUPT, "the whole file has"},
        {0, 4, 0, 0, STATUS_CORRUPT, "dimension 0 of tensor 't' is 0"},
        {4, 0, 0, 0, STATUS_CORRUPT, "dimension 1 of tensor 't' is 0"},
        {31, 4, 8, 0, STATUS_CORRUPT, "Q8_0 needs a multiple of 32"},
        {128, 4, 12, 0, STATUS_CORRUPT, "Q4_K needs a multiple of 256"},
        {32, 4, 19, 0, STATUS_UNSUPPORTED, "the type 19 (IQ1_S)"},
        {32, 4, 4, 0, STATUS_UNSUPPORTED, "the type 4 (unknown)"},
        {32, 4, UINT32_MAX, 0, STATUS_UNSUPPORTED, "the type 4294967295"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buffer bytes =
            one_tensor("t", cases[i].width, cases[i].rows, cases[i].type, cases[i].offset);
        if (cases[i].status == STATUS_OK)
            accepted(&bytes);
        else
            refused(&bytes, cases[i].status, cases[i].words);
    }
}

Test(gguf_open, tensor_names_are_bounded_and_there_once)
{
    char name[80];
    memset(name, 'n', sizeof name);
    name[64] = '\0';
    struct buffer bytes = one_tensor(name, 32, 1, 0, 0);
    accepted(&bytes);
    name[64] = 'n';
    name[65] = '\0';
    bytes = one_tensor(name, 32, 1, 0, 0);
    refused(&bytes, STATUS_CORRUPT, "has 65 bytes");
    bytes = one_tensor("", 32, 1, 0, 0);
    refused(&bytes, STATUS_CORRUPT, "has 0 bytes");
    bytes = one_tensor("ab", 32, 1, 0, 0);
    bytes.data[24 + 8 + 1] = '\0';
    refused(&bytes, STATUS_CORRUPT, "NUL");

    bytes = (struct buffer){0};
    put_header(&bytes, 3, 2, 0);
    put_tensor(&bytes, "same", 32, 1, 0, 0);
    put_tensor(&bytes, "same", 32, 1, 0, 128);
    put_padding(&bytes, 32);
    put_zeros(&bytes, 4096);
    refused(&bytes, STATUS_CORRUPT, "tensor 'same' is there twice");
}

Test(gguf_open, tensors_may_not_overlap)
{
    struct buffer bytes = {0};
    put_header(&bytes, 3, 2, 0);
    put_tensor(&bytes, "first", 32, 2, 0, 128); // 128 … 384
    put_tensor(&bytes, "second", 32, 2, 0, 0);  // 0 … 256
    put_padding(&bytes, 32);
    put_zeros(&bytes, 4096);
    refused(&bytes, STATUS_CORRUPT, "'second' and 'first' overlap");
}

Test(gguf_open, dimension_counts_are_bounded)
{
    const uint32_t counts[] = {0, 5, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        struct buffer bytes = one_tensor("t", 32, 1, 0, 0);
        store_le32(bytes.data + 24 + 8 + 1, counts[i]);
        refused(&bytes, STATUS_CORRUPT, "the limits are 1 and 4");
    }
}

static void put_key_u16(struct buffer *file, const char *key, uint16_t value)
{
    put_key(file, key, GGUF_U16);
    buffer_add(file, &value, sizeof value);
}

Test(gguf_open, a_part_of_a_split_model_says_which)
{
    struct buffer bytes = {0};
    struct gguf *file = NULL;
    struct error error;
    put_header(&bytes, 3, 0, 3);
    put_key_u16(&bytes, "split.no", 1);
    put_key_u16(&bytes, "split.count", 3);
    put_key(&bytes, "split.tensors.count", GGUF_I32);
    put_u32(&bytes, 7);
    cr_assert_eq(gguf_bytes_open(&bytes, &file, &error), STATUS_OK, "%s", error.text);
    cr_assert_eq(gguf_split(file).number, 1);
    cr_assert_eq(gguf_split(file).count, 3);
    cr_assert_eq(gguf_split(file).tensor_count, 7);
    gguf_close(file);
    gguf_bytes_remove();
    buffer_free(&bytes);

    put_header(&bytes, 3, 0, 3);
    put_key_u16(&bytes, "split.no", 3);
    put_key_u16(&bytes, "split.count", 3);
    put_key_u16(&bytes, "split.tensors.count", 7);
    refused(&bytes, STATUS_CORRUPT, "it is part 4 of 3");
}

/* Reads whatever an open file offers. */
static void exercise(const struct gguf *file)
{
    static const char *const keys[] = {"general.architecture", "test.count",
                                       "test.scale",           "test.flag",
                                       "test.words",           "test.numbers"};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        uint64_t count;
        float number;
        bool flag;
        struct gguf_string text;
        struct gguf_string *texts;
        const void *numbers;
        if (gguf_get_u64(file, keys[i], &count, NULL) == STATUS_OK)
            sum += count;
        if (gguf_get_f32(file, keys[i], &number, NULL) == STATUS_OK)
            sum += number > 0;
        if (gguf_get_bool(file, keys[i], &flag, NULL) == STATUS_OK)
            sum += flag;
        if (gguf_get_string(file, keys[i], &text, NULL) == STATUS_OK)
            sum += hash64(text.data, text.bytes, 0);
        if (gguf_get_strings(file, keys[i], &texts, &count, NULL) == STATUS_OK) {
            for (uint64_t k = 0; k < count; k++)
                sum += hash64(texts[k].data, texts[k].bytes, 0);
            free(texts);
        }
        if (gguf_get_numbers(file, keys[i], GGUF_I32, &numbers, &count, NULL) == STATUS_OK)
            sum += hash64(numbers, (size_t)count * 4, 0);
    }
    const struct digest128 digest = gguf_weights_digest(file);
    cr_assert(sum + digest.low != 1); // every byte has been read
}

Test(gguf_open, a_file_cut_at_any_byte_is_refused)
{
    struct buffer bytes = {0};
    const size_t end = put_good_file(&bytes, 3);
    const char *path = gguf_bytes_write(&bytes);
    for (size_t cut = bytes.size; cut-- > 0;) {
        struct gguf *file = NULL;
        struct error error = {0};
        cr_assert_eq(truncate(path, (off_t)cut), 0);
        const enum status status = gguf_open(path, &file, &error);
        if (cut >= end) { // only padding is gone
            cr_assert_eq(status, STATUS_OK, "cut at %zu: %s", cut, error.text);
            exercise(file);
            gguf_close(file);
            continue;
        }
        cr_assert_eq(status, STATUS_CORRUPT, "cut at %zu", cut);
        cr_assert_not_null(strstr(error.text, path), "cut at %zu: %s", cut, error.text);
    }
    gguf_bytes_remove();
    buffer_free(&bytes);
}

Test(gguf_open, flipped_bytes_do_no_harm, .timeout = 120)
{
    struct buffer good = {0};
    put_good_file(&good, 3);
    size_t open_count = 0;
    for (uint64_t round = 0; round < FLIP_ROUNDS; round++) {
        struct random random;
        random_init(&random, round);
        struct buffer bytes = {0};
        buffer_add(&bytes, good.data, good.size);
        for (uint64_t flips = 1 + random_below(&random, 3); flips > 0; flips--) {
            /* Structure is in front; lengths and counts are hit with values of every size. */
            const size_t at = (size_t)random_below(&random, good.size);
            const uint64_t kind = random_below(&random, 3);
            if (kind == 0)
                bytes.data[at] = (char)random_next(&random);
            else if (kind == 1)
                bytes.data[at] ^= (char)(1u << random_below(&random, 8));
            else if (at + 8 <= good.size)
                store_le64(bytes.data + at, random_next(&random) >> random_below(&random, 64));
        }
        struct gguf *file = NULL;
        struct error error = {0};
        if (gguf_bytes_open(&bytes, &file, &error) == STATUS_OK) {
            open_count++;
            exercise(file);
            gguf_close(file);
        } else {
            cr_assert_neq(error.text[0], '\0', "round %lu", (unsigned long)round);
        }
        buffer_free(&bytes);
    }
    /* Not vacuous: some survive, most do not. */
    cr_assert(open_count > FLIP_ROUNDS / 50 && open_count < FLIP_ROUNDS * 9 / 10, "%zu",
              open_count);
    buffer_free(&good);
}
