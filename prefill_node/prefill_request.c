/* One request on the control thread, from the job to the release of its place. */
#include "prefill_node/prefill_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "worker/job_log.h"

enum { BOOT_ID_BYTES = 16, ADDRESS_BYTES = 129, NO_STATE = 0xff };

/* [state][step] -> state. Whoever holds pages in a state is written at enum prefill_state. */
static const struct {
    const char *name;
    uint8_t next[PREFILL_STEP_COUNT];
} states[PREFILL_STATE_COUNT] = {
    /*                        ADMIT           DELIVER             LEAVE            RELEASE */
    [PREFILL_FREE] = {"free", {PREFILL_QUEUED, NO_STATE, NO_STATE, NO_STATE}},
    [PREFILL_QUEUED] = {"queued", {NO_STATE, PREFILL_DELIVERING, PREFILL_LEAVING, NO_STATE}},
    [PREFILL_DELIVERING] = {"delivering", {NO_STATE, NO_STATE, PREFILL_LEAVING, NO_STATE}},
    [PREFILL_LEAVING] = {"leaving", {NO_STATE, NO_STATE, NO_STATE, PREFILL_FREE}},
};

static uint32_t place_of(const struct prefill_node *node, const struct prefill_request *request)
{
    return (uint32_t)(request - node->requests);
}

static const struct request_key *key_of(const struct prefill_node *node,
                                        const struct prefill_request *request)
{
    return &node->table.keys[place_of(node, request)];
}

static void move_on(struct prefill_node *node, struct prefill_request *request,
                    enum prefill_step step)
{
    const uint8_t next = states[request->control.state].next[step];
    CHECK(next != NO_STATE);
    LOG_JOB(LOG_LEVEL_DEBUG, key_of(node, request)->request, request->job.trace, "%s -> %s",
            states[request->control.state].name, states[next].name);
    request->control.state = (enum prefill_state)next;
}

static void free_place(struct prefill_node *node, struct prefill_request *request)
{
    job_grammars_release(node->grammars, request->job.grammar);
    request->job.grammar = NULL;
    request_table_remove(&node->table, place_of(node, request));
}

/* Frees the place once it is leaving and neither the engine nor the hand-off holds it. */
static void release_if_done(struct prefill_node *node, struct prefill_request *request)
{
    if (request->control.state != PREFILL_LEAVING || request->control.engine_has ||
        request->control.out != NULL)
        return;
    move_on(node, request, STEP_RELEASE);
    if (request->engine.has_pages) {
        page_pool_free(node->worker->pages, request->slots, request->page_count);
        request->engine.has_pages = false;
        engine_port_poke(node->port);
    }
    free_place(node, request);
}

/* ---- in ---- */

static enum status check_target(const struct msg_prefill *m, struct error *error)
{
    if (m->handoff == 0 && m->job.max_tokens - m->job.emitted_count > 1)
        return error_set(error, STATUS_INVALID,
                         "%" PRIu32 " tokens are wanted and no hand-off is named",
                         m->job.max_tokens);
    if (m->handoff == 0)
        return STATUS_OK;
    if (m->boot_id.bytes != BOOT_ID_BYTES)
        return error_set(error, STATUS_INVALID, "the boot id has %" PRIu32 " bytes and not %d",
                         m->boot_id.bytes, BOOT_ID_BYTES);
    if (m->address.bytes == 0 || m->address.bytes >= ADDRESS_BYTES)
        return error_set(error, STATUS_INVALID,
                         "the address of the decode node has %" PRIu32 " bytes, not 1 to %d",
                         m->address.bytes, ADDRESS_BYTES - 1);
    if (m->cached_tokens >= m->job.tokens.count)
        return error_set(error, STATUS_INVALID,
                         "%" PRIu32 " of %" PRIu32
                         " tokens are cached: at least one is to be computed",
                         m->cached_tokens, m->job.tokens.count);
    return STATUS_OK;
}

uint64_t prefill_request_queued_tokens(const struct prefill_node *node)
{
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < node->table.capacity; i++) {
        const struct prefill_request *request = &node->requests[i];
        if (node->table.used[i] && request->control.state == PREFILL_QUEUED)
            tokens += request->job.given_count - request->control.computed;
    }
    return tokens;
}

