/* Every call (a run or a sharing) gets a new generation. The caller writes what is to be done, puts
 * generation and kind in `ticket`, advances `start` and works along. Every wait is on a gate: a
 * number that only grows, watched by spinning for a short while and then asleep in the kernel, so
 * that several processes on few cores do not burn the time the others need.
 *
 * Pieces of a sharing are drawn by adding one to the ticket, but only while it still is of the
 * generation the member read the function under: a piece that was drawn keeps the call alive, so
 * what was read before drawing it belongs to it. Before the next call is written the ticket is
 * closed under a generation of its own: otherwise a late helper could hold the old, spent ticket
 * against the new count of pieces and draw one that is not there. A helper that wakes late sees a
 * later generation, or no piece left, and leaves. */
#include "base/team.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/futex_internal.h"

/* A waiter spins, then looks on but lets any other thread that wants this CPU go first, then
 * sleeps. To be woken takes a hundred microseconds and more on a virtual machine, ten times what
 * lies between two calls of a step. */
enum {
    CACHE_LINE = 64,
    SPIN_NS = 20 * NS_PER_US,
    YIELD_NS = 200 * NS_PER_US,
    PAUSES_PER_LOOK = 16,
};

struct gate {
    _Alignas(CACHE_LINE) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
};

struct member {
    pthread_t thread;
    struct team *team;
    uint32_t index;
};

/* generation << 33 | kind << 32 | next piece */
enum { TICKET_KIND_SHIFT = 32, TICKET_GENERATION_SHIFT = 33 };
#define TICKET_RUN (UINT64_C(1) << TICKET_KIND_SHIFT)

struct team {
    struct gate start, barrier;
    struct gate done; /* counts helpers through a run, or pieces of a sharing; from 0 every call */
    _Alignas(CACHE_LINE) _Atomic uint32_t arrived; /* members at the current barrier */
    _Alignas(CACHE_LINE) _Atomic uint64_t ticket;
    atomic_bool running;
    uint32_t count;
    bool spin; /* false when there are more members than CPUs: the other one needs ours */
    atomic_bool quit;
    /* The call. A helper may read them while the next one is written, and then draws nothing. */
    _Atomic team_function function;
    _Atomic team_piece_function piece_function;
    void *_Atomic arg;
    _Atomic uint32_t piece_count;
    struct member *members;
};

static uint32_t gate_value(struct gate *gate)
{
    return atomic_load_explicit(&gate->value, memory_order_acquire);
}

/* Until the gate has moved on from `seen`. */
static void gate_wait(struct gate *gate, uint32_t seen, bool spin)
{
    if (spin) {
        const uint64_t begin_ns = clock_now_ns(clock_monotonic());
        for (uint64_t waited_ns = 0; waited_ns < YIELD_NS;
             waited_ns = clock_now_ns(clock_monotonic()) - begin_ns) {
            if (waited_ns >= SPIN_NS)
                sched_yield();
            for (int i = 0; i < PAUSES_PER_LOOK; i++) {
                if (gate_value(gate) != seen)
                    return;
                cpu_relax();
            }
        }
    }
    /* Sequentially consistent with gate_advance: either it sees this sleeper, or the kernel sees
     * the new value and does not put us to sleep. */
    atomic_fetch_add(&gate->sleepers, 1);
    while (gate_value(gate) == seen)
        futex_wait(&gate->value, seen, NULL);
    atomic_fetch_sub(&gate->sleepers, 1);
}

static void gate_advance(struct gate *gate)
{
    atomic_fetch_add(&gate->value, 1);
    if (atomic_load(&gate->sleepers) > 0)
        futex_wake_all(&gate->value);
}

/* One more of the call is done; whoever completes it wakes the caller. */
static void count_done(struct team *team, uint32_t total)
{
    if (atomic_fetch_add(&team->done.value, 1) + 1 == total &&
        atomic_load(&team->done.sleepers) > 0)
        futex_wake_all(&team->done.value);
}

static void wait_done(struct team *team, uint32_t total)
{
    uint32_t seen;
    while ((seen = gate_value(&team->done)) != total)
        gate_wait(&team->done, seen, team->spin);
}

