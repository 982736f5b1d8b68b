/* Causal attention over float32 pages, one query row at a time, in the order the profile fixes:
 * blocks of 64 tokens with an online softmax inside each absolute segment of 512, segments merged
 * ascending. Tokens past the row's position are never read as numbers. */
#include <math.h>
#include <string.h>

#include "kernels/exp_approx.h"
#include "kernels/kernels.h"
#include "kernels/kv_layout.h"
#include "kernels/lane_tree.h"
#include "kernels/ref_clones.h"

/* An unnormalised softmax-weighted sum of V: values / total, scaled by exp(maximum). */
struct partial {
    float maximum, total;
    float *values; /* [D] */
};

/* scores[t] = scale * (q . k[t]) for the `count` tokens from `first`, a chain over ascending dims.
 */
REF_INLINE void score_block(const struct attention_task *task, const float *q, uint32_t first,
                            uint32_t count, float scores[ATTENTION_BLOCK])
{
    for (uint32_t t = 0; t < count; t += KV_BLOCK_TOKENS) {
        const float *k =
            (const void *)kv_block(task->kv, task->slots, KV_PART_K, task->kv_head, first + t);
        float dots[KV_BLOCK_TOKENS] = {0};
        for (uint32_t dim = 0; dim < task->head_dim; dim++)
            for (uint32_t token = 0; token < KV_BLOCK_TOKENS; token++)
                dots[token] = fmaf(q[dim], k[kv_k_index(KV_F32, token, dim)], dots[token]);
        for (uint32_t token = 0; token < KV_BLOCK_TOKENS; token++)
            scores[t + token] = dots[token] * task->scale;
    }
}

/* Scores become exp(score - maximum), zero past count; returns their sum by lanes. */
REF_INLINE float weigh_block(float scores[ATTENTION_BLOCK], uint32_t count, float maximum)
{
    float lanes[LANE_COUNT];
    for (uint32_t t = 0; t < ATTENTION_BLOCK; t++) {
        scores[t] = t < count ? exp_approx(scores[t] - maximum) : 0.0f;
        lanes[t % LANE_COUNT] = t < LANE_COUNT ? scores[t] : lanes[t % LANE_COUNT] + scores[t];
    }
    return lane_tree_sum(lanes);
}

REF_INLINE void add_block(const struct attention_task *task, const float *q, uint32_t first,
                          uint32_t count, struct partial *partial)
{
    const uint32_t padded = kv_padded_dim(task->head_dim);
    float scores[ATTENTION_BLOCK];
    score_block(task, q, first, count, scores);
    float maximum = partial->maximum;
    for (uint32_t t = 0; t < count; t++)
        maximum = scores[t] > maximum ? scores[t] : maximum;
    const float correction = exp_approx(partial->maximum - maximum);
    partial->maximum = maximum;
    partial->total = fmaf(partial->total, correction, weigh_block(scores, count, maximum));
    for (uint32_t dim = 0; dim < task->head_dim; dim++)
        partial->values[dim] *= correction;
    for (uint32_t t = 0; t < count; t++) {
        const float *v =
            (const void *)kv_block(task->kv, task->slots, KV_PART_V, task->kv_head, first + t);
        const uint32_t token = (first + t) % KV_BLOCK_TOKENS;
        for (uint32_t dim = 0; dim < task->head_dim; dim++)
            partial->values[dim] =
                fmaf(scores[t], v[kv_v_index(KV_F32, padded, token, dim)], partial->values[dim]);
    }
}

/* into = into + next, each scaled to the larger maximum. */
REF_INLINE void merge(uint32_t head_dim, struct partial *into, const struct partial *next)
{
    const float maximum = next->maximum > into->maximum ? next->maximum : into->maximum;
    const float keep = exp_approx(into->maximum - maximum);
    const float take = exp_approx(next->maximum - maximum);
    into->maximum = maximum;
    into->total = fmaf(into->total, keep, next->total * take);
    for (uint32_t dim = 0; dim < head_dim; dim++)
        into->values[dim] = fmaf(into->values[dim], keep, next->values[dim] * take);
}

REF_INLINE void attend_row(const struct attention_task *task, const float *q, float *out,
                           uint32_t visible)
{
    float *values = task->scratch;
    struct partial whole = {-INFINITY, 0.0f, values};
    for (uint32_t segment = 0; segment < visible; segment += ATTENTION_SEGMENT) {
        struct partial part = {-INFINITY, 0.0f, segment ? values + task->head_dim : values};
        memset(part.values, 0, task->head_dim * sizeof(float));
        for (uint32_t b = segment; b < visible && b < segment + ATTENTION_SEGMENT;
             b += ATTENTION_BLOCK)
            add_block(task, q, b, visible - b < ATTENTION_BLOCK ? visible - b : ATTENTION_BLOCK,
                      &part);
        if (segment)
            merge(task->head_dim, &whole, &part);
        else
            whole = part;
    }
    const float inverse = 1.0f / whole.total;
    for (uint32_t dim = 0; dim < task->head_dim; dim++)
        out[dim] = values[dim] * inverse;
}

REF_CLONES void attention_f32__ref(const struct attention_task *task)
{
    const uint32_t group = task->heads / task->kv->kv_heads;
    for (uint32_t row = task->row_first; row < task->row_first + task->row_count; row++) {
        const uint32_t token = row / group;
        const uint32_t head = task->kv_head * group + row % group;
        const size_t at = ((size_t)token * task->heads + head) * task->head_dim;
        attend_row(task, task->q + at, task->out + at, task->position + token + 1);
    }
}
