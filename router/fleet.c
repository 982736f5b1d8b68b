#include "router/fleet_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"

/* Heartbeats that must be missing before silence counts as loss. */
enum { HEARTBEATS_IN_SILENCE = 3 };

const char *fleet_state_name(enum fleet_state state)
{
    static const char *const names[FLEET_STATE_COUNT] = {
        [FLEET_FREE] = "free",         [FLEET_GREETING] = "greeting", [FLEET_UP] = "up",
        [FLEET_DRAINING] = "draining", [FLEET_LOST] = "lost",         [FLEET_LEFT] = "left",
        [FLEET_REFUSED] = "refused",
    };
    return (unsigned)state < FLEET_STATE_COUNT ? names[state] : "unknown";
}

const char *fleet_role_name(enum worker_role role)
{
    return role == WORKER_PREFILL ? "prefill" : role == WORKER_DECODE ? "decode" : "unknown";
}

static bool is_live(const struct slot *slot)
{
    return slot->worker.state == FLEET_UP || slot->worker.state == FLEET_DRAINING;
}

/* A handle is the slot in its low 16 bits and the life's number above. */
struct slot *fleet_slot(const struct fleet *fleet, worker_handle handle)
{
    const uint64_t index = handle & 0xffff;
    if (handle == 0 || index >= PLACEMENT_WORKERS_MAX)
        return NULL;
    const struct slot *slot = &fleet->slots[index];
    return slot->worker.handle == handle && is_live(slot) ? (struct slot *)slot : NULL;
}

static void set_state(struct slot *slot, enum fleet_state state, const char *text)
{
    slot->worker.state = state;
    slot->worker.since_ns = loop_now_ns(slot->fleet->loop);
    snprintf(slot->worker.text, sizeof slot->worker.text, "%s", text);
}

/* The link is gone or about to be closed by us. */
static void lose(struct slot *slot, const char *text)
{
    slot->link = NULL;
    fleet_news_forget(slot);
    if (!is_live(slot)) {
        set_state(slot, FLEET_FREE, "");
        return;
    }
    const bool left = slot->worker.state == FLEET_DRAINING && slot->worker.backlog.charged == 0;
    const char *role = fleet_role_name(slot->worker.role);
    set_state(slot, left ? FLEET_LEFT : FLEET_LOST, text);
    backlog_init(&slot->worker.backlog, slot->fleet->rules.heartbeat_ms, slot->worker.since_ns);
    if (left)
        LOG_INFO("%s node %s has left", role, slot->worker.node);
    else
        LOG_WARN("%s node %s is lost: %s", role, slot->worker.node, text);
    slot->fleet->events->on_down(slot->fleet->arg, &slot->worker);
}

static void close_slot(struct slot *slot, enum status status, const char *text)
{
    link_close(slot->link, status, text);
    lose(slot, text);
}

static bool is_same_boot(const struct slot *slot, const struct msg_hello *hello)
{
    return memcmp(slot->worker.boot_id, hello->boot_id.data, 16) == 0;
}

static bool is_same_node(const struct slot *slot, const struct msg_hello *hello)
{
    return slot->worker.role == (enum worker_role)hello->role &&
           strlen(slot->worker.node) == hello->node.bytes &&
           memcmp(slot->worker.node, hello->node.data, hello->node.bytes) == 0;
}

/* Another life of the same node, or the same life on another link. */
static bool is_former_life(const struct slot *slot, const struct msg_hello *hello)
{
    return is_same_boot(slot, hello) || is_same_node(slot, hello);
}

static void replace_former_lives(struct fleet *fleet, const struct slot *newcomer,
                                 const struct msg_hello *hello)
{
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        struct slot *slot = &fleet->slots[i];
        if (slot == newcomer || slot->worker.state == FLEET_FREE ||
            slot->worker.state == FLEET_GREETING || !is_former_life(slot, hello))
            continue;
        if (is_live(slot))
            close_slot(slot, STATUS_CLOSED, "the node has connected again");
        set_state(slot, FLEET_FREE, "");
    }
}

/* Two processes with one name would push each other out for ever. The later one has to wait until
 * the other's link closes or falls silent, which is soon when that one has died. */
