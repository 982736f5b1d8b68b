#include "tests/router/fake_worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"
#include "tests/router/tiny_text.h"

void fake_worker_init(struct fake_worker *worker, struct router_process *router,
                      enum worker_role role, const char *node)
{
    *worker = (struct fake_worker){.router = router,
                                   .role = role,
                                   .answer = "answer",
                                   .finish = FINISH_STOP,
                                   .profile_id = 1,
                                   .context_tokens = TINY_CONTEXT,
                                   .vocab_count = TINY_VOCAB,
                                   .pages_total = TINY_CONTEXT / 64,
                                   .grammars = 0x7e, /* every kind */
                                   .abilities = WORKER_SCORES,
                                   .tokens_per_s = 100};
    snprintf(worker->node, sizeof worker->node, "%s", node);
    random_os_bytes(worker->boot_id, sizeof worker->boot_id);
    fake_worker_serve(worker, tiny_model_path(), 42);
}

void fake_worker_serve(struct fake_worker *worker, const char *path, uint8_t weights)
{
    struct text *text;
    struct error error = {.text = ""};
    cr_assert_eq(text_open(path, &text, &error), STATUS_OK, "%s", error.text);
    const struct text_info *info = text_info(text);
    store_le64(worker->tokenizer_digest, info->digest.low);
    store_le64(worker->tokenizer_digest + 8, info->digest.high);
    snprintf(worker->model, sizeof worker->model, "%s", info->name);
    worker->weights_digest[0] = weights;
    text_close(text);
}

static struct fake_job *find_job(struct fake_worker *worker, uint64_t request, uint32_t attempt)
{
    for (uint32_t i = 0; i < worker->job_count; i++) {
        if (worker->jobs[i].request == request && worker->jobs[i].attempt == attempt)
            return &worker->jobs[i];
    }
    return NULL;
}

static struct fake_job *note_job(struct fake_worker *worker, const struct msg_job *job)
{
    cr_assert_lt(worker->job_count, FAKE_JOBS_MAX);
    cr_assert_gt(job->prompt_count, 0);
    cr_assert_eq(job->tokens.count, job->prompt_count);
    struct fake_job *note = &worker->jobs[worker->job_count++];
    *note = (struct fake_job){.request = job->request,
                              .attempt = job->attempt,
                              .prompt_count = job->prompt_count,
                              .max_tokens = job->max_tokens,
                              .logprobs = job->sampling.logprobs,
                              .top_logprobs = job->sampling.top_logprobs,
                              .scores = job->scores,
                              .first_id = job->tokens.items[0]};
    wire_str_copy(job->traceparent, note->traceparent, sizeof note->traceparent);
    note->grammar_kind = job->grammar_kind;
    wire_str_copy((struct wire_str){(const char *)job->grammar.data, job->grammar.bytes},
                  note->grammar, sizeof note->grammar);
    return note;
}

static void write_rest(struct fake_worker *worker, const struct fake_job *job, uint32_t offset)
{
    for (const char *c = worker->answer + offset; *c; c++, offset++) {
        const char letter[2] = {*c, '\0'};
        fake_tokens(worker, job, offset, letter, FINISH_NONE);
    }
    fake_tokens(worker, job, offset, "", worker->finish);
    fake_report(worker, job);
}

static void on_reserve(struct fake_worker *worker, const struct msg_reserve *reserve)
{
    struct fake_job *job = note_job(worker, &reserve->job);
    job->local = reserve->local ||
                 (worker->reads_short && reserve->job.prompt_count <= reserve->local_tokens);
    job->handoff = job->request * 3 + job->attempt;
    job->ticket = job->request * 5 + job->attempt;
    if (!worker->automatic)
        return;
    fake_reserved(worker, job, STATUS_OK);
    if (job->local)
        write_rest(worker, job, 0);
}

