/* Who may come in, when to come again, and whether that comes true, in virtual time. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "router/admission.h"
#include "router/backlog.h"

/* ---- verdicts ---- */

static const struct {
    const char *name;
    struct admission_targets targets;
    double waited_ms;
    struct placement placement;
    enum admission_verdict verdict;
    uint32_t fitting, retry_s;
} predictions[] = {
    {"no targets", {0, 0, 0}, 9e9, {.ttft_ms = 1e9, .tpot_ms = 1e9}, ADMISSION_OK, 0, 1},
    {"met to the millisecond",
     {.ttft_ms = 1000},
     200,
     {.wait_ms = 500, .ttft_ms = 800, .pace = {.token_ms = 0.5}},
     ADMISSION_OK,
     0,
     1},
    {"missed by waiting",
     {.ttft_ms = 1000},
     201,
     {.wait_ms = 500, .ttft_ms = 800, .pace = {.token_ms = 0.5}},
     ADMISSION_TTFT,
     598,
     1},
    {"what is cached is no work",
     {.ttft_ms = 1000},
     0,
     {.wait_ms = 700, .ttft_ms = 2700, .pace = {.token_ms = 1}, .cached_tokens = 512},
     ADMISSION_TTFT,
     812,
     1},
    {"of a long prompt the end takes longest",
     {.ttft_ms = 1000},
     0,
     {.ttft_ms = 5000, .pace = {.token_ms = 0.5, .context_ms = 0.002}},
     ADMISSION_TTFT,
     780, /* 0.5 n + 0.001 n n = 1000 */
     1},
    {"and behind what is cached all of it",
     {.ttft_ms = 1000},
     0,
     {.ttft_ms = 5000, .pace = {.token_ms = 0.5, .context_ms = 0.002}, .cached_tokens = 750},
     ADMISSION_TTFT,
     750 + 414, /* 2 n + 0.001 n n = 1000 */
     1},
    {"nothing would have fitted",
     {.ttft_ms = 1000},
     0,
     {.wait_ms = 61500, .ttft_ms = 61600, .pace = {.token_ms = 1}},
     ADMISSION_TTFT,
     0,
     62},
    {"the client's deadline",
     {.ttft_ms = 5000, .left_ms = 300},
     100,
     {.wait_ms = 100, .ttft_ms = 400, .pace = {.token_ms = 1}},
     ADMISSION_DEADLINE,
     200,
     1},
    {"the client's deadline is met",
     {.left_ms = 300},
     100,
     {.wait_ms = 100, .ttft_ms = 300, .pace = {.token_ms = 1}},
     ADMISSION_OK,
     0,
     1},
    {"too slow", {.tpot_ms = 50}, 0, {.tpot_ms = 50.1}, ADMISSION_TPOT, 0, 1},
    {"just fast enough", {.tpot_ms = 50}, 0, {.tpot_ms = 50}, ADMISSION_OK, 0, 1},
    {"no prediction is no refusal",
     {.ttft_ms = 1, .tpot_ms = 1},
     0,
     {.ttft_ms = 0},
     ADMISSION_OK,
     0,
     1},
    {"a stale speed refuses nobody",
     {.ttft_ms = 1, .left_ms = 1},
     0,
     {.ttft_ms = 5000, .pace = {.token_ms = 1}, .stale = true},
     ADMISSION_OK,
     0,
     1},
    {"but says nothing of the pace of answers",
     {.ttft_ms = 1, .tpot_ms = 50},
     0,
     {.ttft_ms = 5000, .pace = {.token_ms = 1}, .tpot_ms = 60, .stale = true},
     ADMISSION_TPOT,
     0,
     1},
    {"an end to patience",
     {.ttft_ms = 1},
     0,
     {.wait_ms = 1e12, .ttft_ms = 1e12, .pace = {.token_ms = 1}},
     ADMISSION_TTFT,
     0,
     ADMISSION_RETRY_MAX_S},
};

