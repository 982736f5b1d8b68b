#include "worker/rate.h"

/* Work done this many busy seconds ago counts half. */
#define HALF_LIFE_S 5.0

void rate_init(struct rate *rate, double first_guess)
{
    /* As if seen for a twentieth of a second: one real chunk or step outweighs it. */
    rate->seconds = 0.05;
    rate->tokens = first_guess * rate->seconds;
}

void rate_add(struct rate *rate, uint32_t tokens, uint64_t busy_ns)
{
    const double seconds = (double)busy_ns / 1e9;
    /* 1 / (1 + t/h) halves at t = h and needs no exp(). */
    const double keep = 1.0 / (1.0 + seconds / HALF_LIFE_S);
    rate->tokens = rate->tokens * keep + tokens;
    rate->seconds = rate->seconds * keep + seconds;
}

double rate_per_s(const struct rate *rate)
{
    return rate->seconds > 0 ? rate->tokens / rate->seconds : 0;
}
