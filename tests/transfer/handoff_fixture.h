/* Both ends of the hand-off over a small region of pages, with a page pool that keeps accounts. */
#ifndef BATON_TESTS_HANDOFF_FIXTURE_H
#define BATON_TESTS_HANDOFF_FIXTURE_H

#include "base/random.h"
#include "tests/transfer/mover_fixture.h"
#include "transfer/handoff.h"

enum { FIX_SLOTS = 96, FIX_JOBS_MAX = 64, FIX_PAGES_MAX = 40 };

/* Deadlines of a tenth of the product's. */
extern const struct handoff_limits fix_limits;

struct decode_side {
    struct handoff_receiver *receiver;
    struct handoff_region region;
    bool used[FIX_SLOTS];
    uint32_t generations[FIX_SLOTS];
    uint32_t free_count, reserved_count;
    uint32_t landed, failed;
};

struct prefill_side {
    struct handoff_sender *sender;
    struct handoff_region region;
    uint32_t ended, ended_ok;
};

/* One request through both ends. */
struct fix_job {
    struct pair_fix *fix;
    uint32_t index, page_count, first_page;
    uint32_t held; /* of the first pages: at decode already when the offer comes */
    uint32_t source_slots[FIX_PAGES_MAX];
    uint64_t handoff, ticket;
    struct handoff_out *out;
    bool landed, failed, ended;
    enum status failed_status, ended_status;
    char failed_text[600], ended_text[600];
    uint32_t slots[FIX_PAGES_MAX];
    int32_t first_token;
    struct handoff_stats stats;
};

struct pair_fix {
    const struct mover_ops *ops;
    struct loop *loop;
    struct handoff_limits limits;
    uint32_t connect_ms;
    struct handoff_self decode_self, prefill_self;
    struct decode_side decode;
    struct prefill_side prefill;
    struct random random;
    struct fix_job jobs[FIX_JOBS_MAX];
    uint32_t job_count, source_next;
    char address[128];
    bool decode_here, prefill_here;
};

/* Selves that fit each other; the region has this shape. Both ends may then be changed before they
 * are started. */
void fix_init(struct pair_fix *fix, const struct mover_ops *ops, uint32_t layers,
              size_t strip_bytes);
void fix_start_decode(struct pair_fix *fix);
void fix_start_prefill(struct pair_fix *fix);
void fix_start(struct pair_fix *fix); /* both */
/* Checks that every page is back, then destroys. */
void fix_end(struct pair_fix *fix);

/* Reserves at decode; picks scattered source slots and fills them. */
struct fix_job *fix_reserve(struct pair_fix *fix, uint32_t page_count, uint32_t lease_ms);
/* Opens at prefill. */
void fix_open(struct fix_job *job);
struct handoff_target fix_target(const struct fix_job *job);
void fix_post(struct fix_job *job, uint32_t layer, uint32_t first, uint32_t count);
void fix_post_all(struct fix_job *job);
void fix_first(struct fix_job *job);
/* Reserves, opens, posts everything. */
struct fix_job *fix_run(struct pair_fix *fix, uint32_t page_count);
/* The pages at decode are those of the job, byte for byte. */
void fix_check(const struct fix_job *job);
void fix_fill_source(struct pair_fix *fix, uint32_t job, uint32_t page, uint32_t slot);
/* Gives the slots of a landed job back to the pool. */
void fix_release(struct fix_job *job);
bool fix_pages_are_back(const struct pair_fix *fix);

#endif
