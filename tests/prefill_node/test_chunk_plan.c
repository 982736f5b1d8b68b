#include <criterion/criterion.h>

#include "base/random.h"
#include "prefill_node/chunk_plan.h"

enum { PARTS = 8 };

static struct chunk_snapshot snapshot(const struct chunk_candidate *candidates, uint32_t count)
{
    return (struct chunk_snapshot){.candidates = candidates,
                                   .candidate_count = count,
                                   .chunk_tokens = 256,
                                   .page_tokens = 64,
                                   .sequences_max = PARTS,
                                   .pages_free = 100};
}

/* Expected parts as {candidate, rows, takes pages}, ended by rows 0. */
struct row {
    const char *what;
    struct chunk_candidate candidates[4];
    uint32_t count, pages_free, chunk_tokens, sequences_max;
    struct chunk_part parts[4];
};

static const struct row rows[] = {
    {"nothing waits", {{0}}, 0, 100, 256, 8, {{0}}},
    {"a short prompt is one part", {{0, 10, 1}}, 1, 100, 256, 8, {{0, 10, true}}},
    {"a long one is cut at the chunk", {{0, 1000, 16}}, 1, 100, 256, 8, {{0, 256, true}}},
    {"its middle holds pages", {{256, 1000, 0}}, 1, 0, 256, 8, {{0, 256, false}}},
    {"its end ends anywhere", {{768, 1000, 0}}, 1, 0, 256, 8, {{0, 232, false}}},
    {"the chunk's rest goes to the next",
     {{768, 1000, 0}, {0, 20, 1}},
     2,
     9,
     256,
     8,
     {{0, 232, false}, {1, 20, true}}},
    {"a rest below a page is not begun by a long prompt",
     {{768, 1000, 0}, {0, 500, 8}},
     2,
     9,
     256,
     8,
     {{0, 232, false}}},
    {"a cut ends at a page edge",
     {{0, 100, 2}, {0, 500, 8}},
     2,
     99,
     256,
     8,
     {{0, 100, true}, {1, 128, true}}},
    {"a cut from inside a page ends at an edge", {{70, 500, 0}}, 1, 0, 128, 8, {{0, 122, false}}},
    {"a chunk of one page", {{0, 65, 2}}, 1, 2, 64, 8, {{0, 64, true}}},
    {"the last row of a page and a half", {{64, 65, 0}}, 1, 0, 64, 8, {{0, 1, false}}},
    {"exactly one page", {{0, 64, 1}}, 1, 1, 64, 8, {{0, 64, true}}},
    {"no pages: it waits", {{0, 64, 2}}, 1, 1, 64, 8, {{0}}},
    {"nobody overtakes who waits for pages", {{0, 500, 8}, {0, 10, 1}}, 2, 7, 256, 8, {{0}}},
    {"pages are charged within the plan",
     {{0, 20, 4}, {0, 20, 4}, {0, 20, 1}},
     3,
     7,
     256,
     8,
     {{0, 20, true}}},
    {"parts are limited",
     {{0, 5, 1}, {0, 5, 1}, {0, 5, 1}},
     3,
     9,
     256,
     2,
     {{0, 5, true}, {1, 5, true}}},
    {"a full chunk leaves nothing", {{0, 256, 4}, {0, 1, 1}}, 2, 9, 256, 8, {{0, 256, true}}},
};

Test(chunk_plan, rows_of_the_table)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        struct chunk_snapshot s = snapshot(row->candidates, row->count);
        struct chunk_part parts[PARTS];
        s.pages_free = row->pages_free;
        s.chunk_tokens = row->chunk_tokens;
        s.sequences_max = row->sequences_max;
        const uint32_t count = chunk_plan_make(&s, parts);
        for (uint32_t k = 0; k < 4; k++) {
            const struct chunk_part *want = &row->parts[k];
            cr_assert_eq(k<count, want->row_count> 0, "%s: %u parts", row->what, count);
            if (k >= count)
                break;
            cr_assert_eq(parts[k].candidate, want->candidate, "%s", row->what);
            cr_assert_eq(parts[k].row_count, want->row_count, "%s: %u rows", row->what,
                         parts[k].row_count);
            cr_assert_eq(parts[k].takes_pages, want->takes_pages, "%s", row->what);
        }
    }
}

/* Any queue is computed to its end, whole pages at a time, in order, within every limit. */
Test(chunk_plan, random_queues_come_to_an_end)
{
    struct random random;
    random_init(&random, 11);
    for (int round = 0; round < 300; round++) {
        struct chunk_candidate queue[12];
        struct chunk_part parts[PARTS];
        uint32_t count = 1 + (uint32_t)random_below(&random, 12), left = 0, steps = 0;
        struct chunk_snapshot s = snapshot(queue, 0);
        s.chunk_tokens = 64 + (uint32_t)random_below(&random, 300);
        s.sequences_max = 1 + (uint32_t)random_below(&random, PARTS);
        s.pages_free = 8;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t tokens = 1 + (uint32_t)random_below(&random, 8 * 64);
            queue[i] = (struct chunk_candidate){0, tokens, (tokens + 63) / 64};
            left += tokens;
        }
        while (count > 0) {
            s.candidate_count = count;
            const uint32_t part_count = chunk_plan_make(&s, parts);
            uint32_t used = 0;
            cr_assert_gt(part_count, 0, "it stands still");
            cr_assert_leq(part_count, s.sequences_max);
            for (uint32_t k = 0; k < part_count; k++) {
                struct chunk_candidate *c = &queue[parts[k].candidate];
                cr_assert_eq(parts[k].candidate, k, "order of arrival");
                cr_assert_eq(parts[k].takes_pages, c->page_count > 0);
                cr_assert_leq(c->page_count, s.pages_free);
                s.pages_free -= c->page_count;
                c->page_count = 0;
                c->position += parts[k].row_count;
                cr_assert(c->position == c->token_count || c->position % 64 == 0);
                used += parts[k].row_count;
            }
            cr_assert_leq(used, s.chunk_tokens);
            left -= used;
            uint32_t kept = 0;
            for (uint32_t i = 0; i < count; i++) {
                if (queue[i].position == queue[i].token_count)
                    s.pages_free += (queue[i].token_count + 63) / 64;
                else
                    queue[kept++] = queue[i];
            }
            count = kept;
            cr_assert_lt(steps++, 1000);
        }
        cr_assert_eq(left, 0);
        cr_assert_eq(s.pages_free, 8);
    }
}
