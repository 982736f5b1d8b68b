/* The sampler. A draw is made from weights exp((logit - max) / temperature) in double precision.
 *
 * The filters keep a prefix of the order "higher logit first, then lower id". The prefix is found
 * by a weighted quickselect (linear, no sort of the vocabulary) and named by its last member; the
 * draw then walks the ids in ascending order, so that the same uniform number means the same token
 * whichever filters are on. The exponential is our own: a libm may round it in another way on
 * another host, and a token must not depend on the host.
 *
 * A pick goes over the whole vocabulary several times, for every sequence of a step: loops that do
 * the same to each element are written for vectors of any width, and sums run in eight lanes, in
 * one order on every host. */
#include "model/sampler.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/random.h"
#include "model/sampler_internal.h"

static const float greedy_below = 1e-5f;

enum { LANES = 8, BLOCK = 512, BEST_LANES = 32, SKIP = 64, BISECTIONS = 6 };

/* Compiled for several widths of vector, the widest that the CPU has is taken. No variant fuses or
 * reorders anything, so all give the same bits. ThreadSanitizer cannot start programs that have
 * such functions. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

struct sampler *sampler_create(uint32_t vocab_count)
{
    CHECK(vocab_count > 0 && vocab_count <= INT32_MAX);
    struct sampler *sampler = calloc(1, sizeof *sampler);
    CHECK(sampler != NULL);
    sampler->vocab_count = vocab_count;
    sampler->weights = malloc(vocab_count * sizeof *sampler->weights);
    sampler->candidates = malloc(vocab_count * sizeof *sampler->candidates);
    sampler->adjusted = malloc(vocab_count * sizeof *sampler->adjusted);
    sampler->seen = calloc(vocab_count, sizeof *sampler->seen);
    CHECK(sampler->weights != NULL && sampler->candidates != NULL);
    CHECK(sampler->adjusted != NULL && sampler->seen != NULL);
    return sampler;
}

void sampler_destroy(struct sampler *sampler)
{
    if (sampler == NULL)
        return;
    free(sampler->weights);
    free(sampler->candidates);
    free(sampler->adjusted);
    free(sampler->seen);
    free(sampler);
}

/* exp(x) for x <= 0 to about one unit in the last place: x = n ln2 + r, |r| <= ln2 / 2, and the
 * Taylor series of r up to r^13 (the next term is below 2^-57). Below -700 the result is 0, which
 * keeps 2^n a normal number and loses a chance of 1e-304. */
static inline __attribute__((always_inline)) double exp_of_negative(double x)
{
    const double clamped = x > -700.0 ? x : -700.0;
    /* Adding 1.5 * 2^52 rounds to an integer and leaves it in the low bits. */
    const double shifted = clamped * 0x1.71547652b82fep+0 + 0x1.8p52;
    const double n = shifted - 0x1.8p52;
    const double r = (clamped - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52; /* 2^n */
    double power;
    memcpy(&power, &bits, sizeof power);
    return x > -700.0 ? p * power : 0.0;
}

/* out[i] = exp((logits[i] - top) / temperature) */
WIDE static void fill_weights(const float *restrict logits, uint32_t count, double top,
                              double temperature, double *restrict out)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = exp_of_negative(((double)logits[i] - top) / temperature);
}

