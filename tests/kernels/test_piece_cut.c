/* Pieces of a product: together they are all of it, once, and the last ones are small. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "kernels/piece_cut.h"

enum { UNITS_MAX = 700, BLOCKS_MAX = 9 };

static void check_cut(uint32_t units, uint32_t blocks, uint32_t members)
{
    struct piece_cut cut;
    piece_cut_begin(&cut, units, blocks, members);
    static uint8_t done[UNITS_MAX][BLOCKS_MAX];
    struct piece_range range = {0};
    uint32_t cells = 0, before = UINT32_MAX;
    const uint32_t count = cut.pieces;
    for (uint32_t unit = 0; unit < units; unit++)
        for (uint32_t block = 0; block < blocks; block++)
            done[unit][block] = 0;
    for (uint32_t piece = 0; piece < count; piece++) {
        cr_assert(piece_cut_find(&cut, piece, &range));
        cr_assert(range.first < range.end && range.end <= units);
        cr_assert(range.block_first < range.block_end && range.block_end <= blocks);
        for (uint32_t unit = range.first; unit < range.end; unit++)
            for (uint32_t block = range.block_first; block < range.block_end; block++)
                cr_assert_eq(done[unit][block]++, 0);
        const uint32_t size = (range.end - range.first) * (range.block_end - range.block_first);
        cells += size;
        cr_assert_leq(size, before, "a piece is larger than the one before");
        before = size;
        cr_assert(range.end - range.first == 1 ||
                  range.end - range.first <= units / (CUT_LARGEST_PER_MEMBER * members));
    }
    cr_assert_eq(cells, units * blocks);
    cr_assert_eq(before, 1, "the last piece has more than one unit and block");
    cr_assert_not(piece_cut_find(&cut, count, &range));
    cr_assert_not(piece_cut_find(&cut, UINT32_MAX, &range));
}

Test(piece_cut, pieces_are_all_of_it_once_and_end_small)
{
    static const uint32_t members[] = {1, 2, 3, 8, 64};
    for (uint32_t units = 1; units <= UNITS_MAX; units += units < 70 ? 1 : 37)
        for (uint32_t blocks = 1; blocks <= BLOCKS_MAX; blocks++)
            for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
                check_cut(units, blocks, members[i]);
}

/* The most units there can be, and more than there will be. */
Test(piece_cut, stages_are_few)
{
    static const uint32_t members[] = {1, 2, 3, 1024};
    for (uint32_t bits = 1; bits <= 31; bits++)
        for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
            for (uint32_t less = 0; less <= 1; less++) {
                struct piece_cut cut;
                piece_cut_begin(&cut, (UINT32_C(1) << bits) - less, 1, members[i]);
                cr_assert_leq(cut.stage_count, CUT_STAGES_MAX);
            }
}

/* Members that take turns go through ranges of their own. */
Test(piece_cut, members_that_take_turns_have_ranges)
{
    enum { MEMBERS = 3, UNITS = 305 };
    struct piece_cut cut;
    struct piece_range range = {0};
    uint32_t next[MEMBERS];
    piece_cut_begin(&cut, UNITS, 1, MEMBERS);
    for (uint32_t i = 0; i < MEMBERS; i++)
        next[i] = i * piece_cut_stride(&cut);
    for (uint32_t piece = 0; piece < cut.pieces - UNITS % MEMBERS; piece++) {
        cr_assert(piece_cut_find(&cut, piece, &range));
        cr_assert_eq(range.first, next[piece % MEMBERS]);
        next[piece % MEMBERS] = range.end;
    }
    for (uint32_t i = 0; i < MEMBERS; i++)
        cr_assert_eq(next[i], (i + 1) * piece_cut_stride(&cut));
}

/* What two members draw of a product that a prefill has many of. */
Test(piece_cut, few_pieces_suffice)
{
    struct piece_cut cut;
    piece_cut_begin(&cut, 152, 1, 2);
    cr_assert_eq(cut.pieces, 24);
    cr_assert_eq(piece_cut_stride(&cut), 76);
}
