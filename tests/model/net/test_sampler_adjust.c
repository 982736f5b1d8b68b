/* What requests do to logits, against a plain reference that walks everything for every id. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"
#include "model/sampler.h"

enum { V = 40, TOKENS = 60, LISTED = 12, BANNED = 6, CASES = 3000 };

/* A random request: lists of its own, so that it can be copied nowhere and is simply filled. */
struct asked {
    struct sampling sampling;
    struct sampler_at at;
    float logits[V], biases[LISTED];
    int32_t tokens[TOKENS];
    int32_t biased[LISTED], allowed[LISTED], eos[2], stops[2], banned[BANNED * 3];
    uint32_t banned_lengths[BANNED];
    uint32_t mask[(V + 31) / 32];
};

static bool coin(struct random *random)
{
    return random_below(random, 2) == 0;
}

static float between(struct random *random, double low, double high)
{
    return (float)(low + (high - low) * random_unit(random));
}

/* Some of the ids are padding of the head: no sampler picks those. */
static uint32_t fill_ids(struct random *random, int32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        bool again;
        do {
            again = false;
            ids[i] = (int32_t)random_below(random, V + 4);
            for (uint32_t k = 0; k < i; k++)
                again |= ids[k] == ids[i];
        } while (again);
    }
    return count;
}

static void fill_lists(struct random *random, struct asked *asked)
{
    struct sampling *sampling = &asked->sampling;
    if (coin(random)) {
        sampling->biased.ids = asked->biased;
        sampling->biased.count =
            fill_ids(random, asked->biased, (uint32_t)random_below(random, LISTED));
        sampling->biases = asked->biases;
        for (uint32_t i = 0; i < sampling->biased.count; i++)
            asked->biases[i] = between(random, -6, 6);
    }
    if (coin(random)) {
        sampling->allowed.ids = asked->allowed;
        sampling->allowed.count =
            fill_ids(random, asked->allowed, (uint32_t)random_below(random, LISTED));
    }
    if (coin(random)) {
        sampling->banned.ids = asked->banned;
        sampling->banned_lengths = asked->banned_lengths;
        sampling->banned_count = 1 + (uint32_t)random_below(random, BANNED);
        for (uint32_t i = 0; i < sampling->banned_count; i++) {
            asked->banned_lengths[i] = 1 + (uint32_t)random_below(random, 3);
            /* Few ids, so that the answer often ends in the first of a sequence. */
            for (uint32_t k = 0; k < asked->banned_lengths[i]; k++)
                asked->banned[sampling->banned.count++] = (int32_t)random_below(random, 6);
        }
    }
    sampling->min_tokens = (uint32_t)random_below(random, 20);
    sampling->ends[0] =
        (struct sampling_ids){asked->eos, fill_ids(random, asked->eos, coin(random) ? 2 : 0)};
    sampling->ends[1] =
        (struct sampling_ids){asked->stops, fill_ids(random, asked->stops, coin(random) ? 2 : 0)};
}

static void fill(struct random *random, struct asked *asked)
{
    memset(asked, 0, sizeof *asked);
    asked->sampling = (struct sampling){.top_p = 1.0f, .logprobs = 1, .top_logprobs = 3};
    asked->sampling.repetition_penalty = coin(random) ? between(random, 0.5, 2) : 0.0f;
    asked->sampling.presence_penalty = coin(random) ? between(random, -2, 2) : 0.0f;
    asked->sampling.frequency_penalty = coin(random) ? between(random, -2, 2) : 0.0f;
    fill_lists(random, asked);
    for (uint32_t i = 0; i < V; i++)
        asked->logits[i] = random_below(random, 20) == 0 ? -INFINITY : between(random, -5, 5);
    for (uint32_t i = 0; i < TOKENS; i++)
        asked->tokens[i] = (int32_t)random_below(random, random_below(random, 3) ? 6 : V + 4);
    asked->at.prompt_count = 1 + (uint32_t)random_below(random, TOKENS / 2);
    asked->at.position =
        asked->at.prompt_count + (uint32_t)random_below(random, TOKENS - asked->at.prompt_count);
    asked->at.tokens = asked->tokens;
    for (uint32_t i = 0; i < (V + 31) / 32; i++)
        asked->mask[i] = (uint32_t)random_next(random) | (uint32_t)random_next(random);
    asked->at.mask = coin(random) ? asked->mask : NULL;
    asked->at.must_end = asked->at.mask != NULL && coin(random);
}

