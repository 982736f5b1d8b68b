/* Sizes of a page, and the comparison two nodes make before one may send pages to the other. */
#include "model/kv/page_pool.h"

#include <inttypes.h>

size_t kv_layout_strip_bytes(const struct kv_layout *layout)
{
    return kv_page_bytes(layout->dtype, layout->page_tokens, layout->kv_heads, layout->head_dim);
}

size_t kv_layout_page_bytes(const struct kv_layout *layout)
{
    return kv_layout_strip_bytes(layout) * layout->layers;
}

enum status kv_layout_compare(const struct kv_layout *ours, const struct kv_layout *theirs,
                              struct error *error)
{
    const struct {
        const char *name;
        uint32_t ours, theirs;
    } fields[] = {
        {"layout version", ours->version, theirs->version},
        {"layer count", ours->layers, theirs->layers},
        {"kv head count", ours->kv_heads, theirs->kv_heads},
        {"head size", ours->head_dim, theirs->head_dim},
        {"page size in tokens", ours->page_tokens, theirs->page_tokens},
        {"KV dtype", (uint32_t)ours->dtype, (uint32_t)theirs->dtype},
        {"block layout", ours->layout_id, theirs->layout_id},
        {"attention window", ours->window, theirs->window},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (fields[i].ours != fields[i].theirs)
            return error_set(error, STATUS_MISMATCH,
                             "the KV pages differ: %s is %" PRIu32 " here and %" PRIu32
                             " on the other side",
                             fields[i].name, fields[i].ours, fields[i].theirs);
    }
    return STATUS_OK;
}
