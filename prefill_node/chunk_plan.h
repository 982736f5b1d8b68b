/* Which prompts go into the next chunk, and how much of each: a pure function of a snapshot, so
 * that another policy replaces this file and a simulator can run it.
 *
 * A prompt has a time at which its first token is due: arrival, the TTFT target, and a stretch for
 * the tokens it has left to compute at its start. So a short prompt, or one whose beginning is
 * known, passes a long one that came a little earlier; and nobody starves, because a due time stays
 * where it is: whatever arrives after it comes behind.
 *
 * A chunk is filled in the order of due times, with two rules beside it. Prompts that do not end in
 * this chunk share half of it at first and get the rest only when nobody else wants it: a long
 * prompt never blocks short ones, and they never stop a long one that is due. A prompt takes all of
 * its pages before its first row, so whatever has started can be finished; one whose pages are not
 * there is passed by others until it is due, and from then on nobody behind it starts.
 *
 * The part of a prompt ends at a page edge unless it is its last, so that every page is computed,
 * and sent, in one piece. */
#ifndef BATON_PREFILL_NODE_CHUNK_PLAN_H
#define BATON_PREFILL_NODE_CHUNK_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum { CHUNK_NOBODY = UINT32_MAX };

struct chunk_candidate {
    uint32_t position;    /* tokens computed so far, or known */
    uint32_t token_count; /* tokens in all, above position */
    uint32_t page_count;  /* pages that starting it takes; 0 when it has started */
    uint32_t waits_for;   /* the candidate that computes its next page, or CHUNK_NOBODY; only one
                             that has started is waited for, and it waits for nobody */
    uint64_t due_us;
};

struct chunk_snapshot {
    const struct chunk_candidate *candidates; /* [candidate_count] in order of arrival */
    uint32_t candidate_count;
    uint32_t chunk_tokens; /* rows at most, at least page_tokens */
    uint32_t page_tokens;
    uint32_t sequences_max; /* parts at most, and the size of `parts` */
    uint32_t pages_free;
    uint64_t now_us;
    uint32_t *scratch; /* [candidate_count], written */
};

struct chunk_part {
    uint32_t candidate; /* index in the snapshot */
    uint32_t row_count;
    bool starts; /* takes page_count pages before it is computed */
};

/* When a prompt that arrived then, with so many tokens to compute, is due. tokens_per_s: measured;
 * what is below 1 counts as 1. */
uint64_t chunk_plan_due_us(uint64_t arrival_us, uint32_t target_ms, uint32_t tokens_left,
                           double tokens_per_s);
/* Whoever is waited for is due when the first of those who wait is. */
void chunk_plan_inherit(struct chunk_candidate *candidates, uint32_t count);
/* Fills parts, the most urgent first; returns how many. 0: nothing can be computed now.
 * lacking_out: the first that was passed for want of pages, or CHUNK_NOBODY. */
uint32_t chunk_plan_make(const struct chunk_snapshot *snapshot, struct chunk_part *parts,
                         uint32_t *lacking_out);

#endif
