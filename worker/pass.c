#include "worker/pass.h"

#include "base/check.h"

enum status pass_pick(const struct pass_rows *rows, uint32_t row, const struct job *job,
                      const struct answer_mask *mask, struct sampler *sampler, uint32_t choice,
                      uint32_t position, struct sampled *out)
{
    if (mask->status == STATUS_LIMIT || mask->status == STATUS_NOT_FOUND)
        return STATUS_UNSUPPORTED;
    if (mask->status != STATUS_OK)
        return mask->status;
    if (rows->best != NULL)
        return sampler_pick_best(rows->best[row].id, rows->best[row].logit, out);
    const struct sampler_at at = {.choice = choice,
                                  .position = position,
                                  .prompt_count = job->prompt_count,
                                  .tokens = job->tokens,
                                  .mask = mask->bits,
                                  .must_end = mask->must_end};
    const enum status status =
        sampler_pick(sampler, &job->sampling, rows->logits + row * rows->vocab_count, &at, out);
    return status == STATUS_NOT_FOUND ? STATUS_UNSUPPORTED : status;
}

bool pass_scores(const struct job *job, uint32_t position)
{
    return job->scores > 0 && position + 1 < job->prompt_count;
}

enum status pass_score(const struct pass_rows *rows, uint32_t row, const struct job *job,
                       struct sampler *sampler, uint32_t position, struct sampled *out)
{
    CHECK(rows->logits != NULL && pass_scores(job, position));
    return sampler_score(sampler, rows->logits + row * rows->vocab_count, job->tokens[position + 1],
                         job->scores - 1, out);
}

const char *pass_sentence(enum status status, const struct answer_mask *mask)
{
    if (mask->status == STATUS_LIMIT)
        return mask->limit;
    if (mask->status == STATUS_CORRUPT)
        return "what is written so far is not what its grammar asks for";
    return status == STATUS_UNSUPPORTED
               ? "the request's own rules (logit_bias, allowed_token_ids, bad_words, min_tokens, "
                 "stop_token_ids, the grammar of the answer) forbid every one"
               : status_sentence(status);
}
