/* The engine thread: plans a chunk, takes pages, runs the model, tells control layer by layer. */
#include "prefill_node/prefill_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

size_t prefill_engine_events(const struct worker *worker, uint32_t sequences)
{
    /* Strips of every layer, progress and the last word of each part; the chunk, and one that
     * waits. */
    return (size_t)sequences * (model_info(worker->model)->layers + 2) + 2;
}

static void send_event(struct prefill_engine *engine, const struct prefill_event *event)
{
    engine_port_event(engine->port, event);
}

/* ---- the queue ---- */

static void queue_remove(struct prefill_engine *engine, uint32_t index)
{
    engine->queue_count--;
    memmove(engine->queue + index, engine->queue + index + 1,
            (engine->queue_count - index) * sizeof *engine->queue);
}

static void take_command(struct prefill_engine *engine, const struct prefill_command *command)
{
    if (command->kind == COMMAND_ADMIT) {
        engine->queue[engine->queue_count++] = command->place;
        return;
    }
    for (uint32_t i = 0; i < engine->queue_count; i++) {
        if (engine->queue[i] != command->place)
            continue;
        queue_remove(engine, i);
        const struct prefill_event event = {.kind = EVENT_DROPPED, .place = command->place};
        send_event(engine, &event);
        return;
    }
    /* The engine's last word about it had been said when the order to drop it was given. */
}

static void make_plan(struct prefill_engine *engine)
{
    const struct worker *worker = engine->worker;
    for (uint32_t i = 0; i < engine->queue_count; i++) {
        const struct prefill_request *request = &engine->requests[engine->queue[i]];
        engine->candidates[i] = (struct chunk_candidate){
            .position = request->engine.position,
            .token_count = request->job.given_count,
            .page_count = request->engine.has_pages ? 0 : request->page_count,
        };
    }
    const struct chunk_snapshot snapshot = {
        .candidates = engine->candidates,
        .candidate_count = engine->queue_count,
        .chunk_tokens = worker->options->chunk_tokens,
        .page_tokens = worker->limits.page_tokens,
        .sequences_max = engine->sequences_max,
        .pages_free = page_pool_free_count(worker->pages),
    };
    engine->part_count = chunk_plan_make(&snapshot, engine->parts);
}

static struct prefill_request *part_request(const struct prefill_engine *engine, uint32_t part)
{
    return &engine->requests[engine->queue[engine->parts[part].candidate]];
}

/* The first prompt behind the plan may stay out of it for want of pages: control counts that, once
 * a request while others are read, and once while nothing can be. */
static void tell_waiting(struct prefill_engine *engine)
{
    uint32_t pages_free = page_pool_free_count(engine->worker->pages);
    uint32_t room = engine->worker->options->chunk_tokens;
    for (uint32_t i = 0; i < engine->part_count; i++) {
        pages_free -= engine->parts[i].takes_pages ? part_request(engine, i)->page_count : 0;
        room -= engine->parts[i].row_count;
    }
    if (engine->part_count == engine->queue_count || room == 0)
        return;
    const bool idle = engine->part_count == 0;
    const uint32_t place = engine->queue[engine->part_count];
    struct prefill_request *request = &engine->requests[place];
    bool *told = idle ? &request->engine.waited_idle : &request->engine.waited;
    if (*told || request->engine.has_pages || request->page_count <= pages_free)
        return;
    *told = true;
    const struct prefill_event event = {.kind = EVENT_WAITS, .place = place, .idle = idle};
    send_event(engine, &event);
    engine_port_ring(engine->port);
}

/* ---- one chunk ---- */

static bool part_is_last(const struct prefill_engine *engine, uint32_t part)
{
    const struct prefill_request *request = part_request(engine, part);
    return request->engine.position + engine->parts[part].row_count == request->job.given_count;
}

/* Whether every part with a row of logits needs its largest only. */
static bool prepare(struct prefill_engine *engine)
{
    struct page_pool *pages = engine->worker->pages;
    bool best_only = true;
    for (uint32_t i = 0; i < engine->part_count; i++) {
        struct prefill_request *request = part_request(engine, i);
        if (engine->parts[i].takes_pages) {
            /* Only this thread takes pages here, so what the plan saw free is still free. */
            CHECK(page_pool_reserve(pages, request->page_count) == STATUS_OK);
            page_pool_take(pages, request->page_count, request->slots);
            request->engine.has_pages = true;
        }
        engine->sequences[i] = (struct forward_sequence){
            .tokens = request->job.tokens + request->engine.position,
            .count = engine->parts[i].row_count,
            .position = request->engine.position,
            .slots = request->slots,
            .logit_rows = part_is_last(engine, i) ? 1 : 0,
        };
        best_only &= !part_is_last(engine, i) ||
                     job_needs_best_only(&request->job, request->job.given_count);
    }
    return best_only;
}

/* Pages that this chunk completes in one layer go to control; one that straddles two chunks goes
 * with the later one. */
static void on_layer_done(void *arg, uint32_t layer)
{
    struct prefill_engine *engine = arg;
    const uint32_t page_tokens = engine->worker->limits.page_tokens;
    for (uint32_t i = 0; i < engine->part_count; i++) {
        const struct prefill_request *request = part_request(engine, i);
        const uint32_t position = request->engine.position;
        const uint32_t end = position + engine->parts[i].row_count;
        uint32_t first = position / page_tokens;
        const uint32_t last = part_is_last(engine, i) ? request->page_count : end / page_tokens;
        if (first < request->first_page)
            first = request->first_page;
        if (!request->delivers || first >= last)
            continue;
        const struct prefill_event event = {
            .kind = EVENT_STRIPS,
            .place = engine->queue[engine->parts[i].candidate],
            .strips = {.layer = layer, .first_page = first, .count = last - first},
        };
        send_event(engine, &event);
    }
    engine_port_ring(engine->port);
}

