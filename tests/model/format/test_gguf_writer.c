/* The writer: what it writes is what the reader reads, and nothing half-written stays behind. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/format/gguf_writer.h"
#include "tests/model/format/gguf_bytes.h"

static const uint64_t dimensions[2] = {32, 2};

/* A fresh name that no file has. */
static const char *free_path(void)
{
    static char path[128];
    const struct buffer empty = {0};
    snprintf(path, sizeof path, "%s.gguf", gguf_bytes_write(&empty));
    gguf_bytes_remove();
    return path;
}

static bool part_exists(const char *path)
{
    char part[160];
    snprintf(part, sizeof part, "%s.part", path);
    return access(part, F_OK) == 0;
}

Test(gguf_writer, a_written_file_reads_back)
{
    const char *path = free_path();
    const char *words[] = {"x", "", "yz"};
    const uint32_t lengths[] = {1, 0, 2};
    const int32_t numbers[] = {3, -4};
    struct gguf_writer *writer;
    struct error error;
    uint8_t data[2 * 34];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7);
    cr_assert_eq(gguf_writer_open(path, &writer, &error), STATUS_OK);
    gguf_writer_put_u32(writer, "u", 42);
    gguf_writer_put_f32(writer, "f", 1.25f);
    gguf_writer_put_bool(writer, "b", true);
    gguf_writer_put_string(writer, "s", "a\0b", 3);
    gguf_writer_put_strings(writer, "ss", words, lengths, 3);
    gguf_writer_put_i32s(writer, "is", numbers, 2);
    gguf_writer_add_tensor(writer, "one", quant_type_by_name("Q8_0"), 2, dimensions);
    gguf_writer_add_tensor(writer, "two", quant_type_by_name("F32"), 1, dimensions);
    const float ones[32] = {1, 2, 3};
    for (size_t at = 0; at < sizeof data; at += 17) // cuts that fit no block
        cr_assert_eq(gguf_writer_add_data(writer, data + at, 17, &error), STATUS_OK);
    cr_assert_eq(gguf_writer_add_data(writer, ones, sizeof ones, &error), STATUS_OK);
    cr_assert(part_exists(path));
    cr_assert_eq(gguf_writer_finish(writer, &error), STATUS_OK, "%s", error.text);
    cr_assert_not(part_exists(path));

    struct gguf *file;
    struct gguf_string text;
    uint32_t u;
    cr_assert_eq(gguf_open(path, &file, &error), STATUS_OK, "%s", error.text);
    cr_assert(gguf_get_u32(file, "u", &u, NULL) == STATUS_OK && u == 42);
    cr_assert_eq(gguf_get_string(file, "s", &text, NULL), STATUS_OK);
    cr_assert(text.bytes == 3 && memcmp(text.data, "a\0b", 3) == 0);
    const struct tensor_view *one = gguf_tensor_find(file, "one");
    const struct tensor_view *two = gguf_tensor_find(file, "two");
    cr_assert(one != NULL && two != NULL);
    cr_assert_eq(memcmp(one->data, data, sizeof data), 0);
    cr_assert_eq(memcmp(two->data, ones, sizeof ones), 0);
    cr_assert_eq((uintptr_t)two->data % 32, 0);
    gguf_close(file);
    unlink(path);
}

Test(gguf_writer, missing_data_is_an_error_and_leaves_no_file)
{
    const char *path = free_path();
    struct gguf_writer *writer;
    struct error error;
    const uint8_t data[34] = {0};
    cr_assert_eq(gguf_writer_open(path, &writer, &error), STATUS_OK);
    gguf_writer_add_tensor(writer, "t", quant_type_by_name("Q8_0"), 2, dimensions);
    cr_assert_eq(gguf_writer_add_data(writer, data, sizeof data, &error), STATUS_OK);
    cr_assert_eq(gguf_writer_finish(writer, &error), STATUS_INTERNAL);
    cr_assert_neq(access(path, F_OK), 0);
    cr_assert_not(part_exists(path));
}

Test(gguf_writer, aborting_leaves_no_file_and_an_old_one_alone)
{
    struct buffer old = {0};
    put_good_file(&old, 3);
    const char *path = gguf_bytes_write(&old);
    struct gguf_writer *writer;
    struct error error;
    cr_assert_eq(gguf_writer_open(path, &writer, &error), STATUS_OK);
    gguf_writer_put_u32(writer, "u", 42);
    gguf_writer_abort(writer);
    cr_assert_not(part_exists(path));
    struct gguf *file;
    cr_assert_eq(gguf_open(path, &file, &error), STATUS_OK, "%s", error.text);
    gguf_close(file);
    gguf_bytes_remove();
    buffer_free(&old);
}

Test(gguf_writer, a_path_that_can_not_be_created_is_said)
{
    struct gguf_writer *writer;
    struct error error;
    cr_assert_eq(gguf_writer_open("/nowhere/at/all.gguf", &writer, &error), STATUS_IO);
    cr_assert_not_null(strstr(error.text, "/nowhere/at/all.gguf"));
}

Test(gguf_writer, what_is_no_regular_file_is_not_replaced)
{
    static const char *const paths[] = {"/dev/null", "/tmp"};
    for (size_t i = 0; i < 2; i++) {
        struct gguf_writer *writer;
        struct error error;
        cr_assert_eq(gguf_writer_open(paths[i], &writer, &error), STATUS_INVALID, "%s", paths[i]);
        cr_assert_not_null(strstr(error.text, paths[i]), "%s", error.text);
        cr_assert_not(part_exists(paths[i]));
    }
}
