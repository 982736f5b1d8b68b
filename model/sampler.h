/* From logits to a token. Pure: the result depends on the logits, the parameters and the counter
 * (seed, choice, position) only, never on the batch, the node or the call order. */
#ifndef BATON_MODEL_SAMPLER_H
#define BATON_MODEL_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { SAMPLER_TOP_MAX = 20 };

struct sampling {
    float temperature; /* below 1e-5: greedy */
    float top_p;       /* (0, 1] */
    float min_p;       /* [0, 1] */
    int32_t top_k;     /* 0 or -1: off */
    uint64_t seed;
    uint32_t top_logprobs; /* how many alternatives to report, <= SAMPLER_TOP_MAX */
    uint32_t logprobs;     /* 0 or 1: report log-probabilities at all */
};

struct sampled {
    int32_t id;
    float logprob; /* natural log, of the distribution before temperature and filters */
    uint32_t top_count;
    int32_t top_ids[SAMPLER_TOP_MAX];
    float top_logprobs[SAMPLER_TOP_MAX];
};

struct sampler; /* scratch for one vocabulary size; one thread at a time */

/* vocab_count: ids that may be picked, model_info.token_count as a rule (a head may have more rows
 * than the tokenizer has ids; those are never picked). Aborts without memory: start-up only. */
struct sampler *sampler_create(uint32_t vocab_count);
void sampler_destroy(struct sampler *sampler);
/* logits: [vocab_count]. position: absolute position of the token that is picked, so the first
 * token of the answer to a prompt of n tokens is picked at n.
 * Order: temperature, top-k, top-p (of what top-k left), min-p (against the likeliest), then one
 * uniform draw at (seed, choice, position). Ties go to the lower id. CORRUPT when a logit is NaN or
 * +inf or all are -inf; INVALID when a parameter is outside the bounds above. *out is set on
 * STATUS_OK only. */
enum status sampler_pick(struct sampler *sampler, const struct sampling *sampling,
                         const float *logits, uint32_t choice, uint32_t position,
                         struct sampled *out);

/* Whether the largest logit is all that sampler_pick would look at: greedy, and no
 * log-probabilities. */
bool sampling_needs_best_only(const struct sampling *sampling);
/* What sampler_pick makes of a row whose largest logit is known. CORRUPT when it is no number or
 * infinite. *out is set on STATUS_OK only. */
enum status sampler_pick_best(int32_t id, float logit, struct sampled *out);

#endif
