#include "base/bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "load_le* and store_le* copy, so the host must be little-endian");

void buffer_reserve(struct buffer *buffer, size_t more)
{
    uint64_t needed;
    CHECK(size_add(buffer->size, more, &needed) && size_add(needed, 1, &needed));
    if (needed <= buffer->capacity)
        return;
    size_t capacity = buffer->capacity ? buffer->capacity : 64;
    while (capacity < needed)
        CHECK(!__builtin_mul_overflow(capacity, (size_t)2, &capacity));
    char *data = realloc(buffer->data, capacity);
    CHECK(data != NULL);
    data[buffer->size] = '\0';
    buffer->data = data;
    buffer->capacity = capacity;
}

void buffer_add(struct buffer *buffer, const void *data, size_t bytes)
{
    buffer_reserve(buffer, bytes);
    if (bytes > 0)
        memcpy(buffer->data + buffer->size, data, bytes);
    buffer->size += bytes;
    buffer->data[buffer->size] = '\0';
}

void buffer_add_text(struct buffer *buffer, const char *text)
{
    buffer_add(buffer, text, strlen(text));
}

void buffer_add_char(struct buffer *buffer, char c)
{
    buffer_add(buffer, &c, 1);
}

void buffer_printf(struct buffer *buffer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    buffer_reserve(buffer, 0);
    const size_t room = buffer->capacity - buffer->size;
    const int wanted = vsnprintf(buffer->data + buffer->size, room, format, arguments);
    CHECK(wanted >= 0);
    if ((size_t)wanted >= room) {
        buffer_reserve(buffer, (size_t)wanted);
        vsnprintf(buffer->data + buffer->size, (size_t)wanted + 1, format, again);
    }
    buffer->size += (size_t)wanted;
    va_end(again);
    va_end(arguments);
}

void buffer_consume(struct buffer *buffer, size_t bytes)
{
    CHECK(bytes <= buffer->size);
    if (bytes == 0)
        return;
    buffer->size -= bytes;
    memmove(buffer->data, buffer->data + bytes, buffer->size + 1);
}

void buffer_clear(struct buffer *buffer)
{
    buffer->size = 0;
    if (buffer->data)
        buffer->data[0] = '\0';
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}

void reader_init(struct reader *reader, const void *data, size_t bytes)
{
    *reader = (struct reader){.data = data, .size = bytes};
}

const void *reader_bytes(struct reader *reader, uint64_t bytes)
{
    if (reader->failed || bytes > reader_left(reader)) {
        reader->failed = true;
        return NULL;
    }
    const void *at = reader->data + reader->offset;
    reader->offset += (size_t)bytes;
    return at;
}

uint8_t reader_u8(struct reader *reader)
{
    const uint8_t *at = reader_bytes(reader, 1);
    return at ? *at : 0;
}

uint16_t reader_u16(struct reader *reader)
{
    const void *at = reader_bytes(reader, sizeof(uint16_t));
    return at ? load_le16(at) : 0;
}

uint32_t reader_u32(struct reader *reader)
{
    const void *at = reader_bytes(reader, sizeof(uint32_t));
    return at ? load_le32(at) : 0;
}

uint64_t reader_u64(struct reader *reader)
{
    const void *at = reader_bytes(reader, sizeof(uint64_t));
    return at ? load_le64(at) : 0;
}