static enum status check_name(const struct slot *slot, const struct msg_hello *hello,
                              struct error *error)
{
    if (!is_same_node(slot, hello) || is_same_boot(slot, hello))
        return STATUS_OK;
    return error_set(error, STATUS_BUSY,
                     "the name %s is that of a worker at %s which is alive; give each its own "
                     "--name",
                     slot->worker.node, slot->worker.address);
}

/* The first worker of a model decides which weights are served under its name, until all that have
 * them are gone. */
static enum status check_hello(const struct fleet *fleet, const struct slot *newcomer,
                               const struct msg_hello *hello, uint32_t *model_out,
                               struct error *error)
{
    TRY(fleet_hello_check(&fleet->rules, hello, model_out, error));
    TRY(link_check_boot(newcomer->link, hello->boot_id.data, error));
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        const struct slot *slot = &fleet->slots[i];
        if (!is_live(slot))
            continue;
        TRY(check_name(slot, hello, error));
        if (!is_same_boot(slot, hello) && slot->worker.model == *model_out)
            TRY(fleet_weights_check(hello, &slot->worker, error));
    }
    return STATUS_OK;
}

/* Says no, and keeps the reason for /workers as long as the slot is not needed. */
static void refuse(struct slot *slot, const struct msg_hello *hello, const struct error *error)
{
    struct fleet *fleet = slot->fleet;
    LOG_WARN("a worker at %s was refused: %s", link_peer(slot->link), error->text);
    struct fleet_worker worker = {.role = (enum worker_role)hello->role};
    snprintf(worker.address, sizeof worker.address, "%s", link_peer(slot->link));
    close_slot(slot, error->status, error->text);
    if (error->status == STATUS_INVALID)
        return; /* what it says about itself is not worth showing */
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        if (fleet->slots[i].worker.state == FLEET_REFUSED &&
            is_former_life(&fleet->slots[i], hello))
            set_state(&fleet->slots[i], FLEET_FREE, "");
    }
    wire_str_copy(hello->node, worker.node, sizeof worker.node);
    wire_str_copy(hello->version, worker.version, sizeof worker.version);
    memcpy(worker.boot_id, hello->boot_id.data, sizeof worker.boot_id);
    slot->worker = worker;
    set_state(slot, FLEET_REFUSED, error->text);
}

/* Workers that can be paired share a number. Says what keeps the others apart. */
static uint32_t kind_of(struct fleet *fleet, const struct slot *newcomer)
{
    struct error error;
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        const struct slot *slot = &fleet->slots[i];
        if (slot != newcomer && is_live(slot) &&
            fleet_identity_compare(&newcomer->worker.identity, &slot->worker.identity, NULL) ==
                STATUS_OK)
            return slot->worker.kind;
    }
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        const struct slot *slot = &fleet->slots[i];
        if (slot == newcomer || !is_live(slot) || slot->worker.role == newcomer->worker.role ||
            slot->worker.model != newcomer->worker.model)
            continue;
        if (fleet_identity_compare(&newcomer->worker.identity, &slot->worker.identity, &error) !=
            STATUS_OK)
            LOG_WARN("%s and %s are not paired: %s", newcomer->worker.node, slot->worker.node,
                     error.text);
    }
    return fleet->next_kind++;
}

