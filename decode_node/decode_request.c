/* One request on the control thread, from the reservation to the release of its place. */
#include "decode_node/decode_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "worker/job_log.h"

enum { NO_STATE = 0xff };

/* [state][step] -> state. Who owns the pages in a state is written at enum decode_state. */
static const struct {
    const char *name;
    uint8_t next[DECODE_STEP_COUNT];
} states[DECODE_STATE_COUNT] = {
    /*                      RESERVE          ADMIT          LEAVE           RELEASE */
    [DECODE_FREE] = {"free", {DECODE_RESERVED, DECODE_ACTIVE, NO_STATE, NO_STATE}},
    [DECODE_RESERVED] = {"reserved", {NO_STATE, DECODE_ACTIVE, NO_STATE, DECODE_FREE}},
    [DECODE_ACTIVE] = {"active", {NO_STATE, NO_STATE, DECODE_LEAVING, DECODE_FREE}},
    [DECODE_LEAVING] = {"leaving", {NO_STATE, NO_STATE, NO_STATE, DECODE_FREE}},
};

static uint32_t place_of(const struct decode_node *node, const struct decode_request *request)
{
    return (uint32_t)(request - node->requests);
}

const struct request_key *decode_request_key(const struct decode_node *node,
                                             const struct decode_request *request)
{
    return &node->table.keys[place_of(node, request)];
}

static void move_on(struct decode_node *node, struct decode_request *request, enum decode_step step)
{
    const uint8_t next = states[request->control.state].next[step];
    CHECK(next != NO_STATE);
    LOG_JOB(LOG_LEVEL_DEBUG, decode_request_key(node, request)->request, request->job.trace,
            "%s -> %s", states[request->control.state].name, states[next].name);
    request->control.state = (enum decode_state)next;
}

static void free_place(struct decode_node *node, struct decode_request *request)
{
    job_grammars_release(node->grammars, request->job.grammar);
    request->job.grammar = NULL;
    request_table_remove(&node->table, place_of(node, request));
}

void decode_request_release(struct decode_node *node, struct decode_request *request)
{
    CHECK(request->engine.page_count == 0 && request->control.handoff == 0);
    move_on(node, request, STEP_RELEASE);
    free_place(node, request);
}

void decode_request_admit(struct decode_node *node, struct decode_request *request)
{
    move_on(node, request, STEP_ADMIT);
    request->control.ready_ns = loop_now_ns(node->worker->loop);
    const struct decode_command command = {.kind = COMMAND_ADMIT, .place = place_of(node, request)};
    engine_port_command(node->port, &command);
}

void decode_request_let_go(struct decode_node *node, struct decode_request *request)
{
    struct page_pool *pages = node->worker->pages;
    page_pool_unreserve(pages, request->pages_aside);
    page_pool_free(pages, request->slots, request->cached_pages);
    request->cached_pages = 0;
    engine_port_poke(node->port);
}

/* ---- in ---- */

static enum status check(const struct decode_node *node, const struct request_key *key,
                         const struct msg_reserve *message, struct error *error)
{
    const struct job_limits *limits = &node->worker->limits;
    TRY(job_check(&message->job, limits, error));
    const uint32_t choices = job_choices(&message->job);
    struct request_key one = *key;
    for (uint32_t i = 0; i < choices; i++, one.choice++) {
        if (request_table_find(&node->table, &one) != REQUEST_NONE)
            return error_set(error, STATUS_EXISTS,
                             "request %" PRIx64 ", attempt %" PRIu32 ", choice %" PRIu32
                             " is here already",
                             one.request, (uint32_t)one.attempt, (uint32_t)one.choice);
    }
    if (node->worker->draining)
        return error_set(error, STATUS_BUSY, "the decode node stops and takes nothing new");
    if (choices > node->table.capacity)
        return error_set(error, STATUS_LIMIT,
                         "%" PRIu32 " choices, the decode node holds %" PRIu32 " requests", choices,
                         node->table.capacity);
    if (choices > node->table.free_count)
        return error_set(
            error, STATUS_BUSY,
            "the decode node holds %" PRIu32 " requests, the most it takes are %" PRIu32
            ": no room for %" PRIu32 " more",
            node->table.capacity - node->table.free_count, node->table.capacity, choices);
    return STATUS_OK;
}

