/* What decode nodes say about their steps in heartbeats, kept for /workers and counted for
 * /metrics. Loop thread. */
#ifndef BATON_ROUTER_FLEET_DECODE_H
#define BATON_ROUTER_FLEET_DECODE_H

#include "base/json.h"
#include "base/metrics.h"
#include "transfer/wire.h"

enum fleet_decode_count {
    FLEET_DECODE_STEPS,
    FLEET_DECODE_STEP_US,
    FLEET_DECODE_FORWARD_US,
    FLEET_DECODE_PREEMPTIONS,
    FLEET_DECODE_PREEMPTED_TOKENS,
    FLEET_DECODE_MASKS,
    FLEET_DECODE_MASK_US,
    FLEET_DECODE_GRAMMARS,
    FLEET_DECODE_GRAMMAR_US,
    FLEET_DECODE_COUNTS
};

struct fleet_decode {
    uint64_t counts[FLEET_DECODE_COUNTS]; /* since the worker's boot */
    uint64_t news[FLEET_DECODE_COUNTS];   /* of them, what the last heartbeat added */
};

void fleet_decode_take(struct fleet_decode *decode, const struct msg_decode_load *load);
void fleet_decode_measure(const struct fleet_decode *decode, struct metrics *metrics);
/* One object: the numbers, and which share of a step is not the forward pass. */
void fleet_decode_write(const struct fleet_decode *decode, struct json_writer *writer);

#endif
