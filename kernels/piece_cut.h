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
};

/* Units of outputs, each for all blocks of rows. units, blocks, members > 0. */
struct piece_cut {
    uint32_t units, blocks, members;
};

/* Units [first, end), blocks [block_first, block_end). */
struct piece_range {
    uint32_t first, end, block_first, block_end;
};

/* At the end they go by blocks. */
static inline uint32_t piece_cut_split(const struct piece_cut *cut)
{
    const uint32_t split = CUT_SPLIT_PER_MEMBER * cut->members;
    return cut->blocks == 1 ? 0 : cut->units < split ? cut->units : split;
}

/* Units of a piece when so many are left: half of a fair share, within the limits. */
static inline uint32_t piece_cut_size(const struct piece_cut *cut, uint32_t left)
{
    const uint32_t most = cut->units / (CUT_LARGEST_PER_MEMBER * cut->members);
    const uint32_t half = left / (2 * cut->members);
    const uint32_t size = half < most ? half : most;
    return size > 0 ? size : 1;
}

/* Of so many units a round of pieces of one size takes. */
static inline uint32_t piece_cut_round(const struct piece_cut *cut, uint32_t left, uint32_t size)
{
    return left / size < cut->members ? left : size * cut->members;
}

static inline uint32_t piece_cut_count(const struct piece_cut *cut)
{
    const uint32_t split = piece_cut_split(cut);
    uint32_t count = split * cut->blocks, size;
    for (uint32_t left = cut->units - split; left > 0; left -= piece_cut_round(cut, left, size)) {
        size = piece_cut_size(cut, left);
        count += (piece_cut_round(cut, left, size) + size - 1) / size;
    }
    return count;
}

/* False past the last piece. */
static inline bool piece_cut_find(const struct piece_cut *cut, uint32_t piece,
                                  struct piece_range *out)
{
    const uint32_t split = piece_cut_split(cut), whole = cut->units - split;
    uint32_t first = 0;
    while (first < whole) {
        const uint32_t size = piece_cut_size(cut, whole - first);
        const uint32_t round = piece_cut_round(cut, whole - first, size);
        const uint32_t pieces = (round + size - 1) / size;
        if (piece < pieces) {
            const uint32_t begin = first + piece * size;
            const uint32_t end = begin + size < first + round ? begin + size : first + round;
            *out = (struct piece_range){begin, end, 0, cut->blocks};
            return true;
        }
        piece -= pieces;
        first += round;
    }
    if (piece >= split * cut->blocks)
        return false;
    const uint32_t unit = whole + piece / cut->blocks, block = piece % cut->blocks;
    *out = (struct piece_range){unit, unit + 1, block, block + 1};
    return true;
}

#endif
