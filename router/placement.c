#include "router/placement.h"

#include <math.h>

#include "base/check.h"

/* A pool is never counted as fuller than this, so that the pressure stays a number. */
#define PRESSURE_SHARE_MAX 0.99

const struct placement_policy placement_default_policy = {
    .prefill = {.queue = 1, .work = 1, .pressure_ms = 20},
    .decode = {.queue = 1, .work = 1, .pressure_ms = 100},
    .slow_start_ms = 10000,
    .slow_start_share = 0.1,
    .tie_ratio = 0.05,
    .tie_ms = 1,
    .stay_ms = 250,
    .stale_ms = 30000,
};

const char *placement_reason_name(enum placement_reason reason)
{
    static const char *const names[] = {
        [PLACEMENT_PAIR] = "pair",           [PLACEMENT_LOCAL] = "local",
        [PLACEMENT_UNPAIRED] = "unpaired",   [PLACEMENT_SHORT] = "short",
        [PLACEMENT_ONE_TOKEN] = "one_token", [PLACEMENT_NO_DECODE] = "no_decode",
        [PLACEMENT_FULL] = "full",           [PLACEMENT_TOO_LONG] = "too_long",
    };
    return (size_t)reason < ARRAY_COUNT(names) ? names[reason] : "unknown";
}

/* What is given, so that the leaves need not carry it around. */
struct question {
    const struct placement_policy *policy;
    const struct placement_snapshot *snapshot;
    const struct placement_request *request;
    uint32_t answer_tokens; /* as charged */
};

static const struct placement_worker *worker_at(const struct question *q, uint32_t index)
{
    return &q->snapshot->workers[index];
}

static struct placement_view view_of(const struct question *q, uint32_t index)
{
    return q->request->views ? q->request->views[index] : (struct placement_view){0};
}

/* At least one token is always computed: it gives the logits of the first new one. */
static uint32_t uncached_tokens(const struct question *q, uint32_t index)
{
    const uint32_t cached = view_of(q, index).cached_tokens;
    return cached < q->request->prompt_tokens ? q->request->prompt_tokens - cached : 1;
}

/* ---- predictions in milliseconds ---- */

static double tokens_per_ms(const struct placement_worker *worker)
{
    /* A worker that has measured nothing yet counts as slow, not as infinitely fast. */
    return (worker->tokens_per_s > 1.0 ? worker->tokens_per_s : 1.0) / 1e3;
}

double placement_read_tokens_per_s(const struct placement_worker *worker)
{
    return worker->role == WORKER_DECODE && worker->read_tokens_per_s > 0
               ? worker->read_tokens_per_s
               : worker->tokens_per_s;
}

static double read_tokens_per_ms(const struct placement_worker *worker)
{
    return fmax(placement_read_tokens_per_s(worker), 1.0) / 1e3;
}

static struct reading_pace pace_of(const struct placement_worker *worker)
{
    return worker->pace.token_ms > 0 ? worker->pace : reading_pace_flat(read_tokens_per_ms(worker));
}

/* Of a prompt that is about to be sent, behind `known` tokens that need not be read. */
static struct reading_pace expected_pace(const struct placement_worker *worker, double known,
                                         double tokens)
{
    const struct reading_pace measured = pace_of(worker);
    const double loaded_speed = worker->role == WORKER_DECODE ? worker->loaded_read_tokens_per_s
                                                              : worker->loaded_tokens_per_s;
    const struct reading_pace loaded = worker->loaded_pace.token_ms > 0
                                           ? worker->loaded_pace
                                           : reading_pace_flat(fmax(loaded_speed, 1.0) / 1e3);
    const bool faster =
        reading_pace_ms(&loaded, known, tokens) < reading_pace_ms(&measured, known, tokens);
    return worker->idle && faster ? loaded : measured;
}

static uint64_t queued_tokens(const struct placement_worker *worker)
{
    return worker->foreign_tokens + worker->inflight_tokens;
}

/* Of them, prompts: all that a prefill node has. */
static uint64_t unread_tokens(const struct placement_worker *worker)
{
    const uint64_t queued = queued_tokens(worker);
    const bool told = worker->role == WORKER_DECODE && worker->unread_tokens < queued;
    return told ? worker->unread_tokens : queued;
}

