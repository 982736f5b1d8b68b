#include "ops/baton/text_input.h"

#include <stdbool.h>
#include <stdio.h>

enum { READ_BYTES = 1 << 16 };

enum status text_input_read(struct buffer *out, struct error *error)
{
    for (;;) {
        buffer_reserve(out, READ_BYTES);
        const size_t count = fread(out->data + out->size, 1, READ_BYTES, stdin);
        out->size += count;
        if (count == 0)
            break;
        if (out->size > TEXT_INPUT_BYTES_MAX)
            return error_set(error, STATUS_LIMIT,
                             "standard input has more than %d bytes, the limit",
                             TEXT_INPUT_BYTES_MAX);
    }
    if (ferror(stdin))
        return error_set_errno(error, STATUS_IO, "cannot read standard input");
    return STATUS_OK;
}

enum status text_file_read(const char *path, size_t bytes_max, struct buffer *out,
                           struct error *error)
{
    const size_t before = out->size;
    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return error_set_errno(error, STATUS_IO, "cannot open %s", path);
    while (out->size - before <= bytes_max) {
        buffer_reserve(out, READ_BYTES);
        const size_t count = fread(out->data + out->size, 1, READ_BYTES, file);
        out->size += count;
        if (count == 0)
            break;
    }
    const bool failed = ferror(file) != 0;
    fclose(file);
    if (failed)
        return error_set_errno(error, STATUS_IO, "cannot read %s", path);
    if (out->size - before > bytes_max)
        return error_set(error, STATUS_LIMIT, "%s has more than %zu bytes", path, bytes_max);
    return STATUS_OK;
}

enum status text_output_write(const struct buffer *bytes, struct error *error)
{
    const bool written = bytes->size == 0 || fwrite(bytes->data, bytes->size, 1, stdout) == 1;
    if (!written || fflush(stdout) != 0)
        return error_set_errno(error, STATUS_IO, "cannot write standard output");
    return STATUS_OK;
}
