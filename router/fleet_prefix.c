#include "router/fleet_prefix.h"

#include "router/fleet_counts.h"
#include "router/router_metrics.h"

static const char *const count_names[FLEET_PREFIX_COUNTS] = {
    [FLEET_PREFIX_HITS] = "hits",
    [FLEET_PREFIX_MISSES] = "misses",
    [FLEET_PREFIX_HIT_TOKENS] = "hit_tokens",
    [FLEET_PREFIX_MISS_TOKENS] = "miss_tokens",
    [FLEET_PREFIX_INSERTED] = "inserted",
    [FLEET_PREFIX_EVICTED] = "evicted",
};

void fleet_prefix_take(struct fleet_prefix *prefix, const struct msg_prefix_load *load)
{
    const uint64_t told[FLEET_PREFIX_COUNTS] = {
        [FLEET_PREFIX_HITS] = load->hits,
        [FLEET_PREFIX_MISSES] = load->misses,
        [FLEET_PREFIX_HIT_TOKENS] = load->hit_tokens,
        [FLEET_PREFIX_MISS_TOKENS] = load->miss_tokens,
        [FLEET_PREFIX_INSERTED] = load->inserted,
        [FLEET_PREFIX_EVICTED] = load->evicted,
    };
    prefix->pages = load->pages;
    fleet_counts_take(told, FLEET_PREFIX_COUNTS, prefix->counts, prefix->news);
}

void fleet_prefix_measure(const struct fleet_prefix *prefix, enum worker_role role,
                          struct metrics *metrics)
{
    const uint32_t column = role == WORKER_PREFILL ? 0 : 1;
    for (uint32_t i = 0; i < FLEET_PREFIX_COUNTS; i++)
        metrics_add(metrics, METRIC_PREFIX + 2 * i + column, (double)prefix->news[i]);
}

void fleet_prefix_write(const struct fleet_prefix *prefix, struct json_writer *writer)
{
    json_open_object(writer);
    json_key(writer, "pages");
    json_put_u64(writer, prefix->pages);
    for (uint32_t i = 0; i < FLEET_PREFIX_COUNTS; i++) {
        json_key(writer, count_names[i]);
        json_put_u64(writer, prefix->counts[i]);
    }
    json_close_object(writer);
}
