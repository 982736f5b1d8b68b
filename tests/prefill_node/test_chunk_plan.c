/* The chunk planner: single decisions by table, and whole lives of random queues, where nobody
 * starves and nobody passes one who is due. */
#include <criterion/criterion.h>

#include "base/random.h"
#include "prefill_node/chunk_plan.h"

enum { PARTS = 8, PAGE = 64, NOBODY = CHUNK_NOBODY };

/* Expected parts as {candidate, rows, starts}, ended by rows 0. The time is 1000. */
struct row {
    const char *what;
    struct chunk_candidate candidates[4];
    uint32_t count, pages_free, chunk_tokens, sequences_max;
    struct chunk_part parts[4];
};

/* Candidates as {position, tokens, pages, waits for, due}. */
static const struct row rows[] = {
    {"nothing waits", {{0}}, 0, 100, 256, 8, {{0}}},
    {"a short prompt is one part", {{0, 10, 1, NOBODY, 9}}, 1, 100, 256, 8, {{0, 10, true}}},
    {"a long one alone has the whole chunk",
     {{0, 1000, 16, NOBODY, 9}},
     1,
     100,
     256,
     8,
     {{0, 256, true}}},
    {"its middle holds pages", {{256, 1000, 0, NOBODY, 9}}, 1, 0, 256, 8, {{0, 256, false}}},
    {"its end ends anywhere", {{768, 1000, 0, NOBODY, 9}}, 1, 0, 256, 8, {{0, 232, false}}},
    {"the chunk's rest goes to the next",
     {{768, 1000, 0, NOBODY, 1}, {0, 20, 1, NOBODY, 2}},
     2,
     9,
     256,
     8,
     {{0, 232, false}, {1, 20, true}}},
    {"who is due first is first",
     {{0, 100, 2, NOBODY, 5}, {0, 120, 2, NOBODY, 3}, {0, 30, 1, NOBODY, 4}},
     3,
     9,
     256,
     8,
     {{1, 120, true}, {2, 30, true}, {0, 100, true}}},
    {"of two that are due at once the one that came first",
     {{0, 20, 1, NOBODY, 5}, {0, 20, 1, NOBODY, 5}},
     2,
     9,
     64,
     1,
     {{0, 20, true}}},
    {"long ones leave half to short ones",
     {{256, 1000, 0, NOBODY, 1}, {0, 900, 15, NOBODY, 2}, {0, 100, 2, NOBODY, 3}},
     3,
     99,
     256,
     8,
     {{0, 128, false}, {2, 100, true}}},
    {"and take what those do not want",
     {{256, 1000, 0, NOBODY, 1}, {0, 60, 1, NOBODY, 2}},
     2,
     99,
     256,
     8,
     {{0, 192, false}, {1, 60, true}}},
    {"two long ones share their half",
     {{0, 1000, 0, NOBODY, 1}, {0, 900, 0, NOBODY, 2}, {0, 256, 0, NOBODY, 3}},
     3,
     99,
     384,
     8,
     {{0, 384, false}}},
    {"a cut ends at a page edge",
     {{0, 100, 2, NOBODY, 1}, {0, 500, 8, NOBODY, 2}},
     2,
     99,
     256,
     8,
     {{0, 100, true}, {1, 128, true}}},
    {"a cut from inside a page ends at an edge",
     {{70, 500, 0, NOBODY, 1}},
     1,
     0,
     128,
     8,
     {{0, 122, false}}},
    {"a chunk of one page", {{0, 65, 2, NOBODY, 1}}, 1, 2, 64, 8, {{0, 64, true}}},
    {"the last token of a known prompt", {{63, 64, 1, NOBODY, 1}}, 1, 1, 64, 8, {{0, 1, true}}},
    {"no pages: it waits", {{0, 64, 2, NOBODY, 1}}, 1, 1, 64, 8, {{0}}},
    {"who is due and waits for pages is passed by nobody",
     {{0, 500, 8, NOBODY, 1000}, {0, 10, 1, NOBODY, 1001}},
     2,
     7,
     256,
     8,
     {{0}}},
    {"but for those that have started",
     {{0, 500, 8, NOBODY, 900}, {64, 100, 0, NOBODY, 1001}, {0, 10, 1, NOBODY, 1001}},
     3,
     7,
     256,
     8,
     {{1, 36, false}}},
    {"who is not yet due and waits for pages is passed",
     {{0, 500, 8, NOBODY, 1001}, {0, 10, 1, NOBODY, 1002}},
     2,
     7,
     256,
     8,
     {{1, 10, true}}},
    {"pages are charged within the plan",
     {{0, 20, 4, NOBODY, 1}, {0, 20, 4, NOBODY, 2}, {0, 20, 1, NOBODY, 3}},
     3,
     7,
     256,
     8,
     {{0, 20, true}}},
    {"parts are limited",
     {{0, 5, 1, NOBODY, 1}, {0, 5, 1, NOBODY, 2}, {0, 5, 1, NOBODY, 3}},
     3,
     9,
     256,
     2,
     {{0, 5, true}, {1, 5, true}}},
    {"a full chunk leaves nothing",
     {{0, 256, 4, NOBODY, 1}, {0, 1, 1, NOBODY, 2}},
     2,
     9,
     256,
     8,
     {{0, 256, true}}},
    {"who waits for another's page is not computed",
     {{64, 200, 0, NOBODY, 5}, {0, 100, 2, 0, 4}},
     2,
     9,
     256,
     8,
     {{0, 136, false}}},
};