double placement_reading_ms(const struct placement_worker *worker)
{
    const double tokens = (double)unread_tokens(worker);
    const struct reading_pace *pace = &worker->pace;
    if (pace->token_ms > 0 && worker->unread_context > 0)
        return tokens * (pace->token_ms + pace->context_ms * worker->unread_context);
    return tokens / read_tokens_per_ms(worker);
}

double placement_queue_ms(const struct placement_worker *worker)
{
    return placement_reading_ms(worker) +
           (double)(queued_tokens(worker) - unread_tokens(worker)) / tokens_per_ms(worker);
}

static double pressure_ms(const struct placement_worker *worker, uint64_t new_tokens, double weight)
{
    if (worker->pages_total == 0 || worker->page_tokens == 0)
        return 0;
    const double new_pages = ceil((double)new_tokens / worker->page_tokens);
    const double share =
        fmin((worker->pages_used + new_pages) / worker->pages_total, PRESSURE_SHARE_MAX);
    return weight * share / (1 - share);
}

/* The share of its speed a worker counts with. */
static double slow_start(const struct placement_policy *policy,
                         const struct placement_worker *worker)
{
    if (worker->age_ms >= policy->slow_start_ms)
        return 1;
    return fmax(policy->slow_start_share, (double)worker->age_ms / policy->slow_start_ms);
}

/* reads: the prompt is its work. */
static double cost_ms(const struct question *q, uint32_t index, bool reads)
{
    const struct placement_worker *worker = worker_at(q, index);
    const bool decode = worker->role == WORKER_DECODE;
    const struct placement_weights *weights = decode ? &q->policy->decode : &q->policy->prefill;
    const uint32_t uncached = uncached_tokens(q, index);
    const struct reading_pace pace = pace_of(worker);
    const double work_ms =
        reads ? reading_pace_ms(&pace, q->request->prompt_tokens - uncached, uncached) : 0;
    const uint64_t held = (uint64_t)uncached + (decode ? q->answer_tokens : 0);
    return (weights->queue * placement_queue_ms(worker) + weights->work * work_ms) /
               slow_start(q->policy, worker) +
           pressure_ms(worker, held, weights->pressure_ms);
}

static double predicted_tpot_ms(const struct placement_worker *worker)
{
    if (worker->running == 0)
        return 0;
    /* One more row lengthens a step by nothing where memory is the limit, and by its share of the
     * batch where arithmetic is: half of that is never wrong by much. */
    if (worker->step_ms > 0)
        return worker->step_ms * (1 + 0.5 / worker->running);
    return (worker->running + 1) / tokens_per_ms(worker);
}

/* ---- who can ---- */

static bool fits(const struct placement_worker *worker, const struct placement_request *request)
{
    const uint64_t sequence = (uint64_t)request->prompt_tokens + request->max_tokens;
    if (sequence > worker->context_tokens)
        return false;
    /* A decode node comes to hold the whole answer too, a prefill node the prompt. */
    const uint64_t held = worker->role == WORKER_DECODE ? sequence : request->prompt_tokens;
    return worker->page_tokens == 0 || (uint64_t)worker->pages_total * worker->page_tokens >= held;
}

static bool would_do(const struct question *q, uint32_t index, enum worker_role role)
{
    const struct placement_worker *worker = worker_at(q, index);
    return worker->up && worker->role == role && !view_of(q, index).barred &&
           fits(worker, q->request);
}

static bool is_candidate(const struct question *q, uint32_t index, enum worker_role role)
{
    return would_do(q, index, role) && !worker_at(q, index)->full;
}

/* ---- the cheapest ---- */

/* Candidates with their costs, in the order of the snapshot. */
struct offers {
    uint32_t count;
    uint32_t index[PLACEMENT_WORKERS_MAX];
    double cost_ms[PLACEMENT_WORKERS_MAX]; /* with its partner's */
    double own_ms[PLACEMENT_WORKERS_MAX];
};

static void offer(struct offers *offers, uint32_t index, double own, double partner)
{
    offers->index[offers->count] = index;
    offers->own_ms[offers->count] = own;
    offers->cost_ms[offers->count++] = own + partner;
}