static void on_hello(struct slot *slot, const struct msg_hello *hello)
{
    struct fleet *fleet = slot->fleet;
    struct error error;
    uint32_t model;
    if (slot->worker.state != FLEET_GREETING) {
        close_slot(slot, STATUS_INVALID, "a second HELLO came on one link");
        return;
    }
    if (check_hello(fleet, slot, hello, &model, &error) != STATUS_OK) {
        refuse(slot, hello, &error);
        return;
    }
    replace_former_lives(fleet, slot, hello);
    struct fleet_worker *worker = &slot->worker;
    *worker = (struct fleet_worker){
        .handle = ++slot->generation << 16 | (uint64_t)(slot - fleet->slots),
        .role = (enum worker_role)hello->role,
        .model = model,
        .context_tokens = hello->context_tokens,
        .vocab_count = hello->vocab_count,
        .pages_total = hello->pages_total,
        .pages_free = hello->pages_total,
        .max_batch = hello->max_batch,
        .grammars = hello->grammars,
        .abilities = hello->abilities,
        .tokens_per_s = hello->tokens_per_s,
        .loaded_tokens_per_s = hello->tokens_per_s,
    };
    wire_str_copy(hello->node, worker->node, sizeof worker->node);
    wire_str_copy(hello->version, worker->version, sizeof worker->version);
    snprintf(worker->address, sizeof worker->address, "%s", link_peer(slot->link));
    memcpy(worker->boot_id, hello->boot_id.data, 16);
    fleet_identity_copy(&hello->identity, &worker->identity);
    worker->kind = kind_of(fleet, slot);
    worker->heard_ns = worker->worked_ns = loop_now_ns(fleet->loop);
    backlog_init(&worker->backlog, fleet->rules.heartbeat_ms, worker->heard_ns);
    fleet_reading_begin(&worker->reading, hello, fleet->rules.heartbeat_ms, worker->heard_ns);
    set_state(slot, FLEET_UP, "");
    const struct msg_welcome welcome = {
        .boot_id = {fleet->rules.boot_id, sizeof fleet->rules.boot_id},
        .heartbeat_ms = fleet->rules.heartbeat_ms,
        .version = wire_str(BATON_VERSION),
    };
    if (link_send(slot->link, MESSAGE_ID_WELCOME, &welcome) != STATUS_OK) {
        close_slot(slot, STATUS_CLOSED, "WELCOME could not be sent");
        return;
    }
    LOG_INFO("%s node %s is up (%s, model %s, context %u, %u pages)", fleet_role_name(worker->role),
             worker->node, worker->address, fleet->rules.models[model].name, worker->context_tokens,
             worker->pages_total);
    fleet->events->on_up(fleet->arg, worker);
}

/* What we sent is in our own books; the rest was sent by other routers. A decode node tells of all
 * the room its answers have, which few of them will use. */
static void take_queue(struct fleet_worker *worker, const struct msg_heartbeat *heartbeat)
{
    uint64_t queued = heartbeat->queued_tokens;
    const uint64_t answers =
        ((uint64_t)heartbeat->running + heartbeat->waiting) * PLACEMENT_ANSWER_TOKENS;
    const uint64_t most = answers + heartbeat->decode.unread_tokens;
    if (worker->role == WORKER_DECODE && queued > most)
        queued = most;
    worker->foreign_tokens =
        queued > worker->backlog.charged ? queued - worker->backlog.charged : 0;
    backlog_hear(&worker->backlog, heartbeat->tokens_done, worker->foreign_tokens,
                 worker->heard_ns);
}

static void on_heartbeat(struct slot *slot, const struct msg_heartbeat *heartbeat)
{
    struct fleet_worker *worker = &slot->worker;
    worker->heard_ns = loop_now_ns(slot->fleet->loop);
    worker->running = heartbeat->running;
    worker->full = false;
    worker->waiting = heartbeat->waiting;
    worker->pages_free = heartbeat->pages_free;
    worker->pages_handoff = heartbeat->pages_handoff;
    if (heartbeat->tokens_done != worker->tokens_done)
        worker->worked_ns = worker->heard_ns;
    worker->tokens_done = heartbeat->tokens_done;
    if (heartbeat->links_unproven > worker->links_unproven)
        slot->fleet->unproven += heartbeat->links_unproven - worker->links_unproven;
    worker->links_unproven = heartbeat->links_unproven;
    fleet_handoff_take(&worker->handoff, heartbeat);
    worker->sent_requests = 0;
    worker->sent_tokens = 0;
    fleet_decode_take(&worker->decode, &heartbeat->decode);
    if (worker->decode.news[FLEET_DECODE_STEPS] > 0)
        worker->step_ms = (double)worker->decode.news[FLEET_DECODE_STEP_US] / 1e3 /
                          (double)worker->decode.news[FLEET_DECODE_STEPS];
    fleet_prefix_take(&worker->prefix, &heartbeat->prefix);
    if (heartbeat->tokens_per_s > 0)
        worker->tokens_per_s = heartbeat->tokens_per_s;
    take_queue(worker, heartbeat);
    fleet_reading_hear(&worker->reading, heartbeat, worker->heard_ns);
    struct error error;
    bool anew;
    if (fleet_news_take(slot, &heartbeat->prefix_news, &anew, &error) != STATUS_OK) {
        close_slot(slot, error.status, error.text);
        return;
    }
    const struct msg_heartbeat_ack ack = {.sequence = heartbeat->sequence, .prefix_anew = anew};
    const enum status sent = link_send(slot->link, MESSAGE_ID_HEARTBEAT_ACK, &ack);
    if (sent != STATUS_OK) {
        close_slot(slot, sent,
                   sent == STATUS_LIMIT ? "the worker does not take what it is sent"
                                        : "the worker has closed its link");
        return;
    }
    slot->fleet->events->on_heartbeat(slot->fleet->arg, worker);
}

