/* Causal attention over bf16 pages, one query row at a time, in the order the profile fixes:
 * queries scaled (to base 2) and rounded to bf16; scores as bf16 products; blocks of 64 tokens with
 * an online softmax inside each absolute segment of 512; weights rounded to bf16 for the sums of V,
 * which are bf16 products over pairs of tokens; segments merged ascending. Denormals are zero
 * throughout. Tokens past the row's position are never read as numbers: in a pair that ends with
 * one, it counts as zero times zero. */
#include "kernels/attention_bf16.h"
#include "kernels/ref_clones.h"

/* Room for every variant. */
size_t attention_scratch_bytes(uint32_t head_dim)
{
    const size_t row_floats =
        3 * (size_t)kv_padded_dim(head_dim) + ATTENTION_BLOCK + 2 * (LANE_COUNT + 1);
    return ATTENTION_TILE_ROWS * row_floats * sizeof(float) + 64;
}

size_t attention_partial_bytes(uint32_t head_dim)
{
    const size_t row_floats = PARTIAL_VALUES + (size_t)kv_padded_dim(head_dim);
    return ATTENTION_TILE_ROWS * row_floats * sizeof(float);
}

/* scores[t] for the first `count` tokens of the block at `first`. */
REF_INLINE void score_block(const struct attention_task *task, const float *q, uint32_t first,
                            uint32_t count, float scores[ATTENTION_BLOCK])
{
    const uint32_t padded = kv_padded_dim(task->head_dim);
    for (uint32_t t = 0; t < count; t += KV_BLOCK_TOKENS) {
        const uint16_t *k =
            (const void *)kv_block(task->kv, task->slots, KV_PART_K, task->kv_head, first + t);
        float dots[KV_BLOCK_TOKENS] = {0};
        for (uint32_t dim = 0; dim < padded; dim += 2, k += 2 * KV_BLOCK_TOKENS)
            for (uint32_t token = 0; token < KV_BLOCK_TOKENS; token++)
                dots[token] =
                    fmaf(float_from_bf16(k[2 * token]), q[dim],
                         fmaf(float_from_bf16(k[2 * token + 1]), q[dim + 1], dots[token]));
        memcpy(scores + t, dots, sizeof(dots));
    }
}

/* The weighted sum of V of the block's first `count` tokens. */
REF_INLINE void add_block(const struct attention_task *task, const float weights[ATTENTION_BLOCK],
                          uint32_t first, uint32_t count, float *values)
{
    const uint32_t padded = kv_padded_dim(task->head_dim);
    for (uint32_t t = 0; t < count; t += 2) {
        const uint16_t *v = (const uint16_t *)(const void *)kv_block(
                                task->kv, task->slots, KV_PART_V, task->kv_head, first + t) +
                            kv_v_index(KV_BF16, padded, (first + t) % KV_BLOCK_TOKENS, 0);
        const float even = float_from_bf16(bf16_from_float_flushed(weights[t]));
        const float odd = float_from_bf16(bf16_from_float_flushed(weights[t + 1]));
        const bool both = t + 1 < count;
        for (uint32_t dim = 0; dim < task->head_dim; dim++)
            values[dim] =
                fmaf(float_from_bf16(v[2 * dim]), even,
                     fmaf(both ? float_from_bf16(v[2 * dim + 1]) : 0.0f, odd, values[dim]));
    }
}

REF_INLINE void attend_block(const struct attention_task *task, const float *q, uint32_t first,
                             uint32_t count, float *maximum, float *lanes, float *values)
{
    float scores[ATTENTION_BLOCK];
    score_block(task, q, first, count, scores);
    float largest = *maximum;
    for (uint32_t t = 0; t < count; t++)
        largest = scores[t] > largest ? scores[t] : largest;
    const float correction = exp2_approx(*maximum - largest);
    *maximum = largest;
    for (uint32_t t = 0; t < ATTENTION_BLOCK; t++)
        scores[t] = t < count ? exp2_approx(scores[t] - largest) : 0.0f;
    for (uint32_t i = 0; i < LANE_COUNT; i++) {
        const float sum = scores[i] + scores[i + 16] + scores[i + 32] + scores[i + 48];
        lanes[i] = fmaf(lanes[i], correction, sum);
    }
    for (uint32_t dim = 0; dim < task->head_dim; dim++)
        values[dim] *= correction;
    add_block(task, scores, first, count, values);
}

