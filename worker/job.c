#include "worker/job.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "model/text/grammar/grammar.h"
#include "worker/job_log.h"

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
    if (m->choices > JOB_CHOICES_MAX)
        return error_set(error, STATUS_LIMIT, "%" PRIu32 " choices, the most are %d", m->choices,
                         JOB_CHOICES_MAX);
    if (m->choices > 1 && m->emitted_count > 0)
        return error_set(error, STATUS_INVALID,
                         "%" PRIu32 " choices cannot share %" PRIu32 " emitted tokens", m->choices,
                         m->emitted_count);
    if (m->attempt > UINT16_MAX || m->choice > UINT16_MAX - JOB_CHOICES_MAX)
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

static enum status check_draw(const struct msg_sampling *s, struct error *error)
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

static enum status check_penalties(const struct msg_sampling *s, struct error *error)
{
    static const float additive_max = 2;
    if (!isfinite(s->repetition_penalty) || s->repetition_penalty < 0)
        return error_set(error, STATUS_INVALID, "repetition_penalty %g is not a number from 0 up",
                         (double)s->repetition_penalty);
    if (!(fabsf(s->presence_penalty) <= additive_max))
        return error_set(error, STATUS_INVALID, "presence_penalty %g is not within -2 and 2",
                         (double)s->presence_penalty);
    if (!(fabsf(s->frequency_penalty) <= additive_max))
        return error_set(error, STATUS_INVALID, "frequency_penalty %g is not within -2 and 2",
                         (double)s->frequency_penalty);
    return STATUS_OK;
}

static enum status check_count(uint32_t count, uint32_t limit, const char *what,
                               struct error *error)
{
    if (count > limit)
        return error_set(error, STATUS_LIMIT, "%" PRIu32 " %s, the most are %" PRIu32, count, what,
                         limit);
    return STATUS_OK;
}

static enum status check_biases(const struct msg_sampling *s, uint32_t vocab_count,
                                struct error *error)
{
    static const float bias_max = 100;
    TRY(check_count(s->bias_ids.count, JOB_BIASES_MAX, "biased ids", error));
    TRY(check_ids(&s->bias_ids, "biased id", vocab_count, error));
    if (s->biases.count != s->bias_ids.count)
        return error_set(error, STATUS_INVALID, "%" PRIu32 " biases for %" PRIu32 " ids",
                         s->biases.count, s->bias_ids.count);
    for (uint32_t i = 0; i < s->biases.count; i++) {
        if (!(fabsf(s->biases.items[i]) <= bias_max))
            return error_set(error, STATUS_INVALID,
                             "bias %" PRIu32 " is %g, not within -100 and 100", i,
                             (double)s->biases.items[i]);
    }
    return STATUS_OK;
}

static enum status check_banned(const struct msg_sampling *s, uint32_t vocab_count,
                                struct error *error)
{
    TRY(check_count(s->banned_ids.count, JOB_BANNED_IDS_MAX, "banned ids", error));
    TRY(check_count(s->banned_lengths.count, JOB_BANNED_MAX, "banned sequences", error));
    TRY(check_ids(&s->banned_ids, "banned id", vocab_count, error));
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->banned_lengths.count; i++) {
        if (s->banned_lengths.items[i] == 0)
            return error_set(error, STATUS_INVALID, "banned sequence %" PRIu32 " is empty", i);
        sum += s->banned_lengths.items[i];
    }
    if (sum != s->banned_ids.count)
        return error_set(error, STATUS_INVALID,
                         "the banned sequences have %" PRIu64 " ids and %" PRIu32 " are there", sum,
                         s->banned_ids.count);
    return STATUS_OK;
}

static enum status check_sampling(const struct msg_sampling *s, uint32_t vocab_count,
                                  struct error *error)
{
    TRY(check_draw(s, error));
    TRY(check_penalties(s, error));
    TRY(check_biases(s, vocab_count, error));
    TRY(check_count(s->allowed_ids.count, JOB_ALLOWED_IDS_MAX, "allowed ids", error));
    TRY(check_ids(&s->allowed_ids, "allowed id", vocab_count, error));
    return check_banned(s, vocab_count, error);
}

