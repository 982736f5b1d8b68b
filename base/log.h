/* One line a message on standard error: time, level, program name, text. Any thread; a line is
 * written with one write(2), so lines never mix. Logged once, where the decision is made. */
#ifndef BATON_BASE_LOG_H
#define BATON_BASE_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* name: kept by reference, e.g. "prefill-0". Level from BATON_LOG (error|warn|info|debug) if set,
 * else the given one. With $JOURNAL_STREAM on fd 2 lines carry "<6>" prefixes and no time. */
void log_init(const char *name, enum log_level level);
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define LOG_ERROR(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define LOG_WARN(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define LOG_INFO(...)  log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define LOG_DEBUG(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
