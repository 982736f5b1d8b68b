/* Writes a GGUF v3 file: keys first, then tensors in the order they were declared, then data. */
#ifndef BATON_MODEL_FORMAT_GGUF_WRITER_H
#define BATON_MODEL_FORMAT_GGUF_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "model/format/quant_types.h"

struct gguf_writer;

/* Writes to path + ".part", renamed by gguf_writer_finish. */
enum status gguf_writer_open(const char *path, struct gguf_writer **out, struct error *error);
void gguf_writer_put_u32(struct gguf_writer *writer, const char *key, uint32_t value);
void gguf_writer_put_f32(struct gguf_writer *writer, const char *key, float value);
void gguf_writer_put_bool(struct gguf_writer *writer, const char *key, bool value);
void gguf_writer_put_string(struct gguf_writer *writer, const char *key, const char *value,
                            size_t bytes);
void gguf_writer_put_strings(struct gguf_writer *writer, const char *key, const char *const *values,
                             const uint32_t *bytes, uint64_t count);
void gguf_writer_put_i32s(struct gguf_writer *writer, const char *key, const int32_t *values,
                          uint64_t count);
/* A key of another file, as it is there. */
struct gguf_raw_key;
void gguf_writer_put_raw(struct gguf_writer *writer, const struct gguf_raw_key *key);
/* Declares a tensor; its data follows, in the same order, through gguf_writer_add_data. */
void gguf_writer_add_tensor(struct gguf_writer *writer, const char *name,
                            const struct quant_type *type, uint32_t dimension_count,
                            const uint64_t *dimensions);
/* The next bytes of tensor data, in any cuts. */
enum status gguf_writer_add_data(struct gguf_writer *writer, const void *data, size_t bytes,
                                 struct error *error);
/* Checks that every declared byte came, syncs, renames, frees. */
enum status gguf_writer_finish(struct gguf_writer *writer, struct error *error);
void gguf_writer_abort(struct gguf_writer *writer); /* removes the partial file, frees */

#endif
