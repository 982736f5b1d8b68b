/* A job as a worker keeps it: checked, copied out of the message, with its stop rules.
 *
 * Nouns: `struct job_limits`, what this worker can serve, and `struct job`, one request's
 * parameters and tokens. Everything is pure; the tokens live in memory of the request table. */
#ifndef BATON_WORKER_JOB_H
#define BATON_WORKER_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "model/sampler.h"
#include "transfer/wire.h"

struct grammar_program;

enum {
    JOB_STOP_IDS_MAX = 128,
    JOB_CHOICES_MAX = 16,
    JOB_BIASES_MAX = 1024,
    JOB_ALLOWED_IDS_MAX = 1024,
    JOB_BANNED_IDS_MAX = 2048, /* of all banned sequences together */
    JOB_BANNED_MAX = 256,
    JOB_TRACE_BYTES = 33
};

struct job_limits {
    uint32_t vocab_count;    /* ids are below this */
    uint32_t context_tokens; /* prompt and answer together */
    uint32_t page_tokens;
    uint32_t pages_total; /* of the whole pool */
    const int32_t *eos_ids;
    uint32_t eos_count;
};

struct job {
    uint32_t prompt_count, emitted_count;
    uint32_t given_count; /* prompt_count + emitted_count: tokens that came with the job */
    uint32_t end;         /* tokens the sequence may have at most: max_tokens or the context */
    uint32_t min_tokens;
    bool ignore_eos;
    uint32_t stop_count;
    int32_t stop_ids[JOB_STOP_IDS_MAX];
    uint32_t choice;
    uint32_t choices;       /* >= 1: from choice on, each with a first token from the same row */
    uint32_t scores;        /* of the prompt's own tokens: 0, or 1 and alternatives of each */
    bool end_logprobs;      /* those of the id that ends the answer are wanted as well */
    uint64_t cache_salt;    /* of the prefix index; PREFIX_NO_SALT is 0 as well */
    uint32_t cached_tokens; /* of those that came with it, found and not computed; control's */
    char trace[JOB_TRACE_BYTES]; /* of its trace context, for the log; empty: none */
    const int32_t *eos_ids;      /* [eos_count] the model's own ends, ignored or not */
    uint32_t eos_count;
    struct grammar_program *grammar; /* what the answer has to be, held by the node; NULL: free */
    int32_t *tokens; /* [context_tokens] the sequence so far; memory of the request table */
    struct sampling sampling; /* its lists are those below: a job is not copied */
    int32_t bias_ids[JOB_BIASES_MAX];
    float biases[JOB_BIASES_MAX];
    int32_t allowed_ids[JOB_ALLOWED_IDS_MAX];
    int32_t banned_ids[JOB_BANNED_IDS_MAX];
    uint32_t banned_lengths[JOB_BANNED_MAX];
};

/* How many answers it asks for. */
static inline uint32_t job_choices(const struct msg_job *message)
{
    return message->choices > 1 ? message->choices : 1;
}

/* Everything that can be wrong with a job from outside, in one sentence with value and limit. */
enum status job_check(const struct msg_job *message, const struct job_limits *limits,
                      struct error *error);
/* Copies a checked job; `tokens` has room for limits->context_tokens ids and goes into *out, which
 * also points at the eos_ids of limits. Its grammar is NULL: the node's to set. */
void job_copy(const struct msg_job *message, const struct job_limits *limits, int32_t *tokens,
              struct job *out);

/* Whether the token at `position` needs no more of a row of logits than its largest. */
bool job_needs_best_only(const struct job *job, uint32_t position);

/* Pages that hold `tokens` tokens. */
uint32_t job_pages(uint32_t tokens, uint32_t page_tokens);
/* Pages for everything the sequence may come to: all tokens but the last one are fed. */
uint32_t job_pages_at_end(const struct job *job, uint32_t page_tokens);

/* Does `id`, picked at `position`, end the sequence? FINISH_STOP: it is an EOS or stop id and not
 * part of the answer. FINISH_LENGTH: it is the last token of the answer. Below min_tokens such an
 * id is not picked (struct sampling), and would be an ordinary token; ignore_eos leaves the job's
 * own stop ids in force. Where there is a grammar it alone says where such an id may be picked, and
 * any ends the answer. */
enum finish_code job_finish(const struct job *job, const struct job_limits *limits, int32_t id,
                            uint32_t position);

#endif
