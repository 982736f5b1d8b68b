#include "worker/token_batch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

struct token_batch {
    struct router_ref *routers;   /* [capacity] */
    struct msg_step *steps;       /* [capacity] */
    struct msg_step *outgoing;    /* [capacity] those of one router, together */
    struct step_storage *storage; /* [capacity] */
    bool *sent;                   /* [capacity] */
    uint32_t count, capacity;
};

static void fill_logprobs(const struct sampled *sampled, struct step_storage *storage,
                          struct msg_step *out)
{
    storage->logprob = sampled->logprob;
    out->logprobs = (struct wire_f32s){.items = &storage->logprob, .count = 1};
    const uint32_t top = sampled->top_count;
    memcpy(storage->top_ids, sampled->top_ids, top * sizeof *storage->top_ids);
    memcpy(storage->top_logprobs, sampled->top_logprobs, top * sizeof *storage->top_logprobs);
    out->top_count = top;
    out->top_ids = (struct wire_i32s){.items = storage->top_ids, .count = top};
    out->top_logprobs = (struct wire_f32s){.items = storage->top_logprobs, .count = top};
}

void step_fill(const struct request_key *key, const struct job *job, uint32_t position,
               const struct sampled *sampled, enum finish_code finish, struct step_storage *storage,
               struct msg_step *out)
{
    *out = (struct msg_step){
        .request = key->request,
        .attempt = key->attempt,
        .choice = key->choice,
        .first_position = position,
        .finish = (uint32_t)finish,
        .cached_tokens = position == job->given_count ? job->cached_tokens : 0,
    };
    const bool stops = finish == FINISH_STOP;
    storage->token = sampled->id;
    if (stops)
        out->stop_id = sampled->id;
    else
        out->tokens = (struct wire_i32s){.items = &storage->token, .count = 1};
    if (job->sampling.logprobs != 0 && (!stops || job->end_logprobs))
        fill_logprobs(sampled, storage, out);
}

struct token_batch *token_batch_create(uint32_t capacity)
{
    struct token_batch *batch = calloc(1, sizeof *batch);
    CHECK(batch != NULL);
    *batch = (struct token_batch){
        .routers = calloc(capacity, sizeof *batch->routers),
        .steps = calloc(capacity, sizeof *batch->steps),
        .outgoing = calloc(capacity, sizeof *batch->outgoing),
        .storage = calloc(capacity, sizeof *batch->storage),
        .sent = calloc(capacity, sizeof *batch->sent),
        .capacity = capacity,
    };
    CHECK(batch->routers && batch->steps && batch->outgoing && batch->storage && batch->sent);
    return batch;
}

void token_batch_destroy(struct token_batch *batch)
{
    if (batch == NULL)
        return;
    free(batch->routers);
    free(batch->steps);
    free(batch->outgoing);
    free(batch->storage);
    free(batch->sent);
    free(batch);
}

bool token_batch_full(const struct token_batch *batch)
{
    return batch->count == batch->capacity;
}

void token_batch_add(struct token_batch *batch, const struct request_key *key,
                     const struct job *job, uint32_t position, const struct sampled *sampled,
                     enum finish_code finish)
{
    CHECK(batch->count < batch->capacity);
    const uint32_t i = batch->count++;
    batch->routers[i] = key->router;
    batch->sent[i] = false;
    step_fill(key, job, position, sampled, finish, &batch->storage[i], &batch->steps[i]);
}

void token_batch_add_score(struct token_batch *batch, const struct request_key *key,
                           uint32_t position, const struct sampled *score)
{
    CHECK(batch->count < batch->capacity);
    const uint32_t i = batch->count++;
    struct step_storage *storage = &batch->storage[i];
    batch->routers[i] = key->router;
    batch->sent[i] = false;
    storage->token = score->id;
    batch->steps[i] = (struct msg_step){.request = key->request,
                                        .attempt = key->attempt,
                                        .choice = key->choice,
                                        .first_position = position,
                                        .tokens = {.items = &storage->token, .count = 1},
                                        .rank = score->rank};
    fill_logprobs(score, storage, &batch->steps[i]);
}

static void send_one_router(struct token_batch *batch, uint32_t first,
                            struct router_client *routers)
{
    uint32_t count = 0;
    for (uint32_t i = first; i < batch->count; i++) {
        if (batch->sent[i] || !router_ref_equal(batch->routers[i], batch->routers[first]))
            continue;
        batch->outgoing[count++] = batch->steps[i];
        batch->sent[i] = true;
    }
    const struct msg_tokens message = {.steps = {.items = batch->outgoing, .count = count}};
    const enum status status =
        router_client_send(routers, batch->routers[first], MESSAGE_ID_TOKENS, &message);
    if (status != STATUS_OK && status != STATUS_CLOSED)
        LOG_WARN("the tokens of %" PRIu32 " requests cannot be sent to router %" PRIu32 ": %s",
                 count, batch->routers[first].index, status_sentence(status));
}

void token_batch_flush(struct token_batch *batch, struct router_client *routers)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        if (!batch->sent[i])
            send_one_router(batch, i, routers);
    }
    batch->count = 0;
}
