#include <criterion/criterion.h>
#include <string.h>

#include "base/random.h"
#include "decode_node/batch_admission.h"

enum { PAGE = 64, CHUNK = 256, PLACES = 6, MANY = 64 };

#define W BATCH_WAITS
#define R BATCH_RUNS
#define D BATCH_DROPS

/* A member in short: tokens known and computed, pages held; it may need 100. */
struct short_member {
    uint32_t known, computed, pages;
};

struct row {
    const char *what;
    struct short_member members[PLACES];
    uint32_t running, waiting, batch_max, pages_free;
    struct batch_turn turns[PLACES];
};

/* clang-format off */
static const struct row rows[] = {
    {"nobody", {{0}}, 0, 0, 4, 9, {{0}}},
    {"who runs goes on",
     {{10, 9, 1}, {20, 19, 1}}, 2, 0, 4, 9, {{R, 1, 0}, {R, 1, 0}}},
    {"who waits joins",
     {{10, 9, 1}, {20, 19, 1}, {5, 4, 1}}, 1, 2, 4, 9, {{R, 1, 0}, {R, 1, 0}, {R, 1, 0}}},
    {"as many as there are places",
     {{10, 9, 1}, {20, 19, 1}, {5, 4, 1}}, 1, 2, 2, 9, {{R, 1, 0}, {R, 1, 0}, {W, 0, 0}}},
    {"a full batch takes nobody",
     {{10, 9, 1}, {20, 19, 1}}, 1, 1, 1, 9, {{R, 1, 0}, {W, 0, 0}}},
    {"a prompt is read by the chunk",
     {{10, 9, 1}, {1000, 0, 17}}, 1, 1, 4, 9, {{R, 1, 0}, {R, 256, 0}}},
    {"its end is shorter",
     {{1000, 900, 17}}, 1, 0, 4, 9, {{R, 100, 0}}},
    {"one prompt at a time, the oldest",
     {{500, 0, 9}, {20, 19, 1}, {300, 0, 6}}, 2, 1, 4, 9, {{R, 256, 0}, {R, 1, 0}, {R, 0, 0}}},
    {"a prompt of one token is a row like any",
     {{300, 0, 6}, {1, 0, 1}}, 1, 1, 4, 9, {{R, 256, 0}, {R, 1, 0}}},
    {"a sequence takes a page when it comes to its end",
     {{65, 64, 1}, {64, 63, 1}}, 2, 0, 4, 1, {{R, 1, 1}, {R, 1, 0}}},
    {"without a page the newest runner is preempted",
     {{65, 64, 1}, {30, 29, 1}, {20, 19, 1}}, 3, 0, 4, 0, {{R, 1, 1}, {R, 1, 0}, {D, 0, 0}}},
    {"who waits with pages is newer still",
     {{65, 64, 1}, {30, 29, 1}, {20, 19, 1}}, 2, 1, 4, 0, {{R, 1, 1}, {R, 1, 0}, {D, 0, 0}}},
    {"who waits without has none to give",
     {{65, 64, 1}, {30, 29, 1}, {20, 0, 0}}, 2, 1, 4, 0, {{R, 1, 1}, {D, 0, 0}, {W, 0, 0}}},
    {"the newest gives up its own",
     {{30, 29, 1}, {65, 64, 1}}, 2, 0, 4, 0, {{R, 1, 0}, {D, 0, 0}}},
    {"the last runner stays and has no row",
     {{65, 64, 1}, {20, 0, 0}}, 1, 1, 4, 0, {{R, 0, 0}, {W, 0, 0}}},
    {"two that need one preempt two when each has one",
     {{65, 64, 1}, {129, 128, 2}, {30, 29, 1}, {40, 39, 1}}, 4, 0, 4, 0,
     {{R, 1, 1}, {R, 1, 1}, {D, 0, 0}, {D, 0, 0}}},
    {"a preempted one comes back with all its pages, one more, and one left for each runner",
     {{30, 29, 1}, {130, 0, 0}}, 1, 1, 4, 5, {{R, 1, 0}, {R, 130, 4}}},
    {"and not before",
     {{30, 29, 1}, {130, 0, 0}}, 1, 1, 4, 4, {{R, 1, 0}, {W, 0, 0}}},
    {"who holds pages passes it, who holds none does not",
     {{30, 29, 1}, {130, 0, 0}, {40, 39, 1}, {1, 0, 0}}, 1, 3, 4, 4,
     {{R, 1, 0}, {W, 0, 0}, {R, 1, 0}, {W, 0, 0}}},
    {"pages just given up are not for those who come back",
     {{65, 64, 1}, {300, 299, 5}, {20, 0, 0}}, 2, 1, 4, 0,
     {{R, 1, 1}, {D, 0, 0}, {W, 0, 0}}},
};
/* clang-format on */

