/* The router's numbers once more under the names that dashboards and schedulers made for vLLM read:
 * the same series, so the two never disagree. Left out are those that have no meaning here: of
 * LoRA, of caches outside the workers, of single blocks and single iterations. Loop thread. */
#ifndef BATON_ROUTER_VLLM_METRICS_H
#define BATON_ROUTER_VLLM_METRICS_H

#include "base/metrics.h"

/* What the names say of a model's KV pages; page_tokens 0: no decode node has told yet. */
struct vllm_cache {
    uint32_t page_tokens;
    double pages_total, pages_free; /* of decode nodes that are up */
};
struct vllm_model {
    const char *name;
    const struct metrics *metrics; /* the rows of router_metrics.h, of this model alone */
    struct vllm_cache cache;
};
void vllm_metrics_expose(const struct vllm_model *models, uint32_t count, struct buffer *out);

#endif
