/* How large the page pool is, and whether there is memory for it. */
#ifndef BATON_WORKER_WORKER_MEMORY_H
#define BATON_WORKER_WORKER_MEMORY_H

#include <stdint.h>

#include "base/config.h"
#include "kernels/backend.h"
#include "model/kv/page_pool.h"
#include "model/model.h"
#include "worker/worker_options.h"

/* What the size is made from. */
struct kv_demand {
    struct config_amount amount; /* --kv-memory; none: half, but no more than `contexts` contexts */
    uint64_t share_of_bytes;     /* what a share is taken of; 0: nobody knows */
    uint64_t context_bytes;      /* pages of one whole context */
    uint32_t contexts;
};
/* Bytes of the pool. Where nobody knows what a share is taken of: a few contexts. Pure; whether one
 * context fits is model_open's to say. */
uint64_t kv_demand_bytes(const struct kv_demand *demand);

/* The same for a worker that is about to load `model`: a share is taken of --kv-memory-of, or of
 * what is available now but for the room of the weights. A size that is not there now is a warning,
 * and NO_MEMORY with --kv-prefault. */
enum status worker_kv_bytes(const struct model_outline *model, const struct worker_options *options,
                            uint64_t *bytes_out, struct error *error);
/* Writes to every page of memory of the pool, which is the system's to give from then on no more.
 * Nobody else uses the pool yet. */
void worker_kv_touch(struct page_pool *pages);

#endif
