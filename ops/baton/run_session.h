/* One model in this process, for `run` and `eval`: opening it with a progress line, and sequences
 * that are fed in chunks. The one-process reference of what the cluster computes. */
#ifndef BATON_OPS_BATON_RUN_SESSION_H
#define BATON_OPS_BATON_RUN_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "model/model.h"
#include "model/text/text.h"

/* The model and the text half of the same file. */
struct run_session {
    struct model *model;
    struct text *text;     /* NULL with SESSION_TEXT_IF_THERE and a folder without a tokenizer */
    uint32_t chunk_tokens; /* rows of one forward call at most */
};

enum session_text { SESSION_TEXT, SESSION_TEXT_IF_THERE };

/* Words about the progress of a long load go to standard error. */
enum status run_session_open(const struct model_options *options, enum session_text wanted,
                             struct run_session *out, struct error *error);
void run_session_close(struct run_session *session);

/* A sequence in the model's pages. */
struct sequence {
    struct run_session *session;
    uint32_t *slots; /* [slot_count] block table */
    uint32_t slot_count;
    int32_t *tokens;   /* [position] those fed so far */
    uint32_t position; /* how many */
};

/* Takes pages for up to `tokens` tokens. */
enum status sequence_open(struct run_session *session, uint32_t tokens, struct sequence *out,
                          struct error *error);
void sequence_close(struct sequence *sequence); /* gives the pages back */

/* What to do while tokens are fed; every member may be NULL. */
struct feed_hooks {
    /* Logits of every row, not of the last only, in order. */
    void (*on_logits)(void *arg, uint32_t position, const float *logits);
    /* Asked before each chunk; true ends the feeding with CANCELED. */
    bool (*interrupted)(void *arg);
    void *arg;
};

/* Feeds count >= 1 tokens in chunks. *last_logits_out: of the last token, valid until the next
 * feed. hooks may be NULL. */
enum status sequence_feed(struct sequence *sequence, const int32_t *tokens, uint32_t count,
                          const struct feed_hooks *hooks, const float **last_logits_out,
                          struct error *error);

#endif
