/* safetensors files, read by mmap: a length of 8 bytes, a header of JSON, then the tensors one
 * after another.
 *
 * The file is hostile until proved otherwise: the header's length is compared with the file and a
 * limit before anything is read, every tensor's extent with its shape, and together the tensors
 * must fill the data without hole or overlap. An open file is immutable; any thread may read it. */
#ifndef BATON_MODEL_FORMAT_SAFETENSORS_H
#define BATON_MODEL_FORMAT_SAFETENSORS_H

#include "base/status.h"
#include "model/format/tensor_view.h"

struct safetensors;

enum {
    SAFETENSORS_HEADER_BYTES_MAX = 32 << 20,
    SAFETENSORS_NAME_BYTES_MAX = 255,
};

enum status safetensors_open(const char *path, struct safetensors **out, struct error *error);
void safetensors_close(struct safetensors *file); /* NULL is fine */

/* In order of their place in the file. A type that Baton does not know has a type_name only. */
size_t safetensors_tensor_count(const struct safetensors *file);
const struct tensor_view *safetensors_tensor_at(const struct safetensors *file, size_t index);
/* NULL when there is none. */
const struct tensor_view *safetensors_tensor_find(const struct safetensors *file, const char *name);

#endif
