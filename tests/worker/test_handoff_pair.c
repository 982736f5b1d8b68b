/* A real prefill node and a real decode node, joined by real hand-offs; the test is the router. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/worker/fake_router.h"
#include "tests/worker/oracle.h"

static char model[TEST_PATH_BYTES];
static struct fake_router router;
static struct daemon prefill_process, decode_process;
static struct fake_worker *prefill, *decode;
static int32_t prompt[4096];

static void open_with(const char *const *prefill_options, const char *const *decode_options)
{
    snprintf(model, sizeof model, "%s", test_model("tiny.gguf", NULL));
    fake_router_open(&router);
    decode = fake_router_worker(&router, &decode_process, "baton-decode", model, decode_options);
    prefill =
        fake_router_worker(&router, &prefill_process, "baton-prefill", model, prefill_options);
    oracle_prompt(1, decode->vocab_count, 4096, prompt);
}

static void wait_idle(void)
{
    fake_router_wait(&router, "idle prefill node", worker_idle, prefill);
    fake_router_wait(&router, "idle decode node", worker_idle, decode);
}

static void close_all(void)
{
    wait_idle();
    daemon_stop(&prefill_process);
    daemon_stop(&decode_process);
    fake_router_close(&router);
}

static struct ask plain(uint32_t prompt_count, uint32_t max_tokens)
{
    return (struct ask){.prompt = prompt,
                        .prompt_count = prompt_count,
                        .max_tokens = max_tokens,
                        .ignore_eos = true};
}

static bool answer_failed_twice(const void *arg)
{
    const struct fake_answer *answer = arg;
    return answer->failures == 2;
}

static struct fake_answer *ask_pair(const struct ask *ask)
{
    return fake_router_ask(&router, decode, prefill, ask);
}

static const uint32_t lengths[] = {1, 63, 64, 65, 128, 129, 640, 1500};

/* A heartbeat may be of before the last hand-off. */
static bool all_lengths_landed(const void *arg)
{
    const struct fake_worker *worker = arg;
    return worker->heartbeat.handoffs_done >= sizeof lengths / sizeof lengths[0];
}

Test(handoff_pair, answers_are_those_of_one_process)
{
    struct oracle oracle;
    open_with(NULL, NULL);
    oracle_open(&oracle, model);
    uint64_t pages = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct ask ask = plain(lengths[i], 25);
        ask.prompt = prompt + i;
        ask.temperature = i % 2 == 0 ? 0 : 1.1f;
        ask.seed = i;
        struct fake_answer *answer = ask_pair(&ask);
        fake_router_expect(&router, answer, FINISH_LENGTH);
        oracle_compare(&oracle, answer, 25);
        const struct msg_report *report = &answer->reports[WORKER_PREFILL];
        pages += (lengths[i] + 63) / 64;
        /* 3 layers, K and V, 2 kv heads of 32 values in bf16. */
        cr_assert_eq(report->handoff_bytes, (lengths[i] + 63) / 64 * 64 * 3 * 2 * 2 * 32 * 2);
        cr_assert_gt(report->handoff_us, 0);
    }
    fake_router_wait(&router, "the last hand-off at prefill", all_lengths_landed, prefill);
    fake_router_wait(&router, "the last hand-off at decode", all_lengths_landed, decode);
    cr_assert_eq(prefill->heartbeat.handoffs_done, sizeof lengths / sizeof lengths[0]);
    cr_assert_eq(decode->heartbeat.handoffs_done, sizeof lengths / sizeof lengths[0]);
    cr_assert_eq(decode->heartbeat.handoff_bytes, pages * 64 * 3 * 2 * 2 * 32 * 2);
    cr_assert_eq(decode->heartbeat.handoffs_failed, 0);
    oracle_close(&oracle);
    close_all();
}

