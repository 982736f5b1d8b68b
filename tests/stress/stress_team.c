/* Millions of barriers and runs; with more members than CPUs, every wait goes through the kernel.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "base/check.h"
#include "base/team.h"
#include "tests/stress/rounds.h"

enum { MEMBERS_MAX = 5, SLOT_STRIDE = 16 };

struct job {
    struct team *team;
    uint64_t first, barriers;                  /* numbers that no earlier run wrote */
    uint64_t slots[MEMBERS_MAX * SLOT_STRIDE]; /* plain memory: the barrier has to order it */
    uint64_t sum;
};

/* Between two barriers a member writes its own slot; after the next it reads its neighbour's. */
static void pass_around(void *arg, uint32_t index, uint32_t count)
{
    struct job *job = arg;
    const uint32_t next = (index + 1) % count;
    for (uint64_t i = job->first + 1; i <= job->first + job->barriers; i++) {
        job->slots[(size_t)index * SLOT_STRIDE + i % 2] = i;
        team_barrier(job->team);
        CHECK(job->slots[(size_t)next * SLOT_STRIDE + i % 2] == i);
    }
}

static void add_index(void *arg, uint32_t index, uint32_t count)
{
    struct job *job = arg;
    job->slots[(size_t)index * SLOT_STRIDE] += index + count;
}

struct sharing {
    uint64_t number;
    uint64_t written[16]; /* plain memory: the end of the sharing has to order it */
};

/* Any piece of another sharing would leave a wrong number, or none. */
static void write_piece(void *arg, uint32_t member, uint32_t piece)
{
    struct sharing *sharing = arg;
    CHECK(member < MEMBERS_MAX);
    sharing->written[piece] += sharing->number + piece;
}

/* Each sharing lives in a frame of its own that is gone when a late helper wakes. */
static void share_once(struct team *team, uint64_t number)
{
    const uint32_t piece_count =
        1 + (uint32_t)(number % ARRAY_COUNT(((struct sharing *)0)->written));
    struct sharing sharing = {.number = number};
    team_share(team, write_piece, &sharing, piece_count);
    for (uint32_t piece = 0; piece < piece_count; piece++)
        CHECK(sharing.written[piece] == number + piece);
}

int main(void)
{
    static const struct {
        uint32_t count;
        uint64_t barriers, runs;
    } plans[] = {{1, 1000000, 200000}, {2, 1000000, 200000}, {5, 20000, 20000}};
    for (size_t p = 0; p < ARRAY_COUNT(plans); p++) {
        const uint32_t count = plans[p].count;
        struct job job = {.team = team_create(count)};
        struct stress_part part = stress_part(stress_rounds(plans[p].barriers));
        while ((job.barriers = stress_next(&part, 1000)) > 0) {
            team_run(job.team, pass_around, &job);
            job.first = part.done;
        }

        for (uint32_t i = 0; i < count; i++)
            job.slots[(size_t)i * SLOT_STRIDE] = 0;
        part = stress_part(stress_rounds(plans[p].runs));
        while (stress_next(&part, 1) > 0)
            team_run(job.team, add_index, &job);
        for (uint32_t i = 0; i < count; i++)
            CHECK(job.slots[(size_t)i * SLOT_STRIDE] == part.done * (i + count));
        part = stress_part(stress_rounds(plans[p].runs) / 4);
        while (stress_next(&part, 1) > 0) {
            share_once(job.team, part.done);
            if (part.done % 64 == 0)
                team_run(job.team, add_index, &job);
        }
        team_destroy(job.team);

        /* A team whose members may not have reached their first wait when it ends. */
        for (int i = 0; i < 200; i++)
            team_destroy(team_create(count));
        printf("team of %u: ok\n", count);
    }
    return 0;
}