/* index: of the choices. */
static void take(struct decode_node *node, struct decode_request *request, uint32_t index,
                 const struct msg_reserve *message)
{
    const struct job_limits *limits = &node->worker->limits;
    const uint64_t now_ns = loop_now_ns(node->worker->loop);
    job_copy(&message->job, limits, request->job.tokens, &request->job);
    request->job.choice += index;
    request->local = message->local != 0;
    request->pages_end = job_pages_at_end(&request->job, limits->page_tokens);
    request->pages_first =
        batch_admission_pages(request->job.given_count, limits->page_tokens, request->pages_end);
    request->prompt_pages = job_pages(request->job.given_count, limits->page_tokens);
    request->cached_pages = 0;
    /* The first choice has the prompt's pages, the others share those that are full. */
    request->pages_aside =
        request->pages_first -
        (index == 0 ? request->prompt_pages : request->job.given_count / limits->page_tokens);
    memset(&request->control, 0, sizeof request->control);
    memset(&request->engine, 0, sizeof request->engine);
    request->control.written = request->job.emitted_count;
    if (index > 0)
        request->job.scores = 0; /* the first choice tells them, once */
    if (message->job.remaining_ms > 0)
        request->control.deadline_ns = now_ns + (uint64_t)message->job.remaining_ms * NS_PER_MS;
}

/* Sequences that the node holds, with the one that is asked for. */
static void add_up(const struct decode_node *node, const struct decode_request *asked,
                   uint64_t *context_out, uint32_t *count_out)
{
    *context_out = asked->job.given_count;
    *count_out = 1;
    for (uint32_t i = 0; i < node->table.capacity; i++) {
        const struct decode_request *request = &node->requests[i];
        if (!node->table.used[i] || request == asked || request->control.state == DECODE_LEAVING)
            continue;
        *context_out += request->job.prompt_count + request->control.written;
        ++*count_out;
    }
}

/* What would only wait here waits at the router; a request that is alone, with all its choices, is
 * taken at any price. */
static enum status check_target(const struct decode_node *node,
                                const struct decode_request *request, struct error *error)
{
    uint64_t context;
    uint32_t count;
    if (node->engine.target_us <= 0)
        return STATUS_OK;
    add_up(node, request, &context, &count);
    const double expected_us = step_cost_us(&node->cost, context, count);
    if (count == request->member_count || expected_us <= node->engine.target_us)
        return STATUS_OK;
    return error_set(error, STATUS_BUSY,
                     "a step of %" PRIu32 " sequences with %" PRIu64
                     " tokens would take %.1f ms, the target is %" PRIu32 " ms",
                     count, context, expected_us / 1000, node->options->tpot_target_ms);
}

/* What is set aside for the choices behind the first one. */
static uint32_t pages_of_others(const struct decode_node *node, const struct decode_request *leader)
{
    uint32_t pages = 0;
    for (uint32_t i = 1; i < leader->member_count; i++)
        pages += node->requests[leader->members[i]].pages_aside;
    return pages;
}

static bool looks_up(const struct decode_node *node, const struct decode_request *request)
{
    return !node->worker->options->no_prefix_cache && !decode_request_scores(request);
}

/* Pages for the prompt and one to grow into; the runners keep one each for the same. */
static enum status check_pages(const struct decode_node *node, const struct decode_request *request,
                               struct error *error)
{
    const uint32_t total = node->worker->limits.pages_total;
    const uint32_t growing = decode_node_running(node);
    struct prefix_match match = {0};
    if (looks_up(node, request))
        prefix_tree_peek(node->worker->prefixes, request->job.cache_salt, request->job.tokens,
                         request->job.given_count - 1, &match);
    const uint32_t free = prefix_tree_available(node->worker->prefixes);
    const uint32_t first = request->pages_first + pages_of_others(node, request);
    const uint32_t needed = first - match.page_count;
    const uint32_t most = request->pages_end > first ? request->pages_end : first;
    if (most > total)
        return error_set(error, STATUS_LIMIT,
                         "prompt and answer take %" PRIu32
                         " KV pages, the decode node has %" PRIu32,
                         most, total);
    if (atomic_load(&node->engine.short_of_pages))
        return error_set(error, STATUS_BUSY,
                         "requests that were preempted wait for KV pages, %" PRIu32 " of %" PRIu32
                         " are free",
                         free, total);
    if (free >= needed + match.idle_count + growing)
        return STATUS_OK;
    return error_set(error, STATUS_BUSY,
                     "%" PRIu32 " KV pages are needed to begin and %" PRIu32
                     " kept for those that run, %" PRIu32 " of %" PRIu32 " are free",
                     needed, growing, free, total);
}

