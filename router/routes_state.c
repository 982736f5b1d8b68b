/* Small answers about this process: is it alive, could it serve, how busy is it, what model. */
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "router/router_internal.h"

static struct json_writer begin(struct router *router)
{
    struct json_writer writer;
    buffer_clear(&router->scratch);
    json_writer_init(&writer, &router->scratch);
    json_open_object(&writer);
    return writer;
}

static void put_count(struct json_writer *writer, const char *key, uint64_t value)
{
    json_key(writer, key);
    json_put_u64(writer, value);
}

static void put_text(struct json_writer *writer, const char *key, const char *text)
{
    json_key(writer, key);
    json_put_text(writer, text);
}

static const char *health_sentence(const struct router *router, uint32_t decode)
{
    if (router->draining)
        return "The server is shutting down and finishes the requests it has.";
    return decode > 0 ? "Requests can be served."
                      : "No decode node is connected yet; workers connect once their model is "
                        "loaded.";
}

/* /health and /ready: 200 when a request could be served. */
void routes_get_health(struct router *router, struct http_exchange *exchange,
                       const struct http_request *request, struct api_key *key)
{
    const uint32_t prefill = fleet_count(router->fleet, WORKER_PREFILL, FLEET_UP);
    const uint32_t decode = fleet_count(router->fleet, WORKER_DECODE, FLEET_UP);
    const bool serving = decode > 0 && !router->draining;
    struct json_writer writer = begin(router);
    put_text(&writer, "status", serving ? "ok" : router->draining ? "draining" : "waiting");
    put_text(&writer, "message", health_sentence(router, decode));
    put_count(&writer, "prefill", prefill);
    put_count(&writer, "decode", decode);
    put_count(&writer, "requests", router->session_count);
    put_count(&writer, "queued", router->queue_count);
    json_close_object(&writer);
    routes_reply(exchange, serving ? 200 : 503, "application/json", &router->scratch);
}

/* The process answers, whatever else is missing: reason enough not to restart it. */
void routes_get_live(struct router *router, struct http_exchange *exchange,
                     const struct http_request *request, struct api_key *key)
{
    static const char body[] = "{\"status\":\"ok\"}";
    http_reply_json(exchange, 200, body, sizeof body - 1);
}

void routes_get_version(struct router *router, struct http_exchange *exchange,
                        const struct http_request *request, struct api_key *key)
{
    static const char body[] = "{\"version\":\"" BATON_VERSION "\"}";
    http_reply_json(exchange, 200, body, sizeof body - 1);
}

/* For balancers in front of several routers; server_load is the name others use. */
void routes_get_load(struct router *router, struct http_exchange *exchange,
                     const struct http_request *request, struct api_key *key)
{
    struct json_writer writer = begin(router);
    put_count(&writer, "server_load", router->session_count);
    put_count(&writer, "queued", router->queue_count);
    put_count(&writer, "limit", router->slot_count);
    json_close_object(&writer);
    routes_reply(exchange, 200, "application/json", &router->scratch);
}

static void put_model(struct router *router, struct json_writer *writer)
{
    json_open_object(writer);
    put_text(writer, "id", router->model_name);
    put_text(writer, "object", "model");
    put_count(writer, "created", router->started_s);
    put_text(writer, "owned_by", "baton");
    put_text(writer, "root", router->model_name);
    put_text(writer, "parent", NULL);
    put_count(writer, "max_model_len", fleet_context_tokens(router->fleet));
    json_close_object(writer);
}

void routes_get_models(struct router *router, struct http_exchange *exchange,
                       const struct http_request *request, struct api_key *key)
{
    struct json_writer writer = begin(router);
    put_text(&writer, "object", "list");
    json_key(&writer, "data");
    json_open_array(&writer);
    put_model(router, &writer);
    json_close_array(&writer);
    json_close_object(&writer);
    routes_reply(exchange, 200, "application/json", &router->scratch);
}

/* The model's id may hold slashes: it is all that follows. */
void routes_get_model(struct router *router, struct http_exchange *exchange,
                      const struct http_request *request, struct api_key *key)
{
    const char *id = request->path + sizeof ROUTES_MODEL_PATH - 1;
    if (strcmp(id, router->model_name) != 0) {
        struct openai_error error;
        openai_error_set(&error, 404, "model", "model_not_found",
                         "The model \"%.64s\" does not exist; this server has \"%s\".", id,
                         router->model_name);
        http_reply_error(exchange, &error);
        return;
    }
    buffer_clear(&router->scratch);
    struct json_writer writer;
    json_writer_init(&writer, &router->scratch);
    put_model(router, &writer);
    routes_reply(exchange, 200, "application/json", &router->scratch);
}