static uint32_t scratch[64];

Test(chunk_plan, rows_of_the_table)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        const struct chunk_snapshot snapshot = {.candidates = row->candidates,
                                                .candidate_count = row->count,
                                                .chunk_tokens = row->chunk_tokens,
                                                .page_tokens = PAGE,
                                                .sequences_max = row->sequences_max,
                                                .pages_free = row->pages_free,
                                                .now_us = 1000,
                                                .scratch = scratch};
        struct chunk_part parts[PARTS];
        uint32_t lacking;
        const uint32_t count = chunk_plan_make(&snapshot, parts, &lacking);
        for (uint32_t k = 0; k < 4; k++) {
            const struct chunk_part *want = &row->parts[k];
            cr_assert_eq(k<count, want->row_count> 0, "%s: %u parts", row->what, count);
            if (k >= count)
                break;
            cr_assert_eq(parts[k].candidate, want->candidate, "%s: part %u", row->what, k);
            cr_assert_eq(parts[k].row_count, want->row_count, "%s: %u rows", row->what,
                         parts[k].row_count);
            cr_assert_eq(parts[k].starts, want->starts, "%s", row->what);
        }
    }
}

Test(chunk_plan, the_first_that_lacks_pages_is_told)
{
    const struct chunk_candidate candidates[] = {{0, 20, 4, NOBODY, 1001},
                                                 {0, 20, 5, NOBODY, 1002},
                                                 {64, 90, 0, NOBODY, 1003},
                                                 {0, 20, 9, NOBODY, 1004}};
    struct chunk_snapshot snapshot = {.candidates = candidates,
                                      .candidate_count = 4,
                                      .chunk_tokens = 256,
                                      .page_tokens = PAGE,
                                      .sequences_max = PARTS,
                                      .now_us = 1000,
                                      .scratch = scratch};
    static const struct {
        uint32_t pages_free, parts, lacking;
    } cases[] = {{3, 1, 0}, {4, 2, 1}, {8, 2, 1}, {9, 3, 3}, {18, 4, NOBODY}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct chunk_part parts[PARTS];
        uint32_t lacking;
        snapshot.pages_free = cases[i].pages_free;
        cr_assert_eq(chunk_plan_make(&snapshot, parts, &lacking), cases[i].parts);
        cr_assert_eq(lacking, cases[i].lacking, "%u pages: %u", cases[i].pages_free, lacking);
    }
}

