#include "worker/worker_memory.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"

enum { BLIND_CONTEXTS = 4, MIB = 1 << 20 };

static const double default_share = 0.5;

uint64_t kv_demand_bytes(const struct kv_demand *demand)
{
    const uint64_t most = demand->contexts * demand->context_bytes;
    const double share = demand->amount.share > 0 ? demand->amount.share : default_share;
    if (demand->amount.bytes > 0)
        return demand->amount.bytes;
    if (demand->share_of_bytes == 0)
        return demand->contexts < BLIND_CONTEXTS ? most : BLIND_CONTEXTS * demand->context_bytes;
    const uint64_t bytes = (uint64_t)(share * (double)demand->share_of_bytes);
    return demand->amount.share > 0 || bytes < most ? bytes : most;
}

static enum status check_room(uint64_t bytes, uint64_t room, bool prefault, struct error *error)
{
    if (bytes <= room)
        return STATUS_OK;
    if (prefault)
        return error_set(error, STATUS_NO_MEMORY,
                         "the KV pool is %" PRIu64 " MiB and %" PRIu64
                         " MiB are available after the weights: ask for a smaller --kv-memory",
                         bytes / MIB, room / MIB);
    LOG_WARN("the KV pool is %" PRIu64 " MiB and %" PRIu64
             " MiB are available after the weights: it cannot be used in full",
             bytes / MIB, room / MIB);
    return STATUS_OK;
}

enum status worker_kv_bytes(const struct model_outline *model, const struct worker_options *options,
                            uint64_t *bytes_out, struct error *error)
{
    const uint64_t context =
        options->context_tokens > 0 ? options->context_tokens : model->context_tokens;
    const uint64_t pages = (context + options->page_tokens - 1) / options->page_tokens;
    const uint64_t page_bytes =
        model->layers * kv_page_bytes((enum kv_dtype)options->kv_dtype, options->page_tokens,
                                      model->kv_heads, model->head_dim);
    /* Packed weights are as large as the file's, but for a few per cent. */
    const uint64_t available = memory_available(), weights = model->tensor_bytes;
    const uint64_t room = available > weights ? available - weights : 0;
    const struct kv_demand demand = {
        .amount = options->kv_memory,
        .share_of_bytes = options->kv_memory_of > 0 ? options->kv_memory_of : room,
        .context_bytes = pages * page_bytes,
        .contexts = options->max_requests,
    };
    const uint64_t bytes = kv_demand_bytes(&demand);
    if (available > 0)
        TRY(check_room(bytes, room, options->kv_prefault, error));
    *bytes_out = bytes;
    return STATUS_OK;
}

void worker_kv_touch(struct page_pool *pages)
{
    const struct kv_layout *layout = page_pool_layout(pages);
    volatile uint8_t *memory = page_pool_strip(pages, 0, 0);
    const size_t bytes =
        (size_t)layout->layers * page_pool_slot_count(pages) * kv_layout_strip_bytes(layout);
    const size_t step = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; memory != NULL && at < bytes; at += step)
        memory[at] = memory[at];
}
