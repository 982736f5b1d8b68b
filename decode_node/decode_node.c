#include "decode_node/decode_node.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "decode_node/decode_internal.h"

enum { DEADLINE_TICK_MS = 100 };

void decode_node_batch(const struct decode_options *options, struct worker_batch *out)
{
    *out = (struct worker_batch){
        .rows = options->max_batch + options->common.chunk_tokens,
        .sequences = options->max_batch,
        .logit_rows = options->max_batch + PASS_SCORE_ROWS,
        .measured_rows = 1,
        .read_rows = options->common.chunk_tokens,
    };
}

/* ---- what routers say ---- */

static void on_message(void *arg, struct router_ref router, enum message_id id, const void *message)
{
    struct decode_node *node = arg;
    if (id == MESSAGE_ID_RESERVE) {
        decode_request_reserve(node, router, message);
        return;
    }
    if (id != MESSAGE_ID_CANCEL) {
        LOG_WARN("a router sent %s, which a decode node does not take", wire_message_name(id));
        return;
    }
    const struct msg_cancel *cancel = message;
    const struct request_key key = {
        .router = router,
        .request = cancel->request,
        .attempt = (uint16_t)cancel->attempt,
        .choice = (uint16_t)cancel->choice,
    };
    const uint32_t place = request_table_find(&node->table, &key);
    if (place != REQUEST_NONE)
        decode_request_drop(node, place, STATUS_CANCELED, "cancelled by the router", false);
    else
        job_grammars_forget(node->grammars, router, cancel);
}

static void on_lost(void *arg, struct router_ref router)
{
    struct decode_node *node = arg;
    for (uint32_t i = 0; i < node->table.capacity; i++) {
        if (node->table.used[i] && router_ref_equal(node->table.keys[i].router, router))
            decode_request_drop(node, i, STATUS_CANCELED, "its router is gone", false);
    }
    job_grammars_forget(node->grammars, router, NULL);
}

uint32_t decode_node_running(const struct decode_node *node)
{
    uint32_t active = 0;
    for (uint32_t i = 0; i < node->table.capacity; i++)
        active += node->table.used[i] && node->requests[i].control.state == DECODE_ACTIVE;
    return node->engine_running < active ? node->engine_running : active;
}

static void on_heartbeat(void *arg, struct msg_heartbeat *heartbeat)
{
    struct decode_node *node = arg;
    uint32_t active = 0, reserved = 0;
    uint64_t unread = 0;
    for (uint32_t i = 0; i < node->table.capacity; i++) {
        const struct decode_request *request = &node->requests[i];
        const struct job *job = &request->job;
        if (!node->table.used[i] || request->control.state == DECODE_LEAVING)
            continue;
        active += request->control.state == DECODE_ACTIVE;
        reserved += request->control.state == DECODE_RESERVED;
        heartbeat->queued_tokens += job->end - job->prompt_count - request->control.written;
        if (request->local && request->member_count > 0 &&
            request->control.written == job->emitted_count)
            unread += job->given_count - decode_request_cached(node, request);
    }
    heartbeat->queued_tokens += unread;
    handoff_receiver_totals(node->receiver, &node->report.totals);
    node->report.peer_count =
        handoff_receiver_peers(node->receiver, node->report.peers, HANDOFF_REPORT_PEERS_MAX);
    handoff_report_fill(&node->report, heartbeat);
    heartbeat->running = decode_node_running(node);
    heartbeat->waiting = active - heartbeat->running + reserved;
    heartbeat->tokens_done = node->tokens_done;
    heartbeat->tokens_per_s = (float)rate_per_s(&node->rate);
    const struct read_cost cost = read_time_cost(&node->read_time);
    heartbeat->read_token_us = (float)cost.token_us;
    heartbeat->read_context_us = (float)cost.context_us;
    heartbeat->decode = node->load;
    heartbeat->decode.read_tokens_per_s = (float)rate_per_s(&node->read_rate);
    heartbeat->decode.unread_tokens = unread;
    const struct job_grammars_totals grammars = job_grammars_totals(node->grammars);
    heartbeat->decode.grammars = grammars.compiled;
    heartbeat->decode.grammar_us = grammars.compile_us;
}

static uint32_t open_count(const void *arg)
{
    const struct decode_node *node = arg;
    return node->table.capacity - node->table.free_count + job_grammars_waiting(node->grammars);
}

/* ---- what the engine and the clock say ---- */

static void on_events(void *arg)
{
    struct decode_node *node = arg;
    struct decode_event event;
    bool any = false;
    while (engine_port_pop_event(node->port, &event)) {
        decode_request_event(node, &event);
        any = true;
    }
    /* The engine may wait for room. */
    if (any)
        engine_port_poke(node->port);
}

