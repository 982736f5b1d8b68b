#include "ops/baton/run_generate.h"

#include <inttypes.h>

#include "base/check.h"
#include "base/clock.h"

static bool is_eos(const struct text *text, int32_t id)
{
    const struct text_info *info = text_info(text);
    for (uint32_t i = 0; i < info->eos_count; i++) {
        if (info->eos_ids[i] == id)
            return true;
    }
    return false;
}

static enum status pick(struct sampler *sampler, const struct sampling *sampling,
                        const struct sequence *sequence, uint32_t prompt_count, const float *logits,
                        int32_t *id_out, struct error *error)
{
    const struct sampler_at at = {
        .position = sequence->position, .prompt_count = prompt_count, .tokens = sequence->tokens};
    struct sampled sampled;
    const enum status status = sampler_pick(sampler, sampling, logits, &at, &sampled);
    if (status != STATUS_OK)
        return error_set(error, status, "no token can be picked at position %" PRIu32 ": %s",
                         at.position, status_sentence(status));
    *id_out = sampled.id;
    return STATUS_OK;
}

/* Picks and feeds until something ends it. */
static enum status decode(struct sequence *sequence, struct sampler *sampler,
                          const struct generation *generation, const float *logits,
                          struct generated *out, struct error *error)
{
    const uint32_t prompt_count = sequence->position;
    struct sampling sampling = generation->sampling;
    sampling.ends[0] = (struct sampling_ids){0};
    if (generation->stop_at_eos) { /* a session without a text has no end */
        const struct text_info *info = text_info(sequence->session->text);
        sampling.ends[0] = (struct sampling_ids){.ids = info->eos_ids, .count = info->eos_count};
    }
    out->end = END_LENGTH;
    while (out->token_count < generation->max_tokens) {
        int32_t id = 0;
        TRY(pick(sampler, &sampling, sequence, prompt_count, logits, &id, error));
        if (out->first_token_ns == 0)
            out->first_token_ns = clock_now_ns(clock_monotonic());
        if (generation->stop_at_eos && is_eos(sequence->session->text, id)) {
            out->end = END_EOS;
            break;
        }
        out->token_count++;
        if (!generation->on_token(generation->arg, id) ||
            (generation->interrupted != NULL && generation->interrupted(generation->arg))) {
            out->end = END_STOPPED;
            break;
        }
        if (out->token_count < generation->max_tokens)
            TRY(sequence_feed(sequence, &id, 1, NULL, &logits, error));
    }
    return STATUS_OK;
}

enum status sequence_generate(struct sequence *sequence, const float *logits,
                              const struct generation *generation, struct generated *out,
                              struct error *error)
{
    struct generated generated = {0};
    struct sampler *sampler = sampler_create(model_info(sequence->session->model)->token_count);
    const enum status status = decode(sequence, sampler, generation, logits, &generated, error);
    sampler_destroy(sampler);
    if (status != STATUS_OK)
        return status;
    generated.decode_ns = clock_now_ns(clock_monotonic()) - generated.first_token_ns;
    *out = generated;
    return STATUS_OK;
}

enum status generate(struct session *session, const int32_t *prompt, uint32_t prompt_count,
                     const struct generation *generation, struct generated *out,
                     struct error *error)
{
    const uint32_t context = model_info(session->model)->context_tokens;
    CHECK(prompt_count > 0 && generation->max_tokens > 0);
    if (prompt_count >= context)
        return error_set(error, STATUS_LIMIT,
                         "the prompt has %" PRIu32 " tokens and the context %" PRIu32
                         ": no room is left for an answer",
                         prompt_count, context);
    struct generation bounded = *generation;
    if (bounded.max_tokens > context - prompt_count)
        bounded.max_tokens = context - prompt_count;
    const struct feed_hooks hooks = {.interrupted = generation->interrupted,
                                     .arg = generation->arg};
    const uint64_t start = clock_now_ns(clock_monotonic());
    struct sequence sequence;
    const float *logits = NULL;
    TRY(sequence_open(session, prompt_count + bounded.max_tokens, &sequence, error));
    enum status status = sequence_feed(&sequence, prompt, prompt_count, &hooks, &logits, error);
    if (status == STATUS_OK)
        status = sequence_generate(&sequence, logits, &bounded, out, error);
    if (status == STATUS_OK)
        out->first_token_ns -= start;
    sequence_close(&sequence);
    return status;
}
