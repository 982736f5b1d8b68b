/* Generation in one process: feed the prompt, then pick and feed token by token. */
#ifndef BATON_OPS_BATON_RUN_GENERATE_H
#define BATON_OPS_BATON_RUN_GENERATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "model/sampler.h"
#include "ops/baton/run_session.h"

struct grammar_program;

struct generation {
    uint32_t max_tokens; /* > 0; what passes the room of the context is cut */
    struct sampling sampling;
    bool stop_at_eos;                /* at the model's own end tokens, which are not handed out */
    struct grammar_program *grammar; /* what the answer has to be; NULL: free */
    /* Called with each token; false ends the generation. */
    bool (*on_token)(void *arg, int32_t id);
    bool (*interrupted)(void *arg); /* asked between tokens and chunks; may be NULL */
    void *arg;
};

enum generation_end { END_EOS, END_LENGTH, END_STOPPED };

struct generated {
    uint32_t token_count; /* handed out */
    enum generation_end end;
    uint64_t first_token_ns; /* from the start to the first pick: the whole prefill */
    uint64_t decode_ns;      /* from there to the end */
};

/* Answers a prompt of prompt_count >= 1 tokens. LIMIT when the prompt leaves no room for a token;
 * CANCELED when interrupted in the prompt. */
enum status generate(struct run_session *session, const int32_t *prompt, uint32_t prompt_count,
                     const struct generation *generation, struct generated *out,
                     struct error *error);

/* The part after the prompt: `logits` are those of the last token fed, and the sequence has pages
 * for max_tokens more. first_token_ns is the time of the first pick here. */
enum status sequence_generate(struct sequence *sequence, const float *logits,
                              const struct generation *generation, struct generated *out,
                              struct error *error);

#endif
