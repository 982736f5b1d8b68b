/* Sizes of a page. */
#include "model/kv/page_pool.h"

size_t kv_layout_strip_bytes(const struct kv_layout *layout)
{
    return kv_page_bytes(layout->dtype, layout->page_tokens, layout->kv_heads, layout->head_dim);
}

size_t kv_layout_page_bytes(const struct kv_layout *layout)
{
    return kv_layout_strip_bytes(layout) * layout->layers;
}
