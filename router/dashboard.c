/* The page at /: three files built in, nothing from elsewhere. */
#include <string.h>

#include "router/router_internal.h"

/* The bytes of the files in dashboard/, made arrays at build time. */
extern const char dashboard_html[], dashboard_css[], dashboard_js[];

/* Scripts and styles only from here: names that workers and clients give themselves stay text even
 * if the page had a fault. */
static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; "
                             "connect-src 'self'; img-src data:; base-uri 'none'; "
                             "form-action 'none'; frame-ancestors 'none'";

static void reply(struct http_exchange *exchange, const char *content_type, const char *text)
{
    const struct http_reply answer = {.status = 200,
                                      .content_type = content_type,
                                      .body = text,
                                      .body_bytes = strlen(text),
                                      .policy = policy};
    http_reply(exchange, &answer);
}

void dashboard_get_page(struct router *router, struct http_exchange *exchange,
                        const struct http_request *request, struct api_key *key)
{
    reply(exchange, "text/html; charset=utf-8", dashboard_html);
}

void dashboard_get_style(struct router *router, struct http_exchange *exchange,
                         const struct http_request *request, struct api_key *key)
{
    reply(exchange, "text/css; charset=utf-8", dashboard_css);
}

void dashboard_get_script(struct router *router, struct http_exchange *exchange,
                          const struct http_request *request, struct api_key *key)
{
    reply(exchange, "text/javascript; charset=utf-8", dashboard_js);
}
