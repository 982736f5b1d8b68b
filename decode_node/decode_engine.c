/* The engine thread: admits, runs one step of the whole batch, samples, tells control. */
#include "decode_node/decode_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"

enum {
    /* Before the engine has taken a place's second ADMIT there can be, of one place: DROP of the
     * life before, ADMIT and DROP of this one. */
    COMMANDS_PER_REQUEST = 4,
    STEPS_IN_EVENT_RING = 4,
};

size_t decode_engine_events(const struct worker *worker, uint32_t batch_max)
{
    /* Choices that begin behind a prompt have their first token in the same step. Rows that score
     * a prompt, of which each sequence may have one beyond their number. */
    return 2 * (size_t)batch_max + PASS_SCORE_ROWS + 1 + 2 * (size_t)worker->options->max_requests;
}

void decode_engine_create(struct decode_engine *engine, struct worker *worker,
                          struct decode_request *requests, uint32_t batch_max,
                          loop_callback on_events, void *arg)
{
    const uint32_t waiting = worker->options->max_requests, all = waiting + batch_max;
    const struct engine_port_sizes sizes = {
        .command_bytes = sizeof(struct decode_command),
        .command_count = (size_t)waiting * COMMANDS_PER_REQUEST,
        .event_bytes = sizeof(struct decode_event),
        .event_count = STEPS_IN_EVENT_RING * decode_engine_events(worker, batch_max),
    };
    *engine = (struct decode_engine){
        .worker = worker,
        .port = engine_port_create(worker->loop, &sizes, on_events, arg),
        .requests = requests,
        .batch_max = batch_max,
        .samplers = calloc(model_threads(worker->model), sizeof *engine->samplers),
        .masks = answer_masks_create(batch_max, worker->text),
        .picks = calloc(batch_max, sizeof *engine->picks),
        .waiting = calloc(waiting, sizeof *engine->waiting),
        .running = calloc(batch_max, sizeof *engine->running),
        .members = calloc(all, sizeof *engine->members),
        .turns = calloc(all, sizeof *engine->turns),
        .planned = calloc(all, sizeof *engine->planned),
        .sequences = calloc(batch_max, sizeof *engine->sequences),
        .shared_slots = calloc(job_pages(worker->limits.context_tokens, worker->limits.page_tokens),
                               sizeof *engine->shared_slots),
    };
    CHECK(engine->samplers && engine->picks && engine->waiting && engine->running &&
          engine->members && engine->turns && engine->planned && engine->sequences &&
          engine->shared_slots);
    for (uint32_t i = 0; i < model_threads(worker->model); i++)
        engine->samplers[i] = sampler_create(model_info(worker->model)->token_count);
    step_time_init(&engine->step_time);
    LOG_INFO("rings: %zu commands, %zu events, %zu KiB", sizes.command_count, sizes.event_count,
             (sizes.command_count * sizes.command_bytes + sizes.event_count * sizes.event_bytes) >>
                 10);
}

void decode_engine_destroy(struct decode_engine *engine)
{
    engine_port_destroy(engine->port);
    for (uint32_t i = 0; i < model_threads(engine->worker->model); i++)
        sampler_destroy(engine->samplers[i]);
    free(engine->samplers);
    answer_masks_destroy(engine->masks);
    free(engine->picks);
    free(engine->waiting);
    free(engine->running);
    free(engine->members);
    free(engine->turns);
    free(engine->planned);
    free(engine->sequences);
    free(engine->shared_slots);
}

static void take_command(struct decode_engine *engine, const struct decode_command *command)
{
    if (command->kind == COMMAND_ADMIT) {
        decode_batch_add(engine, command->place);
        return;
    }
    if (!decode_batch_remove(engine, command->place)) {
        /* Not in the batch yet; or the last word about it had been said when the order to drop it
         * was given. */
        (void)decode_choice_drop(engine, command->place);
        return;
    }
    decode_choices_fail(engine, command->place, STATUS_CANCELED, "its first choice was given up");
    const struct decode_event event = {.kind = EVENT_DROPPED, .place = command->place};
    engine_port_event(engine->port, &event);
}

