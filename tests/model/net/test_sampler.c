/* The sampler: exact distributions by chi-square, filters, ties, purity, and what it refuses. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"
#include "model/sampler.h"

enum { V = 24, DRAWS = 40000 };

static const struct sampling plain = {.temperature = 1.0f, .top_p = 1.0f, .seed = 42};

/* At the end of a prompt, where nothing looks back. */
static enum status pick(struct sampler *sampler, const struct sampling *sampling,
                        const float *logits, uint32_t choice, uint32_t position,
                        struct sampled *out)
{
    const struct sampler_at at = {.choice = choice, .position = position, .prompt_count = position};
    return sampler_pick(sampler, sampling, logits, &at, out);
}

/* A value that fewer than 1 in 100,000 sound samplers pass: Wilson and Hilferty's cube. */
static double chi_square_limit(uint32_t degrees)
{
    const double n = degrees, z = 4.27;
    const double root = 1.0 - 2.0 / (9.0 * n) + z * sqrt(2.0 / (9.0 * n));
    return n * root * root * root;
}

struct ranked {
    double probability;
    uint32_t id;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->probability != y->probability)
        return x->probability > y->probability ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* The distribution by definition: sort everything, cut in turn, share out anew. */
static void exact_distribution(const struct sampling *sampling, const float *logits, double *out)
{
    struct ranked ranked[V];
    double total = 0.0, kept_total = 0.0, sum = 0.0;
    for (uint32_t i = 0; i < V; i++) {
        ranked[i] = (struct ranked){exp((double)logits[i] / (double)sampling->temperature), i};
        total += ranked[i].probability;
        out[i] = 0.0;
    }
    qsort(ranked, V, sizeof *ranked, by_rank);
    uint32_t kept = sampling->top_k > 0 && sampling->top_k < V ? (uint32_t)sampling->top_k : V;
    total = 0.0;
    for (uint32_t i = 0; i < kept; i++)
        total += ranked[i].probability;
    for (uint32_t i = 0; i < kept; i++) {
        sum += ranked[i].probability;
        if (sum >= (double)sampling->top_p * total) {
            kept = i + 1;
            break;
        }
    }
    for (uint32_t i = 0; i < kept; i++) {
        if (ranked[i].probability >= (double)sampling->min_p * ranked[0].probability)
            kept_total += out[ranked[i].id] = ranked[i].probability;
    }
    for (uint32_t i = 0; i < V; i++)
        out[i] /= kept_total;
}

static void random_logits(uint64_t seed, float *logits, uint32_t count)
{
    struct random random;
    random_init(&random, seed);
    for (uint32_t i = 0; i < count; i++)
        logits[i] = (float)(2.0 * random_normal(&random));
}

static void check_distribution(const struct sampling *sampling, const float *logits)
{
    double exact[V], chi = 0.0;
    uint32_t counts[V] = {0}, cells = 0;
    struct sampler *sampler = sampler_create(V);
    exact_distribution(sampling, logits, exact);
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct sampled sampled;
        cr_assert_eq(pick(sampler, sampling, logits, i % 3, i, &sampled), STATUS_OK);
        counts[sampled.id]++;
    }
    for (uint32_t i = 0; i < V; i++) {
        const double expected = exact[i] * DRAWS, gap = counts[i] - expected;
        cr_assert(exact[i] > 0.0 || counts[i] == 0, "id %u was cut and drawn %u times", i,
                  counts[i]);
        if (expected < 5.0)
            continue;
        chi += gap * gap / expected;
        cells++;
    }
    if (cells > 1)
        cr_assert_lt(chi, chi_square_limit(cells - 1), "temperature %g top_k %d top_p %g min_p %g",
                     (double)sampling->temperature, sampling->top_k, (double)sampling->top_p,
                     (double)sampling->min_p);
    sampler_destroy(sampler);
}

Test(sampler, draws_follow_the_exact_distribution)
{
    static const float temperatures[] = {0.3f, 1.0f, 1.7f};
    static const int32_t top_ks[] = {0, -1, 1, 3, 10, V, V + 5};
    static const float top_ps[] = {1.0f, 0.9f, 0.5f, 0.05f};
    static const float min_ps[] = {0.0f, 0.05f, 0.4f};
    float logits[V];
    uint64_t seed = 0;
    for (size_t t = 0; t < ARRAY_COUNT(temperatures); t++) {
        for (size_t k = 0; k < ARRAY_COUNT(top_ks); k++) {
            for (size_t p = 0; p < ARRAY_COUNT(top_ps); p++) {
                const struct sampling sampling = {.temperature = temperatures[t],
                                                  .top_k = top_ks[k],
                                                  .top_p = top_ps[p],
                                                  .min_p = min_ps[seed % 3],
                                                  .seed = seed};
                random_logits(seed++, logits, V);
                check_distribution(&sampling, logits);
            }
        }
    }
}

