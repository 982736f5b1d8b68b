#include <criterion/criterion.h>
#include <math.h>

#include "base/random.h"
#include "decode_node/step_time.h"

static bool near(double got, double wanted, double share)
{
    return fabs(got - wanted) <= share * fabs(wanted);
}

Test(step_time, nothing_is_known_at_first)
{
    struct step_time model;
    step_time_init(&model);
    const struct step_cost cost = step_time_cost(&model);
    cr_assert_eq(step_cost_us(&cost, 1000, 10), 0);
}

Test(step_time, finds_the_three_terms_under_noise)
{
    struct step_time model;
    struct random random;
    step_time_init(&model);
    random_init(&random, 4);
    for (int i = 0; i < 3000; i++) {
        const uint32_t rows = 1 + (uint32_t)random_below(&random, 32);
        const uint64_t context = rows * (1 + random_below(&random, 2000));
        const double noise = 0.9 + 0.002 * (double)random_below(&random, 100);
        step_time_add(&model, context, rows, (5000 + 0.25 * (double)context + 120 * rows) * noise);
    }
    const struct step_cost cost = step_time_cost(&model);
    cr_assert(near(cost.base_us, 5000, 0.05), "%g", cost.base_us);
    cr_assert(near(cost.token_us, 0.25, 0.05), "%g", cost.token_us);
    cr_assert(near(cost.row_us, 120, 0.15), "%g", cost.row_us);
    cr_assert(near(step_cost_us(&cost, 20000, 20), 5000 + 5000 + 2400, 0.02));
}

/* All steps alike: one number explains them, and it is what is expected of the next. */
Test(step_time, degenerate_steps_give_a_sane_answer)
{
    struct step_time model;
    step_time_init(&model);
    for (int i = 0; i < 100; i++)
        step_time_add(&model, 64, 1, 700);
    struct step_cost cost = step_time_cost(&model);
    cr_assert(near(step_cost_us(&cost, 64, 1), 700, 1e-6));
    cr_assert(cost.base_us >= 0 && cost.token_us >= 0 && cost.row_us >= 0);
    cr_assert_leq(step_cost_us(&cost, 128, 2), 1400.001, "no worse than in proportion");

    /* Times that fall as the work grows: no coefficient goes below zero. */
    step_time_init(&model);
    for (uint32_t i = 1; i <= 200; i++)
        step_time_add(&model, i * 10, i, 10000.0 / i);
    cost = step_time_cost(&model);
    cr_assert(cost.base_us >= 0 && cost.token_us >= 0 && cost.row_us >= 0);
    cr_assert(isfinite(step_cost_us(&cost, UINT32_MAX, 512)));
}

Test(step_time, what_is_no_time_changes_nothing)
{
    struct step_time model;
    step_time_init(&model);
    for (int i = 0; i < 50; i++)
        step_time_add(&model, 100, 4, 1000);
    step_time_add(&model, 100, 4, NAN);
    step_time_add(&model, 100, 4, INFINITY);
    step_time_add(&model, 100, 4, -5);
    step_time_add(&model, 100, 0, 5);
    const struct step_cost cost = step_time_cost(&model);
    cr_assert(near(step_cost_us(&cost, 100, 4), 1000, 1e-6));
}

Test(step_time, one_disturbed_step_is_no_news_but_a_slower_machine_is)
{
    struct step_time model;
    step_time_init(&model);
    for (int i = 0; i < 400; i++)
        step_time_add(&model, 100 + (uint64_t)i, 4, 1000);
    step_time_add(&model, 300, 4, 500000);
    struct step_cost cost = step_time_cost(&model);
    cr_assert_lt(step_cost_us(&cost, 300, 4), 1100);
    for (int i = 0; i < 200; i++)
        step_time_add(&model, 100 + (uint64_t)i, 4, 20000);
    cost = step_time_cost(&model);
    cr_assert(near(step_cost_us(&cost, 200, 4), 20000, 0.05), "%g", step_cost_us(&cost, 200, 4));
}

/* Old steps fade. */
Test(step_time, follows_a_change)
{
    struct step_time model;
    step_time_init(&model);
    for (int i = 0; i < 5000; i++)
        step_time_add(&model, 1000, 8, 1000);
    for (int i = 0; i < 3000; i++)
        step_time_add(&model, 1000, 8, 2000);
    const struct step_cost cost = step_time_cost(&model);
    cr_assert(near(step_cost_us(&cost, 1000, 8), 2000, 0.06), "%g", step_cost_us(&cost, 1000, 8));
}
