/* A real decode node that reads prompts itself (RESERVE local), against the same model in this
 * process. Hand-offs are tests/worker/test_handoff_pair.c. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "model/format/gguf.h"
#include "tests/worker/fake_router.h"
#include "tests/worker/oracle.h"

static char model[TEST_PATH_BYTES];
/* The first step stops the node until fake_router_continue, the second one takes long enough for
 * the node to read what came meanwhile: from then on it has all that was asked. */
#define CROWD "engine-step:1:stop,engine-step:2:delay"
/* No answer of more than a few tokens ends before it is cancelled. */
#define SLOW "engine-step:1+:delay"

static struct fake_router router;
static struct daemon daemon_process;
static struct fake_worker *node;
static int32_t prompt[4096];

static void open_with(const char *const *options)
{
    snprintf(model, sizeof model, "%s", test_model("tiny.gguf", NULL));
    fake_router_open(&router);
    node = fake_router_worker(&router, &daemon_process, "baton-decode", model, options);
    oracle_prompt(1, node->vocab_count, 4096, prompt);
}

/* Every test ends with all pages free and a clean exit. */
static void close_all(void)
{
    fake_router_wait(&router, "idle decode node", worker_idle, node);
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

static struct fake_answer *ask_local(const struct ask *ask)
{
    return fake_router_ask(&router, node, NULL, ask);
}

Test(decode_daemon, says_what_it_is)
{
    open_with((const char *[]){"--max-batch", "7", "--max-requests", "9", NULL});
    cr_assert_eq(node->role, WORKER_DECODE);
    cr_assert_eq(node->max_batch, 7);
    cr_assert_eq(node->context_tokens, 2048);
    cr_assert_eq(node->pages_total, 9 * 2048 / 64);
    cr_assert_neq(strlen(node->data_address), 0);
    char line[160];
    snprintf(line, sizeof line, "DATA=%s\n", node->data_address);
    cr_assert(daemon_said(&daemon_process, line));
    cr_assert(daemon_said(&daemon_process, "STATUS=loading model 100 %\n"), "%s",
              daemon_process.notify);
    close_all();
}

Test(decode_daemon, answers_are_those_of_one_process)
{
    static const uint32_t lengths[] = {1, 2, 63, 64, 65, 127, 128, 129, 256, 257, 700};
    struct oracle oracle;
    open_with((const char *[]){"--chunk-tokens", "128", NULL});
    oracle_open(&oracle, model);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct ask ask = plain(lengths[i], 20);
        ask.prompt = prompt + i;
        ask.temperature = i % 2 == 0 ? 0 : 1.3f;
        ask.seed = 77 + i;
        struct fake_answer *answer = ask_local(&ask);
        fake_router_expect(&router, answer, FINISH_LENGTH);
        oracle_compare(&oracle, answer, 20);
        cr_assert_gt(answer->reports[WORKER_DECODE].first_step_us, 0);
    }
    cr_assert_gt(node->heartbeat.tokens_done, 0);
    cr_assert_gt(node->heartbeat.tokens_per_s, 0);
    oracle_close(&oracle);
    close_all();
}

Test(decode_daemon, many_join_and_leave_and_more_than_the_batch_wait)
{
    enum { COUNT = 24 };
    struct fake_answer *answers[COUNT];
    struct oracle oracle;
    open_with((const char *[]){"--max-batch", "5", "--chunk-tokens", "64", "--kv-memory", "64M",
                               "--enable-fault-injection", "--fault", CROWD, NULL});
    oracle_open(&oracle, model);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct ask ask = plain(1 + (i * 37) % 190, 3 + (i * 11) % 40);
        ask.prompt = prompt + i;
        ask.temperature = 1;
        ask.seed = i;
        answers[i] = ask_local(&ask);
    }
    fake_router_continue(&router, &daemon_process);
    for (uint32_t i = 0; i < COUNT; i++)
        fake_router_expect(&router, answers[i], FINISH_LENGTH);
    for (uint32_t i = 0; i < COUNT; i++)
        oracle_compare(&oracle, answers[i], answers[i]->ask.max_tokens);
    /* One message a step for all of the batch. */
    cr_assert_lt(router.tokens_messages * 2, router.tokens_steps);
    oracle_close(&oracle);
    close_all();
}