/* A refusal is immediate and says how long what waits will take. */
static enum status check_room(const struct prefill_node *node, uint32_t tokens, struct error *error)
{
    const uint64_t queued = prefill_request_queued_tokens(node);
    const double rate = rate_per_s(&node->rate);
    const double wait_s = (double)queued / (rate < 1 ? 1 : rate);
    if (node->table.free_count == 0)
        return error_set(error, STATUS_BUSY,
                         "the prefill node holds %" PRIu32
                         " requests, the most it takes: about %.1f s of work wait",
                         node->table.capacity, wait_s);
    if (queued > 0 && queued + tokens > node->options->max_queued_tokens)
        return error_set(error, STATUS_BUSY,
                         "%" PRIu64
                         " prompt tokens wait at the prefill node, about %.1f s of work; "
                         "%" PRIu32 " more would be over the limit of %" PRIu32,
                         queued, wait_s, tokens, node->options->max_queued_tokens);
    return STATUS_OK;
}

static enum status check(const struct prefill_node *node, const struct msg_prefill *message,
                         struct error *error)
{
    const struct job_limits *limits = &node->worker->limits;
    TRY(job_check(&message->job, limits, error));
    TRY(check_target(message, error));
    const uint32_t pages = job_pages(message->job.tokens.count, limits->page_tokens);
    if (pages > limits->pages_total)
        return error_set(error, STATUS_LIMIT,
                         "the prompt takes %" PRIu32 " KV pages, the prefill node has %" PRIu32,
                         pages, limits->pages_total);
    if (node->worker->draining)
        return error_set(error, STATUS_BUSY, "the prefill node stops and takes nothing new");
    return check_room(node, message->job.tokens.count, error);
}

/* Dial, offer and grant go on while the prompt waits for its turn. */
static enum status open_handoff(struct prefill_node *node, struct prefill_request *request,
                                const struct msg_prefill *message, struct error *error)
{
    char address[ADDRESS_BYTES];
    wire_str_copy(message->address, address, sizeof address);
    struct handoff_target target = {
        .address = address,
        .handoff = message->handoff,
        .ticket = message->ticket,
        .request = message->job.request,
        .attempt = message->job.attempt,
        .first_page = request->first_page,
        .page_count = request->page_count - request->first_page,
    };
    memcpy(target.boot_id, message->boot_id.data, BOOT_ID_BYTES);
    const enum status status =
        handoff_send_open(node->sender, &target, request, &request->control.out, error);
    /* LIMIT and INVALID would tell the client that its request is at fault. */
    if (status == STATUS_LIMIT || status == STATUS_INVALID)
        return error->status = STATUS_REFUSED;
    return status;
}

static void take(struct prefill_node *node, uint32_t place, const struct msg_prefill *message)
{
    struct prefill_request *request = &node->requests[place];
    const struct job_limits *limits = &node->worker->limits;
    const uint64_t now_ns = loop_now_ns(node->worker->loop);
    job_copy(&message->job, limits, request->job.tokens, &request->job);
    request->delivers = message->handoff != 0;
    request->first_page = request->delivers ? message->cached_tokens / limits->page_tokens : 0;
    request->page_count = job_pages(request->job.given_count, limits->page_tokens);
    request->engine.position = 0;
    request->engine.has_pages = request->engine.waited = request->engine.waited_idle = false;
    memset(&request->control, 0, sizeof request->control);
    request->arrival_ns = now_ns;
    if (message->job.remaining_ms > 0)
        request->control.deadline_ns = now_ns + (uint64_t)message->job.remaining_ms * NS_PER_MS;
}

static void refuse(struct prefill_node *node, enum log_level level, const struct request_key *key,
                   const struct msg_prefill *message, const struct error *error)
{
    char trace[JOB_TRACE_BYTES];
    job_trace_read(&message->job, trace);
    LOG_JOB(level, key->request, trace, "the request is refused: %s", error->text);
    worker_send_refused(node->worker, key, error->status, error->text);
}

void prefill_request_accept(struct prefill_node *node, struct router_ref router,
                            const struct msg_prefill *message)
{
    const struct request_key key = {
        .router = router,
        .request = message->job.request,
        .attempt = (uint16_t)message->job.attempt,
        .choice = (uint16_t)message->job.choice,
    };
    struct error error;
    const uint32_t twin = request_table_find(&node->table, &key);
    if (twin != REQUEST_NONE) {
        /* FAILED says that this attempt is over, so the first one must not go on. */
        error_set(&error, STATUS_EXISTS,
                  "request %" PRIx64 ", attempt %" PRIu32 ", choice %" PRIu32 " came twice",
                  key.request, (uint32_t)key.attempt, (uint32_t)key.choice);
        refuse(node, LOG_LEVEL_WARN, &key, message, &error);
        prefill_request_drop(node, twin, error.status, error.text, false);
        return;
    }
    struct grammar_program *grammar = NULL;
    enum status status = check(node, message, &error);
    if (status == STATUS_OK)
        status = job_grammars_hold(node->grammars, router, MESSAGE_ID_PREFILL, message,
                                   &message->job, 1, &grammar, &error);
    if (status == STATUS_PENDING)
        return; /* it comes in again once its grammar is compiled */
    if (status != STATUS_OK) {
        refuse(node, LOG_LEVEL_INFO, &key, message, &error);
        return;
    }
    const uint32_t place = request_table_add(&node->table, &key);
    struct prefill_request *request = &node->requests[place];
    take(node, place, message);
    request->job.grammar = grammar;
    if (request->delivers && open_handoff(node, request, message, &error) != STATUS_OK) {
        free_place(node, request);
        refuse(node, LOG_LEVEL_WARN, &key, message, &error);
        return;
    }
    move_on(node, request, STEP_ADMIT);
    request->control.engine_has = true;
    const struct prefill_command command = {.kind = COMMAND_ADMIT, .place = place};
    engine_port_command(node->port, &command);
}

