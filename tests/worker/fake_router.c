#include "tests/worker/fake_router.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { HEARTBEAT_MS = 20, SILENT_MS = 100000, ROUTERS_MAX = 2 };

static struct fake_router *open_routers[ROUTERS_MAX];
static uint32_t open_count;

/* ---- links ---- */

static void on_hello(struct fake_worker *worker, const struct msg_hello *hello)
{
    worker->role = (enum worker_role)hello->role;
    wire_str_copy(hello->node, worker->node, sizeof worker->node);
    wire_str_copy(hello->data_address, worker->data_address, sizeof worker->data_address);
    cr_assert_eq(hello->boot_id.bytes, sizeof worker->boot_id);
    memcpy(worker->boot_id, hello->boot_id.data, sizeof worker->boot_id);
    worker->context_tokens = hello->context_tokens;
    worker->vocab_count = hello->vocab_count;
    worker->pages_total = hello->pages_total;
    worker->max_batch = hello->max_batch;
    cr_assert_gt(hello->tokens_per_s, 0);
    cr_assert_eq(hello->read_tokens_per_s > 0, hello->role == WORKER_DECODE);
    cr_assert_eq(hello->identity.weights_digest.bytes, 16);
    cr_assert_eq(hello->identity.rank_count, 1);
    cr_assert_eq(hello->grammars, 0x7e, "every kind of grammar");
    cr_assert_eq(hello->abilities, WORKER_SCORES);
    static const uint8_t boot_id[16] = {1};
    const struct msg_welcome welcome = {.boot_id = {boot_id, sizeof boot_id},
                                        .heartbeat_ms = HEARTBEAT_MS,
                                        .version = wire_str("test")};
    cr_assert_eq(link_send(worker->link, MESSAGE_ID_WELCOME, &welcome), STATUS_OK);
    worker->welcomed = true;
}

static struct fake_answer *find(struct fake_router *router, uint64_t request, uint32_t attempt,
                                uint32_t choice)
{
    for (uint32_t i = 0; i < router->answer_count; i++) {
        if (router->answers[i].request == request && router->answers[i].attempt == attempt &&
            router->answers[i].ask.choice == choice)
            return &router->answers[i];
    }
    cr_assert_fail("a worker speaks of request %" PRIx64 ", which nobody asked for", request);
    return NULL;
}

static void send_cancel(const struct fake_worker *worker, const struct fake_answer *answer)
{
    const struct msg_cancel cancel = {
        .request = answer->request, .attempt = answer->attempt, .choice = answer->ask.choice};
    if (worker == NULL || worker->link == NULL)
        return;
    /* Tests kill workers: the link may be failing already. */
    const enum status status = link_send(worker->link, MESSAGE_ID_CANCEL, &cancel);
    cr_assert(status == STATUS_OK || status == STATUS_CLOSED);
}

static void on_step(struct fake_worker *worker, const struct msg_step *step)
{
    struct fake_answer *answer = find(worker->router, step->request, step->attempt, step->choice);
    cr_assert_leq(step->tokens.count, 1);
    const uint32_t at = step->first_position - answer->ask.prompt_count;
    cr_assert(at < FAKE_TOKENS_MAX);
    /* Two links: the end from the decode node may overtake the first token, nothing else. */
    cr_assert(answer->finish == FINISH_NONE || at < answer->end, "a token after the end");
    if (step->tokens.count == 1) {
        cr_assert(!answer->seen[at], "token %u came twice", at);
        answer->seen[at] = true;
        answer->tokens[at] = step->tokens.items[0];
        answer->token_count++;
        if (step->logprobs.count == 1)
            answer->logprobs[at] = step->logprobs.items[0];
        answer->top_counts[at] = step->top_count;
        cr_assert_eq(step->top_ids.count, step->top_count * step->tokens.count);
    }
    if (step->finish == FINISH_NONE)
        return;
    cr_assert_eq(answer->finish, FINISH_NONE, "two ends");
    answer->finish = (enum finish_code)step->finish;
    answer->stop_id = step->stop_id;
    answer->end = at + step->tokens.count;
    /* What a router does when the first token was the last one. */
    if (worker->role == WORKER_PREFILL)
        send_cancel(answer->decode, answer);
}