static bool listed(const struct sampling_ids *list, int32_t id)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->ids[i] == id)
            return true;
    }
    return false;
}

static bool completes_banned(const struct asked *asked, int32_t id)
{
    const int32_t *sequence = asked->sampling.banned.ids;
    for (uint32_t i = 0; i < asked->sampling.banned_count; i++) {
        const uint32_t length = asked->sampling.banned_lengths[i];
        bool same =
            asked->at.position - asked->at.prompt_count >= length - 1 && sequence[length - 1] == id;
        for (uint32_t k = 0; same && k + 1 < length; k++)
            same = asked->tokens[asked->at.position - length + 1 + k] == sequence[k];
        if (same)
            return true;
        sequence += length;
    }
    return false;
}

static bool forbidden(const struct asked *asked, int32_t id)
{
    const struct sampling *sampling = &asked->sampling;
    const bool early =
        !asked->at.must_end && asked->at.position - asked->at.prompt_count < sampling->min_tokens;
    const bool masked =
        asked->at.mask != NULL && (asked->mask[(uint32_t)id / 32] >> (id % 32) & 1) == 0;
    return masked || (sampling->allowed.count > 0 && !listed(&sampling->allowed, id)) ||
           (early && (listed(&sampling->ends[0], id) || listed(&sampling->ends[1], id))) ||
           completes_banned(asked, id);
}

/* One id's logit as it is drawn from, in the words of the interface. */
static double reference(const struct asked *asked, int32_t id)
{
    const struct sampling *sampling = &asked->sampling;
    if (forbidden(asked, id))
        return -INFINITY;
    double logit = (double)asked->logits[id];
    for (uint32_t i = 0; i < sampling->biased.count; i++) {
        if (sampling->biased.ids[i] == id)
            logit += (double)sampling->biases[i];
    }
    uint32_t anywhere = 0, in_answer = 0;
    for (uint32_t i = 0; i < asked->at.position; i++) {
        anywhere += asked->tokens[i] == id;
        in_answer += asked->tokens[i] == id && i >= asked->at.prompt_count;
    }
    if (anywhere > 0 && sampling->repetition_penalty > 0)
        logit = logit > 0 ? logit / (double)sampling->repetition_penalty
                          : logit * (double)sampling->repetition_penalty;
    logit -= (double)sampling->frequency_penalty * in_answer;
    return in_answer > 0 ? logit - (double)sampling->presence_penalty : logit;
}

Test(sampler_adjust, greedy_takes_what_the_reference_takes)
{
    struct random random;
    struct asked asked;
    uint32_t none = 0, moved = 0;
    random_init(&random, 20);
    struct sampler *sampler = sampler_create(V);
    for (uint32_t i = 0; i < CASES; i++) {
        fill(&random, &asked);
        double best = -INFINITY, second = -INFINITY;
        int32_t id = -1;
        for (int32_t k = 0; k < V; k++) {
            const double logit = reference(&asked, k);
            second = logit > best ? best : logit > second ? logit : second;
            id = logit > best ? k : id;
            best = logit > best ? logit : best;
        }
        struct sampled sampled = {.id = -7}, bare;
        const enum status status =
            sampler_pick(sampler, &asked.sampling, asked.logits, &asked.at, &sampled);
        if (id < 0) {
            cr_assert_eq(status, STATUS_NOT_FOUND);
            cr_assert_eq(sampled.id, -7, "set on STATUS_OK only");
            none++;
            continue;
        }
        cr_assert_eq(status, STATUS_OK);
        if (best - second > 1e-4)
            cr_assert_eq(sampled.id, id, "case %u: %d and not %d", i, sampled.id, id);
        /* The log-probabilities are the model's own. */
        const struct sampling plain = {.top_p = 1.0f, .logprobs = 1, .top_logprobs = 3};
        cr_assert_eq(sampler_pick(sampler, &plain, asked.logits, &asked.at, &bare), STATUS_OK);
        cr_assert(memcmp(bare.top_ids, sampled.top_ids, sizeof bare.top_ids) == 0);
        cr_assert(memcmp(bare.top_logprobs, sampled.top_logprobs, sizeof bare.top_logprobs) == 0);
        moved += bare.id != sampled.id;
    }
    sampler_destroy(sampler);
    cr_assert(none > 10 && moved > CASES / 4, "the cases test little: %u, %u", none, moved);
}