/* ---- one step ---- */

/* Of a prompt that is scored every row has logits; it is no more of them than have room. */
static uint32_t limit_rows(struct decode_request *request, uint32_t *left)
{
    const uint32_t position = request->engine.computed;
    if (!decode_request_scores(request) || !pass_scores(&request->job, position))
        return position + request->engine.rows == request->engine.token_count ? 1 : 0;
    if (request->engine.rows > *left)
        request->engine.rows = *left > 0 ? *left : 1;
    *left -= request->engine.rows < *left ? request->engine.rows : *left;
    return request->engine.rows;
}

/* Fills the sequences of the pass; returns how many, the rows of all, and whether those with a row
 * of logits need its largest only. */
static uint32_t prepare(struct decode_engine *engine, uint32_t *rows_out, bool *best_only_out)
{
    uint32_t count = 0, rows = 0, score_rows = PASS_SCORE_ROWS;
    bool best_only = true;
    for (uint32_t i = 0; i < engine->running_count; i++) {
        struct decode_request *request = &engine->requests[engine->running[i]];
        const uint32_t computed = request->engine.computed;
        request->engine.logit_rows = 0;
        if (request->engine.rows == 0)
            continue;
        request->engine.logit_rows = limit_rows(request, &score_rows);
        engine->sequences[count++] = (struct forward_sequence){
            .tokens = request->job.tokens + computed,
            .count = request->engine.rows,
            .position = computed,
            .slots = request->slots,
            .logit_rows = request->engine.logit_rows,
        };
        best_only &= request->engine.logit_rows == 0 ||
                     (job_needs_best_only(&request->job, request->engine.token_count) &&
                      !decode_request_scores(request));
        rows += request->engine.rows;
    }
    *rows_out = rows;
    *best_only_out = best_only;
    return count;
}

static void fail(struct decode_engine *engine, uint32_t place, enum status status, const char *text)
{
    decode_batch_truncate(engine, place, 0);
    decode_choices_fail(engine, place, status, text);
    struct decode_event event = {.kind = EVENT_FAILED, .place = place};
    error_set(&event.failed, status, "%s", text);
    engine_port_event(engine->port, &event);
}

struct picking {
    struct decode_engine *engine;
    const struct pass_rows *rows;
};

/* Reads the sequence and writes nothing but *pick. */
static void sample(const struct decode_engine *engine, const struct pass_rows *rows,
                   struct sampler *sampler, struct decode_pick *pick)
{
    const struct decode_request *request = &engine->requests[pick->place];
    pick->status = pass_pick(rows, pick->row, &request->job, &pick->mask, sampler,
                             request->job.choice, request->engine.token_count, &pick->sampled);
}

static void sample_piece(void *arg, uint32_t member, uint32_t piece)
{
    const struct picking *picking = arg;
    struct decode_engine *engine = picking->engine;
    sample(engine, picking->rows, engine->samplers[member], &engine->picks[piece]);
}

/* All tokens of a step, each row by one thread: whole rows are long. What grammars allow is asked
 * of them before, by this thread alone: sequences share what they know. */