static void on_failed(struct fake_worker *worker, const struct msg_failed *failed)
{
    struct fake_answer *answer =
        find(worker->router, failed->request, failed->attempt, failed->choice);
    const enum status status = (enum status)(-(int)failed->code);
    answer->failures++;
    answer->blamed |= status == STATUS_INVALID || status == STATUS_LIMIT;
    if (answer->failed != STATUS_OK)
        return;
    answer->failed = status;
    wire_str_copy(failed->text, answer->text, sizeof answer->text);
    if (!answer->hold_cancel)
        send_cancel(worker == answer->decode ? answer->prefill : answer->decode, answer);
}

static void on_reserved(struct fake_worker *worker, const struct msg_reserved *reserved)
{
    struct fake_answer *answer =
        find(worker->router, reserved->request, reserved->attempt, reserved->choice);
    answer->refused = (enum status)(-(int)reserved->refused);
    wire_str_copy(reserved->text, answer->text, sizeof answer->text);
    if (reserved->refused != 0)
        return;
    char address[129];
    wire_str_copy(reserved->address, address, sizeof address);
    cr_assert_str_eq(address, worker->data_address);
    cr_assert_eq(memcmp(reserved->boot_id.data, worker->boot_id, 16), 0);
    answer->reserved = true;
    answer->handoff = reserved->handoff;
    answer->ticket = reserved->ticket;
    answer->cached_tokens = reserved->cached_tokens;
    if (reserved->local != 0) {
        answer->local = true;
        answer->prefill = NULL;
    }
    if (!answer->local && !answer->hold_prefill)
        fake_router_send_prefill(answer);
}

static void on_message(void *arg, enum message_id id, const void *message)
{
    struct fake_worker *worker = arg;
    const struct msg_tokens *tokens = message;
    const struct msg_report *report = message;
    switch (id) {
    case MESSAGE_ID_HELLO:
        on_hello(worker, message);
        break;
    case MESSAGE_ID_HEARTBEAT:
        worker->heartbeat = *(const struct msg_heartbeat *)message;
        const struct msg_heartbeat_ack ack = {.sequence = worker->heartbeat.sequence};
        link_send(worker->link, MESSAGE_ID_HEARTBEAT_ACK, &ack);
        break;
    case MESSAGE_ID_TOKENS:
        worker->router->tokens_messages++;
        worker->router->tokens_steps += tokens->steps.count;
        for (uint32_t i = 0; i < tokens->steps.count; i++)
            on_step(worker, &tokens->steps.items[i]);
        break;
    case MESSAGE_ID_FAILED:
        on_failed(worker, message);
        break;
    case MESSAGE_ID_RESERVED:
        on_reserved(worker, message);
        break;
    case MESSAGE_ID_REPORT:
        cr_assert_eq(report->role, worker->role);
        find(worker->router, report->request, report->attempt, report->choice)
            ->reports[report->role] = *report;
        break;
    case MESSAGE_ID_GOAWAY:
        worker->said_goodbye = true;
        break;
    default:
        cr_assert_fail("a worker sent %s", wire_message_name(id));
    }
}

static void on_close(void *arg, enum status status, const char *text)
{
    struct fake_worker *worker = arg;
    worker->link = NULL;
    (void)status;
    (void)text;
}

static void on_accept(void *arg, struct link *link)
{
    static const struct link_events events = {.on_message = on_message, .on_close = on_close};
    struct fake_router *router = arg;
    if (router->deaf)
        return; /* a link that nobody attaches to is closed */
    cr_assert(router->worker_count < FAKE_WORKERS_MAX);
    struct fake_worker *worker = &router->workers[router->worker_count++];
    *worker = (struct fake_worker){.router = router, .link = link};
    link_attach(link, &events, worker);
}

void fake_router_open(struct fake_router *router)
{
    memset(router, 0, sizeof *router);
    router->loop = loop_create();
    router->answers = calloc(FAKE_ANSWERS_MAX, sizeof *router->answers);
    /* A worker that waits for its CPU is not lost. */
    struct link_limits limits = link_default_limits;
    limits.silent_ms = SILENT_MS;
    struct error error;
    cr_assert_eq(link_listen(router->loop, "127.0.0.1:0", on_accept, router, &limits,
                             &router->listener, &error),
                 STATUS_OK, "%s", error.text);
    snprintf(router->address, sizeof router->address, "127.0.0.1:%u",
             link_listener_port(router->listener));
    cr_assert_lt(open_count, ROUTERS_MAX);
    open_routers[open_count++] = router;
}