Test(decode_daemon, ends_of_answers)
{
    struct oracle oracle;
    int32_t free_run[12];
    open_with(NULL);
    oracle_open(&oracle, model);
    struct ask ask = plain(70, 12);
    ask.temperature = 1.5f;
    ask.seed = 5;
    oracle_generate(&oracle, &ask, 12, free_run);

    /* The id of a token in the middle as stop id; first occurrence decides. */
    uint32_t at = 6;
    for (uint32_t i = 0; i < 6; i++)
        at = free_run[i] == free_run[6] && i < at ? i : at;
    struct ask stop = ask;
    stop.stop_ids = &free_run[6];
    stop.stop_count = 1;
    struct fake_answer *answer = ask_local(&stop);
    fake_router_expect(&router, answer, FINISH_STOP);
    oracle_compare(&oracle, answer, at);
    cr_assert_eq(answer->stop_id, free_run[6]);

    /* The very first token: an answer of none. */
    stop.stop_ids = &free_run[0];
    answer = ask_local(&stop);
    fake_router_expect(&router, answer, FINISH_STOP);
    cr_assert_eq(answer->token_count, 0);

    /* min_tokens keeps it going: neither the stop id nor an end of the model's own is picked. */
    stop.min_tokens = 12;
    for (uint32_t eos = 0; eos < 2; eos++) {
        stop.ignore_eos = eos == 0;
        answer = ask_local(&stop);
        fake_router_expect(&router, answer, FINISH_LENGTH);
        oracle_compare(&oracle, answer, 12);
        for (uint32_t i = 0; i < 12; i++)
            cr_assert_neq(answer->tokens[i], free_run[0]);
    }

    struct ask one = plain(64, 1);
    answer = ask_local(&one);
    fake_router_expect(&router, answer, FINISH_LENGTH);
    oracle_compare(&oracle, answer, 1);

    /* The context ends the answer, whatever max_tokens says. */
    struct ask last = plain(2047, UINT32_MAX);
    answer = ask_local(&last);
    fake_router_expect(&router, answer, FINISH_LENGTH);
    oracle_compare(&oracle, answer, 1);
    struct ask few = plain(2040, 4000000);
    answer = ask_local(&few);
    fake_router_expect(&router, answer, FINISH_LENGTH);
    oracle_compare(&oracle, answer, 8);
    oracle_close(&oracle);
    close_all();
}

static int32_t model_eos(void)
{
    struct gguf *file;
    struct error error;
    uint32_t id = 0;
    cr_assert_eq(gguf_open(model, &file, &error), STATUS_OK, "%s", error.text);
    cr_assert_eq(gguf_get_u32(file, "tokenizer.ggml.eos_token_id", &id, &error), STATUS_OK);
    gguf_close(file);
    return (int32_t)id;
}