/* Draws come from softmax of the reference: each id's share over many positions. */
Test(sampler_adjust, draws_have_the_shares_of_the_reference)
{
    enum { DRAWS = 20000 };
    struct random random;
    struct asked asked;
    random_init(&random, 21);
    struct sampler *sampler = sampler_create(V);
    for (uint32_t i = 0; i < 12; i++) {
        uint32_t counts[V] = {0};
        double total = 0, weights[V];
        fill(&random, &asked);
        asked.sampling.temperature = 0.8f;
        for (int32_t k = 0; k < V; k++)
            total += weights[k] = exp(reference(&asked, k) / 0.8);
        for (uint32_t draw = 0; draw < DRAWS && total > 0; draw++) {
            struct sampled sampled;
            asked.sampling.seed = draw;
            cr_assert_eq(sampler_pick(sampler, &asked.sampling, asked.logits, &asked.at, &sampled),
                         STATUS_OK);
            counts[sampled.id]++;
        }
        for (int32_t k = 0; k < V && total > 0; k++) {
            const double share = weights[k] / total;
            cr_assert(weights[k] > 0 || counts[k] == 0, "a forbidden id was drawn");
            /* Six standard deviations, and a few for those that hardly ever come. */
            cr_assert_float_eq(counts[k], share * DRAWS, 6 * sqrt(share * DRAWS) + 6,
                               "case %u, id %d", i, k);
        }
    }
    sampler_destroy(sampler);
}

/* Whatever came between, the same request picks the same token. */
Test(sampler_adjust, company_does_not_matter)
{
    enum { COUNT = 50 };
    static struct asked asked[COUNT];
    static struct sampled alone[COUNT];
    static enum status status[COUNT];
    struct random random;
    random_init(&random, 22);
    for (uint32_t i = 0; i < COUNT; i++) {
        fill(&random, &asked[i]);
        asked[i].sampling.temperature = i % 3 == 0 ? 0.0f : 1.0f;
        struct sampler *fresh = sampler_create(V);
        status[i] =
            sampler_pick(fresh, &asked[i].sampling, asked[i].logits, &asked[i].at, &alone[i]);
        sampler_destroy(fresh);
    }
    struct sampler *shared = sampler_create(V);
    for (uint32_t k = 0; k < 10 * COUNT; k++) {
        const uint32_t i = (uint32_t)random_below(&random, COUNT);
        struct sampled mixed = {0};
        cr_assert_eq(
            sampler_pick(shared, &asked[i].sampling, asked[i].logits, &asked[i].at, &mixed),
            status[i]);
        cr_assert(status[i] != STATUS_OK || memcmp(&mixed, &alone[i], sizeof mixed) == 0);
    }
    sampler_destroy(shared);
}

Test(sampler_adjust, extreme_values_stay_numbers)
{
    const int32_t tokens[] = {0, 1, 2, 3}, biased[] = {0, 1}, allowed[] = {0, 1, 2, 3};
    const float biases[] = {100, -100};
    struct sampling sampling = {.top_p = 1.0f,
                                .temperature = 1.0f,
                                .presence_penalty = -2,
                                .frequency_penalty = 2,
                                .biased = {biased, 2},
                                .biases = biases,
                                .allowed = {allowed, 4}};
    const struct sampler_at at = {.position = 4, .prompt_count = 1, .tokens = tokens};
    const float logits[4] = {FLT_MAX, -FLT_MAX, 3e38f, -3e38f};
    struct sampler *sampler = sampler_create(4);
    struct sampled sampled;
    static const float penalties[] = {1e-6f, 0.5f, 1, 1e6f, FLT_MAX};
    for (size_t i = 0; i < ARRAY_COUNT(penalties); i++) {
        sampling.repetition_penalty = penalties[i];
        cr_assert_eq(sampler_pick(sampler, &sampling, logits, &at, &sampled), STATUS_OK);
    }
    /* A logit that overflows downwards is unlikely, not forbidden. */
    sampling.allowed = (struct sampling_ids){allowed + 1, 1};
    cr_assert_eq(sampler_pick(sampler, &sampling, logits, &at, &sampled), STATUS_OK);
    cr_assert_eq(sampled.id, 1);
    sampler_destroy(sampler);
}

