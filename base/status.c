#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"

static const struct status_row {
    enum status status;
    enum status_scope scope;
    const char *name, *sentence;
} rows[] = {
#define X(name, value, scope, sentence) {STATUS_##name, SCOPE_##scope, #name, sentence},
#include "base/status.def"
#undef X
};

static const struct status_row *row_of(enum status status)
{
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        if (rows[i].status == status)
            return &rows[i];
    }
    return NULL;
}

const char *status_name(enum status status)
{
    const struct status_row *row = row_of(status);
    return row ? row->name : "UNKNOWN";
}

const char *status_sentence(enum status status)
{
    const struct status_row *row = row_of(status);
    return row ? row->sentence : "a status that is not in the table";
}

enum status_scope status_scope(enum status status)
{
    const struct status_row *row = row_of(status);
    return row ? row->scope : SCOPE_PROCESS;
}

/* Sentences quote what files and clients say. What would act on a terminal or break a line of the
 * log, and what is no UTF-8, becomes '?', byte by byte. */
static void replace_unprintable(char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t code_point = 0;
        int length = utf8_sequence((const uint8_t *)text + at, bytes - at, &code_point);
        if (length <= 0 || code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0)) {
            length = length <= 0 ? 1 : length;
            memset(text + at, '?', (size_t)length);
        }
        at += (size_t)length;
    }
}

/* Formats at `offset`; a text that had to be cut ends on a whole UTF-8 sequence. */
__attribute__((format(printf, 3, 0))) static size_t format_at(struct error *error, size_t offset,
                                                              const char *format, va_list arguments)
{
    const size_t room = sizeof error->text - offset;
    const int wanted = vsnprintf(error->text + offset, room, format, arguments);
    if (wanted < 0) {
        error->text[offset] = '\0';
        return offset;
    }
    const size_t kept = (size_t)wanted < room
                            ? (size_t)wanted
                            : room - 1 - utf8_unfinished(error->text + offset, room - 1);
    error->text[offset + kept] = '\0';
    replace_unprintable(error->text + offset, kept);
    return offset + kept;
}

__attribute__((format(printf, 3, 4))) static size_t append(struct error *error, size_t offset,
                                                           const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const size_t end = format_at(error, offset, format, arguments);
    va_end(arguments);
    return end;
}

enum status(error_set)(struct error *error, enum status status, const char *format, ...)
{
    if (!error)
        return status;
    va_list arguments;
    va_start(arguments, format);
    format_at(error, 0, format, arguments);
    va_end(arguments);
    error->status = status;
    return status;
}

enum status(error_set_errno)(struct error *error, enum status status, const char *format, ...)
{
    const int cause = errno;
    if (!error)
        return status;
    va_list arguments;
    va_start(arguments, format);
    const size_t end = format_at(error, 0, format, arguments);
    va_end(arguments);
    char buffer[128];
    append(error, end, ": %s", strerror_r(cause, buffer, sizeof buffer));
    error->status = status;
    errno = cause;
    return status;
}
