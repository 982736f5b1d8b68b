/* How long reading prompts takes, learned while chunks run: each token so much by itself, and so
 * much more for each token before it, for attention looks at all of those.
 *
 * A straight line through microseconds a token over tokens before it, fitted by least squares with
 * weights that fade (Ljung, System Identification, 11.2). Chunks of short prompts say nothing of
 * its slope, so it leans on the shape measured at load: as if some tokens had been read far from
 * the others at what that shape says there. The level is only what was measured. Pure: no clock,
 * no thread. */
#ifndef BATON_WORKER_READ_TIME_H
#define BATON_WORKER_READ_TIME_H

#include <stdint.h>

/* In microseconds, not below zero. */
struct read_cost {
    double token_us;   /* of a token by itself */
    double context_us; /* more, for each token before it */
};

struct read_time {
    struct read_cost loaded;
    /* Weighted sums, each token once: x tokens are before it, it took y. */
    double tokens, x, y, xx, xy;
};

/* Tokens before those of a part of a prompt, summed: `count` of them from `position` on. */
uint64_t read_context(uint32_t position, uint32_t count);
/* From two calls of about as many tokens, the second at more context: x0 < x1 tokens before each
 * on average, and y0, y1 microseconds a token. */
struct read_cost read_cost_between(double x0, double y0, double x1, double y1);
void read_time_init(struct read_time *time, struct read_cost loaded);
/* A chunk of so many tokens, with read_context of all its parts. One that took a multiple of what
 * was expected, because something else had the CPU, counts as that multiple and no more. */
void read_time_add(struct read_time *time, uint32_t tokens, uint64_t context, double elapsed_us);
struct read_cost read_time_cost(const struct read_time *time);

#endif
