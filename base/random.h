/* Counter-based random numbers: the value is a pure function of (key, counter), so what a request
 * draws does not depend on the batch it sits in. Philox4x32-10 (Salmon et al., "Parallel Random
 * Numbers: As Easy as 1, 2, 3", SC 2011). */
#ifndef BATON_BASE_RANDOM_H
#define BATON_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* 64 random bits for (key, counter_low, counter_high). */
uint64_t random_at(uint64_t key, uint64_t counter_low, uint64_t counter_high);
/* The same as a double in [0, 1) with 53 bits. */
double random_unit_at(uint64_t key, uint64_t counter_low, uint64_t counter_high);

/* A sequential stream on top, for tests, jitter and random weights. */
struct random {
    uint64_t key, counter;
};
void random_init(struct random *random, uint64_t seed);
uint64_t random_next(struct random *random);
/* Uniform in [0, bound), bound > 0. */
uint64_t random_below(struct random *random, uint64_t bound);
double random_unit(struct random *random);
/* Normal(0, 1), Box-Muller. */
double random_normal(struct random *random);

/* Bytes from the operating system: boot ids, seeds, nonces. Aborts if there are none. */
void random_os_bytes(void *out, size_t bytes);
uint64_t random_os_u64(void);

#endif
