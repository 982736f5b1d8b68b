/* Writing GGUF: keys and the tensor table are gathered in memory and written in front of the first
 * tensor data; data goes straight to the file. */
#include "model/format/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "model/format/gguf.h"

enum { ALIGNMENT = 32, VERSION = 3 };

struct declared {
    uint64_t bytes;  /* of data */
    uint64_t padded; /* the same up to the next tensor */
};

struct gguf_writer {
    char *path;
    char *part_path;
    FILE *stream;
    struct buffer keys, table;
    uint64_t key_count, tensor_count;
    struct declared *tensors;
    size_t tensor_capacity;
    uint64_t data_offset; /* of the next declared tensor */
    bool data_begun;
    uint64_t current;       /* tensor whose data comes now */
    uint64_t current_bytes; /* of it already written */
};

static void put_u32(struct buffer *out, uint32_t value)
{
    uint8_t bytes[4];
    store_le32(bytes, value);
    buffer_add(out, bytes, sizeof bytes);
}

static void put_u64(struct buffer *out, uint64_t value)
{
    uint8_t bytes[8];
    store_le64(bytes, value);
    buffer_add(out, bytes, sizeof bytes);
}

static void put_text(struct buffer *out, const char *text, size_t bytes)
{
    put_u64(out, bytes);
    buffer_add(out, text, bytes);
}

/* The finished file is renamed over what stands there, which must not cost anybody a device. */
static enum status path_check(const char *path, struct error *error)
{
    struct stat stat_before;
    if (stat(path, &stat_before) != 0 || S_ISREG(stat_before.st_mode))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID, "%s is %s, only a regular file is replaced", path,
                     S_ISDIR(stat_before.st_mode) ? "a directory" : "no regular file");
}

enum status gguf_writer_open(const char *path, struct gguf_writer **out, struct error *error)
{
    TRY(path_check(path, error));
    struct gguf_writer *writer = calloc(1, sizeof *writer);
    if (writer != NULL) {
        char *part_path = NULL;
        writer->path = strdup(path);
        if (asprintf(&part_path, "%s.part", path) >= 0)
            writer->part_path = part_path;
    }
    if (writer == NULL || writer->path == NULL || writer->part_path == NULL) {
        gguf_writer_abort(writer);
        return error_set(error, STATUS_NO_MEMORY, "no memory to write %s", path);
    }
    writer->stream = fopen(writer->part_path, "wbe");
    if (writer->stream == NULL) {
        const enum status status =
            error_set_errno(error, STATUS_IO, "cannot create %s", writer->part_path);
        gguf_writer_abort(writer);
        return status;
    }
    *out = writer;
    return STATUS_OK;
}

static void key_begin(struct gguf_writer *writer, const char *key, enum gguf_value_type type)
{
    CHECK(!writer->data_begun);
    put_text(&writer->keys, key, strlen(key));
    put_u32(&writer->keys, type);
    writer->key_count++;
}

static void array_begin(struct gguf_writer *writer, const char *key, enum gguf_value_type element,
                        uint64_t count)
{
    key_begin(writer, key, GGUF_ARRAY);
    put_u32(&writer->keys, element);
    put_u64(&writer->keys, count);
}

void gguf_writer_put_u32(struct gguf_writer *writer, const char *key, uint32_t value)
{
    key_begin(writer, key, GGUF_U32);
    put_u32(&writer->keys, value);
}

void gguf_writer_put_f32(struct gguf_writer *writer, const char *key, float value)
{
    key_begin(writer, key, GGUF_F32);
    buffer_add(&writer->keys, &value, sizeof value);
}

void gguf_writer_put_bool(struct gguf_writer *writer, const char *key, bool value)
{
    key_begin(writer, key, GGUF_BOOL);
    buffer_add_char(&writer->keys, value ? 1 : 0);
}

void gguf_writer_put_string(struct gguf_writer *writer, const char *key, const char *value,
                            size_t bytes)
{
    key_begin(writer, key, GGUF_STRING);
    put_text(&writer->keys, value, bytes);
}

void gguf_writer_put_strings(struct gguf_writer *writer, const char *key, const char *const *values,
                             const uint32_t *bytes, uint64_t count)
{
    array_begin(writer, key, GGUF_STRING, count);
    for (uint64_t i = 0; i < count; i++)
        put_text(&writer->keys, values[i], bytes[i]);
}

void gguf_writer_put_i32s(struct gguf_writer *writer, const char *key, const int32_t *values,
                          uint64_t count)
{
    array_begin(writer, key, GGUF_I32, count);
    buffer_add(&writer->keys, values, (size_t)count * sizeof *values);
}

void gguf_writer_put_raw(struct gguf_writer *writer, const struct gguf_raw_key *key)
{
    CHECK(!writer->data_begun);
    put_text(&writer->keys, key->name.data, key->name.bytes);
    put_u32(&writer->keys, key->type);
    buffer_add(&writer->keys, key->value.data, key->value.bytes);
    writer->key_count++;
}

