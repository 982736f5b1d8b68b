/* What the sampler's files share. */
#ifndef BATON_MODEL_SAMPLER_INTERNAL_H
#define BATON_MODEL_SAMPLER_INTERNAL_H

#include "model/sampler.h"

struct candidate {
    float logit;
    int32_t id;
};

struct sampler {
    uint32_t vocab_count;
    double *weights;              /* [V] */
    struct candidate *candidates; /* [V] */
    float *adjusted;              /* [V] */
    uint32_t *seen;               /* [V] all zero between two calls */
};

/* weights_out[i] = exp(logits[i] - the largest of them), and their sum, which is NaN where a logit
 * is not finite: the same bits on every machine. */
double sampler_weigh(const float *logits, uint32_t count, double *weights_out);
/* Whether any logit may differ from what the model gave, with `written` tokens of the answer
 * there. */
bool sampling_adjusts(const struct sampling *sampling, uint32_t written);
/* The logits that are drawn from: biased, penalised, -inf where an id must not be picked. Memory of
 * the sampler, valid until the next call. */
const float *sampler_adjust(struct sampler *sampler, const struct sampling *sampling,
                            const float *logits, const struct sampler_at *at);

#endif