static void fill(const struct short_member *from, uint32_t count, struct batch_member *out)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = (struct batch_member){.known = from[i].known,
                                       .computed = from[i].computed,
                                       .pages = from[i].pages,
                                       .pages_end = 100};
}

Test(batch_admission, rows_of_the_table)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        struct batch_turn out[PLACES] = {0};
        struct batch_member members[PLACES];
        uint32_t sum = 0;
        fill(row->members, row->running + row->waiting, members);
        const struct batch_snapshot snapshot = {.members = members,
                                                .running_count = row->running,
                                                .waiting_count = row->waiting,
                                                .batch_max = row->batch_max,
                                                .chunk_tokens = CHUNK,
                                                .page_tokens = PAGE,
                                                .pages_free = row->pages_free};
        const uint32_t total = batch_admission_plan(&snapshot, out);
        for (uint32_t k = 0; k < row->running + row->waiting; k++) {
            cr_assert_eq(out[k].fate, row->turns[k].fate, "%s: fate of %u", row->what, k);
            cr_assert_eq(out[k].rows, row->turns[k].rows, "%s: %u has %u rows", row->what, k,
                         out[k].rows);
            cr_assert_eq(out[k].pages, row->turns[k].pages, "%s: %u takes %u pages", row->what, k,
                         out[k].pages);
            sum += out[k].rows;
        }
        cr_assert_eq(total, sum);
    }
}

/* Choices that wait for a prompt to be read have pages set aside, which come and go with its own.
 */
Test(batch_admission, what_is_set_aside_for_choices_goes_with_the_prompt)
{
    const struct short_member from[] = {{65, 64, 1}, {100, 0, 3}};
    struct batch_member members[2];
    struct batch_turn out[2];
    fill(from, 2, members);
    members[0].pages_end = 9;
    members[1].aside = 4;
    struct batch_snapshot s = {.members = members,
                               .running_count = 2,
                               .batch_max = 4,
                               .chunk_tokens = CHUNK,
                               .page_tokens = PAGE};
    batch_admission_plan(&s, out);
    cr_assert_eq(out[1].fate, BATCH_DROPS);
    /* It comes back with three pages, four aside, and one left for the runner. */
    members[0] = (struct batch_member){.known = 66, .computed = 65, .pages = 2, .pages_end = 9};
    members[1].pages = 0;
    s.running_count = s.waiting_count = 1;
    s.pages_free = 7;
    batch_admission_plan(&s, out);
    cr_assert_eq(out[1].fate, BATCH_WAITS);
    s.pages_free = 8;
    batch_admission_plan(&s, out);
    cr_assert_eq(out[1].fate, BATCH_RUNS);
    cr_assert_eq(out[1].pages, 3, "those aside are not taken");
}