Test(admission, predictions_against_targets)
{
    for (size_t i = 0; i < ARRAY_COUNT(predictions); i++) {
        const struct admission admission = admission_predict(
            &predictions[i].targets, predictions[i].waited_ms, &predictions[i].placement);
        cr_expect_eq(admission.verdict, predictions[i].verdict, "%s: %d", predictions[i].name,
                     (int)admission.verdict);
        cr_expect_eq(admission.fitting_tokens, predictions[i].fitting, "%s: %u",
                     predictions[i].name, admission.fitting_tokens);
        cr_expect_eq(admission.retry_s, predictions[i].retry_s, "%s: %u", predictions[i].name,
                     admission.retry_s);
    }
}

Test(admission, the_queue_is_limited_in_each_way)
{
    static const struct admission_queue limits = {3, 1000, 5000};
    static const struct {
        struct admission_queue now;
        uint64_t tokens, bytes;
        enum admission_verdict verdict;
    } rows[] = {
        {{0, 0, 0}, 1000, 5000, ADMISSION_OK},     {{2, 999, 4999}, 1, 1, ADMISSION_OK},
        {{3, 0, 0}, 1, 1, ADMISSION_QUEUE},        {{0, 999, 0}, 2, 1, ADMISSION_QUEUE},
        {{0, 0, 4999}, 1, 2, ADMISSION_QUEUE},     {{0, 0, 0}, 1001, 1, ADMISSION_QUEUE},
        {{9, 9999, 99999}, 0, 0, ADMISSION_QUEUE},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct admission admission =
            admission_queue(&limits, &rows[i].now, rows[i].tokens, rows[i].bytes, 2500);
        cr_expect_eq(admission.verdict, rows[i].verdict, "row %zu", i);
        cr_expect_eq(admission.retry_s, 3);
    }
    const struct admission_queue none = {0, 0, 0}, much = {1 << 30, 1 << 30, 1 << 30};
    cr_expect_eq(admission_queue(&none, &much, 1 << 20, 1 << 20, 0).verdict, ADMISSION_OK);
}

Test(admission, sentences_name_the_prediction_the_target_and_what_would_fit)
{
    const struct admission_targets targets = {.ttft_ms = 1000, .tpot_ms = 50, .left_ms = 300};
    struct admission admission = {
        .verdict = ADMISSION_TTFT, .ttft_ms = 2345.4, .fitting_tokens = 812, .retry_s = 2};
    char text[ERROR_TEXT_BYTES];
    admission_explain(&admission, &targets, text, sizeof text);
    cr_expect(strstr(text, "2345") && strstr(text, "1000") && strstr(text, "812"), "%s", text);
    admission.fitting_tokens = 0;
    admission_explain(&admission, &targets, text, sizeof text);
    cr_expect(strstr(text, "no prompt"), "%s", text);
    admission.verdict = ADMISSION_DEADLINE;
    admission_explain(&admission, &targets, text, sizeof text);
    cr_expect(strstr(text, "300"), "%s", text);
    admission.verdict = ADMISSION_TPOT;
    admission.tpot_ms = 61.25;
    admission_explain(&admission, &targets, text, sizeof text);
    cr_expect(strstr(text, "61.2") && strstr(text, "50"), "%s", text);
    const struct admission_queue limits = {8, 1000, 5000}, now = {3, 990, 0};
    admission = admission_queue(&limits, &now, 24, 100, 1500);
    admission_explain(&admission, &targets, text, sizeof text);
    cr_expect(strstr(text, "1014 tokens of prompts") && strstr(text, "limit is 1000") &&
                  strstr(text, "2 s"),
              "%s", text);
}

