#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/utf8.h"

enum { TEXT_BYTES = 1950, VALUE_BYTES = 256, LINE_BYTES = 12288 };

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
static atomic_bool to_journal, as_json;
static atomic_int journal_socket = -1; /* -1: lines for its stream instead */
static const char *journal_path = "/run/systemd/journal/socket";

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

void log_set_journal_socket(const char *path)
{
    journal_path = path;
}

/* A datagram socket: sending to it never waits. */
static void open_journal_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", journal_path);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return;
    }
    const int before = atomic_exchange(&journal_socket, fd);
    if (before >= 0)
        close(before);
}

/* Sets level from BATON_LOG; false when that is no level. */
static bool read_level(enum log_level *level)
{
    const char *wanted = getenv("BATON_LOG");
    bool known = !wanted || !*wanted;
    for (size_t i = 0; wanted && i < ARRAY_COUNT(levels); i++) {
        if (strcmp(wanted, levels[i].setting) == 0) {
            *level = (enum log_level)i;
            known = true;
        }
    }
    return known;
}

void log_init(const char *name, enum log_level level)
{
    const char *format = getenv("BATON_LOG_FORMAT");
    atomic_store(&program, name);
    atomic_store(&to_journal, stderr_is_journal());
    if (atomic_load(&to_journal))
        open_journal_socket();
    atomic_store(&as_json, format && strcmp(format, "json") == 0);
    const bool known = read_level(&level);
    atomic_store(&threshold, (int)level);
    if (!known)
        LOG_WARN("BATON_LOG is \"%s\", which is none of error, warn, info, debug",
                 getenv("BATON_LOG"));
    if (format && *format && strcmp(format, "text") != 0 && strcmp(format, "json") != 0)
        LOG_WARN("BATON_LOG_FORMAT is \"%s\", which is none of text, json", format);
}

static void write_time(char *text, size_t bytes)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    snprintf(text, bytes, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900, utc.tm_mon + 1,
             utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, (int)(now.tv_nsec / 1000000));
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

/* A line that grows; what does not fit is left out. */
struct line {
    size_t size;
    char data[LINE_BYTES];
};

__attribute__((format(printf, 2, 3))) static void line_add(struct line *line, const char *format,
                                                           ...)
{
    va_list arguments;
    va_start(arguments, format);
    const size_t room = sizeof line->data - line->size;
    const int wanted = vsnprintf(line->data + line->size, room, format, arguments);
    va_end(arguments);
    if (wanted > 0)
        line->size += (size_t)wanted < room ? (size_t)wanted : room - 1;
}

/* The inside of a JSON string. Control characters are spaces already. */
static void line_add_escaped(struct line *line, const char *text)
{
    const size_t bytes = strlen(text);
    for (size_t i = 0; i < bytes;) {
        const int length = utf8_sequence((const uint8_t *)text + i, bytes - i, NULL);
        if (length <= 0)
            line_add(line, "\xEF\xBF\xBD");
        else
            line_add(line, "%s%.*s", text[i] == '"' || text[i] == '\\' ? "\\" : "", length,
                     text + i);
        i += length > 0 ? (size_t)length : 1;
    }
}

static void line_add_json(struct line *line, const char *name, const char *value)
{
    line_add(line, "%c\"%s\":\"", line->size == 0 ? '{' : ',', name);
    line_add_escaped(line, value);
    line_add(line, "\"");
}

static void make_json(struct line *line, const struct level_row *row, const char *name,
                      const char *text, const struct log_field *fields, uint32_t count)
{
    char time[80];
    write_time(time, sizeof time);
    line_add_json(line, "time", time);
    line_add_json(line, "level", row->setting);
    line_add_json(line, "program", name);
    line_add_json(line, "message", text);
    for (uint32_t i = 0; i < count; i++)
        line_add_json(line, fields[i].name, fields[i].value);
    line_add(line, "}\n");
}

