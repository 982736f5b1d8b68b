#include "prefill_node/chunk_plan.h"

#include "base/check.h"

/* A prompt may take this many times as long as it would alone before it is due. */
enum { STRETCH = 2 };

struct plan {
    const struct chunk_snapshot *snapshot;
    struct chunk_part *parts;
    uint32_t count;
    uint32_t room;      /* rows left */
    uint32_t long_room; /* of them, for prompts that do not end in this chunk */
    uint32_t pages_free;
    uint32_t lacking; /* the first that was passed for want of pages */
    bool closed;      /* one that is due waits for pages */
};

uint64_t chunk_plan_due_us(uint64_t arrival_us, uint32_t target_ms, uint32_t tokens_left,
                           double tokens_per_s)
{
    const double seconds = STRETCH * (double)tokens_left / (tokens_per_s < 1 ? 1 : tokens_per_s);
    return arrival_us + (uint64_t)target_ms * 1000 + (uint64_t)(seconds * 1e6);
}

void chunk_plan_inherit(struct chunk_candidate *candidates, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (candidates[i].waits_for == CHUNK_NOBODY)
            continue;
        struct chunk_candidate *owner = &candidates[candidates[i].waits_for];
        if (owner->due_us > candidates[i].due_us)
            owner->due_us = candidates[i].due_us;
    }
}

/* ---- a heap of candidates, the most urgent on top ---- */

static bool is_before(const struct chunk_snapshot *snapshot, uint32_t a, uint32_t b)
{
    const uint64_t due_a = snapshot->candidates[a].due_us;
    const uint64_t due_b = snapshot->candidates[b].due_us;
    return due_a != due_b ? due_a < due_b : a < b;
}

static void heap_sink(const struct chunk_snapshot *snapshot, uint32_t count, uint32_t at)
{
    uint32_t *heap = snapshot->scratch;
    for (;;) {
        uint32_t first = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++) {
            if (is_before(snapshot, heap[child], heap[first]))
                first = child;
        }
        if (first == at)
            return;
        const uint32_t moved = heap[at];
        heap[at] = heap[first];
        heap[first] = moved;
        at = first;
    }
}

static void heap_build(const struct chunk_snapshot *snapshot)
{
    for (uint32_t i = 0; i < snapshot->candidate_count; i++)
        snapshot->scratch[i] = i;
    for (uint32_t i = snapshot->candidate_count / 2; i-- > 0;)
        heap_sink(snapshot, snapshot->candidate_count, i);
}

static uint32_t heap_pop(const struct chunk_snapshot *snapshot, uint32_t *count)
{
    const uint32_t top = snapshot->scratch[0];
    snapshot->scratch[0] = snapshot->scratch[--*count];
    heap_sink(snapshot, *count, 0);
    return top;
}

/* ---- the plan ---- */

/* Rows of one prompt that fit in `room`, ending at a page edge or with the prompt. */
static uint32_t part_rows(const struct chunk_candidate *candidate, uint32_t room,
                          uint32_t page_tokens)
{
    const uint32_t left = candidate->token_count - candidate->position;
    if (left <= room)
        return left;
    const uint32_t end = (candidate->position + room) / page_tokens * page_tokens;
    return end > candidate->position ? end - candidate->position : 0;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void consider(struct plan *plan, uint32_t index)
{
    const struct chunk_snapshot *snapshot = plan->snapshot;
    const struct chunk_candidate *candidate = &snapshot->candidates[index];
    if (candidate->waits_for != CHUNK_NOBODY)
        return;
    if (candidate->page_count > 0 && (plan->closed || candidate->page_count > plan->pages_free)) {
        plan->closed |= candidate->due_us <= snapshot->now_us;
        if (plan->lacking == CHUNK_NOBODY)
            plan->lacking = index;
        return;
    }
    const bool ends = candidate->token_count - candidate->position <= plan->room;
    const uint32_t room = ends ? plan->room : smaller(plan->room, plan->long_room);
    const uint32_t rows = part_rows(candidate, room, snapshot->page_tokens);
    if (rows == 0)
        return;
    plan->parts[plan->count++] = (struct chunk_part){
        .candidate = index,
        .row_count = rows,
        .starts = candidate->page_count > 0,
    };
    plan->pages_free -= candidate->page_count;
    plan->room -= rows;
    if (!ends)
        plan->long_room -= rows;
}

/* What nobody else wants goes to the parts that were cut short. */
static void extend(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->count && plan->room > 0; i++) {
        struct chunk_part *part = &plan->parts[i];
        const uint32_t rows = part_rows(&plan->snapshot->candidates[part->candidate],
                                        part->row_count + plan->room, plan->snapshot->page_tokens);
        plan->room -= rows - part->row_count;
        part->row_count = rows;
    }
}

uint32_t chunk_plan_make(const struct chunk_snapshot *snapshot, struct chunk_part *parts,
                         uint32_t *lacking_out)
{
    DCHECK(snapshot->chunk_tokens >= snapshot->page_tokens);
    /* Half a chunk, but a page at least: less would not bring a long prompt on. */
    const uint32_t half = snapshot->chunk_tokens / 2;
    struct plan plan = {
        .snapshot = snapshot,
        .parts = parts,
        .room = snapshot->chunk_tokens,
        .long_room = half > snapshot->page_tokens ? half : snapshot->page_tokens,
        .pages_free = snapshot->pages_free,
        .lacking = CHUNK_NOBODY,
    };
    uint32_t left = snapshot->candidate_count;
    heap_build(snapshot);
    while (left > 0 && plan.room > 0 && plan.count < snapshot->sequences_max)
        consider(&plan, heap_pop(snapshot, &left));
    extend(&plan);
    *lacking_out = plan.lacking;
    return plan.count;
}