static void on_prefill(struct fake_worker *worker, const struct msg_prefill *prefill)
{
    struct fake_job *job = note_job(worker, &prefill->job);
    job->handoff = prefill->handoff;
    job->ticket = prefill->ticket;
    if (!worker->automatic)
        return;
    for (uint32_t i = 1; i < job->prompt_count && job->scores > 0; i++)
        fake_score(worker, job, i);
    const char letter[2] = {worker->answer[0], '\0'};
    fake_tokens(worker, job, 0, letter, prefill->handoff ? FINISH_NONE : FINISH_LENGTH);
    fake_report(worker, job);
    if (!prefill->handoff)
        return;
    const struct fake_job *other = find_job(worker->partner, job->request, job->attempt);
    cr_assert(other, "the decode node was not asked first");
    write_rest(worker->partner, other, 1);
}

static void on_message(void *arg, enum message_id id, const void *message)
{
    struct fake_worker *worker = arg;
    switch (id) {
    case MESSAGE_ID_WELCOME:
        worker->welcomed = true;
        break;
    case MESSAGE_ID_RESERVE:
        cr_assert_eq(worker->role, WORKER_DECODE);
        on_reserve(worker, message);
        break;
    case MESSAGE_ID_PREFILL:
        cr_assert_eq(worker->role, WORKER_PREFILL);
        on_prefill(worker, message);
        break;
    case MESSAGE_ID_CANCEL: {
        const struct msg_cancel *cancel = message;
        struct fake_job *job = find_job(worker, cancel->request, cancel->attempt);
        cr_assert(job, "a cancel for a request that is not here");
        cr_assert(!job->cancelled, "cancelled twice");
        job->cancelled = true;
        worker->cancel_count++;
        break;
    }
    case MESSAGE_ID_HEARTBEAT_ACK: {
        const struct msg_heartbeat_ack *ack = message;
        worker->anew_asked += ack->prefix_anew;
        worker->heartbeats = ack->sequence;
        break;
    }
    case MESSAGE_ID_GOAWAY:
        break;
    default:
        cr_assert_fail("a router must not send %s", wire_message_name(id));
    }
}

static void on_close(void *arg, enum status status, const char *text)
{
    struct fake_worker *worker = arg;
    worker->link = NULL;
    worker->closed = true;
    snprintf(worker->close_text, sizeof worker->close_text, "%s", text ? text : "");
}

static void on_open(void *arg)
{
    struct fake_worker *worker = arg;
    const struct msg_hello hello = {
        .role = worker->role,
        .node = wire_str(worker->node),
        .boot_id = {worker->boot_id, 16},
        .identity = {.model = wire_str(worker->model),
                     .weights_digest = {worker->weights_digest, 16},
                     .tokenizer_digest = {worker->tokenizer_digest, 16},
                     .profile_id = worker->profile_id,
                     .layout = {.version = 1, .page_tokens = 64}},
        .context_tokens = worker->context_tokens,
        .vocab_count = worker->vocab_count,
        .pages_total = worker->pages_total,
        .grammars = worker->grammars,
        .abilities = worker->abilities,
        .max_batch = 8,
        .data_address = wire_str("127.0.0.1:1"),
        .version = wire_str("test"),
        .tokens_per_s = 100,
        .read_tokens_per_s = worker->read_tokens_per_s,
        .model_name = wire_str(worker->model_name ? worker->model_name : ""),
    };
    cr_assert_eq(link_send(worker->link, MESSAGE_ID_HELLO, &hello), STATUS_OK);
}

static const struct link_events events = {
    .on_open = on_open, .on_message = on_message, .on_close = on_close};

void fake_worker_connect(struct fake_worker *worker)
{
    struct error error = {.text = ""};
    struct link_limits limits = link_default_limits;
    limits.silent_ms = 600000; /* the test, not this side, decides what is too silent */
    worker->welcomed = worker->closed = false;
    cr_assert_eq(link_dial(worker->router->loop, worker->router->control, &events, worker, &limits,
                           &worker->link, &error),
                 STATUS_OK, "%s", error.text);
    WAIT_FOR(worker->router, worker->welcomed || worker->closed);
}