/* Every eighth element in a lane, then the lanes in order. */
WIDE static double sum_of(const double *values, uint32_t count)
{
    double lanes[LANES] = {0};
    const uint32_t whole = count - count % LANES;
    for (const double *at = values; at < values + whole; at += LANES) {
        for (size_t k = 0; k < LANES; k++)
            lanes[k] += at[k];
    }
    for (size_t k = 0; k < count % LANES; k++)
        lanes[k] += values[whole + k];
    double sum = 0.0;
    for (size_t k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

/* The largest of them, NaN left out, and whether all are numbers below infinity. */
WIDE static float largest_of(const float *logits, uint32_t count, bool *sound_out)
{
    float best[BEST_LANES];
    uint32_t unsound[BEST_LANES] = {0}, any = 0;
    for (size_t k = 0; k < BEST_LANES; k++)
        best[k] = -INFINITY;
    const uint32_t whole = count - count % BEST_LANES;
    for (const float *at = logits; at < logits + whole; at += BEST_LANES) {
        for (size_t k = 0; k < BEST_LANES; k++) {
            best[k] = at[k] > best[k] ? at[k] : best[k];
            unsound[k] |= !(at[k] < INFINITY);
        }
    }
    for (size_t k = 0; k < count % BEST_LANES; k++) {
        best[k] = logits[whole + k] > best[k] ? logits[whole + k] : best[k];
        unsound[k] |= !(logits[whole + k] < INFINITY);
    }
    float largest = best[0];
    for (size_t k = 0; k < BEST_LANES; k++) {
        largest = best[k] > largest ? best[k] : largest;
        any |= unsound[k];
    }
    *sound_out = any == 0;
    return largest;
}

double sampler_weigh(const float *logits, uint32_t count, double *weights_out)
{
    bool sound;
    const float top = largest_of(logits, count, &sound);
    fill_weights(logits, count, (double)top, 1.0, weights_out);
    return sound ? sum_of(weights_out, count) : (double)NAN;
}

static uint32_t block_at(uint32_t start, uint32_t count)
{
    return count - start < BLOCK ? count - start : BLOCK;
}

/* Largest logit, lowest id among equals; CORRUPT for what no model should give. */
static enum status find_best(const float *logits, uint32_t count, int32_t *best_out)
{
    bool sound;
    const float largest = largest_of(logits, count, &sound);
    if (!sound || largest == -INFINITY)
        return STATUS_CORRUPT;
    uint32_t best = 0;
    while (largest_of(logits + best, block_at(best, count), &sound) != largest)
        best += BLOCK;
    while (logits[best] != largest)
        best++;
    *best_out = (int32_t)best;
    return STATUS_OK;
}

static bool comes_before(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Moves pivot's predecessors in [low, high) to the front; returns the pivot's place. */
static size_t partition(struct candidate *c, size_t low, size_t high, size_t pivot)
{
    const struct candidate p = c[pivot];
    c[pivot] = c[high - 1];
    size_t place = low;
    for (size_t i = low; i + 1 < high; i++) {
        if (comes_before(c[i], p)) {
            const struct candidate moved = c[place];
            c[place++] = c[i];
            c[i] = moved;
        }
    }
    c[high - 1] = c[place];
    c[place] = p;
    return place;
}

/* Reorders c[0 .. count) so that its first n are the shortest prefix of the order whose sum of
 * weights (of ones when weights is NULL) reaches `limit`, with the prefix's last member at n - 1;
 * returns n. At least one is kept. The pivots are drawn from a fixed stream, so no order of logits
 * is a bad one and every host does the same. */
static size_t select_prefix(struct candidate *c, size_t count, const double *weights, double limit)
{
    size_t low = 0, high = count;
    double taken = 0.0;
    for (uint64_t round = 0; high - low > 1; round++) {
        const size_t span = high - low;
        const size_t place = partition(c, low, high, low + random_at(0, round, count) % span);
        double before = 0.0;
        for (size_t i = low; i < place; i++)
            before += weights == NULL ? 1.0 : weights[c[i].id];
        const double own = weights == NULL ? 1.0 : weights[c[place].id];
        if (place > low && taken + before >= limit) {
            high = place;
        } else if (taken + before + own >= limit) {
            return place + 1;
        } else {
            taken += before + own;
            low = place + 1;
            if (low == high) /* rounding left the whole a hair below the limit */
                return high;
        }
    }
    return low + 1;
}

/* A logit that at least `top_k` of them reach: the last of so many among the largest of each 64. */
static float top_k_floor(struct sampler *sampler, const float *logits, uint32_t top_k)
{
    struct candidate *c = sampler->candidates;
    const uint32_t count = sampler->vocab_count, blocks = (count + SKIP - 1) / SKIP;
    bool sound;
    if (top_k >= blocks)
        return -INFINITY;
    for (uint32_t i = 0; i < blocks; i++) {
        const uint32_t left = count - i * SKIP;
        c[i] = (struct candidate){
            largest_of(logits + (size_t)i * SKIP, left < SKIP ? left : SKIP, &sound), (int32_t)i};
    }
    return c[select_prefix(c, blocks, NULL, (double)top_k) - 1].logit;
}

/* What the weights below a bound are together. */
WIDE static double sum_below(const double *weights, uint32_t count, double bound)
{
    double lanes[LANES] = {0};
    const uint32_t whole = count - count % LANES;
    for (const double *at = weights; at < weights + whole; at += LANES) {
        for (size_t k = 0; k < LANES; k++)
            lanes[k] += at[k] < bound ? at[k] : 0.0;
    }
    for (size_t k = 0; k < count % LANES; k++)
        lanes[k] += weights[whole + k] < bound ? weights[whole + k] : 0.0;
    double sum = 0.0;
    for (size_t k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

/* Gathers the candidates of top-p: all but those whose weights, together, are less than what it
 * leaves out. The bound rises by bisection from where that is so for certain: `count` weights below
 * it are at most half of that. */
static size_t gather_by_weight(struct sampler *sampler, const struct sampling *sampling,
                               const float *logits, double total)
{
    const uint32_t count = sampler->vocab_count;
    const double *weights = sampler->weights;
    const double left_out = (1.0 - (double)sampling->top_p) * total;
    double low = left_out / (2.0 * count), high = 1.0;
    size_t kept = 0;
    for (int i = 0; i < BISECTIONS; i++) {
        const double middle = sqrt(low * high);
        *(sum_below(weights, count, middle) <= 0.999 * left_out ? &low : &high) = middle;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (weights[i] >= low)
            sampler->candidates[kept++] = (struct candidate){logits[i], (int32_t)i};
    }
    return kept;
}

/* Gathers those that reach the floor, few as a rule; returns how many. */
static size_t gather(struct sampler *sampler, const float *logits, float floor)
{
    const uint32_t count = sampler->vocab_count;
    size_t kept = 0;
    for (uint32_t start = 0; start < count; start += SKIP) {
        const uint32_t end = count - start < SKIP ? count : start + SKIP;
        bool sound;
        if (largest_of(logits + start, end - start, &sound) < floor)
            continue;
        for (uint32_t i = start; i < end; i++) {
            if (logits[i] >= floor)
                sampler->candidates[kept++] = (struct candidate){logits[i], (int32_t)i};
        }
    }
    return kept;
}

/* The last candidate that top-k and top-p keep; one of them is on. */
static struct candidate filter_edge(struct sampler *sampler, const struct sampling *sampling,
                                    const float *logits)
{
    struct candidate *c = sampler->candidates;
    const uint32_t count = sampler->vocab_count;
    const bool by_count = sampling->top_k > 0 && (uint32_t)sampling->top_k < count;
    double total = 0.0;
    size_t kept;
    if (by_count) {
        kept = gather(sampler, logits, top_k_floor(sampler, logits, (uint32_t)sampling->top_k));
        kept = select_prefix(c, kept, NULL, (double)sampling->top_k);
        for (size_t i = 0; i < kept; i++)
            total += sampler->weights[c[i].id];
    } else {
        total = sum_of(sampler->weights, count);
        kept = gather_by_weight(sampler, sampling, logits, total);
    }
    if (sampling->top_p < 1.0f)
        kept = select_prefix(c, kept, sampler->weights, (double)sampling->top_p * total);
    /* After a select the last kept one stands at kept - 1, unless rounding kept them all. */
    struct candidate edge = c[0];
    for (size_t i = 1; i < kept; i++)
        edge = comes_before(edge, c[i]) ? c[i] : edge;
    return edge;
}

/* Takes the weight of those behind the edge, and of those below min_p: the largest weight is 1, so
 * that is a bound on the weight itself. */
WIDE static void drop_weights(const float *restrict logits, uint32_t count, struct candidate edge,
                              double min_p, double *restrict weights)
{
    for (uint32_t i = 0; i < count; i++) {
        const bool kept =
            (logits[i] > edge.logit) | ((logits[i] == edge.logit) & ((int32_t)i <= edge.id));
        weights[i] = kept & (weights[i] >= min_p) ? weights[i] : 0.0;
    }
}

/* The id in whose share of the whole `unit` falls, in ascending order: first the block, by sums,
 * then the id in it. Where rounding leaves the end a hair short, the last one with a share. */
static int32_t walk(const double *weights, uint32_t count, double unit)
{
    double total = 0.0, sum = 0.0, before = 0.0;
    for (uint32_t start = 0; start < count; start += BLOCK)
        total += sum_of(weights + start, block_at(start, count));
    const double target = unit * total;
    uint32_t chosen = 0;
    for (uint32_t start = 0; start < count && sum <= target; start += BLOCK) {
        const double block = sum_of(weights + start, block_at(start, count));
        if (block == 0.0)
            continue;
        chosen = start;
        before = sum;
        sum += block;
    }
    uint32_t last = chosen;
    for (uint32_t i = chosen; i < chosen + block_at(chosen, count); i++) {
        if (weights[i] == 0.0)
            continue;
        before += weights[i];
        last = i;
        if (before > target)
            break;
    }
    return (int32_t)last;
}

static int32_t draw(struct sampler *sampler, const struct sampling *sampling, const float *logits,
                    int32_t best, double unit)
{
    const uint32_t count = sampler->vocab_count;
    double *weights = sampler->weights;
    const double top = (double)logits[best];
    const double temperature = (double)sampling->temperature;
    fill_weights(logits, count, top, temperature, weights);
    const bool prefix =
        sampling->top_p < 1.0f || (sampling->top_k > 0 && (uint32_t)sampling->top_k < count);
    if (prefix || sampling->min_p > 0.0f) {
        struct candidate edge = {-INFINITY, INT32_MAX};
        if (prefix)
            edge = filter_edge(sampler, sampling, logits);
        drop_weights(logits, count, edge, (double)sampling->min_p, weights);
    }
    return walk(weights, count, unit);
}

static void report_logprobs(struct sampler *sampler, const struct sampling *sampling,
                            const float *logits, int32_t best, struct sampled *out)
{
    const uint32_t count = sampler->vocab_count;
    const double top = (double)logits[best];
    fill_weights(logits, count, top, 1.0, sampler->weights);
    const double log_total = log(sum_of(sampler->weights, count));
    out->logprob = (float)((double)logits[out->id] - top - log_total);

    /* The best so far, in order; a later id goes behind its equals. */
    const uint32_t wanted = sampling->top_logprobs < count ? sampling->top_logprobs : count;
    uint32_t held = 0;
    for (uint32_t i = 0; i < count && wanted > 0; i++) {
        if (held == wanted && !(logits[i] > logits[out->top_ids[held - 1]]))
            continue;
        uint32_t at = held < wanted ? held++ : held - 1;
        for (; at > 0 && logits[i] > logits[out->top_ids[at - 1]]; at--)
            out->top_ids[at] = out->top_ids[at - 1];
        out->top_ids[at] = (int32_t)i;
    }
    out->top_count = held;
    for (uint32_t i = 0; i < held; i++)
        out->top_logprobs[i] = (float)((double)logits[out->top_ids[i]] - top - log_total);
}

static bool sampling_valid(const struct sampling *s)
{
    return s->temperature >= 0.0f && s->temperature < INFINITY && s->top_p > 0.0f &&
           s->top_p <= 1.0f && s->min_p >= 0.0f && s->min_p <= 1.0f && s->top_k >= -1 &&
           s->top_logprobs <= SAMPLER_TOP_MAX && s->repetition_penalty >= 0.0f &&
           s->repetition_penalty < INFINITY && isfinite(s->presence_penalty) &&
           isfinite(s->frequency_penalty);
}

enum status sampler_pick(struct sampler *sampler, const struct sampling *sampling,
                         const float *logits, const struct sampler_at *at, struct sampled *out)
{
    CHECK(at->prompt_count <= at->position);
    if (!sampling_valid(sampling))
        return STATUS_INVALID;
    struct sampled result = {0};
    int32_t likeliest, best;
    TRY(find_best(logits, sampler->vocab_count, &likeliest));
    const float *adjusted = logits;
    best = likeliest;
    if (at->mask != NULL || sampling_adjusts(sampling, at->position - at->prompt_count)) {
        adjusted = sampler_adjust(sampler, sampling, logits, at);
        if (find_best(adjusted, sampler->vocab_count, &best) != STATUS_OK)
            return STATUS_NOT_FOUND; /* no NaN can have come up, so all are -inf */
    }
    result.id = best;
    if (sampling->temperature >= greedy_below) {
        const double unit = random_unit_at(sampling->seed, at->position, at->choice);
        result.id = draw(sampler, sampling, adjusted, best, unit);
    }
    if (sampling->logprobs != 0)
        report_logprobs(sampler, sampling, logits, likeliest, &result);
    *out = result;
    return STATUS_OK;
}

enum status sampler_score(struct sampler *sampler, const float *logits, int32_t id, uint32_t top,
                          struct sampled *out)
{
    const struct sampling sampling = {.top_logprobs = top};
    struct sampled result = {.id = id, .rank = 1};
    int32_t best;
    CHECK(id >= 0 && top <= SAMPLER_TOP_MAX);
    TRY(find_best(logits, sampler->vocab_count, &best));
    report_logprobs(sampler, &sampling, logits, best, &result);
    for (uint32_t i = 0; i < sampler->vocab_count; i++)
        result.rank += logits[i] > logits[id];
    *out = result;
    return STATUS_OK;
}

bool sampling_needs_best_only(const struct sampling *sampling, uint32_t written)
{
    return sampling_valid(sampling) && sampling->temperature < greedy_below &&
           sampling->logprobs == 0 && !sampling_adjusts(sampling, written);
}

enum status sampler_pick_best(int32_t id, float logit, struct sampled *out)
{
    if (!isfinite(logit))
        return STATUS_CORRUPT;
    *out = (struct sampled){.id = id};
    return STATUS_OK;
}
