/* Who waits, who runs and whose the pages are: what batch_admission plans, carried out. */
#include <string.h>

#include "base/check.h"
#include "decode_node/decode_internal.h"

enum { PLANS_MAX = 16 };

/* ---- lists in order of arrival ---- */

static void list_insert(struct decode_engine *engine, uint32_t *list, uint32_t *count,
                        uint32_t place)
{
    const uint64_t arrival = engine->requests[place].engine.arrival;
    uint32_t i = (*count)++;
    for (; i > 0 && engine->requests[list[i - 1]].engine.arrival > arrival; i--)
        list[i] = list[i - 1];
    list[i] = place;
}

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

void decode_batch_add(struct decode_engine *engine, uint32_t place)
{
    engine->requests[place].engine.arrival = engine->arrivals++;
    list_insert(engine, engine->waiting, &engine->waiting_count, place);
}

bool decode_batch_remove(struct decode_engine *engine, uint32_t place)
{
    if (!list_remove(engine->running, &engine->running_count, place) &&
        !list_remove(engine->waiting, &engine->waiting_count, place))
        return false;
    decode_batch_keep(engine, place);
    decode_batch_truncate(engine, place, 0);
    return true;
}

/* ---- pages ---- */

void decode_batch_keep(struct decode_engine *engine, uint32_t place)
{
    struct decode_request *request = &engine->requests[place];
    if (!engine->worker->options->no_prefix_cache)
        prefix_tree_insert(engine->worker->prefixes, request->job.cache_salt, request->job.tokens,
                           request->engine.computed, request->slots);
}

/* The beginning of a sequence may be in the index by now: takes those pages in place of its own, if
 * they hold more tokens. The last token is computed in any case, for its logits. */
static void share_beginning(struct decode_engine *engine, struct decode_request *request)
{
    struct worker *worker = engine->worker;
    const uint32_t tokens = request->engine.token_count - 1;
    const uint32_t own = request->engine.computed / worker->limits.page_tokens;
    struct prefix_match match;
    if (worker->options->no_prefix_cache || decode_request_scores(request))
        return;
    prefix_tree_peek(worker->prefixes, request->job.cache_salt, request->job.tokens, tokens,
                     &match);
    if (match.page_count <= own)
        return;
    const uint32_t found = prefix_tree_lookup(worker->prefixes, request->job.cache_salt,
                                              request->job.tokens, tokens, engine->shared_slots);
    const uint32_t held = request->engine.page_count;
    page_pool_free(worker->pages, request->slots, found < held ? found : held);
    memcpy(request->slots, engine->shared_slots, found * sizeof *request->slots);
    request->engine.page_count = found > held ? found : held;
    request->engine.computed = found * worker->limits.page_tokens;
}

void decode_batch_truncate(struct decode_engine *engine, uint32_t place, uint32_t tokens)
{
    struct decode_request *request = &engine->requests[place];
    const uint32_t kept = job_pages(tokens, engine->worker->limits.page_tokens);
    CHECK(tokens <= request->engine.computed && kept <= request->engine.page_count);
    /* The page that is written next. */
    CHECK(tokens % engine->worker->limits.page_tokens == 0 ||
          page_pool_is_sole(engine->worker->pages, request->slots + kept - 1, 1));
    page_pool_free(engine->worker->pages, request->slots + kept, request->engine.page_count - kept);
    request->engine.page_count = kept;
    request->engine.computed = tokens;
    if (tokens == 0)
        answer_masks_forget(engine->masks, place);
}

static void take_pages(struct decode_engine *engine, uint32_t place, uint32_t count)
{
    struct decode_request *request = &engine->requests[place];
    if (count == 0)
        return;
    CHECK(request->engine.page_count + count <= request->pages_end);
    page_pool_take(engine->worker->pages, count, request->slots + request->engine.page_count);
    request->engine.page_count += count;
}

/* ---- one plan ---- */

static void snapshot_member(struct decode_engine *engine, uint32_t place, uint32_t index)
{
    const struct decode_request *request = &engine->requests[place];
    engine->planned[index] = place;
    engine->members[index] = (struct batch_member){
        .known = request->engine.token_count,
        .computed = request->engine.computed,
        .pages = request->engine.page_count,
        .pages_end = request->pages_end,
        .aside = decode_choices_aside(engine, request),
    };
}