/* The model's own end as the very first token, found by trying seeds. */
Test(decode_daemon, the_end_of_the_model_ends_an_answer_unless_it_is_to_go_on)
{
    struct oracle oracle;
    open_with(NULL);
    oracle_open(&oracle, model);
    const int32_t eos = model_eos();
    struct ask ask = plain(3, 12);
    int32_t id = -1;
    ask.temperature = 4;
    for (ask.seed = 1; ask.seed < 20000 && id != eos; ask.seed++)
        oracle_generate(&oracle, &ask, 1, &id);
    cr_assert_eq(id, eos, "no seed gives the end");
    ask.seed--;

    ask.ignore_eos = false;
    struct fake_answer *answer = ask_local(&ask);
    fake_router_expect(&router, answer, FINISH_STOP);
    cr_assert_eq(answer->token_count, 0);
    cr_assert_eq(answer->stop_id, eos);

    ask.min_tokens = 12;
    answer = ask_local(&ask);
    fake_router_expect(&router, answer, FINISH_LENGTH);
    for (uint32_t i = 0; i < 12; i++)
        cr_assert_neq(answer->tokens[i], eos, "token %u is the end", i);

    ask.min_tokens = 0;
    ask.ignore_eos = true;
    answer = ask_local(&ask);
    fake_router_expect(&router, answer, FINISH_LENGTH);
    oracle_compare(&oracle, answer, 12);
    cr_assert_eq(answer->tokens[0], eos);

    /* A stop id stays one. */
    ask.stop_ids = &eos;
    ask.stop_count = 1;
    answer = ask_local(&ask);
    fake_router_expect(&router, answer, FINISH_STOP);
    cr_assert_eq(answer->token_count, 0);
    oracle_close(&oracle);
    close_all();
}

Test(decode_daemon, log_probabilities_come_when_asked_for)
{
    open_with(NULL);
    struct ask ask = plain(20, 5);
    ask.top_logprobs = 3;
    struct fake_answer *answer = ask_local(&ask);
    fake_router_expect(&router, answer, FINISH_LENGTH);
    for (uint32_t i = 0; i < 5; i++) {
        cr_assert_lt(answer->logprobs[i], 0);
        cr_assert_eq(answer->top_counts[i], 3);
    }
    close_all();
}

Test(decode_daemon, a_request_placed_again_goes_on_where_it_was)
{
    struct oracle oracle;
    static int32_t tokens[200];
    open_with(NULL);
    oracle_open(&oracle, model);
    struct ask ask = plain(100, 30);
    ask.temperature = 1;
    ask.seed = 3;
    ask.repetition_penalty = 1.2f;
    ask.presence_penalty = 0.7f;
    ask.frequency_penalty = 0.4f;
    memcpy(tokens, prompt, 100 * sizeof *tokens);
    oracle_generate(&oracle, &ask, 30, tokens + 100);
    for (uint32_t emitted = 1; emitted < 30; emitted += 14) {
        struct ask again = ask;
        again.prompt = tokens;
        again.emitted_count = emitted;
        struct fake_answer *answer = ask_local(&again);
        fake_router_expect(&router, answer, FINISH_LENGTH);
        cr_assert_eq(answer->token_count, 30 - emitted);
        cr_assert_eq(memcmp(answer->tokens + emitted, tokens + 100 + emitted,
                            (30 - emitted) * sizeof *tokens),
                     0);
    }
    oracle_close(&oracle);
    close_all();
}

static void expect_refused(struct fake_answer *answer, enum status status, const char *words)
{
    fake_router_wait(&router, "refusal", answer_over, answer);
    cr_assert_eq(answer->refused, status, "%s", answer->text);
    cr_assert_not_null(strstr(answer->text, words), "\"%s\" without \"%s\"", answer->text, words);
}

