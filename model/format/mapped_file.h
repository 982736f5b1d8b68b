/* A file in memory, read only. */
#ifndef BATON_MODEL_FORMAT_MAPPED_FILE_H
#define BATON_MODEL_FORMAT_MAPPED_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct mapped_file {
    const uint8_t *data; /* NULL: nothing is mapped */
    size_t bytes;        /* never 0 when something is */
};

/* kind: what is wanted, for the sentence ("a GGUF file"). NOT_FOUND or IO when it cannot be opened,
 * CORRUPT when it is no regular file or empty. Unmapped by mapped_file_close. */
enum status mapped_file_open(const char *path, const char *kind, struct mapped_file *out,
                             struct error *error);
void mapped_file_close(struct mapped_file *file); /* fine where nothing is mapped */

#endif
