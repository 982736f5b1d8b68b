/* Keys at the door: who shows none is not let in, who has used up a minute's worth waits. */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "router/router_internal.h"

/* "Authorization: Bearer KEY", or "api-key: KEY" as clients of Azure send it. NULL for neither. */
static const char *shown_key(const struct http_exchange *exchange)
{
    static const char scheme[] = "Bearer ";
    const char *value = http_exchange_header(exchange, "Authorization");
    if (!value)
        return http_exchange_header(exchange, "api-key");
    if (strncasecmp(value, scheme, sizeof scheme - 1) != 0)
        return NULL;
    value += sizeof scheme - 1;
    while (*value == ' ')
        value++;
    return value;
}

static void refuse(struct http_exchange *exchange, bool known, bool shown)
{
    struct openai_error error;
    if (known)
        openai_error_set(&error, 403, NULL, "permission_denied",
                         "This path wants the API key of an operator.");
    else
        openai_error_set(&error, 401, NULL, "invalid_api_key",
                         shown ? "The API key is not known here."
                               : "No API key was shown; send it as \"Authorization: Bearer KEY\".");
    http_reply_error(exchange, &error);
}

bool api_door_enter(struct router *router, struct http_exchange *exchange, bool as_operator,
                    struct api_key **key_out)
{
    if (!router->keys)
        return true;
    const char *shown = shown_key(exchange);
    struct api_key *key = shown ? api_keys_find(router->keys, shown) : NULL;
    if (key && (!as_operator || api_key_is_operator(key))) {
        *key_out = key;
        return true;
    }
    refuse(exchange, key != NULL, shown != NULL);
    return false;
}

bool api_door_admit(struct router *router, struct http_exchange *exchange, struct api_key *key)
{
    uint32_t retry_s = 0;
    const enum api_limit limit =
        key ? api_key_admit(key, loop_now_ns(router->loop), &retry_s) : API_WITHIN;
    if (limit == API_WITHIN)
        return true;
    metrics_add(router->metrics, METRIC_REFUSED_KEY, 1);
    struct openai_error error;
    openai_error_set(
        &error, 429, NULL, "rate_limit_exceeded",
        "Rate limit reached: this key may have %" PRIu64 " %s a minute. Try again in %u s.",
        api_key_limit(key, limit), limit == API_OVER_REQUESTS ? "requests" : "tokens", retry_s);
    error.retry_after_s = retry_s;
    http_reply_error(exchange, &error);
    return false;
}
