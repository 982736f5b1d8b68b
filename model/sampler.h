/* From logits to a token. Pure: the result depends on the logits, the parameters, the tokens before
 * and the counter (seed, choice, position) only, never on the batch, the node or the call order. So
 * a request that is placed again or computed anew goes on as it was. */
#ifndef BATON_MODEL_SAMPLER_H
#define BATON_MODEL_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { SAMPLER_TOP_MAX = 20 };

/* Ids of the vocabulary; those that no sampler picks (see sampler_create) say nothing. */
struct sampling_ids {
    const int32_t *ids; /* [count] */
    uint32_t count;
};

/* Lists are memory of the caller, which keeps them as long as it uses the struct. */
struct sampling {
    float temperature; /* below 1e-5: greedy */
    float top_p;       /* (0, 1] */
    float min_p;       /* [0, 1] */
    int32_t top_k;     /* 0 or -1: off */
    uint64_t seed;
    uint32_t top_logprobs; /* how many alternatives to report, <= SAMPLER_TOP_MAX */
    uint32_t logprobs;     /* 0 or 1: report log-probabilities at all */

    float repetition_penalty; /* > 0; 0 and 1: off. Of what stands in the prompt or the answer */
    float presence_penalty;   /* finite; of what stands in the answer */
    float frequency_penalty;  /* finite; of that, for each time */
    const float *biases;      /* [biased.count] finite, added to the logits of */
    struct sampling_ids biased;
    struct sampling_ids allowed; /* nothing else is picked; none: everything */
    /* Sequences that are not completed: banned_lengths[i] >= 1 ids each, one after the other. */
    struct sampling_ids banned;
    const uint32_t *banned_lengths; /* [banned_count], their sum is banned.count */
    uint32_t banned_count;
    uint32_t min_tokens;         /* of the answer; below it none of the ends is picked */
    struct sampling_ids ends[2]; /* the model's own, and the request's */
};

/* Where a token is picked, and what stands before it. */
struct sampler_at {
    uint32_t choice;
    uint32_t position;     /* absolute: the first token of an answer to n tokens is picked at n */
    uint32_t prompt_count; /* <= position */
    const int32_t *tokens; /* [position] prompt and answer so far; may be NULL where no penalty and
                            * no banned sequence of two ids and more looks at them */
    /* Of a grammar: id i may be picked where bit i % 32 of mask[i / 32] is set. NULL: any id. */
    const uint32_t *mask; /* [(vocab_count + 31) / 32] */
    bool must_end;        /* it leaves nothing but ends: they are picked below min_tokens, too */
};

struct sampled {
    int32_t id;
    float logprob; /* natural log, of the distribution before any adjustment, temperature and filter
                    */
    uint32_t top_count;
    int32_t top_ids[SAMPLER_TOP_MAX];
    float top_logprobs[SAMPLER_TOP_MAX];
    uint32_t rank; /* of sampler_score alone: 1 and how many ids are likelier */
};

struct sampler; /* scratch for one vocabulary size; one thread at a time */

/* vocab_count: ids that may be picked, model_info.token_count as a rule (a head may have more rows
 * than the tokenizer has ids; those are never picked). Aborts without memory: start-up only. */
struct sampler *sampler_create(uint32_t vocab_count);
void sampler_destroy(struct sampler *sampler);
/* logits: [vocab_count].
 * Order: what is not allowed, by list or mask, goes, biases, penalties (a positive logit is divided
 * by the repetition penalty, a negative one multiplied; the others are subtracted), banned
 * sequences and early ends go; temperature, top-k, top-p (of what top-k left), min-p (against the
 * likeliest), then one uniform draw at (seed, choice, position). Ties go to the lower id.
 * Log-probabilities are the model's own: of the logits as they came in. CORRUPT when a logit is NaN
 * or +inf or all are -inf; NOT_FOUND when nothing is left to pick; INVALID when a parameter is
 * outside the bounds above. *out is set on STATUS_OK only. */
enum status sampler_pick(struct sampler *sampler, const struct sampling *sampling,
                         const float *logits, const struct sampler_at *at, struct sampled *out);

/* How likely an id that stands there already was: log-probability, rank and alternatives, as
 * sampler_pick tells them of what it picks. logits: [vocab_count] and as many more as reach `id`,
 * padding of the head; top <= SAMPLER_TOP_MAX. CORRUPT as above. */
enum status sampler_score(struct sampler *sampler, const float *logits, int32_t id, uint32_t top,
                          struct sampled *out);

/* Whether the largest logit is all that sampler_pick would look at, with `written` tokens of the
 * answer there and no mask: greedy, nothing that moves or takes a logit, no log-probabilities. */
bool sampling_needs_best_only(const struct sampling *sampling, uint32_t written);
/* What sampler_pick makes of a row whose largest logit is known. CORRUPT when it is no number or
 * infinite. *out is set on STATUS_OK only. */
enum status sampler_pick_best(int32_t id, float logit, struct sampled *out);

#endif
