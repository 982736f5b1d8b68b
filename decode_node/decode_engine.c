/* The engine thread: admits, runs one step of the whole batch, samples, tells control. */
#include "decode_node/decode_internal.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

size_t decode_engine_events(const struct worker *worker, uint32_t batch_max)
{
    return (size_t)batch_max + 1 + worker->options->max_requests;
}

/* ---- lists ---- */

static bool list_remove(uint32_t *list, uint32_t *count, uint32_t place)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (list[i] != place)
            continue;
        (*count)--;
        memmove(list + i, list + i + 1, (*count - i) * sizeof *list);
        return true;
    }
    return false;
}

static void give_pages_back(struct decode_engine *engine, uint32_t place)
{
    struct decode_request *request = &engine->requests[place];
    page_pool_free(engine->worker->pages, request->slots, request->page_count);
    request->engine.has_pages = false;
}

static void take_command(struct decode_engine *engine, const struct decode_command *command)
{
    if (command->kind == COMMAND_ADMIT) {
        engine->waiting[engine->waiting_count++] = command->place;
        return;
    }
    if (!list_remove(engine->running, &engine->running_count, command->place) &&
        !list_remove(engine->waiting, &engine->waiting_count, command->place))
        return; /* the last word about it had been said when the order to drop it was given */
    give_pages_back(engine, command->place);
    const struct decode_event event = {.kind = EVENT_DROPPED, .place = command->place};
    engine_port_event(engine->port, &event);
}

/* ---- admission ---- */

static uint32_t rows_left(const struct decode_engine *engine, uint32_t place)
{
    const struct decode_request *request = &engine->requests[place];
    return request->engine.token_count - request->engine.computed;
}

static void admit(struct decode_engine *engine)
{
    for (uint32_t i = 0; i < engine->running_count; i++)
        engine->running_rows[i] = rows_left(engine, engine->running[i]);
    for (uint32_t i = 0; i < engine->waiting_count; i++)
        engine->waiting_rows[i] = rows_left(engine, engine->waiting[i]);
    const struct batch_snapshot snapshot = {
        .running_rows = engine->running_rows,
        .running_count = engine->running_count,
        .waiting_rows = engine->waiting_rows,
        .waiting_count = engine->waiting_count,
        .batch_max = engine->batch_max,
        .chunk_tokens = engine->worker->options->chunk_tokens,
    };
    const uint32_t joining = batch_admission_plan(&snapshot, engine->rows);
    memcpy(engine->running + engine->running_count, engine->waiting,
           joining * sizeof *engine->waiting);
    engine->running_count += joining;
    engine->waiting_count -= joining;
    memmove(engine->waiting, engine->waiting + joining,
            engine->waiting_count * sizeof *engine->waiting);
}

/* ---- one step ---- */

/* Fills the sequences of the pass; returns how many, the rows of all, and whether those with a row
 * of logits need its largest only. */
static uint32_t prepare(struct decode_engine *engine, uint32_t *rows_out, bool *best_only_out)
{
    uint32_t count = 0, rows = 0;
    bool best_only = true;
    for (uint32_t i = 0; i < engine->running_count; i++) {
        const struct decode_request *request = &engine->requests[engine->running[i]];
        const uint32_t computed = request->engine.computed;
        if (engine->rows[i] == 0)
            continue;
        engine->sequences[count++] = (struct forward_sequence){
            .tokens = request->job.tokens + computed,
            .count = engine->rows[i],
            .position = computed,
            .slots = request->slots,
            .logit_rows = computed + engine->rows[i] == request->engine.token_count ? 1 : 0,
        };
        best_only &= engine->sequences[count - 1].logit_rows == 0 ||
                     sampling_needs_best_only(&request->job.sampling);
        rows += engine->rows[i];
    }
    *rows_out = rows;
    *best_only_out = best_only;
    return count;
}

static void fail(struct decode_engine *engine, uint32_t place, enum status status, const char *text)
{
    give_pages_back(engine, place);
    struct decode_event event = {.kind = EVENT_FAILED, .place = place};
    error_set(&event.failed, status, "%s", text);
    engine_port_event(engine->port, &event);
}

