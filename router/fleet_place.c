/* What workers carry, and who is to carry more: the fleet as placement sees it. */
#include "base/check.h"
#include "base/clock.h"
#include "router/fleet_internal.h"

void fleet_charge(struct fleet *fleet, worker_handle handle, uint64_t tokens)
{
    struct slot *slot = fleet_slot(fleet, handle);
    if (!slot)
        return;
    slot->worker.inflight_tokens += tokens;
    slot->worker.sent_tokens += tokens;
    slot->worker.sent_requests++;
}

void fleet_mark_full(struct fleet *fleet, worker_handle handle)
{
    struct slot *slot = fleet_slot(fleet, handle);
    if (slot)
        slot->worker.full = true;
}

void fleet_release(struct fleet *fleet, worker_handle handle, uint64_t tokens)
{
    struct slot *slot = fleet_slot(fleet, handle);
    if (!slot)
        return;
    CHECK(slot->worker.inflight_tokens >= tokens);
    slot->worker.inflight_tokens -= tokens;
    slot->worker.full = false;
}

/* As placement sees it; what was sent since the last heartbeat stands beside what that said. */
static struct placement_worker snapshot_of(const struct fleet_worker *worker, uint64_t now_ns)
{
    const uint32_t page_tokens = worker->identity.layout.page_tokens;
    const uint64_t sent_pages =
        page_tokens > 0 ? (worker->sent_tokens + page_tokens - 1) / page_tokens : 0;
    const uint64_t used_pages = worker->pages_total > worker->pages_free
                                    ? worker->pages_total - worker->pages_free + sent_pages
                                    : sent_pages;
    const uint64_t age_ms = (now_ns - worker->since_ns) / NS_PER_MS;
    return (struct placement_worker){
        .role = worker->role,
        .up = true,
        .full = worker->full,
        .kind = worker->kind,
        .context_tokens = worker->context_tokens,
        .page_tokens = page_tokens,
        .pages_total = worker->pages_total,
        .foreign_tokens = worker->foreign_tokens,
        .inflight_tokens = worker->inflight_tokens,
        .tokens_per_s = worker->tokens_per_s,
        .pages_used = used_pages < UINT32_MAX ? (uint32_t)used_pages : UINT32_MAX,
        .running = worker->running + worker->sent_requests,
        .step_ms = worker->step_ms,
        .age_ms = age_ms < UINT32_MAX ? (uint32_t)age_ms : UINT32_MAX,
    };
}

static struct placement_view view_of(const struct fleet_worker *worker,
                                     const struct fleet_request *request)
{
    struct placement_view view = {.stays = worker->handle == request->stay_prefill ||
                                           worker->handle == request->stay_decode};
    for (uint32_t i = 0; i < request->barred_count; i++)
        view.barred = view.barred || request->barred[i] == worker->handle;
    return view;
}

struct placement fleet_place(struct fleet *fleet, const struct fleet_request *request,
                             worker_handle *prefill_out, worker_handle *decode_out)
{
    struct placement_worker workers[PLACEMENT_WORKERS_MAX];
    struct placement_view views[PLACEMENT_WORKERS_MAX];
    worker_handle handles[PLACEMENT_WORKERS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        const struct fleet_worker *worker = &fleet->slots[i].worker;
        if (worker->state != FLEET_UP)
            continue;
        handles[count] = worker->handle;
        views[count] = view_of(worker, request);
        workers[count++] = snapshot_of(worker, loop_now_ns(fleet->loop));
    }
    const struct placement_snapshot snapshot = {
        .workers = workers, .count = count, .turn = fleet->turn++};
    const struct placement_request wanted = {.prompt_tokens = request->prompt_tokens,
                                             .max_tokens = request->max_tokens,
                                             .local_tokens = request->local_tokens,
                                             .views = views};
    const struct placement placement = placement_choose(&fleet->rules.policy, &snapshot, &wanted);
    *prefill_out = placement.prefill >= 0 ? handles[placement.prefill] : 0;
    *decode_out = placement.decode >= 0 ? handles[placement.decode] : 0;
    return placement;
}
