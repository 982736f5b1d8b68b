/* Where a token's K and V stand in the pages of a layer.
 *
 * A page is [K|V][kv_head] strips. A strip is [block of 16 tokens], with int8 followed by float
 * scales [page_tokens]. With D rounded up to a multiple of 16 (the padding is zero, sizes in use
 * need none), a block is
 *
 *   f32         K [D][16 tokens]              V [16 tokens][D]
 *   bf16, int8  K [D / 2][16 tokens][2 dims]  V [8 token pairs][D][2 tokens]
 *
 * K has tokens in lanes, V has dims in lanes; the pairs are those of a bf16 dot product. An int8
 * element q of a token with scale s stands for bf16(s * q). */
#ifndef BATON_KERNELS_KV_LAYOUT_H
#define BATON_KERNELS_KV_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"

enum kv_part { KV_PART_K, KV_PART_V };

static inline uint32_t kv_padded_dim(uint32_t head_dim)
{
    return (head_dim + 15) / 16 * 16;
}
static inline size_t kv_element_bytes(enum kv_dtype dtype)
{
    return dtype == KV_F32 ? sizeof(float) : dtype == KV_BF16 ? sizeof(uint16_t) : sizeof(int8_t);
}
static inline size_t kv_block_bytes(enum kv_dtype dtype, uint32_t head_dim)
{
    return (size_t)KV_BLOCK_TOKENS * kv_padded_dim(head_dim) * kv_element_bytes(dtype);
}
/* Bytes of all blocks of a strip, and of the strip with its scales. */
static inline size_t kv_blocks_bytes(enum kv_dtype dtype, uint32_t page_tokens, uint32_t head_dim)
{
    return (size_t)(page_tokens / KV_BLOCK_TOKENS) * kv_block_bytes(dtype, head_dim);
}
static inline size_t kv_strip_bytes(enum kv_dtype dtype, uint32_t page_tokens, uint32_t head_dim)
{
    const size_t scales = dtype == KV_I8 ? page_tokens * sizeof(float) : 0;
    return kv_blocks_bytes(dtype, page_tokens, head_dim) + scales;
}

/* The strip of the page that holds `position`. CPU only: device addresses are pointers. */
static inline uint8_t *kv_strip(const struct kv_view *kv, const uint32_t *slots, enum kv_part part,
                                uint32_t kv_head, uint32_t position)
{
    const size_t slot = slots[position / kv->page_tokens];
    const size_t index = (size_t)part * kv->kv_heads + kv_head;
    return (uint8_t *)(uintptr_t)kv->base.address + slot * kv->page_bytes +
           index * kv_strip_bytes(kv->dtype, kv->page_tokens, kv->head_dim);
}

/* The block that holds `position`. */
static inline uint8_t *kv_block(const struct kv_view *kv, const uint32_t *slots, enum kv_part part,
                                uint32_t kv_head, uint32_t position)
{
    const size_t block = position % kv->page_tokens / KV_BLOCK_TOKENS;
    return kv_strip(kv, slots, part, kv_head, position) +
           block * kv_block_bytes(kv->dtype, kv->head_dim);
}

/* int8: the scale of `position`; those of the tokens of its block stand beside it. */
static inline float *kv_scale(const struct kv_view *kv, const uint32_t *slots, enum kv_part part,
                              uint32_t kv_head, uint32_t position)
{
    uint8_t *scales = kv_strip(kv, slots, part, kv_head, position) +
                      kv_blocks_bytes(kv->dtype, kv->page_tokens, kv->head_dim);
    return (float *)(void *)scales + position % kv->page_tokens;
}

/* Index of an element inside its block; token is the position modulo 16. */
static inline size_t kv_k_index(enum kv_dtype dtype, uint32_t token, uint32_t dim)
{
    return dtype == KV_F32 ? (size_t)dim * KV_BLOCK_TOKENS + token
                           : ((size_t)(dim / 2) * KV_BLOCK_TOKENS + token) * 2 + dim % 2;
}
static inline size_t kv_v_index(enum kv_dtype dtype, uint32_t padded_dim, uint32_t token,
                                uint32_t dim)
{
    return dtype == KV_F32 ? (size_t)token * padded_dim + dim
                           : ((size_t)(token / 2) * padded_dim + dim) * 2 + token % 2;
}

#endif