/* The expected time of a step decides who joins, but not whether anybody does. */
Test(batch_admission, the_target_holds_joins_back)
{
    const struct short_member from[] = {{100, 99, 2}, {200, 199, 4}, {10, 9, 1}};
    struct batch_member members[3];
    struct batch_turn out[3];
    fill(from, 3, members);
    struct batch_snapshot s = {
        .members = members,
        .running_count = 1,
        .waiting_count = 2,
        .batch_max = 4,
        .chunk_tokens = CHUNK,
        .page_tokens = PAGE,
        .pages_free = 9,
        .cost = {.base_us = 1000, .token_us = 1, .row_us = 50},
        .target_us = 1000 + 300 + 100,
    };
    batch_admission_plan(&s, out);
    cr_assert_eq(out[1].fate, BATCH_RUNS, "two with 300 tokens are just within it");
    cr_assert_eq(out[2].fate, BATCH_WAITS);
    s.target_us -= 1;
    batch_admission_plan(&s, out);
    cr_assert_eq(out[1].fate, BATCH_WAITS);
    cr_assert_eq(out[2].fate, BATCH_WAITS, "nobody passes the one in front");
    s.target_us = 1;
    s.running_count = 0;
    s.waiting_count = 3;
    batch_admission_plan(&s, out);
    cr_assert_eq(out[0].fate, BATCH_RUNS, "an empty batch takes one in any case");
    cr_assert_eq(out[1].fate, BATCH_WAITS);
}

Test(batch_admission, a_reservation_has_a_page_to_grow_into)
{
    cr_assert_eq(batch_admission_pages(1, 64, 10), 2);
    cr_assert_eq(batch_admission_pages(64, 64, 10), 2);
    cr_assert_eq(batch_admission_pages(65, 64, 10), 3);
    cr_assert_eq(batch_admission_pages(65, 64, 2), 2, "but none that it can never use");
}

/* ---- a life of batches: the plan carried out on numbers ---- */

struct sequence {
    uint32_t prompt, end; /* tokens it has at first, and at last */
    struct batch_member member;
    bool running;
};

struct life {
    struct random random;
    struct sequence sequences[MANY]; /* in order of arrival */
    uint32_t count, pages_free, pages_total, outside, chunk, batch_max;
    uint32_t preempted, finished, stalled;
};

static uint32_t pages_of(uint32_t tokens)
{
    return (tokens + PAGE - 1) / PAGE;
}

/* A reservation as the control thread makes it; pages that come later are `outside` till then. */
static void arrive(struct life *life)
{
    const uint32_t prompt = 1 + (uint32_t)random_below(&life->random, 400);
    const uint32_t end = prompt + 1 + (uint32_t)random_below(&life->random, 300);
    const uint32_t pages_end = pages_of(end - 1);
    const uint32_t pages = batch_admission_pages(prompt, PAGE, pages_end);
    if (life->count == MANY || pages_end > life->pages_total || pages > life->pages_free)
        return;
    const bool landed = random_below(&life->random, 2) != 0;
    life->pages_free -= pages;
    life->sequences[life->count++] =
        (struct sequence){.prompt = prompt,
                          .end = end,
                          .member = {.known = landed ? prompt + 1 : prompt,
                                     .computed = landed ? prompt : 0,
                                     .pages = pages,
                                     .pages_end = pages_end}};
    if (landed && end == prompt + 1)
        life->sequences[life->count - 1].end++;
    life->sequences[life->count - 1].member.pages_end =
        pages_of(life->sequences[life->count - 1].end - 1);
}

static uint32_t order(const struct life *life, uint32_t *index, struct batch_member *members,
                      uint32_t *running)
{
    uint32_t count = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < life->count; i++) {
            if (life->sequences[i].running != (pass == 0))
                continue;
            index[count] = i;
            members[count++] = life->sequences[i].member;
        }
        if (pass == 0)
            *running = count;
    }
    return count;
}

static void check_plan(const struct life *life, const struct batch_snapshot *s,
                       const struct batch_turn *turns)
{
    const uint32_t count = s->running_count + s->waiting_count;
    uint32_t freed = 0, taken = 0, members = 0, chunks = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct batch_member *m = &s->members[i];
        members += turns[i].fate == BATCH_RUNS;
        taken += turns[i].pages;
        chunks += turns[i].rows > 1;
        freed += turns[i].fate == BATCH_DROPS ? m->pages : 0;
        cr_assert(turns[i].fate == BATCH_RUNS || (turns[i].rows == 0 && turns[i].pages == 0));
        cr_assert_leq(turns[i].rows, s->chunk_tokens);
        cr_assert_leq(turns[i].rows, m->known - m->computed);
        cr_assert_leq(m->pages + turns[i].pages, m->pages_end);
        cr_assert(turns[i].rows == 0 ||
                  (m->pages + turns[i].pages) * PAGE >= m->computed + turns[i].rows);
        if (i < s->running_count)
            cr_assert_neq(turns[i].fate, BATCH_WAITS, "a runner runs or is preempted");
        /* Whoever gives pages up is newer than everybody who keeps pages. */
        for (uint32_t k = i + 1; turns[i].fate == BATCH_DROPS && k < count; k++)
            cr_assert(turns[k].fate == BATCH_DROPS || s->members[k].pages == 0);
    }
    cr_assert_leq(members, life->batch_max);
    cr_assert_leq(chunks, 1);
    cr_assert_leq(taken, s->pages_free + freed);
    if (s->running_count > 0)
        cr_assert_eq(turns[0].fate, BATCH_RUNS, "the oldest runner is never preempted");
}

