/* The choice of workers for a request: a pure function of a snapshot of the fleet and the request.
 *
 * The cost of a worker is a prediction in milliseconds, and the cheapest pair of one kind is taken:
 *
 *   prefill   (queued + sent tokens) / speed + uncached prompt tokens / speed + pressure
 *   decode    (queued + sent tokens) / speed + pressure, and the uncached prompt where it reads
 * that prompts are read at the pace of reading_pace.h where a worker tells it, else at its speed
 * that pressure  w k / (1 - k), k the share of the pages that are in use with this request
 *
 * Sent is what this router has dispatched and not yet had back: a worker's own report is always
 * older. A worker that has just joined counts as slower than it says for a while, since everything
 * about it is a guess and it would draw all new work. What an idle one last measured may have been
 * short prompts or a busy moment: the first token of a prompt that it begins at once is predicted
 * from the faster of that and what it measured when it was loaded. Costs within a small band are
 * equal and go round. A session stays with its workers while that costs little more.
 *
 * Nothing here knows a link, a clock, a lock or the fleet, so a simulator can call it. */
#ifndef BATON_ROUTER_PLACEMENT_H
#define BATON_ROUTER_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "router/reading_pace.h"
#include "transfer/wire.h"

enum {
    PLACEMENT_WORKERS_MAX = 256,
    /* An unset max_tokens says nothing about the answer's length: a decode node is charged at most
     * this many tokens for it. */
    PLACEMENT_ANSWER_TOKENS = 256,
};

/* The weights of one role's cost; 1 for a time is that time. */
struct placement_weights {
    double queue, work;
    double pressure_ms; /* w */
};

struct placement_policy {
    struct placement_weights prefill, decode;
    uint32_t slow_start_ms;   /* how long a new worker is held back; 0: not at all */
    double slow_start_share;  /* of its speed that it counts with at first */
    double tie_ratio, tie_ms; /* costs this close to the least one are equal to it */
    double stay_ms;           /* what staying with a session's workers may cost more */
    uint32_t stale_ms;        /* after so long without work a speed is doubted; 0: never */
};
extern const struct placement_policy placement_default_policy;

struct placement_worker {
    enum worker_role role;
    bool up;
    bool full;               /* refused the last reservation, and nothing came free since */
    uint32_t kind;           /* only workers of one kind can be paired */
    uint32_t context_tokens; /* longest sequence it takes */
    uint32_t page_tokens, pages_total;
    uint64_t foreign_tokens;    /* queued there by others */
    uint64_t inflight_tokens;   /* charged by this router */
    double tokens_per_s;        /* measured at its work */
    double loaded_tokens_per_s; /* and before it had any */
    /* Of a decode node, how it reads prompts: those of the tokens above that are such, and its
     * speeds at them, 0 where it does not tell. */
    uint64_t unread_tokens;
    double read_tokens_per_s, loaded_read_tokens_per_s;
    /* Of either, where it tells: how prompts of any length are read, now and when it was loaded;
     * and how many tokens on average are before one that is to be read, 0: nobody knows. */
    struct reading_pace pace, loaded_pace;
    double unread_context;
    bool idle;           /* nothing is booked or queued there */
    uint32_t rested_ms;  /* since it last was given work, or told of some */
    uint32_t pages_used; /* as reported, and those of what was sent since */
    uint32_t running;    /* answers a decode node writes, likewise */
    double step_ms;      /* how long its steps took lately; 0: it has made none */
    uint32_t age_ms;     /* since it joined */
};

struct placement_snapshot {
    const struct placement_worker *workers;
    uint32_t count;
    uint32_t turn; /* ties go to candidate number turn modulo their count; begins at a seed */
};

/* What one worker is to one request. */
struct placement_view {
    uint32_t cached_tokens; /* of the prompt's beginning, predicted to be in its pages */
    bool stays;             /* it serves the request's session */
    bool barred;            /* it has failed this request already */
};

struct placement_request {
    uint32_t prompt_tokens, max_tokens;
    uint32_t local_tokens; /* so few that are not in a decode node's pages it may read itself */
    const struct placement_view *views; /* [count of the snapshot]; NULL: nothing is known */
};

enum placement_reason {
    PLACEMENT_PAIR,     /* a prefill and a decode node */
    PLACEMENT_LOCAL,    /* no prefill node fits: the decode node reads the prompt */
    PLACEMENT_UNPAIRED, /* the same, for the prefill nodes there are compute something else */
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
    uint64_t reading_charge; /* of the decode node's, the prompt that it reads itself */
    uint32_t local_tokens;   /* of a pair: up to so many make it PLACEMENT_SHORT */
    /* Predicted of the node that reads the prompt; nothing is held back for being new. All 0 when
     * it has not told how fast it reads. */
    double wait_ms;           /* until it begins with the prompt */
    bool stale;               /* it is idle, and was last measured too long ago to rely on */
    struct reading_pace pace; /* at which it reads */
    uint32_t cached_tokens;   /* which it need not read */
    double ttft_ms;           /* from now to the first token */
    /* Between the tokens of the answer. 0 for a decode node that writes nothing else: however long
     * its steps are, no other time would be better. */
    double tpot_ms;
};

/* At which a worker has read prompts lately; of a decode node that does not tell, at which it
 * writes. */
double placement_read_tokens_per_s(const struct placement_worker *worker);
/* How long a worker has with the prompts that it is to read, and with all it has. */
double placement_reading_ms(const struct placement_worker *worker);
double placement_queue_ms(const struct placement_worker *worker);
const char *placement_reason_name(enum placement_reason reason);
struct placement placement_choose(const struct placement_policy *policy,
                                  const struct placement_snapshot *snapshot,
                                  const struct placement_request *request);

#endif
