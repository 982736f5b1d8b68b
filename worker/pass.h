/* What a forward pass yields: where every sequence wants its likeliest token and no more, only that
 * of each row, else whole rows of logits. The tokens are the same either way. Engine thread. */
#ifndef BATON_WORKER_PASS_H
#define BATON_WORKER_PASS_H

#include <stddef.h>
#include <stdint.h>

#include "model/model.h"
#include "model/sampler.h"
#include "worker/answer_masks.h"
#include "worker/job.h"

/* One of logits and best is NULL, both where no sequence asked for a row. Valid until the next
 * pass. */
struct pass_rows {
    const float *logits; /* [rows][vocab_count] */
    const struct forward_best *best;
    size_t vocab_count;
};

/* The token of logit row `row`, at `position`, for one choice of a job whose tokens before it are
 * there; as sampler_pick, but UNSUPPORTED when the request leaves nothing to pick. mask: what its
 * grammar does, of the same position. */
enum status pass_pick(const struct pass_rows *rows, uint32_t row, const struct job *job,
                      const struct answer_mask *mask, struct sampler *sampler, uint32_t choice,
                      uint32_t position, struct sampled *out);
/* Rows of one pass that score prompts, beside the one that every sequence may have: of a prompt
 * that wants scores no more are computed in a pass, for all of them have logits. */
enum { PASS_SCORE_ROWS = 64 };
/* Whether a job's row at `position` is to tell how likely the token behind it was. */
bool pass_scores(const struct job *job, uint32_t position);
/* That, of logit row `row` at `position`. As sampler_score. */
enum status pass_score(const struct pass_rows *rows, uint32_t row, const struct job *job,
                       struct sampler *sampler, uint32_t position, struct sampled *out);

/* Why there is none. */
const char *pass_sentence(enum status status, const struct answer_mask *mask);

#endif