/* The test of the test: draws from a slightly other distribution do not pass. */
Test(sampler, the_chi_square_sees_a_small_shift)
{
    float logits[V];
    double exact[V], chi = 0.0;
    random_logits(1, logits, V);
    exact_distribution(&plain, logits, exact);
    struct sampler *sampler = sampler_create(V);
    struct sampling warmer = plain;
    warmer.temperature = 1.05f;
    uint32_t counts[V] = {0}, cells = 0;
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct sampled sampled;
        cr_assert_eq(pick(sampler, &warmer, logits, 0, i, &sampled), STATUS_OK);
        counts[sampled.id]++;
    }
    for (uint32_t i = 0; i < V; i++) {
        const double expected = exact[i] * DRAWS, gap = counts[i] - expected;
        if (expected < 5.0)
            continue;
        chi += gap * gap / expected;
        cells++;
    }
    cr_assert_gt(chi, chi_square_limit(cells - 1));
    sampler_destroy(sampler);
}

/* Equal logits: top-k keeps the lower ids. */
Test(sampler, ties_go_to_the_lower_id)
{
    float logits[V] = {0};
    struct sampled sampled;
    struct sampler *sampler = sampler_create(V);
    struct sampling sampling = {.top_p = 1.0f};
    for (uint32_t i = 5; i < V; i++)
        logits[i] = 3.0f;
    cr_assert_eq(pick(sampler, &sampling, logits, 0, 0, &sampled), STATUS_OK);
    cr_assert_eq(sampled.id, 5);
    sampling.temperature = 1e-6f;
    cr_assert_eq(pick(sampler, &sampling, logits, 0, 0, &sampled), STATUS_OK);
    cr_assert_eq(sampled.id, 5, "below 1e-5 is greedy");
    sampling = (struct sampling){.temperature = 1.0f, .top_p = 1.0f, .top_k = 4};
    bool seen[V] = {false};
    for (uint32_t i = 0; i < 1000; i++) {
        cr_assert_eq(pick(sampler, &sampling, logits, 0, i, &sampled), STATUS_OK);
        seen[sampled.id] = true;
    }
    for (uint32_t i = 0; i < V; i++)
        cr_assert_eq(seen[i], i >= 5 && i < 9, "id %u", i);
    sampler_destroy(sampler);
}

/* The result is a function of logits, parameters and counter: other calls leave no trace. */
Test(sampler, a_pick_does_not_depend_on_other_picks)
{
    enum { CASES = 200, WIDE = 1000 };
    static float logits[CASES][WIDE];
    struct sampling sampling[CASES];
    struct sampled alone[CASES], mixed;
    for (uint32_t i = 0; i < CASES; i++) {
        random_logits(i, logits[i], WIDE);
        sampling[i] = (struct sampling){.temperature = 0.5f + (float)(i % 4) * 0.3f,
                                        .top_p = i % 2 == 0 ? 1.0f : 0.8f,
                                        .top_k = (int32_t)(i % 5) * 40,
                                        .min_p = i % 3 == 0 ? 0.02f : 0.0f,
                                        .seed = i / 7,
                                        .logprobs = 1,
                                        .top_logprobs = i % (SAMPLER_TOP_MAX + 1)};
        struct sampler *fresh = sampler_create(WIDE);
        cr_assert_eq(pick(fresh, &sampling[i], logits[i], i % 3, i, &alone[i]), STATUS_OK);
        sampler_destroy(fresh);
    }
    struct sampler *shared = sampler_create(WIDE);
    for (uint32_t k = 0; k < CASES; k++) {
        const uint32_t i = k * 77 % CASES;
        cr_assert_eq(pick(shared, &sampling[i], logits[i], i % 3, i, &mixed), STATUS_OK);
        cr_assert(memcmp(&mixed, &alone[i], sizeof mixed) == 0, "case %u", i);
    }
    sampler_destroy(shared);
}

Test(sampler, seed_choice_and_position_each_change_the_draw)
{
    float logits[V] = {0};
    struct sampler *sampler = sampler_create(V);
    struct sampled base, other;
    uint32_t changed[3] = {0};
    for (uint32_t i = 0; i < 300; i++) {
        struct sampling sampling = plain;
        cr_assert_eq(pick(sampler, &sampling, logits, 0, i, &base), STATUS_OK);
        cr_assert_eq(pick(sampler, &sampling, logits, 1, i, &other), STATUS_OK);
        changed[0] += other.id != base.id;
        cr_assert_eq(pick(sampler, &sampling, logits, 0, i + 1, &other), STATUS_OK);
        changed[1] += other.id != base.id;
        sampling.seed++;
        cr_assert_eq(pick(sampler, &sampling, logits, 0, i, &other), STATUS_OK);
        changed[2] += other.id != base.id;
    }
    for (uint32_t i = 0; i < 3; i++)
        cr_assert_gt(changed[i], 250);
    sampler_destroy(sampler);
}

