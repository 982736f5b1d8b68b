/* One line a message on standard error: time, level, program name, text, fields. Any thread; a line
 * is written with one write(2), so lines never mix. Logged once, where the decision is made. */
#ifndef BATON_BASE_LOG_H
#define BATON_BASE_LOG_H

#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* What a message is about, apart from its text, so that it can be searched for: name=value behind
 * the text; a member of the object where BATON_LOG_FORMAT is "json"; a field BATON_NAME of the
 * system's journal. */
struct log_field {
    const char *name;  /* lower-case letters and _ */
    const char *value; /* NULL: the field is left out */
};
enum { LOG_FIELDS_MAX = 8 };

/* name: kept by reference, e.g. "prefill-0". Level from BATON_LOG (error|warn|info|debug) if set,
 * else the given one. With $JOURNAL_STREAM on fd 2 messages go to the journal's own socket with
 * their fields, and where that takes none as lines with "<6>" prefixes and no time. */
void log_init(const char *name, enum log_level level);
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* fields: [count], at most LOG_FIELDS_MAX. */
void log_write_with(enum log_level level, const struct log_field *fields, uint32_t count,
                    const char *format, ...) __attribute__((format(printf, 4, 5)));
/* For tests: where the journal listens instead of /run/systemd/journal/socket. Before log_init. */
void log_set_journal_socket(const char *path);

#define LOG_ERROR(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define LOG_WARN(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define LOG_INFO(...)  log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define LOG_DEBUG(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
