/* What the variants of attention over bf16 and int8 pages have in common: the walk over segments
 * and blocks, merging, the end. Compiled into each with its own flags; attention_bf16_ref.c, which
 * they must match, has its own walk. */
#ifndef BATON_KERNELS_ATTENTION_BF16_H
#define BATON_KERNELS_ATTENTION_BF16_H

#include "kernels/attention_rows.h"
#include "kernels/exp2_approx.h"
#include "kernels/tanh_approx.h"

/* A segment's sums of one row where segments are computed apart: lanes, maximum, values. */
enum { PARTIAL_MAXIMUM = LANE_COUNT, PARTIAL_VALUES = 2 * LANE_COUNT };

ATTENTION_INLINE float *attention_partial(const struct attention_task *task, uint32_t padded_dim,
                                          uint32_t segment, uint32_t row)
{
    return task->partials +
           ((size_t)segment * ATTENTION_TILE_ROWS + row) * (PARTIAL_VALUES + padded_dim);
}

/* The soft cap of scores to base 2: c and 1 / c. */
struct attention_cap {
    float cap, inverse;
};
ATTENTION_INLINE struct attention_cap attention_cap_base2(const struct attention_task *task)
{
    const float cap = task->soft_cap * EXP2_LOG2E;
    return (struct attention_cap){cap, 1.0f / cap};
}

/* into = into + next, each scaled to the larger maximum. */
ATTENTION_INLINE void attention_merge_row(float *into_maximum, float *into_lanes,
                                          float *into_values, float next_maximum,
                                          const float *next_lanes, const float *next_values,
                                          uint32_t padded_dim)
{
    const float maximum = next_maximum > *into_maximum ? next_maximum : *into_maximum;
    const float keep = exp2_approx(*into_maximum - maximum);
    const float take = exp2_approx(next_maximum - maximum);
    *into_maximum = maximum;
    for (uint32_t i = 0; i < LANE_COUNT; i++)
        into_lanes[i] = fmaf(into_lanes[i], keep, next_lanes[i] * take);
    for (uint32_t i = 0; i < padded_dim; i++)
        into_values[i] = fmaf(into_values[i], keep, next_values[i] * take);
}

ATTENTION_INLINE void attention_finish_row(const float *lanes, const float *values,
                                           uint32_t head_dim, float *out)
{
    const float inverse = 1.0f / lane_tree_sum(lanes);
    for (uint32_t i = 0; i < head_dim; i++)
        out[i] = values[i] * inverse;
}

ATTENTION_INLINE void attention_export(const struct attention_rows *rows,
                                       const struct attention_sums *sums, uint32_t segment)
{
    const uint32_t padded = rows->padded_dim;
    for (uint32_t r = 0; r < rows->task->row_count; r++) {
        float *to = attention_partial(rows->task, padded, segment, r);
        memcpy(to, sums->lanes + r * LANE_COUNT, LANE_COUNT * sizeof(float));
        to[PARTIAL_MAXIMUM] = sums->maximum[r];
        memcpy(to + PARTIAL_VALUES, sums->values + (size_t)r * padded, padded * sizeof(float));
    }
}

/* The sums of a segment that the row sees: its first one is taken as it is. */
ATTENTION_INLINE void attention_take(const struct attention_rows *rows,
                                     const struct attention_space *space, uint32_t segment,
                                     uint32_t r)
{
    const uint32_t padded = rows->padded_dim;
    float *lanes = space->whole.lanes + r * LANE_COUNT;
    float *values = space->whole.values + (size_t)r * padded;
    const float *next_lanes = space->part.lanes + r * LANE_COUNT;
    const float *next_values = space->part.values + (size_t)r * padded;
    if (rows->start[r] / ATTENTION_SEGMENT == segment) {
        space->whole.maximum[r] = space->part.maximum[r];
        memcpy(lanes, next_lanes, LANE_COUNT * sizeof(float));
        memcpy(values, next_values, padded * sizeof(float));
    } else {
        attention_merge_row(&space->whole.maximum[r], lanes, values, space->part.maximum[r],
                            next_lanes, next_values, padded);
    }
}

/* The block of 64 tokens at `first` for rows that all see some of it. */
typedef void attention_block_function(const struct attention_rows *rows,
                                      const struct attention_space *space, struct row_range range,
                                      uint32_t first, const struct attention_sums *sums);
/* Ends what is under way of the blocks so far: the sums of the segment are wanted. */
typedef void attention_settle_function(const struct attention_space *space);

ATTENTION_INLINE void attention_walk(const struct attention_rows *rows,
                                     const struct attention_space *space,
                                     attention_block_function *attend_block,
                                     attention_settle_function *settle)
{
    const struct attention_task *task = rows->task;
    const uint32_t longest = rows->visible[task->row_count - 1];
    const uint32_t first_segment = rows->start[0] / ATTENTION_SEGMENT;
    uint32_t index = task->segment_first > first_segment ? task->segment_first : first_segment;
    for (; index < task->segment_end && index * ATTENTION_SEGMENT < longest; index++) {
        const uint32_t segment = index * ATTENTION_SEGMENT;
        const uint32_t end =
            longest - segment < ATTENTION_SEGMENT ? longest : segment + ATTENTION_SEGMENT;
        attention_sums_clear(&space->part, task->row_count, rows->padded_dim);
        for (uint32_t first = segment; first < end; first += ATTENTION_BLOCK) {
            const struct row_range range = rows_that_see(rows, first, first + ATTENTION_BLOCK);
            if (range.first < range.end)
                attend_block(rows, space, range, first, &space->part);
        }
        settle(space);
        if (task->partials) {
            attention_export(rows, &space->part, index);
            continue;
        }
        const struct row_range range = rows_that_see(rows, segment, segment + ATTENTION_SEGMENT);
        for (uint32_t r = range.first; r < range.end; r++)
            attention_take(rows, space, index, r);
    }
    for (uint32_t r = 0; !task->partials && r < task->row_count; r++)
        attention_finish_row(space->whole.lanes + r * LANE_COUNT,
                             space->whole.values + (size_t)r * rows->padded_dim, task->head_dim,
                             rows->out[r]);
}

#endif
