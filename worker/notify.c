#include "worker/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

enum { NOTIFY_LINE_BYTES = 512 };

enum status notify_open(struct notify *notify, uint32_t fd, struct error *error)
{
    notify->fd = -1;
    if (fd == 0)
        return STATUS_OK;
    const int flags = fcntl((int)fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return error_set(error, STATUS_INVALID,
                         "--notify-fd: descriptor %" PRIu32 " is not open for writing", fd);
    notify->fd = (int)fd;
    return STATUS_OK;
}

void notify_line(struct notify *notify, const char *format, ...)
{
    if (notify->fd < 0)
        return;
    char line[NOTIFY_LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int wanted = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (wanted < 0)
        return;
    size_t bytes = strlen(line);
    for (size_t i = 0; i < bytes; i++) {
        if (line[i] == '\n' || line[i] == '\r')
            line[i] = ' ';
    }
    line[bytes++] = '\n';
    ssize_t written;
    do
        written = write(notify->fd, line, bytes);
    while (written < 0 && errno == EINTR);
    if (written >= 0 || errno == EAGAIN)
        return;
    LOG_DEBUG("nobody reads the notify descriptor any more: %s", strerror(errno));
    notify->fd = -1;
}
