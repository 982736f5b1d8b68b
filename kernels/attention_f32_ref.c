/* Causal attention over float32 pages, one query row at a time, in the order the profile fixes:
 * blocks of 64 tokens with an online softmax inside each absolute segment of 512, segments merged
 * ascending. Tokens that the row does not see are never read as numbers. */
#include <math.h>
#include <string.h>

#include "kernels/attention_rows.h"
#include "kernels/exp_approx.h"
#include "kernels/ref_clones.h"
#include "kernels/tanh_approx.h"

/* An unnormalised softmax-weighted sum of V: values / total, scaled by exp(maximum). */
struct partial {
    float maximum, total;
    float *values; /* [D] */
};

/* Scores of the parts of the block at `first` that hold tokens the row sees: a chain over ascending
 * dims, times the scale, then the soft cap. */
REF_INLINE void score_block(const struct attention_task *task, const float *q, uint32_t first,
                            struct block_span seen, float scores[ATTENTION_BLOCK])
{
    const float inverse_cap = 1.0f / task->soft_cap;
    for (uint32_t t = seen.from / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS; t < seen.to;
         t += KV_BLOCK_TOKENS) {
        const float *k =
            (const void *)kv_block(task->kv, task->slots, KV_PART_K, task->kv_head, first + t);
        float dots[KV_BLOCK_TOKENS] = {0};
        for (uint32_t dim = 0; dim < task->head_dim; dim++)
            for (uint32_t token = 0; token < KV_BLOCK_TOKENS; token++)
                dots[token] = fmaf(q[dim], k[kv_k_index(KV_F32, token, dim)], dots[token]);
        for (uint32_t token = 0; token < KV_BLOCK_TOKENS; token++) {
            const float score = dots[token] * task->scale;
            scores[t + token] =
                task->soft_cap == 0.0f ? score : task->soft_cap * tanh_approx(score * inverse_cap);
        }
    }
}

/* Scores become exp(score - maximum), zero where the row does not see; returns their sum. */
REF_INLINE float weigh_block(float scores[ATTENTION_BLOCK], struct block_span seen, float maximum)
{
    float lanes[LANE_COUNT];
    for (uint32_t t = 0; t < ATTENTION_BLOCK; t++) {
        scores[t] = t >= seen.from && t < seen.to ? exp_approx(scores[t] - maximum) : 0.0f;
        lanes[t % LANE_COUNT] = t < LANE_COUNT ? scores[t] : lanes[t % LANE_COUNT] + scores[t];
    }
    return lane_tree_sum(lanes);
}

REF_INLINE void add_block(const struct attention_task *task, const float *q, uint32_t first,
                          struct block_span seen, struct partial *partial)
{
    const uint32_t padded = kv_padded_dim(task->head_dim);
    float scores[ATTENTION_BLOCK];
    score_block(task, q, first, seen, scores);
    float maximum = partial->maximum;
    for (uint32_t t = seen.from; t < seen.to; t++)
        maximum = scores[t] > maximum ? scores[t] : maximum;
    const float correction = exp_approx(partial->maximum - maximum);
    partial->maximum = maximum;
    partial->total = fmaf(partial->total, correction, weigh_block(scores, seen, maximum));
    for (uint32_t dim = 0; dim < task->head_dim; dim++)
        partial->values[dim] *= correction;
    for (uint32_t t = seen.from; t < seen.to; t++) {
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

REF_INLINE void attend_row(const struct attention_rows *rows, uint32_t r)
{
    const struct attention_task *task = rows->task;
    float *values = task->scratch;
    struct partial whole = {-INFINITY, 0.0f, values};
    const uint32_t first_segment = rows->start[r] / ATTENTION_SEGMENT * ATTENTION_SEGMENT;
    for (uint32_t segment = first_segment; segment < rows->visible[r];
         segment += ATTENTION_SEGMENT) {
        const bool own = segment == first_segment;
        struct partial part = {-INFINITY, 0.0f, own ? values : values + task->head_dim};
        memset(part.values, 0, task->head_dim * sizeof(float));
        for (uint32_t b = segment; b < rows->visible[r] && b < segment + ATTENTION_SEGMENT;
             b += ATTENTION_BLOCK)
            if (rows->start[r] < b + ATTENTION_BLOCK)
                add_block(task, rows->q[r], b, seen_in_block(rows, r, b), &part);
        if (own)
            whole = part;
        else
            merge(task->head_dim, &whole, &part);
    }
    const float inverse = 1.0f / whole.total;
    for (uint32_t dim = 0; dim < task->head_dim; dim++)
        rows->out[r][dim] = values[dim] * inverse;
}

REF_CLONES void attention_f32__ref(const struct attention_task *task)
{
    struct attention_rows rows;
    attention_rows_find(&rows, task);
    for (uint32_t r = 0; r < task->row_count; r++)
        attend_row(&rows, r);
}