/* The worker of the session if it costs little more than the cheapest, else whose turn it is among
 * the cheapest; -1 of none. */
static int32_t choose(const struct question *q, const struct offers *offers, double *cost_out)
{
    if (offers->count == 0)
        return -1;
    uint32_t best = 0;
    for (uint32_t i = 1; i < offers->count; i++)
        best = offers->cost_ms[i] < offers->cost_ms[best] ? i : best;
    const double least = offers->cost_ms[best];
    const double tie = least + offers->own_ms[best] * q->policy->tie_ratio + q->policy->tie_ms;
    uint32_t ties[PLACEMENT_WORKERS_MAX];
    uint32_t tie_count = 0;
    for (uint32_t i = 0; i < offers->count; i++) {
        if (view_of(q, offers->index[i]).stays &&
            offers->cost_ms[i] <= least + q->policy->stay_ms) {
            *cost_out = offers->cost_ms[i];
            return (int32_t)offers->index[i];
        }
        if (offers->cost_ms[i] <= tie)
            ties[tie_count++] = i;
    }
    CHECK(tie_count > 0); /* the cheapest is one of them */
    const uint32_t chosen = ties[q->snapshot->turn % tie_count];
    *cost_out = offers->cost_ms[chosen];
    return (int32_t)offers->index[chosen];
}

/* The prefill node that a decode node of this kind would be paired with; -1 for none. */
static int32_t choose_prefill(const struct question *q, uint32_t kind, double *cost_out)
{
    struct offers offers = {.count = 0};
    for (uint32_t i = 0; i < q->snapshot->count; i++) {
        if (worker_at(q, i)->kind == kind && is_candidate(q, i, WORKER_PREFILL))
            offer(&offers, i, cost_ms(q, i, true), 0);
    }
    return choose(q, &offers, cost_out);
}

/* Decode nodes mostly are of one kind: its prefill node is looked for once. */
struct partner {
    bool known;
    uint32_t kind;
    int32_t prefill;
    double cost_ms;
};

static const struct partner *partner_of(const struct question *q, uint32_t kind,
                                        struct partner *partner)
{
    if (!partner->known || partner->kind != kind) {
        partner->known = true;
        partner->kind = kind;
        partner->prefill = choose_prefill(q, kind, &partner->cost_ms);
    }
    return partner;
}

/* The cheapest pair of one kind; false when no decode node has a prefill node to go with. */
static bool choose_pair(const struct question *q, struct placement *placement)
{
    struct offers offers = {.count = 0};
    struct partner partner = {.known = false};
    double cost;
    for (uint32_t i = 0; i < q->snapshot->count; i++) {
        if (!is_candidate(q, i, WORKER_DECODE) ||
            partner_of(q, worker_at(q, i)->kind, &partner)->prefill < 0)
            continue;
        /* The little that a decode node reads itself rides in one of its steps. */
        const bool short_read = uncached_tokens(q, i) <= q->request->local_tokens;
        offer(&offers, i, cost_ms(q, i, false), short_read ? 0 : partner.cost_ms);
    }
    placement->decode = choose(q, &offers, &cost);
    if (placement->decode < 0)
        return false;
    const uint32_t kind = worker_at(q, (uint32_t)placement->decode)->kind;
    placement->prefill = partner_of(q, kind, &partner)->prefill;
    return true;
}

static int32_t choose_alone(const struct question *q)
{
    struct offers offers = {.count = 0};
    double cost;
    for (uint32_t i = 0; i < q->snapshot->count; i++) {
        if (is_candidate(q, i, WORKER_DECODE))
            offer(&offers, i, cost_ms(q, i, true), 0);
    }
    return choose(q, &offers, &cost);
}

/* ---- why not ---- */

/* A prefill node that would do for the decode node, were it not full: better to wait for it than to
 * read the prompt where answers are written. */
static bool has_full_prefill(const struct question *q, uint32_t kind)
{
    for (uint32_t i = 0; i < q->snapshot->count; i++) {
        if (worker_at(q, i)->full && worker_at(q, i)->kind == kind &&
            would_do(q, i, WORKER_PREFILL))
            return true;
    }
    return false;
}

