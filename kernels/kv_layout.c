#include "kernels/kv_layout.h"

#include "base/check.h"

const char *kv_dtype_name(enum kv_dtype dtype)
{
    static const char *const names[] = {[KV_F32] = "f32", [KV_BF16] = "bf16", [KV_I8] = "int8"};
    CHECK(dtype < KV_DTYPE_COUNT);
    return names[dtype];
}

size_t kv_page_bytes(enum kv_dtype dtype, uint32_t page_tokens, uint32_t kv_heads,
                     uint32_t head_dim)
{
    CHECK(page_tokens % KV_BLOCK_TOKENS == 0);
    return 2 * (size_t)kv_heads * kv_strip_bytes(dtype, page_tokens, head_dim);
}

/* "k16" + version + dtype: changes whenever the bytes of a block would. */
uint32_t kv_layout_id(enum kv_dtype dtype)
{
    return 0x6b160100u + (uint32_t)dtype;
}
