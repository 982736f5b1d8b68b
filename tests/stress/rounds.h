/* How much a stress program does: its own number, times STRESS_ROUNDS where that is set, a tenth
 * under a sanitizer, which is slower by about that. */
#ifndef BATON_TESTS_STRESS_ROUNDS_H
#define BATON_TESTS_STRESS_ROUNDS_H

#include <stdint.h>
#include <stdlib.h>

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

#endif
