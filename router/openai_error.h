/* The one error object of the API: {"error":{"message","type","param","code"}}. */
#ifndef BATON_ROUTER_OPENAI_ERROR_H
#define BATON_ROUTER_OPENAI_ERROR_H

#include "base/bytes.h"
#include "base/status.h"

enum { OPENAI_PARAM_BYTES = 64, OPENAI_MESSAGE_BYTES = 512 };

struct openai_error {
    int http_status;
    const char *code;               /* static, NULL for none */
    char param[OPENAI_PARAM_BYTES]; /* the field at fault, empty for none */
    char message[OPENAI_MESSAGE_BYTES];
    uint32_t retry_after_s;                 /* of a 429 or 503; 0: 1 */
    uint32_t prompt_tokens, context_tokens; /* said too when context_tokens is not 0 */
};

/* Fills *error and returns STATUS_INVALID. param and code may be NULL. */
enum status openai_error_set(struct openai_error *error, int http_status, const char *param,
                             const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Takes addresses and paths out of the message: they are the operator's, and logged elsewhere. */
void openai_error_hide_places(struct openai_error *error);
/* Appends the object. */
void openai_error_write(const struct openai_error *error, struct buffer *out);
/* The type clients know for a status: "invalid_request_error", "server_error" ... */
const char *openai_error_type(int http_status);

#ifdef __clang_analyzer__
/* As those of base/status.h. */
#define openai_error_set(...) ((openai_error_set)(__VA_ARGS__), STATUS_INVALID)
#endif

#endif
