/* What is left of the work that was sent to a worker.
 *
 * A charge is given back all at once, at the first token of a prompt or the end of an answer, which
 * says too much in between: a prompt that is nearly read would count in full. Heartbeats tell how
 * many tokens the worker has done; until the next one it is thought to go on at its speed, but for
 * no longer than one should take to come, so that a worker that has stopped does not look idle.
 * Work given back takes what was done for it along, and the next heartbeat will tell of it: that
 * is no work on what is left. Pure; times are the caller's. */
#ifndef BATON_ROUTER_BACKLOG_H
#define BATON_ROUTER_BACKLOG_H

#include <stdbool.h>
#include <stdint.h>

struct backlog {
    uint64_t charged;   /* tokens sent and not yet given back */
    double done;        /* of them, as heartbeats have told */
    double gone;        /* done for what was given back, and not told yet */
    double gone_of_now; /* of that, done since since_ns */
    bool known;         /* a heartbeat has come */
    uint64_t told;      /* done since its boot, by the last one */
    uint64_t since_ns;  /* it has been at work since, as far as one can tell */
    double share;       /* of the worker's work that is this router's, 0 to 1 */
    uint32_t period_ms; /* between heartbeats */
};

void backlog_init(struct backlog *backlog, uint32_t period_ms, uint64_t now_ns);
void backlog_charge(struct backlog *backlog, uint64_t tokens, uint64_t now_ns);
/* No more than was charged. */
void backlog_release(struct backlog *backlog, uint64_t tokens, double tokens_per_s,
                     uint64_t now_ns);
/* tokens_done: since its boot. foreign: queued there by others. */
void backlog_hear(struct backlog *backlog, uint64_t tokens_done, uint64_t foreign, uint64_t now_ns);
/* Tokens of this router that are still to be done, 0 to charged. */
uint64_t backlog_left(const struct backlog *backlog, double tokens_per_s, uint64_t now_ns);

#endif
