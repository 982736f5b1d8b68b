#include "base/clock.h"

#include <time.h>

static uint64_t monotonic_now_ns(const struct clock *self)
{
    (void)self;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

const struct clock *clock_monotonic(void)
{
    static const struct clock clock = {.now_ns = monotonic_now_ns};
    return &clock;
}

static uint64_t fake_now_ns(const struct clock *self)
{
    return ((const struct clock_fake *)self)->ns;
}

void clock_fake_init(struct clock_fake *fake, uint64_t start_ns)
{
    *fake = (struct clock_fake){.clock = {.now_ns = fake_now_ns}, .ns = start_ns};
}

void clock_fake_advance(struct clock_fake *fake, uint64_t ns)
{
    fake->ns += ns;
}

uint64_t clock_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / NS_PER_MS;
}
