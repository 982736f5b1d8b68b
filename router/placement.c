#include "router/placement.h"

#include <math.h>

#include "base/check.h"

const char *placement_reason_name(enum placement_reason reason)
{
    static const char *const names[] = {
        [PLACEMENT_PAIR] = "pair",           [PLACEMENT_LOCAL] = "local",
        [PLACEMENT_SHORT] = "short",         [PLACEMENT_ONE_TOKEN] = "one_token",
        [PLACEMENT_NO_DECODE] = "no_decode", [PLACEMENT_FULL] = "full",
        [PLACEMENT_TOO_LONG] = "too_long",
    };
    return (size_t)reason < ARRAY_COUNT(names) ? names[reason] : "unknown";
}

static double cost_s(const struct placement_worker *worker)
{
    /* A worker that has measured nothing yet counts as slow, not as infinitely fast. */
    const double speed = worker->tokens_per_s > 1.0 ? worker->tokens_per_s : 1.0;
    return (double)(worker->foreign_tokens + worker->inflight_tokens) / speed;
}

static bool fits(const struct placement_worker *worker, const struct placement_request *request)
{
    const uint64_t sequence = (uint64_t)request->prompt_tokens + request->max_tokens;
    if (sequence > worker->context_tokens)
        return false;
    /* A decode node comes to hold the whole answer too, a prefill node the prompt. */
    const uint64_t held = worker->role == WORKER_DECODE ? sequence : request->prompt_tokens;
    return worker->page_tokens == 0 || (uint64_t)worker->pages_total * worker->page_tokens >= held;
}

static bool costs_less(double a, double b)
{
    return a < b - 1e-9 * fmax(fabs(a), fabs(b));
}

static bool is_candidate(const struct placement_worker *worker,
                         const struct placement_request *request, enum worker_role role,
                         const uint32_t *kind)
{
    return worker->up && !worker->full && worker->role == role &&
           (!kind || worker->kind == *kind) && fits(worker, request);
}

/* Candidates in the order in which ties fall to them: from the turn on, then round. */
static uint32_t candidates(const struct placement_snapshot *snapshot,
                           const struct placement_request *request, enum worker_role role,
                           const uint32_t *kind, uint32_t out[PLACEMENT_WORKERS_MAX])
{
    uint32_t found[PLACEMENT_WORKERS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < snapshot->count; i++) {
        if (is_candidate(&snapshot->workers[i], request, role, kind))
            found[count++] = i;
    }
    for (uint32_t i = 0; i < count; i++)
        out[i] = found[(snapshot->turn + i) % count];
    return count;
}

/* The cheapest fitting worker of a role, of any kind when kind is NULL; -1 for none. */
static int32_t cheapest(const struct placement_snapshot *snapshot,
                        const struct placement_request *request, enum worker_role role,
                        const uint32_t *kind)
{
    uint32_t order[PLACEMENT_WORKERS_MAX];
    const uint32_t count = candidates(snapshot, request, role, kind, order);
    int32_t best = -1;
    double best_cost = 0;
    for (uint32_t i = 0; i < count; i++) {
        const double cost = cost_s(&snapshot->workers[order[i]]);
        if (best < 0 || costs_less(cost, best_cost)) {
            best = (int32_t)order[i];
            best_cost = cost;
        }
    }
    return best;
}

/* A prefill node that would do for the decode node, were it not full: better to wait for it than to
 * read the prompt where answers are written. */
static bool has_full_prefill(const struct placement_snapshot *snapshot,
                             const struct placement_request *request, uint32_t kind)
{
    for (uint32_t i = 0; i < snapshot->count; i++) {
        const struct placement_worker *worker = &snapshot->workers[i];
        if (worker->up && worker->full && worker->role == WORKER_PREFILL && worker->kind == kind &&
            fits(worker, request))
            return true;
    }
    return false;
}

/* Why no decode node was chosen. */
static enum placement_reason why_none(const struct placement_snapshot *snapshot,
                                      const struct placement_request *request)
{
    enum placement_reason reason = PLACEMENT_NO_DECODE;
    for (uint32_t i = 0; i < snapshot->count; i++) {
        const struct placement_worker *worker = &snapshot->workers[i];
        if (!worker->up || worker->role != WORKER_DECODE)
            continue;
        if (fits(worker, request))
            return PLACEMENT_FULL;
        reason = PLACEMENT_TOO_LONG;
    }
    return reason;
}

/* The cheapest pair of one kind; false when no decode node has a prefill node to go with. */
static bool choose_pair(const struct placement_snapshot *snapshot,
                        const struct placement_request *request, struct placement *placement)
{
    uint32_t order[PLACEMENT_WORKERS_MAX];
    const uint32_t count = candidates(snapshot, request, WORKER_DECODE, NULL, order);
    double best_cost = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct placement_worker *worker = &snapshot->workers[order[i]];
        const int32_t prefill = cheapest(snapshot, request, WORKER_PREFILL, &worker->kind);
        if (prefill < 0)
            continue;
        const double cost = cost_s(worker) + cost_s(&snapshot->workers[prefill]);
        if (placement->decode < 0 || costs_less(cost, best_cost)) {
            placement->decode = (int32_t)order[i];
            placement->prefill = prefill;
            best_cost = cost;
        }
    }
    return placement->decode >= 0;
}

struct placement placement_choose(const struct placement_snapshot *snapshot,
                                  const struct placement_request *request)
{
    struct placement placement = {.prefill = -1, .decode = -1};
    const uint32_t answer = request->max_tokens < PLACEMENT_ANSWER_TOKENS ? request->max_tokens
                                                                          : PLACEMENT_ANSWER_TOKENS;
    if (choose_pair(snapshot, request, &placement)) {
        placement.reason = PLACEMENT_PAIR;
        placement.prefill_charge = request->prompt_tokens;
        placement.decode_charge = answer;
        placement.local_tokens = request->local_tokens;
        if (request->max_tokens == 1) {
            placement.reason = PLACEMENT_ONE_TOKEN;
            placement.decode = -1;
            placement.decode_charge = 0;
            placement.local_tokens = 0;
        }
        return placement;
    }
    placement.decode = cheapest(snapshot, request, WORKER_DECODE, NULL);
    if (placement.decode >= 0 &&
        has_full_prefill(snapshot, request, snapshot->workers[placement.decode].kind)) {
        placement.decode = -1;
        placement.reason = PLACEMENT_FULL;
    } else if (placement.decode >= 0) {
        placement.reason = PLACEMENT_LOCAL;
        placement.decode_charge = (uint64_t)request->prompt_tokens + answer;
    } else {
        placement.reason = why_none(snapshot, request);
    }
    return placement;
}