Test(decode_daemon, bad_jobs_are_refused_with_a_sentence)
{
    open_with((const char *[]){"--max-requests", "2", "--lease-ms", "600s", NULL});
    struct ask ask = plain(0, 5);
    expect_refused(ask_local(&ask), STATUS_INVALID, "prompt is empty");
    ask = plain(2048, 5);
    expect_refused(ask_local(&ask), STATUS_LIMIT, "2048 tokens and the context 2048");
    ask = plain(5, 0);
    expect_refused(ask_local(&ask), STATUS_INVALID, "max_tokens is 0");
    int32_t bad[] = {1, 2, (int32_t)node->vocab_count};
    ask = plain(3, 5);
    ask.prompt = bad;
    expect_refused(ask_local(&ask), STATUS_INVALID, "token 2 is");
    bad[2] = -7;
    expect_refused(ask_local(&ask), STATUS_INVALID, "token 2 is -7");
    ask = plain(3, 5);
    ask.temperature = -1;
    expect_refused(ask_local(&ask), STATUS_INVALID, "temperature -1");

    /* Reservations without a prefill node hold their place until the lease ends. */
    struct fake_answer *held[2];
    for (int i = 0; i < 2; i++) {
        ask = plain(10, 5);
        held[i] = fake_router_begin(&router, node, node, &ask);
        held[i]->hold_prefill = true;
        fake_router_send_reserve(held[i]);
    }
    fake_router_wait(&router, "reservation", answer_reserved, held[1]);
    cr_assert_eq(held[1]->refused, STATUS_OK);
    cr_assert_neq(held[0]->handoff, held[1]->handoff);
    fake_router_send_reserve(held[0]);
    expect_refused(held[0], STATUS_EXISTS, "is here already");
    expect_refused(ask_local(&ask), STATUS_BUSY, "holds 2 requests");
    fake_router_cancel(held[0]);
    fake_router_cancel(held[1]);
    close_all();
}

static bool answer_failed(const void *answer)
{
    return ((const struct fake_answer *)answer)->failures > 0;
}

Test(decode_daemon, a_lease_ends_a_request)
{
    open_with((const char *[]){"--lease-ms", "50", NULL});
    struct ask ask = plain(100, 50);
    struct fake_answer *leased = fake_router_begin(&router, node, node, &ask);
    leased->hold_prefill = true;
    fake_router_send_reserve(leased);
    fake_router_wait(&router, "end of the lease", answer_failed, leased);
    cr_assert_eq(leased->failed, STATUS_TIMEOUT, "%s", leased->text);
    close_all();
}

/* Its pages never come, so that no fast machine can answer it in time. */
Test(decode_daemon, a_deadline_ends_a_request)
{
    open_with((const char *[]){"--lease-ms", "60000", NULL});
    struct ask ask = plain(100, 50);
    ask.remaining_ms = 1;
    struct fake_answer *late = fake_router_begin(&router, node, node, &ask);
    late->hold_prefill = true;
    fake_router_send_reserve(late);
    fake_router_wait(&router, "deadline", answer_failed, late);
    cr_assert_eq(late->failed, STATUS_TIMEOUT, "%s", late->text);
    cr_assert_not_null(strstr(late->text, "time was over"), "%s", late->text);
    close_all();
}

static bool one_runs(const void *arg)
{
    return ((const struct fake_worker *)arg)->heartbeat.running > 0;
}

static bool one_waits(const void *arg)
{
    return ((const struct fake_worker *)arg)->heartbeat.waiting > 0;
}

Test(decode_daemon, cancels_give_pages_back_in_every_state)
{
    open_with((const char *[]){"--max-batch", "1", "--lease-ms", "600s", "--enable-fault-injection",
                               "--fault", SLOW, NULL});
    struct ask ask = plain(200, 1800);
    struct fake_answer *running = ask_local(&ask);
    fake_router_wait(&router, "running request", one_runs, node);
    struct fake_answer *waiting = ask_local(&ask);
    fake_router_wait(&router, "waiting request", one_waits, node);
    struct fake_answer *reserved = fake_router_begin(&router, node, node, &ask);
    reserved->hold_prefill = true;
    fake_router_send_reserve(reserved);
    fake_router_wait(&router, "reservation", answer_reserved, reserved);
    cr_assert_eq(reserved->refused, STATUS_OK, "%s", reserved->text);
    cr_assert(!worker_idle(node));
    fake_router_cancel(waiting);
    fake_router_cancel(reserved);
    fake_router_cancel(running);
    fake_router_wait(&router, "idle decode node", worker_idle, node);
    cr_assert_lt(running->token_count, 1800);
    cr_assert_eq(waiting->token_count, 0);
    /* It serves on, and a cancel for nobody is nothing. */
    fake_router_cancel(running);
    ask = plain(10, 3);
    fake_router_expect(&router, ask_local(&ask), FINISH_LENGTH);
    close_all();
}

