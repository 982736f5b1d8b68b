/* The fields of a request body that say how tokens are picked. Runs on a text thread: bad words are
 * tokenised here, so that workers see ids only. */
#ifndef BATON_ROUTER_OPENAI_SAMPLING_H
#define BATON_ROUTER_OPENAI_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "model/text/text.h"
#include "router/openai_error.h"
#include "transfer/wire.h"

/* What a job carries at most (transfer/messages.def). */
enum {
    OPENAI_BIASES_MAX = 1024,
    OPENAI_ALLOWED_IDS_MAX = 1024,
    OPENAI_BAD_WORDS_MAX = 128, /* each is banned with and without a space before it */
    OPENAI_BANNED_MAX = 2 * OPENAI_BAD_WORDS_MAX,
    OPENAI_BANNED_IDS_MAX = 2048
};

struct openai_sampling {
    float temperature, top_p, min_p;
    int32_t top_k; /* 0: off */
    uint64_t seed; /* drawn when the client set none */
    float repetition_penalty, presence_penalty, frequency_penalty;
    struct token_list biased, allowed, banned;
    float *biases; /* [biased.count] */
    uint32_t banned_lengths[OPENAI_BANNED_MAX];
    uint32_t banned_count;
};

/* Reads every field of a body that is an object. On failure *out still has to be freed. */
enum status openai_sampling_read(const struct json *body, const struct text *text,
                                 struct openai_sampling *out, struct openai_error *error);
void openai_sampling_free(struct openai_sampling *sampling);
/* As a job carries it, but for the log-probabilities; points into *sampling. */
void openai_sampling_tell(const struct openai_sampling *sampling, struct msg_sampling *out);

#endif
