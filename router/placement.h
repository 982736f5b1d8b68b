/* The choice of workers for a request: a pure function of a snapshot of the fleet and the request.
 *
 * The cost of a worker is the time its known work takes: (tokens other routers queued there, as it
 * last said, + tokens this router has sent it and not yet had back) / measured tokens per second.
 * Equal costs go round. Nothing here knows a link, a clock or a lock. */
#ifndef BATON_ROUTER_PLACEMENT_H
#define BATON_ROUTER_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "transfer/wire.h"

enum {
    PLACEMENT_WORKERS_MAX = 256,
    /* An unset max_tokens says nothing about the answer's length: a decode node is charged at most
     * this many tokens for it. */
    PLACEMENT_ANSWER_TOKENS = 256,
};

struct placement_worker {
    enum worker_role role;
    bool up;
    bool full;               /* refused the last reservation, and nothing came free since */
    uint32_t kind;           /* only workers of one kind can be paired */
    uint32_t context_tokens; /* longest sequence it takes */
    uint32_t page_tokens, pages_total;
    uint64_t foreign_tokens;  /* queued there by others */
    uint64_t inflight_tokens; /* charged by this router */
    double tokens_per_s;
};

struct placement_snapshot {
    const struct placement_worker *workers;
    uint32_t count;
    uint32_t turn; /* ties go to candidate number turn modulo their count, then to those behind */
};

struct placement_request {
    uint32_t prompt_tokens, max_tokens;
    uint32_t local_tokens; /* so few that are not in a decode node's pages it may read itself */
};

enum placement_reason {
    PLACEMENT_PAIR,  /* a prefill and a decode node */
    PLACEMENT_LOCAL, /* no prefill node fits: the decode node reads the prompt */
    PLACEMENT_SHORT, /* a pair, but little of the prompt is not in the decode node's pages: it reads
                      * that itself. Only the decode node can tell, when it is asked to reserve */
    PLACEMENT_ONE_TOKEN, /* ends with its first token: the prefill node alone */
    PLACEMENT_NO_DECODE, /* no decode node is up */
    PLACEMENT_FULL,      /* there are nodes that would do, but all are full */
    PLACEMENT_TOO_LONG,  /* there are decode nodes, but none takes a sequence this long */
    PLACEMENT_REASON_COUNT,
};

struct placement {
    enum placement_reason reason;
    int32_t prefill, decode; /* index in the snapshot, -1 for none */
    /* To be charged at dispatch, and given back once. */
    uint64_t prefill_charge, decode_charge;
    uint32_t local_tokens; /* of a pair: up to so many make it PLACEMENT_SHORT */
};

const char *placement_reason_name(enum placement_reason reason);
struct placement placement_choose(const struct placement_snapshot *snapshot,
                                  const struct placement_request *request);

#endif
