/* Who is in the next step, with how many rows, and who gives pages back for it: a pure function of
 * a snapshot, so that a later policy replaces this file and a simulator can run it.
 *
 * A member with one row left decodes: it gets that row in every step. Members with more, prompts
 * that are read (or read again) here, take turns in order: the oldest gets one chunk a step, so
 * that the others' next token never waits for more than that.
 *
 * Sequences take pages as they grow. When none is left for a runner, the newest sequence that holds
 * pages gives them back and waits: first those that wait with pages, from the newest on, then
 * runners, which are preempted, and last the runner itself. The oldest runner never is; without a
 * page it has no row until somebody outside of the batch lets go of some. So the oldest always
 * moves on, and in the end everybody is the oldest.
 *
 * Who waits joins in order of arrival while there are places, as long as the step that is expected
 * of the batch stays within the target. One that holds no pages (it was preempted) joins when all
 * of its pages are there at once, one more to grow into, and one for every runner: it would be the
 * next to be preempted. Until then those behind it that hold their pages pass it; nobody takes any.
 */
#ifndef BATON_DECODE_NODE_BATCH_ADMISSION_H
#define BATON_DECODE_NODE_BATCH_ADMISSION_H

#include <stdint.h>

#include "decode_node/step_time.h"

struct batch_member {
    uint32_t known;     /* tokens of the sequence */
    uint32_t computed;  /* of these in the pages, below known */
    uint32_t pages;     /* it holds */
    uint32_t pages_end; /* it may ever need */
    uint32_t aside; /* set aside beside its pages, for choices that begin behind its prompt: given
                     * back and had again with them */
};

struct batch_snapshot {
    /* Runners, then those who wait, both in order of arrival: [running_count + waiting_count]. */
    const struct batch_member *members;
    uint32_t running_count, waiting_count;
    uint32_t batch_max;    /* places, at least running_count */
    uint32_t chunk_tokens; /* most rows of a prompt in one step */
    uint32_t page_tokens;
    uint32_t pages_free; /* nobody's, or to be had by eviction */
    struct step_cost cost;
    double target_us; /* of a step; 0: none */
};

enum batch_fate {
    BATCH_WAITS, /* keeps what it has */
    BATCH_RUNS,  /* is in the batch; without rows where its turn or a page has yet to come */
    BATCH_DROPS, /* gives all pages back and waits; of a runner: is preempted */
};

struct batch_turn {
    enum batch_fate fate;
    uint32_t rows;
    uint32_t pages; /* to be taken before the step */
};

/* turns_out: [running_count + waiting_count]. Returns the rows of all; 0: there is no step, because
 * nobody is there or pages have yet to come back. */
uint32_t batch_admission_plan(const struct batch_snapshot *snapshot, struct batch_turn *turns_out);

/* Pages that hold `tokens` tokens, of a sequence that has more to come: one page to grow into, but
 * no more than it can come to. What a reservation sets aside and a preempted sequence waits for: a
 * sequence that joins has a page's worth of steps before it needs another. */
uint32_t batch_admission_pages(uint32_t tokens, uint32_t page_tokens, uint32_t pages_end);

#endif
