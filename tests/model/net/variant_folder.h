/* The cases of variants/: folders of tiny models in the corners of the architectures, with logits
 * that another program computed (make_variants.py). Weights are made on the spot. */
#ifndef BATON_TESTS_MODEL_VARIANT_FOLDER_H
#define BATON_TESTS_MODEL_VARIANT_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

struct json;

/* tensors, ids, rows and logits of a case; the caller frees it. */
struct json *variant_read(const char *name);
/* Values of tensor `index` of a case; the caller frees them. */
float *variant_values(const struct json *variant, size_t index, size_t *count_out);
/* columns 0: a vector of `rows` values. */
void variant_shape(const struct json *variant, size_t index, uint32_t *rows_out,
                   uint32_t *columns_out);
const char *variant_tensor_name(const struct json *variant, size_t index);

/* Appends the case's config.json. */
void variant_config(const char *name, struct buffer *out);

/* Writes config.json and model.safetensors of the case into a new folder (model_folder.h), in
 * F32. */
const char *variant_write(const char *name);

/* A safetensors file that is being put together. */
struct tensor_file {
    struct buffer header, data;
};
/* bytes: of the values, of `dtype`; columns 0: a vector; rows 0: one value without dimensions. */
void tensor_file_add(struct tensor_file *file, const char *name, const char *dtype, uint64_t rows,
                     uint64_t columns, const void *values, size_t bytes);
/* Into the folder of model_folder_make; the file is empty afterwards. */
void tensor_file_write(struct tensor_file *file, const char *name);

/* Tensors of a case of four layers in F32; with more layers its own come again and again. */
void variant_add_layers(const struct json *variant, uint32_t layers, struct tensor_file *file);

#endif