/* The journal's native protocol: NAME=value, one a line. */
static bool send_to_journal(struct line *line, const struct level_row *row, const char *name,
                            const char *text, const struct log_field *fields, uint32_t count)
{
    const int fd = atomic_load_explicit(&journal_socket, memory_order_relaxed);
    if (fd < 0)
        return false;
    line_add(line, "PRIORITY=%d\nSYSLOG_IDENTIFIER=%.64s\nMESSAGE=%s\n", row->priority, name, text);
    for (uint32_t i = 0; i < count; i++) {
        const size_t at = line->size + strlen("BATON_");
        line_add(line, "BATON_%s=", fields[i].name);
        for (size_t k = at; k + 1 < line->size; k++)
            line->data[k] = (char)toupper((unsigned char)line->data[k]);
        line_add(line, "%s\n", fields[i].value);
    }
    const bool sent = send(fd, line->data, line->size, MSG_NOSIGNAL) == (ssize_t)line->size;
    line->size = 0;
    return sent;
}

static void make_text(struct line *line, const struct level_row *row, const char *name,
                      const char *text, const struct log_field *fields, uint32_t count)
{
    char time[80];
    write_time(time, sizeof time);
    if (atomic_load_explicit(&to_journal, memory_order_relaxed))
        line_add(line, "<%d>%.64s: %s", row->priority, name, text);
    else
        line_add(line, "%s %s %.64s: %s", time, row->shown, name, text);
    for (uint32_t i = 0; i < count; i++)
        line_add(line, " %s=%s", fields[i].name, fields[i].value);
    line_add(line, "\n");
}

/* Texts from outside must not be able to forge a line, nor to act on a terminal: the controls
 * behind ASCII are 0xc2 and 0x80 to 0x9f in UTF-8. */
static void clean(char *text)
{
    for (; *text; text++) {
        const unsigned char byte = (unsigned char)*text, next = (unsigned char)text[1];
        if (byte < 0x20 || byte == 0x7f)
            *text = ' ';
        else if (byte == 0xc2 && next >= 0x80 && next < 0xa0)
            text[0] = text[1] = ' ';
    }
}

static void write_message(enum log_level level, const struct log_field *fields, uint32_t count,
                          const char *format, va_list arguments)
{
    const int saved = errno;
    const struct level_row *row = &levels[level];
    const char *name = atomic_load_explicit(&program, memory_order_relaxed);
    char text[TEXT_BYTES], values[LOG_FIELDS_MAX][VALUE_BYTES];
    struct log_field present[LOG_FIELDS_MAX];
    struct line line;
    line.size = 0;
    const int wanted = vsnprintf(text, sizeof text, format, arguments); /* errno is there for %m */
    if (wanted >= (int)sizeof text)
        memcpy(text + sizeof text - 4, "...", 4);
    clean(text);
    uint32_t present_count = 0;
    for (uint32_t i = 0; i < count && present_count < LOG_FIELDS_MAX; i++) {
        if (!fields[i].value)
            continue;
        snprintf(values[present_count], sizeof *values, "%s", fields[i].value);
        clean(values[present_count]);
        present[present_count] =
            (struct log_field){.name = fields[i].name, .value = values[present_count]};
        present_count++;
    }
    const bool json = atomic_load_explicit(&as_json, memory_order_relaxed);
    if (!atomic_load_explicit(&to_journal, memory_order_relaxed) ||
        !send_to_journal(&line, row, name, text, present, present_count)) {
        (json ? make_json : make_text)(&line, row, name, text, present, present_count);
        write_line(line.data, line.size);
    }
    errno = saved;
}

void log_write(enum log_level level, const char *format, ...)
{
    if ((int)level > atomic_load_explicit(&threshold, memory_order_relaxed))
        return;
    va_list arguments;
    va_start(arguments, format);
    write_message(level, NULL, 0, format, arguments);
    va_end(arguments);
}

void log_write_with(enum log_level level, const struct log_field *fields, uint32_t count,
                    const char *format, ...)
{
    if ((int)level > atomic_load_explicit(&threshold, memory_order_relaxed))
        return;
    va_list arguments;
    va_start(arguments, format);
    write_message(level, fields, count, format, arguments);
    va_end(arguments);
}