/* ---- out ---- */

/* stats: NULL when nothing was delivered. */
static void send_report(struct prefill_node *node, const struct prefill_request *request,
                        const struct handoff_stats *stats)
{
    const struct request_key *key = key_of(node, request);
    struct msg_report report = {
        .request = key->request,
        .attempt = key->attempt,
        .choice = key->choice,
        .role = WORKER_PREFILL,
        .queue_us = clock_elapsed_us(request->arrival_ns, request->control.first_chunk_ns),
        .compute_us =
            clock_elapsed_us(request->control.first_chunk_ns, request->control.first_token_ns),
        .cached_tokens = request->job.cached_tokens,
    };
    if (stats != NULL) {
        report.handoff_us = clock_elapsed_us(stats->first_send_ns, stats->landed_ns);
        report.handoff_bytes = stats->bytes;
        report.handoff_wait_us =
            clock_elapsed_us(request->control.first_token_ns, stats->landed_ns);
    }
    worker_send(node->worker, key->router, MESSAGE_ID_REPORT, &report);
}

/* Puts an end to the request towards everybody who still holds it. Without any the place is free
 * when it returns. */
static void leave(struct prefill_node *node, struct prefill_request *request, enum status status,
                  const char *text)
{
    move_on(node, request, STEP_LEAVE);
    if (request->control.engine_has) {
        const struct prefill_command command = {.kind = COMMAND_DROP,
                                                .place = place_of(node, request)};
        engine_port_command(node->port, &command);
    }
    if (request->control.out != NULL)
        handoff_send_abort(request->control.out, status, text);
    else
        release_if_done(node, request);
}

void prefill_request_drop(struct prefill_node *node, uint32_t place, enum status status,
                          const char *text, bool tell)
{
    struct prefill_request *request = &node->requests[place];
    if (request->control.state == PREFILL_LEAVING)
        return;
    if (tell)
        worker_send_failed(node->worker, key_of(node, request), status, text);
    leave(node, request, status, text);
}

/* Tells the router all first tokens; the steps of the choices that go on are also for the decode
 * node. Returns how many. */
static uint32_t tell_firsts(struct prefill_node *node, const struct prefill_request *request,
                            struct step_storage *storage, struct msg_step *steps)
{
    const struct job *job = &request->job;
    struct request_key key = *key_of(node, request);
    uint32_t going = 0;
    token_batch_flush(node->tokens, node->worker->routers); /* scores, before what follows them */
    for (uint32_t i = 0; i < job->choices; i++, key.choice++) {
        const struct sampled *first = &request->firsts[i];
        const enum finish_code finish =
            job_finish(job, &node->worker->limits, first->id, job->given_count);
        token_batch_add(node->tokens, &key, job, job->given_count, first, finish);
        if (finish != FINISH_NONE)
            continue;
        step_fill(&key, job, job->given_count, first, finish, &storage[going], &steps[going]);
        going++;
    }
    token_batch_flush(node->tokens, node->worker->routers);
    return going;
}

/* The first tokens go to the router at once, then to the decode node with the hand-off. */
static void answer(struct prefill_node *node, struct prefill_request *request)
{
    struct step_storage storage[JOB_CHOICES_MAX];
    struct msg_step steps[JOB_CHOICES_MAX];
    request->control.first_token_ns = loop_now_ns(node->worker->loop);
    const uint32_t going = tell_firsts(node, request, storage, steps);
    if (going == 0 || !request->delivers) {
        send_report(node, request, NULL);
        leave(node, request, STATUS_CANCELED, "the answer ended with its first token");
        return;
    }
    move_on(node, request, STEP_DELIVER);
    handoff_send_first(request->control.out, steps, going);
}

/* No token is out: the router hears why from here alone, and from nobody else whose fault it is.
 * The decode node has nothing to add, so to it the hand-off is cancelled. */
static void give_up(struct prefill_node *node, struct prefill_request *request, enum status status,
                    const char *text)
{
    worker_send_failed(node->worker, key_of(node, request), status, text);
    leave(node, request, STATUS_CANCELED, text);
}

