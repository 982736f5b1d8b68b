/* K and V of a token into its page, in the order of kv_layout.h. */
#include "kernels/float_bits.h"
#include "kernels/kernels.h"
#include "kernels/kv_layout.h"
#include "kernels/ref_clones.h"

REF_INLINE void put(enum kv_dtype dtype, void *block, size_t index, float value)
{
    if (dtype == KV_F32)
        ((float *)block)[index] = value;
    else
        ((uint16_t *)block)[index] = bf16_from_float(value);
}

REF_INLINE void write_rows(const struct kv_write_task *task, enum kv_dtype dtype)
{
    const struct kv_view *kv = task->kv;
    const uint32_t padded = kv_padded_dim(kv->head_dim);
    for (uint32_t row = 0; row < task->rows; row++) {
        const uint32_t position = task->position + row;
        const uint32_t token = position % KV_BLOCK_TOKENS;
        for (uint32_t head = 0; head < kv->kv_heads; head++) {
            const size_t from = ((size_t)row * kv->kv_heads + head) * kv->head_dim;
            void *k = kv_block(kv, task->slots, KV_PART_K, head, position);
            void *v = kv_block(kv, task->slots, KV_PART_V, head, position);
            for (uint32_t dim = 0; dim < padded; dim++) {
                const bool inside = dim < kv->head_dim;
                put(dtype, k, kv_k_index(dtype, token, dim), inside ? task->k[from + dim] : 0.0f);
                put(dtype, v, kv_v_index(dtype, padded, token, dim),
                    inside ? task->v[from + dim] : 0.0f);
            }
        }
    }
}

void kv_write_f32__ref(const struct kv_write_task *task)
{
    write_rows(task, KV_F32);
}

void kv_write_bf16__ref(const struct kv_write_task *task)
{
    write_rows(task, KV_BF16);
}
