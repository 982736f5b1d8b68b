/* A real prefill node without a decode node: answers of one token, bad jobs, ends. Hand-offs are
 * tests/worker/test_handoff_pair.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/worker/fake_router.h"
#include "tests/worker/oracle.h"

static char model[TEST_PATH_BYTES];
static struct fake_router router;
static struct daemon daemon_process;
static struct fake_worker *node;
static int32_t prompt[4096];

static void open_with(const char *const *options)
{
    snprintf(model, sizeof model, "%s", test_model("tiny.gguf", NULL));
    fake_router_open(&router);
    node = fake_router_worker(&router, &daemon_process, "baton-prefill", model, options);
    oracle_prompt(1, node->vocab_count, 4096, prompt);
}

static void close_all(void)
{
    fake_router_wait(&router, "idle prefill node", worker_idle, node);
    daemon_stop(&daemon_process);
    fake_router_wait(&router, "close of the link", worker_gone, node);
    cr_assert(node->said_goodbye);
    fake_router_close(&router);
}

static struct ask plain(uint32_t prompt_count, uint32_t max_tokens)
{
    return (struct ask){.prompt = prompt,
                        .prompt_count = prompt_count,
                        .max_tokens = max_tokens,
                        .ignore_eos = true};
}

static struct fake_answer *ask_first(const struct ask *ask)
{
    return fake_router_ask(&router, NULL, node, ask);
}

static void expect_failed(struct fake_answer *answer, enum status status, const char *words)
{
    fake_router_wait(&router, "failure", answer_over, answer);
    cr_assert_eq(answer->failed, status, "%s", answer->text);
    cr_assert_not_null(strstr(answer->text, words), "\"%s\" without \"%s\"", answer->text, words);
}

Test(prefill_daemon, says_what_it_is)
{
    open_with((const char *[]){"--max-requests", "9", NULL});
    cr_assert_eq(node->role, WORKER_PREFILL);
    cr_assert_eq(node->max_batch, 9);
    cr_assert_eq(node->context_tokens, 2048);
    cr_assert_eq(node->pages_total, 9 * 2048 / 64);
    cr_assert_str_eq(node->data_address, "");
    close_all();
}

Test(prefill_daemon, one_token_answers_need_no_decode_node)
{
    static const uint32_t lengths[] = {1, 63, 64, 65, 128, 200, 777, 2047};
    struct fake_answer *answers[2 * sizeof lengths / sizeof lengths[0]];
    const uint32_t count = sizeof lengths / sizeof lengths[0];
    struct oracle oracle;
    open_with(NULL);
    oracle_open(&oracle, model);
    /* All at once: chunks are packed from several prompts. */
    for (uint32_t i = 0; i < 2 * count; i++) {
        struct ask ask = plain(lengths[i % count], 1);
        ask.prompt = prompt + i;
        ask.temperature = i < count ? 0 : 1.2f;
        ask.seed = i;
        answers[i] = ask_first(&ask);
    }
    for (uint32_t i = 0; i < 2 * count; i++) {
        fake_router_expect(&router, answers[i], FINISH_LENGTH);
        oracle_compare(&oracle, answers[i], 1);
        cr_assert_gt(answers[i]->reports[WORKER_PREFILL].compute_us, 0);
    }
    oracle_close(&oracle);
    fake_router_wait(&router, "idle prefill node", worker_idle, node);
    cr_assert_geq(node->heartbeat.tokens_done, 2 * (1 + 63 + 64 + 65 + 128 + 200 + 777 + 2047));
    cr_assert_gt(node->heartbeat.tokens_per_s, 0);
    close_all();
}

Test(prefill_daemon, a_stop_id_as_first_token_ends_it_with_none)
{
    struct oracle oracle;
    int32_t first;
    open_with(NULL);
    oracle_open(&oracle, model);
    struct ask ask = plain(50, 1);
    oracle_generate(&oracle, &ask, 1, &first);
    oracle_close(&oracle);
    ask.stop_ids = &first;
    ask.stop_count = 1;
    struct fake_answer *answer = ask_first(&ask);
    fake_router_expect(&router, answer, FINISH_STOP);
    cr_assert_eq(answer->token_count, 0);
    cr_assert_eq(answer->stop_id, first);
    close_all();
}

Test(prefill_daemon, more_prompts_than_pages_wait_for_their_turn)
{
    enum { COUNT = 20 };
    struct fake_answer *answers[COUNT];
    struct oracle oracle;
    /* A pool of four contexts of 256 tokens: 16 pages, 4 a prompt. */
    open_with(
        (const char *[]){"--context", "256", "--chunk-tokens", "64", "--kv-memory", "768K", NULL});
    cr_assert_eq(node->pages_total, 16);
    oracle_open(&oracle, model);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct ask ask = plain(255 - i, 1);
        ask.prompt = prompt + i;
        answers[i] = ask_first(&ask);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        fake_router_expect(&router, answers[i], FINISH_LENGTH);
        oracle_compare(&oracle, answers[i], 1);
    }
    oracle_close(&oracle);
    close_all();
}

