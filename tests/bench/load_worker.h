/* Workers that compute nothing, for router_load: a prefill node answers a job with its first token
 * at once, a decode node reserves at once and writes one token a sequence whenever it is told to
 * step. */
#ifndef BATON_TESTS_BENCH_LOAD_WORKER_H
#define BATON_TESTS_BENCH_LOAD_WORKER_H

#include "model/text/text.h"
#include "transfer/link.h"

enum { LOAD_SEQUENCES_MAX = 16384 };

struct load_sequence {
    uint64_t request;
    uint32_t attempt, position, left;
};

struct load_worker {
    struct loop *loop;
    struct link *link;
    struct loop_timer *heartbeat;
    enum worker_role role;
    const struct text *text;
    int32_t token; /* what every answer consists of */
    uint8_t boot_id[16], tokenizer_digest[16];
    uint64_t sequence;
    bool up;
    struct load_sequence *running; /* [LOAD_SEQUENCES_MAX] of a decode node */
    uint32_t running_count;
};

/* Dials the router's control address; up is set once it is welcome. Faults end the program. */
void load_worker_start(struct load_worker *worker, struct loop *loop, enum worker_role role,
                       const struct text *text, const char *control);
/* One token of each sequence; those that are complete leave. Returns how many tokens that was. */
uint32_t load_worker_step(struct load_worker *worker);
void load_worker_stop(struct load_worker *worker);

#endif