/* Holds what the index has of the prompt; the last token is always computed, for its logits. */
static void hold_cached(struct decode_node *node, struct decode_request *request)
{
    if (looks_up(node, request))
        request->cached_pages =
            prefix_tree_lookup(node->worker->prefixes, request->job.cache_salt, request->job.tokens,
                               request->job.given_count - 1, request->slots);
}

uint32_t decode_request_cached(const struct decode_node *node, const struct decode_request *request)
{
    return request->cached_pages * node->worker->limits.page_tokens;
}

/* A prompt that is read here: its pages are named at once. */
static enum status reserve_local(struct decode_node *node, struct decode_request *request,
                                 struct error *error)
{
    struct worker *worker = node->worker;
    const uint32_t rest = request->pages_first - request->cached_pages;
    /* The engine may have taken some since the look. */
    if (prefix_tree_reserve(worker->prefixes, rest) != STATUS_OK)
        return error_set(error, STATUS_BUSY, "%" PRIu32 " KV pages are no longer free", rest);
    page_pool_take(worker->pages, rest, request->slots + request->cached_pages);
    request->engine.page_count = request->pages_first;
    request->engine.computed = decode_request_cached(node, request);
    request->engine.token_count = request->job.given_count;
    return STATUS_OK;
}

static enum status reserve_prompt(struct decode_node *node, struct decode_request *leader,
                                  const struct msg_reserve *message, uint64_t *ticket_out,
                                  struct error *error)
{
    hold_cached(node, leader);
    if (leader->job.scores == 0) /* else none of it may be cached, for its scores */
        leader->local |=
            leader->job.given_count - decode_request_cached(node, leader) <= message->local_tokens;
    uint32_t lease_ms = node->options->lease_ms;
    if (message->lease_ms > 0 && message->lease_ms < lease_ms)
        lease_ms = message->lease_ms;
    const enum status status =
        leader->local ? reserve_local(node, leader, error)
                      : decode_handoff_reserve(node, leader, lease_ms, ticket_out, error);
    if (status != STATUS_OK) {
        page_pool_free(node->worker->pages, leader->slots, leader->cached_pages);
        engine_port_poke(node->port);
    }
    return status;
}

/* All pages that the choices begin with, or none. */
static enum status set_aside(struct decode_node *node, struct decode_request *leader,
                             const struct msg_reserve *message, uint64_t *ticket_out,
                             struct error *error)
{
    const uint32_t others = pages_of_others(node, leader);
    TRY(check_target(node, leader, error));
    TRY(check_pages(node, leader, error));
    if (prefix_tree_reserve(node->worker->prefixes, others) != STATUS_OK)
        return error_set(error, STATUS_BUSY, "%" PRIu32 " KV pages are no longer free", others);
    const enum status status = reserve_prompt(node, leader, message, ticket_out, error);
    if (status != STATUS_OK)
        page_pool_unreserve(node->worker->pages, others);
    return status;
}

/* A place for each choice; there are as many. */
static struct decode_request *take_choices(struct decode_node *node, const struct request_key *key,
                                           const struct msg_reserve *message,
                                           struct grammar_program *grammar)
{
    const uint32_t count = job_choices(&message->job);
    struct request_key one = *key;
    uint32_t members[JOB_CHOICES_MAX];
    for (uint32_t i = 0; i < count; i++, one.choice++) {
        members[i] = request_table_add(&node->table, &one);
        take(node, &node->requests[members[i]], i, message);
        node->requests[members[i]].job.grammar = grammar;
        node->requests[members[i]].leader = members[0];
        node->requests[members[i]].member_count = 0;
    }
    struct decode_request *leader = &node->requests[members[0]];
    memcpy(leader->members, members, count * sizeof *members);
    leader->member_count = count;
    return leader;
}

