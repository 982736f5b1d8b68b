/* What a request does to the logits before anything is drawn. Each step is linear in the vocabulary
 * or in the tokens so far; what was written is counted anew at every position, so that nothing has
 * to be carried along with a request. */
#include <float.h>
#include <math.h>

#include "base/bytes.h"
#include "base/check.h"
#include "model/sampler_internal.h"

/* An id that occurs at all has this bit; below it is how often it occurs in the answer. */
static const uint32_t seen_bit = 1u << 31;

static bool repetition_counts(const struct sampling *sampling)
{
    return sampling->repetition_penalty != 0.0f && sampling->repetition_penalty != 1.0f;
}

static bool penalises(const struct sampling *sampling)
{
    return repetition_counts(sampling) || sampling->presence_penalty != 0.0f ||
           sampling->frequency_penalty != 0.0f;
}

static bool ends_are_early(const struct sampling *sampling, uint32_t written)
{
    return written < sampling->min_tokens &&
           (sampling->ends[0].count > 0 || sampling->ends[1].count > 0);
}

bool sampling_adjusts(const struct sampling *sampling, uint32_t written)
{
    return penalises(sampling) || sampling->biased.count > 0 || sampling->allowed.count > 0 ||
           sampling->banned_count > 0 || ends_are_early(sampling, written);
}

static bool can_pick(const struct sampler *sampler, int32_t id)
{
    return id >= 0 && (uint32_t)id < sampler->vocab_count;
}

/* A finite logit stays finite: -inf says that an id must not be picked. */
static float saturated(double logit)
{
    const double limit = (double)FLT_MAX;
    return (float)(logit > limit ? limit : logit < -limit ? -limit : logit);
}

static void copy_allowed(struct sampler *sampler, const struct sampling_ids *allowed,
                         const float *logits)
{
    if (allowed->count == 0) {
        memcpy(sampler->adjusted, logits, sampler->vocab_count * sizeof *logits);
        return;
    }
    for (uint32_t i = 0; i < sampler->vocab_count; i++)
        sampler->adjusted[i] = -INFINITY;
    for (uint32_t i = 0; i < allowed->count; i++) {
        const int32_t id = allowed->ids[i];
        if (can_pick(sampler, id))
            sampler->adjusted[id] = logits[id];
    }
}

/* Takes what a grammar does not allow here. */
static void mask_ids(struct sampler *sampler, const uint32_t *mask)
{
    const uint32_t count = sampler->vocab_count;
    for (uint32_t start = 0; start < count; start += 32) {
        const uint32_t word = mask[start / 32];
        const uint32_t end = count - start < 32 ? count : start + 32;
        if (word == UINT32_MAX)
            continue;
        for (uint32_t i = start; i < end; i++)
            sampler->adjusted[i] = word >> (i - start) & 1 ? sampler->adjusted[i] : -INFINITY;
    }
}

static void add_biases(struct sampler *sampler, const struct sampling *sampling)
{
    for (uint32_t i = 0; i < sampling->biased.count; i++) {
        const int32_t id = sampling->biased.ids[i];
        if (!can_pick(sampler, id) || sampler->adjusted[id] == -INFINITY)
            continue;
        sampler->adjusted[id] =
            saturated((double)sampler->adjusted[id] + (double)sampling->biases[i]);
    }
}

static float penalised(const struct sampling *sampling, float given, uint32_t seen)
{
    if (given == -INFINITY)
        return given;
    const uint32_t times = seen & ~seen_bit;
    double logit = (double)given;
    if (repetition_counts(sampling))
        logit = logit > 0.0 ? logit / (double)sampling->repetition_penalty
                            : logit * (double)sampling->repetition_penalty;
    if (times > 0)
        logit -= (double)sampling->frequency_penalty * times + (double)sampling->presence_penalty;
    return saturated(logit);
}

/* Two walks over the tokens: the first counts, the second changes each id once and leaves the
 * counts at zero. */
static void add_penalties(struct sampler *sampler, const struct sampling *sampling,
                          const struct sampler_at *at)
{
    const uint32_t first = repetition_counts(sampling) ? 0 : at->prompt_count;
    for (uint32_t i = first; i < at->position; i++) {
        const int32_t id = at->tokens[i];
        if (can_pick(sampler, id))
            sampler->seen[id] = (sampler->seen[id] | seen_bit) + (i >= at->prompt_count ? 1 : 0);
    }
    for (uint32_t i = first; i < at->position; i++) {
        const int32_t id = at->tokens[i];
        if (!can_pick(sampler, id) || sampler->seen[id] == 0)
            continue;
        sampler->adjusted[id] = penalised(sampling, sampler->adjusted[id], sampler->seen[id]);
        sampler->seen[id] = 0;
    }
}

static void forbid(struct sampler *sampler, int32_t id)
{
    if (can_pick(sampler, id))
        sampler->adjusted[id] = -INFINITY;
}

/* The last id of every sequence whose other ids are the last ones of the answer. */
static void forbid_banned(struct sampler *sampler, const struct sampling *sampling,
                          const struct sampler_at *at)
{
    const uint32_t written = at->position - at->prompt_count;
    const int32_t *ids = sampling->banned.ids;
    for (uint32_t i = 0; i < sampling->banned_count; i++) {
        const uint32_t before = sampling->banned_lengths[i] - 1;
        if (before == 0 || (before <= written && memcmp(at->tokens + at->position - before, ids,
                                                        before * sizeof *ids) == 0))
            forbid(sampler, ids[before]);
        ids += before + 1;
    }
    CHECK(ids == sampling->banned.ids + sampling->banned.count);
}

static bool looks_back(const struct sampling *sampling)
{
    return penalises(sampling) || sampling->banned.count > sampling->banned_count;
}

const float *sampler_adjust(struct sampler *sampler, const struct sampling *sampling,
                            const float *logits, const struct sampler_at *at)
{
    CHECK(at->tokens != NULL || at->position == 0 || !looks_back(sampling));
    copy_allowed(sampler, &sampling->allowed, logits);
    if (at->mask != NULL)
        mask_ids(sampler, at->mask);
    add_biases(sampler, sampling);
    if (penalises(sampling))
        add_penalties(sampler, sampling, at);
    forbid_banned(sampler, sampling, at);
    const bool early = !at->must_end && ends_are_early(sampling, at->position - at->prompt_count);
    for (uint32_t list = 0; list < 2 && early; list++) {
        for (uint32_t i = 0; i < sampling->ends[list].count; i++)
            forbid(sampler, sampling->ends[list].ids[i]);
    }
    return sampler->adjusted;
}
