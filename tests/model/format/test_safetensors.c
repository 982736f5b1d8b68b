/* safetensors files: what a right one gives, and the sentence for every wrong one. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/random.h"
#include "model/format/safetensors.h"
#include "tests/model/format/model_folder.h"

static const char good[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                           "\"b\":{\"dtype\":\"BF16\",\"shape\":[3,2],\"data_offsets\":[8,20]},"
                           "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                           "\"c\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[20,28]}}";

static enum status open_tensors(uint64_t length, const char *header, size_t data_bytes,
                                struct safetensors **out, struct error *error)
{
    *error = (struct error){0};
    model_folder_make();
    const enum status status = safetensors_open(
        model_folder_write_tensors("x.safetensors", length, header, data_bytes), out, error);
    model_folder_remove();
    return status;
}

Test(safetensors, a_right_file_gives_its_tensors_in_order_of_place)
{
    struct safetensors *file = NULL;
    struct error error;
    cr_assert_eq(open_tensors(0, good, 28, &file, &error), STATUS_OK, "%s", error.text);
    cr_assert_eq(safetensors_tensor_count(file), 3);
    cr_assert_str_eq(safetensors_tensor_at(file, 0)->name, "a");
    const struct tensor_view *b = safetensors_tensor_find(file, "b");
    cr_assert_eq(b, safetensors_tensor_at(file, 1));
    cr_assert_str_eq(b->type->name, "BF16");
    cr_assert_eq(b->dimension_count, 2);
    cr_assert_eq(b->dimensions[0], 2); /* the fastest first */
    cr_assert_eq(b->dimensions[1], 3);
    cr_assert_eq(b->dimensions[2], 1);
    cr_assert_eq(b->bytes, 12);
    cr_assert_eq(*(const uint8_t *)b->data, 8);
    const struct tensor_view *c = safetensors_tensor_at(file, 2);
    cr_assert_null(c->type);
    cr_assert_str_eq(c->type_name, "I64");
    cr_assert_eq(c->dimension_count, 1);
    cr_assert_null(safetensors_tensor_find(file, "d"));
    safetensors_close(file);
}

static void refused(uint64_t length, const char *header, size_t data_bytes, enum status expected,
                    const char *words)
{
    struct safetensors *file = NULL;
    struct error error;
    const enum status status = open_tensors(length, header, data_bytes, &file, &error);
    cr_assert_eq(status, expected, "'%s' gives %s: %s", header, status_name(status), error.text);
    cr_assert_not_null(strstr(error.text, words), "'%s' says nothing of '%s'", error.text, words);
    cr_assert_null(file);
}

Test(safetensors, lengths_of_the_header_are_compared_before_they_are_used)
{
    refused(UINT64_MAX, "{}", 0, STATUS_CORRUPT, "18446744073709551615");
    refused(UINT64_MAX - 7, "{}", 0, STATUS_CORRUPT, "claims a header");
    refused(3, "{}", 0, STATUS_CORRUPT, "the file has 2");
    refused((uint64_t)SAFETENSORS_HEADER_BYTES_MAX + 1, "{}", 0, STATUS_CORRUPT, "limit is");
    refused(0, "[]", 0, STATUS_CORRUPT, "not an object");
    refused(0, "{\"a\"", 0, STATUS_CORRUPT, "its header: the JSON text is not valid");
}

Test(safetensors, shapes_types_and_places_must_fit_together)
{
    static const struct {
        const char *header;
        size_t bytes;
        enum status status;
        const char *words;
    } cases[] = {
        {"{\"a\":3}", 0, STATUS_CORRUPT, "'a' is not a name"},
        {"{\"\":{}}", 0, STATUS_CORRUPT, "is not a name of 1 to 255"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, STATUS_CORRUPT, "has no dtype"},
        {"{\"a\":{\"dtype\":\"F7\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, STATUS_UNSUPPORTED,
         "the unknown dtype 'F7'"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, STATUS_CORRUPT, "has no shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, STATUS_CORRUPT,
         "does not fit the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, STATUS_CORRUPT,
         "does not fit the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, STATUS_CORRUPT,
         "does not fit the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
         STATUS_CORRUPT, "does not fit the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
         STATUS_UNSUPPORTED, "has 5 dimensions, the limit is 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, STATUS_CORRUPT,
         "the data_offsets 4 and 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 4, STATUS_CORRUPT,
         "there are 4 bytes of data"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, STATUS_CORRUPT,
         "no pair of data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, STATUS_CORRUPT,
         "has 8 bytes, its shape and dtype need 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, STATUS_CORRUPT,
         "4 bytes behind the last tensor"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, STATUS_CORRUPT,
         "has a hole before it"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         4, STATUS_CORRUPT, "overlaps the one before it"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, STATUS_CORRUPT, "duplicate"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        refused(0, cases[i].header, cases[i].bytes, cases[i].status, cases[i].words);
}

Test(safetensors, a_file_cut_at_any_byte_is_refused)
{
    struct buffer whole = {0};
    const uint64_t length = strlen(good);
    buffer_add(&whole, &length, sizeof length);
    buffer_add_text(&whole, good);
    for (int i = 0; i < 28; i++)
        buffer_add_char(&whole, 1);
    model_folder_make();
    for (size_t size = 0; size < whole.size; size++) {
        struct safetensors *file = NULL;
        struct error error;
        cr_assert_neq(safetensors_open(model_folder_write("x", whole.data, size), &file, &error),
                      STATUS_OK, "%zu of %zu bytes open", size, whole.size);
    }
    model_folder_remove();
    buffer_free(&whole);
}

/* Damaged files give an error or tensors that lie inside the file. */
Test(safetensors, flipped_bytes_do_no_harm)
{
    enum { ROUNDS = 4000 };
    struct random random;
    random_init(&random, 5);
    uint32_t opened = 0;
    model_folder_make();
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct safetensors *file = NULL;
        struct error error;
        char header[sizeof good];
        memcpy(header, good, sizeof good);
        for (uint64_t flips = 1 + random_below(&random, 3); flips > 0; flips--)
            header[random_below(&random, sizeof good - 1)] ^= (char)(1 << random_below(&random, 7));
        for (size_t i = 0; i + 1 < sizeof good; i++)
            header[i] = header[i] == 0 ? ' ' : header[i];
        const char *path = model_folder_write_tensors("x", 0, header, 28);
        if (safetensors_open(path, &file, &error) != STATUS_OK)
            continue;
        opened++;
        for (size_t i = 0; i < safetensors_tensor_count(file); i++) {
            const struct tensor_view *tensor = safetensors_tensor_at(file, i);
            cr_assert(tensor->bytes <= 28);
            cr_assert(tensor_views_digest(&tensor, 1).low != 1);
        }
        safetensors_close(file);
    }
    model_folder_remove();
    cr_assert(opened > 0);
}
