/* The engine thread: plans a chunk, runs the model, tells control layer by layer. */
#include "prefill_node/prefill_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"

void prefill_engine_create(struct prefill_engine *engine, struct worker *worker,
                           struct engine_port *port, struct prefill_request *requests,
                           uint32_t sequences_max, uint32_t ttft_target_ms)
{
    const uint32_t count = worker->options->max_requests;
    *engine = (struct prefill_engine){
        .worker = worker,
        .port = port,
        .requests = requests,
        .sampler = sampler_create(model_info(worker->model)->token_count),
        .masks = answer_masks_create(1, worker->text),
        .ttft_target_ms = ttft_target_ms,
        .cache = !worker->options->no_prefix_cache,
        .queue = calloc(count, sizeof *engine->queue),
        .over = calloc(count, sizeof *engine->over),
        .index_of = calloc(count, sizeof *engine->index_of),
        .candidates = calloc(count, sizeof *engine->candidates),
        .scratch = calloc(count, sizeof *engine->scratch),
        .sequences_max = sequences_max,
    };
    CHECK(engine->queue != NULL && engine->over != NULL && engine->index_of != NULL &&
          engine->candidates != NULL && engine->scratch != NULL);
    rate_init(&engine->rate, worker->tokens_per_s);
}

void prefill_engine_destroy(struct prefill_engine *engine)
{
    sampler_destroy(engine->sampler);
    answer_masks_destroy(engine->masks);
    free(engine->queue);
    free(engine->over);
    free(engine->index_of);
    free(engine->candidates);
    free(engine->scratch);
}

size_t prefill_engine_events(const struct worker *worker, uint32_t sequences)
{
    /* Start, strips of every layer, progress and the first tokens of each part; the chunk, and one
     * that waits. What starts without a part in this chunk is one of so many as well. Rows that
     * score a prompt, of which each part may have one beyond their number. */
    return (size_t)sequences * (model_info(worker->model)->layers + 3 + JOB_CHOICES_MAX) +
           PASS_SCORE_ROWS + 2;
}

static void send_event(struct prefill_engine *engine, const struct prefill_event *event)
{
    engine_port_event(engine->port, event);
}

static void take_command(struct prefill_engine *engine, const struct prefill_command *command)
{
    if (command->kind == COMMAND_ADMIT) {
        prefill_queue_push(engine, command->place);
        return;
    }
    /* Not in the queue: its last word had been said when the order to drop it was given. */
    if (prefill_queue_drop(engine, command->place)) {
        const struct prefill_event event = {.kind = EVENT_DROPPED, .place = command->place};
        send_event(engine, &event);
    }
}

static struct prefill_request *part_request(const struct prefill_engine *engine, uint32_t part)
{
    return &engine->requests[engine->queue[engine->parts[part].candidate]];
}

/* The first prompt that lacks pages: control counts that, once a request while others are read, and
 * once while nothing can be. */
