/* A model is a path: a GGUF file, any part of a split one, or a Hugging Face folder.
 *
 * The noun is `struct model_file`: what describes the model (keys of the GGUF file, or config.json)
 * and one table of the tensors of all its files. Immutable once open; any thread may read it. */
#ifndef BATON_MODEL_FORMAT_MODEL_FILE_H
#define BATON_MODEL_FORMAT_MODEL_FILE_H

#include <stdbool.h>

#include "base/status.h"
#include "model/format/tensor_view.h"

struct model_file;
struct gguf;
struct json;

enum {
    MODEL_CONFIG_BYTES_MAX = 4 << 20, /* config.json */
    MODEL_INDEX_BYTES_MAX = 32 << 20, /* model.safetensors.index.json */
};

/* A folder has config.json and model.safetensors, or the files that model.safetensors.index.json
 * names, with all that is in them; other files of weights in it are not looked at. CORRUPT,
 * UNSUPPORTED, INVALID, NOT_FOUND or IO with one sentence: a part or file that is missing, a tensor
 * that two files have. */
enum status model_file_open(const char *path, struct model_file **out, struct error *error);
void model_file_close(struct model_file *file); /* NULL is fine */

const char *model_file_path(const struct model_file *file);
const char *model_file_name(const struct model_file *file); /* its last part, for messages */
/* Exactly one of the two is not NULL: the first part of a GGUF model, or the folder's config.json,
 * an object. */
const struct gguf *model_file_gguf(const struct model_file *file);
const struct json *model_file_config(const struct model_file *file);
/* 40 hex digits where a folder is a snapshot of a revision, general.version of a GGUF file, or
 * empty. */
void model_file_revision(const struct model_file *file, char out[65]);

/* Whether `path` is one of the files that weights are read from. */
bool model_file_is_input(const struct model_file *file, const char *path);

/* In order of names. */
size_t model_file_tensor_count(const struct model_file *file);
const struct tensor_view *model_file_tensor_at(const struct model_file *file, size_t index);
/* NULL when there is none; *index_out (may be NULL) is its place in the table. */
const struct tensor_view *model_file_tensor_find(const struct model_file *file, const char *name,
                                                 size_t *index_out);
/* XXH3-128 over all tensor names, types, shapes and bytes (reads everything). */
struct digest128 model_file_digest(const struct model_file *file);

#endif