static void on_goaway(struct slot *slot, const struct msg_goaway *goaway)
{
    if (slot->worker.state != FLEET_UP)
        return;
    char text[FLEET_TEXT_BYTES];
    wire_str_copy(goaway->text, text, sizeof text);
    set_state(slot, FLEET_DRAINING, text);
    LOG_INFO("%s node %s takes no more requests: %s", fleet_role_name(slot->worker.role),
             slot->worker.node, text);
    slot->fleet->events->on_down(slot->fleet->arg, &slot->worker);
}

static void on_message(void *arg, enum message_id id, const void *message)
{
    struct slot *slot = arg;
    if (id == MESSAGE_ID_HELLO) {
        on_hello(slot, message);
        return;
    }
    if (!is_live(slot)) {
        close_slot(slot, STATUS_INVALID, "the first message must be HELLO");
        return;
    }
    switch (id) {
    case MESSAGE_ID_HEARTBEAT:
        on_heartbeat(slot, message);
        break;
    case MESSAGE_ID_GOAWAY:
        on_goaway(slot, message);
        break;
    case MESSAGE_ID_RESERVED:
    case MESSAGE_ID_TOKENS:
    case MESSAGE_ID_FAILED:
    case MESSAGE_ID_REPORT:
        slot->fleet->events->on_message(slot->fleet->arg, slot->worker.handle, id, message);
        break;
    default: {
        char text[FLEET_TEXT_BYTES];
        snprintf(text, sizeof text, "a worker must not send %s", wire_message_name(id));
        close_slot(slot, STATUS_INVALID, text);
    }
    }
}

static void on_close(void *arg, enum status status, const char *text)
{
    struct slot *slot = arg;
    lose(slot, text && text[0] ? text : status_sentence(status));
}

static const struct link_events link_handlers = {.on_message = on_message, .on_close = on_close};

static bool is_remembered(const struct slot *slot)
{
    return slot->worker.state == FLEET_LOST || slot->worker.state == FLEET_LEFT ||
           slot->worker.state == FLEET_REFUSED;
}

/* A free slot, else that of the worker that went or was refused longest ago. */
static struct slot *find_slot(struct fleet *fleet)
{
    struct slot *oldest = NULL;
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        struct slot *slot = &fleet->slots[i];
        if (slot->worker.state == FLEET_FREE)
            return slot;
        if (is_remembered(slot) && (!oldest || slot->worker.since_ns < oldest->worker.since_ns))
            oldest = slot;
    }
    return oldest;
}

static void on_accept(void *arg, struct link *link)
{
    struct fleet *fleet = arg;
    struct slot *slot = find_slot(fleet);
    if (!slot) {
        LOG_WARN("a worker at %s was turned away: %d are there already", link_peer(link),
                 PLACEMENT_WORKERS_MAX);
        return; /* a link left without a handler is closed */
    }
    slot->fleet = fleet;
    slot->link = link;
    slot->worker = (struct fleet_worker){0};
    set_state(slot, FLEET_GREETING, "");
    link_attach(link, &link_handlers, slot);
}