/* Prefill nodes are there, but of another kind. */
static bool has_strange_prefill(const struct question *q, uint32_t kind)
{
    bool strange = false;
    for (uint32_t i = 0; i < q->snapshot->count; i++) {
        const struct placement_worker *worker = worker_at(q, i);
        if (!worker->up || worker->role != WORKER_PREFILL)
            continue;
        if (worker->kind == kind)
            return false;
        strange = true;
    }
    return strange;
}

/* Why no decode node was chosen. */
static enum placement_reason why_none(const struct question *q)
{
    enum placement_reason reason = PLACEMENT_NO_DECODE;
    for (uint32_t i = 0; i < q->snapshot->count; i++) {
        const struct placement_worker *worker = worker_at(q, i);
        if (!worker->up || worker->role != WORKER_DECODE || view_of(q, i).barred)
            continue;
        if (fits(worker, q->request))
            return PLACEMENT_FULL;
        reason = PLACEMENT_TOO_LONG;
    }
    return reason;
}

/* ---- the answer ---- */

static void predict(const struct question *q, struct placement *placement)
{
    if (placement->decode >= 0)
        placement->tpot_ms = predicted_tpot_ms(worker_at(q, (uint32_t)placement->decode));
    const bool alone = placement->prefill < 0 ||
                       (placement->decode >= 0 &&
                        uncached_tokens(q, (uint32_t)placement->decode) <= placement->local_tokens);
    const uint32_t reader = (uint32_t)(alone ? placement->decode : placement->prefill);
    const struct placement_worker *worker = worker_at(q, reader);
    if (alone)
        placement->reading_charge = uncached_tokens(q, reader);
    if (alone && worker->read_tokens_per_s <= 0 && worker->pace.token_ms <= 0)
        return;
    const uint32_t uncached = uncached_tokens(q, reader);
    placement->cached_tokens = q->request->prompt_tokens - uncached;
    placement->pace = expected_pace(worker, placement->cached_tokens, uncached);
    placement->stale =
        worker->idle && q->policy->stale_ms > 0 && worker->rested_ms >= q->policy->stale_ms;
    placement->wait_ms = placement_reading_ms(worker);
    placement->ttft_ms =
        placement->wait_ms + reading_pace_ms(&placement->pace, placement->cached_tokens, uncached);
}

static void settle_pair(const struct question *q, struct placement *placement)
{
    placement->reason = PLACEMENT_PAIR;
    placement->prefill_charge = uncached_tokens(q, (uint32_t)placement->prefill);
    placement->decode_charge = q->answer_tokens;
    placement->local_tokens = q->request->local_tokens;
    if (q->request->max_tokens != 1)
        return;
    placement->reason = PLACEMENT_ONE_TOKEN;
    placement->decode = -1;
    placement->decode_charge = 0;
    placement->local_tokens = 0;
}

struct placement placement_choose(const struct placement_policy *policy,
                                  const struct placement_snapshot *snapshot,
                                  const struct placement_request *request)
{
    CHECK(snapshot->count <= PLACEMENT_WORKERS_MAX);
    struct placement placement = {.prefill = -1, .decode = -1};
    const struct question q = {.policy = policy,
                               .snapshot = snapshot,
                               .request = request,
                               .answer_tokens = request->max_tokens < PLACEMENT_ANSWER_TOKENS
                                                    ? request->max_tokens
                                                    : PLACEMENT_ANSWER_TOKENS};
    if (choose_pair(&q, &placement)) {
        settle_pair(&q, &placement);
        predict(&q, &placement);
        return placement;
    }
    placement.decode = choose_alone(&q);
    if (placement.decode < 0) {
        placement.reason = why_none(&q);
        return placement;
    }
    const uint32_t kind = worker_at(&q, (uint32_t)placement.decode)->kind;
    if (has_full_prefill(&q, kind)) {
        placement.decode = -1;
        placement.reason = PLACEMENT_FULL;
        return placement;
    }
    placement.reason = has_strange_prefill(&q, kind) ? PLACEMENT_UNPAIRED : PLACEMENT_LOCAL;
    placement.decode_charge =
        (uint64_t)uncached_tokens(&q, (uint32_t)placement.decode) + q.answer_tokens;
    predict(&q, &placement);
    return placement;
}
