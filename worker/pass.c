#include "worker/pass.h"

enum status pass_pick(const struct pass_rows *rows, uint32_t row, const struct job *job,
                      struct sampler *sampler, uint32_t choice, uint32_t position,
                      struct sampled *out)
{
    if (rows->best != NULL)
        return sampler_pick_best(rows->best[row].id, rows->best[row].logit, out);
    const struct sampler_at at = {.choice = choice,
                                  .position = position,
                                  .prompt_count = job->prompt_count,
                                  .tokens = job->tokens};
    const enum status status =
        sampler_pick(sampler, &job->sampling, rows->logits + row * rows->vocab_count, &at, out);
    return status == STATUS_NOT_FOUND ? STATUS_UNSUPPORTED : status;
}

const char *pass_sentence(enum status status)
{
    return status == STATUS_UNSUPPORTED
               ? "the request's own rules (logit_bias, allowed_token_ids, bad_words, min_tokens) "
                 "forbid every one"
               : status_sentence(status);
}