/* Draws pieces while the ticket is of the given generation. */
static void draw_pieces(struct team *team, uint32_t member, uint64_t ticket)
{
    const uint64_t generation = ticket >> TICKET_KIND_SHIFT;
    const team_piece_function function =
        atomic_load_explicit(&team->piece_function, memory_order_acquire);
    void *const arg = atomic_load_explicit(&team->arg, memory_order_acquire);
    const uint32_t piece_count = atomic_load_explicit(&team->piece_count, memory_order_acquire);
    while (ticket >> TICKET_KIND_SHIFT == generation && (uint32_t)ticket < piece_count) {
        if (!atomic_compare_exchange_weak_explicit(&team->ticket, &ticket, ticket + 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        function(arg, member, (uint32_t)ticket);
        count_done(team, piece_count);
        ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
    }
}

static void *helper_main(void *arg)
{
    struct member *member = arg;
    struct team *team = member->team;
    uint64_t run_generation = 0; /* of the last run this helper took part in */
    uint32_t seen = 0;
    for (;;) {
        gate_wait(&team->start, seen, team->spin);
        seen = gate_value(&team->start);
        if (team->quit)
            return NULL;
        const uint64_t ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
        if (!(ticket & TICKET_RUN)) {
            draw_pieces(team, member->index, ticket);
        } else if (ticket >> TICKET_GENERATION_SHIFT != run_generation) {
            /* The caller waits for every helper, so nothing changes under a run. */
            run_generation = ticket >> TICKET_GENERATION_SHIFT;
            const team_function function =
                atomic_load_explicit(&team->function, memory_order_relaxed);
            function(atomic_load_explicit(&team->arg, memory_order_relaxed), member->index,
                     team->count);
            count_done(team, team->count - 1);
        }
    }
}

static uint32_t usable_cpu_count(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (uint32_t)CPU_COUNT(&set);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

struct team *team_create(uint32_t count)
{
    const uint32_t cpus = usable_cpu_count();
    if (count == 0)
        count = cpus;
    struct team *team = aligned_alloc(CACHE_LINE, sizeof *team);
    CHECK(team != NULL);
    *team = (struct team){.count = count, .spin = count <= cpus};
    team->members = calloc(count, sizeof *team->members);
    CHECK(team->members != NULL);
    /* Signals are the business of the thread that asked for them, never of a helper. */
    sigset_t all, before;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    for (uint32_t i = 1; i < count; i++) {
        team->members[i] = (struct member){.team = team, .index = i};
        CHECK(pthread_create(&team->members[i].thread, NULL, helper_main, &team->members[i]) == 0);
        pthread_setname_np(team->members[i].thread, "team");
    }
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    return team;
}

void team_destroy(struct team *team)
{
    if (!team)
        return;
    CHECK(!atomic_load(&team->running));
    team->quit = true;
    gate_advance(&team->start);
    for (uint32_t i = 1; i < team->count; i++)
        CHECK(pthread_join(team->members[i].thread, NULL) == 0);
    free(team->members);
    free(team);
}

uint32_t team_count(const struct team *team)
{
    return team->count;
}

static uint64_t next_generation(const struct team *team)
{
    const uint64_t ticket = atomic_load_explicit(&team->ticket, memory_order_relaxed);
    return ((ticket >> TICKET_GENERATION_SHIFT) + 1) << TICKET_GENERATION_SHIFT;
}

/* No piece can be drawn from here on. What a call is made of is then stored with release and loaded
 * with acquire: who has read any of it also finds the ticket closed. */
static void close_ticket(struct team *team)
{
    atomic_store_explicit(&team->ticket, next_generation(team) | UINT32_MAX, memory_order_relaxed);
}

static void publish(struct team *team, uint64_t ticket)
{
    atomic_store_explicit(&team->done.value, 0, memory_order_relaxed);
    atomic_store_explicit(&team->ticket, ticket, memory_order_release);
    gate_advance(&team->start);
}

void team_run(struct team *team, team_function function, void *arg)
{
    CHECK(!atomic_exchange(&team->running, true));
    if (team->count > 1) {
        close_ticket(team);
        atomic_store_explicit(&team->function, function, memory_order_release);
        atomic_store_explicit(&team->arg, arg, memory_order_release);
        publish(team, next_generation(team) | TICKET_RUN);
    }
    function(arg, 0, team->count);
    if (team->count > 1)
        wait_done(team, team->count - 1);
    atomic_store(&team->running, false);
}

void team_share(struct team *team, team_piece_function function, void *arg, uint32_t piece_count)
{
    CHECK(!atomic_exchange(&team->running, true));
    if (team->count == 1 || piece_count <= 1) {
        for (uint32_t piece = 0; piece < piece_count; piece++)
            function(arg, 0, piece);
    } else {
        close_ticket(team);
        const uint64_t ticket = next_generation(team);
        atomic_store_explicit(&team->piece_function, function, memory_order_release);
        atomic_store_explicit(&team->arg, arg, memory_order_release);
        atomic_store_explicit(&team->piece_count, piece_count, memory_order_release);
        publish(team, ticket);
        draw_pieces(team, 0, ticket);
        wait_done(team, piece_count);
    }
    atomic_store(&team->running, false);
}

void team_barrier(struct team *team)
{
    const uint32_t seen = gate_value(&team->barrier);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 < team->count) {
        gate_wait(&team->barrier, seen, team->spin);
        return;
    }
    atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
    gate_advance(&team->barrier);
}

void team_split(size_t total, size_t grain, uint32_t index, uint32_t count, size_t *first_out,
                size_t *end_out)
{
    CHECK(grain > 0 && index < count);
    const size_t grains = total / grain + (total % grain != 0);
    const size_t each = grains / count, extra = grains % count;
    const size_t first = index * each + (index < extra ? index : extra);
    const size_t end = first + each + (index < extra ? 1 : 0);
    *first_out = first * grain < total ? first * grain : total;
    *end_out = end * grain < total ? end * grain : total;
}
