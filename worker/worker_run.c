/* The control thread's frame: signals, router links, readiness. */
#include "worker/worker.h"

#include <inttypes.h>
#include <signal.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/log.h"
#include "model/text/grammar/grammar.h"
#include "transfer/fault.h"

enum {
    READY_POLL_MS = 20, /* until a router has welcomed us */
    DRAIN_POLL_MS = 20,
    MOVER_CONNECT_MS = 3000,
    MOVER_SENDS_MAX = 256,
    NEWS_MAX = 8192, /* of the prefix index, in one heartbeat: as many as its field takes */
};

/* What one router has been told of the prefix index. */
struct told {
    uint32_t generation; /* of the connection that this is about */
    struct prefix_reader reader;
    uint64_t sequence; /* events since it began anew */
};

struct frame {
    struct worker *worker;
    const struct worker_node *node;
    void *node_arg;
    struct loop_signal *term, *interrupt;
    struct loop_timer *timer; /* until ready, and again while draining */
    uint64_t drained_ns;      /* when draining ends, whatever is open */
    int exit_code;
    struct told told[ROUTER_LINKS_MAX];
    uint64_t news[NEWS_MAX]; /* for the heartbeat that is being sent */
};

static void on_message(void *arg, struct router_ref router, enum message_id id, const void *message)
{
    struct frame *frame = arg;
    frame->node->on_message(frame->node_arg, router, id, message);
}

static void on_lost(void *arg, struct router_ref router)
{
    struct frame *frame = arg;
    frame->node->on_lost(frame->node_arg, router);
}

static void on_hello(void *arg, struct msg_hello *hello)
{
    const struct frame *frame = arg;
    const struct worker *worker = frame->worker;
    hello->role = (uint32_t)worker->role;
    hello->node = wire_str(worker->self.node);
    hello->boot_id = (struct wire_bin){worker->self.boot_id, sizeof worker->self.boot_id};
    hello->identity = worker->self.identity;
    hello->context_tokens = worker->limits.context_tokens;
    hello->vocab_count = worker->limits.vocab_count;
    hello->pages_total = worker->limits.pages_total;
    hello->max_batch = frame->node->max_batch;
    if (frame->node->data_address != NULL)
        hello->data_address = wire_str(frame->node->data_address);
    hello->version = wire_str(BATON_VERSION);
    if (worker->options->model_name)
        hello->model_name = wire_str(worker->options->model_name);
    hello->tokens_per_s = (float)worker->tokens_per_s;
    hello->read_tokens_per_s = (float)worker->read_tokens_per_s;
    hello->read_token_us = (float)worker->read_cost.token_us;
    hello->read_context_us = (float)worker->read_cost.context_us;
    for (uint32_t kind = GRAMMAR_JSON_SCHEMA; kind <= GRAMMAR_STRUCTURE; kind++)
        hello->grammars |= 1u << kind;
    hello->abilities = WORKER_SCORES;
}

/* A router that is new, or new again, is told everything; so is one that has missed something. */
static void tell_news(struct frame *frame, struct router_ref router, struct msg_prefix_news *news)
{
    /* Who keeps nothing tells nothing: the router would expect to find what it has sent. */
    if (frame->worker->options->no_prefix_cache)
        return;
    struct told *told = &frame->told[router.index];
    if (told->generation != router.generation)
        *told = (struct told){.generation = router.generation};
    bool anew;
    const uint32_t count =
        prefix_tree_news(frame->worker->prefixes, &told->reader, NEWS_MAX, frame->news, &anew);
    if (anew)
        told->sequence = 0;
    for (uint32_t i = 0; i < count; i++)
        store_le64(&frame->news[i], frame->news[i]);
    *news = (struct msg_prefix_news){
        .anew = anew,
        .sequence = told->sequence,
        .events = {(const uint8_t *)frame->news, count * (uint32_t)sizeof frame->news[0]},
    };
    told->sequence += count;
}

static void on_ack(void *arg, struct router_ref router, const struct msg_heartbeat_ack *ack)
{
    struct frame *frame = arg;
    if (ack->prefix_anew)
        frame->told[router.index].reader = (struct prefix_reader){0};
}

