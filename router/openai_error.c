#include "router/openai_error.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

enum status(openai_error_set)(struct openai_error *error, int http_status, const char *param,
                              const char *code, const char *format, ...)
{
    *error = (struct openai_error){.http_status = http_status, .code = code};
    snprintf(error->param, sizeof error->param, "%s", param ? param : "");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return STATUS_INVALID;
}

/* host:port, as errors of the network name it. */
static bool is_address(const char *word, size_t bytes)
{
    size_t digits = 0;
    while (digits < bytes && isdigit((unsigned char)word[bytes - 1 - digits]))
        digits++;
    if (digits == 0 || digits > 5 || bytes < digits + 2 || word[bytes - 1 - digits] != ':')
        return false;
    for (size_t i = 0; i < bytes - digits - 1; i++) {
        if (!isalnum((unsigned char)word[i]) && !strchr(".-_:[]%", word[i]))
            return false;
    }
    return true;
}

void openai_error_hide_places(struct openai_error *error)
{
    static const char between[] = " ,;()\"'";
    char hidden[OPENAI_MESSAGE_BYTES];
    size_t used = 0;
    for (const char *at = error->message; *at && used + 1 < sizeof hidden;) {
        const size_t bytes = strcspn(at, between);
        size_t core = bytes; /* without the end of its sentence */
        while (core > 0 && (at[core - 1] == '.' || at[core - 1] == ':'))
            core--;
        const char *told = is_address(at, core)       ? "(address)"
                           : at[0] == '/' && core > 1 ? "(path)"
                                                      : NULL;
        const size_t behind = bytes - core + (at[bytes] != '\0');
        const int written =
            told ? snprintf(hidden + used, sizeof hidden - used, "%s%.*s", told, (int)behind,
                            at + core)
                 : snprintf(hidden + used, sizeof hidden - used, "%.*s", (int)(core + behind), at);
        used += (size_t)written;
        at += core + behind;
    }
    if (used > 0)
        snprintf(error->message, sizeof error->message, "%s", hidden);
}

const char *openai_error_type(int http_status)
{
    switch (http_status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 503:
        return "unavailable_error";
    case 504:
        return "timeout_error";
    default:
        return http_status >= 500 ? "server_error" : "invalid_request_error";
    }
}

void openai_error_write(const struct openai_error *error, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_open_object(&writer);
    json_key(&writer, "error");
    json_open_object(&writer);
    json_key(&writer, "message");
    json_put_text(&writer, error->message);
    json_key(&writer, "type");
    json_put_text(&writer, openai_error_type(error->http_status));
    json_key(&writer, "param");
    json_put_text(&writer, error->param[0] ? error->param : NULL);
    json_key(&writer, "code");
    json_put_text(&writer, error->code);
    if (error->context_tokens != 0) {
        json_key(&writer, "n_prompt_tokens");
        json_put_u64(&writer, error->prompt_tokens);
        json_key(&writer, "n_ctx");
        json_put_u64(&writer, error->context_tokens);
    }
    json_close_object(&writer);
    json_close_object(&writer);
}