/* A chat goes on: what the decode node has of it, its own answer too, is not sent again. */
Test(handoff_pair, the_second_turn_of_a_chat_is_sent_without_the_first)
{
    enum { PAGE_BYTES = 64 * 3 * 2 * 2 * 32 * 2 };
    struct oracle oracle;
    static int32_t chat[1000];
    open_with(NULL, NULL);
    oracle_open(&oracle, model);
    memcpy(chat, prompt, 300 * sizeof *chat);
    struct ask ask = plain(300, 100);
    ask.prompt = chat;
    struct fake_answer *answer = ask_pair(&ask);
    fake_router_expect(&router, answer, FINISH_LENGTH);
    cr_assert_eq(answer->cached_tokens, 0);
    cr_assert_eq(answer->reports[WORKER_PREFILL].handoff_bytes, 5 * PAGE_BYTES);

    /* 399 of the 400 tokens were computed: six pages of 64. */
    memcpy(chat + 300, answer->tokens, 100 * sizeof *chat);
    memcpy(chat + 400, prompt + 1000, 120 * sizeof *chat);
    ask = plain(520, 40);
    ask.prompt = chat;
    ask.temperature = 1;
    answer = ask_pair(&ask);
    fake_router_expect(&router, answer, FINISH_LENGTH);
    oracle_compare(&oracle, answer, 40);
    cr_assert_eq(answer->cached_tokens, 384);
    cr_assert_eq(answer->reports[WORKER_PREFILL].handoff_bytes, 3 * PAGE_BYTES);

    /* Where little is left the decode node reads it itself. */
    memcpy(chat + 520, answer->tokens, 40 * sizeof *chat);
    memcpy(chat + 560, prompt + 2000, 20 * sizeof *chat);
    ask = plain(580, 10);
    ask.prompt = chat;
    ask.local_tokens = 580 - 512;
    answer = ask_pair(&ask);
    fake_router_expect(&router, answer, FINISH_LENGTH);
    oracle_compare(&oracle, answer, 10);
    cr_assert(answer->local);
    cr_assert_eq(answer->cached_tokens, 512);
    cr_assert_eq(answer->reports[WORKER_DECODE].cached_tokens, 512);
    /* That turn's 589 computed tokens are nine pages now: five tokens are left. */
    chat[580] = 7;
    ask.prompt_count = 581;
    ask.local_tokens = 4;
    answer = ask_pair(&ask);
    fake_router_expect(&router, answer, FINISH_LENGTH);
    cr_assert(!answer->local, "one token too many");
    oracle_close(&oracle);
    close_all();
}

/* The decode node knows nothing: pages that the prefill node need not compute are sent like all
 * others, whether it has them at the start or another prompt computes them just then. */
Test(handoff_pair, known_beginnings_are_handed_over_too)
{
    enum { COUNT = 12, SHARED = 1000, PAGE_BYTES = 64 * 3 * 2 * 2 * 32 * 2 };
    static int32_t prompts[COUNT][SHARED + 200];
    struct fake_answer *answers[COUNT];
    struct oracle oracle;
    open_with((const char *[]){"--chunk-tokens", "128", NULL},
              (const char *[]){"--no-prefix-cache", NULL});
    oracle_open(&oracle, model);
    for (uint32_t i = 0; i < COUNT; i++) {
        memcpy(prompts[i], prompt, SHARED * sizeof prompts[i][0]);
        oracle_prompt(50 + i / 2, decode->vocab_count, 200, prompts[i] + SHARED);
    }
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            /* Pairs of equal prompts, some of them of whole pages. */
            struct ask ask = plain(i / 2 == 3 ? 1024 : SHARED + 10 + i / 2 * 30, 12);
            ask.prompt = prompts[i];
            answers[i] = ask_pair(&ask);
        }
        uint32_t from_nothing = 0;
        for (uint32_t i = 0; i < COUNT; i++) {
            const uint32_t count = answers[i]->ask.prompt_count;
            fake_router_expect(&router, answers[i], FINISH_LENGTH);
            fake_router_wait(&router, "reports", answer_reported, answers[i]);
            oracle_compare(&oracle, answers[i], 12);
            const struct msg_report *report = &answers[i]->reports[WORKER_PREFILL];
            from_nothing += report->cached_tokens == 0;
            cr_assert_eq(report->handoff_bytes, (count + 63) / 64 * PAGE_BYTES);
            if (round == 1)
                cr_assert_eq(report->cached_tokens, count % 64 == 0 ? count - 1 : count / 64 * 64);
        }
        cr_assert_eq(from_nothing, round == 0);
    }
    oracle_close(&oracle);
    close_all();
}