static void on_deadline_tick(void *arg)
{
    struct decode_node *node = arg;
    const uint64_t now_ns = loop_now_ns(node->worker->loop);
    for (uint32_t i = 0; i < node->table.capacity; i++) {
        const uint64_t deadline_ns = node->requests[i].control.deadline_ns;
        if (node->table.used[i] && deadline_ns != 0 && now_ns > deadline_ns)
            decode_request_drop(node, i, STATUS_TIMEOUT,
                                "the request's time was over before its answer was written", true);
    }
}

/* ---- life ---- */

static void allocate(struct decode_node *node)
{
    const struct worker *worker = node->worker;
    const uint32_t count = worker->options->max_requests;
    const size_t context = worker->limits.context_tokens;
    const size_t pages = job_pages(worker->limits.context_tokens, worker->limits.page_tokens);
    request_table_create(&node->table, count);
    node->requests = calloc(count, sizeof *node->requests);
    node->token_memory = calloc(count * context, sizeof *node->token_memory);
    node->slot_memory = calloc(count * pages, sizeof *node->slot_memory);
    node->tokens = token_batch_create(node->options->max_batch);
    CHECK(node->requests != NULL && node->token_memory != NULL && node->slot_memory != NULL);
    for (uint32_t i = 0; i < count; i++) {
        node->requests[i].job.tokens = node->token_memory + i * context;
        node->requests[i].slots = node->slot_memory + i * pages;
    }
    LOG_INFO("requests: at most %" PRIu32 ", %" PRIu32 " in the batch, %zu KiB of records, token "
             "and page tables",
             count, node->options->max_batch,
             (count * (sizeof *node->requests + context * sizeof *node->token_memory +
                       pages * sizeof *node->slot_memory)) >>
                 10);
}

enum status decode_node_create(struct worker *worker, const struct decode_options *options,
                               struct decode_node **out, struct error *error)
{
    struct decode_node *node = calloc(1, sizeof *node);
    CHECK(node != NULL);
    node->worker = worker;
    node->options = options;
    rate_init(&node->rate, worker->tokens_per_s);
    rate_init(&node->read_rate, worker->read_tokens_per_s);
    read_time_init(&node->read_time, worker->read_cost);
    const enum status status = decode_handoff_create(node, error);
    if (status != STATUS_OK) {
        free(node);
        return status;
    }
    node->events = (struct worker_node){
        .on_message = on_message,
        .on_lost = on_lost,
        .on_heartbeat = on_heartbeat,
        .open_count = open_count,
        .data_address = handoff_receiver_address(node->receiver),
        .max_batch = options->max_batch,
    };
    LOG_INFO("prefill nodes dial %s", node->events.data_address);
    allocate(node);
    node->grammars = job_grammars_create(worker->loop, worker->text, worker->options->max_requests,
                                         on_message, node);
    decode_engine_create(&node->engine, worker, node->requests, options->max_batch, on_events,
                         node);
    node->engine.target_us = (double)options->tpot_target_ms * 1000;
    node->port = node->engine.port;
    node->deadlines = loop_timer_create(worker->loop, on_deadline_tick, node);
    loop_timer_start(node->deadlines, DEADLINE_TICK_MS, DEADLINE_TICK_MS);
    engine_port_start(node->port, decode_engine_run, &node->engine);
    *out = node;
    return STATUS_OK;
}

/* The engine is gone: what it held is given back here. */
static void end_requests(struct decode_node *node)
{
    struct page_pool *pages = node->worker->pages;
    for (uint32_t i = 0; i < node->table.capacity; i++) {
        struct decode_request *request = &node->requests[i];
        if (!node->table.used[i])
            continue;
        if (request->control.state == DECODE_RESERVED) {
            if (request->control.handoff != 0)
                handoff_cancel(node->receiver, request->control.handoff, STATUS_CANCELED,
                               "the decode node stops");
            decode_request_let_go(node, request);
        }
        page_pool_unreserve(pages, request->engine.unborn_aside);
        page_pool_free(pages, request->slots, request->engine.page_count);
    }
}

void decode_node_destroy(struct decode_node *node)
{
    if (node == NULL)
        return;
    node->closing = true;
    engine_port_join(node->port);
    end_requests(node);
    handoff_receiver_destroy(node->receiver);
    loop_timer_destroy(node->deadlines);
    decode_engine_destroy(&node->engine);
    job_grammars_destroy(node->grammars);
    token_batch_destroy(node->tokens);
    request_table_destroy(&node->table);
    free(node->requests);
    free(node->token_memory);
    free(node->slot_memory);
    free(node);
}

const struct worker_node *decode_node_events(const struct decode_node *node)
{
    return &node->events;
}