Test(admission, the_slower_role_decides_when_all_is_done)
{
    struct placement_worker workers[] = {
        {.role = WORKER_PREFILL, .up = true, .inflight_tokens = 500, .tokens_per_s = 1000},
        {.role = WORKER_PREFILL, .up = true, .foreign_tokens = 300, .tokens_per_s = 1000},
        {.role = WORKER_DECODE, .up = true, .inflight_tokens = 30, .tokens_per_s = 100},
    };
    const struct placement_snapshot snapshot = {workers, 3, 0};
    cr_expect_float_eq(admission_drain_ms(&snapshot, 0, 0), 400, 1e-9);
    cr_expect_float_eq(admission_drain_ms(&snapshot, 200, 0), 500, 1e-9);
    cr_expect_float_eq(admission_drain_ms(&snapshot, 200, 70), 1000, 1e-9);
    workers[0].up = workers[1].up = false;
    cr_expect_float_eq(admission_drain_ms(&snapshot, 20, 0), 500, 1e-9, "it reads prompts too");
    workers[2].read_tokens_per_s = 1000;
    workers[2].unread_tokens = 20;
    cr_expect_float_eq(admission_drain_ms(&snapshot, 80, 0), 200, 1e-9, "at its speed at those");
    workers[2].up = false;
    cr_expect_eq(admission_drain_ms(&snapshot, 20, 0), 0);
}

/* ---- turns ---- */

Test(admission, a_priority_is_worth_so_much_waiting_and_no_more)
{
    static const int32_t priorities[] = {-1000000, -999, -8, -2, -1, 0, 1, 2, 8, 999, 1000000};
    for (size_t i = 0; i < ARRAY_COUNT(priorities); i++) {
        const double turn = admission_turn_ms(5000, priorities[i], 60000);
        cr_expect(turn > 5000 - 60000 && turn < 5000 + 60000, "%d", priorities[i]);
        cr_expect(i == 0 || admission_turn_ms(5000, priorities[i - 1], 60000) < turn, "%d",
                  priorities[i]);
        cr_expect_float_eq(turn - 5000, 5000 - admission_turn_ms(5000, -priorities[i], 60000),
                           1e-6);
        cr_expect_eq(admission_turn_ms(5000, priorities[i], 0), 5000, "all in turn");
    }
    cr_expect_float_eq(admission_turn_ms(0, 8, 60000), 30000, 1e-9);
    cr_expect_float_eq(admission_turn_ms(0, -1, 60000), -60000.0 / 9, 1e-9);
}

/* A node serves a request in 100 ms, and an urgent one comes every 90: it is never done with them.
 * Returns how long one waits that is in no hurry at all, 0 for more than ten minutes. */
static uint64_t play_hurry(uint32_t most_ms)
{
    enum { SERVES_MS = 100, EVERY_MS = 90, PLAYED_MS = 600000 };
    static const int32_t in_no_hurry = 1000000, urgent = -1000000;
    const double patient = admission_turn_ms(0, in_no_hurry, most_ms);
    uint64_t served = 0;
    for (uint64_t now_ms = SERVES_MS; now_ms < PLAYED_MS; now_ms += SERVES_MS) {
        const double next = admission_turn_ms((double)(served * EVERY_MS), urgent, most_ms);
        if (patient < next)
            return now_ms;
        if (served * EVERY_MS <= now_ms)
            served++;
    }
    return 0;
}

Test(admission, who_is_in_no_hurry_does_not_starve)
{
    const uint64_t waited_ms = play_hurry(60000);
    /* Those that come within twice 60 s go first, at 100 ms each. */
    cr_expect(waited_ms > 120000 && waited_ms < 120000 * 100 / 90 + 1000, "%llu",
              (unsigned long long)waited_ms);
    cr_expect_eq(play_hurry(1000000000), 0, "a priority that counts for ever does starve others");
    cr_expect_leq(play_hurry(0), 200);
}

/* ---- the backlog ---- */

#define AT(ms) ((uint64_t)(ms)*NS_PER_MS + 1)