static void send_heartbeat(struct fake_worker *worker, struct msg_heartbeat heartbeat)
{
    heartbeat.sequence = worker->heartbeats + 1;
    heartbeat.tokens_per_s = worker->tokens_per_s;
    heartbeat.decode.read_tokens_per_s = worker->read_tokens_per_s;
    if (worker->role == WORKER_DECODE)
        heartbeat.decode.unread_tokens = heartbeat.queued_tokens;
    cr_assert_eq(link_send(worker->link, MESSAGE_ID_HEARTBEAT, &heartbeat), STATUS_OK);
    WAIT_FOR(worker->router, worker->heartbeats == heartbeat.sequence || worker->closed);
}

void fake_worker_heartbeat(struct fake_worker *worker, uint64_t queued_tokens, uint32_t pages_free)
{
    send_heartbeat(
        worker, (struct msg_heartbeat){.queued_tokens = queued_tokens, .pages_free = pages_free});
}

void fake_worker_news_bytes(struct fake_worker *worker, bool anew, uint64_t sequence,
                            const void *bytes, uint32_t count)
{
    send_heartbeat(
        worker, (struct msg_heartbeat){
                    .pages_free = worker->pages_total,
                    .prefix_news = {.anew = anew, .sequence = sequence, .events = {bytes, count}}});
}

void fake_worker_news(struct fake_worker *worker, bool anew, uint64_t sequence,
                      const uint64_t *hashes, uint32_t count)
{
    enum { EVENTS_MAX = 64 };
    uint8_t events[EVENTS_MAX * 8];
    cr_assert_leq(count, EVENTS_MAX);
    for (uint32_t i = 0; i < count; i++)
        store_le64(events + (size_t)i * 8, hashes[i] | 1);
    fake_worker_news_bytes(worker, anew, sequence, events, count * 8);
}

void fake_worker_close(struct fake_worker *worker)
{
    link_close(worker->link, STATUS_OK, NULL);
    worker->link = NULL;
}

static void send_message(struct fake_worker *worker, enum message_id id, const void *message)
{
    if (worker->link)
        cr_assert_eq(link_send(worker->link, id, message), STATUS_OK);
}

void fake_reserved(struct fake_worker *worker, const struct fake_job *job, enum status refusal)
{
    const struct msg_reserved reserved = {
        .request = job->request,
        .attempt = job->attempt,
        .refused = refusal < 0 ? (uint32_t)-refusal : 0,
        .text = wire_str(refusal < 0 ? "for the test" : ""),
        .handoff = job->handoff,
        .ticket = job->ticket,
        .boot_id = {worker->boot_id, 16},
        .address = wire_str("127.0.0.1:1"),
        .local = job->local,
        .cached_tokens = worker->held_tokens,
    };
    send_message(worker, MESSAGE_ID_RESERVED, &reserved);
}

enum { TOKENS_MAX = 256, TOP_MAX = 20 };

/* What a step points at. */
struct step_room {
    int32_t ids[TOKENS_MAX], top_ids[TOKENS_MAX * TOP_MAX];
    float logprobs[TOKENS_MAX], top_logprobs[TOKENS_MAX * TOP_MAX];
};

static struct msg_step make_step(const struct fake_worker *worker, const struct fake_job *job,
                                 uint32_t offset, const char *letters, uint32_t count,
                                 enum finish_code finish, struct step_room *room)
{
    const uint32_t told = count + (job->tells_end && finish == FINISH_STOP);
    cr_assert_leq(told, TOKENS_MAX);
    for (uint32_t i = 0; i < told; i++) {
        room->ids[i] =
            (unsigned char)letters[i]; /* behind them a 0, which is not among the tokens */
        room->logprobs[i] = -0.5f;
        for (uint32_t k = 0; k < job->top_logprobs; k++) {
            room->top_ids[i * job->top_logprobs + k] = 'A' + (int32_t)k;
            room->top_logprobs[i * job->top_logprobs + k] = -1.0f - (float)k;
        }
    }
    const uint32_t with = job->logprobs ? told : 0;
    return (struct msg_step){
        .request = job->request,
        .attempt = job->attempt,
        .choice = job->choice,
        .first_position = job->prompt_count + offset,
        .tokens = {room->ids, count},
        .finish = finish,
        .stop_id = finish == FINISH_STOP ? TINY_END : 0,
        .logprobs = {room->logprobs, with},
        .top_count = job->top_logprobs,
        .top_ids = {room->top_ids, with * job->top_logprobs},
        .top_logprobs = {room->top_logprobs, with * job->top_logprobs},
        .cached_tokens = offset == 0 ? worker->cached_tokens : 0,
    };
}