static void on_heartbeat(void *arg, struct router_ref router, struct msg_heartbeat *heartbeat)
{
    struct frame *frame = arg;
    frame->node->on_heartbeat(frame->node_arg, heartbeat);
    tell_news(frame, router, &heartbeat->prefix_news);
    const struct worker *worker = frame->worker;
    heartbeat->links_unproven = worker->gate.refused;
    heartbeat->pages_free = prefix_tree_available(worker->prefixes);
    struct prefix_tree_counts counts;
    prefix_tree_count(worker->prefixes, &counts);
    heartbeat->prefix = (struct msg_prefix_load){
        .hits = counts.hits,
        .misses = counts.misses,
        .hit_tokens = counts.hit_tokens,
        .miss_tokens = counts.miss_tokens,
        .inserted = counts.inserted,
        .evicted = counts.evicted,
        .pages = counts.pages,
    };
}

static void drain_on(struct frame *frame)
{
    struct worker *worker = frame->worker;
    const uint32_t open = frame->node->open_count(frame->node_arg);
    if (open > 0 && loop_now_ns(worker->loop) < frame->drained_ns)
        return;
    if (open > 0)
        LOG_WARN("%" PRIu32 " requests are still open after %" PRIu32 " ms and are cancelled", open,
                 worker->options->drain_ms);
    loop_stop(worker->loop);
}

static void on_timer(void *arg)
{
    struct frame *frame = arg;
    struct worker *worker = frame->worker;
    const char *text;
    if (worker->draining) {
        drain_on(frame);
        return;
    }
    /* A worker that has served stays: the router may be restarted with another model, and back. */
    if (router_client_refused(worker->routers, &text)) {
        struct error error;
        error_set(&error, STATUS_MISMATCH, "no router takes this worker: %s", text);
        frame->exit_code = worker_fail(worker, &error);
        loop_stop(worker->loop);
        return;
    }
    if (router_client_connected_count(worker->routers) == 0)
        return;
    loop_timer_stop(frame->timer);
    LOG_INFO("ready: %" PRIu32 " of %" PRIu32 " routers",
             router_client_connected_count(worker->routers), worker->options->routers.count);
    notify_line(&worker->notify, "READY=1");
}

static void on_signal(void *arg)
{
    struct frame *frame = arg;
    struct worker *worker = frame->worker;
    LOG_INFO("asked to stop: %" PRIu32 " requests are open",
             frame->node->open_count(frame->node_arg));
    loop_signal_destroy(frame->term);
    loop_signal_destroy(frame->interrupt);
    frame->term = frame->interrupt = NULL;
    /* Whoever asks again does not want to wait for the end of a chunk. */
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    worker->draining = true;
    frame->drained_ns = loop_now_ns(worker->loop) + (uint64_t)worker->options->drain_ms * NS_PER_MS;
    router_client_goaway(worker->routers);
    loop_timer_start(frame->timer, DRAIN_POLL_MS, DRAIN_POLL_MS);
    drain_on(frame);
}

int worker_run(struct worker *worker, const struct worker_node *node, void *arg)
{
    static const struct router_client_events events = {
        .on_message = on_message,
        .on_lost = on_lost,
        .on_hello = on_hello,
        .on_heartbeat = on_heartbeat,
        .on_ack = on_ack,
    };
    struct frame frame = {.worker = worker, .node = node, .node_arg = arg};
    if (node->data_address != NULL)
        notify_line(&worker->notify, "DATA=%s", node->data_address);
    struct error error;
    if (router_client_create(worker->loop, worker->options->routers.items,
                             worker->options->routers.count, &events, &frame, &worker->routers,
                             &error) != STATUS_OK)
        return worker_fail(worker, &error);
    struct router_client_limits limits = router_client_default_limits;
    limits.link.gate = &worker->gate;
    router_client_set_limits(worker->routers, &limits);
    notify_line(&worker->notify, "STATUS=waiting for a router");
    frame.term = loop_signal_create(worker->loop, SIGTERM, on_signal, &frame);
    frame.interrupt = loop_signal_create(worker->loop, SIGINT, on_signal, &frame);
    frame.timer = loop_timer_create(worker->loop, on_timer, &frame);
    loop_timer_start(frame.timer, READY_POLL_MS, READY_POLL_MS);
    loop_run(worker->loop);
    loop_timer_destroy(frame.timer);
    loop_signal_destroy(frame.term);
    loop_signal_destroy(frame.interrupt);
    router_client_destroy(worker->routers);
    worker->routers = NULL;
    return frame.exit_code;
}

