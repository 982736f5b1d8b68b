#include "worker/job.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/check.h"

static enum status check_counts(const struct msg_job *m, const struct job_limits *limits,
                                struct error *error)
{
    const uint64_t given = (uint64_t)m->prompt_count + m->emitted_count;
    if (m->prompt_count == 0)
        return error_set(error, STATUS_INVALID, "the prompt is empty");
    if (given != m->tokens.count)
        return error_set(error, STATUS_INVALID,
                         "the job says %" PRIu32 " prompt and %" PRIu32
                         " emitted tokens and brings %" PRIu32,
                         m->prompt_count, m->emitted_count, m->tokens.count);
    if (given >= limits->context_tokens)
        return error_set(error, STATUS_LIMIT,
                         "the prompt has %" PRIu64 " tokens and the context %" PRIu32
                         ": no room is left for an answer",
                         given, limits->context_tokens);
    if (m->max_tokens <= m->emitted_count)
        return error_set(error, STATUS_INVALID,
                         "max_tokens is %" PRIu32 " and %" PRIu32 " tokens are emitted already",
                         m->max_tokens, m->emitted_count);
    if (m->attempt > UINT16_MAX || m->choice > UINT16_MAX)
        return error_set(error, STATUS_LIMIT,
                         "attempt %" PRIu32 " or choice %" PRIu32 " is over %d", m->attempt,
                         m->choice, UINT16_MAX);
    return STATUS_OK;
}

static enum status check_ids(const struct wire_i32s *ids, const char *what, uint32_t vocab_count,
                             struct error *error)
{
    for (uint32_t i = 0; i < ids->count; i++) {
        if (ids->items[i] < 0 || (uint32_t)ids->items[i] >= vocab_count)
            return error_set(error, STATUS_INVALID,
                             "%s %" PRIu32 " is %" PRId32 ", the vocabulary has %" PRIu32 " ids",
                             what, i, ids->items[i], vocab_count);
    }
    return STATUS_OK;
}

static enum status check_sampling(const struct msg_sampling *s, struct error *error)
{
    if (!isfinite(s->temperature) || s->temperature < 0)
        return error_set(error, STATUS_INVALID, "temperature %g is not a number from 0 up",
                         (double)s->temperature);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return error_set(error, STATUS_INVALID, "top_p %g is not above 0 and at most 1",
                         (double)s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return error_set(error, STATUS_INVALID, "min_p %g is not within 0 and 1", (double)s->min_p);
    if (s->top_k < -1)
        return error_set(error, STATUS_INVALID, "top_k %" PRId32 " is below -1", s->top_k);
    if (s->top_logprobs > SAMPLER_TOP_MAX)
        return error_set(error, STATUS_LIMIT, "top_logprobs %" PRIu32 " is over %d",
                         s->top_logprobs, SAMPLER_TOP_MAX);
    return STATUS_OK;
}

enum status job_check(const struct msg_job *message, const struct job_limits *limits,
                      struct error *error)
{
    TRY(check_counts(message, limits, error));
    TRY(check_ids(&message->tokens, "token", limits->vocab_count, error));
    if (message->stop_ids.count > JOB_STOP_IDS_MAX)
        return error_set(error, STATUS_LIMIT, "%" PRIu32 " stop ids, the most are %d",
                         message->stop_ids.count, JOB_STOP_IDS_MAX);
    TRY(check_ids(&message->stop_ids, "stop id", limits->vocab_count, error));
    return check_sampling(&message->sampling, error);
}

void job_copy(const struct msg_job *message, const struct job_limits *limits, int32_t *tokens,
              struct job *out)
{
    const struct msg_sampling *s = &message->sampling;
    const uint64_t wanted = (uint64_t)message->prompt_count + message->max_tokens;
    *out = (struct job){
        .prompt_count = message->prompt_count,
        .emitted_count = message->emitted_count,
        .given_count = message->tokens.count,
        .end = wanted < limits->context_tokens ? (uint32_t)wanted : limits->context_tokens,
        .min_tokens = message->min_tokens,
        .ignore_eos = message->ignore_eos != 0,
        .stop_count = message->stop_ids.count,
        .sampling = {.temperature = s->temperature,
                     .top_p = s->top_p,
                     .min_p = s->min_p,
                     .top_k = s->top_k,
                     .seed = s->seed,
                     .top_logprobs = s->top_logprobs,
                     .logprobs = s->logprobs},
        .choice = message->choice,
        .tokens = tokens,
    };
    CHECK(out->given_count < limits->context_tokens && out->stop_count <= JOB_STOP_IDS_MAX);
    memcpy(tokens, message->tokens.items, out->given_count * sizeof *tokens);
    if (out->stop_count > 0)
        memcpy(out->stop_ids, message->stop_ids.items, out->stop_count * sizeof *out->stop_ids);
}

uint32_t job_pages(uint32_t tokens, uint32_t page_tokens)
{
    return tokens / page_tokens + (tokens % page_tokens != 0);
}

uint32_t job_pages_at_end(const struct job *job, uint32_t page_tokens)
{
    return job_pages(job->end - 1, page_tokens);
}

static bool contains(const int32_t *ids, uint32_t count, int32_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] == id)
            return true;
    }
    return false;
}

enum finish_code job_finish(const struct job *job, const struct job_limits *limits, int32_t id,
                            uint32_t position)
{
    const uint32_t written = position - job->prompt_count;
    const bool stops = (!job->ignore_eos && contains(limits->eos_ids, limits->eos_count, id)) ||
                       contains(job->stop_ids, job->stop_count, id);
    if (stops && written >= job->min_tokens)
        return FINISH_STOP;
    return position + 1 >= job->end ? FINISH_LENGTH : FINISH_NONE;
}
