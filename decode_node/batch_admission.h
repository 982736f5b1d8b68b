/* Who joins the batch, and how many rows each member gets in the next step: a pure function of a
 * snapshot, so that a later policy replaces this file and a simulator can run it.
 *
 * The policy of today: waiting sequences join in order of arrival while there are places (their
 * pages were set aside before they came here). A member with one row left decodes: it gets that row
 * in every step. Members with more, prompts that this node reads itself, take turns in order: the
 * oldest gets one chunk a step, so that the others' next token never waits for more than that. */
#ifndef BATON_DECODE_NODE_BATCH_ADMISSION_H
#define BATON_DECODE_NODE_BATCH_ADMISSION_H

#include <stdint.h>

struct batch_snapshot {
    /* Rows not yet computed of each member, at least 1, in the order they joined. */
    const uint32_t *running_rows; /* [running_count] */
    uint32_t running_count;
    const uint32_t *waiting_rows; /* [waiting_count] the same of who waits, in order of arrival */
    uint32_t waiting_count;
    uint32_t batch_max;    /* places, at least running_count */
    uint32_t chunk_tokens; /* most rows of a prompt in one step */
};

/* Returns how many of the waiting join. rows_out: [batch_max], rows in this step of the members and
 * then of those who join; 0 for a prompt whose turn has not come. */
uint32_t batch_admission_plan(const struct batch_snapshot *snapshot, uint32_t *rows_out);

#endif
