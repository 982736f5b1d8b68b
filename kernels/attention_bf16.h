/* What the vector variants of attention over bf16 pages have in common: the walk over segments and
 * blocks, merging, the end. Compiled into each with its own flags; attention_bf16_ref.c, which they
 * must match, has its own. */
#ifndef BATON_KERNELS_ATTENTION_BF16_H
#define BATON_KERNELS_ATTENTION_BF16_H

#include "kernels/attention_rows.h"
#include "kernels/exp2_approx.h"

/* A segment's sums of one row where segments are computed apart: lanes, maximum, values. */
enum { PARTIAL_MAXIMUM = LANE_COUNT, PARTIAL_VALUES = 2 * LANE_COUNT };

ATTENTION_INLINE float *attention_partial(const struct attention_task *task, uint32_t padded_dim,
                                          uint32_t segment, uint32_t row)
{
    return task->partials +
           ((size_t)segment * ATTENTION_TILE_ROWS + row) * (PARTIAL_VALUES + padded_dim);
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

/* One block of 64 tokens for the rows from `row` on, all of which see its first token. */
typedef void attention_block_function(const struct attention_rows *rows,
                                      const struct attention_space *space, uint32_t row,
                                      uint32_t first, struct attention_sums *sums);

ATTENTION_INLINE void attention_walk(const struct attention_rows *rows,
                                     const struct attention_space *space,
                                     attention_block_function *attend_block)
{
    const struct attention_task *task = rows->task;
    const uint32_t padded = rows->padded_dim;
    const uint32_t longest = rows->visible[task->row_count - 1];
    for (uint32_t index = task->segment_first; index < task->segment_end; index++) {
        const uint32_t segment = index * ATTENTION_SEGMENT;
        if (segment >= longest)
            break;
        struct attention_sums sums = index ? space->part : space->whole;
        attention_sums_clear(&sums, task->row_count, padded);
        const uint32_t first_row = first_row_that_sees(rows, 0, segment);
        uint32_t row = first_row;
        for (uint32_t first = segment; first < longest && first < segment + ATTENTION_SEGMENT;
             first += ATTENTION_BLOCK) {
            row = first_row_that_sees(rows, row, first);
            attend_block(rows, space, row, first, &sums);
        }
        if (task->partials)
            attention_export(rows, &sums, index);
        for (uint32_t r = first_row; !task->partials && index && r < task->row_count; r++)
            attention_merge_row(&space->whole.maximum[r], space->whole.lanes + r * LANE_COUNT,
                                space->whole.values + (size_t)r * padded, sums.maximum[r],
                                sums.lanes + r * LANE_COUNT, sums.values + (size_t)r * padded,
                                padded);
    }
    for (uint32_t r = 0; !task->partials && r < task->row_count; r++)
        attention_finish_row(space->whole.lanes + r * LANE_COUNT,
                             space->whole.values + (size_t)r * padded, task->head_dim,
                             rows->out[r]);
}

#endif
