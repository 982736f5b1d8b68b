/* Log-probabilities as JSON, in the making. Each entry is written when it is known: so the end of a
 * long answer is no long work, and choices over one prompt share what is written of that. Pure:
 * values in, bytes out; one thread at a time. */
#ifndef BATON_ROUTER_OPENAI_LOGPROBS_H
#define BATON_ROUTER_OPENAI_LOGPROBS_H

#include "base/json.h"
#include "router/answer.h"
#include "router/openai_request.h"

enum { OPENAI_LOGPROB_LISTS = 4 };

/* Of tokens that belong together. Zero-initialised is empty; it grows with what is added. */
struct openai_logprobs {
    uint32_t count; /* tokens */
    /* Members of arrays: of a completion tokens, token_logprobs, top_logprobs, text_offset; of a
     * chat, content. Empty where the request wants no log-probabilities. */
    struct buffer lists[OPENAI_LOGPROB_LISTS];
    struct buffer ids; /* likewise; empty where it wants none */
};
void openai_logprobs_free(struct openai_logprobs *logprobs);
void openai_logprobs_clear(struct openai_logprobs *logprobs); /* keeps the memory */
/* The tokens that the answer has ready; they are its no more. */
void openai_logprobs_take(struct openai_logprobs *logprobs, struct answer *answer);
/* As an object: first those of the prompt, if it is echoed, else NULL. */
void openai_logprobs_put(struct json_writer *writer, enum openai_endpoint endpoint,
                         const struct openai_logprobs *echoed,
                         const struct openai_logprobs *logprobs);

/* How likely the tokens of a prompt were. At most OPENAI_SCORES_MAX numbers come of a request. */
struct openai_scores {
    const struct openai_request *request; /* outlives it, like text */
    const struct text *text;
    struct openai_logprobs echoed; /* with echo_scores: as those of an answer */
    struct buffer beside;          /* with prompt_scores: members of prompt_logprobs */
    struct text_stream stream;     /* where tokens stand in the echo */
    struct buffer fresh;           /* scratch */
    size_t echo_bytes;
};
/* With the first token, which nothing was before. */
void openai_scores_init(struct openai_scores *scores, const struct text *text,
                        const struct openai_request *request);
void openai_scores_free(struct openai_scores *scores);
/* One of the others, in their order. top_ids, top_logprobs: [top_count], the likeliest first, up to
 * OPENAI_TOP_LOGPROBS_MAX. rank: 1, none was likelier. */
void openai_scores_add(struct openai_scores *scores, uint32_t position, float logprob,
                       uint32_t rank, uint32_t top_count, const int32_t *top_ids,
                       const float *top_logprobs);

/* A token where no bytes go along with its text; overwrites *out. What is not text is written as
 * bytes:\xE2\x80, so that two such tokens stay two. */
void openai_token_text(const struct text *text, int32_t id, struct buffer *out);

#endif
