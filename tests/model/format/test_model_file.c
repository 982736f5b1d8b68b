/* A model is a path: folders with one file or an index, GGUF files whole or in parts. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/json.h"
#include "model/format/gguf.h"
#include "model/format/model_file.h"
#include "tests/model/format/gguf_bytes.h"
#include "tests/model/format/model_folder.h"

#define TENSOR(name, begin, end)                                                                   \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" begin "," end "]}"

static void expect_refused(const char *path, enum status expected, const char *words)
{
    struct model_file *file = NULL;
    struct error error = {0};
    const enum status status = model_file_open(path, &file, &error);
    cr_assert_eq(status, expected, "%s: %s", status_name(status), error.text);
    cr_assert_not_null(strstr(error.text, words), "'%s' says nothing of '%s'", error.text, words);
    cr_assert_null(file);
}

Test(model_file, a_folder_with_one_file)
{
    struct model_file *file = NULL;
    struct error error = {0};
    char path[128], revision[65] = "x";
    snprintf(path, sizeof path, "%s//", model_folder_make());
    expect_refused(path, STATUS_NOT_FOUND, "/config.json");
    model_folder_write_text("config.json", "[1]");
    expect_refused(path, STATUS_CORRUPT, "it must be an object");
    model_folder_write_text("config.json", "{\"a\":1}");
    expect_refused(path, STATUS_NOT_FOUND, "neither model.safetensors nor");
    model_folder_write_tensors("model.safetensors", 0,
                               "{" TENSOR("b", "0", "4") "," TENSOR("a", "4", "8") "}", 8);
    model_folder_write_text("other.safetensors", "not looked at");
    cr_assert_eq(model_file_open(path, &file, &error), STATUS_OK, "%s", error.text);
    cr_assert_null(model_file_gguf(file));
    cr_assert_eq(json_int(json_get(model_file_config(file), "a")), 1);
    cr_assert_eq(model_file_tensor_count(file), 2);
    cr_assert_str_eq(model_file_tensor_at(file, 0)->name, "a");
    size_t index = 9;
    cr_assert_eq(model_file_tensor_find(file, "b", &index), model_file_tensor_at(file, 1));
    cr_assert_eq(index, 1);
    cr_assert_null(model_file_tensor_find(file, "c", NULL));
    cr_assert_str_eq(model_file_name(file), strrchr(model_file_path(file), '/') + 1);
    model_file_revision(file, revision);
    cr_assert_str_eq(revision, "");
    model_file_close(file);
    model_folder_remove();
}

Test(model_file, a_folder_with_an_index)
{
    struct model_file *file = NULL;
    struct error error = {0};
    const char *path = model_folder_make();
    static const char index[] = "model.safetensors.index.json";
    model_folder_write_text("config.json", "{}");
    model_folder_write_tensors("one", 0, "{" TENSOR("a", "0", "4") "}", 4);
    model_folder_write_tensors("two", 0, "{" TENSOR("b", "0", "4") "," TENSOR("c", "4", "8") "}",
                               8);
    model_folder_write_text(index, "{\"weight_map\":{\"a\":\"one\",\"b\":\"two\"}}");
    cr_assert_eq(model_file_open(path, &file, &error), STATUS_OK, "%s", error.text);
    cr_assert_eq(model_file_tensor_count(file), 3); /* the index has forgotten c */
    model_file_close(file);
    file = NULL;
    model_folder_write_tensors("two", 0, "{" TENSOR("b", "0", "4") "," TENSOR("a", "4", "8") "}",
                               8);
    expect_refused(path, STATUS_CORRUPT, "tensor 'a' is there twice");
    model_folder_write_text(index, "{\"weight_map\":{\"a\":\"one\",\"a\":\"two\"}}");
    expect_refused(path, STATUS_CORRUPT, "index.json");
    model_folder_write_tensors("two", 0, "{" TENSOR("b\\u001b[2J", "0", "4") "}", 4);
    model_folder_write_text(index, "{\"weight_map\":{\"a\":\"one\",\"b\\u001b\":\"two\"}}");
    expect_refused(path, STATUS_CORRUPT, "two has no tensor 'b?'");
    model_folder_write_tensors("two", 0, "{" TENSOR("b", "0", "4") "}", 4);
    model_folder_write_text(index, "{\"weight_map\":{\"a\":\"two\"}}");
    expect_refused(path, STATUS_CORRUPT, "two has no tensor 'a'");
    model_folder_write_text(index, "{\"weight_map\":{\"a\":\"three\"}}");
    expect_refused(path, STATUS_NOT_FOUND, "/three");
    model_folder_write_text(index, "{\"weight_map\":{\"a\":\"../one\"}}");
    expect_refused(path, STATUS_INVALID, "'../one'");
    model_folder_write_text(index, "{\"weight_map\":{\"a\":1}}");
    expect_refused(path, STATUS_CORRUPT, "an integer instead of a file's name");
    model_folder_write_text(index, "{}");
    expect_refused(path, STATUS_CORRUPT, "has no weight_map");
    model_folder_remove();
}

