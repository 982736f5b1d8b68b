#include <criterion/criterion.h>
#include <math.h>

#include "base/check.h"
#include "base/random.h"

/* Philox4x32-10 vectors published with the reference implementation (kat_vectors of Random123);
 * random_at gives the first two of the four words. */
Test(random, known_answers)
{
    cr_assert_eq(random_at(0, 0, 0), 0xe169c58d6627e8d5);
    cr_assert_eq(random_at(UINT64_MAX, UINT64_MAX, UINT64_MAX), 0x41c83b0e408f276d);
    cr_assert_eq(random_at(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
                 0x94fdccebd16cfe09);
}

Test(random, a_draw_depends_on_key_and_counter_only)
{
    const uint64_t once = random_at(1, 2, 3);
    cr_assert_eq(random_at(1, 2, 3), once);
    cr_assert_neq(random_at(2, 2, 3), once);
    cr_assert_neq(random_at(1, 3, 3), once);
    cr_assert_neq(random_at(1, 2, 4), once);
    cr_assert_eq(random_unit_at(1, 2, 3), (double)(once >> 11) / 9007199254740992.0);
}

Test(random, the_stream_repeats_from_its_seed)
{
    struct random a, b, c;
    random_init(&a, 42);
    random_init(&b, 42);
    random_init(&c, 43);
    size_t equal = 0;
    for (int i = 0; i < 1000; i++) {
        const uint64_t value = random_next(&a);
        cr_assert_eq(value, random_next(&b));
        equal += value == random_next(&c);
    }
    cr_assert_eq(equal, 0);
}

Test(random, below_reaches_every_value_evenly)
{
    enum { BOUND = 7, DRAWS = 70000 };
    size_t seen[BOUND] = {0};
    struct random random;
    random_init(&random, 7);
    for (int i = 0; i < DRAWS; i++) {
        const uint64_t value = random_below(&random, BOUND);
        cr_assert_lt(value, BOUND);
        seen[value]++;
    }
    const double expected = (double)DRAWS / BOUND;
    double chi_square = 0;
    for (int i = 0; i < BOUND; i++)
        chi_square += pow((double)seen[i] - expected, 2) / expected;
    cr_assert_lt(chi_square, 22.5, "%f", chi_square); /* 6 degrees of freedom, p = 0.001 */
}

Test(random, below_takes_the_corner_bounds)
{
    struct random random;
    random_init(&random, 9);
    cr_assert_eq(random_below(&random, 1), 0);
    for (int i = 0; i < 100; i++)
        cr_assert_leq(random_below(&random, (1ull << 63) + 1), 1ull << 63);
}

Test(random, unit_and_normal_have_their_moments)
{
    enum { DRAWS = 100000 };
    struct random random;
    random_init(&random, 11);
    double unit_sum = 0, sum = 0, squares = 0;
    for (int i = 0; i < DRAWS; i++) {
        const double unit = random_unit(&random);
        cr_assert(unit >= 0 && unit < 1);
        unit_sum += unit;
        const double normal = random_normal(&random);
        cr_assert(isfinite(normal));
        sum += normal;
        squares += normal * normal;
    }
    cr_assert_float_eq(unit_sum / DRAWS, 0.5, 0.005);
    cr_assert_float_eq(sum / DRAWS, 0.0, 0.02);
    cr_assert_float_eq(squares / DRAWS, 1.0, 0.03);
}

Test(random, the_system_gives_different_bytes_each_time)
{
    uint64_t values[16];
    random_os_bytes(values, sizeof values);
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        for (size_t j = 0; j < i; j++)
            cr_assert_neq(values[i], values[j]);
    }
    cr_assert_neq(random_os_u64(), random_os_u64());
}
