/* Causal attention over bf16 and int8 pages, one query row at a time, in the order the profile
 * fixes: queries scaled (to base 2) and rounded to bf16; scores as bf16 products, then the soft
 * cap; blocks of 64 tokens with an online softmax inside each absolute segment of 512; weights
 * rounded to bf16 for the sums of V, which are bf16 products over pairs of tokens; segments merged
 * ascending. Denormals are zero throughout. Tokens that the row does not see are never read as
 * numbers: in a pair with one that it sees, such a token counts as zero times zero. An int8 element
 * is the bf16 nearest to scale * q. */
#include "kernels/attention_bf16.h"
#include "kernels/ref_clones.h"

/* Room for every variant. */
size_t attention_scratch_bytes(uint32_t head_dim)
{
    return attention_space_bytes(kv_padded_dim(head_dim));
}

size_t attention_partial_bytes(uint32_t head_dim)
{
    const size_t row_floats = PARTIAL_VALUES + (size_t)kv_padded_dim(head_dim);
    return ATTENTION_TILE_ROWS * row_floats * sizeof(float);
}

/* What a row works with. */
struct row {
    const struct attention_task *task;
    uint32_t padded_dim;
    const float *q; /* [padded_dim], scaled and rounded */
    uint16_t *widened;
    uint32_t start, visible;
};

/* The block of 16 tokens that holds `position`, in bf16. */
REF_INLINE const uint16_t *block_of(const struct row *row, enum kv_part part, uint32_t position)
{
    const struct attention_task *task = row->task;
    const uint8_t *block = kv_block(task->kv, task->slots, part, task->kv_head, position);
    if (task->kv->dtype == KV_BF16)
        return (const uint16_t *)(const void *)block;
    const int8_t *q = (const int8_t *)block;
    const float *scale = kv_scale(task->kv, task->slots, part, task->kv_head,
                                  position / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS);
    const uint32_t padded = row->padded_dim;
    for (uint32_t token = 0; token < KV_BLOCK_TOKENS; token++) {
        for (uint32_t dim = 0; dim < padded; dim++) {
            const size_t at = part == KV_PART_K ? kv_k_index(KV_I8, token, dim)
                                                : kv_v_index(KV_I8, padded, token, dim);
            row->widened[at] = bf16_from_float_flushed(scale[token] * (float)q[at]);
        }
    }
    return row->widened;
}

/* Scores of the parts of the block at `first` that hold tokens the row sees. */
REF_INLINE void score_block(const struct row *row, uint32_t first, struct block_span seen,
                            float scores[ATTENTION_BLOCK])
{
    const struct attention_cap cap = attention_cap_base2(row->task);
    for (uint32_t t = seen.from / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS; t < seen.to;
         t += KV_BLOCK_TOKENS) {
        const uint16_t *k = block_of(row, KV_PART_K, first + t);
        float dots[KV_BLOCK_TOKENS] = {0};
        for (uint32_t dim = 0; dim < row->padded_dim; dim += 2, k += 2 * KV_BLOCK_TOKENS)
            for (uint32_t token = 0; token < KV_BLOCK_TOKENS; token++)
                dots[token] =
                    fmaf(float_from_bf16(k[2 * token]), row->q[dim],
                         fmaf(float_from_bf16(k[2 * token + 1]), row->q[dim + 1], dots[token]));
        for (uint32_t token = 0; token < KV_BLOCK_TOKENS; token++)
            scores[t + token] = row->task->soft_cap == 0.0f
                                    ? dots[token]
                                    : cap.cap * tanh_approx(dots[token] * cap.inverse);
    }
}

/* The weighted sum of V of what the row sees of the block. */
REF_INLINE void add_block(const struct row *row, const float weights[ATTENTION_BLOCK],
                          uint32_t first, struct block_span seen, float *values)
{
    const uint32_t padded = row->padded_dim;
    const uint16_t *block = NULL;
    for (uint32_t t = seen.from / 2 * 2; t < seen.to; t += 2) {
        if (block == NULL || t % KV_BLOCK_TOKENS == 0)
            block = block_of(row, KV_PART_V, first + t);
        const uint16_t *v = block + kv_v_index(KV_BF16, padded, t % KV_BLOCK_TOKENS, 0);
        const float even = float_from_bf16(bf16_from_float_flushed(weights[t]));
        const float odd = float_from_bf16(bf16_from_float_flushed(weights[t + 1]));
        const bool even_seen = t >= seen.from;
        const bool odd_seen = t + 1 < seen.to;
        for (uint32_t dim = 0; dim < row->task->head_dim; dim++)
            values[dim] =
                fmaf(even_seen ? float_from_bf16(v[2 * dim]) : 0.0f, even,
                     fmaf(odd_seen ? float_from_bf16(v[2 * dim + 1]) : 0.0f, odd, values[dim]));
    }
}