Test(sampler_adjust, only_what_changes_logits_needs_them_all)
{
    static const int32_t ids[] = {1, 2};
    static const uint32_t lengths[] = {2};
    static const float biases[] = {1, 1};
    static const struct sampling moved[] = {
        {.top_p = 1, .repetition_penalty = 1.1f},
        {.top_p = 1, .presence_penalty = 0.1f},
        {.top_p = 1, .frequency_penalty = -0.1f},
        {.top_p = 1, .biased = {ids, 2}, .biases = biases},
        {.top_p = 1, .allowed = {ids, 2}},
        {.top_p = 1, .banned = {ids, 2}, .banned_lengths = lengths, .banned_count = 1},
        {.top_p = 1, .min_tokens = 5, .ends = {{ids, 1}}},
        {.top_p = 1, .min_tokens = 5, .ends = {{0}, {ids, 1}}},
    };
    for (size_t i = 0; i < ARRAY_COUNT(moved); i++)
        cr_assert_not(sampling_needs_best_only(&moved[i], 4), "row %zu", i);
    const struct sampling late = {.top_p = 1, .min_tokens = 5, .ends = {{ids, 1}}};
    cr_assert(sampling_needs_best_only(&late, 5), "the minimum is reached");
    const struct sampling endless = {.top_p = 1, .min_tokens = 5, .repetition_penalty = 1};
    cr_assert(sampling_needs_best_only(&endless, 0), "nothing would end the answer");
}

Test(sampler_adjust, penalties_outside_their_bounds_are_invalid)
{
    static const struct sampling wrong[] = {
        {.top_p = 1, .repetition_penalty = -0.1f},
        {.top_p = 1, .repetition_penalty = __builtin_inff()},
        {.top_p = 1, .repetition_penalty = __builtin_nanf("")},
        {.top_p = 1, .presence_penalty = __builtin_inff()},
        {.top_p = 1, .frequency_penalty = __builtin_nanf("")},
    };
    const float logits[V] = {0};
    const struct sampler_at at = {0};
    struct sampled sampled = {.id = -7};
    struct sampler *sampler = sampler_create(V);
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        cr_assert_eq(sampler_pick(sampler, &wrong[i], logits, &at, &sampled), STATUS_INVALID);
        cr_assert_eq(sampled.id, -7);
    }
    sampler_destroy(sampler);
}

/* A mask that allows everything changes nothing, and one that does not never lets another id by. */
Test(sampler_adjust, masks_take_ids_and_nothing_else)
{
    enum { WIDE = 1000, MASKED = 300 };
    static float logits[WIDE];
    static uint32_t every[(WIDE + 31) / 32], some[(WIDE + 31) / 32];
    struct random random;
    random_init(&random, 23);
    struct sampler *sampler = sampler_create(WIDE);
    memset(every, 0xff, sizeof every);
    for (uint32_t i = 0; i < WIDE; i++)
        logits[i] = between(&random, -2, 2);
    for (uint32_t i = 0; i < MASKED; i++) {
        const struct sampling sampling = {.temperature = (float)(i % 3) / 2,
                                          .top_p = i % 2 ? 0.9f : 1.0f,
                                          .top_k = i % 5 ? 0 : 40,
                                          .seed = i,
                                          .logprobs = 1};
        struct sampler_at at = {.position = i};
        struct sampled bare, masked;
        cr_assert_eq(sampler_pick(sampler, &sampling, logits, &at, &bare), STATUS_OK);
        at.mask = every;
        cr_assert_eq(sampler_pick(sampler, &sampling, logits, &at, &masked), STATUS_OK);
        cr_assert(memcmp(&bare, &masked, sizeof bare) == 0);
        for (uint32_t k = 0; k < ARRAY_COUNT(some); k++)
            some[k] = random_below(&random, 8) == 0 ? 1u << random_below(&random, 32) : 0;
        some[i % 31] |= 1;
        at.mask = some;
        cr_assert_eq(sampler_pick(sampler, &sampling, logits, &at, &masked), STATUS_OK);
        cr_assert(some[masked.id / 32] >> (masked.id % 32) & 1);
    }
    memset(some, 0, sizeof some);
    const struct sampling greedy = {.top_p = 1.0f};
    const struct sampler_at nothing = {.mask = some};
    struct sampled sampled;
    cr_assert_eq(sampler_pick(sampler, &greedy, logits, &nothing, &sampled), STATUS_NOT_FOUND);
    sampler_destroy(sampler);
}
