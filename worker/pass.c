#include "worker/pass.h"

enum status pass_pick(const struct pass_rows *rows, uint32_t row, const struct job *job,
                      struct sampler *sampler, uint32_t position, struct sampled *out)
{
    if (rows->best != NULL)
        return sampler_pick_best(rows->best[row].id, rows->best[row].logit, out);
    return sampler_pick(sampler, &job->sampling, rows->logits + row * rows->vocab_count,
                        job->choice, position, out);
}
