#include "router/model_metrics.h"

#include "base/check.h"
#include "router/router_internal.h"

static double sum_of(const struct router *router, const struct served_model *model,
                     const enum router_metric *sources, uint32_t count)
{
    const struct metrics *metrics = model->metrics ? model->metrics : router->metrics;
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += metrics_value(metrics, sources[i]);
    return sum;
}

static double decode_of(const struct router *router, const struct served_model *model)
{
    return fleet_serving(router->fleet, model->index, WORKER_DECODE);
}

static double prefill_of(const struct router *router, const struct served_model *model)
{
    return fleet_serving(router->fleet, model->index, WORKER_PREFILL);
}

static double inflight_of(const struct router *router, const struct served_model *model)
{
    return model->session_count;
}

static double queued_of(const struct router *router, const struct served_model *model)
{
    return model->queue_count;
}

static double ended_of(const struct router *router, const struct served_model *model)
{
    static const enum router_metric sources[] = {METRIC_REQUESTS_OK, METRIC_REQUESTS_BAD,
                                                 METRIC_REQUESTS_FAULT, METRIC_REQUESTS_CANCELLED};
    return sum_of(router, model, sources, ARRAY_COUNT(sources));
}

static double failed_of(const struct router *router, const struct served_model *model)
{
    static const enum router_metric sources[] = {METRIC_REQUESTS_FAULT};
    return sum_of(router, model, sources, 1);
}

static double grammar_of(const struct router *router, const struct served_model *model)
{
    double sum = 0;
    for (int kind = METRIC_GRAMMAR_REQUESTS; kind <= METRIC_GRAMMAR_REQUESTS_LAST; kind++) {
        const enum router_metric source = (enum router_metric)kind;
        sum += sum_of(router, model, &source, 1);
    }
    return sum;
}

static double prompt_of(const struct router *router, const struct served_model *model)
{
    static const enum router_metric sources[] = {METRIC_PROMPT_TOKENS};
    return sum_of(router, model, sources, 1);
}

static double output_of(const struct router *router, const struct served_model *model)
{
    static const enum router_metric sources[] = {METRIC_OUTPUT_TOKENS};
    return sum_of(router, model, sources, 1);
}

static const struct family {
    const char *name, *help;
    enum metric_kind kind;
    double (*value)(const struct router *router, const struct served_model *model);
} families[] = {
    {"baton_model_decode_workers", "Decode nodes that serve a model.", METRIC_GAUGE, decode_of},
    {"baton_model_prefill_workers", "Prefill nodes that serve a model.", METRIC_GAUGE, prefill_of},
    {"baton_model_requests_inflight", "Requests for a model that are not over.", METRIC_GAUGE,
     inflight_of},
    {"baton_model_requests_queued", "Requests for a model that wait for a place.", METRIC_GAUGE,
     queued_of},
    {"baton_model_requests_total", "Requests for a model that are over.", METRIC_COUNTER, ended_of},
    {"baton_model_requests_failed_total", "Of them, those answered with a status of 500 or more.",
     METRIC_COUNTER, failed_of},
    {"baton_model_grammar_requests_total", "Of them, those whose answer had a grammar.",
     METRIC_COUNTER, grammar_of},
    {"baton_model_prompt_tokens_total", "Prompt tokens of a model handed to workers.",
     METRIC_COUNTER, prompt_of},
    {"baton_model_output_tokens_total", "Tokens a model has written.", METRIC_COUNTER, output_of},
};

void model_metrics_expose(const struct router *router, struct buffer *out)
{
    struct buffer labels = {0};
    for (size_t i = 0; i < ARRAY_COUNT(families); i++) {
        const struct family *family = &families[i];
        metrics_put_header(out, family->name, family->kind, family->help);
        for (uint32_t at = 0; at < router->model_count; at++) {
            const struct served_model *model = &router->models[at];
            buffer_clear(&labels);
            metrics_put_label(&labels, "model", model->name);
            metrics_put_sample(out, family->name, labels.data, family->value(router, model));
        }
    }
    buffer_free(&labels);
}
