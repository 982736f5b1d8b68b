#include "model/format/folder_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"

enum status folder_file_path(const char *folder, const char *name, char out[FOLDER_PATH_BYTES],
                             struct error *error)
{
    const int bytes = snprintf(out, FOLDER_PATH_BYTES, "%s/%s", folder, name);
    if (bytes < 0 || bytes >= FOLDER_PATH_BYTES)
        return error_set(error, STATUS_LIMIT, "a path of %d bytes is over the limit of %d", bytes,
                         FOLDER_PATH_BYTES - 1);
    return STATUS_OK;
}

static enum status descriptor_read(int fd, const char *path, size_t bytes_max, struct buffer *out,
                                   struct error *error)
{
    struct stat entry;
    if (fstat(fd, &entry) != 0)
        return error_set_errno(error, STATUS_IO, "cannot look at %s", path);
    if (!S_ISREG(entry.st_mode))
        return error_set(error, STATUS_INVALID, "%s is not a file", path);
    if ((uint64_t)entry.st_size > bytes_max)
        return error_set(error, STATUS_LIMIT, "%s has %llu bytes, the limit is %zu", path,
                         (unsigned long long)entry.st_size, bytes_max);
    const size_t bytes = (size_t)entry.st_size;
    buffer_reserve(out, bytes);
    while (out->size < bytes) {
        const ssize_t got = read(fd, out->data + out->size, bytes - out->size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set_errno(error, STATUS_IO, "cannot read %s", path);
        if (got == 0)
            return error_set(error, STATUS_IO, "%s became shorter while it was read", path);
        out->size += (size_t)got;
    }
    out->data[bytes] = '\0';
    return STATUS_OK;
}

enum status folder_file_read(const char *path, size_t bytes_max, struct buffer *out,
                             struct error *error)
{
    /* Non-blocking, so that a FIFO in place of a file does not hang us. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set_errno(error,
                               errno == ENOENT || errno == ENOTDIR ? STATUS_NOT_FOUND : STATUS_IO,
                               "cannot open %s", path);
    const enum status status = descriptor_read(fd, path, bytes_max, out, error);
    close(fd);
    return status;
}

enum status folder_file_object(const char *path, const struct buffer *text, struct json **out,
                               struct error *error)
{
    struct error cause;
    struct json *root = NULL;
    if (json_parse(text->data, text->size, &root, &cause) != STATUS_OK)
        return error_set(error, STATUS_CORRUPT, "%s: %s", path, cause.text);
    if (json_kind(root) != JSON_OBJECT) {
        error_set(error, STATUS_CORRUPT, "%s holds %s, it must be an object", path,
                  json_kind_name(json_kind(root)));
        json_free(root);
        return STATUS_CORRUPT;
    }
    *out = root;
    return STATUS_OK;
}