static enum status check_grammar(const struct msg_job *m, struct error *error)
{
    TRY(check_count(m->grammar.bytes, GRAMMAR_SOURCE_BYTES_MAX, "bytes of a grammar", error));
    if (m->grammar_kind > GRAMMAR_STRUCTURE)
        return error_set(error, STATUS_INVALID,
                         "the grammar is of kind %" PRIu32 ", known are those up to %d",
                         m->grammar_kind, GRAMMAR_STRUCTURE);
    if (m->grammar_kind == 0 && m->grammar.bytes > 0)
        return error_set(error, STATUS_INVALID, "%" PRIu32 " bytes of a grammar of no kind",
                         m->grammar.bytes);
    return STATUS_OK;
}

enum status job_check(const struct msg_job *message, const struct job_limits *limits,
                      struct error *error)
{
    TRY(check_counts(message, limits, error));
    TRY(check_ids(&message->tokens, "token", limits->vocab_count, error));
    TRY(check_count(message->stop_ids.count, JOB_STOP_IDS_MAX, "stop ids", error));
    TRY(check_ids(&message->stop_ids, "stop id", limits->vocab_count, error));
    TRY(check_grammar(message, error));
    return check_sampling(&message->sampling, limits->vocab_count, error);
}

/* A list of the message into memory of the job. */
static struct sampling_ids copy_ids(const struct wire_i32s *from, int32_t *to)
{
    if (from->count > 0)
        memcpy(to, from->items, from->count * sizeof *to);
    return (struct sampling_ids){.ids = to, .count = from->count};
}

static void copy_sampling(const struct msg_job *message, const struct job_limits *limits,
                          struct job *out)
{
    const struct msg_sampling *s = &message->sampling;
    out->sampling = (struct sampling){
        .temperature = s->temperature,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .top_k = s->top_k,
        .seed = s->seed,
        .top_logprobs = s->top_logprobs,
        .logprobs = s->logprobs,
        .repetition_penalty = s->repetition_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .biased = copy_ids(&s->bias_ids, out->bias_ids),
        .biases = out->biases,
        .allowed = copy_ids(&s->allowed_ids, out->allowed_ids),
        .banned = copy_ids(&s->banned_ids, out->banned_ids),
        .banned_count = s->banned_lengths.count,
        .banned_lengths = out->banned_lengths,
        .min_tokens = message->min_tokens,
        .ends = {{.ids = limits->eos_ids, .count = out->ignore_eos ? 0 : limits->eos_count},
                 copy_ids(&message->stop_ids, out->stop_ids)},
    };
    if (s->biases.count > 0)
        memcpy(out->biases, s->biases.items, s->biases.count * sizeof *out->biases);
    if (s->banned_lengths.count > 0)
        memcpy(out->banned_lengths, s->banned_lengths.items,
               s->banned_lengths.count * sizeof *out->banned_lengths);
}

void job_copy(const struct msg_job *message, const struct job_limits *limits, int32_t *tokens,
              struct job *out)
{
    const uint64_t wanted = (uint64_t)message->prompt_count + message->max_tokens;
    CHECK(message->tokens.count < limits->context_tokens);
    CHECK(message->stop_ids.count <= JOB_STOP_IDS_MAX);
    out->prompt_count = message->prompt_count;
    out->emitted_count = message->emitted_count;
    out->given_count = message->tokens.count;
    out->cached_tokens = 0;
    out->cache_salt = message->cache_salt;
    out->scores = message->scores;
    out->end_logprobs = message->end_logprobs != 0;
    out->end = wanted < limits->context_tokens ? (uint32_t)wanted : limits->context_tokens;
    out->min_tokens = message->min_tokens;
    out->ignore_eos = message->ignore_eos != 0;
    out->stop_count = message->stop_ids.count;
    out->choice = message->choice;
    out->choices = job_choices(message);
    job_trace_read(message, out->trace);
    out->eos_ids = limits->eos_ids;
    out->eos_count = limits->eos_count;
    out->grammar = NULL;
    out->tokens = tokens;
    memcpy(tokens, message->tokens.items, out->given_count * sizeof *tokens);
    copy_sampling(message, limits, out);
}

bool job_needs_best_only(const struct job *job, uint32_t position)
{
    return job->grammar == NULL &&
           sampling_needs_best_only(&job->sampling, position - job->prompt_count);
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
    const bool bound = job->grammar != NULL;
    const bool stops =
        ((bound || !job->ignore_eos) && contains(limits->eos_ids, limits->eos_count, id)) ||
        contains(job->stop_ids, job->stop_count, id);
    if (stops && (bound || written >= job->min_tokens))
        return FINISH_STOP;
    return position + 1 >= job->end ? FINISH_LENGTH : FINISH_NONE;
}