REF_INLINE void attend_block(const struct row *row, uint32_t first, struct block_span seen,
                             float *maximum, float *lanes, float *values)
{
    float scores[ATTENTION_BLOCK];
    score_block(row, first, seen, scores);
    float largest = *maximum;
    for (uint32_t t = seen.from; t < seen.to; t++)
        largest = scores[t] > largest ? scores[t] : largest;
    const float correction = exp2_approx(*maximum - largest);
    *maximum = largest;
    for (uint32_t t = 0; t < ATTENTION_BLOCK; t++)
        scores[t] = t >= seen.from && t < seen.to ? exp2_approx(scores[t] - largest) : 0.0f;
    for (uint32_t i = 0; i < LANE_COUNT; i++) {
        const float sum = scores[i] + scores[i + 16] + scores[i + 32] + scores[i + 48];
        lanes[i] = fmaf(lanes[i], correction, sum);
    }
    for (uint32_t dim = 0; dim < row->task->head_dim; dim++)
        values[dim] *= correction;
    add_block(row, scores, first, seen, values);
}

REF_INLINE uint32_t later(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The sums of what the row sees of a segment. */
REF_INLINE void attend_segment(const struct row *row, uint32_t segment, float *maximum,
                               float *lanes, float *values)
{
    *maximum = -INFINITY;
    memset(lanes, 0, LANE_COUNT * sizeof(float));
    memset(values, 0, row->padded_dim * sizeof(float));
    const uint32_t from = later(segment, row->start / ATTENTION_BLOCK * ATTENTION_BLOCK);
    for (uint32_t first = from; first < row->visible && first < segment + ATTENTION_SEGMENT;
         first += ATTENTION_BLOCK) {
        const uint32_t left = row->visible - first;
        const struct block_span seen = {.from = later(row->start, first) - first,
                                        .to = left < ATTENTION_BLOCK ? left : ATTENTION_BLOCK};
        attend_block(row, first, seen, maximum, lanes, values);
    }
}

/* One row over its segments of the task. */
REF_INLINE void attend_row(const struct row *row, const struct attention_space *space, uint32_t r,
                           float *out)
{
    const struct attention_task *task = row->task;
    const uint32_t padded = row->padded_dim;
    const struct attention_sums *whole = &space->whole;
    const struct attention_sums *part = &space->part;
    const uint32_t first_index = row->start / ATTENTION_SEGMENT;
    for (uint32_t index = later(task->segment_first, first_index); index < task->segment_end;
         index++) {
        const uint32_t segment = index * ATTENTION_SEGMENT;
        if (segment >= row->visible)
            break;
        attend_segment(row, segment, part->maximum, part->lanes, part->values);
        if (task->partials) {
            float *to = attention_partial(task, padded, index, r);
            memcpy(to, part->lanes, LANE_COUNT * sizeof(float));
            to[PARTIAL_MAXIMUM] = *part->maximum;
            memcpy(to + PARTIAL_VALUES, part->values, padded * sizeof(float));
        } else if (index == first_index) {
            *whole->maximum = *part->maximum;
            memcpy(whole->lanes, part->lanes, LANE_COUNT * sizeof(float));
            memcpy(whole->values, part->values, padded * sizeof(float));
        } else {
            attention_merge_row(whole->maximum, whole->lanes, whole->values, *part->maximum,
                                part->lanes, part->values, padded);
        }
    }
    if (!task->partials)
        attention_finish_row(whole->lanes, whole->values, task->head_dim, out);
}

REF_CLONES __attribute__((noinline)) static void attend(const struct attention_task *task)
{
    struct attention_rows rows;
    attention_rows_find(&rows, task);
    const struct attention_space space = attention_space_place(task, rows.padded_dim);
    float *q = space.q;
    for (uint32_t r = 0; r < task->row_count; r++) {
        for (uint32_t dim = 0; dim < rows.padded_dim; dim++)
            q[dim] = dim < task->head_dim ? float_from_bf16(bf16_from_float_flushed(
                                                rows.q[r][dim] * (task->scale * EXP2_LOG2E)))
                                          : 0.0f;
        const struct row row = {.task = task,
                                .padded_dim = rows.padded_dim,
                                .q = q,
                                .widened = space.widened_k,
                                .start = rows.start[r],
                                .visible = rows.visible[r]};
        attend_row(&row, &space, r, rows.out[r]);
    }
}

void attention_bf16__ref(const struct attention_task *task)
{
    const uint64_t saved = float_flush_begin();
    attend(task);
    float_flush_end(saved);
}

void attention_i8__ref(const struct attention_task *task)
{
    attention_bf16__ref(task);
}

REF_CLONES __attribute__((noinline)) static void merge(const struct attention_task *task)
{
    struct attention_rows rows;
    attention_rows_find(&rows, task);
    for (uint32_t r = 0; r < task->row_count; r++) {
        const uint32_t first = rows.start[r] / ATTENTION_SEGMENT;
        float *whole = attention_partial(task, rows.padded_dim, first, r);
        for (uint32_t segment = first + 1; segment * ATTENTION_SEGMENT < rows.visible[r];
             segment++) {
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
