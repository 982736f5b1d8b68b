#include "decode_node/batch_admission.h"

#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "worker/job.h"

struct plan {
    const struct batch_snapshot *snapshot;
    struct batch_turn *turns;
    uint32_t pages_free;
    uint32_t running; /* who will be in the batch */
    uint64_t context; /* their tokens */
    uint32_t rows;
    bool chunk_taken, dropped;
};

uint32_t batch_admission_pages(uint32_t tokens, uint32_t page_tokens, uint32_t pages_end)
{
    const uint32_t pages = job_pages(tokens, page_tokens) + 1;
    return pages < pages_end ? pages : pages_end;
}

static uint32_t rows_of(const struct plan *plan, const struct batch_member *member)
{
    const uint32_t left = member->known - member->computed;
    if (left == 1)
        return 1;
    if (plan->chunk_taken)
        return 0;
    return left < plan->snapshot->chunk_tokens ? left : plan->snapshot->chunk_tokens;
}

static void run(struct plan *plan, uint32_t index, uint32_t rows, uint32_t pages)
{
    const struct batch_member *member = &plan->snapshot->members[index];
    plan->turns[index] = (struct batch_turn){.fate = BATCH_RUNS, .rows = rows, .pages = pages};
    plan->pages_free -= pages + (member->pages == 0 ? member->aside : 0);
    plan->running++;
    plan->context += member->known;
    plan->rows += rows;
    plan->chunk_taken |= rows > 0 && member->known - member->computed > 1;
}

static void drop(struct plan *plan, uint32_t index)
{
    plan->turns[index] = (struct batch_turn){.fate = BATCH_DROPS};
    plan->pages_free += plan->snapshot->members[index].pages + plan->snapshot->members[index].aside;
    plan->dropped = true;
}

/* Frees pages of members behind `index`, the newest first, until `pages` are free. */
static bool make_room(struct plan *plan, uint32_t index, uint32_t pages)
{
    const struct batch_snapshot *s = plan->snapshot;
    uint32_t victim = s->running_count + s->waiting_count;
    while (plan->pages_free < pages && victim > index + 1) {
        victim--;
        if (s->members[victim].pages > 0 && plan->turns[victim].fate != BATCH_DROPS)
            drop(plan, victim);
    }
    return plan->pages_free >= pages;
}

static void plan_runners(struct plan *plan)
{
    const struct batch_snapshot *s = plan->snapshot;
    for (uint32_t i = 0; i < s->running_count; i++) {
        const struct batch_member *member = &s->members[i];
        DCHECK(member->known > member->computed);
        if (plan->turns[i].fate == BATCH_DROPS)
            continue;
        const uint32_t rows = rows_of(plan, member);
        const uint32_t wanted = job_pages(member->computed + rows, s->page_tokens);
        const uint32_t pages = wanted > member->pages ? wanted - member->pages : 0;
        if (make_room(plan, i, pages))
            run(plan, i, rows, pages);
        else if (i == 0)
            run(plan, i, 0, 0);
        else
            drop(plan, i);
    }
}

static bool within_target(const struct plan *plan, const struct batch_member *member)
{
    const struct batch_snapshot *s = plan->snapshot;
    return s->target_us <= 0 || plan->running == 0 ||
           step_cost_us(&s->cost, plan->context + member->known, plan->running + 1) <= s->target_us;
}

/* Pages that the runners may take next: one each that is not at its end. */
static uint32_t pages_to_grow(const struct plan *plan)
{
    const struct batch_snapshot *s = plan->snapshot;
    uint32_t pages = 0;
    for (uint32_t i = 0; i < s->running_count + s->waiting_count; i++)
        pages += plan->turns[i].fate == BATCH_RUNS &&
                 s->members[i].pages + plan->turns[i].pages < s->members[i].pages_end;
    return pages;
}

static void plan_joins(struct plan *plan)
{
    const struct batch_snapshot *s = plan->snapshot;
    /* Pages that were just given up are for those who lacked them. */
    bool blocked = plan->dropped;
    for (uint32_t i = s->running_count; i < s->running_count + s->waiting_count; i++) {
        const struct batch_member *member = &s->members[i];
        if (plan->turns[i].fate == BATCH_DROPS)
            continue;
        if (plan->running == s->batch_max || !within_target(plan, member))
            return;
        const uint32_t rows = rows_of(plan, member);
        if (member->pages > 0) {
            const uint32_t wanted = job_pages(member->computed + rows, s->page_tokens);
            const uint32_t pages = wanted > member->pages ? wanted - member->pages : 0;
            if (pages <= plan->pages_free)
                run(plan, i, rows, pages);
            continue;
        }
        const uint32_t pages =
            batch_admission_pages(member->known, s->page_tokens, member->pages_end);
        blocked = blocked || pages + member->aside + pages_to_grow(plan) > plan->pages_free;
        if (!blocked)
            run(plan, i, rows, pages);
    }
}

uint32_t batch_admission_plan(const struct batch_snapshot *snapshot, struct batch_turn *turns_out)
{
    CHECK(snapshot->running_count <= snapshot->batch_max);
    const uint32_t count = snapshot->running_count + snapshot->waiting_count;
    struct plan plan = {
        .snapshot = snapshot, .turns = turns_out, .pages_free = snapshot->pages_free};
    memset(turns_out, 0, count * sizeof *turns_out);
    plan_runners(&plan);
    plan_joins(&plan);
    return plan.rows;
}