static void apply(struct life *life, const uint32_t *index, uint32_t count,
                  const struct batch_turn *turns)
{
    for (uint32_t i = 0; i < count; i++) {
        struct sequence *sequence = &life->sequences[index[i]];
        struct batch_member *m = &sequence->member;
        if (turns[i].fate == BATCH_DROPS) {
            life->pages_free += m->pages;
            m->pages = m->computed = 0;
            sequence->running = false;
            life->preempted++;
        } else if (turns[i].fate == BATCH_RUNS) {
            sequence->running = true;
            m->pages += turns[i].pages;
            life->pages_free -= turns[i].pages;
            m->computed += turns[i].rows;
            m->known += m->computed == m->known;
        }
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < life->count; i++) {
        if (life->sequences[i].member.known < life->sequences[i].end)
            life->sequences[kept++] = life->sequences[i];
        else {
            life->pages_free += life->sequences[i].member.pages;
            life->finished++;
        }
    }
    life->count = kept;
}

static void live(uint64_t seed)
{
    struct life life = {.batch_max = 8};
    random_init(&life.random, seed);
    life.chunk = 16 + (uint32_t)random_below(&life.random, 200);
    life.batch_max = 1 + (uint32_t)random_below(&life.random, 12);
    life.pages_total = life.pages_free = 12 + (uint32_t)random_below(&life.random, 30);
    uint32_t idle = 0, arrivals = 0;
    for (uint32_t step = 0; arrivals < 60 || life.count > 0; step++) {
        cr_assert_lt(step, 200000, "seed %llu: no end", (unsigned long long)seed);
        if (arrivals < 60 && random_below(&life.random, 4) == 0) {
            arrivals++;
            arrive(&life);
        }
        /* Now and then a hand-off holds pages for a while. */
        if (random_below(&life.random, 16) == 0) {
            life.pages_free += life.outside;
            life.outside = (uint32_t)random_below(&life.random, life.pages_free / 2 + 1);
            life.pages_free -= life.outside;
        }
        uint32_t index[MANY], running;
        struct batch_member members[MANY];
        struct batch_turn turns[MANY];
        const uint32_t count = order(&life, index, members, &running);
        const struct batch_snapshot s = {.members = members,
                                         .running_count = running,
                                         .waiting_count = count - running,
                                         .batch_max = life.batch_max,
                                         .chunk_tokens = life.chunk,
                                         .page_tokens = PAGE,
                                         .pages_free = life.pages_free};
        const uint32_t total = batch_admission_plan(&s, turns);
        check_plan(&life, &s, turns);
        /* Without pages on loan to hand-offs there is always a step. */
        if (count > 0 && life.outside == 0)
            cr_assert_gt(total, 0, "seed %llu: a stall", (unsigned long long)seed);
        idle = total == 0 && count > 0 ? idle + 1 : 0;
        cr_assert_lt(idle, 400);
        apply(&life, index, count, turns);
    }
    cr_assert_eq(life.pages_free + life.outside, life.pages_total);
    cr_assert_gt(life.finished, 0);
}

/* Every batch keeps the rules, and every sequence comes to its end. */
Test(batch_admission, random_lives_keep_the_rules_and_end)
{
    for (uint64_t seed = 1; seed <= 300; seed++)
        live(seed);
}