static void on_last_word(struct prefill_node *node, struct prefill_request *request,
                         const struct prefill_event *event)
{
    request->control.engine_has = false;
    if (request->control.state == PREFILL_LEAVING)
        release_if_done(node, request);
    else if (event->kind == EVENT_FIRST)
        answer(node, request);
    else
        give_up(node, request, event->failed.status, event->failed.text);
}

static void on_score(struct prefill_node *node, const struct prefill_request *request,
                     const struct prefill_event *event)
{
    if (request->control.state != PREFILL_QUEUED)
        return;
    if (token_batch_full(node->tokens))
        token_batch_flush(node->tokens, node->worker->routers);
    token_batch_add_score(node->tokens, key_of(node, request), event->score.position,
                          &event->score.sampled);
}

static bool handoffs_hold_pages(const struct prefill_node *node)
{
    for (uint32_t i = 0; i < node->table.capacity; i++) {
        const struct prefill_request *request = &node->requests[i];
        if (node->table.used[i] && request->control.out != NULL && !request->control.engine_has &&
            request->engine.has_pages)
            return true;
    }
    return false;
}

/* While nothing is read, pages are held by hand-offs, or on their way back already. */
static void count_wait(struct prefill_node *node, bool idle)
{
    if (!idle)
        node->waits_prompts++;
    else if (handoffs_hold_pages(node))
        node->waits_handoffs++;
}

/* Pages found in the prefix index need no computing: they go to the decode node at once. */
static void on_started(struct prefill_node *node, struct prefill_request *request,
                       uint32_t cached_tokens)
{
    const uint32_t final_pages = cached_tokens / node->worker->limits.page_tokens;
    const uint32_t layers = model_info(node->worker->model)->layers;
    request->job.cached_tokens = request->control.computed = cached_tokens;
    if (request->control.state != PREFILL_QUEUED || !request->delivers ||
        final_pages <= request->first_page)
        return;
    for (uint32_t layer = 0; layer < layers; layer++)
        handoff_send_strips(request->control.out, layer, request->first_page,
                            final_pages - request->first_page,
                            request->slots + request->first_page);
}

void prefill_request_event(struct prefill_node *node, const struct prefill_event *event)
{
    if (event->kind == EVENT_CHUNK) {
        node->tokens_done += event->work.rows;
        rate_add(&node->rate, event->work.rows, event->work.ns);
        read_time_add(&node->read_time, event->work.rows, event->work.context,
                      (double)event->work.ns / NS_PER_US);
        token_batch_flush(node->tokens, node->worker->routers);
        return;
    }
    struct prefill_request *request = &node->requests[event->place];
    CHECK(request->control.engine_has);
    switch (event->kind) {
    case EVENT_WAITS:
        count_wait(node, event->idle);
        return;
    case EVENT_STARTED:
        on_started(node, request, event->cached_tokens);
        return;
    case EVENT_STRIPS:
        if (request->control.state == PREFILL_QUEUED)
            handoff_send_strips(request->control.out, event->strips.layer, event->strips.first_page,
                                event->strips.count, request->slots + event->strips.first_page);
        return;
    case EVENT_PROGRESS:
        request->control.computed += event->work.rows;
        if (request->control.first_chunk_ns == 0)
            request->control.first_chunk_ns = event->work.ns;
        return;
    case EVENT_SCORE:
        on_score(node, request, event);
        return;
    case EVENT_FIRST:
        request->firsts[event->first.index] = event->first.sampled;
        if (event->first.index + 1 == request->job.choices)
            on_last_word(node, request, event);
        return;
    case EVENT_FAILED:
    case EVENT_DROPPED:
        on_last_word(node, request, event);
        return;
    case EVENT_CHUNK:
        return;
    }
}

void prefill_request_handoff_end(void *arg, void *context, enum status status, const char *text,
                                 const struct handoff_stats *stats)
{
    struct prefill_node *node = arg;
    struct prefill_request *request = context;
    request->control.out = NULL;
    if (node->closing)
        return;
    if (request->control.state == PREFILL_LEAVING) {
        release_if_done(node, request);
        return;
    }
    if (status != STATUS_OK) {
        LOG_JOB(LOG_LEVEL_WARN, key_of(node, request)->request, request->job.trace,
                "the hand-off failed: %s", text);
        worker_send_handoff_failed(node->worker, key_of(node, request), status, text);
        prefill_request_drop(node, place_of(node, request), status, text, false);
        return;
    }
    CHECK(request->control.state == PREFILL_DELIVERING);
    send_report(node, request, stats);
    leave(node, request, STATUS_OK, "");
}
