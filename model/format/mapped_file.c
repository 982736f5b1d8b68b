#include "model/format/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum status mapped_file_open(const char *path, const char *kind, struct mapped_file *out,
                             struct error *error)
{
    /* Non-blocking, so that a FIFO in place of a file does not hang us. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set_errno(error, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO,
                               "cannot open the model file %s", path);
    struct stat info;
    if (fstat(fd, &info) != 0) {
        const enum status status = error_set_errno(error, STATUS_IO, "cannot stat %s", path);
        close(fd);
        return status;
    }
    if (!S_ISREG(info.st_mode) || info.st_size == 0) {
        close(fd);
        return error_set(error, STATUS_CORRUPT, "%s is %s, %s is needed", path,
                         S_ISDIR(info.st_mode)    ? "a directory"
                         : !S_ISREG(info.st_mode) ? "not a regular file"
                                                  : "empty",
                         kind);
    }
    const size_t bytes = (size_t)info.st_size;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    const int map_errno = errno;
    close(fd);
    if (map == MAP_FAILED) {
        errno = map_errno;
        return error_set_errno(error, STATUS_IO, "cannot map the %zu bytes of %s", bytes, path);
    }
    *out = (struct mapped_file){map, bytes};
    return STATUS_OK;
}

void mapped_file_close(struct mapped_file *file)
{
    if (file->data != NULL)
        munmap((void *)(uintptr_t)file->data, file->bytes);
    *file = (struct mapped_file){0};
}
