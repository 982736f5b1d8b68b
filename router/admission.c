#include "router/admission.h"

#include <math.h>
#include <stdio.h>

#include "base/check.h"

uint32_t admission_retry_s(double drain_ms)
{
    return (uint32_t)fmin(fmax(ceil(drain_ms / 1e3), 1), ADMISSION_RETRY_MAX_S);
}

/* The longest prompt with the same beginning cached that would be read by then. */
static uint32_t fitting_tokens(const struct placement *placement, double waited_ms,
                               double target_ms)
{
    const double reading_ms = target_ms - waited_ms - placement->wait_ms;
    if (reading_ms <= 0)
        return 0;
    return placement->cached_tokens +
           (uint32_t)reading_pace_tokens(&placement->pace, placement->cached_tokens, reading_ms);
}

struct admission admission_predict(const struct admission_targets *targets, double waited_ms,
                                   const struct placement *placement)
{
    struct admission admission = {.tpot_ms = placement->tpot_ms,
                                  .retry_s = admission_retry_s(placement->wait_ms)};
    double target_ms = 0;
    if (placement->ttft_ms > 0)
        admission.ttft_ms = waited_ms + placement->ttft_ms;
    if (placement->ttft_ms > 0 && !placement->stale) {
        if (targets->ttft_ms > 0 && admission.ttft_ms > targets->ttft_ms) {
            admission.verdict = ADMISSION_TTFT;
            target_ms = targets->ttft_ms;
        } else if (targets->left_ms > 0 && placement->ttft_ms > targets->left_ms) {
            admission.verdict = ADMISSION_DEADLINE;
            target_ms = waited_ms + targets->left_ms;
        }
    }
    if (admission.verdict != ADMISSION_OK)
        admission.fitting_tokens = fitting_tokens(placement, waited_ms, target_ms);
    else if (targets->tpot_ms > 0 && placement->tpot_ms > targets->tpot_ms)
        admission.verdict = ADMISSION_TPOT;
    return admission;
}

/* The first limit that is passed is the one that is told. */
static void hold(struct admission *admission, const char *what, uint64_t limit, uint64_t now,
                 uint64_t more)
{
    if (admission->verdict != ADMISSION_OK || limit == 0 || (now <= limit && more <= limit - now))
        return;
    admission->verdict = ADMISSION_QUEUE;
    admission->full = what;
    admission->full_now = now + more;
    admission->full_limit = limit;
}

struct admission admission_queue(const struct admission_queue *limits,
                                 const struct admission_queue *now, uint64_t tokens, uint64_t bytes,
                                 double drain_ms)
{
    struct admission admission = {.retry_s = admission_retry_s(drain_ms)};
    hold(&admission, "requests", limits->requests, now->requests, 1);
    hold(&admission, "tokens of prompts", limits->tokens, now->tokens, tokens);
    hold(&admission, "bytes of bodies", limits->bytes, now->bytes, bytes);
    return admission;
}

double admission_turn_ms(double came_ms, int32_t priority, uint32_t most_ms)
{
    const double size = fabs((double)priority);
    return came_ms + copysign(most_ms * size / (size + ADMISSION_PRIORITY_HALF), priority);
}

double admission_drain_ms(const struct placement_snapshot *snapshot, uint64_t prompt_tokens,
                          uint64_t answer_tokens)
{
    double tokens[2] = {(double)prompt_tokens, (double)answer_tokens}, speed[2] = {0, 0};
    double read_speed = 0; /* of decode nodes */
    for (uint32_t i = 0; i < snapshot->count; i++) {
        const struct placement_worker *worker = &snapshot->workers[i];
        const int role = worker->role == WORKER_PREFILL ? 0 : 1;
        if (!worker->up)
            continue;
        tokens[role] += placement_queue_ms(worker) / 1e3 * worker->tokens_per_s;
        speed[role] += worker->tokens_per_s;
        read_speed += role == 1 ? placement_read_tokens_per_s(worker) : 0;
    }
    const double decode_ms = speed[1] > 0 ? tokens[1] / speed[1] * 1e3 : 0;
    if (speed[0] > 0)
        return fmax(tokens[0] / speed[0] * 1e3, decode_ms);
    /* Who writes answers reads prompts too. */
    return decode_ms + (read_speed > 0 ? tokens[0] / read_speed * 1e3 : 0);
}

const char *admission_code(enum admission_verdict verdict)
{
    static const char *const codes[] = {
        [ADMISSION_OK] = "ok",
        [ADMISSION_TTFT] = "ttft_target",
        [ADMISSION_DEADLINE] = "deadline_unattainable",
        [ADMISSION_TPOT] = "tpot_target",
        [ADMISSION_QUEUE] = "overloaded",
    };
    return (size_t)verdict < ARRAY_COUNT(codes) ? codes[verdict] : "overloaded";
}

void admission_explain(const struct admission *admission, const struct admission_targets *targets,
                       char *text, size_t capacity)
{
    char fitting[80];
    if (admission->fitting_tokens > 0)
        snprintf(fitting, sizeof fitting, "a prompt of %u tokens would have met it",
                 admission->fitting_tokens);
    else
        snprintf(fitting, sizeof fitting, "no prompt would have met it now");
    switch (admission->verdict) {
    case ADMISSION_TTFT:
        snprintf(text, capacity,
                 "The first token is predicted %.0f ms after the request came, and the target is "
                 "%.0f ms; %s.",
                 admission->ttft_ms, targets->ttft_ms, fitting);
        break;
    case ADMISSION_DEADLINE:
        snprintf(text, capacity,
                 "The first token is predicted %.0f ms after the request came, and %.0f ms are "
                 "left of its deadline; %s.",
                 admission->ttft_ms, targets->left_ms, fitting);
        break;
    case ADMISSION_TPOT:
        snprintf(text, capacity,
                 "The tokens are predicted %.1f ms apart, and the target is %.0f ms.",
                 admission->tpot_ms, targets->tpot_ms);
        break;
    default:
        snprintf(text, capacity,
                 "With this request %llu %s would wait for a place, and the limit is %llu; try "
                 "again in %u s.",
                 (unsigned long long)admission->full_now, admission->full,
                 (unsigned long long)admission->full_limit, admission->retry_s);
    }
}
