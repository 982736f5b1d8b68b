#include "prefill_node/chunk_plan.h"

#include "base/check.h"

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

uint32_t chunk_plan_make(const struct chunk_snapshot *snapshot, struct chunk_part *parts)
{
    DCHECK(snapshot->chunk_tokens >= snapshot->page_tokens);
    uint32_t room = snapshot->chunk_tokens;
    uint32_t pages_free = snapshot->pages_free;
    uint32_t count = 0;
    for (uint32_t i = 0; i < snapshot->candidate_count; i++) {
        const struct chunk_candidate *candidate = &snapshot->candidates[i];
        if (room == 0 || count == snapshot->sequences_max)
            break;
        if (candidate->page_count > pages_free)
            break;
        const uint32_t rows = part_rows(candidate, room, snapshot->page_tokens);
        if (rows == 0)
            break;
        parts[count++] = (struct chunk_part){
            .candidate = i,
            .row_count = rows,
            .takes_pages = candidate->page_count > 0,
        };
        pages_free -= candidate->page_count;
        room -= rows;
    }
    return count;
}
