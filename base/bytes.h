/* Growable byte buffer, bounded reading of foreign bytes, little-endian loads and stores. */
#ifndef BATON_BASE_BYTES_H
#define BATON_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t load_le16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint32_t load_le32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint64_t load_le64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void store_le16(void *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}
static inline void store_le32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}
static inline void store_le64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

/* A buffer that grows by doubling. Zero-initialised is empty; data is always followed by a NUL that
 * size does not count. Out of memory aborts: use only where the caller bounds the size. */
struct buffer {
    char *data;
    size_t size, capacity;
};
void buffer_reserve(struct buffer *buffer, size_t more);
void buffer_add(struct buffer *buffer, const void *data, size_t bytes);
void buffer_add_text(struct buffer *buffer, const char *text);
void buffer_add_char(struct buffer *buffer, char c);
void buffer_printf(struct buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Drops the first `bytes` bytes. */
void buffer_consume(struct buffer *buffer, size_t bytes);
void buffer_clear(struct buffer *buffer); /* keeps the memory */
void buffer_free(struct buffer *buffer);

/* Reads forward through foreign bytes; after the first overrun `failed` stays set and every read
 * gives zero, so that one check at the end is enough. */
struct reader {
    const uint8_t *data;
    size_t size, offset;
    bool failed;
};
void reader_init(struct reader *reader, const void *data, size_t bytes);
uint8_t reader_u8(struct reader *reader);
uint16_t reader_u16(struct reader *reader);
uint32_t reader_u32(struct reader *reader);
uint64_t reader_u64(struct reader *reader);
/* Pointer to `bytes` bytes inside the data, NULL on overrun. */
const void *reader_bytes(struct reader *reader, uint64_t bytes);
static inline size_t reader_left(const struct reader *reader)
{
    return reader->size - reader->offset;
}

/* a*b and a+b for sizes; false when the result does not fit. */
static inline bool size_multiply(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool size_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

#endif
