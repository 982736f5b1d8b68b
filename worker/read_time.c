#include "worker/read_time.h"

#include <math.h>

/* Chunks this many busy seconds ago count half. */
#define HALF_LIFE_S 5.0
/* Chunks that take longer than this many times what was expected are cut to it. */
#define OUTLIER 4.0
/* A token by itself takes at least this share of what it takes on average. */
#define TOKEN_SHARE_MIN 0.02
/* The shape of load counts like so many tokens, so far from all others. */
#define SHAPE_TOKENS   256.0
#define SHAPE_DISTANCE 1024.0
/* What was measured at load counts like so many seconds of work. */
#define LOADED_S 0.05

uint64_t read_context(uint32_t position, uint32_t count)
{
    const uint64_t n = count;
    return n * position + (n > 0 ? n * (n - 1) / 2 : 0);
}

struct read_cost read_cost_between(double x0, double y0, double x1, double y1)
{
    const double slope = x1 > x0 ? fmax((y1 - y0) / (x1 - x0), 0) : 0;
    /* Attention alone does not take all the time: no more than three quarters at x0. */
    const double context_us = x0 > 0 ? fmin(slope, 0.75 * y0 / x0) : slope;
    return (struct read_cost){.token_us = y0 - context_us * x0, .context_us = context_us};
}

void read_time_init(struct read_time *time, struct read_cost loaded)
{
    *time = (struct read_time){.loaded = loaded};
    if (loaded.token_us <= 0)
        return;
    time->y = LOADED_S * 1e6;
    time->tokens = time->y / loaded.token_us;
}

struct read_cost read_time_cost(const struct read_time *time)
{
    if (time->tokens <= 0)
        return time->loaded;
    const double x = time->x / time->tokens, y = time->y / time->tokens;
    const double spread = fmax(time->xx - x * time->x, 0);
    const double shape =
        time->loaded.token_us > 0 ? time->loaded.context_us / time->loaded.token_us : 0;
    const double leaning = SHAPE_TOKENS * SHAPE_DISTANCE * SHAPE_DISTANCE;
    const double slope =
        (time->xy - x * time->y + leaning * shape * y / (1 + shape * x)) / (spread + leaning);
    const double context_us = fmax(x > 0 ? fmin(slope, (1 - TOKEN_SHARE_MIN) * y / x) : slope, 0);
    return (struct read_cost){.token_us = y - context_us * x, .context_us = context_us};
}

void read_time_add(struct read_time *time, uint32_t tokens, uint64_t context, double elapsed_us)
{
    if (!isfinite(elapsed_us) || elapsed_us <= 0 || tokens == 0)
        return;
    const double x = (double)context / tokens;
    const struct read_cost cost = read_time_cost(time);
    const double expected_us = tokens * (cost.token_us + cost.context_us * x);
    if (expected_us > 0)
        elapsed_us = fmin(elapsed_us, OUTLIER * expected_us);
    /* 1 / (1 + t/h) halves at t = h and needs no exp(). */
    const double keep = 1 / (1 + elapsed_us / 1e6 / HALF_LIFE_S);
    time->tokens = time->tokens * keep + tokens;
    time->x = time->x * keep + (double)context;
    time->y = time->y * keep + elapsed_us;
    time->xx = time->xx * keep + x * (double)context;
    time->xy = time->xy * keep + x * elapsed_us;
}