Test(backlog, goes_down_as_work_is_done)
{
    struct backlog backlog;
    backlog_init(&backlog, 500, AT(0));
    cr_expect_eq(backlog_left(&backlog, 1000, AT(0)), 0);
    backlog_charge(&backlog, 600, AT(100));
    cr_expect_eq(backlog_left(&backlog, 1000, AT(100)), 600);
    cr_expect_eq(backlog_left(&backlog, 1000, AT(300)), 400, "it goes on at its speed");
    cr_expect_eq(backlog_left(&backlog, 1000, AT(600)), 100);
    cr_expect_eq(backlog_left(&backlog, 1000, AT(90000)), 100,
                 "but for no longer than a heartbeat should take");
    backlog_charge(&backlog, 400, AT(300));
    cr_expect_eq(backlog_left(&backlog, 1000, AT(300)), 800);
    backlog_hear(&backlog, 12345, 0, AT(400)); /* a router that came late knows of no beginning */
    cr_expect_eq(backlog_left(&backlog, 1000, AT(400)), 1000);
    backlog_hear(&backlog, 12345 + 250, 0, AT(650));
    cr_expect_eq(backlog_left(&backlog, 1000, AT(650)), 750);
    /* The first prompt is read 350 ms later: its work goes with it. */
    backlog_release(&backlog, 600, 1000, AT(1000));
    cr_expect_eq(backlog_left(&backlog, 1000, AT(1000)), 400);
    backlog_hear(&backlog, 12345 + 600, 0, AT(1000));
    cr_expect_eq(backlog_left(&backlog, 1000, AT(1000)), 400);
    cr_expect_eq(backlog_left(&backlog, 1000, AT(1100)), 300);
    backlog_release(&backlog, 400, 1000, AT(1200));
    cr_expect_eq(backlog_left(&backlog, 1000, AT(1200)), 0);
    backlog_charge(&backlog, 50, AT(5000));
    cr_expect_eq(backlog_left(&backlog, 1000, AT(5000)), 50, "idle time was nobody's work");
}

/* What a worker does for others does not shorten what it does for this router. */
Test(backlog, shares_the_worker_with_others)
{
    struct backlog backlog;
    backlog_init(&backlog, 500, AT(0));
    backlog_charge(&backlog, 1000, AT(0));
    backlog_hear(&backlog, 0, 3000, AT(0));
    cr_expect_eq(backlog_left(&backlog, 1000, AT(400)), 900);
    backlog_hear(&backlog, 400, 2700, AT(400));
    cr_expect_eq(backlog_left(&backlog, 1000, AT(400)), 900);
}

/* ---- speeds that were measured too low ---- */

/* An idle prefill node that was measured at 200 tokens a second, and one token of work more. */
Test(admission, an_idle_node_is_no_slower_than_when_it_was_loaded)
{
    struct placement_worker workers[2] = {
        {.role = WORKER_PREFILL,
         .up = true,
         .context_tokens = 1 << 20,
         .tokens_per_s = 200,
         .loaded_tokens_per_s = 2000,
         .idle = true},
        {.role = WORKER_DECODE, .up = true, .context_tokens = 1 << 20, .tokens_per_s = 200}};
    const struct placement_snapshot snapshot = {workers, 2, 0};
    const struct placement_request request = {1000, 10, 0, NULL};
    const struct placement_policy *policy = &placement_default_policy;
    struct placement placement = placement_choose(policy, &snapshot, &request);
    cr_expect_float_eq(placement.ttft_ms, 500, 1e-9);
    cr_expect(!placement.stale);
    workers[0].loaded_tokens_per_s = 100;
    placement = placement_choose(policy, &snapshot, &request);
    cr_expect_float_eq(placement.ttft_ms, 5000, 1e-9, "the faster one counts");
    workers[0].loaded_tokens_per_s = 2000;
    workers[0].idle = false;
    workers[0].inflight_tokens = 1;
    placement = placement_choose(policy, &snapshot, &request);
    cr_expect_float_eq(placement.ttft_ms, 5005, 1e-9, "at work it is what it measures there");
}