/* The first choice reads the prompt; the others go to the engine with it and begin behind it. */
static void admit_local(struct decode_node *node, struct decode_request *leader)
{
    for (uint32_t i = 1; i < leader->member_count; i++) {
        struct decode_request *member = &node->requests[leader->members[i]];
        move_on(node, member, STEP_ADMIT);
        member->local = true;
        member->control.ready_ns = loop_now_ns(node->worker->loop);
        member->engine.token_count = member->job.given_count;
        leader->engine.unborn[leader->engine.unborn_count++] = leader->members[i];
        leader->engine.unborn_aside += member->pages_aside;
    }
    decode_request_admit(node, leader);
}

/* request: NULL where none was taken. */
static void reply(struct decode_node *node, const struct request_key *key, enum status status,
                  const char *text, const struct decode_request *request, uint64_t ticket)
{
    struct worker *worker = node->worker;
    const struct msg_reserved message = {
        .request = key->request,
        .attempt = key->attempt,
        .choice = key->choice,
        .refused = (uint32_t)-status,
        .text = wire_str(text),
        .handoff = request == NULL ? 0 : request->control.handoff,
        .ticket = ticket,
        .boot_id = {worker->self.boot_id, sizeof worker->self.boot_id},
        .address = wire_str(handoff_receiver_address(node->receiver)),
        .cached_tokens = request == NULL ? 0 : decode_request_cached(node, request),
        .local = request != NULL && request->local,
    };
    worker_send(worker, key->router, MESSAGE_ID_RESERVED, &message);
}

static void refuse(struct decode_node *node, const struct request_key *key,
                   const struct msg_reserve *message, const struct error *error)
{
    char trace[JOB_TRACE_BYTES];
    job_trace_read(&message->job, trace);
    LOG_JOB(LOG_LEVEL_INFO, key->request, trace, "the request is refused: %s", error->text);
    reply(node, key, error->status, error->text, NULL, 0);
}

void decode_request_reserve(struct decode_node *node, struct router_ref router,
                            const struct msg_reserve *message)
{
    const struct request_key key = {
        .router = router,
        .request = message->job.request,
        .attempt = (uint16_t)message->job.attempt,
        .choice = (uint16_t)message->job.choice,
    };
    struct error error;
    struct grammar_program *grammar = NULL;
    enum status status = check(node, &key, message, &error);
    if (status == STATUS_OK)
        status = job_grammars_hold(node->grammars, router, MESSAGE_ID_RESERVE, message,
                                   &message->job, job_choices(&message->job), &grammar, &error);
    if (status == STATUS_PENDING)
        return; /* it comes in again once its grammar is compiled */
    if (status != STATUS_OK) {
        refuse(node, &key, message, &error);
        return;
    }
    struct decode_request *leader = take_choices(node, &key, message, grammar);
    uint64_t ticket = 0;
    if (set_aside(node, leader, message, &ticket, &error) != STATUS_OK) {
        for (uint32_t i = 0; i < leader->member_count; i++)
            free_place(node, &node->requests[leader->members[i]]);
        refuse(node, &key, message, &error);
        return;
    }
    reply(node, &key, STATUS_OK, "", leader, ticket);
    if (leader->local)
        admit_local(node, leader);
    for (uint32_t i = 0; i < leader->member_count && !leader->local; i++)
        move_on(node, &node->requests[leader->members[i]], STEP_RESERVE);
}

/* ---- out ---- */

static void send_report(struct decode_node *node, const struct decode_request *request)
{
    const struct request_key *key = decode_request_key(node, request);
    const struct msg_report report = {
        .request = key->request,
        .attempt = key->attempt,
        .choice = key->choice,
        .role = WORKER_DECODE,
        .queue_us = clock_elapsed_us(request->control.ready_ns, request->engine.first_step_ns),
        .compute_us =
            clock_elapsed_us(request->engine.first_step_ns, request->engine.last_token_ns),
        .first_step_us = request->engine.first_step_us,
        .cached_tokens = decode_request_cached(node, request),
    };
    worker_send(node->worker, key->router, MESSAGE_ID_REPORT, &report);
}

