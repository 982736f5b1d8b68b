/* Tokens a second while busy, as a moving average: idle time does not count, old work fades. */
#ifndef BATON_WORKER_RATE_H
#define BATON_WORKER_RATE_H

#include <stdint.h>

struct rate {
    double tokens, seconds; /* weighted sums */
};

/* first_guess: tokens a second until something was measured. */
void rate_init(struct rate *rate, double first_guess);
void rate_add(struct rate *rate, uint32_t tokens, uint64_t busy_ns);
double rate_per_s(const struct rate *rate);

#endif