/* Picks the next token of one sequence. False: it leaves the batch. */
static bool pick(struct decode_engine *engine, uint32_t place, const struct pass_rows *rows,
                 uint32_t row)
{
    struct decode_request *request = &engine->requests[place];
    const struct job *job = &request->job;
    const uint32_t position = request->engine.token_count;
    struct decode_event event = {.kind = EVENT_TOKEN, .place = place};
    event.token.position = position;
    const enum status status =
        pass_pick(rows, row, job, engine->sampler, position, &event.token.sampled);
    if (status != STATUS_OK) {
        struct error error;
        error_set(&error, status, "no token can be picked at position %" PRIu32 ": %s", position,
                  status_sentence(status));
        LOG_WARN("%s", error.text);
        fail(engine, place, status, error.text);
        return false;
    }
    const int32_t id = event.token.sampled.id;
    event.token.finish = job_finish(job, &engine->worker->limits, id, position);
    request->engine.last_token_ns = clock_now_ns(engine->worker->clock);
    const bool stays = event.token.finish == FINISH_NONE;
    if (stays)
        job->tokens[request->engine.token_count++] = id;
    else
        give_pages_back(engine, place);
    engine_port_event(engine->port, &event);
    return stays;
}

/* After the pass: every sequence moves on, those with logits get a token, those at their end
 * leave. */
static void move_on(struct decode_engine *engine, uint64_t start_ns, uint64_t end_ns,
                    const struct pass_rows *rows)
{
    uint32_t kept = 0, row = 0;
    for (uint32_t i = 0; i < engine->running_count; i++) {
        const uint32_t place = engine->running[i];
        struct decode_request *request = &engine->requests[place];
        bool stays = true;
        if (engine->rows[i] > 0 && request->engine.first_step_ns == 0) {
            request->engine.first_step_ns = start_ns;
            request->engine.first_step_us = (end_ns - start_ns) / NS_PER_US;
        }
        request->engine.computed += engine->rows[i];
        if (engine->rows[i] > 0 && request->engine.computed == request->engine.token_count)
            stays = pick(engine, place, rows, row++);
        if (stays)
            engine->running[kept++] = place;
    }
    engine->running_count = kept;
}

static void fail_all(struct decode_engine *engine, enum status status, const char *text)
{
    LOG_ERROR("a step of %" PRIu32 " sequences failed: %s", engine->running_count, text);
    for (uint32_t i = 0; i < engine->running_count; i++)
        fail(engine, engine->running[i], status, text);
    engine->running_count = 0;
}

static void run_step(struct decode_engine *engine)
{
    struct worker *worker = engine->worker;
    struct decode_event done = {.kind = EVENT_STEP};
    bool best_only;
    const uint32_t count = prepare(engine, &done.step.rows, &best_only);
    struct pass_rows rows;
    struct error error;
    const uint64_t start_ns = clock_now_ns(worker->clock);
    const enum status status =
        worker_forward(worker, engine->sequences, count, best_only, NULL, &rows, &error);
    const uint64_t end_ns = clock_now_ns(worker->clock);
    if (status == STATUS_OK) {
        move_on(engine, start_ns, end_ns, &rows);
    } else {
        fail_all(engine, status, error.text);
        done.step.rows = 0;
    }
    done.step.running = engine->running_count;
    done.step.busy_ns = clock_now_ns(worker->clock) - start_ns;
    engine_port_event(engine->port, &done);
    engine_port_ring(engine->port);
}

void decode_engine_run(void *arg)
{
    struct decode_engine *engine = arg;
    const size_t events = decode_engine_events(engine->worker, engine->batch_max);
    /* Room first: drops and a whole step may follow. */
    while (engine_port_room(engine->port, events) && !engine_port_stopping(engine->port)) {
        struct decode_command command;
        bool commands = false;
        while (engine_port_pop_command(engine->port, &command)) {
            take_command(engine, &command);
            commands = true;
        }
        if (commands)
            engine_port_ring(engine->port);
        admit(engine);
        if (engine->running_count > 0)
            run_step(engine);
        else
            engine_port_sleep(engine->port);
    }
}