static void sample_all(struct decode_engine *engine, const struct pass_rows *rows)
{
    struct picking picking = {.engine = engine, .rows = rows};
    uint32_t count = 0, row = 0;
    for (uint32_t i = 0; i < engine->running_count; i++) {
        const struct decode_request *request = &engine->requests[engine->running[i]];
        row += request->engine.logit_rows;
        if (request->engine.rows == 0 ||
            request->engine.computed + request->engine.rows != request->engine.token_count)
            continue;
        engine->picks[count].place = engine->running[i];
        engine->picks[count].row = row - 1;
        engine->picks[count].mask = answer_masks_fill(engine->masks, count, engine->running[i],
                                                      &request->job, request->engine.token_count);
        count++;
    }
    if (rows->best == NULL && count > 1) {
        model_share(engine->worker->model, sample_piece, &picking, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        sample_piece(&picking, 0, i);
}

/* Takes the token that was picked for a sequence. False: it leaves the batch. */
static bool take_pick(struct decode_engine *engine, const struct decode_pick *pick)
{
    const uint32_t place = pick->place;
    struct decode_request *request = &engine->requests[place];
    const struct job *job = &request->job;
    const uint32_t position = request->engine.token_count;
    struct decode_event event = {.kind = EVENT_TOKEN, .place = place};
    event.token.position = position;
    event.token.sampled = pick->sampled;
    if (pick->status != STATUS_OK) {
        struct error error;
        error_set(&error, pick->status, "no token can be picked at position %" PRIu32 ": %s",
                  position, pass_sentence(pick->status, &pick->mask));
        LOG_WARN("%s", error.text);
        fail(engine, place, pick->status, error.text);
        return false;
    }
    const int32_t id = event.token.sampled.id;
    event.token.finish = job_finish(job, &engine->worker->limits, id, position);
    request->engine.last_token_ns = clock_now_ns(engine->worker->clock);
    const bool stays = event.token.finish == FINISH_NONE;
    if (stays) {
        job->tokens[request->engine.token_count++] = id;
    } else {
        decode_batch_keep(engine, place);
        decode_batch_truncate(engine, place, 0);
    }
    engine_port_event(engine->port, &event);
    return stays;
}

/* The prompt is read: the other choices begin, each with a token of its own from the same row. */
static void begin_choices(struct decode_engine *engine, struct decode_request *leader,
                          const struct pass_rows *rows, const struct decode_pick *own)
{
    for (uint32_t i = 0; i < leader->engine.unborn_count; i++) {
        const uint32_t place = leader->engine.unborn[i];
        struct decode_request *request = &engine->requests[place];
        request->engine.first_step_ns = leader->engine.first_step_ns;
        request->engine.first_step_us = leader->engine.first_step_us;
        decode_choice_fork(engine->worker->pages, engine->worker->limits.page_tokens, leader,
                           request);
        leader->engine.unborn_aside -= request->pages_aside;
        /* The same job, and nothing is written yet: the same mask. */
        struct decode_pick pick = {.place = place, .row = own->row, .mask = own->mask};
        sample(engine, rows, engine->samplers[0], &pick);
        if (take_pick(engine, &pick))
            decode_batch_add(engine, place);
    }
    leader->engine.unborn_count = 0;
}

/* How likely the tokens behind those of this step were, from logit row `row` on, which is that of
 * token `at`. False: the request has failed. */
static bool send_scores(struct decode_engine *engine, uint32_t place, const struct pass_rows *rows,
                        uint32_t row, uint32_t at)
{
    struct decode_request *request = &engine->requests[place];
    for (; decode_request_scores(request) && at < request->engine.computed; at++, row++) {
        struct decode_event event = {.kind = EVENT_SCORE, .place = place};
        if (at + 1 <= request->engine.scored)
            continue; /* it was preempted, and tells it once */
        if (!pass_scores(&request->job, at))
            break;
        const enum status status =
            pass_score(rows, row, &request->job, engine->samplers[0], at, &event.token.sampled);
        if (status != STATUS_OK) {
            struct error error;
            error_set(&error, status, "the token at position %" PRIu32 " has no score: %s", at + 1,
                      status_sentence(status));
            LOG_WARN("%s", error.text);
            fail(engine, place, status, error.text);
            return false;
        }
        event.token.position = request->engine.scored = at + 1;
        engine_port_event(engine->port, &event);
    }
    return true;
}

/* After the pass: every sequence moves on, those with logits get a token, those at their end
 * leave. */
static void move_on(struct decode_engine *engine, uint64_t start_ns, uint64_t end_ns,
                    const struct pass_rows *rows)
{
    uint32_t kept = 0, row = 0, picked = 0;
    sample_all(engine, rows);
    for (uint32_t i = 0; i < engine->running_count; i++) {
        const uint32_t place = engine->running[i];
        struct decode_request *request = &engine->requests[place];
        bool stays = true;
        if (request->engine.rows == 0) {
            engine->running[kept++] = place;
            continue;
        }
        if (request->engine.first_step_ns == 0) {
            request->engine.first_step_ns = start_ns;
            request->engine.first_step_us = (end_ns - start_ns) / NS_PER_US;
        }
        const uint32_t first = request->engine.computed, first_row = row;
        const bool last = first + request->engine.rows == request->engine.token_count;
        const struct decode_pick *pick = &engine->picks[picked];
        request->engine.computed += request->engine.rows;
        row += request->engine.logit_rows;
        picked += last;
        if (!send_scores(engine, place, rows, first_row, first))
            continue;
        /* A prompt is read: others may begin like it. Choices that begin here hold the pages as the
         * index has them: who holds a page of it holds all pages before it. */
        if (last && (request->engine.rows > 1 || request->engine.unborn_count > 0))
            decode_batch_keep(engine, place);
        if (last) {
            begin_choices(engine, request, rows, pick);
            stays = take_pick(engine, pick);
        }
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

/* Tokens that the step's sequences have together; 0 for a step with rows of a prompt, which tells
 * nothing about the others. */
static uint64_t step_context(const struct decode_engine *engine, uint32_t count)
{
    uint64_t context = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (engine->sequences[i].count > 1)
            return 0;
        context += engine->sequences[i].position + 1;
    }
    return context;
}

/* Of the step's rows, those of prompts that are read here for the first time; *context_out: the
 * tokens before them, summed. */
static uint32_t step_read_rows(const struct decode_engine *engine, uint64_t *context_out)
{
    uint32_t rows = 0;
    *context_out = 0;
    for (uint32_t i = 0; i < engine->running_count; i++) {
        const struct decode_request *request = &engine->requests[engine->running[i]];
        if (request->engine.token_count != request->job.given_count)
            continue;
        rows += request->engine.rows;
        *context_out += read_context(request->engine.computed, request->engine.rows);
    }
    return rows;
}

static void run_step(struct decode_engine *engine)
{
    struct worker *worker = engine->worker;
    struct decode_event done = {.kind = EVENT_STEP};
    bool best_only;
    const uint64_t start_ns = clock_now_ns(worker->clock);
    const uint32_t count = prepare(engine, &done.step.rows, &best_only);
    const uint64_t context = step_context(engine, count);
    done.step.read_rows = step_read_rows(engine, &done.step.read_context);
    struct pass_rows rows;
    struct error error;
    const uint64_t forward_ns = clock_now_ns(worker->clock);
    const enum status status =
        worker_forward(worker, engine->sequences, count, best_only, NULL, &rows, &error);
    const uint64_t end_ns = clock_now_ns(worker->clock);
    done.step.forward_ns = end_ns - forward_ns;
    if (status == STATUS_OK) {
        move_on(engine, start_ns, end_ns, &rows);
    } else {
        fail_all(engine, status, error.text);
        done.step.rows = done.step.read_rows = 0;
    }
    done.step.running = engine->running_count;
    done.step.preempted = engine->preempted;
    done.step.lost_tokens = engine->lost_tokens;
    engine->preempted = engine->lost_tokens = 0;
    const struct answer_masks_totals totals = answer_masks_totals(engine->masks);
    done.step.masks = totals.masks;
    done.step.mask_ns = totals.ns;
    done.step.busy_ns = clock_now_ns(worker->clock) - start_ns;
    if (status == STATUS_OK && context > 0)
        step_time_add(&engine->step_time, context, count, (double)done.step.busy_ns / NS_PER_US);
    if (engine->target_us > 0)
        done.step.cost = step_time_cost(&engine->step_time);
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
        if (decode_batch_admit(engine) > 0)
            run_step(engine);
        else
            engine_port_sleep(engine->port);
    }
}