static void tell_waiting(struct prefill_engine *engine)
{
    if (engine->lacking == CHUNK_NOBODY)
        return;
    const bool idle = engine->part_count == 0;
    const uint32_t place = engine->queue[engine->lacking];
    struct prefill_request *request = &engine->requests[place];
    bool *told = idle ? &request->engine.waited_idle : &request->engine.waited;
    if (*told)
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

/* Parts whose rows all have logits become so short that those of all of them have room. */
static void shorten_scored(struct prefill_engine *engine)
{
    uint32_t left = PASS_SCORE_ROWS;
    for (uint32_t i = 0; i < engine->part_count; i++) {
        const struct prefill_request *request = part_request(engine, i);
        struct chunk_part *part = &engine->parts[i];
        if (!pass_scores(&request->job, request->engine.position))
            continue;
        if (part->row_count > left)
            part->row_count = left > 0 ? left : 1;
        left -= part->row_count < left ? part->row_count : left;
    }
}

static uint32_t logit_rows(const struct prefill_engine *engine, uint32_t part)
{
    const struct prefill_request *request = part_request(engine, part);
    if (pass_scores(&request->job, request->engine.position))
        return engine->parts[part].row_count;
    return part_is_last(engine, part) ? 1 : 0;
}

/* Whether every part with a row of logits needs its largest only. */
static bool prepare(struct prefill_engine *engine)
{
    bool best_only = true;
    shorten_scored(engine);
    for (uint32_t i = 0; i < engine->part_count; i++) {
        const struct prefill_request *request = part_request(engine, i);
        best_only &= !pass_scores(&request->job, request->engine.position);
        engine->sequences[i] = (struct forward_sequence){
            .tokens = request->job.tokens + request->engine.position,
            .count = engine->parts[i].row_count,
            .position = request->engine.position,
            .slots = request->slots,
            .logit_rows = logit_rows(engine, i),
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

/* One of each choice, from the same row. */
static void send_firsts(struct prefill_engine *engine, uint32_t place, const struct pass_rows *rows,
                        uint32_t row)
{
    const struct job *job = &engine->requests[place].job;
    const uint32_t position = job->given_count, choices = job->choices;
    const struct answer_mask mask = answer_masks_fill(engine->masks, 0, place, job, position);
    answer_masks_forget(engine->masks, place);
    for (uint32_t i = 0; i < choices; i++) {
        struct prefill_event event = {.kind = EVENT_FIRST, .place = place, .first = {.index = i}};
        const enum status status = pass_pick(rows, row, job, &mask, engine->sampler,
                                             job->choice + i, position, &event.first.sampled);
        if (status == STATUS_OK) {
            send_event(engine, &event);
            continue;
        }
        struct error error;
        error_set(&error, status, "no token can be picked at position %" PRIu32 ": %s", position,
                  pass_sentence(status, &mask));
        LOG_WARN("%s", error.text);
        send_failed(engine, place, status, error.text);
        return;
    }
}

/* How likely the tokens behind those of a part were. When one has no score the request is to fail.
 */
static enum status send_scores(struct prefill_engine *engine, uint32_t part,
                               const struct pass_rows *rows, uint32_t row, struct error *error)
{
    const uint32_t place = engine->queue[engine->parts[part].candidate];
    const struct prefill_request *request = &engine->requests[place];
    const uint32_t end = request->engine.position + engine->parts[part].row_count;
    for (uint32_t at = request->engine.position; at < end; at++, row++) {
        struct prefill_event event = {
            .kind = EVENT_SCORE, .place = place, .score = {.position = at + 1}};
        if (!pass_scores(&request->job, at))
            return STATUS_OK;
        const enum status status =
            pass_score(rows, row, &request->job, engine->sampler, at, &event.score.sampled);
        if (status != STATUS_OK) {
            error_set(error, status, "the token at position %" PRIu32 " has no score: %s", at + 1,
                      status_sentence(status));
            LOG_WARN("%s", error->text);
            return status;
        }
        send_event(engine, &event);
    }
    return STATUS_OK;
}

/* The pages that this part completed are in the prefix index from now on. */
static void part_done(struct prefill_engine *engine, uint32_t part)
{
    struct prefill_request *request = part_request(engine, part);
    const uint32_t page_tokens = engine->worker->limits.page_tokens;
    const uint32_t first = request->engine.position / page_tokens;
    request->engine.position += engine->parts[part].row_count;
    prefix_tree_finish(engine->worker->prefixes, request->slots + first,
                       request->engine.position / page_tokens - first);
}

/* After the pass: progress of each part, the first token of those that are through. With its last
 * word a request may be gone and its place another's: nothing reads it after that. */
static void finish_parts(struct prefill_engine *engine, uint64_t start_ns,
                         const struct pass_rows *rows)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < engine->part_count; i++) {
        const uint32_t index = engine->parts[i].candidate;
        const uint32_t place = engine->queue[index];
        const struct prefill_event progress = {
            .kind = EVENT_PROGRESS,
            .place = place,
            .work = {.rows = engine->parts[i].row_count, .ns = start_ns},
        };
        send_event(engine, &progress);
        row += engine->sequences[i].logit_rows;
        const bool last = part_is_last(engine, i);
        struct error error;
        const enum status status =
            send_scores(engine, i, rows, row - engine->sequences[i].logit_rows, &error);
        engine->over[index] = last || status != STATUS_OK;
        part_done(engine, i);
        if (status != STATUS_OK)
            send_failed(engine, place, status, error.text);
        else if (last)
            send_firsts(engine, place, rows, row - 1);
    }
}

static void fail_parts(struct prefill_engine *engine, const struct error *error)
{
    LOG_ERROR("a chunk of %" PRIu32 " prompts failed: %s", engine->part_count, error->text);
    for (uint32_t i = 0; i < engine->part_count; i++) {
        const struct prefill_request *request = part_request(engine, i);
        prefix_tree_withdraw(engine->worker->prefixes, request->slots, request->page_count);
        engine->over[engine->parts[i].candidate] = true;
        send_failed(engine, engine->queue[engine->parts[i].candidate], error->status, error->text);
    }
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
    if (status == STATUS_OK) {
        struct prefill_event done = {.kind = EVENT_CHUNK,
                                     .work = {.ns = clock_now_ns(worker->clock) - start_ns}};
        for (uint32_t i = 0; i < engine->part_count; i++) {
            const struct forward_sequence *part = &engine->sequences[i];
            done.work.rows += part->count;
            done.work.context += read_context(part->position, part->count);
        }
        rate_add(&engine->rate, done.work.rows, done.work.ns);
        finish_parts(engine, start_ns, &rows);
        send_event(engine, &done);
    } else {
        fail_parts(engine, &error);
    }
    prefill_queue_compact(engine);
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
        prefill_queue_plan(engine);
        tell_waiting(engine);
        if (engine->part_count > 0)
            run_chunk(engine);
        else
            engine_port_sleep(engine->port);
    }
}