/* One part with one tensor of that name. */
static void write_part(uint16_t number, uint16_t count, const char *tensor, uint32_t total)
{
    struct buffer bytes = {0};
    char name[64];
    put_header(&bytes, 3, 1, 3);
    put_key(&bytes, "split.no", GGUF_U16);
    buffer_add(&bytes, &number, sizeof number);
    put_key(&bytes, "split.count", GGUF_U16);
    buffer_add(&bytes, &count, sizeof count);
    put_key(&bytes, "split.tensors.count", GGUF_I32);
    put_u32(&bytes, total);
    put_tensor(&bytes, tensor, 4, 1, 0, 0);
    put_padding(&bytes, 32);
    put_zeros(&bytes, 16);
    snprintf(name, sizeof name, "m-%05d-of-%05d.gguf", number + 1, count);
    model_folder_write(name, bytes.data, bytes.size);
    buffer_free(&bytes);
}

Test(model_file, parts_of_a_split_file_are_one_model)
{
    struct model_file *file = NULL;
    struct error error = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/m-00002-of-00002.gguf", model_folder_make());
    write_part(1, 2, "a", 2);
    expect_refused(path, STATUS_NOT_FOUND, "m-00001-of-00002.gguf");
    write_part(0, 2, "b", 2);
    cr_assert_eq(model_file_open(path, &file, &error), STATUS_OK, "%s", error.text);
    cr_assert_eq(model_file_tensor_count(file), 2);
    cr_assert_eq(gguf_split(model_file_gguf(file)).number, 0); /* keys are those of the first */
    model_file_close(file);
    file = NULL;
    write_part(0, 2, "a", 2);
    expect_refused(path, STATUS_CORRUPT, "tensor 'a' is there twice");
    write_part(0, 2, "b", 3);
    expect_refused(path, STATUS_CORRUPT, "with 3 tensors in all");
    write_part(1, 2, "a", 3);
    expect_refused(path, STATUS_CORRUPT, "have 2 tensors, split.tensors.count is 3");
    char other[128], first[128];
    snprintf(first, sizeof first, "%.*s1-of-00002.gguf",
             (int)(strlen(path) - strlen("2-of-00002.gguf")), path);
    cr_assert_eq(rename(path, first), 0);
    expect_refused(first, STATUS_INVALID, "is part 2 of a model in 2 files, so its name must");
    write_part(1, 2, "a", 2);
    expect_refused(path, STATUS_CORRUPT,
                   "says it is part 2 of 2 with 3 tensors in all, it must be");
    snprintf(other, sizeof other, "%.*s/other.gguf", (int)(strrchr(path, '/') - path), path);
    cr_assert_eq(rename(path, other), 0);
    expect_refused(other, STATUS_INVALID, "must end in '-00002-of-00002.gguf'");
    model_folder_remove();
}
