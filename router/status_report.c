/* GET /status: all that the dashboard shows, in one object: the numbers since the start, from which
 * the reader makes rates, the histograms bucket by bucket, and the workers. */
#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "router/router_internal.h"

static const struct {
    const char *key;
    enum router_metric metric;
} counts[] =
    {
        {"requests_ok", METRIC_REQUESTS_OK},
        {"requests_bad", METRIC_REQUESTS_BAD},
        {"requests_fault", METRIC_REQUESTS_FAULT},
        {"requests_cancelled", METRIC_REQUESTS_CANCELLED},
        {"requests_inflight", METRIC_INFLIGHT},
        {"requests_queued", METRIC_QUEUED},
        {"prompt_tokens", METRIC_PROMPT_TOKENS},
        {"prompt_tokens_cached", METRIC_PROMPT_TOKENS_CACHED},
        {"output_tokens", METRIC_OUTPUT_TOKENS},
        {"placed_pair", METRIC_PLACED_PAIR},
        {"placed_local", METRIC_PLACED_LOCAL},
        {"placed_short", METRIC_PLACED_SHORT},
        {"placed_one_token", METRIC_PLACED_ONE_TOKEN},
        {"handoffs_damaged", METRIC_HANDOFFS_DAMAGED},
        {"preemptions", METRIC_PREEMPTIONS},
        {"workers_lost", METRIC_WORKERS_LOST_TOTAL},
        {"links_unproven", METRIC_LINKS_UNPROVEN},
        {"slow_readers", METRIC_SLOW_READERS},
        {"journal_healthy", METRIC_JOURNAL_HEALTHY},
        {"journal_dropped", METRIC_JOURNAL_DROPPED},
        {"cpu_seconds", METRIC_PROCESS_CPU},
        {"memory_bytes", METRIC_PROCESS_MEMORY},
},
  spans[] = {
      {"ttft", METRIC_TTFT},
      {"tokenise", METRIC_TTFT_TOKENISE},
      {"queue", METRIC_TTFT_QUEUE},
      {"reserve", METRIC_TTFT_RESERVE},
      {"prefill", METRIC_TTFT_PREFILL},
      {"itl", METRIC_ITL},
      {"handoff", METRIC_HANDOFF_TIME},
      {"handoff_wait", METRIC_HANDOFF_WAIT_TIME},
};

/* {"bounds": seconds, "counts": one more than bounds, "sum": seconds} */
static void put_span(struct json_writer *writer, const struct metrics *metrics,
                     enum router_metric metric)
{
    uint64_t buckets[METRIC_BUCKETS_MAX + 1];
    const uint32_t count = metrics_buckets(metrics, metric, buckets);
    const double *bounds = metrics_bounds(metrics, metric);
    json_open_object(writer);
    json_key(writer, "bounds");
    json_open_array(writer);
    for (uint32_t i = 0; i + 1 < count; i++)
        json_put_number(writer, bounds[i], 6);
    json_close_array(writer);
    json_key(writer, "counts");
    json_open_array(writer);
    for (uint32_t i = 0; i < count; i++)
        json_put_u64(writer, buckets[i]);
    json_close_array(writer);
    json_key(writer, "sum");
    json_put_number(writer, metrics_sum(metrics, metric), 9);
    json_close_object(writer);
}

static void put_states(struct json_writer *writer, const struct metrics *metrics)
{
    json_key(writer, "states");
    json_open_object(writer);
    for (uint32_t i = 0; i < REQUEST_ENDED; i++) {
        json_key(writer, request_state_name((enum request_state)i));
        json_put_number(writer, metrics_value(metrics, METRIC_STATES + i), 9);
    }
    json_close_object(writer);
}

void routes_get_status(struct router *router, struct http_exchange *exchange,
                       const struct http_request *request, struct api_key *key)
{
    struct buffer *out = &router->scratch;
    struct json_writer writer;
    metrics_report_refresh(router);
    buffer_clear(out);
    json_writer_init(&writer, out);
    json_open_object(&writer);
    json_key(&writer, "model");
    json_put_text(&writer, router->models[0].name);
    json_key(&writer, "version");
    json_put_text(&writer, BATON_VERSION);
    json_key(&writer, "started_s");
    json_put_u64(&writer, router->started_s);
    json_key(&writer, "now_ms");
    json_put_u64(&writer, clock_wall_ms());
    json_key(&writer, "draining");
    json_put_bool(&writer, router->draining);
    json_key(&writer, "requests_max");
    json_put_u64(&writer, router->slot_count);
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++) {
        json_key(&writer, counts[i].key);
        json_put_number(&writer, metrics_value(router->metrics, counts[i].metric), 15);
    }
    put_states(&writer, router->metrics);
    json_key(&writer, "spans");
    json_open_object(&writer);
    for (size_t i = 0; i < ARRAY_COUNT(spans); i++) {
        json_key(&writer, spans[i].key);
        put_span(&writer, router->metrics, spans[i].metric);
    }
    json_close_object(&writer);
    routes_put_models(router, &writer);
    routes_put_workers(router, &writer);
    json_close_object(&writer);
    routes_reply(exchange, 200, "application/json", out);
}