Test(handoff_pair, many_at_once_join_and_leave)
{
    enum { COUNT = 40 };
    struct fake_answer *answers[COUNT];
    struct oracle oracle;
    open_with((const char *[]){"--chunk-tokens", "128", NULL},
              (const char *[]){"--max-batch", "6", NULL});
    oracle_open(&oracle, model);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct ask ask = plain(1 + (i * 53) % 300, 2 + (i * 7) % 30);
        ask.prompt = prompt + i;
        ask.temperature = 1;
        ask.seed = i;
        /* Every fourth is read by the decode node itself, between the others' steps. */
        answers[i] = fake_router_ask(&router, decode, i % 4 == 3 ? NULL : prefill, &ask);
        loop_run_once(router.loop, 1);
    }
    for (uint32_t i = 0; i < COUNT; i++)
        fake_router_expect(&router, answers[i], FINISH_LENGTH);
    for (uint32_t i = 0; i < COUNT; i++)
        oracle_compare(&oracle, answers[i], answers[i]->ask.max_tokens);
    oracle_close(&oracle);
    close_all();
}

Test(handoff_pair, an_answer_that_ends_with_its_first_token_frees_the_decode_node)
{
    struct oracle oracle;
    int32_t first;
    open_with(NULL, NULL);
    oracle_open(&oracle, model);
    struct ask ask = plain(300, 20);
    oracle_generate(&oracle, &ask, 1, &first);
    ask.stop_ids = &first;
    ask.stop_count = 1;
    struct fake_answer *answer = ask_pair(&ask);
    fake_router_expect(&router, answer, FINISH_STOP);
    cr_assert_eq(answer->token_count, 0);
    wait_idle();

    ask = plain(300, 1);
    answer = ask_pair(&ask);
    fake_router_expect(&router, answer, FINISH_LENGTH);
    oracle_compare(&oracle, answer, 1);
    cr_assert_eq(answer->failures, 0);
    oracle_close(&oracle);
    close_all();
}

Test(handoff_pair, a_request_placed_again_goes_on_where_it_was)
{
    struct oracle oracle;
    static int32_t tokens[200];
    open_with(NULL, NULL);
    oracle_open(&oracle, model);
    struct ask ask = plain(100, 30);
    ask.temperature = 1;
    memcpy(tokens, prompt, 100 * sizeof *tokens);
    oracle_generate(&oracle, &ask, 30, tokens + 100);
    ask.prompt = tokens;
    ask.emitted_count = 11;
    struct fake_answer *answer = ask_pair(&ask);
    fake_router_expect(&router, answer, FINISH_LENGTH);
    cr_assert_eq(answer->token_count, 19);
    cr_assert_eq(memcmp(answer->tokens + 11, tokens + 111, 19 * sizeof *tokens), 0);
    oracle_close(&oracle);
    close_all();
}

Test(handoff_pair, both_do_without_checksums)
{
    struct oracle oracle;
    const char *const none[] = {"--checksum", "none", NULL};
    open_with(none, none);
    oracle_open(&oracle, model);
    const struct ask ask = plain(300, 20);
    struct fake_answer *answer = ask_pair(&ask);
    fake_router_expect(&router, answer, FINISH_LENGTH);
    oracle_compare(&oracle, answer, 20);
    oracle_close(&oracle);
    close_all();
}

