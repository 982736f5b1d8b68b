/* How a product is cut in pieces that the members of a team draw in ascending order. Drawing costs
 * as much as a tile or two, and who is done first waits for the others' last piece: pieces are
 * large as long as much is left and become small towards the end, where they are cut by rows too.
 */
#ifndef BATON_KERNELS_PIECE_CUT_H
#define BATON_KERNELS_PIECE_CUT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CUT_LARGEST_PER_MEMBER = 8, /* no piece is more than this part of a member's share */
    CUT_SPLIT_PER_MEMBER = 2,   /* last units of a member that are cut by rows */
    CUT_STAGES_MAX = 34,        /* their sizes halve, but for rounding; 2 to the power of 32 */
};

/* Pieces of one size. */
struct piece_stage {
    uint32_t first, end, size; /* units: of all, and of a piece; the last may have fewer */
    uint32_t pieces;
};

/* Units of outputs, each for all blocks of rows. */
struct piece_cut {
    uint32_t blocks, members, pieces;
    uint32_t whole_end; /* units from here on go by blocks */
    uint32_t stage_count;
    struct piece_stage stages[CUT_STAGES_MAX];
};

/* Units [first, end), blocks [block_first, block_end). */
struct piece_range {
    uint32_t first, end, block_first, block_end;
};

/* Units of a piece when so many are left: half of a fair share, at most `most`. */
static inline uint32_t piece_cut_size(uint32_t left, uint32_t members, uint32_t most)
{
    const uint32_t half = left / (2 * members);
    const uint32_t size = half < most ? half : most;
    return size > 0 ? size : 1;
}

/* units, blocks, members > 0. */
static inline void piece_cut_begin(struct piece_cut *cut, uint32_t units, uint32_t blocks,
                                   uint32_t members)
{
    const uint32_t most = units / (CUT_LARGEST_PER_MEMBER * members);
    const uint32_t at_end = CUT_SPLIT_PER_MEMBER * members;
    const uint32_t split = blocks == 1 ? 0 : units < at_end ? units : at_end;
    cut->blocks = blocks;
    cut->members = members;
    cut->whole_end = units - split;
    cut->pieces = split * blocks;
    cut->stage_count = 0;
    for (uint32_t first = 0, last_size = 0; first < cut->whole_end;) {
        const uint32_t left = cut->whole_end - first;
        const uint32_t size = piece_cut_size(left, members, most);
        const uint32_t round = size == 1 || left / size < members ? left : size * members;
        const uint32_t pieces = (round + size - 1) / size;
        if (size != last_size)
            cut->stages[cut->stage_count++] = (struct piece_stage){.first = first, .size = size};
        first += round;
        cut->stages[cut->stage_count - 1].end = first;
        cut->stages[cut->stage_count - 1].pieces += pieces;
        cut->pieces += pieces;
        last_size = size;
    }
}

/* Units of the first piece. */
static inline uint32_t piece_cut_first(const struct piece_cut *cut)
{
    return cut->stage_count > 0 ? cut->stages[0].size : 1;
}

/* False past the last piece. */
static inline bool piece_cut_find(const struct piece_cut *cut, uint32_t piece,
                                  struct piece_range *out)
{
    if (piece >= cut->pieces)
        return false;
    for (uint32_t i = 0; i < cut->stage_count; i++) {
        const struct piece_stage *stage = &cut->stages[i];
        if (piece < stage->pieces) {
            const uint32_t first = stage->first + piece * stage->size;
            const uint32_t end = first + stage->size;
            *out = (struct piece_range){first, end < stage->end ? end : stage->end, 0, cut->blocks};
            return true;
        }
        piece -= stage->pieces;
    }
    const uint32_t unit = cut->whole_end + piece / cut->blocks, block = piece % cut->blocks;
    *out = (struct piece_range){unit, unit + 1, block, block + 1};
    return true;
}

#endif
