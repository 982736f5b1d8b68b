#include <criterion/criterion.h>

#include "base/clock.h"

Test(clock, monotonic_never_goes_back)
{
    uint64_t before = clock_now_ns(clock_monotonic());
    cr_assert_gt(before, 0);
    for (int i = 0; i < 10000; i++) {
        const uint64_t now = clock_now_ns(clock_monotonic());
        cr_assert_geq(now, before);
        before = now;
    }
}

Test(clock, a_fake_one_moves_only_when_told)
{
    struct clock_fake fake;
    clock_fake_init(&fake, 5);
    const struct clock *clock = &fake.clock;
    cr_assert_eq(clock_now_ns(clock), 5);
    cr_assert_eq(clock_now_ns(clock), 5);
    clock_fake_advance(&fake, 3 * (uint64_t)NS_PER_S);
    cr_assert_eq(clock_now_ns(clock), 3000000005);
}

Test(clock, wall_time_is_in_milliseconds)
{
    const uint64_t ms = clock_wall_ms();
    cr_assert_gt(ms, 1700000000000); /* November 2023 */
    cr_assert_lt(ms, 4102444800000); /* 2100 */
}
