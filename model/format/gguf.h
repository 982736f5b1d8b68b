/* GGUF v2/v3 files, read by mmap.
 *
 * The file is hostile until proved otherwise: every count, size, type, offset and string length is
 * checked against the file before use, nothing is allocated beyond a multiple of the file's own
 * size, and a failure is one sentence that names the key or tensor, the value and the limit. An
 * open file is immutable; any thread may read it. */
#ifndef BATON_MODEL_FORMAT_GGUF_H
#define BATON_MODEL_FORMAT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"
#include "model/format/tensor_view.h"

struct gguf;

enum gguf_value_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

enum { GGUF_NAME_BYTES_MAX = 64 };

/* A string inside the mapping; not terminated. */
struct gguf_string {
    const char *data;
    size_t bytes;
};

/* Wrong magic, big-endian, v1, truncated, overlapping, duplicate names, bad alignment: CORRUPT or
 * UNSUPPORTED; not there or unreadable: NOT_FOUND or IO. */
enum status gguf_open(const char *path, struct gguf **file_out, struct error *error);
void gguf_close(struct gguf *file);
const char *gguf_path(const struct gguf *file);
size_t gguf_file_bytes(const struct gguf *file);

/* Values. Integers of any width convert where the value fits (a bool is not an integer).
 * NOT_FOUND when the key is absent, INVALID when its type or range is another; *error then says so
 * (error may be NULL for optional keys). */
enum status gguf_get_u32(const struct gguf *file, const char *key, uint32_t *out,
                         struct error *error);
enum status gguf_get_u64(const struct gguf *file, const char *key, uint64_t *out,
                         struct error *error);
enum status gguf_get_f32(const struct gguf *file, const char *key, float *out, struct error *error);
enum status gguf_get_bool(const struct gguf *file, const char *key, bool *out, struct error *error);
enum status gguf_get_string(const struct gguf *file, const char *key, struct gguf_string *out,
                            struct error *error);
/* Element count and type of an array. */
enum status gguf_get_array(const struct gguf *file, const char *key, enum gguf_value_type *type_out,
                           uint64_t *count_out, struct error *error);
/* The whole of a string array: out[count], which the caller owns and frees with free(). */
enum status gguf_get_strings(const struct gguf *file, const char *key, struct gguf_string **out,
                             uint64_t *count_out, struct error *error);
/* Packed elements of a fixed-size numeric array; unaligned. */
enum status gguf_get_numbers(const struct gguf *file, const char *key, enum gguf_value_type type,
                             const void **data_out, uint64_t *count_out, struct error *error);

size_t gguf_tensor_count(const struct gguf *file);
const struct tensor_view *gguf_tensor_at(const struct gguf *file, size_t index);
const struct tensor_view *gguf_tensor_find(const struct gguf *file, const char *name);

/* A key with its value as the file has it, to be copied into another file. */
struct gguf_raw_key {
    struct gguf_string name;
    enum gguf_value_type type;
    struct gguf_string value; /* of an array: element type and count come first */
};
size_t gguf_key_count(const struct gguf *file);
struct gguf_raw_key gguf_key_at(const struct gguf *file, size_t index);

/* A part of a model that is split over several files: number (from 0) and count of them, and the
 * tensors of all. A file that is whole is part 0 of 1, with its own tensors. */
struct gguf_split {
    uint32_t number, count;
    uint64_t tensor_count;
};
enum { GGUF_PARTS_MAX = 1024 };
struct gguf_split gguf_split(const struct gguf *file);

/* XXH3-128 over all tensor names, types, shapes and bytes (reads the whole file). */
struct digest128 gguf_weights_digest(const struct gguf *file);

#endif
