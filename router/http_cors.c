#include "router/http_cors.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

enum { NAMES_BYTES_MAX = 1024 };

static bool is_origin(const char *text)
{
    if (strcmp(text, "*") == 0)
        return true;
    const char *host = strstr(text, "://");
    if (!host || host == text || strlen(text) > HTTP_ORIGIN_BYTES_MAX)
        return false;
    for (const char *c = text; c < host; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("+-.", *c))
            return false;
    }
    host += 3;
    for (const char *c = host; *c; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("-._:[]", *c))
            return false;
    }
    return host[0] != '\0';
}

enum status http_cors_check(const struct config_texts *origins, struct error *error)
{
    for (uint32_t i = 0; i < origins->count; i++) {
        if (!is_origin(origins->items[i]))
            return error_set(error, STATUS_INVALID,
                             "--cors-origin: \"%.100s\" is neither * nor an origin such as "
                             "https://chat.example.org",
                             origins->items[i]);
    }
    return STATUS_OK;
}

const char *http_cors_allowed(const struct config_texts *origins, const char *origin)
{
    if (!origin)
        return NULL;
    for (uint32_t i = 0; i < origins->count; i++) {
        if (strcmp(origins->items[i], "*") == 0 || strcasecmp(origins->items[i], origin) == 0)
            return origins->items[i];
    }
    return NULL;
}

bool http_cors_names_sound(const char *names)
{
    const size_t bytes = strlen(names);
    if (bytes == 0 || bytes > NAMES_BYTES_MAX)
        return false;
    for (const char *c = names; *c; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("-_, ", *c))
            return false;
    }
    return true;
}
