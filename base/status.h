/* Status codes and the one carrier of failure texts.
 *
 * Every function that can fail returns `enum status`; outputs are set only on STATUS_OK. A function
 * whose failure a person will read takes `struct error *` last and fills it once, at the origin,
 * with a whole sentence that holds the value and the limit; callers only pass it on. */
#ifndef BATON_BASE_STATUS_H
#define BATON_BASE_STATUS_H

enum status {
#define X(name, value, scope, sentence) STATUS_##name = (value),
#include "base/status.def"
#undef X
};

enum status_scope { SCOPE_NONE, SCOPE_REQUEST, SCOPE_CONNECTION, SCOPE_NODE, SCOPE_PROCESS };

enum { ERROR_TEXT_BYTES = 320 };

struct error {
    enum status status;
    char text[ERROR_TEXT_BYTES]; /* one sentence without a final newline, always terminated */
};

/* "STATUS_OK" without the prefix, e.g. "TIMEOUT"; "UNKNOWN" for a value not in the table. */
const char *status_name(enum status status);
/* The sentence of the table. */
const char *status_sentence(enum status status);
enum status_scope status_scope(enum status status);

/* Fills *error (which may be NULL) and returns status: `return error_set(...)` reads well. Control
 * characters and broken UTF-8 in what it quotes become '?'. */
enum status error_set(struct error *error, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with ": <strerror(errno)>" appended. */
enum status error_set_errno(struct error *error, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Propagates any status but STATUS_OK. */
#define TRY(expression)                                                                            \
    do {                                                                                           \
        enum status try_status_ = (expression);                                                    \
        if (try_status_ != STATUS_OK)                                                              \
            return try_status_;                                                                    \
    } while (0)

#ifdef __clang_analyzer__
/* The analyzer does not see where these end, and would take their failures for STATUS_OK. */
#define error_set(error, status, ...) ((error_set)(error, status, __VA_ARGS__), (status))
#define error_set_errno(error, status, ...)                                                        \
    ((error_set_errno)(error, status, __VA_ARGS__), (status))
#endif

#endif