void worker_send(struct worker *worker, struct router_ref router, enum message_id id,
                 const void *message)
{
    if (worker->routers == NULL)
        return;
    const enum status status = router_client_send(worker->routers, router, id, message);
    if (status != STATUS_OK && status != STATUS_CLOSED)
        LOG_WARN("%s cannot be sent to router %" PRIu32 ": %s", wire_message_name(id), router.index,
                 status_sentence(status));
}

static void send_failed(struct worker *worker, const struct request_key *key, enum status status,
                        const char *text, bool again)
{
    CHECK(status < 0);
    const struct msg_failed message = {
        .request = key->request,
        .attempt = key->attempt,
        .choice = key->choice,
        .code = (uint32_t)-status,
        .text = wire_str(text),
        .again = again,
    };
    worker_send(worker, key->router, MESSAGE_ID_FAILED, &message);
}

/* What tells the router that the client asked for what cannot be. UNSUPPORTED does as well, and
 * may: that rules leave no token to pick shows in the middle of an answer. */
static bool blames_client(enum status status)
{
    return status == STATUS_INVALID || status == STATUS_LIMIT;
}

void worker_send_refused(struct worker *worker, const struct request_key *key, enum status status,
                         const char *text)
{
    send_failed(worker, key, status, text, false);
}

void worker_send_failed(struct worker *worker, const struct request_key *key, enum status status,
                        const char *text)
{
    send_failed(worker, key, blames_client(status) ? STATUS_INTERNAL : status, text, false);
}

void worker_send_handoff_failed(struct worker *worker, const struct request_key *key,
                                enum status status, const char *text)
{
    const bool blames = blames_client(status) || status == STATUS_UNSUPPORTED;
    send_failed(worker, key, blames ? STATUS_REFUSED : status, text, status == STATUS_CORRUPT);
}

enum status worker_forward(const struct worker *worker, const struct forward_sequence *sequences,
                           uint32_t count, bool best_only, const struct forward_hooks *hooks,
                           struct pass_rows *rows_out, struct error *error)
{
    if (fault_at(FAULT_ENGINE_STEP) == FAULT_REFUSE)
        return error_set(error, STATUS_INTERNAL, "the engine was told to refuse for a test");
    *rows_out = (struct pass_rows){.vocab_count = worker->limits.vocab_count};
    if (best_only)
        return model_forward_best(worker->model, sequences, count, hooks, &rows_out->best, error);
    return model_forward(worker->model, sequences, count, hooks, &rows_out->logits, error);
}

enum status worker_handoff_setup(const struct worker *worker, const char *listen,
                                 struct worker_handoff *out, struct error *error)
{
    const struct kv_layout *layout = page_pool_layout(worker->pages);
    *out = (struct worker_handoff){
        .ops = mover_with_faults(worker->mover),
        .region = {.base = page_pool_strip(worker->pages, 0, 0),
                   .layers = layout->layers,
                   .slots = page_pool_slot_count(worker->pages),
                   .strip_bytes = kv_layout_strip_bytes(layout)},
        .limits = handoff_default_limits,
    };
    if (out->region.base == NULL)
        return error_set(error, STATUS_UNSUPPORTED,
                         "the host cannot see the pages of this device, as hand-offs need it to");
    out->limits.checksum = (enum handoff_checksum)worker->options->checksum;
    if (out->limits.checksum == HANDOFF_CHECKSUM_NONE)
        LOG_WARN("pages travel without a checksum: nothing tells when they arrive damaged");
    out->limits.handoffs_max = worker->options->max_requests;
    out->limits.pages_max = job_pages(worker->limits.context_tokens, worker->limits.page_tokens);
    out->options = (struct mover_options){
        .listen = listen,
        .connect_ms = MOVER_CONNECT_MS,
        .sends_max = MOVER_SENDS_MAX,
        .tls = &worker->tls,
        .memory = out->region.base,
        .memory_bytes = (size_t)out->region.layers * out->region.slots * out->region.strip_bytes,
    };
    return STATUS_OK;
}
