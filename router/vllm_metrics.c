#include "router/vllm_metrics.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "router/fleet_handoff.h"
#include "router/router_metrics.h"

enum { SOURCES_MAX = 5 };

#define DECODE_HANDOFFS(outcome)                                                                   \
    (METRIC_HANDOFFS + FLEET_HANDOFF_OUTCOMES + FLEET_HANDOFF_##outcome)

/* clang-format off */
/* One series: the sum of some of ours, which is one for a histogram. The rows of a name stand
 * together. */
static const struct alias {
    const char *name, *label, *value; /* of a label beside the model's; NULL: none */
    enum metric_kind kind;
    const char *help;
    uint32_t source_count;
    uint32_t sources[SOURCES_MAX];
} aliases[] = {
    {"vllm:num_requests_running", NULL, NULL, METRIC_GAUGE,
     "Requests that workers have.", 3,
     {METRIC_STATES + 3, METRIC_STATES + 4, METRIC_STATES + 5}},
    {"vllm:num_requests_waiting", NULL, NULL, METRIC_GAUGE,
     "Requests that wait for workers.", 3,
     {METRIC_STATES, METRIC_STATES + 1, METRIC_STATES + 2}},
    {"vllm:num_requests_waiting_by_reason", "reason", "capacity", METRIC_GAUGE,
     "Requests that wait for workers, by what for: room there, or their text.", 2,
     {METRIC_STATES + 1, METRIC_STATES + 2}},
    {"vllm:num_requests_waiting_by_reason", "reason", "deferred", METRIC_GAUGE,
     "Requests that wait for workers, by what for: room there, or their text.", 1,
     {METRIC_STATES}},
    {"vllm:num_preemptions_total", NULL, NULL, METRIC_COUNTER,
     "Sequences that were preempted.", 1,
     {METRIC_PREEMPTIONS}},
    {"vllm:prompt_tokens_total", NULL, NULL, METRIC_COUNTER,
     "Prompt tokens of requests handed to workers.", 1,
     {METRIC_PROMPT_TOKENS}},
    {"vllm:prompt_tokens_cached_total", NULL, NULL, METRIC_COUNTER,
     "Of them, those that were in a prefix cache.", 1,
     {METRIC_PROMPT_TOKENS_CACHED}},
    {"vllm:generation_tokens_total", NULL, NULL, METRIC_COUNTER,
     "Tokens generated.", 1,
     {METRIC_OUTPUT_TOKENS}},
    {"vllm:prefix_cache_queries_total", NULL, NULL, METRIC_COUNTER,
     "Prompt tokens looked up in prefix caches.", 1,
     {METRIC_PROMPT_TOKENS}},
    {"vllm:prefix_cache_hits_total", NULL, NULL, METRIC_COUNTER,
     "Prompt tokens found in prefix caches.", 1,
     {METRIC_PROMPT_TOKENS_CACHED}},
    {"vllm:request_success_total", "finished_reason", "stop", METRIC_COUNTER,
     "Requests that ended, by how.", 2,
     {METRIC_FINISH_STOP, METRIC_FINISH_STOP_STRING}},
    {"vllm:request_success_total", "finished_reason", "length", METRIC_COUNTER,
     "Requests that ended, by how.", 1,
     {METRIC_FINISH_LENGTH}},
    {"vllm:request_success_total", "finished_reason", "abort", METRIC_COUNTER,
     "Requests that ended, by how.", 1,
     {METRIC_FINISH_CANCELLED}},
    {"vllm:request_success_total", "finished_reason", "error", METRIC_COUNTER,
     "Requests that ended, by how.", 1,
     {METRIC_FINISH_ERROR}},
    {"vllm:request_success_total", "finished_reason", "repetition", METRIC_COUNTER,
     "Requests that ended, by how.", 0, {0}}, /* which ends none here */
    {"vllm:admission_rejections_total", NULL, NULL, METRIC_COUNTER,
     "Requests refused for want of time or room.", 5,
     {METRIC_REFUSED_TTFT, METRIC_REFUSED_DEADLINE, METRIC_REFUSED_TPOT, METRIC_REFUSED_QUEUE,
      METRIC_REFUSED_CAPACITY}},
    {"vllm:time_to_first_token_seconds", NULL, NULL, METRIC_HISTOGRAM,
     "Time to the first token.", 1,
     {METRIC_TTFT}},
    {"vllm:inter_token_latency_seconds", NULL, NULL, METRIC_HISTOGRAM,
     "Gap between two tokens.", 1,
     {METRIC_ITL}},
    {"vllm:request_time_per_output_token_seconds", NULL, NULL, METRIC_HISTOGRAM,
     "Mean gap between the tokens of a request.", 1,
     {METRIC_TPOT}},
    {"vllm:e2e_request_latency_seconds", NULL, NULL, METRIC_HISTOGRAM,
     "Request received to the end of its answer.", 1,
     {METRIC_REQUEST_TIME}},
    {"vllm:request_queue_time_seconds", NULL, NULL, METRIC_HISTOGRAM,
     "Time a request waited for workers.", 1,
     {METRIC_QUEUE_TIME}},
    {"vllm:request_inference_time_seconds", NULL, NULL, METRIC_HISTOGRAM,
     "Time workers had a request.", 1,
     {METRIC_SERVED_TIME}},
    {"vllm:request_prefill_time_seconds", NULL, NULL, METRIC_HISTOGRAM,
     "Workers found to first token.", 1,
     {METRIC_TTFT_PREFILL}},
    {"vllm:request_decode_time_seconds", NULL, NULL, METRIC_HISTOGRAM,
     "First token to last.", 1,
     {METRIC_ANSWER_TIME}},
    {"vllm:request_prompt_tokens", NULL, NULL, METRIC_HISTOGRAM,
     "Length of prompts.", 1,
     {METRIC_PROMPT_LENGTH}},
    {"vllm:request_generation_tokens", NULL, NULL, METRIC_HISTOGRAM,
     "Length of answers.", 1,
     {METRIC_OUTPUT_LENGTH}},
    {"vllm:request_params_max_tokens", NULL, NULL, METRIC_HISTOGRAM,
     "Longest answer that was allowed.", 1,
     {METRIC_MAX_TOKENS}},
    {"vllm:request_params_n", NULL, NULL, METRIC_HISTOGRAM,
     "Answers asked for to one prompt.", 1,
     {METRIC_CHOICES}},
    {"vllm:nixl_xfer_time_seconds", NULL, NULL, METRIC_HISTOGRAM,
     "First page of a hand-off sent to all landed.", 1,
     {METRIC_HANDOFF_TIME}},
    {"vllm:nixl_bytes_transferred", NULL, NULL, METRIC_HISTOGRAM,
     "KV bytes of a hand-off.", 1,
     {METRIC_HANDOFF_SIZE}},
    {"vllm:nixl_num_failed_transfers_total", NULL, NULL, METRIC_COUNTER,
     "Hand-offs that failed, as decode nodes tell.", 4,
     {DECODE_HANDOFFS(PEER_LOST), DECODE_HANDOFFS(CORRUPT), DECODE_HANDOFFS(MISMATCH),
      DECODE_HANDOFFS(OTHER)}},
    {"vllm:nixl_num_kv_expired_reqs_total", NULL, NULL, METRIC_COUNTER,
     "Hand-offs whose pages decode nodes kept in vain until their lease was over.", 1,
     {DECODE_HANDOFFS(TIMEOUT)}},
};
/* clang-format on */

static double sum_of(const struct metrics *metrics, const struct alias *alias)
{
    double sum = 0;
    for (uint32_t i = 0; i < alias->source_count; i++)
        sum += metrics_value(metrics, alias->sources[i]);
    return sum;
}

/* label: one more; NULL: none. */
static void put_labels(struct buffer *labels, const struct vllm_model *model, const char *label,
                       const char *value)
{
    buffer_clear(labels);
    metrics_put_label(labels, "model_name", model->name);
    metrics_put_label(labels, "engine", "0");
    if (label)
        metrics_put_label(labels, label, value);
}

static void put_alias(const struct alias *alias, const struct vllm_model *model,
                      struct buffer *labels, struct buffer *out)
{
    put_labels(labels, model, alias->label, alias->value);
    if (alias->kind == METRIC_HISTOGRAM)
        metrics_put_histogram(out, model->metrics, alias->sources[0], alias->name, labels->data);
    else
        metrics_put_sample(out, alias->name, labels->data, sum_of(model->metrics, alias));
}

static void put_usage(const struct vllm_model *models, uint32_t count, struct buffer *labels,
                      struct buffer *out)
{
    const char *name = "vllm:kv_cache_usage_perc";
    metrics_put_header(out, name, METRIC_GAUGE,
                       "Share of the decode nodes' KV pages that are in use, 0 to 1.");
    for (uint32_t i = 0; i < count; i++) {
        const struct vllm_cache *cache = &models[i].cache;
        put_labels(labels, &models[i], NULL, NULL);
        metrics_put_sample(out, name, labels->data,
                           cache->pages_total > 0 ? 1 - cache->pages_free / cache->pages_total : 0);
    }
}

static void put_config(const struct vllm_model *models, uint32_t count, struct buffer *labels,
                       struct buffer *out)
{
    const char *name = "vllm:cache_config_info";
    metrics_put_header(out, name, METRIC_GAUGE, "Size and number of the decode nodes' KV pages.");
    for (uint32_t i = 0; i < count; i++) {
        char text[32];
        if (models[i].cache.page_tokens == 0)
            continue;
        put_labels(labels, &models[i], NULL, NULL);
        snprintf(text, sizeof text, "%u", models[i].cache.page_tokens);
        metrics_put_label(labels, "block_size", text);
        snprintf(text, sizeof text, "%.0f", models[i].cache.pages_total);
        metrics_put_label(labels, "num_gpu_blocks", text);
        metrics_put_sample(out, name, labels->data, 1);
    }
}

void vllm_metrics_expose(const struct vllm_model *models, uint32_t count, struct buffer *out)
{
    struct buffer labels = {0};
    for (size_t i = 0; i < ARRAY_COUNT(aliases); i++) {
        const struct alias *alias = &aliases[i];
        if (i == 0 || strcmp(alias->name, aliases[i - 1].name) != 0)
            metrics_put_header(out, alias->name, alias->kind, alias->help);
        for (uint32_t model = 0; model < count; model++)
            put_alias(alias, &models[model], &labels, out);
    }
    put_usage(models, count, &labels, out);
    put_config(models, count, &labels, out);
    buffer_free(&labels);
}
