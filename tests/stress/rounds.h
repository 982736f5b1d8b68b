/* How much a stress program does: its own number, times STRESS_ROUNDS where that is set, a tenth
 * under a sanitizer, which is slower by about that. Each part of a program ends sooner when it has
 * taken STRESS_PART_S: where CPUs are few or busy a change of threads takes milliseconds. */
#ifndef BATON_TESTS_STRESS_ROUNDS_H
#define BATON_TESTS_STRESS_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/clock.h"

enum { STRESS_PART_S = 15 };

static inline uint64_t stress_rounds(uint64_t rounds)
{
    const char *factor = getenv("STRESS_ROUNDS");
    if (factor)
        rounds *= strtoull(factor, NULL, 10);
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    rounds /= 10;
#endif
    return rounds ? rounds : 1;
}

struct stress_part {
    uint64_t begun_ns, rounds, done;
};

static inline struct stress_part stress_part(uint64_t rounds)
{
    return (struct stress_part){.begun_ns = clock_now_ns(clock_monotonic()), .rounds = rounds};
}

/* The rounds to do next, `most` or those that are left; 0 when the part is over. */
static inline uint64_t stress_next(struct stress_part *part, uint64_t most)
{
    const uint64_t left = part->rounds - part->done, next = left < most ? left : most;
    const uint64_t spent_ns = clock_now_ns(clock_monotonic()) - part->begun_ns;
    if (spent_ns >= STRESS_PART_S * (uint64_t)NS_PER_S)
        return 0;
    part->done += next;
    return next;
}

#endif
