#include "router/request_held.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "base/check.h"

struct request_held {
    uint32_t first_position, count, top_count;
    uint32_t finish;
    int32_t stop_id;
    bool viewed;
    struct buffer ids, logprobs, top_ids, top_logprobs;
};

bool request_held_add(struct request_held **held, const struct msg_step *step)
{
    if (!*held) {
        *held = calloc(1, sizeof **held);
        CHECK(*held != NULL);
        (*held)->first_position = step->first_position;
        (*held)->top_count = step->top_count;
    }
    struct request_held *run = *held;
    const uint64_t count = (uint64_t)run->count + step->tokens.count;
    const bool with_logprobs = step->logprobs.count > 0;
    if (run->viewed || run->finish != FINISH_NONE ||
        step->first_position != run->first_position + run->count || count > REQUEST_HELD_TOKENS_MAX)
        return false;
    /* A step without tokens may still tell how likely the id is that ends the choice. */
    const bool tells = step->tokens.count > 0 || with_logprobs;
    if (run->count > 0 && tells &&
        (step->top_count != run->top_count || with_logprobs != (run->logprobs.size > 0)))
        return false;
    if (run->count == 0)
        run->top_count = step->top_count;
    buffer_add(&run->ids, step->tokens.items, step->tokens.count * sizeof(int32_t));
    buffer_add(&run->logprobs, step->logprobs.items, step->logprobs.count * sizeof(float));
    buffer_add(&run->top_ids, step->top_ids.items, step->top_ids.count * sizeof(int32_t));
    buffer_add(&run->top_logprobs, step->top_logprobs.items,
               step->top_logprobs.count * sizeof(float));
    run->count = (uint32_t)count;
    run->finish = step->finish;
    run->stop_id = step->stop_id;
    return true;
}

bool request_held_view(struct request_held *held, uint32_t position, struct msg_step *step_out)
{
    if (!held || held->viewed || held->first_position != position)
        return false;
    held->viewed = true;
    *step_out = (struct msg_step){
        .first_position = position,
        .tokens = {(const int32_t *)(const void *)held->ids.data, held->count},
        .finish = held->finish,
        .stop_id = held->stop_id,
        .logprobs = {(const float *)(const void *)held->logprobs.data,
                     (uint32_t)(held->logprobs.size / sizeof(float))},
        .top_count = held->top_count,
        .top_ids = {(const int32_t *)(const void *)held->top_ids.data,
                    (uint32_t)(held->top_ids.size / sizeof(int32_t))},
        .top_logprobs = {(const float *)(const void *)held->top_logprobs.data,
                         (uint32_t)(held->top_logprobs.size / sizeof(float))},
    };
    return true;
}

void request_held_free(struct request_held *held)
{
    if (!held)
        return;
    buffer_free(&held->ids);
    buffer_free(&held->logprobs);
    buffer_free(&held->top_ids);
    buffer_free(&held->top_logprobs);
    free(held);
}
