#include "tests/model/format/gguf_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"

static char path[128];

void put_u32(struct buffer *file, uint32_t value)
{
    uint8_t bytes[4];
    store_le32(bytes, value);
    buffer_add(file, bytes, sizeof bytes);
}

void put_u64(struct buffer *file, uint64_t value)
{
    uint8_t bytes[8];
    store_le64(bytes, value);
    buffer_add(file, bytes, sizeof bytes);
}

void put_f32(struct buffer *file, float value)
{
    buffer_add(file, &value, sizeof value);
}

void put_name(struct buffer *file, const char *name)
{
    put_u64(file, strlen(name));
    buffer_add_text(file, name);
}

void put_header(struct buffer *file, uint32_t version, uint64_t tensors, uint64_t keys)
{
    buffer_add(file, "GGUF", 4);
    put_u32(file, version);
    put_u64(file, tensors);
    put_u64(file, keys);
}

void put_key(struct buffer *file, const char *key, uint32_t type)
{
    put_name(file, key);
    put_u32(file, type);
}

void put_key_u32(struct buffer *file, const char *key, uint32_t value)
{
    put_key(file, key, GGUF_U32);
    put_u32(file, value);
}

void put_key_text(struct buffer *file, const char *key, const char *value)
{
    put_key(file, key, GGUF_STRING);
    put_name(file, value);
}

void put_tensor(struct buffer *file, const char *name, uint64_t width, uint64_t rows, uint32_t type,
                uint64_t offset)
{
    put_name(file, name);
    put_u32(file, 2);
    put_u64(file, width);
    put_u64(file, rows);
    put_u32(file, type);
    put_u64(file, offset);
}

void put_zeros(struct buffer *file, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        buffer_add_char(file, 0);
}

void put_padding(struct buffer *file, size_t alignment)
{
    put_zeros(file, (alignment - file->size % alignment) % alignment);
}

size_t put_good_file(struct buffer *file, uint32_t version)
{
    put_header(file, version, 2, 6);
    put_key_text(file, "general.architecture", "test");
    put_key_u32(file, "test.count", 7);
    put_key(file, "test.scale", GGUF_F32);
    put_f32(file, 0.5f);
    put_key(file, "test.flag", GGUF_BOOL);
    buffer_add_char(file, 1);
    put_key(file, "test.words", GGUF_ARRAY);
    put_u32(file, GGUF_STRING);
    put_u64(file, 3);
    put_name(file, "one");
    put_name(file, "");
    put_name(file, "three");
    put_key(file, "test.numbers", GGUF_ARRAY);
    put_u32(file, GGUF_I32);
    put_u64(file, 2);
    put_u32(file, 11);
    put_u32(file, (uint32_t)-12);
    put_tensor(file, "a", 4, 2, 0, 0);
    put_tensor(file, "b", 32, 3, 8, 32);
    put_padding(file, 32);
    for (int i = 0; i < 8; i++)
        put_f32(file, (float)i);
    for (int i = 0; i < 3 * 34; i++)
        buffer_add_char(file, (char)i);
    const size_t end = file->size;
    put_padding(file, 32);
    return end;
}

void gguf_bytes_remove(void)
{
    if (path[0] != '\0')
        unlink(path);
    path[0] = '\0';
}

const char *gguf_bytes_write(const struct buffer *file)
{
    gguf_bytes_remove();
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/baton-gguf-XXXXXX", folder != NULL ? folder : "/tmp");
    const int fd = mkstemp(path);
    CHECK(fd >= 0);
    for (size_t at = 0; at < file->size;) {
        const ssize_t written = write(fd, file->data + at, file->size - at);
        CHECK(written > 0);
        at += (size_t)written;
    }
    close(fd);
    return path;
}

enum status gguf_bytes_open(const struct buffer *file, struct gguf **out, struct error *error)
{
    const enum status status = gguf_open(gguf_bytes_write(file), out, error);
    gguf_bytes_remove();
    return status;
}

const char *gguf_bytes_shared(void)
{
    const char *folder = getenv("BATON_SHARED");
    return folder != NULL ? folder : BATON_SHARED_DIR;
}
