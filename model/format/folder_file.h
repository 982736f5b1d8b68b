/* The small files of a model's folder, read as a whole: configuration, vocabulary, template. They
 * are not mapped, so that one which changes under us is an error and no signal. */
#ifndef BATON_MODEL_FORMAT_FOLDER_FILE_H
#define BATON_MODEL_FORMAT_FOLDER_FILE_H

#include "base/bytes.h"
#include "base/status.h"

struct json;

enum { FOLDER_PATH_BYTES = 4096 };

/* The path of a file of a folder; LIMIT when it is too long. */
enum status folder_file_path(const char *folder, const char *name, char out[FOLDER_PATH_BYTES],
                             struct error *error);
/* The file into *out, which is empty, and a NUL that is not counted. NOT_FOUND when it is not
 * there. */
enum status folder_file_read(const char *path, size_t bytes_max, struct buffer *out,
                             struct error *error);
/* What folder_file_read gave, as an object; the caller frees it. */
enum status folder_file_object(const char *path, const struct buffer *text, struct json **out,
                               struct error *error);

#endif