Test(sampler, unsound_logits_are_corrupt)
{
    static const float bad[] = {__builtin_nanf(""), __builtin_inff()};
    float logits[V];
    struct sampler *sampler = sampler_create(V);
    struct sampled sampled = {.id = -7};
    for (uint32_t greedy = 0; greedy < 2; greedy++) {
        const struct sampling sampling = {.temperature = greedy ? 0.0f : 1.0f, .top_p = 1.0f};
        for (uint32_t i = 0; i < V; i++) {
            for (uint32_t b = 0; b < 2; b++) {
                random_logits(3, logits, V);
                logits[i] = bad[b];
                cr_assert_eq(pick(sampler, &sampling, logits, 0, 0, &sampled), STATUS_CORRUPT);
            }
        }
        for (uint32_t i = 0; i < V; i++)
            logits[i] = -INFINITY;
        cr_assert_eq(pick(sampler, &sampling, logits, 0, 0, &sampled), STATUS_CORRUPT);
        logits[9] = -1e30f;
        cr_assert_eq(pick(sampler, &sampling, logits, 0, 0, &sampled), STATUS_OK);
        cr_assert_eq(sampled.id, 9, "the only one that is possible");
        sampled.id = -7;
    }
    sampler_destroy(sampler);
}

Test(sampler, a_known_best_is_picked_or_corrupt)
{
    struct sampled sampled = {.id = -7};
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++)
        cr_assert_eq(sampler_pick_best(3, bad[i], &sampled), STATUS_CORRUPT);
    cr_assert_eq(sampled.id, -7, "set on STATUS_OK only");
    cr_assert_eq(sampler_pick_best(3, -2.0f, &sampled), STATUS_OK);
    cr_assert_eq(sampled.id, 3);
    const struct sampling greedy = {.top_p = 1.0f}, warm = {.temperature = 0.5f, .top_p = 1.0f};
    const struct sampling told = {.top_p = 1.0f, .logprobs = 1}, wrong = {.top_p = 2.0f};
    cr_assert(sampling_needs_best_only(&greedy, 0));
    cr_assert_not(sampling_needs_best_only(&warm, 0));
    cr_assert_not(sampling_needs_best_only(&told, 0));
    cr_assert_not(sampling_needs_best_only(&wrong, 0), "sampler_pick is to refuse it");
}

Test(sampler, extreme_logits_are_no_trouble)
{
    float logits[V];
    struct sampled sampled;
    struct sampler *sampler = sampler_create(V);
    const struct sampling cold = {.temperature = 1e-5f, .top_p = 0.5f, .logprobs = 1};
    const struct sampling hot = {.temperature = 1e30f, .top_p = 0.999f, .top_k = 20};
    for (uint32_t i = 0; i < V; i++)
        logits[i] = i % 2 == 0 ? 3e38f : -3e38f;
    for (uint32_t i = 0; i < 100; i++) {
        cr_assert_eq(pick(sampler, &cold, logits, 0, i, &sampled), STATUS_OK);
        cr_assert(sampled.id % 2 == 0 && isfinite(sampled.logprob));
        cr_assert_eq(pick(sampler, &hot, logits, 0, i, &sampled), STATUS_OK);
        cr_assert_lt(sampled.id, V);
    }
    for (uint32_t i = 0; i < V; i++)
        logits[i] = 1e-42f;
    cr_assert_eq(pick(sampler, &cold, logits, 0, 0, &sampled), STATUS_OK);
    cr_assert_float_eq(sampled.logprob, -log(V), 1e-6);
    sampler_destroy(sampler);
}

