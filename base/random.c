#include "base/random.h"

#include <errno.h>
#include <math.h>
#include <sys/random.h>

#include "base/check.h"

/* Multipliers and Weyl steps of Philox4x32 (the paper's table 2 and section 5). */
static const uint32_t MULTIPLIER_0 = 0xD2511F53, MULTIPLIER_1 = 0xCD9E8D57;
static const uint32_t WEYL_0 = 0x9E3779B9, WEYL_1 = 0xBB67AE85;
enum { ROUNDS = 10 };

uint64_t random_at(uint64_t key, uint64_t counter_low, uint64_t counter_high)
{
    uint32_t x0 = (uint32_t)counter_low, x1 = (uint32_t)(counter_low >> 32);
    uint32_t x2 = (uint32_t)counter_high, x3 = (uint32_t)(counter_high >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)MULTIPLIER_0 * x0;
        const uint64_t p1 = (uint64_t)MULTIPLIER_1 * x2;
        const uint32_t y0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
        const uint32_t y2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x1 = (uint32_t)p1;
        x3 = (uint32_t)p0;
        x0 = y0;
        x2 = y2;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    return (uint64_t)x1 << 32 | x0;
}

static double unit_of(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

double random_unit_at(uint64_t key, uint64_t counter_low, uint64_t counter_high)
{
    return unit_of(random_at(key, counter_low, counter_high));
}

void random_init(struct random *random, uint64_t seed)
{
    *random = (struct random){.key = seed};
}

uint64_t random_next(struct random *random)
{
    return random_at(random->key, random->counter++, 0);
}

/* The high half of value * bound, drawn again in the few cases that would favour small numbers
 * (Lemire, "Fast Random Integer Generation in an Interval", 2019). */
uint64_t random_below(struct random *random, uint64_t bound)
{
    CHECK(bound > 0);
    const uint64_t biased = (0 - bound) % bound;
    for (;;) {
        const unsigned __int128 product = (unsigned __int128)random_next(random) * bound;
        if ((uint64_t)product >= biased)
            return (uint64_t)(product >> 64);
    }
}

double random_unit(struct random *random)
{
    return unit_of(random_next(random));
}

double random_normal(struct random *random)
{
    const double radius = sqrt(-2.0 * log(1.0 - random_unit(random)));
    return radius * cos(2.0 * M_PI * random_unit(random));
}

void random_os_bytes(void *out, size_t bytes)
{
    char *at = out;
    while (bytes > 0) {
        const ssize_t done = getrandom(at, bytes, 0);
        if (done < 0 && errno == EINTR)
            continue;
        CHECK(done > 0);
        at += done;
        bytes -= (size_t)done;
    }
}

uint64_t random_os_u64(void)
{
    uint64_t value;
    random_os_bytes(&value, sizeof value);
    return value;
}
