/* Which path answers to which method, and the small read-only answers. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "router/router_internal.h"

void routes_reply(struct http_exchange *exchange, int status, const char *content_type,
                  const struct buffer *body)
{
    const struct http_reply reply = {.status = status,
                                     .content_type = content_type,
                                     .body = body->data,
                                     .body_bytes = body->size,
                                     .retry_after_s = status == 503 ? 1 : 0};
    http_reply(exchange, &reply);
}

void routes_reply_error(struct http_exchange *exchange, int status, const char *code,
                        const char *allow, const char *message)
{
    struct openai_error error;
    openai_error_set(&error, status, NULL, code, "%s", message);
    struct buffer body = {0};
    openai_error_write(&error, &body);
    const struct http_reply reply = {.status = status,
                                     .content_type = "application/json",
                                     .body = body.data,
                                     .body_bytes = body.size,
                                     .retry_after_s = status == 503 ? 1 : 0,
                                     .allow = allow,
                                     .error = &error};
    http_reply(exchange, &reply);
    buffer_free(&body);
}

static void put_worker(struct json_writer *writer, const struct router *router,
                       const struct fleet_worker *worker)
{
    const struct fleet *fleet = router->fleet;
    const uint64_t now_ns = loop_now_ns(router->loop);
    const bool stranger = worker->state == FLEET_REFUSED;
    struct error unpaired;
    const char *reason = worker->text[0] ? worker->text : NULL;
    if (!reason && fleet_unpaired(fleet, worker, &unpaired))
        reason = unpaired.text;
    json_open_object(writer);
    json_key(writer, "name");
    json_put_text(writer, worker->node);
    json_key(writer, "role");
    json_put_text(writer, fleet_role_name(worker->role));
    json_key(writer, "state");
    json_put_text(writer, fleet_state_name(worker->state));
    json_key(writer, "reason");
    json_put_text(writer, reason);
    json_key(writer, "address");
    json_put_text(writer, worker->address);
    json_key(writer, "version");
    json_put_text(writer, worker->version);
    json_key(writer, "model");
    json_put_text(writer, stranger ? NULL : router->models[worker->model].name);
    json_key(writer, "pairs_as");
    json_put_u64(writer, worker->kind);
    json_key(writer, "state_seconds");
    json_put_number(writer, (double)(now_ns - worker->since_ns) / NS_PER_S, 6);
    json_key(writer, "running");
    json_put_u64(writer, worker->running);
    json_key(writer, "waiting");
    json_put_u64(writer, worker->waiting);
    json_key(writer, "inflight_tokens");
    json_put_u64(writer, worker->backlog.charged);
    json_key(writer, "pages_free");
    json_put_u64(writer, worker->pages_free);
    json_key(writer, "pages_total");
    json_put_u64(writer, worker->pages_total);
    json_key(writer, "pages_handoff");
    json_put_u64(writer, worker->pages_handoff);
    json_key(writer, "tokens_per_s");
    json_put_number(writer, worker->tokens_per_s, 6);
    json_key(writer, "handoff");
    fleet_handoff_write(&worker->handoff, writer);
    json_key(writer, "prefix");
    fleet_prefix_write(&worker->prefix, writer);
    if (worker->role == WORKER_DECODE) {
        json_key(writer, "decode");
        fleet_decode_write(&worker->decode, writer);
    }
    json_close_object(writer);
}

void routes_put_workers(struct router *router, struct json_writer *writer)
{
    json_key(writer, "workers");
    json_open_array(writer);
    const struct fleet_worker *worker;
    for (uint32_t i = 0; (worker = fleet_at(router->fleet, i)) != NULL; i++)
        put_worker(writer, router, worker);
    json_close_array(writer);
}

static void get_workers(struct router *router, struct http_exchange *exchange,
                        const struct http_request *request, struct api_key *key)
{
    struct buffer *out = &router->scratch;
    buffer_clear(out);
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_open_object(&writer);
    routes_put_workers(router, &writer);
    json_close_object(&writer);
    routes_reply(exchange, 200, "application/json", out);
}

static void get_metrics(struct router *router, struct http_exchange *exchange,
                        const struct http_request *request, struct api_key *key)
{
    struct buffer *out = &router->scratch;
    buffer_clear(out);
    metrics_report_write(router, out);
    routes_reply(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", out);
}

/* A client of its own may leave the type out. A page in a browser that could do so would be asked
 * by nobody whether it may post here, see --cors-origin. */
static bool is_json(const char *content_type, const char *origin)
{
    static const char json[] = "application/json";
    if (!content_type)
        return !origin;
    if (strncasecmp(content_type, json, sizeof json - 1) != 0)
        return false;
    const char behind = content_type[sizeof json - 1];
    return behind == '\0' || behind == ';' || behind == ' ';
}

/* What every body is asked before it is read; false when it was answered. counts_out: the row that
 * a completion counts in then. */
static bool is_welcome(struct router *router, struct http_exchange *exchange,
                       const struct http_request *request, struct api_key *key,
                       enum router_metric *counts_out)
{
    *counts_out = METRIC_REQUESTS_BAD;
    if (router->draining) {
        *counts_out = METRIC_REQUESTS_FAULT;
        routes_reply_error(exchange, 503, "shutting_down", NULL, "The server is shutting down.");
        return false;
    }
    if (!is_json(request->content_type, http_exchange_header(exchange, "Origin"))) {
        routes_reply_error(exchange, 400, "bad_content_type", NULL,
                           "The Content-Type must be application/json.");
        return false;
    }
    return api_door_admit(router, exchange, key);
}

