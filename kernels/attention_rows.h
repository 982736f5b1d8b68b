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

/* Rows are in order of position, so neither `start` nor `visible` ever falls. */
struct attention_rows {
    const struct attention_task *task;
    uint32_t padded_dim;
    const float *q[ATTENTION_TILE_ROWS];
    float *out[ATTENTION_TILE_ROWS];
    uint32_t start[ATTENTION_TILE_ROWS];   /* first token a row sees */
    uint32_t visible[ATTENTION_TILE_ROWS]; /* end of the tokens a row sees */
};

/* The first token that a row at `position` sees. */
ATTENTION_INLINE uint32_t attention_start(uint32_t position, uint32_t window)
{
    return window > 0 && position >= window ? position - window + 1 : 0;
}

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
        rows->start[r] = attention_start(task->position + token, task->window);
        rows->visible[r] = task->position + token + 1;
    }
}

/* Some of a task's rows: [first, end). */
struct row_range {
    uint32_t first, end;
};

/* The rows that see any of the tokens [first, end); none: first >= end. */
ATTENTION_INLINE struct row_range rows_that_see(const struct attention_rows *rows, uint32_t first,
                                                uint32_t end)
{
    struct row_range range = {0, rows->task->row_count};
    while (range.first < range.end && rows->visible[range.first] <= first)
        range.first++;
    while (range.end > range.first && rows->start[range.end - 1] >= end)
        range.end--;
    return range;
}

/* Tokens [from, to) of a block of 64. */
struct block_span {
    uint32_t from, to;
};

/* What a row sees of the block at `first`, given that it sees some. */
ATTENTION_INLINE struct block_span seen_in_block(const struct attention_rows *rows, uint32_t row,
                                                 uint32_t first)
{
    const uint32_t left = rows->visible[row] - first;
    return (struct block_span){
        .from = rows->start[row] > first ? rows->start[row] - first : 0,
        .to = left < ATTENTION_BLOCK ? left : ATTENTION_BLOCK,
    };
}

/* What any row of a range sees. */
ATTENTION_INLINE struct block_span seen_by_range(const struct attention_rows *rows,
                                                 struct row_range range, uint32_t first)
{
    return (struct block_span){.from = seen_in_block(rows, range.first, first).from,
                               .to = seen_in_block(rows, range.end - 1, first).to};
}

/* The parts of K and V of a block; those of which no row sees anything repeat one that is seen. */
struct block_parts {
    const uint8_t *k[BLOCK_PARTS], *v[BLOCK_PARTS];
};
/* Tokens of the block before the part to be looked at for `part`. */
ATTENTION_INLINE uint32_t part_offset(struct block_span seen, uint32_t part)
{
    const uint32_t at = part * KV_BLOCK_TOKENS;
    const uint32_t first_seen = seen.from / KV_BLOCK_TOKENS * KV_BLOCK_TOKENS;
    return at >= first_seen && at < seen.to ? at : first_seen;
}
ATTENTION_INLINE void block_parts_find(const struct attention_task *task, uint32_t first,
                                       struct block_span seen, struct block_parts *parts)
{
    for (uint32_t part = 0; part < BLOCK_PARTS; part++) {
        const uint32_t at = first + part_offset(seen, part);
        parts->k[part] = kv_block(task->kv, task->slots, KV_PART_K, task->kv_head, at);
        parts->v[part] = kv_block(task->kv, task->slots, KV_PART_V, task->kv_head, at);
    }
}

/* int8: the scales of the parts of a block, [16] each. */
struct block_scales {
    const float *k[BLOCK_PARTS], *v[BLOCK_PARTS];
};
ATTENTION_INLINE void block_scales_find(const struct attention_task *task, uint32_t first,
                                        struct block_span seen, struct block_scales *scales)
{
    for (uint32_t part = 0; part < BLOCK_PARTS; part++) {
        const uint32_t at = first + part_offset(seen, part);
        scales->k[part] = kv_scale(task->kv, task->slots, KV_PART_K, task->kv_head, at);
        scales->v[part] = kv_scale(task->kv, task->slots, KV_PART_V, task->kv_head, at);
    }
}

/* bf16, int8: unnormalised weighted sums of V of some rows over some segments. */
struct attention_sums {
    float *maximum; /* [row], and room for 15 more that a variant may read and write */
    float *lanes;   /* [row][16] sums of weights; row r's are at r * 16 */
    float *values;  /* [row][padded_dim] */
};

/* bf16, int8: the scratch of a task. */
struct attention_space {
    void *q;       /* [row][padded_dim] float or bf16, scaled and rounded */
    float *scores; /* [row][64] */
    /* int8: blocks of bf16, [part][16 * padded_dim] */
    uint16_t *widened_k, *widened_v;
    struct attention_sums whole, part;
    void *under_way; /* the variant's own */
};
/* Floats of a row besides its values, with its share of the room behind the maxima. */
enum { SUMS_ROW_EXTRA = LANE_COUNT + 2 };
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
    space.scores = at;
    at += (size_t)ATTENTION_TILE_ROWS * ATTENTION_BLOCK;
    space.whole = attention_sums_place(at, padded_dim);
    at += (size_t)ATTENTION_TILE_ROWS * (padded_dim + SUMS_ROW_EXTRA);
    space.part = attention_sums_place(at, padded_dim);
    at += (size_t)ATTENTION_TILE_ROWS * (padded_dim + SUMS_ROW_EXTRA);
    space.widened_k = (uint16_t *)(void *)at;
    space.widened_v = space.widened_k + (size_t)ATTENTION_BLOCK * padded_dim;
    return space;
}
/* Bytes of all of it. */
ATTENTION_INLINE size_t attention_space_bytes(uint32_t padded_dim)
{
    const size_t row_floats = 3 * (size_t)padded_dim + ATTENTION_BLOCK + 2 * SUMS_ROW_EXTRA;
    const size_t widened = 2 * (size_t)ATTENTION_BLOCK * padded_dim * sizeof(uint16_t);
    return ATTENTION_TILE_ROWS * row_floats * sizeof(float) + widened;
}

/* int8: the places in the scratch of the parts of a block; as block_parts_find has it, those of
 * which no row sees anything repeat one that is seen. */
ATTENTION_INLINE void block_parts_place(const struct attention_rows *rows,
                                        const struct attention_space *space, struct block_span seen,
                                        struct block_parts *parts)
{
    for (uint32_t part = 0; part < BLOCK_PARTS; part++) {
        const size_t at = (size_t)part_offset(seen, part) * rows->padded_dim;
        parts->k[part] = (const uint8_t *)(space->widened_k + at);
        parts->v[part] = (const uint8_t *)(space->widened_v + at);
    }
}

/* A part of an int8 block in its page; false where no row sees any of it. */
struct int8_part {
    const uint8_t *k, *v;             /* [16 * padded_dim] */
    const float *k_scales, *v_scales; /* [16] */
};
ATTENTION_INLINE bool int8_part_find(const struct attention_task *task, uint32_t first,
                                     struct block_span seen, uint32_t part, struct int8_part *out)
{
    const uint32_t at = first + part * KV_BLOCK_TOKENS;
    if (part_offset(seen, part) != part * KV_BLOCK_TOKENS)
        return false;
    out->k = kv_block(task->kv, task->slots, KV_PART_K, task->kv_head, at);
    out->v = kv_block(task->kv, task->slots, KV_PART_V, task->kv_head, at);
    out->k_scales = kv_scale(task->kv, task->slots, KV_PART_K, task->kv_head, at);
    out->v_scales = kv_scale(task->kv, task->slots, KV_PART_V, task->kv_head, at);
    return true;
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
