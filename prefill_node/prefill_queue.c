/* The engine's queue: who waits, who has started, and what the next chunk is. */
#include "prefill_node/prefill_internal.h"

#include <string.h>

#include "base/check.h"

/* Tenants are not told apart yet: all beginnings are everybody's. */
void prefill_queue_push(struct prefill_engine *engine, uint32_t place)
{
    engine->requests[place].engine.due_us = UINT64_MAX;
    engine->over[engine->queue_count] = false;
    engine->queue[engine->queue_count++] = place;
}

void prefill_queue_compact(struct prefill_engine *engine)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < engine->queue_count; i++) {
        if (engine->over[i])
            continue;
        engine->over[kept] = false;
        engine->queue[kept++] = engine->queue[i];
    }
    engine->queue_count = kept;
}

bool prefill_queue_drop(struct prefill_engine *engine, uint32_t place)
{
    for (uint32_t i = 0; i < engine->queue_count; i++) {
        if (engine->queue[i] != place)
            continue;
        const struct prefill_request *request = &engine->requests[place];
        if (request->engine.has_pages)
            prefix_tree_withdraw(engine->worker->prefixes, request->slots, request->page_count);
        engine->over[i] = true;
        prefill_queue_compact(engine);
        return true;
    }
    return false;
}

/* ---- the prefix index ---- */

/* Where a prompt begins to be computed, and what that takes. */
struct beginning {
    uint32_t page_count; /* pages found */
    uint32_t position;   /* first token to compute: at least the last one is */
    uint32_t new_pages;  /* to take */
    uint32_t need;       /* by how many fewer pages are available once it has started */
    uint32_t owner;      /* place of the request that computes the next page, or PREFIX_NOBODY */
};

/* Where the prompt itself is scored all of it is computed: pages have no logits. */
static bool is_cached(const struct prefill_engine *engine, const struct prefill_request *request)
{
    return engine->cache && request->job.scores == 0;
}

/* The last token is always computed, for its logits. Where its page was found, the page is shared
 * and not to be written: a copy is. */
static struct beginning beginning_of(const struct prefill_engine *engine,
                                     const struct prefill_request *request)
{
    const uint32_t given = request->job.given_count;
    const uint32_t page_tokens = engine->worker->limits.page_tokens;
    struct prefix_match match = {.owner = PREFIX_NOBODY};
    if (is_cached(engine, request))
        prefix_tree_peek(engine->worker->prefixes, request->job.cache_salt, request->job.tokens,
                         given, &match);
    const uint32_t known = match.page_count * page_tokens;
    const uint32_t copies = known == given;
    const uint32_t new_pages = request->page_count - match.page_count + copies;
    return (struct beginning){
        .page_count = match.page_count,
        .position = known - copies,
        .new_pages = new_pages,
        .need = new_pages + match.idle_count,
        .owner = match.owner,
    };
}

/* Holds the pages found, copies the one that is to be written. */
static void hold_beginning(struct prefill_engine *engine, struct prefill_request *request,
                           const struct beginning *beginning)
{
    const struct worker *worker = engine->worker;
    uint32_t *slots = request->slots;
    uint32_t found = 0;
    if (is_cached(engine, request))
        found = prefix_tree_lookup(worker->prefixes, request->job.cache_salt, request->job.tokens,
                                   request->job.given_count, slots);
    /* Only this thread adds pages and takes them here: what the plan saw is still there. */
    CHECK(found == beginning->page_count);
    CHECK(prefix_tree_reserve(worker->prefixes, beginning->new_pages) == STATUS_OK);
    const uint32_t last = request->page_count - 1;
    if (found <= last) {
        page_pool_take(worker->pages, beginning->new_pages, slots + found);
        return;
    }
    const uint32_t shared = slots[last];
    page_pool_take(worker->pages, 1, &slots[last]);
    page_pool_copy(worker->pages, shared, slots[last]);
    page_pool_free(worker->pages, &shared, 1);
}

/* Takes a prompt's pages and announces what it will compute. False when the plan does not hold any
 * more: one that started just before computes the same beginning, or took pages it was in. */