void decode_request_drop(struct decode_node *node, uint32_t place, enum status status,
                         const char *text, bool tell)
{
    struct decode_request *request = &node->requests[place];
    if (request->control.state == DECODE_LEAVING || request->control.given_up)
        return;
    if (tell)
        worker_send_failed(node->worker, decode_request_key(node, request), status, text);
    if (request->control.state == DECODE_RESERVED) {
        request->control.given_up = true;
        struct decode_request *leader = &node->requests[request->leader];
        for (uint32_t i = 0; i < leader->member_count; i++) {
            if (!node->requests[leader->members[i]].control.given_up)
                return; /* the hand-off is for the others, too */
        }
        handoff_cancel(node->receiver, leader->control.handoff, status, text);
        leader->control.handoff = 0;
        decode_choices_release(node, leader);
        return;
    }
    move_on(node, request, STEP_LEAVE);
    const struct decode_command command = {.kind = COMMAND_DROP, .place = place};
    engine_port_command(node->port, &command);
}

static void on_token(struct decode_node *node, struct decode_request *request,
                     const struct decode_event *event)
{
    const bool last = event->token.finish != FINISH_NONE;
    if (request->control.state == DECODE_ACTIVE) {
        if (token_batch_full(node->tokens))
            token_batch_flush(node->tokens, node->worker->routers);
        token_batch_add(node->tokens, decode_request_key(node, request), &request->job,
                        event->token.position, &event->token.sampled, event->token.finish);
        request->control.written = event->token.position + 1 - request->job.prompt_count;
    }
    if (!last)
        return;
    if (request->control.state == DECODE_ACTIVE) {
        /* The report follows the tokens it reports on. */
        token_batch_flush(node->tokens, node->worker->routers);
        send_report(node, request);
    }
    decode_request_release(node, request);
}

static void on_score(struct decode_node *node, const struct decode_request *request,
                     const struct decode_event *event)
{
    if (request->control.state != DECODE_ACTIVE)
        return;
    if (token_batch_full(node->tokens))
        token_batch_flush(node->tokens, node->worker->routers);
    token_batch_add_score(node->tokens, decode_request_key(node, request), event->token.position,
                          &event->token.sampled);
}

static void count_step(struct msg_decode_load *load, const struct decode_event *event)
{
    load->steps++;
    load->step_us += event->step.busy_ns / NS_PER_US;
    load->forward_us += event->step.forward_ns / NS_PER_US;
    load->preemptions += event->step.preempted;
    load->preempted_tokens += event->step.lost_tokens;
    load->read_tokens += event->step.read_rows;
    load->masks = event->step.masks;
    load->mask_us = event->step.mask_ns / NS_PER_US;
}

void decode_request_event(struct decode_node *node, const struct decode_event *event)
{
    if (event->kind == EVENT_STEP) {
        token_batch_flush(node->tokens, node->worker->routers);
        node->engine_running = event->step.running;
        node->tokens_done += event->step.rows;
        const uint32_t read = event->step.read_rows;
        if (read > 0) {
            rate_add(&node->read_rate, read, event->step.busy_ns);
            read_time_add(&node->read_time, read, event->step.read_context,
                          (double)event->step.busy_ns / NS_PER_US);
        }
        if (event->step.rows > read)
            rate_add(&node->rate, event->step.rows - read, event->step.busy_ns);
        node->cost = event->step.cost;
        count_step(&node->load, event);
        return;
    }
    struct decode_request *request = &node->requests[event->place];
    CHECK(request->control.state == DECODE_ACTIVE || request->control.state == DECODE_LEAVING);
    switch (event->kind) {
    case EVENT_TOKEN:
        on_token(node, request, event);
        return;
    case EVENT_SCORE:
        on_score(node, request, event);
        return;
    case EVENT_FAILED:
        if (request->control.state == DECODE_ACTIVE)
            worker_send_failed(node->worker, decode_request_key(node, request),
                               event->failed.status, event->failed.text);
        decode_request_release(node, request);
        return;
    case EVENT_DROPPED:
        decode_request_release(node, request);
        return;
    case EVENT_STEP:
        return;
    }
}
