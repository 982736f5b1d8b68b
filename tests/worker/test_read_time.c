/* What chunks of prompts teach of longer ones: on workers made of a formula. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/check.h"
#include "base/random.h"
#include "worker/read_time.h"

enum { CHUNK = 256 };

/* In truth a token takes this long, and a share of it more behind each other one. */
struct truth {
    double token_us, shape;
};

static double chunk_us(const struct truth *truth, uint32_t position, uint32_t count)
{
    double us = 0;
    for (uint32_t i = 0; i < count; i++)
        us += truth->token_us * (1 + truth->shape * (position + i));
    return us;
}

static double prompt_us(const struct read_cost *cost, uint32_t tokens)
{
    return tokens * cost->token_us + (double)read_context(0, tokens) * cost->context_us;
}

/* noise: each chunk takes up to this share more or less. */
static void read_prompt(struct read_time *time, const struct truth *truth, uint32_t tokens,
                        struct random *random, double noise)
{
    for (uint32_t at = 0; at < tokens; at += CHUNK) {
        const uint32_t count = tokens - at < CHUNK ? tokens - at : CHUNK;
        const double share = 1 + noise * ((double)random_below(random, 2001) / 1000 - 1);
        read_time_add(time, count, read_context(at, count), chunk_us(truth, at, count) * share);
    }
}

static void expect_within(const struct read_time *time, const struct truth *truth, double ratio,
                          const char *name)
{
    static const uint32_t lengths[] = {1, 200, 3000, 8000};
    const struct read_cost cost = read_time_cost(time);
    for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
        const double said = prompt_us(&cost, lengths[i]), real = chunk_us(truth, 0, lengths[i]);
        cr_expect(said <= ratio * real && real <= ratio * said,
                  "%s: %u tokens: %.0f us said, %.0f true", name, lengths[i], said, real);
    }
}

Test(read_time, contexts_are_summed)
{
    cr_expect_eq(read_context(0, 0), 0);
    cr_expect_eq(read_context(7, 0), 0);
    cr_expect_eq(read_context(0, 1), 0);
    cr_expect_eq(read_context(10, 3), 10 + 11 + 12);
    cr_expect_eq(read_context(4000000000, 2000000000),
                 2000000000ull * 4000000000 + 1000000000ull * 1999999999);
}

Test(read_time, two_measurements_give_a_line)
{
    static const struct {
        double x0, y0, x1, y1, token_us, context_us;
    } rows[] = {
        {100, 120, 2100, 520, 100, 0.2}, {0, 100, 2000, 100, 100, 0},
        {32, 100, 2080, 90, 100, 0}, /* nothing is read faster behind more */
        {32, 100, 32, 300, 100, 0},      {100, 100, 101, 200, 25, 0.75},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct read_cost cost =
            read_cost_between(rows[i].x0, rows[i].y0, rows[i].x1, rows[i].y1);
        cr_expect_float_eq(cost.token_us, rows[i].token_us, 1e-9, "row %zu", i);
        cr_expect_float_eq(cost.context_us, rows[i].context_us, 1e-9, "row %zu", i);
    }
}

/* Load and truth differ by up to three times in speed, twice in shape; prompts are of one length,
 * or of all. */
Test(read_time, finds_the_truth_from_prompts_of_any_length)
{
    static const struct {
        const char *name;
        uint32_t shortest, longest, count;
        double ratio;
    } rows[] = {{"short ones", 150, 250, 200, 1.45},
                {"long ones", 3000, 3000, 10, 1.15},
                {"very long ones", 8000, 8000, 5, 1.15},
                {"of all lengths", 20, 8000, 20, 1.15}};
    struct random random;
    random_init(&random, 7);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        for (int k = 0; k < 6; k++) {
            const double shape = 1.0 / 2000;
            const struct truth truth = {200, k % 2 == 0 ? shape / 1.4 : shape * 1.4};
            static const double speeds[] = {1.0 / 3, 1, 3};
            const double token_us = truth.token_us * speeds[k / 2];
            struct read_time time;
            read_time_init(&time, (struct read_cost){token_us, token_us * shape});
            const struct read_cost first = read_time_cost(&time);
            cr_expect_float_eq(first.token_us, token_us, 1e-6 * token_us, "nothing but load");
            cr_expect_float_eq(first.context_us, token_us * shape, 1e-6 * token_us * shape);
            for (uint32_t p = 0; p < rows[i].count; p++) {
                const uint32_t more = rows[i].longest - rows[i].shortest + 1;
                read_prompt(&time, &truth, rows[i].shortest + (uint32_t)random_below(&random, more),
                            &random, 0.1);
            }
            expect_within(&time, &truth, rows[i].ratio, rows[i].name);
        }
    }
}

/* After long prompts come minutes of short ones, on a machine that is half as fast now. */
Test(read_time, keeps_the_shape_and_follows_the_speed)
{
    struct random random;
    random_init(&random, 3);
    const struct truth before = {200, 1.0 / 2000}, after = {400, 1.0 / 2000};
    struct read_time time;
    read_time_init(&time, (struct read_cost){200, 0.1});
    read_prompt(&time, &before, 8000, &random, 0.05);
    for (int i = 0; i < 1000; i++)
        read_prompt(&time, &after, 200, &random, 0.05);
    expect_within(&time, &after, 1.2, "half the speed");
}

Test(read_time, one_chunk_that_hung_is_no_measure_and_nonsense_is_none_at_all)
{
    struct random random;
    random_init(&random, 5);
    const struct truth truth = {200, 1.0 / 2000};
    struct read_time time;
    read_time_init(&time, (struct read_cost){200, 0.1});
    for (int i = 0; i < 10; i++)
        read_prompt(&time, &truth, 3000, &random, 0.05);
    read_time_add(&time, CHUNK, read_context(0, CHUNK), 60e6);
    expect_within(&time, &truth, 1.35, "a chunk of a minute");
    const struct read_cost cost = read_time_cost(&time);
    read_time_add(&time, 0, 0, 1000);
    read_time_add(&time, 10, 0, 0);
    read_time_add(&time, 10, 0, -1);
    read_time_add(&time, 10, 0, NAN);
    read_time_add(&time, 10, 0, INFINITY);
    cr_expect_eq(read_time_cost(&time).token_us, cost.token_us);
    cr_expect_eq(read_time_cost(&time).context_us, cost.context_us);
}

/* Whatever comes, nothing is below zero or no number; without a measure of load as well. */
Test(read_time, anything_gives_a_cost)
{
    struct random random;
    random_init(&random, 11);
    for (int run = 0; run < 200; run++) {
        struct read_time time;
        const double token_us = run % 3 == 0 ? 0 : exp((double)random_below(&random, 20) - 5);
        read_time_init(&time, (struct read_cost){token_us, run % 2 == 0 ? 0 : token_us / 100});
        for (int i = 0; i < 50; i++) {
            read_time_add(&time, 1 + (uint32_t)random_below(&random, 4096),
                          random_below(&random, 1ull << (1 + random_below(&random, 40))),
                          exp((double)random_below(&random, 40) - 10));
            const struct read_cost cost = read_time_cost(&time);
            cr_assert(isfinite(cost.token_us) && isfinite(cost.context_us), "run %d", run);
            cr_assert(cost.token_us >= 0 && cost.context_us >= 0, "run %d: %g %g", run,
                      cost.token_us, cost.context_us);
        }
    }
}
