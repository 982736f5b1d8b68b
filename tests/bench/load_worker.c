#include "tests/bench/load_worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"

enum { HEARTBEAT_MS = 500, STEPS_MAX = 1024 };

static void send_message(struct load_worker *worker, enum message_id id, const void *message)
{
    CHECK(link_send(worker->link, id, message) == STATUS_OK);
}

static void on_heartbeat(void *arg)
{
    struct load_worker *worker = arg;
    const struct msg_heartbeat heartbeat = {.sequence = ++worker->sequence,
                                            .running = worker->running_count,
                                            .pages_free = 1 << 20,
                                            .tokens_per_s = 1e6f};
    send_message(worker, MESSAGE_ID_HEARTBEAT, &heartbeat);
}

static void on_open(void *arg)
{
    struct load_worker *worker = arg;
    static const uint8_t weights[16] = {1};
    const struct msg_hello hello = {
        .role = worker->role,
        .node = wire_str(worker->role == WORKER_PREFILL ? "p0" : "d0"),
        .boot_id = {worker->boot_id, 16},
        .identity = {.model = wire_str("load"),
                     .weights_digest = {weights, 16},
                     .tokenizer_digest = {worker->tokenizer_digest, 16},
                     .profile_id = 1,
                     .layout = {.version = 1, .page_tokens = 64}},
        .context_tokens = text_info(worker->text)->context_tokens,
        .vocab_count = text_info(worker->text)->vocab_count,
        .pages_total = 1 << 20,
        .max_batch = LOAD_SEQUENCES_MAX,
        .data_address = wire_str("127.0.0.1:1"),
        .version = wire_str("load"),
        .tokens_per_s = 1e6f,
    };
    send_message(worker, MESSAGE_ID_HELLO, &hello);
}

static void on_reserve(struct load_worker *worker, const struct msg_reserve *reserve)
{
    const struct msg_job *job = &reserve->job;
    CHECK(worker->running_count < LOAD_SEQUENCES_MAX && job->max_tokens > 1);
    worker->running[worker->running_count++] =
        (struct load_sequence){.request = job->request,
                               .attempt = job->attempt,
                               .position = job->prompt_count + 1,
                               .left = job->max_tokens - 1};
    const struct msg_reserved reserved = {.request = job->request,
                                          .attempt = job->attempt,
                                          .handoff = job->request,
                                          .ticket = 1,
                                          .boot_id = {worker->boot_id, 16},
                                          .address = wire_str("127.0.0.1:1")};
    send_message(worker, MESSAGE_ID_RESERVED, &reserved);
}

static void on_prefill(struct load_worker *worker, const struct msg_prefill *prefill)
{
    const struct msg_job *job = &prefill->job;
    const struct msg_step step = {.request = job->request,
                                  .attempt = job->attempt,
                                  .first_position = job->prompt_count,
                                  .tokens = {&worker->token, 1},
                                  .finish = prefill->handoff ? FINISH_NONE : FINISH_LENGTH};
    const struct msg_tokens tokens = {.steps = {&step, 1}};
    send_message(worker, MESSAGE_ID_TOKENS, &tokens);
    const struct msg_report report = {
        .request = job->request, .attempt = job->attempt, .role = WORKER_PREFILL, .compute_us = 1};
    send_message(worker, MESSAGE_ID_REPORT, &report);
}

static void on_cancel(struct load_worker *worker, const struct msg_cancel *cancel)
{
    for (uint32_t i = 0; i < worker->running_count; i++) {
        if (worker->running[i].request == cancel->request)
            worker->running[i] = worker->running[--worker->running_count];
    }
}

static void on_message(void *arg, enum message_id id, const void *message)
{
    struct load_worker *worker = arg;
    if (id == MESSAGE_ID_WELCOME)
        worker->up = true;
    else if (id == MESSAGE_ID_RESERVE)
        on_reserve(worker, message);
    else if (id == MESSAGE_ID_PREFILL)
        on_prefill(worker, message);
    else if (id == MESSAGE_ID_CANCEL)
        on_cancel(worker, message);
}

static void on_close(void *arg, enum status status, const char *text)
{
    fprintf(stderr, "router_load: the router closed the link: %s\n",
            text ? text : status_sentence(status));
    exit(1);
}

static const struct link_events events = {
    .on_open = on_open, .on_message = on_message, .on_close = on_close};

void load_worker_start(struct load_worker *worker, struct loop *loop, enum worker_role role,
                       const struct text *text, const char *control)
{
    static const char letter[] = " the";
    struct error error = {.text = ""};
    struct link_limits limits = link_default_limits;
    limits.silent_ms = 60000;
    *worker = (struct load_worker){.loop = loop, .role = role, .text = text};
    worker->token = text_token_find(text, letter, sizeof letter - 1);
    if (worker->token < 0)
        worker->token = text_token_find(text, "a", 1);
    CHECK(worker->token >= 0);
    random_os_bytes(worker->boot_id, sizeof worker->boot_id);
    store_le64(worker->tokenizer_digest, text_info(text)->digest.low);
    store_le64(worker->tokenizer_digest + 8, text_info(text)->digest.high);
    worker->running = calloc(LOAD_SEQUENCES_MAX, sizeof *worker->running);
    CHECK(worker->running != NULL);
    CHECK(link_dial(loop, control, &events, worker, &limits, &worker->link, &error) == STATUS_OK);
    while (!worker->up)
        loop_run_once(loop, 100);
    worker->heartbeat = loop_timer_create(loop, on_heartbeat, worker);
    loop_timer_start(worker->heartbeat, HEARTBEAT_MS, HEARTBEAT_MS);
}

uint32_t load_worker_step(struct load_worker *worker)
{
    static struct msg_step steps[STEPS_MAX];
    const uint32_t total = worker->running_count;
    uint32_t kept = 0;
    for (uint32_t at = 0; at < total;) {
        uint32_t count = 0;
        for (; at < total && count < STEPS_MAX; at++) {
            struct load_sequence *sequence = &worker->running[at];
            const bool last = --sequence->left == 0;
            steps[count++] = (struct msg_step){.request = sequence->request,
                                               .attempt = sequence->attempt,
                                               .first_position = sequence->position++,
                                               .tokens = {&worker->token, 1},
                                               .finish = last ? FINISH_LENGTH : FINISH_NONE};
            if (!last)
                worker->running[kept++] = *sequence;
        }
        const struct msg_tokens tokens = {.steps = {steps, count}};
        send_message(worker, MESSAGE_ID_TOKENS, &tokens);
    }
    worker->running_count = kept;
    return total;
}

void load_worker_stop(struct load_worker *worker)
{
    loop_timer_destroy(worker->heartbeat);
    link_close(worker->link, STATUS_OK, NULL);
    free(worker->running);
}