Test(decode_daemon, without_pages_a_request_is_refused_until_they_are_back)
{
    open_with(
        (const char *[]){"--kv-memory", "768K", "--context", "256", "--lease-ms", "600s", NULL});
    /* Two pages for the prompt and one to grow into. */
    const uint32_t count = node->pages_total / 3;
    struct fake_answer *held[64];
    cr_assert_leq(count, 64);
    cr_assert_lt(node->pages_total % 3, 2);
    for (uint32_t i = 0; i < count; i++) {
        struct ask ask = plain(100, 156);
        held[i] = fake_router_begin(&router, node, node, &ask);
        held[i]->hold_prefill = true;
        fake_router_send_reserve(held[i]);
    }
    struct ask ask = plain(100, 10);
    expect_refused(ask_local(&ask), STATUS_BUSY, "2 KV pages are needed to begin");
    for (uint32_t i = 0; i < count; i++)
        fake_router_cancel(held[i]);
    fake_router_expect(&router, ask_local(&ask), FINISH_LENGTH);
    close_all();
}

/* The heartbeat says that exactly so many rows were computed. */
static bool all_rows_told(const void *rows)
{
    cr_assert_leq(node->heartbeat.tokens_done, *(const uint64_t *)rows);
    return node->heartbeat.tokens_done == *(const uint64_t *)rows;
}

static bool one_was_preempted(const void *arg)
{
    return ((const struct fake_worker *)arg)->heartbeat.decode.preemptions > 0;
}

/* Prompts that are read here and begin alike: the common pages are computed once. */
Test(decode_daemon, a_common_beginning_is_read_once)
{
    enum { COUNT = 8, COMMON = 640 };
    struct oracle oracle;
    static int32_t prompts[COUNT][COMMON + 20];
    struct fake_answer *answers[COUNT];
    open_with((const char *[]){"--chunk-tokens", "128", NULL});
    oracle_open(&oracle, model);
    for (uint32_t i = 0; i < COUNT; i++) {
        memcpy(prompts[i], prompt, COMMON * sizeof *prompt);
        memcpy(prompts[i] + COMMON, prompt + 1000 + i, 20 * sizeof *prompt);
        struct ask ask = plain(COMMON + 20, 1);
        ask.prompt = prompts[i];
        answers[i] = ask_local(&ask);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        fake_router_expect(&router, answers[i], FINISH_LENGTH);
        oracle_compare(&oracle, answers[i], 1);
    }
    fake_router_wait(&router, "all rows", all_rows_told, &(uint64_t){COMMON + COUNT * 20});
    cr_assert_eq(node->heartbeat.decode.read_tokens, COMMON + COUNT * 20, "no answer was written");
    cr_assert_gt(node->heartbeat.decode.read_tokens_per_s, 0);
    cr_assert_eq(node->heartbeat.decode.unread_tokens, 0);
    oracle_close(&oracle);
    close_all();
}

/* Six pages for two answers that need four each: the newer one gives its pages back, and is
 * computed again when the older one is done. */
Test(decode_daemon, the_newest_is_preempted_when_pages_run_out_and_its_answer_is_the_same)
{
    struct oracle oracle;
    open_with((const char *[]){"--kv-memory", "294912", "--context", "256",
                               "--enable-fault-injection", "--fault", CROWD, NULL});
    cr_assert_eq(node->pages_total, 6);
    oracle_open(&oracle, model);
    struct ask ask = plain(40, 210), other = plain(50, 200);
    ask.temperature = other.temperature = 1;
    other.prompt = prompt + 9;
    struct fake_answer *first = ask_local(&ask);
    struct fake_answer *second = ask_local(&other);
    fake_router_continue(&router, &daemon_process);
    fake_router_expect(&router, first, FINISH_LENGTH);
    fake_router_expect(&router, second, FINISH_LENGTH);
    oracle_compare(&oracle, first, 210);
    oracle_compare(&oracle, second, 200);
    fake_router_wait(&router, "count of preemptions", one_was_preempted, node);
    cr_assert_eq(node->heartbeat.decode.read_tokens, 90, "what is read again is no news");
    cr_assert_eq(node->heartbeat.decode.preemptions, 1);
    cr_assert_gt(node->heartbeat.decode.preempted_tokens, 50);
    oracle_close(&oracle);
    close_all();
}

