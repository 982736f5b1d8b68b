#include "router/backlog.h"

#include <math.h>

#include "base/check.h"
#include "base/clock.h"

void backlog_init(struct backlog *backlog, uint32_t period_ms, uint64_t now_ns)
{
    *backlog = (struct backlog){.share = 1, .period_ms = period_ms, .since_ns = now_ns};
}

/* Done since the last heartbeat for what is left. */
static double thought(const struct backlog *backlog, double tokens_per_s, uint64_t now_ns)
{
    const double ms = fmin((double)(now_ns - backlog->since_ns) / NS_PER_MS, backlog->period_ms);
    return fmax(ms * tokens_per_s / 1e3 * backlog->share - backlog->gone_of_now, 0);
}

void backlog_charge(struct backlog *backlog, uint64_t tokens, uint64_t now_ns)
{
    if (backlog->charged == 0) {
        /* It was idle: the time until now was nobody's work. */
        backlog->done = backlog->gone_of_now = 0;
        backlog->since_ns = now_ns;
    }
    backlog->charged += tokens;
}

void backlog_release(struct backlog *backlog, uint64_t tokens, double tokens_per_s, uint64_t now_ns)
{
    CHECK(backlog->charged >= tokens);
    backlog->charged -= tokens;
    const double told = fmin(backlog->done, (double)tokens);
    const double untold = fmin((double)tokens - told, thought(backlog, tokens_per_s, now_ns));
    backlog->done -= told;
    backlog->gone += untold;
    backlog->gone_of_now += untold;
}

void backlog_hear(struct backlog *backlog, uint64_t tokens_done, uint64_t foreign, uint64_t now_ns)
{
    const double news =
        backlog->known && tokens_done > backlog->told ? (double)(tokens_done - backlog->told) : 0;
    const double own = (double)backlog->charged;
    backlog->done = fmin(backlog->done + fmax(news * backlog->share - backlog->gone, 0), own);
    backlog->gone = backlog->gone_of_now = 0;
    backlog->known = true;
    backlog->told = tokens_done;
    backlog->since_ns = now_ns;
    backlog->share = own + (double)foreign > 0 ? own / (own + (double)foreign) : 1;
}

uint64_t backlog_left(const struct backlog *backlog, double tokens_per_s, uint64_t now_ns)
{
    const double done = backlog->done + thought(backlog, tokens_per_s, now_ns);
    return backlog->charged - (uint64_t)fmin(done, (double)backlog->charged);
}