void fake_tokens(struct fake_worker *worker, const struct fake_job *job, uint32_t offset,
                 const char *letters, enum finish_code finish)
{
    struct step_room room;
    const struct msg_step step =
        make_step(worker, job, offset, letters, (uint32_t)strlen(letters), finish, &room);
    const struct msg_tokens tokens = {.steps = {&step, 1}};
    send_message(worker, MESSAGE_ID_TOKENS, &tokens);
}

void fake_tokens_apart(struct fake_worker *worker, const struct fake_job *job, uint32_t offset,
                       const char *letters, enum finish_code finish)
{
    enum { STEPS_MAX = 4 };
    const uint32_t count = (uint32_t)strlen(letters);
    struct step_room rooms[STEPS_MAX];
    struct msg_step steps[STEPS_MAX];
    cr_assert_leq(count, STEPS_MAX);
    for (uint32_t i = 0; i < count; i++)
        steps[i] = make_step(worker, job, offset + i, letters + i, 1,
                             i + 1 == count ? finish : FINISH_NONE, &rooms[i]);
    const struct msg_tokens tokens = {.steps = {steps, count}};
    send_message(worker, MESSAGE_ID_TOKENS, &tokens);
}

void fake_score(struct fake_worker *worker, const struct fake_job *job, uint32_t position)
{
    int32_t top_ids[20];
    float top_logprobs[20];
    const int32_t id = 0;
    const float logprob = -(float)position;
    const uint32_t top = job->scores - 1;
    for (uint32_t k = 0; k < top; k++) {
        top_ids[k] = 'A' + (int32_t)k;
        top_logprobs[k] = -0.25f - (float)k;
    }
    const struct msg_step step = {.request = job->request,
                                  .attempt = job->attempt,
                                  .choice = job->choice,
                                  .first_position = position,
                                  .tokens = {&id, 1},
                                  .logprobs = {&logprob, 1},
                                  .top_count = top,
                                  .top_ids = {top_ids, top},
                                  .top_logprobs = {top_logprobs, top},
                                  .rank = position + 100};
    const struct msg_tokens message = {.steps = {&step, 1}};
    send_message(worker, MESSAGE_ID_TOKENS, &message);
}

void fake_failed(struct fake_worker *worker, const struct fake_job *job, enum status status,
                 const char *text)
{
    const struct msg_failed failed = {.request = job->request,
                                      .attempt = job->attempt,
                                      .choice = job->choice,
                                      .code = (uint32_t)-status,
                                      .text = wire_str(text)};
    send_message(worker, MESSAGE_ID_FAILED, &failed);
}

void fake_report(struct fake_worker *worker, const struct fake_job *job)
{
    const bool prefill = worker->role == WORKER_PREFILL;
    const struct msg_report report = {.request = job->request,
                                      .attempt = job->attempt,
                                      .role = worker->role,
                                      .queue_us = 1000,
                                      .compute_us = 2000,
                                      .handoff_us = prefill ? 3000 : 0,
                                      .handoff_bytes = prefill ? 4096 : 0,
                                      .handoff_wait_us = prefill ? 500 : 0,
                                      .first_step_us = prefill ? 0 : 700};
    send_message(worker, MESSAGE_ID_REPORT, &report);
}