static bool one_token_is_here(const void *answer)
{
    return ((const struct fake_answer *)answer)->token_count > 0;
}

/* Every step takes half a second: one sequence is more than the target already, and a second one
 * waits at the router. */
Test(decode_daemon, what_would_pass_the_target_is_refused_until_there_is_room)
{
    open_with((const char *[]){"--tpot-target-ms", "100", "--enable-fault-injection", "--fault",
                               SLOW, NULL});
    struct ask ask = plain(1, 1000);
    struct fake_answer *first = ask_local(&ask);
    fake_router_wait(&router, "first token", one_token_is_here, first);
    expect_refused(ask_local(&ask), STATUS_BUSY, "the target is 100 ms");
    fake_router_cancel(first);
    fake_router_wait(&router, "idle decode node", worker_idle, node);
    ask = plain(1, 1);
    fake_router_expect(&router, ask_local(&ask), FINISH_LENGTH);
    close_all();
}

Test(decode_daemon, what_can_never_fit_is_refused_at_once)
{
    open_with((const char *[]){"--kv-memory", "196608", "--context", "256", NULL});
    cr_assert_eq(node->pages_total, 4);
    struct ask ask = plain(200, 56);
    fake_router_expect(&router, ask_local(&ask), FINISH_LENGTH);
    /* All pages are there for one again, however the one before it ended. */
    struct fake_answer *cancelled = ask_local(&ask);
    fake_router_wait(&router, "first token", one_token_is_here, cancelled);
    fake_router_cancel(cancelled);
    fake_router_wait(&router, "idle decode node", worker_idle, node);
    ask.prompt = prompt + 500;
    fake_router_expect(&router, ask_local(&ask), FINISH_LENGTH);
    ask = plain(256, 1);
    expect_refused(ask_local(&ask), STATUS_LIMIT, "256 tokens and the context 256");
    close_all();
}

Test(decode_daemon, a_lost_router_takes_its_requests_along_and_is_dialled_again)
{
    open_with((const char *[]){"--enable-fault-injection", "--fault", SLOW, NULL});
    struct ask ask = plain(100, 1900);
    ask_local(&ask);
    fake_router_wait(&router, "running request", one_runs, node);
    struct fake_worker before = *node;
    router.workers[0].welcomed = false;
    link_close(node->link, STATUS_OK, NULL);
    node->link = NULL;
    while (router.worker_count < 2 || router.workers[1].heartbeat.sequence == 0)
        loop_run_once(router.loop, 50);
    node = &router.workers[1];
    cr_assert_eq(memcmp(before.boot_id, node->boot_id, 16), 0);
    fake_router_wait(&router, "idle decode node", worker_idle, node);
    ask = plain(10, 3);
    fake_router_expect(&router, ask_local(&ask), FINISH_LENGTH);
    close_all();
}

Test(decode_daemon, two_routers_are_served_side_by_side_and_one_loss_is_the_others_nothing)
{
    struct fake_router second;
    struct oracle oracle;
    fake_router_open(&second);
    open_with((const char *[]){"--router", second.address, NULL});
    oracle_open(&oracle, model);
    while (second.worker_count == 0 || second.workers[0].heartbeat.sequence == 0)
        loop_run_once(second.loop, 50);
    /* The same ids from both: they are different requests. */
    struct ask ask = plain(40, 1500), other = plain(80, 60);
    struct fake_answer *lost = fake_router_ask(&second, &second.workers[0], NULL, &ask);
    struct fake_answer *kept = ask_local(&other);
    cr_assert_eq(lost->request, kept->request);
    while (lost->token_count == 0)
        loop_run_once(second.loop, 50);
    fake_router_close(&second);
    fake_router_expect(&router, kept, FINISH_LENGTH);
    oracle_compare(&oracle, kept, 60);
    oracle_close(&oracle);
    close_all();
}

