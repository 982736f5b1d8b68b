#include "router/reading_pace.h"

#include <math.h>

#include "base/check.h"

struct reading_pace reading_pace_told(float token_us, float context_us)
{
    if (!isfinite(token_us) || !isfinite(context_us) || token_us <= 0)
        return (struct reading_pace){0};
    return (struct reading_pace){.token_ms = token_us / 1e3,
                                 .context_ms = fmax(context_us, 0) / 1e3};
}

struct reading_pace reading_pace_flat(double tokens_per_ms)
{
    return (struct reading_pace){.token_ms = 1 / tokens_per_ms};
}

double reading_pace_ms(const struct reading_pace *pace, double known, double tokens)
{
    return tokens * (pace->token_ms + pace->context_ms * (known + tokens / 2));
}

double reading_pace_tokens(const struct reading_pace *pace, double known, double ms)
{
    /* The positive root of context/2 n^2 + first n = ms, in the form that does not cancel. */
    const double first = pace->token_ms + pace->context_ms * known;
    if (ms <= 0 || first <= 0)
        return 0;
    return fmin(2 * ms / (first + sqrt(first * first + 2 * pace->context_ms * ms)), 1e9);
}

/* Of the tokens n - t to n: t (2 n - t) is twice the sum of what is before each. */
static uint64_t contexts_of(uint64_t prompt_tokens, uint64_t tokens)
{
    return tokens < prompt_tokens ? tokens * (2 * prompt_tokens - tokens) : tokens * tokens;
}

void reading_depth_add(struct reading_depth *depth, uint64_t prompt_tokens, uint64_t tokens)
{
    depth->tokens += tokens;
    depth->contexts += contexts_of(prompt_tokens, tokens);
}

void reading_depth_remove(struct reading_depth *depth, uint64_t prompt_tokens, uint64_t tokens)
{
    CHECK(depth->tokens >= tokens && depth->contexts >= contexts_of(prompt_tokens, tokens));
    depth->tokens -= tokens;
    depth->contexts -= contexts_of(prompt_tokens, tokens);
}

double reading_depth_mean(const struct reading_depth *depth)
{
    return depth->tokens > 0 ? (double)depth->contexts / 2 / (double)depth->tokens : 0;
}
