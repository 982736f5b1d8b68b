/* Small answers about this process: is it alive, could it serve, how busy is it, what model. */
#include <stdio.h>
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

void routes_put_models(struct router *router, struct json_writer *writer)
{
    json_key(writer, "models");
    json_open_array(writer);
    for (uint32_t i = 0; i < router->model_count; i++) {
        const struct served_model *model = &router->models[i];
        json_open_object(writer);
        put_text(writer, "id", model->name);
        json_key(writer, "ready");
        json_put_bool(writer, served_model_ready(router, model));
        put_count(writer, "prefill", fleet_serving(router->fleet, i, WORKER_PREFILL));
        put_count(writer, "decode", fleet_serving(router->fleet, i, WORKER_DECODE));
        put_count(writer, "requests", model->session_count);
        put_count(writer, "queued", model->queue_count);
        json_close_object(writer);
    }
    json_close_array(writer);
}

static uint32_t ready_count(const struct router *router)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < router->model_count; i++)
        count += served_model_ready(router, &router->models[i]);
    return count;
}

static const char *health_sentence(const struct router *router, uint32_t ready)
{
    if (router->draining)
        return "The server is shutting down and finishes the requests it has.";
    if (ready == router->model_count)
        return "Requests can be served.";
    return ready > 0 ? "Requests can be served, but not for all models."
                     : "No decode node is connected yet; workers connect once their model is "
                       "loaded.";
}

/* /health and /ready: 200 when a request could be served, be it for one of the models only: one
 * that is away must not take the others from a balancer. */
void routes_get_health(struct router *router, struct http_exchange *exchange,
                       const struct http_request *request, struct api_key *key)
{
    const uint32_t ready = ready_count(router);
    struct json_writer writer = begin(router);
    put_text(&writer, "status", ready > 0 ? "ok" : router->draining ? "draining" : "waiting");
    put_text(&writer, "message", health_sentence(router, ready));
    put_count(&writer, "prefill", fleet_count(router->fleet, WORKER_PREFILL, FLEET_UP));
    put_count(&writer, "decode", fleet_count(router->fleet, WORKER_DECODE, FLEET_UP));
    put_count(&writer, "requests", router->session_count);
    put_count(&writer, "queued", served_models_queued(router));
    routes_put_models(router, &writer);
    json_close_object(&writer);
    routes_reply(exchange, ready > 0 ? 200 : 503, "application/json", &router->scratch);
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
    put_count(&writer, "queued", served_models_queued(router));
    put_count(&writer, "limit", router->slot_count);
    json_close_object(&writer);
    routes_reply(exchange, 200, "application/json", &router->scratch);
}

static void put_model(struct router *router, const struct served_model *model,
                      struct json_writer *writer)
{
    json_open_object(writer);
    put_text(writer, "id", model->name);
    put_text(writer, "object", "model");
    put_count(writer, "created", router->started_s);
    put_text(writer, "owned_by", "baton");
    put_text(writer, "root", model->name);
    put_text(writer, "parent", NULL);
    put_count(writer, "max_model_len", model->context_tokens);
    json_close_object(writer);
}

/* Those that a request would find workers for: clients take the first one they see. */
void routes_get_models(struct router *router, struct http_exchange *exchange,
                       const struct http_request *request, struct api_key *key)
{
    struct json_writer writer = begin(router);
    put_text(&writer, "object", "list");
    json_key(&writer, "data");
    json_open_array(&writer);
    for (uint32_t i = 0; i < router->model_count; i++) {
        if (served_model_ready(router, &router->models[i]))
            put_model(router, &router->models[i], &writer);
    }
    json_close_array(&writer);
    json_close_object(&writer);
    routes_reply(exchange, 200, "application/json", &router->scratch);
}

static void reply_unknown(struct router *router, struct http_exchange *exchange, const char *id)
{
    struct openai_rules rules[MODEL_LIST_MAX];
    struct openai_error error;
    char name[OPENAI_MESSAGE_BYTES];
    snprintf(name, sizeof name, "\"%.64s\"", id);
    served_models_rules(router, rules);
    openai_model_unknown(name, rules, &error);
    http_reply_error(exchange, &error);
}

/* The model's id may hold slashes: it is all that follows. */
void routes_get_model(struct router *router, struct http_exchange *exchange,
                      const struct http_request *request, struct api_key *key)
{
    const char *id = request->path + sizeof ROUTES_MODEL_PATH - 1;
    uint32_t at = 0;
    while (at < router->model_count && strcmp(id, router->models[at].name) != 0)
        at++;
    if (at == router->model_count) {
        reply_unknown(router, exchange, id);
        return;
    }
    buffer_clear(&router->scratch);
    struct json_writer writer;
    json_writer_init(&writer, &router->scratch);
    put_model(router, &router->models[at], &writer);
    routes_reply(exchange, 200, "application/json", &router->scratch);
}