/* A node of 2,000 tokens a second that believes in 200, loaded in a busy moment too; a prompt of a
 * second's work every five. Returns when the first one was let in, 0 for never in an hour; in
 * *admitted_out how many were. */
static uint64_t play_at_rest(uint32_t stale_ms, uint32_t *admitted_out)
{
    enum { EVERY_MS = 5000, PROMPT_TOKENS = 2000, HOUR_MS = 3600000 };
    struct placement_policy policy = placement_default_policy;
    policy.stale_ms = stale_ms;
    const struct admission_targets targets = {.ttft_ms = 3000};
    struct placement_worker workers[2] = {
        {.role = WORKER_PREFILL,
         .up = true,
         .context_tokens = 1 << 20,
         .tokens_per_s = 200,
         .loaded_tokens_per_s = 200,
         .idle = true},
        {.role = WORKER_DECODE, .up = true, .context_tokens = 1 << 20, .tokens_per_s = 200}};
    const struct placement_request request = {PROMPT_TOKENS, 10, 0, NULL};
    uint64_t worked_ms = 0, first_ms = 0;
    *admitted_out = 0;
    for (uint64_t now_ms = EVERY_MS; now_ms <= HOUR_MS; now_ms += EVERY_MS) {
        workers[0].rested_ms = (uint32_t)(now_ms - worked_ms);
        const struct placement_snapshot snapshot = {workers, 2, 0};
        const struct placement placement = placement_choose(&policy, &snapshot, &request);
        if (admission_predict(&targets, 0, &placement).verdict != ADMISSION_OK)
            continue;
        /* It is read, and measured by that, before the next one comes. */
        workers[0].tokens_per_s = 2000;
        worked_ms = now_ms + 1000;
        first_ms = first_ms > 0 ? first_ms : now_ms;
        ++*admitted_out;
    }
    return first_ms;
}

Test(admission, refusals_at_rest_do_not_last)
{
    uint32_t admitted;
    cr_expect_eq(play_at_rest(30000, &admitted), 30000);
    cr_expect_eq(admitted, 720 - 5, "all but those before the first");
    cr_expect_eq(play_at_rest(0, &admitted), 0);
    cr_expect_eq(admitted, 0, "without doubts they last for ever");
}

/* ---- does it come true? ---- */

enum { PROMPTS = 400, HEARTBEAT_MS = 500 };

struct prompt {
    uint32_t tokens, done;
    double predicted_ms, drain_ms; /* at its arrival */
    uint64_t came_ms, done_ms;
    bool sent;
};

/* One prefill node that reads in turn at its real pace, which the router knows but for a tenth, a
 * millisecond a step; a heartbeat now and then; prompts of all lengths in bursts. */
