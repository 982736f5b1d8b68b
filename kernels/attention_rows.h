/* What the variants of attention share: which query rows a task has and what each of them sees, and
 * where in the scratch everything stands. Plain C, for files of any instruction set. */
#ifndef BATON_KERNELS_ATTENTION_ROWS_H
#define BATON_KERNELS_ATTENTION_ROWS_H

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/kv_layout.h"
#include "kernels/lane_tree.h"

#define ATTENTION_INLINE static inline __attribute__((always_inline))

enum { BLOCK_PARTS = ATTENTION_BLOCK / KV_BLOCK_TOKENS };

/* Rows are in order of position, so `visible` never falls. */
struct attention_rows {
    const struct attention_task *task;
    uint32_t padded_dim;
    const float *q[ATTENTION_TILE_ROWS];
    float *out[ATTENTION_TILE_ROWS];
    uint32_t visible[ATTENTION_TILE_ROWS]; /* tokens a row sees, from position 0 */
};

ATTENTION_INLINE void attention_rows_find(struct attention_rows *rows,
                                          const struct attention_task *task)
{
    const uint32_t group = task->heads / task->kv->kv_heads;
    rows->task = task;
    rows->padded_dim = kv_padded_dim(task->head_dim);
    for (uint32_t r = 0; r < task->row_count; r++) {
        const uint32_t token = (task->row_first + r) / group;
        const uint32_t head = task->kv_head * group + (task->row_first + r) % group;
        const size_t at = ((size_t)token * task->heads + head) * task->head_dim;
        rows->q[r] = task->q + at;
        rows->out[r] = task->out + at;
        rows->visible[r] = task->position + token + 1;
    }
}

/* Tokens of the block at `first` that a row sees. */
ATTENTION_INLINE uint32_t visible_in_block(const struct attention_rows *rows, uint32_t row,
                                           uint32_t first)
{
    const uint32_t visible = rows->visible[row] - first;
    return visible < ATTENTION_BLOCK ? visible : ATTENTION_BLOCK;
}

/* The first row that sees position `first`; there is one. */
ATTENTION_INLINE uint32_t first_row_that_sees(const struct attention_rows *rows, uint32_t row,
                                              uint32_t first)
{
    while (rows->visible[row] <= first)
        row++;
    return row;
}

/* Parts of K and V of the block at `first`; those past `longest` tokens repeat the first. */
struct block_parts {
    const uint8_t *k[BLOCK_PARTS], *v[BLOCK_PARTS];
};
ATTENTION_INLINE void block_parts_find(const struct attention_task *task, uint32_t first,
                                       uint32_t longest, struct block_parts *parts)
{
    for (uint32_t part = 0; part < BLOCK_PARTS; part++) {
        const uint32_t inside = part * KV_BLOCK_TOKENS < longest ? part * KV_BLOCK_TOKENS : 0;
        parts->k[part] = kv_block(task->kv, task->slots, KV_PART_K, task->kv_head, first + inside);
        parts->v[part] = kv_block(task->kv, task->slots, KV_PART_V, task->kv_head, first + inside);
    }
}

/* bf16: unnormalised weighted sums of V of some rows over some segments. */
struct attention_sums {
    float *maximum; /* [row] */
    float *lanes;   /* [row][16] sums of weights; row r's are at r * 16 */
    float *values;  /* [row][padded_dim] */
};

/* bf16: the scratch of a task. */
struct attention_space {
    void *q;        /* [row][padded_dim] float or bf16, scaled and rounded */
    float *weights; /* [row][64] float, or bf16 */
    struct attention_sums whole, part;
};
ATTENTION_INLINE struct attention_sums attention_sums_place(float *at, uint32_t padded_dim)
{
    return (struct attention_sums){
        .values = at,
        .lanes = at + (size_t)ATTENTION_TILE_ROWS * padded_dim,
        .maximum = at + (size_t)ATTENTION_TILE_ROWS * (padded_dim + LANE_COUNT),
    };
}
ATTENTION_INLINE struct attention_space attention_space_place(const struct attention_task *task,
                                                              uint32_t padded_dim)
{
    float *at = task->scratch;
    struct attention_space space = {.q = at};
    at += (size_t)ATTENTION_TILE_ROWS * padded_dim;
    space.weights = at;
    at += (size_t)ATTENTION_TILE_ROWS * ATTENTION_BLOCK;
    space.whole = attention_sums_place(at, padded_dim);
    at += (size_t)ATTENTION_TILE_ROWS * (padded_dim + LANE_COUNT + 1);
    at += (64 - (uintptr_t)at % 64) % 64 / sizeof(float);
    space.part = attention_sums_place(at, padded_dim);
    return space;
}

ATTENTION_INLINE void attention_sums_clear(const struct attention_sums *sums, uint32_t row_count,
                                           uint32_t padded_dim)
{
    for (uint32_t r = 0; r < row_count; r++)
        sums->maximum[r] = -INFINITY;
    memset(sums->lanes, 0, (size_t)row_count * LANE_COUNT * sizeof(float));
    memset(sums->values, 0, (size_t)row_count * padded_dim * sizeof(float));
}

#endif