enum status fleet_create(struct loop *loop, const char *address, const struct fleet_rules *rules,
                         const struct fleet_events *events, void *arg, struct fleet **out,
                         struct error *error)
{
    struct fleet *fleet = calloc(1, sizeof *fleet);
    CHECK(fleet != NULL);
    fleet->loop = loop;
    fleet->rules = *rules;
    fleet->events = events;
    fleet->arg = arg;
    /* Routers that start together do not all begin with the same worker. */
    for (uint32_t i = 0; i < rules->model_count; i++)
        fleet->turns[i] = (uint32_t)random_os_u64();
    fleet->limits = link_default_limits;
    fleet->limits.silent_ms = rules->silent_ms;
    fleet->limits.gate = rules->gate;
    const uint32_t most_ms = rules->silent_ms / HEARTBEATS_IN_SILENCE;
    if (fleet->rules.heartbeat_ms > most_ms)
        fleet->rules.heartbeat_ms = most_ms > 0 ? most_ms : 1;
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++)
        fleet->slots[i].holder = PREFIX_NO_HOLDER;
    enum status status = STATUS_OK;
    if (rules->prefix_index_pages > 0)
        status = prefix_index_create(rules->prefix_index_pages, &fleet->prefixes, error);
    if (status == STATUS_OK)
        status =
            link_listen(loop, address, on_accept, fleet, &fleet->limits, &fleet->listener, error);
    if (status != STATUS_OK) {
        prefix_index_destroy(fleet->prefixes);
        free(fleet);
        return status;
    }
    *out = fleet;
    return STATUS_OK;
}

void fleet_destroy(struct fleet *fleet)
{
    if (!fleet)
        return;
    link_listener_close(fleet->listener);
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        struct slot *slot = &fleet->slots[i];
        if (!slot->link)
            continue;
        const struct msg_goaway goaway = {.text = wire_str("the router stops")};
        if (is_live(slot))
            link_send(slot->link, MESSAGE_ID_GOAWAY, &goaway);
        link_close(slot->link, STATUS_OK, NULL);
    }
    prefix_index_destroy(fleet->prefixes);
    free(fleet);
}

uint16_t fleet_port(const struct fleet *fleet)
{
    return link_listener_port(fleet->listener);
}

const struct fleet_worker *fleet_find(const struct fleet *fleet, worker_handle handle)
{
    const struct slot *slot = fleet_slot(fleet, handle);
    return slot ? &slot->worker : NULL;
}

enum status fleet_send(struct fleet *fleet, worker_handle handle, enum message_id id,
                       const void *message)
{
    const struct slot *slot = fleet_slot(fleet, handle);
    return slot ? link_send(slot->link, id, message) : STATUS_CLOSED;
}

uint64_t fleet_links_unproven(const struct fleet *fleet)
{
    return fleet->unproven + (fleet->rules.gate ? fleet->rules.gate->refused : 0);
}

const struct fleet_worker *fleet_at(const struct fleet *fleet, uint32_t index)
{
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        const struct fleet_worker *worker = &fleet->slots[i].worker;
        if (worker->state != FLEET_FREE && worker->state != FLEET_GREETING && index-- == 0)
            return worker;
    }
    return NULL;
}

bool fleet_unpaired(const struct fleet *fleet, const struct fleet_worker *worker,
                    struct error *error)
{
    const struct fleet_worker *other = NULL;
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        const struct fleet_worker *each = &fleet->slots[i].worker;
        if (each->state != FLEET_UP || each->role == worker->role || each->model != worker->model)
            continue;
        if (each->kind == worker->kind)
            return false;
        other = each;
    }
    struct error reason;
    if (worker->state != FLEET_UP || !other ||
        fleet_identity_compare(&worker->identity, &other->identity, &reason) == STATUS_OK)
        return false;
    error_set(error, STATUS_MISMATCH, "not paired with %s: %s", other->node, reason.text);
    return true;
}

uint32_t fleet_count(const struct fleet *fleet, enum worker_role role, enum fleet_state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PLACEMENT_WORKERS_MAX; i++) {
        const struct fleet_worker *worker = &fleet->slots[i].worker;
        count += worker->state == state && worker->role == role;
    }
    return count;
}