Test(chunk_plan, due_times)
{
    const uint64_t plain = chunk_plan_due_us(5000000, 500, 0, 100);
    cr_assert_eq(plain, 5500000, "arrival and target");
    cr_assert_eq(chunk_plan_due_us(5000000, 500, 100, 100), plain + 2000000, "stretched twice");
    cr_assert_lt(chunk_plan_due_us(5000000, 500, 10, 100),
                 chunk_plan_due_us(5000000, 500, 100, 100), "what is known makes it earlier");
    cr_assert_eq(chunk_plan_due_us(0, 0, 1, 0), 2000000, "no rate is one a second");
}

Test(chunk_plan, who_is_waited_for_is_as_urgent_as_who_waits)
{
    struct chunk_candidate candidates[] = {
        {0, 1000, 0, NOBODY, 90}, {0, 10, 1, 0, 30}, {0, 10, 1, 0, 40}, {0, 10, 1, NOBODY, 35}};
    chunk_plan_inherit(candidates, 4);
    cr_assert_eq(candidates[0].due_us, 30);
    cr_assert_eq(candidates[1].due_us, 30);
    cr_assert_eq(candidates[2].due_us, 40);
    cr_assert_eq(candidates[3].due_us, 35);
}

/* ---- lives of random queues ---- */

enum { QUEUE_MAX = 40, ROWS_PER_S = 1000, TARGET_MS = 200 };

struct life {
    struct random random;
    struct chunk_candidate queue[QUEUE_MAX];
    uint32_t pages[QUEUE_MAX]; /* that each needs, or has */
    uint32_t count;
    uint32_t chunk_tokens, pages_total, pages_free;
    uint64_t now_us;
    uint64_t arrived, finished;
};

static void arrive(struct life *life, uint32_t tokens)
{
    struct chunk_candidate *c = &life->queue[life->count];
    const uint32_t pages = (tokens + PAGE - 1) / PAGE;
    *c = (struct chunk_candidate){
        .token_count = tokens,
        .page_count = pages,
        .waits_for = NOBODY,
        .due_us = chunk_plan_due_us(life->now_us, TARGET_MS, tokens, ROWS_PER_S),
    };
    life->pages[life->count++] = pages;
    life->arrived++;
}

/* Whoever is due and could go on is not kept from at least half of the chunk by those behind it,
 * and nobody behind one that waits for pages starts. */
static void check_fair(const struct life *life, const struct chunk_snapshot *snapshot,
                       const struct chunk_part *parts, uint32_t part_count)
{
    for (uint32_t i = 0; i < life->count; i++) {
        const struct chunk_candidate *c = &life->queue[i];
        if (c->due_us > snapshot->now_us)
            continue;
        uint32_t own = 0, before = 0, behind = 0;
        bool started_behind = false;
        for (uint32_t k = 0; k < part_count; k++) {
            const struct chunk_candidate *other = &life->queue[parts[k].candidate];
            const bool is_behind =
                other->due_us > c->due_us || (other->due_us == c->due_us && parts[k].candidate > i);
            if (parts[k].candidate == i)
                own = parts[k].row_count;
            else if (is_behind)
                behind += parts[k].row_count;
            else
                before += parts[k].row_count;
            started_behind |= is_behind && parts[k].starts;
        }
        if (c->page_count > 0 && own == 0 && before == 0)
            cr_assert_not(started_behind, "one that is due was passed");
        if (c->page_count == 0 && before == 0)
            cr_assert_gt(own, 0, "one that is due and first stood still");
        if (c->page_count == 0 && own < c->token_count - c->position && behind > 0)
            cr_assert_geq(own + before + 2 * PAGE, snapshot->chunk_tokens / 2,
                          "those behind had more than half");
    }
}

