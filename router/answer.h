/* An answer in the making: tokens in, text that is free to go and its log-probabilities out.
 *
 * Joins incremental detokenising and stop strings. The same tokens give the same text whether it is
 * taken piece by piece or at the end. Log-probabilities leave together with the text they belong
 * to. One thread at a time. */
#ifndef BATON_ROUTER_ANSWER_H
#define BATON_ROUTER_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "router/openai_request.h"

struct answer_token {
    int32_t id;
    float logprob;
    uint32_t top_count;
    int32_t top_ids[OPENAI_TOP_LOGPROBS_MAX];
    float top_logprobs[OPENAI_TOP_LOGPROBS_MAX];
    size_t start, end; /* bytes of the answer; end is known once `closed` */
    bool closed;       /* none of its bytes waits for the rest of a character */
};

struct answer {
    const struct text *text;
    const struct openai_request *request; /* outlives the answer */
    struct text_stream stream;
    struct stop_match match;
    struct buffer fresh; /* scratch: characters of the latest token */
    size_t produced;     /* bytes given to the stop match so far */
    uint32_t token_count;
    bool begun, ended; /* ended: by an id, which was pushed */
    bool keeps_tokens; /* the request asked for log-probabilities or ids */

    struct buffer out;           /* free to go, not taken yet */
    size_t out_offset;           /* where out begins in the whole answer */
    struct answer_token *tokens; /* not taken yet; only with keeps_tokens */
    size_t pending_count, capacity, ready_count;
};

/* An answer that echoes begins with that text, which it has with its first token or its end. */
void answer_init(struct answer *answer, const struct text *text,
                 const struct openai_request *request);
void answer_free(struct answer *answer);
/* logprob and tops are ignored unless the request asked. True when a stop string was met: the
 * answer is complete then and out holds its end. */
bool answer_push(struct answer *answer, int32_t id, float logprob, uint32_t top_count,
                 const int32_t *top_ids, const float *top_logprobs);
/* The id that ends it gives no text, but is told of like a token: at most one, behind the others.
 */
void answer_push_end(struct answer *answer, int32_t id, float logprob, uint32_t top_count,
                     const int32_t *top_ids, const float *top_logprobs);
/* No more tokens: all that was held back comes out. True when that met a stop string. */
bool answer_finish(struct answer *answer);
/* What is in out, and the first ready_count tokens, have been sent; or those tokens are noted. */
void answer_take(struct answer *answer);
void answer_take_tokens(struct answer *answer);

#endif