/* A model whose embedding of one id is NaN: whoever uses that id fails, nobody else does. */
static int32_t poison_model(void)
{
    const char *path = test_model("nan.gguf", (const char *[]){"--untied", NULL});
    struct gguf *file;
    struct error error;
    const int32_t id = 33;
    snprintf(model, sizeof model, "%s", path);
    cr_assert_eq(gguf_open(path, &file, &error), STATUS_OK, "%s", error.text);
    const struct tensor_view *tensor = gguf_tensor_find(file, "token_embd.weight");
    cr_assert_not_null(tensor);
    /* Data is the end of the file, so an offset counts back from there. */
    const char *end = NULL;
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        const struct tensor_view *t = gguf_tensor_at(file, i);
        if ((const char *)t->data + t->bytes > end)
            end = (const char *)t->data + t->bytes;
    }
    FILE *out = fopen(path, "r+be");
    cr_assert_not_null(out);
    const uint32_t nan = 0x7fc00000;
    const long back = (long)(end - (const char *)tensor->data);
    fseek(out, 0, SEEK_END);
    const long size = ftell(out);
    const long row = (long)(tensor->dimensions[0] * sizeof(float)) * id;
    fseek(out, size - back + row, SEEK_SET);
    for (uint64_t i = 0; i < tensor->dimensions[0]; i++)
        fwrite(&nan, sizeof nan, 1, out);
    fclose(out);
    gguf_close(file);
    return id;
}

Test(decode_daemon, a_request_whose_logits_are_no_numbers_fails_alone)
{
    const int32_t id = poison_model();
    fake_router_open(&router);
    node = fake_router_worker(&router, &daemon_process, "baton-decode", model, NULL);
    oracle_prompt(1, node->vocab_count, 4096, prompt);
    for (int i = 0; i < 200; i++)
        prompt[i] = prompt[i] == id ? id + 1 : prompt[i];
    int32_t bad[20];
    memcpy(bad, prompt, sizeof bad);
    bad[10] = id;
    struct ask good = plain(30, 40), broken = plain(20, 10);
    broken.prompt = bad;
    struct fake_answer *first = ask_local(&good);
    struct fake_answer *second = ask_local(&broken);
    struct fake_answer *third = ask_local(&good);
    fake_router_wait(&router, "failure", answer_over, second);
    cr_assert_eq(second->failed, STATUS_CORRUPT, "%s", second->text);
    cr_assert_not_null(strstr(second->text, "position 20"), "%s", second->text);
    fake_router_expect(&router, first, FINISH_LENGTH);
    fake_router_expect(&router, third, FINISH_LENGTH);
    close_all();
}

Test(decode_daemon, stops_cleanly_with_everything_open)
{
    open_with((const char *[]){"--max-batch", "2", "--drain-ms", "100", "--lease-ms", "600s",
                               "--enable-fault-injection", "--fault", SLOW, NULL});
    struct ask ask = plain(300, 1000);
    for (int i = 0; i < 4; i++)
        ask_local(&ask);
    ask = plain(300, 10);
    struct fake_answer *reserved = fake_router_begin(&router, node, node, &ask);
    reserved->hold_prefill = true;
    fake_router_send_reserve(reserved);
    fake_router_wait(&router, "running request", one_runs, node);
    fake_router_wait(&router, "reservation", answer_reserved, reserved);
    daemon_stop(&daemon_process);
    fake_router_wait(&router, "close of the link", worker_gone, node);
    cr_assert(node->said_goodbye);
    fake_router_close(&router);
}
