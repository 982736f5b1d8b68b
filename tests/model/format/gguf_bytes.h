/* GGUF files put together by hand, right or wrong, without the product's writer. */
#ifndef BATON_TESTS_MODEL_GGUF_BYTES_H
#define BATON_TESTS_MODEL_GGUF_BYTES_H

#include <stdint.h>

#include "base/bytes.h"
#include "model/format/gguf.h"

void put_u32(struct buffer *file, uint32_t value);
void put_u64(struct buffer *file, uint64_t value);
void put_f32(struct buffer *file, float value);
/* A 64-bit length and the letters. */
void put_name(struct buffer *file, const char *name);

/* Magic, version and counts. */
void put_header(struct buffer *file, uint32_t version, uint64_t tensors, uint64_t keys);
void put_key(struct buffer *file, const char *key, uint32_t type);
void put_key_u32(struct buffer *file, const char *key, uint32_t value);
void put_key_text(struct buffer *file, const char *key, const char *value);
/* One row of the tensor table with two dimensions. */
void put_tensor(struct buffer *file, const char *name, uint64_t width, uint64_t rows, uint32_t type,
                uint64_t offset);
/* Zeros up to a multiple of `alignment`. */
void put_padding(struct buffer *file, size_t alignment);
void put_zeros(struct buffer *file, size_t bytes);

/* A right file: six keys of several types, two tensors ("a": F32 4x2, "b": Q8_0 32x3). Returns
 * where the data of the last tensor ends. */
size_t put_good_file(struct buffer *file, uint32_t version);

/* Writes the bytes to a file that lasts until the next call or gguf_bytes_remove. */
const char *gguf_bytes_write(const struct buffer *file);
void gguf_bytes_remove(void);
/* Writes and opens; on success the caller closes *out, the file on disk may be gone by then. */
enum status gguf_bytes_open(const struct buffer *file, struct gguf **out, struct error *error);

/* Folder of reference data. */
const char *gguf_bytes_shared(void);

#endif
