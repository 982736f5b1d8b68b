/* What workers carry, and who is to carry more: the fleet as placement sees it. */
#include <string.h>

#include "base/clock.h"
#include "router/admission.h"
#include "router/fleet_internal.h"

void fleet_charge(struct fleet *fleet, worker_handle handle, uint64_t tokens)
{
    struct slot *slot = fleet_slot(fleet, handle);
    if (!slot)
        return;
    slot->worker.worked_ns = loop_now_ns(fleet->loop);
    backlog_charge(&slot->worker.backlog, tokens, slot->worker.worked_ns);
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
    backlog_release(&slot->worker.backlog, tokens, slot->worker.tokens_per_s,
                    loop_now_ns(fleet->loop));
    slot->worker.full = false;
}

static bool serves(const struct fleet_worker *worker, uint32_t model)
{
    return worker->state == FLEET_UP && worker->model == model;
}

static uint32_t ms_between(uint64_t then_ns, uint64_t now_ns)
{
    const uint64_t ms = (now_ns - then_ns) / NS_PER_MS;
    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
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
    return (struct placement_worker){
        .role = worker->role,
        .up = true,
        .full = worker->full,
        .kind = worker->kind,
        .context_tokens = worker->context_tokens,
        .page_tokens = page_tokens,
        .pages_total = worker->pages_total,
        .foreign_tokens = worker->foreign_tokens,
        .inflight_tokens = backlog_left(&worker->backlog, worker->tokens_per_s, now_ns),
        .tokens_per_s = worker->tokens_per_s,
        .loaded_tokens_per_s = worker->loaded_tokens_per_s,
        .unread_tokens = fleet_reading_left(&worker->reading, now_ns),
        .read_tokens_per_s = worker->reading.tokens_per_s,
        .loaded_read_tokens_per_s = worker->reading.loaded_tokens_per_s,
        .pace = worker->reading.pace,
        .loaded_pace = worker->reading.loaded_pace,
        .unread_context = reading_depth_mean(&worker->reading.depth),
        .idle = worker->backlog.charged == 0 && worker->foreign_tokens == 0,
        .rested_ms = ms_between(worker->worked_ns, now_ns),
        .pages_used = used_pages < UINT32_MAX ? (uint32_t)used_pages : UINT32_MAX,
        .running = worker->running + worker->sent_requests,
        .step_ms = worker->step_ms,
        .age_ms = ms_between(worker->since_ns, now_ns),
    };
}

/* pages_held: [PREFIX_HOLDERS_MAX], of these pages. */
static uint32_t held_pages(const struct slot *slot, const struct fleet_pages *pages,
                           const uint32_t *pages_held)
{
    return slot->holder != PREFIX_NO_HOLDER &&
                   slot->worker.identity.layout.page_tokens == pages->page_tokens
               ? pages_held[slot->holder]
               : 0;
}

static struct placement_view view_of(const struct slot *slot, const struct fleet_request *request,
                                     const uint32_t *pages_held)
{
    const worker_handle handle = slot->worker.handle;
    const uint32_t held = request->reads_all ? 0 : held_pages(slot, &request->pages, pages_held);
    struct placement_view view = {.cached_tokens = held * request->pages.page_tokens,
                                  .stays = handle == request->stay_prefill ||
                                           handle == request->stay_decode};
    view.barred = (request->abilities & ~slot->worker.abilities) != 0;
    if (request->grammar_kind > 0 && (slot->worker.grammars >> request->grammar_kind & 1) == 0)
        view.barred = true;
    for (uint32_t i = 0; i < request->barred_count; i++)
        view.barred = view.barred || request->barred[i] == handle;
    return view;
}

/* Those of a model that are up. slots_out, workers_out: [PLACEMENT_WORKERS_MAX]; returns how many.
 */
static uint32_t snapshot(const struct fleet *fleet, uint32_t model, const struct slot **slots_out,
                         struct placement_worker *workers_out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        const struct slot *slot = &fleet->slots[i];
        if (!serves(&slot->worker, model))
            continue;
        slots_out[count] = slot;
        workers_out[count++] = snapshot_of(&slot->worker, loop_now_ns(fleet->loop));
    }
    return count;
}

/* pages_held_out: [PREFIX_HOLDERS_MAX]. */
static void match(const struct fleet *fleet, const struct fleet_pages *pages,
                  uint32_t *pages_held_out)
{
    if (fleet->prefixes != NULL)
        prefix_index_match(fleet->prefixes, pages->hashes, pages->count, pages_held_out);
    else
        memset(pages_held_out, 0, PREFIX_HOLDERS_MAX * sizeof *pages_held_out);
}

