/* Which prompts go into the next chunk, and how much of each: a pure function of a snapshot, so
 * that a later policy replaces this file and a simulator can run it.
 *
 * The policy of today: first come, first served. A chunk is filled with the rest of the oldest
 * prompt, then of the next ones. The part of a prompt ends at a page edge unless it is its last, so
 * that every page is computed, and sent, in one piece. A prompt takes the pages for all of its
 * tokens before its first row; when they are not free it waits and nobody behind it starts. */
#ifndef BATON_PREFILL_NODE_CHUNK_PLAN_H
#define BATON_PREFILL_NODE_CHUNK_PLAN_H

#include <stdbool.h>
#include <stdint.h>

struct chunk_candidate {
    uint32_t position;    /* tokens computed so far */
    uint32_t token_count; /* tokens in all, above position */
    uint32_t page_count;  /* pages it still has to take; 0 when it holds them */
};

struct chunk_snapshot {
    const struct chunk_candidate *candidates; /* [candidate_count] in order of arrival */
    uint32_t candidate_count;
    uint32_t chunk_tokens; /* rows at most, at least page_tokens */
    uint32_t page_tokens;
    uint32_t sequences_max; /* parts at most, and the size of `parts` */
    uint32_t pages_free;
};

struct chunk_part {
    uint32_t candidate; /* index in the snapshot */
    uint32_t row_count;
    bool takes_pages; /* page_count pages, before it is computed */
};

/* Fills parts, in order of arrival; returns how many. 0: nothing can be computed now. */
uint32_t chunk_plan_make(const struct chunk_snapshot *snapshot, struct chunk_part *parts);

#endif
