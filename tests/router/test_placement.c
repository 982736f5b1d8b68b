#include <criterion/criterion.h>

#include "base/check.h"
#include "router/placement.h"

#define P(k, queued, speed)                                                                        \
    {                                                                                              \
        .role = WORKER_PREFILL, .up = true, .kind = (k), .context_tokens = 1000,                   \
        .page_tokens = 64, .pages_total = 100, .inflight_tokens = (queued),                        \
        .tokens_per_s = (speed)                                                                    \
    }
#define D(k, queued, speed)                                                                        \
    {                                                                                              \
        .role = WORKER_DECODE, .up = true, .kind = (k), .context_tokens = 1000, .page_tokens = 64, \
        .pages_total = 100, .inflight_tokens = (queued), .tokens_per_s = (speed)                   \
    }

struct row {
    const char *name;
    struct placement_worker workers[4];
    uint32_t count, turn;
    struct placement_request request;
    enum placement_reason reason;
    int32_t prefill, decode;
};

static const struct row rows[] = {
    {"nobody", {{0}}, 0, 0, {10, 5, 0}, PLACEMENT_NO_DECODE, -1, -1},
    {"prefill alone is not enough", {P(1, 0, 100)}, 1, 0, {10, 5, 0}, PLACEMENT_NO_DECODE, -1, -1},
    {"no prefill: local", {D(1, 0, 100)}, 1, 0, {10, 5, 0}, PLACEMENT_LOCAL, -1, 0},
    {"a pair", {D(1, 0, 100), P(1, 0, 100)}, 2, 0, {10, 5, 0}, PLACEMENT_PAIR, 1, 0},
    {"one token ends at prefill",
     {D(1, 0, 9), P(1, 0, 9)},
     2,
     0,
     {10, 1, 0},
     PLACEMENT_ONE_TOKEN,
     1,
     -1},
    {"one token without prefill", {D(1, 0, 9)}, 1, 0, {10, 1, 0}, PLACEMENT_LOCAL, -1, 0},
    {"other kinds are never paired",
     {D(1, 0, 9), P(2, 0, 9)},
     2,
     0,
     {10, 5, 0},
     PLACEMENT_LOCAL,
     -1,
     0},
    {"a pair before a cheaper local",
     {D(1, 0, 9), D(2, 900, 9), P(2, 900, 9)},
     3,
     0,
     {10, 5, 0},
     PLACEMENT_PAIR,
     2,
     1},
    {"less queued",
     {D(1, 50, 100), D(1, 40, 100), P(1, 9, 10), P(1, 8, 10)},
     4,
     0,
     {10, 5, 0},
     PLACEMENT_PAIR,
     3,
     1},
    {"faster though longer",
     {D(1, 50, 100), D(1, 40, 10), P(1, 0, 10)},
     3,
     0,
     {10, 5, 0},
     PLACEMENT_PAIR,
     2,
     0},
    {"ties go round: 0",
     {D(1, 0, 9), D(1, 0, 9), P(1, 0, 9), P(1, 0, 9)},
     4,
     0,
     {10, 5, 0},
     PLACEMENT_PAIR,
     2,
     0},
    {"ties go round: 1",
     {D(1, 0, 9), D(1, 0, 9), P(1, 0, 9), P(1, 0, 9)},
     4,
     1,
     {10, 5, 0},
     PLACEMENT_PAIR,
     3,
     1},
    {"ties go round: 2",
     {D(1, 0, 9), D(1, 0, 9), P(1, 0, 9), P(1, 0, 9)},
     4,
     2,
     {10, 5, 0},
     PLACEMENT_PAIR,
     2,
     0},
    {"the context is a limit",
     {D(1, 0, 9), P(1, 0, 9)},
     2,
     0,
     {900, 101, 0},
     PLACEMENT_TOO_LONG,
     -1,
     -1},
    {"to the token", {D(1, 0, 9), P(1, 0, 9)}, 2, 0, {900, 100, 0}, PLACEMENT_PAIR, 1, 0},
};

Test(placement, table)
{
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct row *row = &rows[i];
        const struct placement_snapshot snapshot = {row->workers, row->count, row->turn};
        const struct placement placement = placement_choose(&snapshot, &row->request);
        cr_expect_eq(placement.reason, row->reason, "%s: %s", row->name,
                     placement_reason_name(placement.reason));
        cr_expect_eq(placement.prefill, row->prefill, "%s: P %d", row->name, placement.prefill);
        cr_expect_eq(placement.decode, row->decode, "%s: D %d", row->name, placement.decode);
    }
}