Test(prefill_daemon, bad_jobs_fail_with_a_sentence)
{
    open_with(NULL);
    struct ask ask = plain(0, 1);
    expect_failed(ask_first(&ask), STATUS_INVALID, "prompt is empty");
    ask = plain(2048, 1);
    expect_failed(ask_first(&ask), STATUS_LIMIT, "2048 tokens and the context 2048");
    ask = plain(10, 2);
    expect_failed(ask_first(&ask), STATUS_INVALID, "no hand-off is named");
    int32_t bad[] = {1, (int32_t)node->vocab_count};
    ask = plain(2, 1);
    ask.prompt = bad;
    expect_failed(ask_first(&ask), STATUS_INVALID, "token 1 is");
    const int32_t stop = -1;
    ask = plain(2, 1);
    ask.stop_ids = &stop;
    ask.stop_count = 1;
    expect_failed(ask_first(&ask), STATUS_INVALID, "stop id 0 is -1");

    /* Twice the same id: both are over, and said so. */
    ask = plain(2000, 1);
    struct fake_answer *twice = ask_first(&ask);
    fake_router_send_prefill(twice);
    expect_failed(twice, STATUS_EXISTS, "came twice");
    close_all();
}

Test(prefill_daemon, cancel_deadline_and_router_loss_give_pages_back)
{
    /* Chunks that take half a second: whatever the machine, none is through before its end. */
    open_with((const char *[]){"--chunk-tokens", "64", "--enable-fault-injection", "--fault",
                               "engine-step:1+:delay", NULL});
    struct ask ask = plain(2000, 1);
    struct fake_answer *answers[8];
    /* Nothing of one is known from another. */
    for (int i = 0; i < 8; i++) {
        ask.prompt = prompt + i;
        answers[i] = ask_first(&ask);
    }
    for (int i = 7; i >= 0; i--)
        fake_router_cancel(answers[i]);
    fake_router_wait(&router, "idle prefill node", worker_idle, node);

    ask.remaining_ms = 1;
    for (int i = 0; i < 8; i++) {
        ask.prompt = prompt + 8 + i;
        answers[i] = ask_first(&ask);
    }
    fake_router_wait(&router, "end of the last", answer_over, answers[7]);
    cr_assert_eq(answers[7]->failed, STATUS_TIMEOUT, "%s", answers[7]->text);
    fake_router_wait(&router, "idle prefill node", worker_idle, node);

    ask.remaining_ms = 0;
    for (int i = 0; i < 8; i++) {
        ask.prompt = prompt + 16 + i;
        ask_first(&ask);
    }
    loop_run_once(router.loop, 5);
    link_close(node->link, STATUS_OK, NULL);
    node->link = NULL;
    while (router.worker_count < 2 || router.workers[1].heartbeat.sequence == 0)
        loop_run_once(router.loop, 50);
    node = &router.workers[1];
    close_all();
}

Test(prefill_daemon, full_of_requests_it_says_so_and_stops_cleanly)
{
    /* Each chunk takes half a second: the four are there when the fifth comes. */
    open_with((const char *[]){"--max-requests", "4", "--chunk-tokens", "64", "--drain-ms", "100",
                               "--enable-fault-injection", "--fault", "engine-step:1+:delay",
                               NULL});
    struct ask ask = plain(2000, 1);
    struct fake_answer *answers[5];
    for (int i = 0; i < 5; i++) {
        ask.prompt = prompt + i;
        answers[i] = ask_first(&ask);
    }
    expect_failed(answers[4], STATUS_BUSY, "holds 4 requests");
    daemon_stop(&daemon_process);
    fake_router_close(&router);
}

Test(prefill_daemon, too_many_waiting_tokens_are_refused_with_the_time_they_take)
{
    /* The first chunk stops the node until all are asked for, the second takes long enough for it
     * to read them. */
    open_with((const char *[]){"--max-queued-tokens", "6000", "--chunk-tokens", "64",
                               "--enable-fault-injection", "--fault",
                               "engine-step:1:stop,engine-step:2:delay", NULL});
    struct ask ask = plain(2000, 1);
    struct fake_answer *answers[4];
    for (int i = 0; i < 4; i++) {
        ask.prompt = prompt + i;
        answers[i] = ask_first(&ask);
    }
    fake_router_continue(&router, &daemon_process);
    expect_failed(answers[3], STATUS_BUSY, " s of work; 2000 more would be over the limit of 6000");
    for (int i = 0; i < 3; i++)
        fake_router_expect(&router, answers[i], FINISH_LENGTH);
    close_all();

    /* One that is longer than the limit is taken when nothing waits. */
    open_with((const char *[]){"--max-queued-tokens", "100", NULL});
    fake_router_expect(&router, ask_first(&ask), FINISH_LENGTH);
    close_all();
}