void fake_router_close(struct fake_router *router)
{
    for (uint32_t i = 0; i < router->worker_count; i++)
        link_close(router->workers[i].link, STATUS_OK, NULL);
    link_listener_close(router->listener);
    loop_destroy(router->loop);
    free(router->answers);
    for (uint32_t i = 0; i < open_count; i++) {
        if (open_routers[i] == router)
            open_routers[i] = open_routers[--open_count];
    }
}

void fake_routers_turn(void)
{
    for (uint32_t i = 0; i < open_count; i++)
        loop_run_once(open_routers[i]->loop, 0);
}

/* ---- waiting ---- */

void fake_router_wait(struct fake_router *router, const char *what, bool (*done)(const void *arg),
                      const void *arg)
{
    const uint64_t deadline_ns = loop_now_ns(router->loop) + (uint64_t)WAIT_MS * NS_PER_MS;
    while (!done(arg)) {
        cr_assert(loop_now_ns(router->loop) < deadline_ns, "no %s within %d ms", what, WAIT_MS);
        loop_run_once(router->loop, 50);
    }
}

static bool stopped(const void *arg)
{
    return daemon_stopped(arg);
}

void fake_router_continue(struct fake_router *router, struct daemon *daemon)
{
    loop_run_once(router->loop, 0);
    fake_router_wait(router, "stop by a fault", stopped, daemon);
    daemon_signal(daemon, SIGCONT);
}

struct start {
    struct fake_router *router;
    struct daemon *daemon;
    char node[32];
};

static struct fake_worker *started(const struct start *start)
{
    for (uint32_t i = 0; i < start->router->worker_count; i++) {
        struct fake_worker *worker = &start->router->workers[i];
        if (worker->link != NULL && worker->heartbeat.sequence > 0 &&
            strcmp(worker->node, start->node) == 0)
            return worker;
    }
    return NULL;
}

static bool start_done(const void *arg)
{
    const struct start *start = arg;
    const bool ready = daemon_said(start->daemon, "READY=1\n");
    cr_assert(!daemon_said(start->daemon, "FAILED="), "%s", start->daemon->notify);
    return ready && started(start) != NULL;
}

struct fake_worker *fake_router_worker(struct fake_router *router, struct daemon *daemon,
                                       const char *program, const char *model,
                                       const char *const *options)
{
    static int names;
    struct start start = {.router = router, .daemon = daemon};
    snprintf(start.node, sizeof start.node, "%s-%d", program, names++);
    const char *arguments[DAEMON_ARGS_MAX + 1] = {"--model",   model, "--router", router->address,
                                                  "--threads", "1",   "--name",   start.node};
    int count = 8;
    for (int i = 0; options != NULL && options[i] != NULL; i++)
        arguments[count++] = options[i];
    daemon_start(daemon, program, arguments);
    fake_router_wait(router, program, start_done, &start);
    return started(&start);
}

/* ---- requests ---- */

static void fill_job(const struct fake_answer *answer, struct msg_job *out)
{
    const struct ask *ask = &answer->ask;
    *out = (struct msg_job){
        .request = answer->request,
        .attempt = answer->attempt,
        .remaining_ms = ask->remaining_ms,
        .prompt_count = ask->prompt_count,
        .emitted_count = ask->emitted_count,
        .tokens = {ask->prompt, ask->prompt_count + ask->emitted_count},
        .max_tokens = ask->max_tokens,
        .choices = ask->choices,
        .min_tokens = ask->min_tokens,
        .ignore_eos = ask->ignore_eos,
        .stop_ids = {ask->stop_ids, ask->stop_count},
        .grammar_kind = ask->grammar_kind,
        .grammar = {(const uint8_t *)ask->grammar,
                    ask->grammar == NULL ? 0 : (uint32_t)strlen(ask->grammar)},
        .sampling = {.temperature = ask->temperature,
                     .top_p = 1,
                     .seed = ask->seed,
                     .logprobs = ask->top_logprobs > 0,
                     .top_logprobs = ask->top_logprobs,
                     .repetition_penalty = ask->repetition_penalty,
                     .presence_penalty = ask->presence_penalty,
                     .frequency_penalty = ask->frequency_penalty},
    };
}

void fake_router_send_reserve(const struct fake_answer *answer)
{
    struct msg_reserve reserve = {.local = answer->local,
                                  .lease_ms = answer->ask.lease_ms,
                                  .local_tokens = answer->ask.local_tokens};
    fill_job(answer, &reserve.job);
    answer->decode->asked_sequence = answer->decode->heartbeat.sequence;
    cr_assert_eq(link_send(answer->decode->link, MESSAGE_ID_RESERVE, &reserve), STATUS_OK);
}

