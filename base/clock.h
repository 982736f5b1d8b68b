/* Time as a thing that can be handed in: product code takes a `struct clock *`, tests a fake. */
#ifndef BATON_BASE_CLOCK_H
#define BATON_BASE_CLOCK_H

#include <stdint.h>

struct clock {
    uint64_t (*now_ns)(const struct clock *self); /* monotonic, never goes back */
};

/* CLOCK_MONOTONIC of this host. Static, never freed. */
const struct clock *clock_monotonic(void);

static inline uint64_t clock_now_ns(const struct clock *clock)
{
    return clock->now_ns(clock);
}

/* A clock that only moves when told. */
struct clock_fake {
    struct clock clock; /* first member: pass &fake.clock */
    uint64_t ns;
};
void clock_fake_init(struct clock_fake *fake, uint64_t start_ns);
void clock_fake_advance(struct clock_fake *fake, uint64_t ns);

/* Milliseconds since 1970; for the journal and `created` fields only. */
uint64_t clock_wall_ms(void);

enum { NS_PER_US = 1000, NS_PER_MS = 1000000, NS_PER_S = 1000000000 };

/* From one reading to a later one in microseconds; 0 where the first never was (0), or is later. */
static inline uint64_t clock_elapsed_us(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns != 0 && to_ns > from_ns ? (to_ns - from_ns) / NS_PER_US : 0;
}

#endif
