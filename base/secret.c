#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/log.h"
#include "base/random.h"

enum { MADE_BYTES = 32 };

_Static_assert((int)SECRET_KEY_BYTES == (int)CRYPTO_MAC_BYTES, "a key is a digest of the secret");

/* Up to `room` bytes, or -1 with errno. */
static ssize_t read_whole(int fd, void *out, size_t room)
{
    size_t done = 0;
    while (done < room) {
        const ssize_t got = read(fd, (uint8_t *)out + done, room - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

/* The size of what is read, not that of the file: it may be written at this moment. */
static enum status secret_read(int fd, const char *path, struct secret *out, struct error *error)
{
    struct stat found;
    uint8_t bytes[SECRET_BYTES_MAX + 2];
    if (fstat(fd, &found) != 0)
        return error_set_errno(error, STATUS_IO, "the secret file %s cannot be examined", path);
    if (!S_ISREG(found.st_mode))
        return error_set(error, STATUS_INVALID, "the secret file %s is no ordinary file", path);
    const ssize_t got = read_whole(fd, bytes, sizeof bytes);
    if (got < 0)
        return error_set_errno(error, STATUS_IO, "the secret file %s cannot be read", path);
    size_t count = (size_t)got;
    if (count > 0 && bytes[count - 1] == '\n')
        count--;
    if (count < SECRET_BYTES_MIN || count > SECRET_BYTES_MAX) {
        crypto_wipe(bytes, sizeof bytes);
        return error_set(error, count < SECRET_BYTES_MIN ? STATUS_INVALID : STATUS_LIMIT,
                         "the secret file %s holds %s%zu bytes, a secret has %d to %d", path,
                         count > SECRET_BYTES_MAX ? "at least " : "", count, SECRET_BYTES_MIN,
                         SECRET_BYTES_MAX);
    }
    if (found.st_mode & (S_IRWXG | S_IRWXO))
        LOG_WARN("the secret file %s has mode %04o: others than its owner may use it, chmod 600 it",
                 path, (unsigned)found.st_mode & 07777u);
    memcpy(out->bytes, bytes, count);
    out->count = count;
    crypto_wipe(bytes, sizeof bytes);
    return STATUS_OK;
}

enum status secret_load(const char *path, struct secret *out, struct error *error)
{
    /* A pipe or a device that never answers must not hold up the start. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set_errno(error, STATUS_IO, "the secret file %s cannot be opened", path);
    const enum status status = secret_read(fd, path, out, error);
    close(fd);
    return status;
}

enum status secret_make(const char *path, struct error *error)
{
    uint8_t random[MADE_BYTES];
    char text[2 * MADE_BYTES + 2];
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return STATUS_OK;
    if (fd < 0)
        return error_set_errno(error, STATUS_IO, "the secret file %s cannot be made", path);
    random_os_bytes(random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(text + 2 * i, 3, "%02x", random[i]);
    text[sizeof text - 2] = '\n';
    /* So few bytes are written whole or not at all. */
    const bool written = write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1;
    enum status status = STATUS_OK;
    if (!written) {
        status = error_set_errno(error, STATUS_IO, "the secret file %s cannot be written", path);
        unlink(path);
    }
    close(fd);
    crypto_wipe(random, sizeof random);
    crypto_wipe(text, sizeof text);
    return status;
}

void secret_key(const struct secret *secret, const char *use, uint8_t out[SECRET_KEY_BYTES])
{
    crypto_mac(secret->bytes, secret->count, use, strlen(use), out);
}
