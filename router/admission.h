/* Whether a request may come in: can its targets be met, and is there room to wait?
 *
 * Refusing at once what will come too late leaves the room to those that can be served in time, and
 * the refused client knows when to come back. Pure functions of predictions and counts. */
#ifndef BATON_ROUTER_ADMISSION_H
#define BATON_ROUTER_ADMISSION_H

#include <stddef.h>
#include <stdint.h>

#include "router/placement.h"

/* 0: no target. */
struct admission_targets {
    double ttft_ms, tpot_ms;
    double left_ms; /* until the request's own deadline, when the client has set one */
};

/* Of requests that wait for a place; as limits, 0: none. */
struct admission_queue {
    uint64_t requests, tokens, bytes;
};

enum admission_verdict {
    ADMISSION_OK,
    ADMISSION_TTFT,     /* its first token would come too late */
    ADMISSION_DEADLINE, /* likewise, for the client's own deadline */
    ADMISSION_TPOT,     /* its tokens would come too slowly */
    ADMISSION_QUEUE,    /* too many wait already */
    ADMISSION_VERDICT_COUNT,
};

struct admission {
    enum admission_verdict verdict;
    double ttft_ms, tpot_ms; /* as predicted, from the request's arrival; 0: not predicted */
    uint32_t fitting_tokens; /* the longest prompt that would have met the target */
    uint32_t retry_s;        /* when things will have calmed down, 1 to ADMISSION_RETRY_MAX_S */
    const char *full;        /* of ADMISSION_QUEUE: what there would be too much of, */
    uint64_t full_now, full_limit; /* how much with this one, and the limit */
};
enum { ADMISSION_RETRY_MAX_S = 3600 };

/* waited_ms: since the request came. placement: what was chosen for it, or would be. One whose
 * speed is stale refuses nobody on account of it: without work it would be believed for ever. */
struct admission admission_predict(const struct admission_targets *targets, double waited_ms,
                                   const struct placement *placement);
/* Another one of so many tokens and bytes in the queue; drain_ms: until all that is there is done.
 */
struct admission admission_queue(const struct admission_queue *limits,
                                 const struct admission_queue *now, uint64_t tokens, uint64_t bytes,
                                 double drain_ms);
/* Whose turn it is among those that wait: whoever has the least. It is when the request came, less
 * what its priority is worth: with p below 0, most_ms * |p| / (|p| + ADMISSION_PRIORITY_HALF) of
 * waiting, and as much more with p above. A lower priority always counts for more, but never for
 * more than most_ms, so nobody waits behind those that come twice that after it. */
double admission_turn_ms(double came_ms, int32_t priority, uint32_t most_ms);
enum { ADMISSION_PRIORITY_HALF = 8 };
/* How long the workers have with what they were sent and so many tokens of prompts and of answers
 * more, in milliseconds; the role that takes longer decides. 0 when nobody is there. */
double admission_drain_ms(const struct placement_snapshot *snapshot, uint64_t prompt_tokens,
                          uint64_t answer_tokens);
/* In whole seconds, as Retry-After tells it: 1 to ADMISSION_RETRY_MAX_S. */
uint32_t admission_retry_s(double drain_ms);
/* The sentence for the client. */
void admission_explain(const struct admission *admission, const struct admission_targets *targets,
                       char *text, size_t capacity);
const char *admission_code(enum admission_verdict verdict); /* of the error object */

#endif
