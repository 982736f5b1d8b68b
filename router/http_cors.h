/* Which pages of other origins a browser may let read our answers. Pure. */
#ifndef BATON_ROUTER_HTTP_CORS_H
#define BATON_ROUTER_HTTP_CORS_H

#include <stdbool.h>

#include "base/config.h"
#include "base/status.h"

enum { HTTP_ORIGIN_BYTES_MAX = 255 };

/* Each is "*" or scheme://host[:port] as browsers write it. INVALID with the one that is not. */
enum status http_cors_check(const struct config_texts *origins, struct error *error);
/* What Access-Control-Allow-Origin says to this origin; NULL: the header stays away. origin: NULL
 * when the request has none. */
const char *http_cors_allowed(const struct config_texts *origins, const char *origin);
/* Whether a list of header names that a browser asks for may be given back to it. */
bool http_cors_names_sound(const char *names);

#endif
