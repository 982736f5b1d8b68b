/* The prefix cache of a real prefill node: what is computed, what is told, and that every token is
 * the one that a computation from nothing gives. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/worker/fake_router.h"
#include "tests/worker/oracle.h"

enum { PAGE = 64, CONTEXT = 2048, MANY = 64, SYSTEM_TOKENS = 2000, OWN_TOKENS = 20 };

static char model[TEST_PATH_BYTES];
static struct fake_router router;
static struct daemon daemon_process;
static struct fake_worker *node;
static struct oracle oracle;
static int32_t prompt[2 * CONTEXT];
static int32_t many[MANY][SYSTEM_TOKENS + OWN_TOKENS];

static void open_with(const char *const *options)
{
    snprintf(model, sizeof model, "%s", test_model("tiny.gguf", NULL));
    fake_router_open(&router);
    node = fake_router_worker(&router, &daemon_process, "baton-prefill", model, options);
    oracle_prompt(7, node->vocab_count, 2 * CONTEXT, prompt);
    oracle_open(&oracle, model);
}

static void close_all(void)
{
    oracle_close(&oracle);
    fake_router_wait(&router, "idle prefill node", worker_idle, node);
    daemon_stop(&daemon_process);
    fake_router_wait(&router, "close of the link", worker_gone, node);
    fake_router_close(&router);
}

static struct fake_answer *ask_first(const int32_t *tokens, uint32_t count)
{
    const struct ask ask = {
        .prompt = tokens, .prompt_count = count, .max_tokens = 1, .ignore_eos = true};
    return fake_router_ask(&router, NULL, node, &ask);
}

static void expect_right(struct fake_answer *answer)
{
    fake_router_expect(&router, answer, FINISH_LENGTH);
    fake_router_wait(&router, "report", answer_reported, answer);
    oracle_compare(&oracle, answer, 1);
}

static uint32_t cached_tokens(const struct fake_answer *answer)
{
    return answer->reports[WORKER_PREFILL].cached_tokens;
}

static uint32_t ask_and_expect(const int32_t *tokens, uint32_t count)
{
    struct fake_answer *answer = ask_first(tokens, count);
    expect_right(answer);
    return cached_tokens(answer);
}

static uint64_t rows_wanted;

static bool rows_told(const void *arg)
{
    return ((const struct fake_worker *)arg)->heartbeat.tokens_done >= rows_wanted;
}

static void expect_rows(uint64_t rows)
{
    rows_wanted = rows;
    fake_router_wait(&router, "count of rows", rows_told, node);
    cr_assert_eq(node->heartbeat.tokens_done, rows, "%llu rows were computed and not %llu",
                 (unsigned long long)node->heartbeat.tokens_done, (unsigned long long)rows);
}

static void make_many(void)
{
    for (uint32_t i = 0; i < MANY; i++) {
        memcpy(many[i], prompt, SYSTEM_TOKENS * sizeof many[i][0]);
        oracle_prompt(100 + i, node->vocab_count, OWN_TOKENS, many[i] + SYSTEM_TOKENS);
    }
}

/* Two thousand tokens in front of each of 64 prompts that come at once: they are computed once. */
Test(prefill_cache, a_system_prompt_of_many_requests_is_computed_once)
{
    struct fake_answer *answers[MANY];
    const uint32_t count = SYSTEM_TOKENS + OWN_TOKENS, shared = SYSTEM_TOKENS / PAGE * PAGE;
    open_with(NULL);
    make_many();
    for (uint32_t i = 0; i < MANY; i++)
        answers[i] = ask_first(many[i], count);
    uint32_t from_nothing = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        fake_router_expect(&router, answers[i], FINISH_LENGTH);
        fake_router_wait(&router, "report", answer_reported, answers[i]);
        if (i % 8 == 0)
            oracle_compare(&oracle, answers[i], 1);
        from_nothing += cached_tokens(answers[i]) == 0;
        cr_assert(cached_tokens(answers[i]) == 0 || cached_tokens(answers[i]) == shared);
    }
    cr_assert_eq(from_nothing, 1);
    expect_rows(shared + MANY * (count - shared));
    const struct msg_prefix_load *load = &node->heartbeat.prefix;
    cr_assert_eq(load->hits, MANY - 1);
    cr_assert_eq(load->misses, 1);
    cr_assert_eq(load->hit_tokens, (MANY - 1) * shared);
    cr_assert_eq(load->miss_tokens, count + (MANY - 1) * (count - shared));
    cr_assert_eq(load->pages, shared / PAGE);
    cr_assert_eq(load->inserted, shared / PAGE);
    cr_assert_eq(load->evicted, 0);
    close_all();
}

