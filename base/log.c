#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"

enum { LINE_BYTES = 2048 };

/* What needs a person is in capitals; the priority is the one of syslog(3). */
static const struct level_row {
    const char *setting, *shown;
    int priority;
} levels[] = {
    [LOG_LEVEL_ERROR] = {"error", "ERROR", 3},
    [LOG_LEVEL_WARN] = {"warn", "WARN ", 4},
    [LOG_LEVEL_INFO] = {"info", "info ", 6},
    [LOG_LEVEL_DEBUG] = {"debug", "debug", 7},
};

static const char *_Atomic program = "baton";
static atomic_int threshold = LOG_LEVEL_INFO;
static atomic_bool to_journal;

/* The service manager puts "device:inode" of the journal's socket there; it is ours only while
 * standard error still is that socket. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat stat;
    if (!stream || fstat(STDERR_FILENO, &stat) != 0)
        return false;
    char own[64];
    snprintf(own, sizeof own, "%ju:%ju", (uintmax_t)stat.st_dev, (uintmax_t)stat.st_ino);
    return strcmp(stream, own) == 0;
}

void log_init(const char *name, enum log_level level)
{
    atomic_store(&program, name);
    atomic_store(&to_journal, stderr_is_journal());
    const char *wanted = getenv("BATON_LOG");
    bool known = !wanted || !*wanted;
    for (size_t i = 0; wanted && i < ARRAY_COUNT(levels); i++) {
        if (strcmp(wanted, levels[i].setting) == 0) {
            level = (enum log_level)i;
            known = true;
        }
    }
    atomic_store(&threshold, (int)level);
    if (!known)
        LOG_WARN("BATON_LOG is \"%s\", which is none of error, warn, info, debug", wanted);
}

static int write_prefix(char *line, size_t bytes, enum log_level level)
{
    const struct level_row *row = &levels[level];
    const char *name = atomic_load_explicit(&program, memory_order_relaxed);
    if (atomic_load_explicit(&to_journal, memory_order_relaxed))
        return snprintf(line, bytes, "<%d>%.64s: ", row->priority, name);
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    return snprintf(line, bytes,
                    "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ %s %.64s: ", utc.tm_year + 1900,
                    utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                    (int)(now.tv_nsec / 1000000), row->shown, name);
}

/* One write(2) unless the descriptor takes only a part. There is nobody to tell about a failure. */
static void write_line(const char *line, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t done = write(STDERR_FILENO, line, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return;
        line += done;
        bytes -= (size_t)done;
    }
}

void log_write(enum log_level level, const char *format, ...)
{
    if ((int)level > atomic_load_explicit(&threshold, memory_order_relaxed))
        return;
    const int saved = errno;
    char line[LINE_BYTES];
    size_t at = (size_t)write_prefix(line, sizeof line, level);
    const size_t text = at;
    const size_t room = sizeof line - at - 1; /* one byte stays for the newline */
    va_list arguments;
    va_start(arguments, format);
    errno = saved; /* for %m */
    const int wanted = vsnprintf(line + at, room, format, arguments);
    va_end(arguments);
    if (wanted > 0 && (size_t)wanted >= room) {
        at += room - 1;
        for (size_t dot = 1; dot <= 3; dot++)
            line[at - dot] = '.';
    } else if (wanted > 0) {
        at += (size_t)wanted;
    }
    /* Texts from outside must not be able to forge a line. */
    for (size_t i = text; i < at; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = ' ';
    }
    line[at++] = '\n';
    write_line(line, at);
    errno = saved;
}