struct placement fleet_place(struct fleet *fleet, const struct fleet_request *request,
                             struct fleet_choice *choice_out)
{
    struct placement_worker workers[PLACEMENT_WORKERS_MAX];
    struct placement_view views[PLACEMENT_WORKERS_MAX];
    const struct slot *slots[PLACEMENT_WORKERS_MAX];
    uint32_t pages_held[PREFIX_HOLDERS_MAX];
    match(fleet, &request->pages, pages_held);
    const uint32_t count = snapshot(fleet, request->model, slots, workers);
    for (uint32_t i = 0; i < count; i++)
        views[i] = view_of(slots[i], request, pages_held);
    const struct placement_snapshot shot = {
        .workers = workers, .count = count, .turn = fleet->turns[request->model]++};
    const struct placement_request wanted = {.prompt_tokens = request->prompt_tokens,
                                             .max_tokens = request->max_tokens,
                                             .local_tokens = request->local_tokens,
                                             .views = views};
    const struct placement placement = placement_choose(&fleet->rules.policy, &shot, &wanted);
    *choice_out = (struct fleet_choice){0};
    if (placement.prefill >= 0) {
        choice_out->prefill = slots[placement.prefill]->worker.handle;
        choice_out->prefill_pages =
            held_pages(slots[placement.prefill], &request->pages, pages_held);
    }
    if (placement.decode >= 0) {
        choice_out->decode = slots[placement.decode]->worker.handle;
        choice_out->decode_pages = held_pages(slots[placement.decode], &request->pages, pages_held);
    }
    return placement;
}

uint32_t fleet_cached_tokens(const struct fleet *fleet, uint32_t model, enum worker_role role,
                             const struct fleet_pages *pages)
{
    uint32_t pages_held[PREFIX_HOLDERS_MAX];
    uint32_t most = 0;
    match(fleet, pages, pages_held);
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        const struct slot *slot = &fleet->slots[i];
        if (!serves(&slot->worker, model) || slot->worker.role != role)
            continue;
        const uint32_t held = held_pages(slot, pages, pages_held);
        most = held > most ? held : most;
    }
    return most * pages->page_tokens;
}

/* Its number in the index when it has pages of this size there, else NO_HOLDER. */
static uint32_t holder_of(const struct fleet *fleet, worker_handle handle,
                          const struct fleet_pages *pages)
{
    const struct slot *slot = fleet_slot(fleet, handle);
    return slot && slot->worker.identity.layout.page_tokens == pages->page_tokens
               ? slot->holder
               : PREFIX_NO_HOLDER;
}

void fleet_expect(struct fleet *fleet, worker_handle handle, const struct fleet_pages *pages,
                  uint32_t from)
{
    const uint32_t holder = holder_of(fleet, handle, pages);
    for (uint32_t i = from; holder != PREFIX_NO_HOLDER && i < pages->count; i++)
        prefix_index_expect(fleet->prefixes, holder, pages->hashes[i]);
}

void fleet_expect_not(struct fleet *fleet, worker_handle handle, const struct fleet_pages *pages,
                      uint32_t from)
{
    const uint32_t holder = holder_of(fleet, handle, pages);
    for (uint32_t i = from; holder != PREFIX_NO_HOLDER && i < pages->count; i++)
        prefix_index_expect_not(fleet->prefixes, holder, pages->hashes[i]);
}

double fleet_drain_ms(const struct fleet *fleet, uint32_t model, uint64_t prompt_tokens,
                      uint64_t answer_tokens)
{
    struct placement_worker workers[PLACEMENT_WORKERS_MAX];
    const struct slot *slots[PLACEMENT_WORKERS_MAX];
    const struct placement_snapshot shot = {.workers = workers,
                                            .count = snapshot(fleet, model, slots, workers)};
    return admission_drain_ms(&shot, prompt_tokens, answer_tokens);
}

double fleet_prefill_tokens_per_s(const struct fleet *fleet, uint32_t model)
{
    double speed = 0;
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        const struct fleet_worker *worker = &fleet->slots[i].worker;
        if (serves(worker, model) && worker->role == WORKER_PREFILL)
            speed += worker->tokens_per_s;
    }
    return speed;
}

double fleet_decode_read_tokens_per_s(const struct fleet *fleet, uint32_t model)
{
    double speed = 0;
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        const struct fleet_worker *worker = &fleet->slots[i].worker;
        if (serves(worker, model) && worker->role == WORKER_DECODE)
            speed += worker->reading.tokens_per_s;
    }
    return speed;
}

uint32_t fleet_page_tokens(const struct fleet *fleet, uint32_t model)
{
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        const struct fleet_worker *worker = &fleet->slots[i].worker;
        if (serves(worker, model))
            return worker->identity.layout.page_tokens;
    }
    return 0;
}

/* As far as its pages reach. */
static uint32_t longest_sequence(const struct fleet_worker *worker)
{
    const uint64_t held = (uint64_t)worker->pages_total * worker->identity.layout.page_tokens;
    return held > 0 && held < worker->context_tokens ? (uint32_t)held : worker->context_tokens;
}

uint32_t fleet_context_tokens(const struct fleet *fleet, uint32_t model)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        const struct fleet_worker *worker = &fleet->slots[i].worker;
        if (serves(worker, model) && worker->role == WORKER_DECODE &&
            longest_sequence(worker) > longest)
            longest = longest_sequence(worker);
    }
    return longest > 0 ? longest : fleet->rules.models[model].text->context_tokens;
}

uint32_t fleet_serving(const struct fleet *fleet, uint32_t model, enum worker_role role)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        const struct fleet_worker *worker = &fleet->slots[i].worker;
        count += serves(worker, model) && worker->role == role;
    }
    return count;
}

const char *fleet_model_name(const struct fleet *fleet, uint32_t model)
{
    return fleet->rules.models[model].name;
}
