#include <criterion/criterion.h>
#include <math.h>

#include "base/check.h"
#include "router/placement.h"

static const struct placement_policy *const policy = &placement_default_policy;

#define P(k, queued, speed)                                                                        \
    {                                                                                              \
        .role = WORKER_PREFILL, .up = true, .kind = (k), .context_tokens = 1000,                   \
        .page_tokens = 64, .pages_total = 100, .inflight_tokens = (queued),                        \
        .tokens_per_s = (speed), .age_ms = 60000                                                   \
    }
#define D(k, queued, speed)                                                                        \
    {                                                                                              \
        .role = WORKER_DECODE, .up = true, .kind = (k), .context_tokens = 1000, .page_tokens = 64, \
        .pages_total = 100, .inflight_tokens = (queued), .tokens_per_s = (speed), .age_ms = 60000  \
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
    {"nobody", {{0}}, 0, 0, {10, 5, 0, NULL}, PLACEMENT_NO_DECODE, -1, -1},
    {"prefill alone is not enough",
     {P(1, 0, 100)},
     1,
     0,
     {10, 5, 0, NULL},
     PLACEMENT_NO_DECODE,
     -1,
     -1},
    {"no prefill: local", {D(1, 0, 100)}, 1, 0, {10, 5, 0, NULL}, PLACEMENT_LOCAL, -1, 0},
    {"a pair", {D(1, 0, 100), P(1, 0, 100)}, 2, 0, {10, 5, 0, NULL}, PLACEMENT_PAIR, 1, 0},
    {"one token ends at prefill",
     {D(1, 0, 9), P(1, 0, 9)},
     2,
     0,
     {10, 1, 0, NULL},
     PLACEMENT_ONE_TOKEN,
     1,
     -1},
    {"one token without prefill", {D(1, 0, 9)}, 1, 0, {10, 1, 0, NULL}, PLACEMENT_LOCAL, -1, 0},
    {"other kinds are never paired",
     {D(1, 0, 9), P(2, 0, 9)},
     2,
     0,
     {10, 5, 0, NULL},
     PLACEMENT_UNPAIRED,
     -1,
     0},
    {"a pair before a cheaper local",
     {D(1, 0, 9), D(2, 900, 9), P(2, 900, 9)},
     3,
     0,
     {10, 5, 0, NULL},
     PLACEMENT_PAIR,
     2,
     1},
    {"less queued",
     {D(1, 50, 100), D(1, 40, 100), P(1, 9, 10), P(1, 8, 10)},
     4,
     0,
     {10, 5, 0, NULL},
     PLACEMENT_PAIR,
     3,
     1},
    {"faster though longer",
     {D(1, 50, 100), D(1, 40, 10), P(1, 0, 10)},
     3,
     0,
     {10, 5, 0, NULL},
     PLACEMENT_PAIR,
     2,
     0},
    {"ties go round: 0",
     {D(1, 0, 9), D(1, 0, 9), P(1, 0, 9), P(1, 0, 9)},
     4,
     0,
     {10, 5, 0, NULL},
     PLACEMENT_PAIR,
     2,
     0},
    {"ties go round: 1",
     {D(1, 0, 9), D(1, 0, 9), P(1, 0, 9), P(1, 0, 9)},
     4,
     1,
     {10, 5, 0, NULL},
     PLACEMENT_PAIR,
     3,
     1},
    {"ties go round: 2",
     {D(1, 0, 9), D(1, 0, 9), P(1, 0, 9), P(1, 0, 9)},
     4,
     2,
     {10, 5, 0, NULL},
     PLACEMENT_PAIR,
     2,
     0},
    {"the context is a limit",
     {D(1, 0, 9), P(1, 0, 9)},
     2,
     0,
     {900, 101, 0, NULL},
     PLACEMENT_TOO_LONG,
     -1,
     -1},
    {"to the token", {D(1, 0, 9), P(1, 0, 9)}, 2, 0, {900, 100, 0, NULL}, PLACEMENT_PAIR, 1, 0},
};

