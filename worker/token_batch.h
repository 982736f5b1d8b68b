/* New tokens on their way to routers: the steps of one engine step, sent as one TOKENS message per
 * router link. Control thread; everything is allocated at creation. */
#ifndef BATON_WORKER_TOKEN_BATCH_H
#define BATON_WORKER_TOKEN_BATCH_H

#include "model/sampler.h"
#include "transfer/router_client.h"
#include "worker/job.h"
#include "worker/request_table.h"

/* Arrays that a msg_step of at most one token points at. */
struct step_storage {
    int32_t token;
    float logprob;
    int32_t top_ids[SAMPLER_TOP_MAX];
    float top_logprobs[SAMPLER_TOP_MAX];
};

/* What was picked at `position`, as a message that points into *storage. After FINISH_STOP the id
 * is the stop id and there is no token, but log-probabilities of it where the job wants them. */
void step_fill(const struct request_key *key, const struct job *job, uint32_t position,
               const struct sampled *sampled, enum finish_code finish, struct step_storage *storage,
               struct msg_step *out);

struct token_batch;

struct token_batch *token_batch_create(uint32_t capacity);
void token_batch_destroy(struct token_batch *batch);
/* There must be room; see token_batch_full. */
void token_batch_add(struct token_batch *batch, const struct request_key *key,
                     const struct job *job, uint32_t position, const struct sampled *sampled,
                     enum finish_code finish);
/* The same with how likely the prompt's token at `position` was. */
void token_batch_add_score(struct token_batch *batch, const struct request_key *key,
                           uint32_t position, const struct sampled *score);
bool token_batch_full(const struct token_batch *batch);
/* One message a router; what is for a router that is gone is dropped with it. */
void token_batch_flush(struct token_batch *batch, struct router_client *routers);

#endif