static void compute(struct life *life)
{
    struct chunk_part parts[PARTS];
    const struct chunk_snapshot snapshot = {.candidates = life->queue,
                                            .candidate_count = life->count,
                                            .chunk_tokens = life->chunk_tokens,
                                            .page_tokens = PAGE,
                                            .sequences_max = PARTS,
                                            .pages_free = life->pages_free,
                                            .now_us = life->now_us,
                                            .scratch = scratch};
    uint32_t lacking;
    const uint32_t part_count = chunk_plan_make(&snapshot, parts, &lacking);
    uint32_t used = 0, started = 0;
    for (uint32_t i = 0; i < life->count; i++)
        started += life->queue[i].page_count == 0;
    cr_assert_leq(part_count, PARTS);
    cr_assert(part_count > 0 || life->count == 0, "%u wait, %u have started: it stands still",
              life->count, started);
    check_fair(life, &snapshot, parts, part_count);
    for (uint32_t k = 0; k < part_count; k++) {
        struct chunk_candidate *c = &life->queue[parts[k].candidate];
        cr_assert_eq(parts[k].starts, c->page_count > 0);
        cr_assert_leq(c->page_count, life->pages_free);
        life->pages_free -= c->page_count;
        c->page_count = 0;
        c->position += parts[k].row_count;
        cr_assert(c->position == c->token_count ||
                  (c->position < c->token_count && c->position % PAGE == 0));
        used += parts[k].row_count;
    }
    cr_assert_leq(used, life->chunk_tokens);
    life->now_us += (uint64_t)used * 1000000 / ROWS_PER_S;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < life->count; i++) {
        if (life->queue[i].position == life->queue[i].token_count) {
            life->pages_free += life->pages[i];
            life->finished++;
            continue;
        }
        life->pages[kept] = life->pages[i];
        life->queue[kept++] = life->queue[i];
    }
    life->count = kept;
}

/* A stream of prompts faster than they can be computed, of which most are short: every one comes to
 * its end, also the long ones, whatever memory there is for one of them. */
Test(chunk_plan, nobody_starves_and_nothing_stands_still)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct life life = {0};
        random_init(&life.random, seed);
        life.chunk_tokens = PAGE + (uint32_t)random_below(&life.random, 400);
        life.pages_total = life.pages_free = 20 + (uint32_t)random_below(&life.random, 30);
        for (uint32_t round = 0; round < 600; round++) {
            while (life.count < QUEUE_MAX && random_below(&life.random, 3) != 0) {
                const bool is_long = random_below(&life.random, 6) == 0;
                arrive(&life, 1 + (uint32_t)random_below(&life.random, is_long ? 20 * PAGE : 90));
            }
            compute(&life);
        }
        /* The oldest cannot have waited past its due time longer than all that was due before it
         * takes, at half of every chunk. */
        uint64_t oldest = UINT64_MAX, work = 0;
        for (uint32_t i = 0; i < life.count; i++) {
            work += life.queue[i].token_count;
            oldest = life.queue[i].due_us < oldest ? life.queue[i].due_us : oldest;
        }
        const uint64_t bound = 4 * (QUEUE_MAX * 20 * PAGE) * (1000000ull / ROWS_PER_S);
        cr_assert(life.now_us < oldest + bound, "%llu tokens wait", (unsigned long long)work);
        for (uint32_t round = 0; life.count > 0; round++) {
            cr_assert_lt(round, 5000);
            compute(&life);
        }
        cr_assert_eq(life.arrived, life.finished);
        cr_assert_eq(life.pages_free, life.pages_total);
    }
}

/* Short prompts beside a long one that has started end in the chunk after they came. */
Test(chunk_plan, a_long_prompt_never_blocks_short_ones)
{
    struct life life = {.chunk_tokens = 256, .pages_total = 400, .pages_free = 400};
    arrive(&life, 8000);
    compute(&life);
    for (uint32_t round = 0; round < 80 && life.count > 0; round++) {
        const uint64_t finished = life.finished;
        arrive(&life, 100);
        compute(&life);
        cr_assert_geq(life.finished, finished + 1, "round %u", round);
    }
    cr_assert_eq(life.count, 0, "and the long one ends as well");
}
