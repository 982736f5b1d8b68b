/* Text that commands take and give: whole files, standard input and output. */
#ifndef BATON_OPS_BATON_TEXT_INPUT_H
#define BATON_OPS_BATON_TEXT_INPUT_H

#include "base/bytes.h"
#include "base/status.h"

enum { TEXT_INPUT_BYTES_MAX = 1 << 28 };

/* All of standard input; LIMIT when it is longer than TEXT_INPUT_BYTES_MAX. */
enum status text_input_read(struct buffer *out, struct error *error);
/* A file of at most so many bytes, added to *out; LIMIT with its path for a longer one. */
enum status text_file_read(const char *path, size_t bytes_max, struct buffer *out,
                           struct error *error);
/* Everything to standard output, flushed; IO when it could not be written. */
enum status text_output_write(const struct buffer *bytes, struct error *error);

#endif