Test(prefill_cache, it_can_be_switched_off)
{
    enum { COUNT = 200 };
    open_with((const char *[]){"--no-prefix-cache", NULL});
    cr_assert_eq(ask_and_expect(prompt, COUNT), 0);
    cr_assert_eq(ask_and_expect(prompt, COUNT), 0);
    expect_rows(2 * COUNT);
    cr_assert_eq(node->heartbeat.prefix.hits + node->heartbeat.prefix.misses, 0);
    cr_assert_eq(node->heartbeat.prefix.pages, 0);
    close_all();
}

/* Around page edges: whole pages are known, and the last token is always computed. */
Test(prefill_cache, a_full_hit_computes_the_last_token_only)
{
    static const struct {
        uint32_t count, cached;
    } again[] = {{1, 0},     {63, 0},    {64, 63},   {65, 64},    {127, 64},
                 {128, 127}, {129, 128}, {640, 639}, {2047, 1984}};
    open_with(NULL);
    uint64_t rows = 0;
    for (uint32_t i = 0; i < sizeof again / sizeof again[0]; i++) {
        const int32_t *tokens = prompt + i;
        cr_assert_eq(ask_and_expect(tokens, again[i].count), 0);
        for (int repeat = 0; repeat < 2; repeat++)
            cr_assert_eq(ask_and_expect(tokens, again[i].count), again[i].cached);
        rows += again[i].count + 2 * (again[i].count - again[i].cached);
    }
    expect_rows(rows);
    /* A longer one goes on where a shorter one ended, a shorter one is in it. */
    cr_assert_eq(ask_and_expect(prompt + 7, 1000), 640);
    cr_assert_eq(ask_and_expect(prompt + 7, 960), 959);
    close_all();
}

/* Sixteen pages, four a prompt: what was known goes, and the answers stay right. */
Test(prefill_cache, pages_go_when_room_is_short)
{
    enum { COUNT = 30 };
    struct fake_answer *answers[COUNT];
    open_with(
        (const char *[]){"--kv-memory", "768K", "--context", "256", "--chunk-tokens", "64", NULL});
    cr_assert_eq(node->pages_total, 16);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < COUNT; i++)
            answers[i] = ask_first(prompt + i % 5 * 10, 255 - 11 * (i % 7));
        for (uint32_t i = 0; i < COUNT; i++)
            expect_right(answers[i]);
    }
    fake_router_wait(&router, "idle prefill node", worker_idle, node);
    cr_assert_gt(node->heartbeat.prefix.evicted, 0);
    cr_assert_gt(node->heartbeat.prefix.hits, 0);
    cr_assert_leq(node->heartbeat.prefix.pages, 16);
    close_all();
}

/* Who waits for pages that another computes goes on by itself when the other is cancelled. */
Test(prefill_cache, a_cancel_leaves_those_who_wait_to_themselves)
{
    open_with((const char *[]){"--chunk-tokens", "64", NULL});
    for (uint32_t round = 0; round < 6; round++) {
        const int32_t *tokens = prompt + 10 * round;
        struct fake_answer *first = ask_first(tokens, SYSTEM_TOKENS);
        struct fake_answer *waits[4];
        for (uint32_t i = 0; i < 4; i++)
            waits[i] = ask_first(tokens, SYSTEM_TOKENS - i);
        /* Now, or some chunks later. */
        for (uint32_t turn = 0; turn < round; turn++)
            loop_run_once(router.loop, 1);
        fake_router_cancel(first);
        for (uint32_t i = 0; i < 4; i++)
            expect_right(waits[i]);
    }
    close_all();
}