static void complete(struct router *router, enum openai_endpoint endpoint,
                     struct http_exchange *exchange, const struct http_request *request,
                     struct api_key *key)
{
    enum router_metric counts;
    if (is_welcome(router, exchange, request, key, &counts))
        session_start(router, endpoint, key, exchange, request);
    else
        metrics_add(router->metrics, counts, 1);
}

static void post_completions(struct router *router, struct http_exchange *exchange,
                             const struct http_request *request, struct api_key *key)
{
    complete(router, OPENAI_COMPLETIONS, exchange, request, key);
}

static void post_chat(struct router *router, struct http_exchange *exchange,
                      const struct http_request *request, struct api_key *key)
{
    complete(router, OPENAI_CHAT, exchange, request, key);
}

static void post_tokenize(struct router *router, struct http_exchange *exchange,
                          const struct http_request *request, struct api_key *key)
{
    enum router_metric counts;
    if (is_welcome(router, exchange, request, key, &counts))
        text_call_tokenize(router, exchange, request, key);
}

static void post_detokenize(struct router *router, struct http_exchange *exchange,
                            const struct http_request *request, struct api_key *key)
{
    enum router_metric counts;
    if (is_welcome(router, exchange, request, key, &counts))
        text_call_detokenize(router, exchange, request, key);
}

/* With KEYED a key has to be shown where the router has keys, with WATCH one of an operator: what
 * shows addresses or other tenants. UNDER: what follows the path belongs to the handler. COMPLETES:
 * its requests are counted, however they end. */
enum { OPEN = 0, KEYED = 1, UNDER = 2, WATCH = 4, COMPLETES = 8 };

static const struct route {
    const char *path;
    enum http_method method;
    route_handler *handle;
    unsigned how;
} routes[] = {
    {"/health", HTTP_GET, routes_get_health, OPEN},
    {"/live", HTTP_GET, routes_get_live, OPEN},
    {"/ready", HTTP_GET, routes_get_health, OPEN},
    {"/load", HTTP_GET, routes_get_load, OPEN},
    {"/version", HTTP_GET, routes_get_version, OPEN},
    {"/metrics", HTTP_GET, get_metrics, OPEN},
    {"/workers", HTTP_GET, get_workers, WATCH},
    {"/status", HTTP_GET, routes_get_status, WATCH},
    {"/requests", HTTP_GET, journal_call_recent, KEYED},
    {ROUTES_REQUEST_PATH, HTTP_GET, journal_call_find, KEYED | UNDER},
    {"/", HTTP_GET, dashboard_get_page, OPEN},
    {"/dashboard.css", HTTP_GET, dashboard_get_style, OPEN},
    {"/dashboard.js", HTTP_GET, dashboard_get_script, OPEN},
    {"/v1/models", HTTP_GET, routes_get_models, KEYED},
    {ROUTES_MODEL_PATH, HTTP_GET, routes_get_model, KEYED | UNDER},
    {"/v1/completions", HTTP_POST, post_completions, KEYED | COMPLETES},
    {"/v1/chat/completions", HTTP_POST, post_chat, KEYED | COMPLETES},
    {"/tokenize", HTTP_POST, post_tokenize, KEYED},
    {"/detokenize", HTTP_POST, post_detokenize, KEYED},
};

static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < ARRAY_COUNT(routes); i++) {
        const size_t bytes = strlen(routes[i].path);
        if (strncmp(path, routes[i].path, bytes) == 0 &&
            (path[bytes] == '\0' || (routes[i].how & UNDER)))
            return &routes[i];
    }
    return NULL;
}

static const char *methods_of(const struct route *route)
{
    return route->method == HTTP_GET ? "GET, HEAD" : "POST";
}

/* Of browsers, before they send anything: no key is needed to ask. */
static void reply_options(struct http_exchange *exchange, const struct route *route)
{
    const struct http_reply reply = {
        .status = 204, .content_type = "application/json", .body = "", .allow = methods_of(route)};
    http_reply(exchange, &reply);
}

void routes_handle(struct router *router, struct http_exchange *exchange,
                   const struct http_request *request)
{
    const struct route *route = find_route(request->path);
    struct api_key *key = NULL;
    if (!route)
        routes_reply_error(exchange, 404, "not_found", NULL, "There is nothing at this path.");
    else if (request->method == HTTP_OPTIONS)
        reply_options(exchange, route);
    else if (route->method != request->method)
        routes_reply_error(exchange, 405, "method_not_allowed", methods_of(route),
                           route->method == HTTP_GET ? "This path answers to GET."
                                                     : "This path answers to POST.");
    else if (!(route->how & (KEYED | WATCH)) ||
             api_door_enter(router, exchange, route->how & WATCH, &key))
        route->handle(router, exchange, request, key);
    else if (route->how & COMPLETES)
        metrics_add(router->metrics, METRIC_REQUESTS_BAD, 1);
}
