#include "ops/baton/run_generate.h"

#include <inttypes.h>

#include "base/check.h"
#include "base/clock.h"
#include "worker/answer_masks.h"

static bool is_eos(const struct text *text, int32_t id)
{
    const struct text_info *info = text_info(text);
    for (uint32_t i = 0; i < info->eos_count; i++) {
        if (info->eos_ids[i] == id)
            return true;
    }
    return false;
}

/* What picks tokens: the scratch of one generation. */
struct picker {
    struct sampler *sampler;
    struct sampling sampling;
    uint32_t prompt_count;
    struct answer_masks *masks; /* NULL: the answer is free */
    struct job job;             /* what they look at */
};

static void picker_open(const struct sequence *sequence, const struct generation *generation,
                        struct picker *picker)
{
    const struct run_session *session = sequence->session;
    const struct text_info *info = generation->stop_at_eos ? text_info(session->text) : NULL;
    const uint32_t eos_count = info == NULL ? 0 : info->eos_count;
    *picker = (struct picker){
        .sampler = sampler_create(model_info(session->model)->token_count),
        .sampling = generation->sampling,
        .prompt_count = sequence->position,
        .job = {.prompt_count = sequence->position,
                .end = sequence->position + generation->max_tokens,
                .eos_ids = info == NULL ? NULL : info->eos_ids,
                .eos_count = eos_count,
                .tokens = sequence->tokens,
                .grammar = generation->grammar},
    };
    /* A session without a text has no end. */
    picker->sampling.ends[0] = (struct sampling_ids){.ids = picker->job.eos_ids, eos_count};
    if (generation->grammar != NULL)
        picker->masks = answer_masks_create(1, session->text);
}

static void picker_close(struct picker *picker)
{
    answer_masks_destroy(picker->masks);
    sampler_destroy(picker->sampler);
}

static enum status pick(struct picker *picker, const struct sequence *sequence, const float *logits,
                        int32_t *id_out, struct error *error)
{
    struct answer_mask mask = {0};
    if (picker->masks != NULL)
        mask = answer_masks_fill(picker->masks, 0, 0, &picker->job, sequence->position);
    const struct sampler_at at = {.position = sequence->position,
                                  .prompt_count = picker->prompt_count,
                                  .tokens = sequence->tokens,
                                  .mask = mask.bits,
                                  .must_end = mask.must_end};
    struct sampled sampled;
    enum status status = mask.status;
    if (status == STATUS_OK)
        status = sampler_pick(picker->sampler, &picker->sampling, logits, &at, &sampled);
    if (status != STATUS_OK)
        return error_set(error, status, "no token can be picked at position %" PRIu32 ": %s",
                         at.position, status_sentence(status));
    *id_out = sampled.id;
    return STATUS_OK;
}

/* Picks and feeds until something ends it. */
static enum status decode(struct sequence *sequence, struct picker *picker,
                          const struct generation *generation, const float *logits,
                          struct generated *out, struct error *error)
{
    out->end = END_LENGTH;
    while (out->token_count < generation->max_tokens) {
        int32_t id = 0;
        TRY(pick(picker, sequence, logits, &id, error));
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
    struct picker picker;
    picker_open(sequence, generation, &picker);
    const enum status status = decode(sequence, &picker, generation, logits, &generated, error);
    picker_close(&picker);
    if (status != STATUS_OK)
        return status;
    generated.decode_ns = clock_now_ns(clock_monotonic()) - generated.first_token_ns;
    *out = generated;
    return STATUS_OK;
}

enum status generate(struct run_session *session, const int32_t *prompt, uint32_t prompt_count,
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
