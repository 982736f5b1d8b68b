/* How a product is cut in pieces that the members of a team draw in ascending order.
 *
 * Drawing costs as much as a tile or two, and who is done first waits for the others' last piece:
 * pieces are large as long as much is left and become small towards the end, where they are cut by
 * rows too. Every member has a range of its own as long as they take turns, which those that are
 * equally fast do: results of neighbours that share a line of a cache, or a line that was written
 * the last time, would travel between caches. */
#ifndef BATON_KERNELS_PIECE_CUT_H
#define BATON_KERNELS_PIECE_CUT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CUT_LARGEST_PER_MEMBER = 8, /* no piece is more than this part of a member's share */
    CUT_SPLIT_PER_MEMBER = 2,   /* last units of a member that are cut by rows */
    CUT_STAGES_MAX = 33,        /* their sizes halve */
};

/* Rounds of pieces of one size, of which every member has one a round. */
struct piece_stage {
    uint32_t first, size; /* units, from the begin of a range on */
    uint32_t rounds;
};

/* Units of outputs, each for all blocks of rows: a range for every member, a few units that are
 * left, and a few that go by blocks. */
struct piece_cut {
    uint32_t blocks, members, pieces;
    uint32_t range_units, left_units;
    uint32_t stage_count;
    struct piece_stage stages[CUT_STAGES_MAX];
};

/* Units [first, end), blocks [block_first, block_end). */
struct piece_range {
    uint32_t first, end, block_first, block_end;
};

/* Units of a piece of a range in which so many are left: half of them, at most `most`. */
static inline uint32_t piece_cut_size(uint32_t left, uint32_t most)
{
    const uint32_t half = left / 2 < most ? left / 2 : most;
    return half > 0 ? half : 1;
}

/* units, blocks, members > 0. */
static inline void piece_cut_begin(struct piece_cut *cut, uint32_t units, uint32_t blocks,
                                   uint32_t members)
{
    const uint32_t at_end = CUT_SPLIT_PER_MEMBER * members;
    const uint32_t split = blocks == 1 ? 0 : units < at_end ? units : at_end;
    const uint32_t range = (units - split) / members;
    const uint32_t most = range / CUT_LARGEST_PER_MEMBER;
    cut->blocks = blocks;
    cut->members = members;
    cut->range_units = range;
    cut->left_units = units - split - range * members;
    cut->pieces = cut->left_units + split * blocks;
    cut->stage_count = 0;
    for (uint32_t first = 0, size, rounds; first < range; first += size * rounds) {
        size = piece_cut_size(range - first, most);
        /* As long as half of what is left is no less, or to the end. */
        rounds = size == 1 ? range - first : (range - first - 2 * size) / size + 1;
        cut->stages[cut->stage_count++] = (struct piece_stage){first, size, rounds};
        cut->pieces += rounds * members;
    }
}

/* Units from a member's first piece to the next one's. */
static inline uint32_t piece_cut_stride(const struct piece_cut *cut)
{
    return cut->range_units > 0 ? cut->range_units : 1;
}

/* False past the last piece. */
static inline bool piece_cut_find(const struct piece_cut *cut, uint32_t piece,
                                  struct piece_range *out)
{
    if (piece >= cut->pieces)
        return false;
    const uint32_t member = piece % cut->members;
    uint32_t round = piece / cut->members, unit = cut->range_units * cut->members;
    for (uint32_t i = 0; i < cut->stage_count; i++) {
        const struct piece_stage *stage = &cut->stages[i];
        if (round < stage->rounds) {
            unit = member * cut->range_units + stage->first + round * stage->size;
            *out = (struct piece_range){unit, unit + stage->size, 0, cut->blocks};
            return true;
        }
        round -= stage->rounds;
    }
    const uint32_t left = round * cut->members + member;
    if (left < cut->left_units) {
        *out = (struct piece_range){unit + left, unit + left + 1, 0, cut->blocks};
        return true;
    }
    const uint32_t block = (left - cut->left_units) % cut->blocks;
    unit += cut->left_units + (left - cut->left_units) / cut->blocks;
    *out = (struct piece_range){unit, unit + 1, block, block + 1};
    return true;
}

#endif