/* One row over its segments of the task; `space` has room for its query and two sums of V. */
REF_INLINE void attend_row(const struct attention_task *task, const float *q_in, uint32_t visible,
                           uint32_t row, float *space, float *out)
{
    const uint32_t padded = kv_padded_dim(task->head_dim);
    float *q = space;
    float *values = space + padded;
    float *whole_values = space + 2 * (size_t)padded;
    float whole_lanes[LANE_COUNT] = {0};
    float whole_maximum = -INFINITY;
    for (uint32_t dim = 0; dim < padded; dim++)
        q[dim] =
            dim < task->head_dim
                ? float_from_bf16(bf16_from_float_flushed(q_in[dim] * (task->scale * EXP2_LOG2E)))
                : 0.0f;
    for (uint32_t index = task->segment_first; index < task->segment_end; index++) {
        const uint32_t segment = index * ATTENTION_SEGMENT;
        if (segment >= visible)
            break;
        float lanes[LANE_COUNT] = {0};
        float maximum = -INFINITY;
        memset(values, 0, padded * sizeof(float));
        for (uint32_t b = segment; b < visible && b < segment + ATTENTION_SEGMENT;
             b += ATTENTION_BLOCK)
            attend_block(task, q, b, visible - b < ATTENTION_BLOCK ? visible - b : ATTENTION_BLOCK,
                         &maximum, lanes, values);
        if (task->partials) {
            float *to = attention_partial(task, padded, index, row);
            memcpy(to, lanes, sizeof(lanes));
            to[PARTIAL_MAXIMUM] = maximum;
            memcpy(to + PARTIAL_VALUES, values, padded * sizeof(float));
        } else if (index == 0) {
            whole_maximum = maximum;
            memcpy(whole_lanes, lanes, sizeof(lanes));
            memcpy(whole_values, values, padded * sizeof(float));
        } else {
            attention_merge_row(&whole_maximum, whole_lanes, whole_values, maximum, lanes, values,
                                padded);
        }
    }
    if (!task->partials)
        attention_finish_row(whole_lanes, whole_values, task->head_dim, out);
}

REF_CLONES __attribute__((noinline)) static void attend(const struct attention_task *task)
{
    struct attention_rows rows;
    attention_rows_find(&rows, task);
    for (uint32_t r = 0; r < task->row_count; r++)
        attend_row(task, rows.q[r], rows.visible[r], r, task->scratch, rows.out[r]);
}

void attention_bf16__ref(const struct attention_task *task)
{
    const uint64_t saved = float_flush_begin();
    attend(task);
    float_flush_end(saved);
}

REF_CLONES __attribute__((noinline)) static void merge(const struct attention_task *task)
{
    struct attention_rows rows;
    attention_rows_find(&rows, task);
    for (uint32_t r = 0; r < task->row_count; r++) {
        float *whole = attention_partial(task, rows.padded_dim, 0, r);
        for (uint32_t segment = 1; segment * ATTENTION_SEGMENT < rows.visible[r]; segment++) {
            const float *next = attention_partial(task, rows.padded_dim, segment, r);
            attention_merge_row(&whole[PARTIAL_MAXIMUM], whole, whole + PARTIAL_VALUES,
                                next[PARTIAL_MAXIMUM], next, next + PARTIAL_VALUES,
                                rows.padded_dim);
        }
        attention_finish_row(whole, whole + PARTIAL_VALUES, task->head_dim, rows.out[r]);
    }
}

void attention_merge(const struct attention_task *task)
{
    const uint64_t saved = float_flush_begin();
    merge(task);
    float_flush_end(saved);
}