static uint32_t plan(struct decode_engine *engine)
{
    const struct worker *worker = engine->worker;
    for (uint32_t i = 0; i < engine->running_count; i++)
        snapshot_member(engine, engine->running[i], i);
    for (uint32_t i = 0; i < engine->waiting_count; i++)
        snapshot_member(engine, engine->waiting[i], engine->running_count + i);
    const struct batch_snapshot snapshot = {
        .members = engine->members,
        .running_count = engine->running_count,
        .waiting_count = engine->waiting_count,
        .batch_max = engine->batch_max,
        .chunk_tokens = worker->options->chunk_tokens,
        .page_tokens = worker->limits.page_tokens,
        .pages_free = prefix_tree_available(worker->prefixes),
        .cost = engine->target_us > 0 ? step_time_cost(&engine->step_time) : (struct step_cost){0},
        .target_us = engine->target_us,
    };
    return batch_admission_plan(&snapshot, engine->turns);
}

/* Gives pages back; a runner is preempted and waits, where those stand that came when it did. */
static void drop(struct decode_engine *engine, uint32_t place)
{
    struct decode_request *request = &engine->requests[place];
    engine->lost_tokens += request->engine.computed;
    engine->preempted++;
    decode_batch_keep(engine, place);
    decode_batch_truncate(engine, place, 0);
    page_pool_unreserve(engine->worker->pages, request->engine.unborn_aside);
    request->engine.unborn_aside = 0;
    if (list_remove(engine->running, &engine->running_count, place))
        list_insert(engine, engine->waiting, &engine->waiting_count, place);
}

static void join(struct decode_engine *engine, uint32_t place)
{
    list_remove(engine->waiting, &engine->waiting_count, place);
    list_insert(engine, engine->running, &engine->running_count, place);
}

/* What is left to take of the pages of a plan, once those who come back hold what the index has of
 * them. */
static uint32_t pages_to_take(struct decode_engine *engine, uint32_t count)
{
    uint32_t pages = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct batch_turn *turn = &engine->turns[i];
        struct decode_request *request = &engine->requests[engine->planned[i]];
        if (turn->fate == BATCH_RUNS && engine->members[i].pages == 0) {
            share_beginning(engine, request);
            const uint32_t left = request->engine.token_count - request->engine.computed;
            turn->pages -= request->engine.page_count;
            turn->rows = left < turn->rows ? left : turn->rows;
            pages += engine->members[i].aside;
        }
        pages += turn->pages;
    }
    return pages;
}

/* True when the pages of the plan could be taken. What is given back is given back either way. */
static bool carry_out(struct decode_engine *engine, uint32_t runners, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (engine->turns[i].fate != BATCH_DROPS)
            continue;
        atomic_store(&engine->short_of_pages, true); /* before control can see them free */
        drop(engine, engine->planned[i]);
    }
    const uint32_t pages = pages_to_take(engine, count);
    const bool there = prefix_tree_reserve(engine->worker->prefixes, pages) == STATUS_OK;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t place = engine->planned[i];
        if (engine->turns[i].fate != BATCH_RUNS)
            continue;
        if (!there && engine->members[i].pages == 0)
            decode_batch_truncate(engine, place, 0);
        if (!there)
            continue;
        if (engine->members[i].pages == 0)
            engine->requests[place].engine.unborn_aside = engine->members[i].aside;
        take_pages(engine, place, engine->turns[i].pages);
        engine->requests[place].engine.rows = engine->turns[i].rows;
        if (i >= runners)
            join(engine, place);
    }
    return there;
}

/* A prompt that is read here may begin like one that was read since it came; the one whose turn it
 * is finds out. */
static void look_again(struct decode_engine *engine)
{
    const uint32_t count = engine->running_count + engine->waiting_count;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t place = i < engine->running_count
                                   ? engine->running[i]
                                   : engine->waiting[i - engine->running_count];
        struct decode_request *request = &engine->requests[place];
        if (request->engine.page_count == 0 ||
            request->engine.token_count - request->engine.computed == 1)
            continue;
        share_beginning(engine, request);
        return;
    }
}

uint32_t decode_batch_admit(struct decode_engine *engine)
{
    uint32_t rows = 0;
    bool done = false;
    look_again(engine);
    /* Control may reserve between the look and the taking: then the plan is made anew. When it
     * cannot be carried out time and again there is no step for now, and commands are heard. */
    for (int i = 0; i < PLANS_MAX && !done; i++) {
        const uint32_t runners = engine->running_count;
        rows = plan(engine);
        done = carry_out(engine, runners, runners + engine->waiting_count);
    }
    rows = done ? rows : 0;
    bool short_of_pages = rows == 0 && engine->running_count > 0;
    for (uint32_t i = 0; i < engine->waiting_count; i++)
        short_of_pages |= engine->requests[engine->waiting[i]].engine.page_count == 0;
    atomic_store(&engine->short_of_pages, short_of_pages);
    return rows;
}
