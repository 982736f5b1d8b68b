#include "prefill_node/prefill_node.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "prefill_node/prefill_internal.h"

enum {
    DEADLINE_TICK_MS = 100,
    MEASURED_ROWS = 64,
    /* Before the engine has taken a place's second ADMIT there can be, of one place: DROP of the
     * life before, ADMIT and DROP of this one. */
    COMMANDS_PER_REQUEST = 4,
    CHUNKS_IN_EVENT_RING = 2,
};

static uint32_t sequences_max(const struct worker_options *options)
{
    return options->max_requests < CHUNK_SEQUENCES_MAX ? options->max_requests
                                                       : CHUNK_SEQUENCES_MAX;
}

void prefill_node_batch(const struct prefill_options *all, struct worker_batch *out)
{
    const struct worker_options *options = &all->common;
    *out = (struct worker_batch){
        .rows = options->chunk_tokens,
        .sequences = sequences_max(options),
        .logit_rows = sequences_max(options) + PASS_SCORE_ROWS,
        .measured_rows =
            options->chunk_tokens < MEASURED_ROWS ? options->chunk_tokens : MEASURED_ROWS,
    };
}

/* ---- what routers say ---- */

static void on_message(void *arg, struct router_ref router, enum message_id id, const void *message)
{
    struct prefill_node *node = arg;
    if (id == MESSAGE_ID_PREFILL) {
        prefill_request_accept(node, router, message);
        return;
    }
    if (id != MESSAGE_ID_CANCEL) {
        LOG_WARN("a router sent %s, which a prefill node does not take", wire_message_name(id));
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
        prefill_request_drop(node, place, STATUS_CANCELED, "cancelled by the router", false);
    else
        job_grammars_forget(node->grammars, router, cancel);
}

static void on_lost(void *arg, struct router_ref router)
{
    struct prefill_node *node = arg;
    for (uint32_t i = 0; i < node->table.capacity; i++) {
        if (node->table.used[i] && router_ref_equal(node->table.keys[i].router, router))
            prefill_request_drop(node, i, STATUS_CANCELED, "its router is gone", false);
    }
    job_grammars_forget(node->grammars, router, NULL);
}

static void on_heartbeat(void *arg, struct msg_heartbeat *heartbeat)
{
    struct prefill_node *node = arg;
    for (uint32_t i = 0; i < node->table.capacity; i++) {
        const struct prefill_request *request = &node->requests[i];
        if (!node->table.used[i] || request->control.state != PREFILL_QUEUED)
            continue;
        heartbeat->running += request->control.computed > 0;
        heartbeat->waiting += request->control.computed == 0;
    }
    heartbeat->queued_tokens = prefill_request_queued_tokens(node);
    handoff_sender_totals(node->sender, &node->report.totals);
    node->report.peer_count =
        handoff_sender_peers(node->sender, node->report.peers, HANDOFF_REPORT_PEERS_MAX);
    handoff_report_fill(&node->report, heartbeat);
    heartbeat->handoff.waits_handoffs = node->waits_handoffs;
    heartbeat->handoff.waits_prompts = node->waits_prompts;
    heartbeat->tokens_done = node->tokens_done;
    heartbeat->tokens_per_s = (float)rate_per_s(&node->rate);
    const struct read_cost cost = read_time_cost(&node->read_time);
    heartbeat->read_token_us = (float)cost.token_us;
    heartbeat->read_context_us = (float)cost.context_us;
}

static uint32_t open_count(const void *arg)
{
    const struct prefill_node *node = arg;
    return node->table.capacity - node->table.free_count + job_grammars_waiting(node->grammars);
}

/* ---- what the engine and the clock say ---- */

static void on_events(void *arg)
{
    struct prefill_node *node = arg;
    struct prefill_event event;
    bool any = false;
    while (engine_port_pop_event(node->port, &event)) {
        prefill_request_event(node, &event);
        any = true;
    }
    /* The engine may wait for room. */
    if (any)
        engine_port_poke(node->port);
}

static void on_deadline_tick(void *arg)
{
    struct prefill_node *node = arg;
    const uint64_t now_ns = loop_now_ns(node->worker->loop);
    for (uint32_t i = 0; i < node->table.capacity; i++) {
        const uint64_t deadline_ns = node->requests[i].control.deadline_ns;
        if (node->table.used[i] && deadline_ns != 0 && now_ns > deadline_ns)
            prefill_request_drop(node, i, STATUS_TIMEOUT,
                                 "the request's time was over before its prompt was read", true);
    }
}

/* ---- life ---- */

static void allocate(struct prefill_node *node)
{
    const struct worker *worker = node->worker;
    const uint32_t count = worker->options->max_requests;
    const size_t context = worker->limits.context_tokens;
    const size_t pages = job_pages(worker->limits.context_tokens, worker->limits.page_tokens);
    request_table_create(&node->table, count);
    node->requests = calloc(count, sizeof *node->requests);
    node->token_memory = calloc(count * context, sizeof *node->token_memory);
    node->slot_memory = calloc(count * pages, sizeof *node->slot_memory);
    node->tokens = token_batch_create(PASS_SCORE_ROWS);
    CHECK(node->requests != NULL && node->token_memory != NULL && node->slot_memory != NULL);
    for (uint32_t i = 0; i < count; i++) {
        node->requests[i].job.tokens = node->token_memory + i * context;
        node->requests[i].slots = node->slot_memory + i * pages;
    }
    LOG_INFO("requests: at most %" PRIu32 ", %zu KiB of records, token and page tables", count,
             (count * (sizeof *node->requests + context * sizeof *node->token_memory +
                       pages * sizeof *node->slot_memory)) >>
                 10);
}

static void create_engine(struct prefill_node *node)
{
    struct worker *worker = node->worker;
    const uint32_t requests = worker->options->max_requests;
    const uint32_t sequences = sequences_max(worker->options);
    const struct engine_port_sizes sizes = {
        .command_bytes = sizeof(struct prefill_command),
        .command_count = (size_t)requests * COMMANDS_PER_REQUEST,
        .event_bytes = sizeof(struct prefill_event),
        .event_count = CHUNKS_IN_EVENT_RING * (prefill_engine_events(worker, sequences) + requests),
    };
    node->port = engine_port_create(worker->loop, &sizes, on_events, node);
    prefill_engine_create(&node->engine, worker, node->port, node->requests, sequences,
                          node->options->ttft_target_ms);
    LOG_INFO("rings: %zu commands, %zu events, %zu KiB", sizes.command_count, sizes.event_count,
             (sizes.command_count * sizes.command_bytes + sizes.event_count * sizes.event_bytes) >>
                 10);
}

static enum status create_sender(struct prefill_node *node, struct error *error)
{
    static const struct handoff_sender_events events = {.on_end = prefill_request_handoff_end};
    struct worker *worker = node->worker;
    struct worker_handoff setup;
    TRY(worker_handoff_setup(worker, NULL, &setup, error));
    return handoff_sender_create(worker->loop, setup.ops, &setup.options, &setup.region,
                                 &worker->self, &setup.limits, &events, node, &node->sender, error);
}

enum status prefill_node_create(struct worker *worker, const struct prefill_options *options,
                                struct prefill_node **out, struct error *error)
{
    struct prefill_node *node = calloc(1, sizeof *node);
    CHECK(node != NULL);
    node->worker = worker;
    node->options = options;
    node->events = (struct worker_node){
        .on_message = on_message,
        .on_lost = on_lost,
        .on_heartbeat = on_heartbeat,
        .open_count = open_count,
        .max_batch = worker->options->max_requests,
    };
    rate_init(&node->rate, worker->tokens_per_s);
    read_time_init(&node->read_time, worker->read_cost);
    const enum status status = create_sender(node, error);
    if (status != STATUS_OK) {
        free(node);
        return status;
    }
    allocate(node);
    node->grammars = job_grammars_create(worker->loop, worker->text, worker->options->max_requests,
                                         on_message, node);
    create_engine(node);
    node->deadlines = loop_timer_create(worker->loop, on_deadline_tick, node);
    loop_timer_start(node->deadlines, DEADLINE_TICK_MS, DEADLINE_TICK_MS);
    engine_port_start(node->port, prefill_engine_run, &node->engine);
    *out = node;
    return STATUS_OK;
}

void prefill_node_destroy(struct prefill_node *node)
{
    if (node == NULL)
        return;
    node->closing = true;
    engine_port_join(node->port);
    handoff_sender_destroy(node->sender);
    /* Neither the engine nor the network reads a page any more. */
    for (uint32_t i = 0; i < node->table.capacity; i++) {
        struct prefill_request *request = &node->requests[i];
        if (!node->table.used[i] || !request->engine.has_pages)
            continue;
        prefix_tree_withdraw(node->worker->prefixes, request->slots, request->page_count);
        page_pool_free(node->worker->pages, request->slots, request->page_count);
    }
    loop_timer_destroy(node->deadlines);
    engine_port_destroy(node->port);
    prefill_engine_destroy(&node->engine);
    job_grammars_destroy(node->grammars);
    token_batch_destroy(node->tokens);
    request_table_destroy(&node->table);
    free(node->requests);
    free(node->token_memory);
    free(node->slot_memory);
    free(node);
}

const struct worker_node *prefill_node_events(const struct prefill_node *node)
{
    return &node->events;
}