static bool answer_failed(const void *arg)
{
    return ((const struct fake_answer *)arg)->failures > 0;
}

Test(handoff_pair, one_with_checksums_takes_nothing_from_one_without)
{
    open_with((const char *[]){"--checksum", "none", NULL}, NULL);
    const struct ask ask = plain(300, 20);
    struct fake_answer *answer = ask_pair(&ask);
    fake_router_wait(&router, "the refusal", answer_failed, answer);
    cr_assert_neq(strstr(answer->text, "checksum is crc32c on the decode node and none on the"),
                  NULL, "%s", answer->text);
    fake_router_cancel(answer);
    close_all();
}

/* Cancels after 0, 1, 2, … turns of the loop meet the request in every state it can be in. */
Test(handoff_pair, cancels_at_any_time_give_all_pages_back)
{
    enum { COUNT = 30 };
    open_with((const char *[]){"--chunk-tokens", "64", NULL}, NULL);
    for (uint32_t turns = 0; turns < COUNT; turns++) {
        struct ask ask = plain(900, 1000);
        struct fake_answer *answer = ask_pair(&ask);
        for (uint32_t i = 0; i < turns; i++)
            loop_run_once(router.loop, 2);
        fake_router_cancel(answer);
        cr_assert_eq(answer->failures, 0, "%s", answer->text);
    }
    wait_idle();
    struct ask ask = plain(100, 10);
    fake_router_expect(&router, ask_pair(&ask), FINISH_LENGTH);
    close_all();
}

static bool decode_receives(const void *arg)
{
    const struct fake_worker *worker = arg;
    return worker->heartbeat.pages_handoff > 0;
}

static bool prefill_waits(const void *arg)
{
    const struct fake_worker *worker = arg;
    return worker->heartbeat.running + worker->heartbeat.waiting >= 2;
}

/* Every chunk takes half a second, so that none of its prompts is through before the test is. */
static const char *const slow_prefill[] = {
    "--chunk-tokens", "64", "--enable-fault-injection", "--fault", "engine-step:1+:delay", NULL};

/* Opens some long prompts and comes back in the middle of their hand-offs. */
static void open_many(struct fake_answer **answers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ask ask = plain(2000, 30);
        ask.prompt = prompt + i; /* nothing of one is known from another */
        answers[i] = ask_pair(&ask);
    }
    fake_router_wait(&router, "prefill under way", prefill_waits, prefill);
    fake_router_wait(&router, "hand-off under way", decode_receives, decode);
}

Test(handoff_pair, a_prefill_node_that_dies_costs_its_requests_and_no_page)
{
    enum { COUNT = 4 };
    struct fake_answer *answers[COUNT];
    uint32_t failed = 0;
    /* The lease is what ends those that were not even offered. */
    open_with(slow_prefill, (const char *[]){"--lease-ms", "1s", NULL});
    open_many(answers, COUNT);
    daemon_signal(&prefill_process, SIGKILL);
    cr_assert_eq(daemon_wait(&prefill_process, WAIT_MS), -SIGKILL);
    for (uint32_t i = 0; i < COUNT; i++) {
        fake_router_wait(&router, "end", answer_over, answers[i]);
        failed += answers[i]->failed != STATUS_OK;
    }
    cr_assert_gt(failed, 0);
    fake_router_wait(&router, "idle decode node", worker_idle, decode);

    /* The decode node takes another one's hand-offs. */
    prefill = fake_router_worker(&router, &prefill_process, "baton-prefill", model, NULL);
    struct ask ask = plain(200, 10);
    fake_router_expect(&router, ask_pair(&ask), FINISH_LENGTH);
    close_all();
}

