/* Bodies and stream chunks of the two completion endpoints. Pure: values in, bytes out. */
#ifndef BATON_ROUTER_OPENAI_RESPONSE_H
#define BATON_ROUTER_OPENAI_RESPONSE_H

#include "router/answer.h"
#include "router/openai_logprobs.h"
#include "router/openai_request.h"

struct openai_usage {
    uint32_t prompt_tokens, completion_tokens, cached_tokens;
};

/* Where the time went, in milliseconds; negative: not known. */
struct openai_timings {
    double queue_ms, prefill_ms, handoff_ms, handoff_wait_ms, decode_queue_ms, first_step_ms,
        decode_ms, ttft_ms, tokens_per_s;
    uint64_t handoff_bytes;
    uint32_t cached_tokens;
};

/* The same in the body and in every chunk of one answer. */
struct openai_head {
    enum openai_endpoint endpoint;
    char id[40]; /* chatcmpl-..., cmpl-... */
    int64_t created_s;
    const char *model;
    const struct text *text;
    const struct openai_request *request; /* NULL until it is parsed, which is before any answer */
};
void openai_head_init(struct openai_head *head, enum openai_endpoint endpoint, uint64_t request,
                      int64_t created_s, const char *model, const struct text *text);

struct openai_end {
    const char *finish_reason; /* NULL: the answer goes on */
    const char *stop_string;   /* the stop string that was met, or NULL */
    size_t stop_bytes;
    int32_t stop_id; /* the stop id that was met and is not an EOS, or -1 */
};

/* One choice of a whole answer, from what `answer` holds. */
struct openai_choice {
    const struct answer *answer;
    const struct tool_calls *calls; /* its text as content and calls; NULL: as it is */
    struct openai_end end;
    const struct openai_logprobs *logprobs; /* of all its tokens */
    const struct openai_scores *scores;     /* of its prompt; NULL: none are wanted */
};
/* choices: [count], numbered in this order. timings may be NULL. */
void openai_body_write(const struct openai_head *head, const struct openai_choice *choices,
                       uint32_t count, const struct openai_usage *usage,
                       const struct openai_timings *timings, struct buffer *out);

enum openai_usage_mode { OPENAI_USAGE_ABSENT, OPENAI_USAGE_NULL, OPENAI_USAGE_GIVEN };
struct openai_chunk {
    uint32_t index;                         /* of the choice */
    bool first;                             /* of this choice; a chat says who speaks */
    const struct answer *answer;            /* its text; NULL for none, and no tokens */
    const struct openai_logprobs *logprobs; /* of its tokens */
    const struct openai_scores *scores;     /* of the prompt, if it begins with that; or NULL */
    const struct tool_calls *calls;         /* as in a whole answer: what of them was not taken */
    struct openai_end end;
    bool without_choices; /* the closing chunk with usage */
    enum openai_usage_mode usage_mode;
    struct openai_usage usage;
    const struct openai_timings *timings;
};
void openai_chunk_write(const struct openai_head *head, const struct openai_chunk *chunk,
                        struct buffer *out);

#endif