void fake_router_send_prefill(const struct fake_answer *answer)
{
    struct msg_prefill prefill = {.handoff = answer->handoff,
                                  .ticket = answer->ticket,
                                  .cached_tokens = answer->cached_tokens};
    fill_job(answer, &prefill.job);
    answer->prefill->asked_sequence = answer->prefill->heartbeat.sequence;
    if (answer->decode != NULL) {
        prefill.boot_id = (struct wire_bin){answer->decode->boot_id, 16};
        prefill.address = wire_str(answer->decode->data_address);
    }
    cr_assert_eq(link_send(answer->prefill->link, MESSAGE_ID_PREFILL, &prefill), STATUS_OK);
}

struct fake_answer *fake_router_begin(struct fake_router *router, struct fake_worker *decode,
                                      struct fake_worker *prefill, const struct ask *ask)
{
    const uint32_t count = ask->choices > 1 ? ask->choices : 1, first = router->answer_count;
    cr_assert_leq(first + count, FAKE_ANSWERS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        struct fake_answer *answer = &router->answers[router->answer_count++];
        *answer = (struct fake_answer){
            .request = UINT64_C(0x7000000000) + first,
            .attempt = 1,
            .decode = decode,
            .prefill = prefill,
            .local = prefill == NULL,
            .ask = *ask,
        };
        answer->ask.choice = i;
    }
    return &router->answers[first];
}

struct fake_answer *fake_router_ask(struct fake_router *router, struct fake_worker *decode,
                                    struct fake_worker *prefill, const struct ask *ask)
{
    struct fake_answer *answer = fake_router_begin(router, decode, prefill, ask);
    if (decode != NULL)
        fake_router_send_reserve(answer);
    else
        fake_router_send_prefill(answer);
    return answer;
}

void fake_router_cancel(const struct fake_answer *answer)
{
    send_cancel(answer->decode, answer);
    send_cancel(answer->prefill, answer);
}

/* ---- predicates ---- */

bool answer_over(const void *arg)
{
    const struct fake_answer *answer = arg;
    const bool whole = answer->token_count + answer->ask.emitted_count == answer->end;
    return (answer->finish != FINISH_NONE && whole) || answer->failed != STATUS_OK ||
           answer->refused != STATUS_OK;
}

bool answer_reserved(const void *arg)
{
    const struct fake_answer *answer = arg;
    return answer->reserved || answer->refused != STATUS_OK;
}

bool answer_reported(const void *arg)
{
    const struct fake_answer *answer = arg;
    const bool decoded = answer->token_count > (answer->local ? 0 : 1);
    return (answer->prefill == NULL || answer->ask.choice > 0 ||
            answer->reports[WORKER_PREFILL].role != 0) &&
           (answer->decode == NULL || !decoded || answer->reports[WORKER_DECODE].role != 0);
}

bool worker_idle(const void *arg)
{
    const struct fake_worker *worker = arg;
    const struct msg_heartbeat *h = &worker->heartbeat;
    /* One may have been on its way already. */
    return h->sequence > worker->asked_sequence + 1 && h->pages_free == worker->pages_total &&
           h->running == 0 && h->waiting == 0 && h->queued_tokens == 0 && h->pages_handoff == 0;
}

bool worker_gone(const void *arg)
{
    return ((const struct fake_worker *)arg)->link == NULL;
}

void fake_router_expect(struct fake_router *router, struct fake_answer *answer,
                        enum finish_code finish)
{
    fake_router_wait(router, "end of an answer", answer_over, answer);
    cr_assert_eq(answer->refused, STATUS_OK, "refused: %s", answer->text);
    cr_assert_eq(answer->failed, STATUS_OK, "failed: %s", answer->text);
    cr_assert_eq(answer->finish, finish);
    for (uint32_t i = 0; i < answer->token_count; i++)
        cr_assert(answer->seen[answer->ask.emitted_count + i], "token %u is missing", i);
    fake_router_wait(router, "report", answer_reported, answer);
    /* Whoever waits for a heartbeat now wants one that knows of this. */
    if (answer->decode != NULL)
        answer->decode->asked_sequence = answer->decode->heartbeat.sequence;
    if (answer->prefill != NULL)
        answer->prefill->asked_sequence = answer->prefill->heartbeat.sequence;
}