/* It is not dead: its port answers, its socket takes bytes. Only the deadlines see it. */
Test(handoff_pair, a_stopped_prefill_node_does_not_hold_the_decode_nodes_pages)
{
    enum { COUNT = 4 };
    struct fake_answer *answers[COUNT];
    /* The lease is what ends those that were not even offered. */
    open_with(slow_prefill, (const char *[]){"--lease-ms", "2s", NULL});
    open_many(answers, COUNT);
    daemon_signal(&prefill_process, SIGSTOP);
    fake_router_wait(&router, "failure", answer_over, answers[COUNT - 1]);
    cr_assert_neq(answers[COUNT - 1]->failed, STATUS_OK);
    fake_router_wait(&router, "idle decode node", worker_idle, decode);
    /* The router gives it up as well; it comes back when it runs again. */
    link_close(prefill->link, STATUS_TIMEOUT, "silent");
    prefill->link = NULL;
    const uint32_t known = router.worker_count;
    daemon_signal(&prefill_process, SIGCONT);
    while (router.worker_count == known || router.workers[known].heartbeat.sequence == 0)
        loop_run_once(router.loop, 50);
    prefill = &router.workers[known];
    wait_idle();
    struct ask ask = plain(200, 10);
    fake_router_expect(&router, ask_pair(&ask), FINISH_LENGTH);
    close_all();
}

Test(handoff_pair, a_decode_node_that_dies_fails_what_was_on_its_way_there)
{
    enum { COUNT = 4 };
    struct fake_answer *answers[COUNT];
    open_with(slow_prefill, NULL);
    open_many(answers, COUNT);
    daemon_signal(&decode_process, SIGKILL);
    cr_assert_eq(daemon_wait(&decode_process, WAIT_MS), -SIGKILL);
    fake_router_wait(&router, "failure", answer_over, answers[COUNT - 1]);
    cr_assert_neq(answers[COUNT - 1]->failed, STATUS_OK);
    fake_router_wait(&router, "idle prefill node", worker_idle, prefill);

    decode = fake_router_worker(&router, &decode_process, "baton-decode", model, NULL);
    struct ask ask = plain(200, 10);
    fake_router_expect(&router, ask_pair(&ask), FINISH_LENGTH);
    close_all();
}

Test(handoff_pair, wrong_tickets_ids_boots_and_addresses_fail_with_a_sentence)
{
    open_with(NULL, NULL);
    struct ask ask = plain(100, 10);
    for (int wrong = 0; wrong < 4; wrong++) {
        struct fake_answer *answer = fake_router_begin(&router, decode, prefill, &ask);
        struct fake_worker elsewhere = *decode;
        answer->hold_prefill = true;
        fake_router_send_reserve(answer);
        fake_router_wait(&router, "reservation", answer_reserved, answer);
        if (wrong == 0)
            answer->ticket++;
        if (wrong == 1)
            answer->handoff += 1000;
        if (wrong == 2)
            elsewhere.boot_id[3]++;
        if (wrong == 3)
            snprintf(elsewhere.data_address, sizeof elsewhere.data_address, "127.0.0.1:1");
        answer->decode = &elsewhere;
        fake_router_send_prefill(answer);
        answer->decode = decode;
        fake_router_wait(&router, "failure", answer_over, answer);
        cr_assert_neq(answer->failed, STATUS_OK, "case %d", wrong);
        cr_assert_neq(strlen(answer->text), 0);
        fake_router_cancel(answer);
    }
    wait_idle();
    fake_router_expect(&router, ask_pair(&ask), FINISH_LENGTH);
    close_all();
}

/* A frame that is too long is LIMIT to who reads it; to the client that would be a 400. */
Test(handoff_pair, a_prefill_node_that_breaks_the_protocol_is_not_the_clients_fault)
{
    open_with((const char *[]){"--enable-fault-injection", "--fault",
                               "done:1:corrupt,done:2:short,done:3:short", NULL},
              NULL);
    struct ask ask = plain(100, 10);
    for (int i = 0; i < 3; i++) {
        struct fake_answer *answer = fake_router_begin(&router, decode, prefill, &ask);
        answer->hold_cancel = true;
        fake_router_send_reserve(answer);
        fake_router_wait(&router, "both nodes' failure", answer_failed_twice, answer);
        cr_assert(!answer->blamed, "%s", answer->text);
        wait_idle();
    }
    close_all();
}