static struct placement choose(const struct placement_worker *workers, uint32_t count,
                               uint32_t prompt, uint32_t max_tokens)
{
    const struct placement_snapshot snapshot = {workers, count, 0};
    const struct placement_request request = {prompt, max_tokens, 0};
    return placement_choose(&snapshot, &request);
}

Test(placement, down_and_full_workers_are_passed_over)
{
    struct placement_worker workers[] = {D(1, 0, 9), D(1, 500, 9), P(1, 0, 9), P(1, 500, 9)};
    workers[0].up = workers[2].up = false;
    cr_expect_eq(choose(workers, 4, 10, 5).decode, 1);
    cr_expect_eq(choose(workers, 4, 10, 5).prefill, 3);
    workers[0].up = workers[2].up = true;
    workers[0].full = workers[2].full = true;
    cr_expect_eq(choose(workers, 4, 10, 5).decode, 1);
    cr_expect_eq(choose(workers, 4, 10, 5).prefill, 3);
    workers[1].full = true;
    cr_expect_eq(choose(workers, 4, 10, 5).reason, PLACEMENT_FULL);
    workers[0].full = workers[1].full = false;
    workers[3].full = true;
    cr_expect_eq(choose(workers, 4, 10, 5).reason, PLACEMENT_FULL,
                 "a prompt waits for its prefill node");
}

/* Only where there is a pair is there a choice. */
Test(placement, a_pair_says_what_the_decode_node_may_read)
{
    const struct placement_worker workers[] = {D(1, 0, 9), P(1, 0, 9)};
    const struct placement_snapshot both = {workers, 2, 0}, alone = {workers, 1, 0};
    struct placement_request request = {100, 20, 32};
    cr_expect_eq(placement_choose(&both, &request).local_tokens, 32);
    cr_expect_eq(placement_choose(&alone, &request).local_tokens, 0);
    request.max_tokens = 1;
    cr_expect_eq(placement_choose(&both, &request).local_tokens, 0);
}

Test(placement, charges)
{
    const struct placement_worker pair[] = {D(1, 0, 9), P(1, 0, 9)};
    struct placement placement = choose(pair, 2, 100, 20);
    cr_expect_eq(placement.prefill_charge, 100);
    cr_expect_eq(placement.decode_charge, 20);
    placement = choose(pair, 2, 100, 900);
    cr_expect_eq(placement.decode_charge, PLACEMENT_ANSWER_TOKENS,
                 "an unset length is no long answer");
    const struct placement_worker alone[] = {D(1, 0, 9)};
    placement = choose(alone, 1, 100, 20);
    cr_expect_eq(placement.decode_charge, 120);
    cr_expect_eq(placement.prefill_charge, 0);
}

Test(placement, pages_are_a_limit)
{
    struct placement_worker workers[] = {D(1, 0, 9), P(1, 0, 9)};
    workers[0].pages_total = 2;
    cr_expect_eq(choose(workers, 2, 100, 28).reason, PLACEMENT_PAIR);
    cr_expect_eq(choose(workers, 2, 100, 29).reason, PLACEMENT_TOO_LONG);
    workers[0].pages_total = 100;
    workers[1].pages_total = 1;
    cr_expect_eq(choose(workers, 2, 100, 28).reason, PLACEMENT_LOCAL, "the prefill node is small");
}

/* Load is spread as charges are booked, also when nobody has measured anything. */
Test(placement, spreads_as_it_charges)
{
    struct placement_worker workers[] = {D(1, 0, 0), D(1, 0, 0), P(1, 0, 0), P(1, 0, 0)};
    uint32_t placed[4] = {0};
    for (uint32_t i = 0; i < 100; i++) {
        const struct placement_snapshot snapshot = {workers, 4, i};
        const struct placement_request request = {i % 5 == 0 ? 500 : 10, 10, 0};
        const struct placement placement = placement_choose(&snapshot, &request);
        workers[placement.prefill].inflight_tokens += placement.prefill_charge;
        workers[placement.decode].inflight_tokens += placement.decode_charge;
        placed[placement.prefill]++;
        placed[placement.decode]++;
    }
    cr_expect_eq(placed[0], 50);
    cr_expect_eq(placed[1], 50);
    const uint64_t a = workers[2].inflight_tokens, b = workers[3].inflight_tokens;
    cr_expect_leq(a > b ? a - b : b - a, 500, "%lu and %lu", (unsigned long)a, (unsigned long)b);
}
