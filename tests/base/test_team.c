#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/check.h"
#include "base/team.h"

enum { MEMBERS_MAX = 8 };

struct job {
    uint32_t calls[MEMBERS_MAX];
    pthread_t threads[MEMBERS_MAX];
    uint32_t count;
};

static void note(void *arg, uint32_t index, uint32_t count)
{
    struct job *job = arg;
    job->calls[index]++;
    job->threads[index] = pthread_self();
    if (index == 0)
        job->count = count;
}

Test(team, every_member_runs_once_and_the_caller_is_index_0)
{
    for (uint32_t count = 1; count <= MEMBERS_MAX; count++) {
        struct team *team = team_create(count);
        struct job job = {0};
        cr_assert_eq(team_count(team), count);
        for (int round = 0; round < 20; round++)
            team_run(team, note, &job);
        cr_assert_eq(job.count, count);
        cr_assert(pthread_equal(job.threads[0], pthread_self()));
        for (uint32_t i = 0; i < count; i++) {
            cr_assert_eq(job.calls[i], 20);
            for (uint32_t j = 0; j < i; j++)
                cr_assert_not(pthread_equal(job.threads[i], job.threads[j]));
        }
        team_destroy(team);
    }
    team_destroy(NULL);
}

Test(team, zero_means_the_cpus_the_process_may_use)
{
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    struct team *team = team_create(0);
    cr_assert_eq(team_count(team), (uint32_t)CPU_COUNT(&set));
    team_destroy(team);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &set)) {
            CPU_ZERO(&set);
            CPU_SET(cpu, &set);
            break;
        }
    }
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
    team = team_create(0);
    cr_assert_eq(team_count(team), 1);
    team_destroy(team);
}

struct phases {
    struct team *team;
    uint32_t slots[MEMBERS_MAX];
    _Atomic uint32_t wrong;
};

/* In each phase a member reads what its neighbour wrote in the one before. */
static void walk_phases(void *arg, uint32_t index, uint32_t count)
{
    struct phases *phases = arg;
    for (uint32_t phase = 1; phase <= 100; phase++) {
        phases->slots[index] = phase;
        team_barrier(phases->team);
        if (phases->slots[(index + 1) % count] != phase)
            atomic_fetch_add(&phases->wrong, 1);
        team_barrier(phases->team);
    }
}

Test(team, a_barrier_waits_for_all)
{
    for (uint32_t count = 1; count <= 5; count++) {
        struct phases phases = {.team = team_create(count)};
        team_run(phases.team, walk_phases, &phases);
        team_run(phases.team, walk_phases, &phases);
        cr_assert_eq(phases.wrong, 0);
        team_destroy(phases.team);
    }
}

struct pieces {
    _Atomic uint32_t calls[300];
    _Atomic uint32_t busy[MEMBERS_MAX]; /* 1 while the member is inside a piece */
    _Atomic uint32_t wrong;
};

static void note_piece(void *arg, uint32_t member, uint32_t piece)
{
    struct pieces *pieces = arg;
    if (atomic_exchange(&pieces->busy[member], 1) != 0)
        atomic_fetch_add(&pieces->wrong, 1);
    atomic_fetch_add(&pieces->calls[piece], 1);
    atomic_store(&pieces->busy[member], 0);
}

Test(team, every_piece_is_done_once)
{
    static const uint32_t piece_counts[] = {0, 1, 2, 7, 300};
    for (uint32_t count = 1; count <= MEMBERS_MAX; count++) {
        struct team *team = team_create(count);
        for (uint32_t round = 0; round < 100; round++) {
            const uint32_t piece_count = piece_counts[round % ARRAY_COUNT(piece_counts)];
            struct pieces pieces = {0};
            struct job job = {0};
            team_share(team, note_piece, &pieces, piece_count);
            for (uint32_t i = 0; i < ARRAY_COUNT(pieces.calls); i++)
                cr_assert_eq(pieces.calls[i], i < piece_count);
            cr_assert_eq(pieces.wrong, 0);
            /* Runs and sharings may alternate: a run still has every member once. */
            team_run(team, note, &job);
            for (uint32_t i = 0; i < count; i++)
                cr_assert_eq(job.calls[i], 1);
        }
        team_destroy(team);
    }
}

struct stuck {
    _Atomic uint32_t helper_is_in, other_pieces;
};

/* The helper's piece ends only when the caller has done all the others. */
static void hold_up(void *arg, uint32_t member, uint32_t piece)
{
    struct stuck *stuck = arg;
    if (member == 0) {
        while (atomic_load(&stuck->helper_is_in) == 0)
            sched_yield();
        atomic_fetch_add(&stuck->other_pieces, 1);
        return;
    }
    if (atomic_exchange(&stuck->helper_is_in, 1) != 0)
        return;
    while (atomic_load(&stuck->other_pieces) == 0)
        sched_yield();
}

Test(team, a_slow_member_does_not_keep_pieces_from_the_others)
{
    struct team *team = team_create(2);
    for (int round = 0; round < 50; round++) {
        struct stuck stuck = {0};
        team_share(team, hold_up, &stuck, 8);
        cr_assert_geq(stuck.other_pieces, 1);
    }
    team_destroy(team);
}

static void run_again(void *arg, uint32_t index, uint32_t count)
{
    (void)count;
    if (index == 0)
        team_run(arg, run_again, arg);
}

Test(team, a_run_inside_a_run_is_a_fault, .signal = SIGABRT)
{
    struct team *team = team_create(1);
    team_run(team, run_again, team);
}

Test(team, split_covers_everything_once_in_whole_grains)
{
    static const size_t totals[] = {0, 1, 7, 8, 9, 63, 64, 65, 1000, 1023};
    static const size_t grains[] = {1, 3, 8, 64, 2000};
    for (size_t t = 0; t < ARRAY_COUNT(totals); t++) {
        for (size_t g = 0; g < ARRAY_COUNT(grains); g++) {
            for (uint32_t count = 1; count <= 9; count++) {
                size_t expected = 0, least = SIZE_MAX, most = 0;
                for (uint32_t i = 0; i < count; i++) {
                    size_t first = 1, end = 0;
                    team_split(totals[t], grains[g], i, count, &first, &end);
                    cr_assert_eq(first, expected);
                    cr_assert_geq(end, first);
                    cr_assert(end == totals[t] || end % grains[g] == 0);
                    const size_t pieces = (end - first + grains[g] - 1) / grains[g];
                    least = pieces < least ? pieces : least;
                    most = pieces > most ? pieces : most;
                    expected = end;
                }
                cr_assert_eq(expected, totals[t]);
                cr_assert_leq(most - least, 1); /* as even as whole grains can be */
            }
        }
    }
}