void gguf_writer_add_tensor(struct gguf_writer *writer, const char *name,
                            const struct quant_type *type, uint32_t dimension_count,
                            const uint64_t *dimensions)
{
    CHECK(!writer->data_begun);
    CHECK(strlen(name) <= GGUF_NAME_BYTES_MAX);
    CHECK(dimension_count >= 1 && dimension_count <= TENSOR_DIMENSIONS_MAX);
    CHECK(dimensions[0] % type->block_values == 0);
    uint64_t values = 1;
    put_text(&writer->table, name, strlen(name));
    put_u32(&writer->table, dimension_count);
    for (uint32_t i = 0; i < dimension_count; i++) {
        put_u64(&writer->table, dimensions[i]);
        CHECK(size_multiply(values, dimensions[i], &values));
    }
    put_u32(&writer->table, type->gguf_id);
    put_u64(&writer->table, writer->data_offset);
    if (writer->tensor_count == writer->tensor_capacity) {
        writer->tensor_capacity = writer->tensor_capacity * 2 + 64;
        writer->tensors =
            realloc(writer->tensors, writer->tensor_capacity * sizeof *writer->tensors);
        CHECK(writer->tensors != NULL);
    }
    const uint64_t bytes = values / type->block_values * type->block_bytes;
    const uint64_t padded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    writer->tensors[writer->tensor_count++] = (struct declared){bytes, padded};
    writer->data_offset += padded;
}

static enum status bytes_write(struct gguf_writer *writer, const void *data, size_t bytes,
                               struct error *error)
{
    if (bytes != 0 && fwrite(data, 1, bytes, writer->stream) != bytes)
        return error_set_errno(error, STATUS_IO, "cannot write %s", writer->part_path);
    return STATUS_OK;
}

static enum status zeros_write(struct gguf_writer *writer, uint64_t bytes, struct error *error)
{
    static const uint8_t zeros[ALIGNMENT];
    CHECK(bytes < ALIGNMENT);
    return bytes_write(writer, zeros, (size_t)bytes, error);
}

static enum status header_write(struct gguf_writer *writer, struct error *error)
{
    if (writer->data_begun)
        return STATUS_OK;
    writer->data_begun = true;
    struct buffer header = {0};
    buffer_add(&header, "GGUF", 4);
    put_u32(&header, VERSION);
    put_u64(&header, writer->tensor_count);
    put_u64(&header, writer->key_count);
    buffer_add(&header, writer->keys.data, writer->keys.size);
    buffer_add(&header, writer->table.data, writer->table.size);
    const enum status status = bytes_write(writer, header.data, header.size, error);
    const uint64_t padding = (ALIGNMENT - header.size % ALIGNMENT) % ALIGNMENT;
    buffer_free(&header);
    TRY(status);
    return zeros_write(writer, padding, error);
}

enum status gguf_writer_add_data(struct gguf_writer *writer, const void *data, size_t bytes,
                                 struct error *error)
{
    TRY(header_write(writer, error));
    const uint8_t *from = data;
    while (bytes != 0) {
        CHECK(writer->current < writer->tensor_count);
        const struct declared *tensor = &writer->tensors[writer->current];
        const uint64_t missing = tensor->bytes - writer->current_bytes;
        const size_t part = bytes < missing ? bytes : (size_t)missing;
        TRY(bytes_write(writer, from, part, error));
        from += part;
        bytes -= part;
        writer->current_bytes += part;
        if (part == missing) {
            TRY(zeros_write(writer, tensor->padded - tensor->bytes, error));
            writer->current++;
            writer->current_bytes = 0;
        }
    }
    return STATUS_OK;
}

static enum status file_finish(struct gguf_writer *writer, struct error *error)
{
    TRY(header_write(writer, error)); // a file without tensors has had no data
    if (writer->current != writer->tensor_count)
        return error_set(error, STATUS_INTERNAL,
                         "%s got the data of %llu tensors, %llu were declared", writer->path,
                         (unsigned long long)writer->current,
                         (unsigned long long)writer->tensor_count);
    if (fflush(writer->stream) != 0 || fsync(fileno(writer->stream)) != 0)
        return error_set_errno(error, STATUS_IO, "cannot write %s", writer->part_path);
    if (rename(writer->part_path, writer->path) != 0)
        return error_set_errno(error, STATUS_IO, "cannot rename %s to %s", writer->part_path,
                               writer->path);
    return STATUS_OK;
}

static void writer_free(struct gguf_writer *writer)
{
    if (writer->stream != NULL)
        fclose(writer->stream);
    buffer_free(&writer->keys);
    buffer_free(&writer->table);
    free(writer->tensors);
    free(writer->path);
    free(writer->part_path);
    free(writer);
}

enum status gguf_writer_finish(struct gguf_writer *writer, struct error *error)
{
    const enum status status = file_finish(writer, error);
    if (status != STATUS_OK)
        gguf_writer_abort(writer);
    else
        writer_free(writer);
    return status;
}

void gguf_writer_abort(struct gguf_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->stream != NULL)
        unlink(writer->part_path);
    writer_free(writer);
}