static void play(uint64_t seed, const struct reading_pace *pace, uint32_t longest,
                 struct prompt prompts[PROMPTS])
{
    struct random random;
    random_init(&random, seed);
    struct backlog backlog;
    struct placement_worker workers[2] = {
        {.role = WORKER_PREFILL, .up = true, .context_tokens = 1 << 20, .age_ms = 1 << 30},
        {.role = WORKER_DECODE, .up = true, .context_tokens = 1 << 20, .age_ms = 1 << 30}};
    const double share = 0.9 + (double)random_below(&random, 200) / 1000;
    workers[0].pace = (struct reading_pace){pace->token_ms * share, pace->context_ms * share};
    /* As it reads prompts of middling length. */
    workers[0].tokens_per_s = workers[1].tokens_per_s =
        longest / 2 / reading_pace_ms(&workers[0].pace, 0, longest / 2) * 1e3;
    struct reading_depth depth = {0};
    backlog_init(&backlog, HEARTBEAT_MS, AT(0));
    uint32_t came = 0, reading = 0;
    uint64_t done = 0, next_ms = 0;
    double spare_ms = 0;
    for (uint64_t now_ms = 0; reading < PROMPTS; now_ms++) {
        for (; came < PROMPTS && now_ms >= next_ms; came++) {
            struct prompt *prompt = &prompts[came];
            *prompt = (struct prompt){.came_ms = now_ms};
            prompt->tokens = 20 + (uint32_t)random_below(&random, longest);
            workers[0].inflight_tokens =
                backlog_left(&backlog, workers[0].tokens_per_s, AT(now_ms));
            workers[0].unread_context = reading_depth_mean(&depth);
            const struct placement_snapshot snapshot = {workers, 2, came};
            const struct placement_request request = {prompt->tokens, 10, 0, NULL};
            const struct placement placement =
                placement_choose(&placement_default_policy, &snapshot, &request);
            cr_assert_eq(placement.prefill, 0);
            prompt->predicted_ms = placement.ttft_ms;
            prompt->drain_ms = admission_drain_ms(&snapshot, prompt->tokens, 0);
            backlog_charge(&backlog, placement.prefill_charge, AT(now_ms));
            reading_depth_add(&depth, prompt->tokens, placement.prefill_charge);
            next_ms = now_ms + random_below(&random, random_below(&random, 8) == 0 ? 6000 : 500);
        }
        for (spare_ms = reading < came ? spare_ms + 1 : 0; spare_ms > 0 && reading < came;) {
            struct prompt *prompt = &prompts[reading];
            spare_ms -= reading_pace_ms(pace, prompt->done, 1);
            done++;
            if (++prompt->done < prompt->tokens)
                continue;
            prompt->done_ms = now_ms + 1;
            backlog_release(&backlog, prompt->tokens, workers[0].tokens_per_s, AT(now_ms));
            reading_depth_remove(&depth, prompt->tokens, prompt->tokens);
            reading++;
        }
        if (now_ms % HEARTBEAT_MS == 0)
            backlog_hear(&backlog, done, 0, AT(now_ms));
    }
}

/* A few milliseconds are the grain of the play. */
static bool is_within(double said_ms, double truth_ms, double times)
{
    return said_ms <= times * truth_ms + 5 && said_ms >= truth_ms / times - 5;
}

/* How many first tokens were predicted at more than twice the truth, or less than half of it. */
static uint32_t count_wrong(const struct reading_pace *pace, uint32_t longest)
{
    static struct prompt prompts[PROMPTS];
    uint32_t wrong = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        play(seed, pace, longest, prompts);
        uint32_t waited = 0;
        for (uint32_t i = 0; i < PROMPTS; i++) {
            const struct prompt *prompt = &prompts[i];
            const double truth_ms = (double)(prompt->done_ms - prompt->came_ms);
            waited += truth_ms > 1.5 * reading_pace_ms(pace, 0, prompt->tokens);
            wrong += !is_within(prompt->predicted_ms, truth_ms, 2);
            cr_expect(is_within(prompt->predicted_ms, truth_ms, 4),
                      "seed %lu, prompt %u: %.0f ms predicted, %.0f true", (unsigned long)seed, i,
                      prompt->predicted_ms, truth_ms);
            /* The drain is of sums of tokens, and so only of those that all take as long. */
            cr_expect(pace->context_ms > 0 || is_within(prompt->drain_ms, truth_ms, 2),
                      "seed %lu, prompt %u: drained after %.0f ms, %.0f true", (unsigned long)seed,
                      i, prompt->drain_ms, truth_ms);
        }
        cr_expect_gt(waited, PROMPTS / 10, "most found nobody before them: nothing was tested");
    }
    return wrong;
}

Test(admission, predictions_are_within_twice_the_truth)
{
    cr_expect_eq(count_wrong(&(struct reading_pace){0.5, 0}, 1500), 0);
    /* The last tokens of the longest prompts take five times as long as the first: of what is half
     * read, one cannot tell which half. */
    cr_expect_leq(count_wrong(&(struct reading_pace){0.1, 0.00005}, 8000), 20 * PROMPTS / 1000);
}
