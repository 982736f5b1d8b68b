/* The router's numbers once more under the names that dashboards and schedulers made for vLLM read:
 * the same series, so the two never disagree. Loop thread. */
#ifndef BATON_ROUTER_VLLM_METRICS_H
#define BATON_ROUTER_VLLM_METRICS_H

#include "base/metrics.h"

/* What the names say of the cluster's KV pages; page_tokens 0: no decode node has told yet. */
struct vllm_cache {
    uint32_t page_tokens;
    double pages_total, pages_free; /* of decode nodes that are up */
};
void vllm_metrics_expose(const struct metrics *metrics, const char *model_name,
                         const struct vllm_cache *cache, struct buffer *out);

#endif
