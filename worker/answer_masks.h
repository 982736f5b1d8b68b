/* How far answers have come in their grammars, and which tokens may follow.
 *
 * Nouns: `struct answer_masks`, a fixed number of matchers for the sequences of a batch, and
 * `struct answer_mask`, what one of them allows at one position. A matcher is brought up to date
 * from the tokens of the sequence: nothing is carried along with a request, so that it goes on as
 * it was after a hand-off, a preemption, or on another node. Engine thread. */
#ifndef BATON_WORKER_ANSWER_MASKS_H
#define BATON_WORKER_ANSWER_MASKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "model/text/text.h"
#include "worker/job.h"

struct answer_mask {
    enum status status;   /* that of the filling */
    const uint32_t *bits; /* as struct sampler_at has it; NULL: the answer is free */
    bool must_end;
    const char *limit; /* which one was met, as a sentence, where the status is LIMIT */
};

struct answer_masks;
/* matchers: sequences that are in a batch at once. Aborts without memory: start-up only. */
struct answer_masks *answer_masks_create(uint32_t matchers, const struct text *text);
void answer_masks_destroy(struct answer_masks *masks);
/* What may stand at `position` of the job's sequence, whose tokens before it are there. place: of
 * the request; a matcher goes with it until it is forgotten. row: below `matchers`, where the mask
 * is kept until that row is filled again. NOT_FOUND: nothing may, for an id that ends the answer is
 * missing or stands where it cannot. LIMIT: the grammar asks more than may be asked of one token.
 * CORRUPT: what was written is no beginning of what it has to be. */
struct answer_mask answer_masks_fill(struct answer_masks *masks, uint32_t row, uint32_t place,
                                     const struct job *job, uint32_t position);
/* The request leaves the batch. */
void answer_masks_forget(struct answer_masks *masks, uint32_t place);

/* Since it was created. */
struct answer_masks_totals {
    uint64_t masks, ns;
};
struct answer_masks_totals answer_masks_totals(const struct answer_masks *masks);

#endif