Test(placement, table)
{
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct row *row = &rows[i];
        const struct placement_snapshot snapshot = {row->workers, row->count, row->turn};
        const struct placement placement = placement_choose(policy, &snapshot, &row->request);
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
    const struct placement_request request = {prompt, max_tokens, 0, NULL};
    return placement_choose(policy, &snapshot, &request);
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
    struct placement_request request = {100, 20, 32, NULL};
    cr_expect_eq(placement_choose(policy, &both, &request).local_tokens, 32);
    cr_expect_eq(placement_choose(policy, &alone, &request).local_tokens, 0);
    request.max_tokens = 1;
    cr_expect_eq(placement_choose(policy, &both, &request).local_tokens, 0);
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
        const struct placement_request request = {i % 5 == 0 ? 500 : 10, 10, 0, NULL};
        const struct placement placement = placement_choose(policy, &snapshot, &request);
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

static struct placement choose_with(const struct placement_worker *workers,
                                    const struct placement_view *views, uint32_t count,
                                    uint32_t turn, struct placement_request request)
{
    const struct placement_snapshot snapshot = {workers, count, turn};
    request.views = views;
    return placement_choose(policy, &snapshot, &request);
}

/* Whoever's turn it is, a prompt goes where its beginning is, unless the wait there is longer than
 * reading it anew. */
Test(placement, a_cached_beginning_is_worth_its_reading)
{
    struct placement_worker workers[] = {D(1, 0, 100), P(1, 0, 1000), P(1, 0, 1000)};
    struct placement_view views[3] = {{0}, {0}, {.cached_tokens = 512}};
    for (uint32_t turn = 0; turn < 4; turn++) {
        const struct placement placement =
            choose_with(workers, views, 3, turn, (struct placement_request){640, 20, 0, NULL});
        cr_expect_eq(placement.prefill, 2);
        cr_expect_eq(placement.prefill_charge, 128, "what is cached is no work");
        cr_expect_eq(placement.cached_tokens, 512);
    }
    workers[2].inflight_tokens = 400;
    cr_expect_eq(
        choose_with(workers, views, 3, 0, (struct placement_request){640, 20, 0, NULL}).prefill, 2);
    workers[2].foreign_tokens = 400;
    cr_expect_eq(
        choose_with(workers, views, 3, 0, (struct placement_request){640, 20, 0, NULL}).prefill, 1,
        "800 tokens before it, 512 to be had");
    /* All of it is there: the last token is computed all the same. */
    views[1].cached_tokens = 640;
    cr_expect_eq(choose_with(workers, views, 3, 0, (struct placement_request){640, 20, 0, NULL})
                     .prefill_charge,
                 1);
}

/* It reads the little that is not in its pages itself, so a busy prefill node is no matter. */
Test(placement, a_decode_node_that_has_the_prompt_needs_no_prefill_node)
{
    struct placement_worker workers[] = {D(1, 0, 100), D(1, 10, 100), P(1, 9000, 1000)};
    const struct placement_view views[3] = {{0}, {.cached_tokens = 320}, {0}};
    struct placement_request request = {350, 20, 32, NULL};
    const struct placement placement = choose_with(workers, views, 3, 0, request);
    cr_expect_eq(placement.decode, 1);
    cr_expect_eq(placement.ttft_ms, 0, "one that does not tell how it reads");
    request.local_tokens = 16;
    cr_expect_eq(choose_with(workers, views, 3, 0, request).decode, 0);
}

/* It writes 100 tokens a second and reads 1,000, and has 300 to read and 50 to write. */
Test(placement, a_decode_node_reads_at_another_speed_than_it_writes)
{
    struct placement_worker workers[] = {D(1, 350, 100), D(1, 0, 100)};
    const struct placement_request request = {400, 20, 0, NULL};
    for (int i = 0; i < 2; i++) {
        workers[i].read_tokens_per_s = 1000;
        workers[i].loaded_read_tokens_per_s = 4000;
    }
    workers[0].unread_tokens = 300;
    cr_expect_float_eq(placement_reading_ms(&workers[0]), 300, 1e-9);
    cr_expect_float_eq(placement_queue_ms(&workers[0]), 800, 1e-9);
    struct placement placement = choose_with(workers, NULL, 1, 0, request);
    cr_expect_eq(placement.reason, PLACEMENT_LOCAL);
    cr_expect_float_eq(placement.wait_ms, 300, 1e-9, "answers are written beside");
    cr_expect_float_eq(placement.ttft_ms, 700, 1e-9);
    cr_expect_eq(placement.reading_charge, 400);
    cr_expect_eq(placement.decode_charge, 420);
    placement = choose_with(workers, NULL, 2, 0, request);
    cr_expect_eq(placement.decode, 1);
    cr_expect_float_eq(placement.ttft_ms, 400, 1e-9);
    workers[1].idle = true;
    cr_expect_float_eq(choose_with(workers, NULL, 2, 0, request).ttft_ms, 100, 1e-9,
                       "idle, it is no slower than when it was loaded");
    /* Of a pair it reads what is short, and nothing else. */
    const struct placement_worker pair[] = {workers[0], P(1, 0, 1000)};
    const struct placement_view held[2] = {{.cached_tokens = 384}, {0}};
    struct placement_request with = {400, 20, 32, NULL};
    placement = choose_with(pair, held, 2, 0, with);
    cr_expect_eq(placement.reading_charge, 16);
    cr_expect_float_eq(placement.ttft_ms, 316, 1e-9);
    cr_expect_eq(choose_with(pair, NULL, 2, 0, with).reading_charge, 0);
    cr_expect_float_eq(choose_with(pair, NULL, 2, 0, with).ttft_ms, 400, 1e-9);
}

/* Each token takes 1 ms and 1 us more for each one before it. */
Test(placement, long_prompts_take_longer_than_their_tokens_say)
{
    struct placement_worker workers[] = {D(1, 0, 100), P(1, 0, 1000)};
    const struct placement_view held[2] = {{0}, {.cached_tokens = 512}};
    struct placement_request request = {800, 1, 0, NULL};
    workers[1].pace = (struct reading_pace){1, 0.001};
    struct placement placement = choose_with(workers, NULL, 2, 0, request);
    cr_expect_float_eq(placement.ttft_ms, 800 + 320, 1e-9);
    cr_expect_float_eq(choose_with(workers, held, 2, 0, request).ttft_ms, 288 + 0.288 * (512 + 144),
                       1e-9, "what is cached is no work, but is looked at");
    workers[1].inflight_tokens = 100;
    cr_expect_float_eq(choose_with(workers, NULL, 2, 0, request).wait_ms, 100, 1e-9,
                       "nobody knows how deep they are: by its speed");
    workers[1].unread_context = 500;
    cr_expect_float_eq(choose_with(workers, NULL, 2, 0, request).wait_ms, 150, 1e-9);
    /* Idle, it is no slower than at load. */
    workers[1].inflight_tokens = 0;
    workers[1].loaded_pace = (struct reading_pace){0.5, 0.002};
    workers[1].idle = true;
    cr_expect_float_eq(choose_with(workers, NULL, 2, 0, request).ttft_ms, 400 + 640, 1e-9);
    request.prompt_tokens = 100;
    cr_expect_float_eq(choose_with(workers, NULL, 2, 0, request).ttft_ms, 60, 1e-9);
    workers[1].idle = false;
    cr_expect_float_eq(choose_with(workers, NULL, 2, 0, request).ttft_ms, 105, 1e-9);
    /* A decode node alone as well, though it does not tell a speed of its own. */
    workers[0].pace = (struct reading_pace){2, 0};
    cr_expect_float_eq(choose_with(workers, NULL, 1, 0, request).ttft_ms, 200, 1e-9);
}

/* Both are idle, but where 97 of 100 pages are taken somebody would soon be preempted. */
Test(placement, full_pools_are_shunned)
{
    struct placement_worker workers[] = {D(1, 0, 100), D(1, 50, 100), P(1, 0, 1000)};
    cr_expect_eq(
        choose_with(workers, NULL, 3, 0, (struct placement_request){100, 20, 0, NULL}).decode, 0);
    workers[0].pages_used = 50;
    cr_expect_eq(
        choose_with(workers, NULL, 3, 0, (struct placement_request){100, 20, 0, NULL}).decode, 0,
        "half full costs w, which is less than half a second");
    workers[0].pages_used = 95;
    cr_expect_eq(
        choose_with(workers, NULL, 3, 0, (struct placement_request){100, 20, 0, NULL}).decode, 1);
    /* More than all, as reports and bookings may add up to, is no division by nothing. */
    workers[0].pages_used = workers[1].pages_used = UINT32_MAX;
    cr_expect_geq(
        choose_with(workers, NULL, 3, 0, (struct placement_request){100, 20, 0, NULL}).decode, 0);
}

/* A node that has come back with an honest nothing does not get everything. */
Test(placement, new_workers_start_slowly)
{
    struct placement_worker workers[] = {D(1, 0, 100), P(1, 200, 1000), P(1, 0, 1000)};
    const struct placement_request request = {300, 20, 0, NULL};
    workers[2].age_ms = 0;
    cr_expect_eq(choose_with(workers, NULL, 3, 0, request).prefill, 1, "a tenth of its speed");
    workers[2].age_ms = policy->slow_start_ms / 2;
    cr_expect_eq(choose_with(workers, NULL, 3, 0, request).prefill, 1, "600 ms against 500");
    workers[2].age_ms = policy->slow_start_ms * 3 / 4;
    cr_expect_eq(choose_with(workers, NULL, 3, 0, request).prefill, 2, "400 ms against 500");
    const struct placement placement = choose_with(workers, NULL, 3, 0, request);
    cr_expect_float_eq(placement.ttft_ms, 300, 1e-9, "it is not really slower");
}

Test(placement, a_session_stays_unless_that_costs_much)
{
    struct placement_worker workers[] = {D(1, 0, 1000), D(1, 0, 1000), P(1, 0, 1000),
                                         P(1, 0, 1000)};
    const struct placement_request request = {100, 20, 0, NULL};
    const struct placement_view views[] = {{0}, {.stays = true}, {.stays = true}, {0}};
    for (uint32_t turn = 0; turn < 4; turn++) {
        const struct placement placement = choose_with(workers, views, 4, turn, request);
        cr_expect_eq(placement.decode, 1);
        cr_expect_eq(placement.prefill, 2);
    }
    workers[1].inflight_tokens = workers[2].inflight_tokens = 240;
    cr_expect_eq(choose_with(workers, views, 4, 0, request).decode, 1);
    cr_expect_eq(choose_with(workers, views, 4, 0, request).prefill, 2);
    workers[1].inflight_tokens = workers[2].inflight_tokens = 300;
    cr_expect_eq(choose_with(workers, views, 4, 0, request).decode, 0, "overloaded");
    cr_expect_eq(choose_with(workers, views, 4, 0, request).prefill, 3);
    workers[1].inflight_tokens = workers[2].inflight_tokens = 0;
    workers[1].up = false;
    workers[2].full = true;
    cr_expect_eq(choose_with(workers, views, 4, 0, request).decode, 0, "gone");
    cr_expect_eq(choose_with(workers, views, 4, 0, request).prefill, 3, "full");
}

Test(placement, who_failed_the_request_does_not_get_it_again)
{
    const struct placement_worker workers[] = {D(1, 0, 9), P(1, 0, 9), P(1, 900, 9)};
    struct placement_view views[3] = {{0}, {.barred = true}, {0}};
    const struct placement_request request = {10, 5, 0, NULL};
    cr_expect_eq(choose_with(workers, views, 3, 0, request).prefill, 2);
    views[2].barred = true;
    cr_expect_eq(choose_with(workers, views, 3, 0, request).reason, PLACEMENT_LOCAL);
    views[0].barred = true;
    cr_expect_eq(choose_with(workers, views, 3, 0, request).reason, PLACEMENT_NO_DECODE);
}

/* Measurements are never equal: what differs by a few per cent goes round. */
Test(placement, nearly_equal_costs_go_round)
{
    struct placement_worker workers[] = {D(1, 0, 100), P(1, 0, 1000), P(1, 0, 1030), P(1, 0, 1200)};
    const struct placement_request request = {300, 20, 0, NULL};
    workers[3].up = false;
    uint32_t placed[4] = {0};
    for (uint32_t turn = 7; turn < 17; turn++)
        placed[choose_with(workers, NULL, 4, turn, request).prefill]++;
    cr_expect_eq(placed[1], 5);
    cr_expect_eq(placed[2], 5);
    workers[3].up = true;
    for (uint32_t turn = 7; turn < 17; turn++)
        cr_expect_eq(choose_with(workers, NULL, 4, turn, request).prefill, 3);
}

/* One slow worker of three (R10): what it is given is what it can do. */
Test(placement, a_slow_worker_gets_its_share)
{
    struct placement_worker workers[] = {D(1, 0, 1000), P(1, 0, 1000), P(1, 0, 1000), P(1, 0, 100)};
    uint32_t placed[4] = {0};
    for (uint32_t i = 0; i < 420; i++) {
        const struct placement placement =
            choose_with(workers, NULL, 4, i, (struct placement_request){100, 1, 0, NULL});
        workers[placement.prefill].inflight_tokens += placement.prefill_charge;
        placed[placement.prefill]++;
    }
    cr_expect_leq(placed[3], 25, "%u of 420", placed[3]);
    cr_expect_geq(placed[3], 15, "%u of 420", placed[3]);
}

Test(placement, paces)
{
    static const float odd[][2] = {{0, 1},   {-1, 1},       {NAN, 1},
                                   {1, NAN}, {INFINITY, 0}, {1, INFINITY}};
    for (size_t i = 0; i < ARRAY_COUNT(odd); i++)
        cr_expect_eq(reading_pace_told(odd[i][0], odd[i][1]).token_ms, 0, "row %zu", i);
    const struct reading_pace told = reading_pace_told(250, -1);
    cr_expect_float_eq(told.token_ms, 0.25, 1e-9);
    cr_expect_eq(told.context_ms, 0);
    static const struct {
        struct reading_pace pace;
        double known, tokens;
    } rows[] = {{{1, 0}, 0, 100},         {{1, 0}, 5000, 100},         {{0.4, 0.0002}, 0, 1},
                {{0.4, 0.0002}, 0, 8000}, {{0.4, 0.0002}, 3000, 8000}, {{1e-3, 1}, 0, 1e6},
                {{100, 1e-12}, 0, 1e6}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const double ms = reading_pace_ms(&rows[i].pace, rows[i].known, rows[i].tokens);
        cr_expect_float_eq(reading_pace_tokens(&rows[i].pace, rows[i].known, ms), rows[i].tokens,
                           1e-6 * rows[i].tokens, "row %zu", i);
    }
    cr_expect_eq(reading_pace_tokens(&told, 0, 0), 0);
    cr_expect_eq(reading_pace_tokens(&told, 0, -5), 0);
    cr_expect_eq(reading_pace_tokens(&told, 0, 1e300), 1e9);
    cr_expect_eq(reading_pace_tokens(&(struct reading_pace){0}, 0, 10), 0, "nobody knows");
    /* Prompts of which only sums are known: 300 tokens behind nothing, 100 behind 1,000. */
    struct reading_depth depth = {0};
    cr_expect_eq(reading_depth_mean(&depth), 0);
    reading_depth_add(&depth, 300, 300);
    cr_expect_float_eq(reading_depth_mean(&depth), 150, 1e-9);
    reading_depth_add(&depth, 1100, 100);
    cr_expect_float_eq(reading_depth_mean(&depth), (300.0 * 150 + 100 * 1050) / 400, 1e-9);
    reading_depth_remove(&depth, 300, 300);
    cr_expect_float_eq(reading_depth_mean(&depth), 1050, 1e-9);
    reading_depth_remove(&depth, 1100, 100);
    cr_expect(depth.tokens == 0 && depth.contexts == 0);
}

Test(placement, predictions)
{
    struct placement_worker workers[] = {D(1, 0, 100), P(1, 500, 1000)};
    const struct placement_request request = {300, 20, 0, NULL};
    struct placement placement = choose_with(workers, NULL, 2, 0, request);
    cr_expect_float_eq(placement.wait_ms, 500, 1e-9);
    cr_expect_float_eq(placement.ttft_ms, 800, 1e-9);
    cr_expect_float_eq(placement.pace.token_ms, 1, 1e-9);
    cr_expect_eq(placement.tpot_ms, 0, "nothing else runs there");
    workers[0].running = 4;
    placement = choose_with(workers, NULL, 2, 0, request);
    cr_expect_float_eq(placement.tpot_ms, 50, 1e-9, "five share 100 tokens/s");
    workers[0].step_ms = 40;
    placement = choose_with(workers, NULL, 2, 0, request);
    cr_expect_float_eq(placement.tpot_ms, 45, 1e-9, "its steps were measured");
}

Test(placement, every_reason_has_a_name)
{
    for (int reason = 0; reason < PLACEMENT_REASON_COUNT; reason++)
        cr_expect_str_neq(placement_reason_name((enum placement_reason)reason), "unknown");
}