static bool start(struct prefill_engine *engine, uint32_t index)
{
    const uint32_t place = engine->queue[index];
    struct prefill_request *request = &engine->requests[place];
    const struct beginning beginning = beginning_of(engine, request);
    if (beginning.owner != PREFIX_NOBODY)
        return false;
    hold_beginning(engine, request, &beginning);
    if (is_cached(engine, request))
        prefix_tree_claim(engine->worker->prefixes, request->job.cache_salt, request->job.tokens,
                          request->job.given_count, request->slots, place);
    request->engine.position = request->engine.begun_at = beginning.position;
    request->engine.has_pages = true;
    const struct prefill_event event = {
        .kind = EVENT_STARTED, .place = place, .cached_tokens = beginning.position};
    engine_port_event(engine->port, &event);
    return beginning.position == engine->candidates[index].position;
}

/* ---- the plan ---- */

/* A due time only becomes earlier, when more of the prompt is known or the engine turns out to be
 * faster, also of those that have started: what arrives later with as much to compute is never due
 * before. */
static void make_due(const struct prefill_engine *engine, struct prefill_request *request,
                     uint32_t begins_at)
{
    const uint64_t due_us =
        chunk_plan_due_us(request->arrival_ns / NS_PER_US, engine->ttft_target_ms,
                          request->job.given_count - begins_at, rate_per_s(&engine->rate));
    if (due_us < request->engine.due_us)
        request->engine.due_us = due_us;
}

static void fill_candidate(struct prefill_engine *engine, uint32_t index)
{
    struct prefill_request *request = &engine->requests[engine->queue[index]];
    struct chunk_candidate *candidate = &engine->candidates[index];
    *candidate = (struct chunk_candidate){
        .position = request->engine.position,
        .token_count = request->job.given_count,
        .waits_for = CHUNK_NOBODY,
    };
    uint32_t begins_at = request->engine.begun_at;
    if (!request->engine.has_pages) {
        const struct beginning beginning = beginning_of(engine, request);
        begins_at = candidate->position = beginning.position;
        candidate->page_count = beginning.need;
        if (beginning.owner != PREFIX_NOBODY) {
            candidate->waits_for = engine->index_of[beginning.owner];
            CHECK(engine->queue[candidate->waits_for] == beginning.owner);
        }
    }
    make_due(engine, request, begins_at);
    candidate->due_us = request->engine.due_us;
}

static void make_plan(struct prefill_engine *engine, bool may_start)
{
    const struct worker *worker = engine->worker;
    for (uint32_t i = 0; i < engine->queue_count; i++)
        engine->index_of[engine->queue[i]] = i;
    for (uint32_t i = 0; i < engine->queue_count; i++)
        fill_candidate(engine, i);
    chunk_plan_inherit(engine->candidates, engine->queue_count);
    const struct chunk_snapshot snapshot = {
        .candidates = engine->candidates,
        .candidate_count = engine->queue_count,
        .chunk_tokens = worker->options->chunk_tokens,
        .page_tokens = worker->limits.page_tokens,
        .sequences_max = engine->sequences_max,
        .pages_free = may_start ? prefix_tree_available(worker->prefixes) : 0,
        .now_us = clock_now_ns(worker->clock) / NS_PER_US,
        .scratch = engine->scratch,
    };
    engine->part_count = chunk_plan_make(&snapshot, engine->parts, &engine->lacking);
    if (!may_start)
        engine->lacking = CHUNK_NOBODY;
}

/* A start can make the plan wrong: then it is made anew, with what has started as it is. Each time
 * one more has started, and at most sequences_max do. */
void prefill_queue_plan(struct prefill_engine *engine)
{
    uint32_t start_count = 0;
    bool holds;
    do {
        holds = true;
        make_plan(engine, start_count < engine->sequences_max);
        for (uint32_t i = 0; i < engine->part_count; i++) {
            if (!engine->parts[i].starts)
                continue;
            if (start_count == engine->sequences_max) {
                holds = false;
                break;
            }
            const uint32_t index = engine->parts[i].candidate;
            holds = start(engine, index) && holds;
            start_count += engine->requests[engine->queue[index]].engine.has_pages;
        }
    } while (!holds);
}