/* Two words about one end would race to the router, and the later one knows less of the cause. In
 * the first chunk of each prompt its pages are granted, the second one fails. */
Test(handoff_pair, what_cannot_be_computed_is_told_by_the_prefill_node_alone)
{
    enum { ROUNDS = 4 };
    open_with((const char *[]){"--chunk-tokens", "64", "--enable-fault-injection", "--fault",
                               "engine-step:1:delay,engine-step:2:refuse,engine-step:3:delay,"
                               "engine-step:4:refuse,engine-step:5:delay,engine-step:6:refuse,"
                               "engine-step:7:delay,engine-step:8:refuse",
                               NULL},
              NULL);
    for (int i = 0; i < ROUNDS; i++) {
        struct ask ask = plain(100, 10);
        ask.prompt = prompt + i;
        struct fake_answer *answer = ask_pair(&ask);
        fake_router_wait(&router, "failure", answer_failed, answer);
        cr_assert_eq(answer->failed, STATUS_INTERNAL, "%s", answer->text);
        wait_idle();
        cr_assert_eq(answer->failures, 1, "round %d: %s", i, answer->text);
    }
    close_all();
}

Test(handoff_pair, nodes_of_different_models_refuse_each_other)
{
    char other[TEST_PATH_BYTES];
    struct daemon other_process;
    snprintf(other, sizeof other, "%s",
             test_model("other.gguf", (const char *[]){"--seed", "2", NULL}));
    open_with(NULL, NULL);
    struct fake_worker *stranger =
        fake_router_worker(&router, &other_process, "baton-prefill", other, NULL);
    struct ask ask = plain(100, 10);
    struct fake_answer *answer = fake_router_ask(&router, decode, stranger, &ask);
    fake_router_wait(&router, "refusal", answer_over, answer);
    cr_assert_eq(answer->failed, STATUS_MISMATCH, "%s", answer->text);
    fake_router_cancel(answer);
    fake_router_wait(&router, "idle stranger", worker_idle, stranger);
    fake_router_expect(&router, ask_pair(&ask), FINISH_LENGTH);
    daemon_stop(&other_process);
    close_all();
}

Test(handoff_pair, a_lost_router_ends_hand_offs_on_both_sides)
{
    enum { COUNT = 4 };
    struct fake_answer *answers[COUNT];
    open_with(slow_prefill, NULL);
    open_many(answers, COUNT);
    link_close(prefill->link, STATUS_OK, NULL);
    link_close(decode->link, STATUS_OK, NULL);
    prefill->link = decode->link = NULL;
    const uint32_t known = router.worker_count;
    while (router.worker_count < known + 2 || router.workers[known].heartbeat.sequence == 0 ||
           router.workers[known + 1].heartbeat.sequence == 0)
        loop_run_once(router.loop, 50);
    for (uint32_t i = known; i < known + 2; i++) {
        if (router.workers[i].role == WORKER_PREFILL)
            prefill = &router.workers[i];
        else
            decode = &router.workers[i];
    }
    wait_idle();
    struct ask ask = plain(200, 10);
    fake_router_expect(&router, ask_pair(&ask), FINISH_LENGTH);
    close_all();
}

Test(handoff_pair, both_stop_cleanly_in_the_middle_of_it)
{
    enum { COUNT = 4 };
    struct fake_answer *answers[COUNT];
    open_with(slow_prefill, NULL);
    open_many(answers, COUNT);
    daemon_signal(&prefill_process, SIGTERM);
    daemon_signal(&decode_process, SIGINT);
    cr_assert_eq(daemon_wait(&prefill_process, WAIT_MS), 0);
    cr_assert_eq(daemon_wait(&decode_process, WAIT_MS), 0);
    fake_router_close(&router);
}