/* Log-probabilities are those of the distribution before temperature and filters. */
Test(sampler, logprobs_are_of_the_true_distribution)
{
    float logits[V];
    double total = 0.0;
    struct sampled sampled;
    struct sampler *sampler = sampler_create(V);
    random_logits(8, logits, V);
    logits[7] = logits[3];
    for (uint32_t i = 0; i < V; i++)
        total += exp((double)logits[i]);
    struct sampling sampling = {.temperature = 0.2f,
                                .top_p = 0.7f,
                                .top_k = 2,
                                .logprobs = 1,
                                .top_logprobs = SAMPLER_TOP_MAX};
    for (uint32_t draw = 0; draw < 50; draw++) {
        cr_assert_eq(pick(sampler, &sampling, logits, 0, draw, &sampled), STATUS_OK);
        cr_assert_float_eq(sampled.logprob, (double)logits[sampled.id] - log(total), 1e-5);
        cr_assert_eq(sampled.top_count, SAMPLER_TOP_MAX);
        for (uint32_t i = 0; i < sampled.top_count; i++) {
            const int32_t id = sampled.top_ids[i];
            cr_assert_float_eq(sampled.top_logprobs[i], (double)logits[id] - log(total), 1e-5);
            if (i == 0)
                continue;
            const int32_t before = sampled.top_ids[i - 1];
            cr_assert(logits[before] > logits[id] || (logits[before] == logits[id] && before < id));
        }
    }
    sampling.top_logprobs = 0;
    cr_assert_eq(pick(sampler, &sampling, logits, 0, 0, &sampled), STATUS_OK);
    cr_assert_eq(sampled.top_count, 0);
    sampler_destroy(sampler);
}

/* A token that stands there has the log-probability that it would have been picked with. */
Test(sampler, scores_are_what_a_pick_tells)
{
    float logits[V];
    struct sampler *sampler = sampler_create(V);
    for (uint32_t round = 0; round < 50; round++) {
        struct sampling sampling = plain;
        struct sampled picked, score;
        sampling.logprobs = 1;
        sampling.top_logprobs = 5;
        random_logits(round, logits, V);
        logits[round % V] = logits[(round + 7) % V]; /* ids that are equally likely */
        cr_assert_eq(pick(sampler, &sampling, logits, 0, round, &picked), STATUS_OK);
        cr_assert_eq(sampler_score(sampler, logits, picked.id, 5, &score), STATUS_OK);
        cr_assert_eq(score.id, picked.id);
        cr_assert_eq(score.logprob, picked.logprob);
        cr_assert_eq(score.top_count, 5);
        cr_assert_arr_eq(score.top_ids, picked.top_ids, 5 * sizeof *score.top_ids);
        cr_assert_arr_eq(score.top_logprobs, picked.top_logprobs, 5 * sizeof *score.top_logprobs);
        uint32_t rank = 1;
        for (uint32_t i = 0; i < V; i++)
            rank += logits[i] > logits[picked.id];
        cr_assert_eq(score.rank, rank);
    }
    logits[3] = NAN;
    struct sampled untouched = {.id = -5};
    cr_assert_eq(sampler_score(sampler, logits, 1, 0, &untouched), STATUS_CORRUPT);
    cr_assert_eq(untouched.id, -5);
    sampler_destroy(sampler);
}

Test(sampler, parameters_outside_their_bounds_are_invalid)
{
    static const struct sampling wrong[] = {
        {.temperature = -0.1f, .top_p = 1.0f},
        {.temperature = __builtin_nanf(""), .top_p = 1.0f},
        {.temperature = __builtin_inff(), .top_p = 1.0f},
        {.temperature = 1.0f, .top_p = 0.0f},
        {.temperature = 1.0f, .top_p = 1.01f},
        {.temperature = 1.0f, .top_p = __builtin_nanf("")},
        {.temperature = 1.0f, .top_p = 1.0f, .min_p = -0.1f},
        {.temperature = 1.0f, .top_p = 1.0f, .min_p = 1.1f},
        {.temperature = 1.0f, .top_p = 1.0f, .top_k = -2},
        {.temperature = 1.0f, .top_p = 1.0f, .top_logprobs = SAMPLER_TOP_MAX + 1},
    };
    float logits[V] = {0};
    struct sampled sampled = {.id = -7};
    struct sampler *sampler = sampler_create(V);
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        cr_assert_eq(pick(sampler, &wrong[i], logits, 0, 0, &sampled), STATUS_INVALID, "row %zu",
                     i);
        cr_assert_eq(sampled.id, -7);
    }
    sampler_destroy(sampler);
}

/* A vocabulary of real size, where sorting it would show: the filters must still cut exactly. */
Test(sampler, large_vocabularies_are_cut_exactly)
{
    enum { WIDE = 50000 };
    static float logits[WIDE];
    struct sampler *sampler = sampler_create(WIDE);
    random_logits(12, logits, WIDE);
    const struct sampling sampling = {.temperature = 2.0f, .top_p = 1.0f, .top_k = 50};
    uint32_t better_max = 0;
    for (uint32_t i = 0; i < 400; i++) {
        struct sampled sampled;
        uint32_t better = 0;
        cr_assert_eq(pick(sampler, &sampling, logits, 0, i, &sampled), STATUS_OK);
        for (uint32_t j = 0; j < WIDE; j++)
            better += logits[j] > logits[sampled.id];
        better_max = better > better_max ? better : better_max;
    }
    cr_assert(better_max < 50 && better_max > 40, "worst rank %u", better_max);
    sampler_destroy(sampler);
}
