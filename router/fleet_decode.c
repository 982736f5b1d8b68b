#include "router/fleet_decode.h"

#include "router/fleet_counts.h"
#include "router/router_metrics.h"

static const char *const count_names[FLEET_DECODE_COUNTS] = {
    [FLEET_DECODE_STEPS] = "steps",
    [FLEET_DECODE_STEP_US] = "step_us",
    [FLEET_DECODE_FORWARD_US] = "forward_us",
    [FLEET_DECODE_PREEMPTIONS] = "preemptions",
    [FLEET_DECODE_PREEMPTED_TOKENS] = "preempted_tokens",
    [FLEET_DECODE_MASKS] = "masks",
    [FLEET_DECODE_MASK_US] = "mask_us",
    [FLEET_DECODE_GRAMMARS] = "grammars",
    [FLEET_DECODE_GRAMMAR_US] = "grammar_us",
};

void fleet_decode_take(struct fleet_decode *decode, const struct msg_decode_load *load)
{
    const uint64_t told[FLEET_DECODE_COUNTS] = {
        [FLEET_DECODE_STEPS] = load->steps,
        [FLEET_DECODE_STEP_US] = load->step_us,
        [FLEET_DECODE_FORWARD_US] = load->forward_us,
        [FLEET_DECODE_PREEMPTIONS] = load->preemptions,
        [FLEET_DECODE_PREEMPTED_TOKENS] = load->preempted_tokens,
        [FLEET_DECODE_MASKS] = load->masks,
        [FLEET_DECODE_MASK_US] = load->mask_us,
        [FLEET_DECODE_GRAMMARS] = load->grammars,
        [FLEET_DECODE_GRAMMAR_US] = load->grammar_us,
    };
    fleet_counts_take(told, FLEET_DECODE_COUNTS, decode->counts, decode->news);
}

void fleet_decode_measure(const struct fleet_decode *decode, struct metrics *metrics)
{
    const uint64_t *news = decode->news;
    metrics_add(metrics, METRIC_DECODE_STEPS, (double)news[FLEET_DECODE_STEPS]);
    metrics_add(metrics, METRIC_DECODE_STEP_TIME, (double)news[FLEET_DECODE_STEP_US] / 1e6);
    metrics_add(metrics, METRIC_DECODE_FORWARD_TIME, (double)news[FLEET_DECODE_FORWARD_US] / 1e6);
    metrics_add(metrics, METRIC_PREEMPTIONS, (double)news[FLEET_DECODE_PREEMPTIONS]);
    metrics_add(metrics, METRIC_PREEMPTED_TOKENS, (double)news[FLEET_DECODE_PREEMPTED_TOKENS]);
    metrics_add(metrics, METRIC_MASKS, (double)news[FLEET_DECODE_MASKS]);
    metrics_add(metrics, METRIC_MASK_TIME, (double)news[FLEET_DECODE_MASK_US] / 1e6);
    metrics_add(metrics, METRIC_GRAMMARS, (double)news[FLEET_DECODE_GRAMMARS]);
    metrics_add(metrics, METRIC_GRAMMAR_TIME, (double)news[FLEET_DECODE_GRAMMAR_US] / 1e6);
}

void fleet_decode_write(const struct fleet_decode *decode, struct json_writer *writer)
{
    const double step_us = (double)decode->counts[FLEET_DECODE_STEP_US];
    const double forward_us = (double)decode->counts[FLEET_DECODE_FORWARD_US];
    json_open_object(writer);
    for (uint32_t i = 0; i < FLEET_DECODE_COUNTS; i++) {
        json_key(writer, count_names[i]);
        json_put_u64(writer, decode->counts[i]);
    }
    json_key(writer, "overhead");
    json_put_number(writer, step_us > forward_us ? 1 - forward_us / step_us : 0, 4);
    json_close_object(writer);
}
