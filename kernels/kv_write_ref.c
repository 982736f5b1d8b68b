/* K and V of a token into its page, in the order of kv_layout.h. int8: a scale for every token and
 * head by the rule of int8 activations, scale = amax / 127, q = round(x * (127 / amax)). */
#include <math.h>

#include "kernels/float_bits.h"
#include "kernels/kernels.h"
#include "kernels/kv_layout.h"
#include "kernels/quantize_i8.h"
#include "kernels/ref_clones.h"

/* One head of one token, a row of K or of V. */
struct kv_row {
    const struct kv_view *kv;
    const uint32_t *slots;
    enum kv_part part;
    uint32_t head, position;
    const float *x; /* [head_dim] */
};

REF_INLINE size_t index_of(const struct kv_row *row, enum kv_dtype dtype, uint32_t dim)
{
    const uint32_t token = row->position % KV_BLOCK_TOKENS;
    return row->part == KV_PART_K ? kv_k_index(dtype, token, dim)
                                  : kv_v_index(dtype, kv_padded_dim(row->kv->head_dim), token, dim);
}

REF_INLINE void put_i8(const struct kv_row *row, int8_t *block)
{
    float *scale = kv_scale(row->kv, row->slots, row->part, row->head, row->position);
    const uint32_t head_dim = row->kv->head_dim;
    /* Magnitudes order like their bits, with infinity and then every NaN on top. */
    uint32_t amax_bits = 0;
    for (uint32_t dim = 0; dim < head_dim; dim++) {
        const uint32_t bits = float_bits(row->x[dim]) & 0x7fffffffu;
        amax_bits = bits > amax_bits ? bits : amax_bits;
    }
    const float amax = float_from_bits(amax_bits);
    const bool finite = amax_bits < FLOAT_INFINITY_BITS;
    const bool zero = amax_bits < QUANTIZE_SMALLEST_BITS;
    const float inverse = QUANTIZE_LEVELS / amax;
    for (uint32_t dim = 0; dim < kv_padded_dim(head_dim); dim++) {
        const bool number = dim < head_dim && finite && !zero;
        block[index_of(row, KV_I8, dim)] =
            number ? (int8_t)float_round_to_int(row->x[dim] * inverse) : 0;
    }
    *scale = zero ? 0.0f : finite ? amax / QUANTIZE_LEVELS : NAN;
}

REF_INLINE void put(const struct kv_row *row, enum kv_dtype dtype)
{
    const uint32_t head_dim = row->kv->head_dim;
    void *block = kv_block(row->kv, row->slots, row->part, row->head, row->position);
    if (dtype == KV_I8) {
        put_i8(row, block);
        return;
    }
    for (uint32_t dim = 0; dim < kv_padded_dim(head_dim); dim++) {
        const float value = dim < head_dim ? row->x[dim] : 0.0f;
        if (dtype == KV_F32)
            ((float *)block)[index_of(row, dtype, dim)] = value;
        else
            ((uint16_t *)block)[index_of(row, dtype, dim)] = bf16_from_float(value);
    }
}

REF_INLINE void write_rows(const struct kv_write_task *task, enum kv_dtype dtype)
{
    const struct kv_view *kv = task->kv;
    for (uint32_t i = 0; i < task->rows; i++) {
        for (uint32_t head = 0; head < kv->kv_heads; head++) {
            const size_t from = ((size_t)i * kv->kv_heads + head) * kv->head_dim;
            struct kv_row row = {.kv = kv,
                                 .slots = task->slots,
                                 .part = KV_PART_K,
                                 .head = head,
                                 .position = task->position + i,
                                 .x = task->k + from};
            put(&row, dtype);
            row.part = KV_PART_V;
            row.x = task->v + from;
            put(&row, dtype);
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

void kv_write_i8__ref(const struct kv_write_task *task)
{
    write_rows(task, KV_I8);
}
