/* A run is: publish the function, advance `start`, work, count down `working`. Every wait is on a
 * gate: a number that only grows, watched by spinning for a short while and then asleep in the
 * kernel, so that several processes on few cores do not burn the time the others need. */
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

enum { CACHE_LINE = 64, SPIN_NS = 20 * NS_PER_US, PAUSES_PER_LOOK = 16 };

struct gate {
    _Alignas(CACHE_LINE) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
};

struct member {
    pthread_t thread;
    struct team *team;
    uint32_t index;
};

struct team {
    struct gate start, barrier, done;
    _Alignas(CACHE_LINE) _Atomic uint32_t arrived; /* members at the current barrier */
    _Alignas(CACHE_LINE) _Atomic uint32_t working; /* helpers not yet through the current run */
    atomic_bool running;
    uint32_t count;
    bool spin; /* false when there are more members than CPUs: the other one needs ours */
    bool quit;
    team_function function;
    void *arg;
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
        do {
            for (int i = 0; i < PAUSES_PER_LOOK; i++) {
                if (gate_value(gate) != seen)
                    return;
                cpu_relax();
            }
        } while (clock_now_ns(clock_monotonic()) - begin_ns < SPIN_NS);
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

static void *helper_main(void *arg)
{
    struct member *member = arg;
    struct team *team = member->team;
    for (uint32_t seen = 0;; seen++) {
        gate_wait(&team->start, seen, team->spin);
        if (team->quit)
            return NULL;
        team->function(team->arg, member->index, team->count);
        if (atomic_fetch_sub_explicit(&team->working, 1, memory_order_acq_rel) == 1)
            gate_advance(&team->done);
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

void team_run(struct team *team, team_function function, void *arg)
{
    CHECK(!atomic_exchange(&team->running, true));
    const uint32_t seen = gate_value(&team->done);
    team->function = function;
    team->arg = arg;
    if (team->count > 1) {
        atomic_store_explicit(&team->working, team->count - 1, memory_order_relaxed);
        gate_advance(&team->start);
    }
    function(arg, 0, team->count);
    if (team->count > 1)
        gate_wait(&team->done, seen, team->spin);
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