static void send_failed(struct prefill_engine *engine, uint32_t place, enum status status,
                        const char *text)
{
    struct prefill_event event = {.kind = EVENT_FAILED, .place = place};
    error_set(&event.failed, status, "%s", text);
    send_event(engine, &event);
}

static void send_first(struct prefill_engine *engine, uint32_t place, const struct pass_rows *rows,
                       uint32_t row)
{
    const struct job *job = &engine->requests[place].job;
    struct prefill_event event = {.kind = EVENT_FIRST, .place = place};
    const enum status status =
        pass_pick(rows, row, job, engine->sampler, job->given_count, &event.first);
    if (status == STATUS_OK) {
        send_event(engine, &event);
        return;
    }
    struct error error;
    error_set(&error, status, "no token can be picked at position %" PRIu32 ": %s",
              job->given_count, pass_sentence(status));
    LOG_WARN("%s", error.text);
    send_failed(engine, place, status, error.text);
}

/* Takes finished parts, or all of them, off the queue and writes down their places; returns how
 * many. Candidates ascend, so from the end, which also fills `places` from there. */
static uint32_t remove_parts(struct prefill_engine *engine, bool all,
                             uint32_t places[CHUNK_SEQUENCES_MAX])
{
    uint32_t first = CHUNK_SEQUENCES_MAX;
    for (uint32_t i = engine->part_count; i-- > 0;) {
        const struct prefill_request *request = part_request(engine, i);
        if (!all && request->engine.position < request->job.given_count)
            continue;
        places[--first] = engine->queue[engine->parts[i].candidate];
        queue_remove(engine, engine->parts[i].candidate);
    }
    engine->part_count = 0;
    memmove(places, places + first, (CHUNK_SEQUENCES_MAX - first) * sizeof *places);
    return CHUNK_SEQUENCES_MAX - first;
}

/* After the pass: progress of each part, the first token of those that are through. With its last
 * word a request may be gone and its place another's, so it is off the queue before that. */
static void finish_parts(struct prefill_engine *engine, uint64_t start_ns,
                         const struct pass_rows *rows)
{
    uint32_t places[CHUNK_SEQUENCES_MAX];
    for (uint32_t i = 0; i < engine->part_count; i++) {
        const struct prefill_event progress = {
            .kind = EVENT_PROGRESS,
            .place = engine->queue[engine->parts[i].candidate],
            .work = {.rows = engine->parts[i].row_count, .ns = start_ns},
        };
        send_event(engine, &progress);
        part_request(engine, i)->engine.position += engine->parts[i].row_count;
    }
    const uint32_t count = remove_parts(engine, false, places);
    for (uint32_t row = 0; row < count; row++)
        send_first(engine, places[row], rows, row);
}

static void fail_parts(struct prefill_engine *engine, enum status status, const char *text)
{
    uint32_t places[CHUNK_SEQUENCES_MAX];
    LOG_ERROR("a chunk of %" PRIu32 " prompts failed: %s", engine->part_count, text);
    const uint32_t count = remove_parts(engine, true, places);
    for (uint32_t i = 0; i < count; i++)
        send_failed(engine, places[i], status, text);
}

static void run_chunk(struct prefill_engine *engine)
{
    struct worker *worker = engine->worker;
    const bool best_only = prepare(engine);
    const struct forward_hooks hooks = {.layer_done = on_layer_done, .arg = engine};
    struct pass_rows rows;
    struct error error;
    const uint64_t start_ns = clock_now_ns(worker->clock);
    const enum status status = worker_forward(worker, engine->sequences, engine->part_count,
                                              best_only, &hooks, &rows, &error);
    if (status != STATUS_OK) {
        fail_parts(engine, status, error.text);
        engine_port_ring(engine->port);
        return;
    }
    struct prefill_event done = {.kind = EVENT_CHUNK,
                                 .work = {.ns = clock_now_ns(worker->clock) - start_ns}};
    for (uint32_t i = 0; i < engine->part_count; i++)
        done.work.rows += engine->parts[i].row_count;
    finish_parts(engine, start_ns, &rows);
    send_event(engine, &done);
    engine_port_ring(engine->port);
}

void prefill_engine_run(void *arg)
{
    struct prefill_engine *engine = arg;
    const uint32_t max_requests = engine->worker->options->max_requests;
    const size_t events =
        prefill_engine_events(engine->worker, engine->sequences_max) + max_requests;
    /* Room first: a queue full of drops and a whole chunk may follow. */
    while (engine_port_room(engine->port, events) && !engine_port_stopping(engine->port)) {
        struct prefill_command command;
        bool commands = false;
        while (engine_port_pop_command(engine->port, &command)) {
            take_command(engine, &command);
            commands = true;
        }
        if (commands)
            engine_port_ring(engine->port);
        make_plan(engine);
        tell_waiting(engine);
        if (engine->part_count > 0)
            run_chunk(engine);
        else
            engine_port_sleep(engine->port);
    }
}
