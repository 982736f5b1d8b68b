/* Ties the parts together: worker messages to sessions, the queue, draining. */
#include "router/router.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "router/router_internal.h"
#include "transfer/fault.h"

enum {
    JOURNAL_QUEUE_RECORDS = 16384,
    JOURNAL_BUSY_MS = 250,
    JOURNAL_RETRY_MS = 2000,
    JOURNAL_READS_MAX = 16, /* waiting or at it */
    HEADER_BYTES_MAX = 64 << 10,
    FLUSH_MS = 250, /* for the last bytes to leave after draining */
    AFFINITY_SESSIONS = 65536,
};

/* ---- messages of workers ---- */

/* The session a message is for; counts it as late when that is over or another attempt. */
static struct session *find(struct router *router, uint64_t id, uint32_t attempt, uint32_t choice)
{
    struct session *session = session_find(router, id);
    if (session && session->request.attempt == attempt && choice < session->request.choice_count)
        return session;
    metrics_add(router->metrics, METRIC_MESSAGES_LATE, 1);
    return NULL;
}

static void on_tokens(struct router *router, worker_handle worker, const struct msg_tokens *tokens)
{
    for (uint32_t i = 0; i < tokens->steps.count; i++) {
        const struct msg_step *step = &tokens->steps.items[i];
        struct session *session = find(router, step->request, step->attempt, step->choice);
        if (!session || fault_at(FAULT_TOKEN_IN) == FAULT_DROP)
            continue;
        const struct request_event event = {.kind = EVENT_TOKENS, .worker = worker, .step = step};
        session_feed(session, &event);
    }
}

/* A worker's refusal or failure as the client is to see it. code: minus a status. */
static void explain(struct request_failure *failure, uint32_t code, struct wire_str text,
                    const char *what)
{
    const enum status status = (enum status) - (int)code;
    char reason[ERROR_TEXT_BYTES];
    wire_str_copy(text, reason, sizeof reason);
    if (!reason[0])
        snprintf(reason, sizeof reason, "%s", status_sentence(status));
    switch (status) {
    case STATUS_INVALID:
    case STATUS_LIMIT:
    case STATUS_UNSUPPORTED: /* such as rules that forbid every token, which shows in the middle */
        request_failure_set(failure, 400, "invalid_request", "%s: %s", what, reason);
        break;
    case STATUS_INTERNAL:
    case STATUS_CORRUPT:
        request_failure_set(failure, 500, "worker_fault", "%s: %s", what, reason);
        break;
    default:
        request_failure_set(failure, 503, "worker_unavailable", "%s: %s", what, reason);
    }
}

static void on_reserved(struct router *router, worker_handle worker,
                        const struct msg_reserved *reserved)
{
    struct session *session = find(router, reserved->request, reserved->attempt, reserved->choice);
    if (!session || session->request.decode != worker)
        return;
    struct request_failure failure;
    struct request_event event = {.kind = EVENT_RESERVED,
                                  .worker = worker,
                                  .local = reserved->local != 0,
                                  .cached_tokens = reserved->cached_tokens};
    const enum status refusal = (enum status) - (int)reserved->refused;
    if (refusal == STATUS_BUSY) {
        event.kind = EVENT_REFUSED;
    } else if (reserved->refused != 0) {
        explain(&failure, reserved->refused, reserved->text, "The decode node refused the request");
        event.kind = EVENT_FAILED;
        event.failure = &failure;
    } else if (reserved->cached_tokens >= session->request.prompt_tokens) {
        /* A prefill node would refuse it, and the client would seem to be at fault. */
        request_failure_set(&failure, 500, "worker_fault",
                            "The decode node says that it holds %u tokens of a prompt of %u",
                            reserved->cached_tokens, session->request.prompt_tokens);
        event.worker = 0; /* given up here: the node has to hear of it */
        event.kind = EVENT_FAILED;
        event.failure = &failure;
    }
    if (event.local && event.kind == EVENT_RESERVED && session->request.prefill != 0 &&
        session->request.state == REQUEST_RESERVING)
        metrics_add(router->metrics, METRIC_PLACED_SHORT, 1);
    session_feed_reserved(session, &event, reserved);
    /* Behind the release of its own charge, which says that there is room. */
    if (event.kind == EVENT_REFUSED)
        fleet_mark_full(router->fleet, worker);
}

static void on_failed(struct router *router, worker_handle worker, const struct msg_failed *failed)
{
    struct session *session = find(router, failed->request, failed->attempt, failed->choice);
    if (!session)
        return;
    struct request_failure failure;
    explain(&failure, failed->code, failed->text, "A worker gave the request up");
    struct request_event event = {.kind = EVENT_FAILED, .worker = worker, .failure = &failure};
    failure.again = failed->again != 0;
    /* Both nodes tell of it; which one counts is as in request.c. */
    if (failure.again &&
        (worker == session->request.decode ||
         (worker == session->request.prefill && session->request.state == REQUEST_PREFILLING)))
        metrics_add(router->metrics, METRIC_HANDOFFS_DAMAGED, 1);
    if ((enum status) - (int)failed->code == STATUS_BUSY && worker == session->request.prefill &&
        session->request.state == REQUEST_PREFILLING) {
        event.kind = EVENT_REFUSED; /* neither's fault: the request waits */
    }
    session_feed(session, &event);
    if (event.kind == EVENT_REFUSED)
        fleet_mark_full(router->fleet, worker);
}

static void measure_report(struct metrics *metrics, const struct msg_report *report)
{
    if (report->role == WORKER_PREFILL) {
        metrics_observe(metrics, METRIC_PREFILL_QUEUE_TIME, (double)report->queue_us / 1e6);
        metrics_observe(metrics, METRIC_PREFILL_TIME, (double)report->compute_us / 1e6);
        if (report->handoff_bytes > 0) {
            metrics_observe(metrics, METRIC_HANDOFF_TIME, (double)report->handoff_us / 1e6);
            metrics_observe(metrics, METRIC_HANDOFF_WAIT_TIME,
                            (double)report->handoff_wait_us / 1e6);
            metrics_observe(metrics, METRIC_HANDOFF_SIZE, (double)report->handoff_bytes);
            metrics_add(metrics, METRIC_HANDOFF_BYTES, (double)report->handoff_bytes);
        }
    } else if (report->role == WORKER_DECODE) {
        metrics_observe(metrics, METRIC_DECODE_QUEUE_TIME, (double)report->queue_us / 1e6);
    }
}

/* Timings are worth counting also when their request is over. */
static void on_report(struct router *router, worker_handle worker, const struct msg_report *report)
{
    const struct fleet_worker *from = fleet_find(router->fleet, worker);
    measure_report(router->metrics, report);
    if (from && router->models[from->model].metrics)
        measure_report(router->models[from->model].metrics, report);
    struct session *session = session_find(router, report->request);
    if (!session || session->request.attempt != report->attempt)
        return;
    const struct request_event event = {.kind = EVENT_REPORT, .worker = worker, .report = report};
    session_feed(session, &event);
}

static void on_worker_message(void *arg, worker_handle worker, enum message_id id,
                              const void *message)
{
    struct router *router = arg;
    switch (id) {
    case MESSAGE_ID_TOKENS:
        on_tokens(router, worker, message);
        break;
    case MESSAGE_ID_RESERVED:
        on_reserved(router, worker, message);
        break;
    case MESSAGE_ID_FAILED:
        on_failed(router, worker, message);
        break;
    case MESSAGE_ID_REPORT:
        on_report(router, worker, message);
        break;
    default:
        CHECK(!"fleet passed on a message the router does not take");
    }
}

/* ---- the fleet's changes ---- */

static void put_worker(struct router *router, const struct fleet_worker *worker)
{
    struct journal_worker record = {.role = fleet_role_name(worker->role),
                                    .state = fleet_state_name(worker->state)};
    memcpy(record.boot_id, worker->boot_id, sizeof record.boot_id);
    snprintf(record.node, sizeof record.node, "%s", worker->node);
    snprintf(record.address, sizeof record.address, "%s", worker->address);
    snprintf(record.version, sizeof record.version, "%s", worker->version);
    snprintf(record.model, sizeof record.model, "%s", worker->identity.model);
    snprintf(record.reason, sizeof record.reason, "%.*s", JOURNAL_REASON_BYTES - 1, worker->text);
    journal_put_worker(router->journal, &record);
}

static void on_worker_up(void *arg, const struct fleet_worker *worker)
{
    struct router *router = arg;
    served_model_look(router, worker->model);
    put_worker(router, worker);
    loop_task_schedule(router->pump);
}

static void on_worker_down(void *arg, const struct fleet_worker *worker)
{
    struct router *router = arg;
    served_model_look(router, worker->model);
    put_worker(router, worker);
    loop_task_schedule(router->pump); /* who waits for it may have to be told */
    if (worker->state == FLEET_DRAINING)
        return;
    metrics_add(router->metrics, METRIC_WORKERS_LOST_TOTAL, worker->state == FLEET_LOST);
    struct request_failure failure;
    request_failure_set(&failure, 503, "worker_lost",
                        "The %s node that served this request was lost.",
                        fleet_role_name(worker->role));
    const struct request_event event = {
        .kind = EVENT_WORKER_LOST, .worker = worker->handle, .failure = &failure};
    for (uint32_t i = 0; i < router->slot_count; i++) {
        struct session *session = router->slots[i].session;
        if (session && session->request.state != REQUEST_ENDED &&
            (session->request.prefill == worker->handle ||
             session->request.decode == worker->handle))
            session_feed(session, &event);
    }
}

static void on_worker_heartbeat(void *arg, const struct fleet_worker *worker)
{
    struct router *router = arg;
    struct served_model *model = &router->models[worker->model];
    struct metrics *const all[] = {router->metrics, model->metrics};
    for (size_t i = 0; i < ARRAY_COUNT(all) && all[i]; i++) {
        fleet_handoff_measure(&worker->handoff, worker->role, all[i]);
        fleet_decode_measure(&worker->decode, all[i]);
    }
    fleet_prefix_measure(&worker->prefix, worker->role, router->metrics);
    if (model->queue_count > 0)
        loop_task_schedule(router->pump);
}

static const struct fleet_events fleet_handlers = {
    .on_message = on_worker_message,
    .on_up = on_worker_up,
    .on_down = on_worker_down,
    .on_heartbeat = on_worker_heartbeat,
};

/* ---- the queue ---- */

/* The first in the queue asks for a place; the next one follows when it got its pages. */
static void pump(struct served_model *model)
{
    while (!model->probe && !TAILQ_EMPTY(&model->queue)) {
        const uint32_t before = model->queue_count;
        session_place(TAILQ_FIRST(&model->queue));
        if (model->queue_count == before)
            return; /* still no room */
    }
}

void router_pump_queue(struct router *router)
{
    for (uint32_t i = 0; i < router->model_count; i++)
        pump(&router->models[i]);
}

static void on_pump(void *arg)
{
    router_pump_queue(arg);
}

/* ---- HTTP ---- */

static void on_http_request(void *arg, struct http_exchange *exchange,
                            const struct http_request *request)
{
    routes_handle(arg, exchange, request);
}

static void on_client_gone(void *arg, void *context)
{
    struct exchange_owner *owner = context;
    owner->on_gone(owner);
}

static void on_http_error(void *arg, const struct openai_error *error)
{
    router_metrics_count_error(((struct router *)arg)->metrics, error->code, error->http_status);
}

static const struct http_events http_handlers = {
    .on_request = on_http_request, .on_gone = on_client_gone, .on_error = on_http_error};

/* ---- draining ---- */

static void on_flushed(void *arg)
{
    loop_stop(((struct router *)arg)->loop);
}

static void stop_soon(struct router *router)
{
    if (router->stopping)
        return;
    router->stopping = true;
    loop_timer_destroy(router->drain_timer);
    router->drain_timer = loop_timer_create(router->loop, on_flushed, router);
    loop_timer_start(router->drain_timer, FLUSH_MS, 0);
}

static void end_all(struct router *router)
{
    const struct request_event event = {.kind = EVENT_SHUTDOWN};
    for (uint32_t i = 0; i < router->slot_count; i++) {
        struct session *session = router->slots[i].session;
        if (session && session->request.state != REQUEST_ENDED)
            session_feed(session, &event);
    }
}

static void on_drain_over(void *arg)
{
    struct router *router = arg;
    LOG_INFO("the time to drain is over; %u requests end with an error", router->session_count);
    end_all(router);
    stop_soon(router);
}

void router_session_ended(struct router *router)
{
    if (served_models_queued(router) > 0)
        loop_task_schedule(router->pump);
    if (router->draining && http_server_open_count(router->http) == 0)
        stop_soon(router);
}

void router_drain(struct router *router)
{
    if (router->draining) {
        loop_stop(router->loop);
        return;
    }
    LOG_INFO("draining: %u requests are left", router->session_count);
    router->draining = true;
    http_server_drain(router->http);
    router->drain_timer = loop_timer_create(router->loop, on_drain_over, router);
    loop_timer_start(router->drain_timer, router->options.drain_ms, 0);
    if (http_server_open_count(router->http) == 0)
        stop_soon(router);
}

/* ---- making and ending ---- */

static void make_slots(struct router *router)
{
    router->slot_count = router->options.requests_max;
    while ((1U << router->slot_bits) < router->slot_count)
        router->slot_bits++;
    router->slots = calloc(router->slot_count, sizeof *router->slots);
    CHECK(router->slots != NULL);
    for (uint32_t i = 0; i < router->slot_count; i++)
        router->slots[i].next_free = i + 1;
}

static enum status open_journal(struct router *router, struct error *error)
{
    struct journal_options options = {
        .directory = router->options.state_directory,
        .records_max = JOURNAL_QUEUE_RECORDS,
        .busy_ms = JOURNAL_BUSY_MS,
        .retry_ms = JOURNAL_RETRY_MS,
        .bytes_max = router->options.journal_bytes,
        .requests_max = router->options.journal_requests,
    };
    for (int i = 0; i < 16; i++)
        snprintf(options.router + 2 * i, 3, "%02x", router->boot_id[i]);
    return journal_open(&options, &router->journal, error);
}

static enum status open_gate(struct router *router, struct error *error)
{
    const struct router_options *options = &router->options;
    return gate_self_open(&router->gate, options->secret_file, options->insecure, router->boot_id,
                          GATE_ROLE_ROUTER, &options->control, 1, error);
}

static enum status open_doors(struct router *router, struct error *error)
{
    const struct router_options *options = &router->options;
    struct fleet_rules rules = {.model_count = router->model_count,
                                .heartbeat_ms = options->heartbeat_ms,
                                .silent_ms = options->worker_timeout_ms,
                                .policy = placement_default_policy,
                                .prefix_index_pages = options->prefix_index_pages,
                                .gate = &router->gate};
    rules.policy.slow_start_ms = options->slow_start_ms;
    rules.policy.stale_ms = options->speed_stale_ms;
    memcpy(rules.boot_id, router->boot_id, sizeof rules.boot_id);
    for (uint32_t i = 0; i < router->model_count; i++)
        rules.models[i] = (struct fleet_model){.name = router->models[i].name,
                                               .text = text_info(router->models[i].text)};
    TRY(open_gate(router, error));
    if (options->api_keys)
        TRY(api_keys_load(options->api_keys, &router->keys, error));
    TRY(open_journal(router, error));
    TRY(fleet_create(router->loop, options->control, &rules, &fleet_handlers, router,
                     &router->fleet, error));
    for (uint32_t i = 0; i < router->model_count; i++)
        served_model_look(router, i);
    const struct http_options http = {.body_bytes = options->body_bytes,
                                      .read_bytes = options->read_bytes,
                                      .header_bytes = HEADER_BYTES_MAX,
                                      .read_ms = options->read_timeout_ms,
                                      .idle_ms = options->idle_timeout_ms,
                                      .cert_file = options->http_cert,
                                      .key_file = options->http_key,
                                      .cors_origins = options->cors_origins};
    return http_server_create(router->loop, options->http, &http, &http_handlers, router,
                              &router->http, error);
}

enum status router_create(struct loop *loop, const struct model_list *models,
                          const struct router_options *options, struct router **out,
                          struct error *error)
{
    struct router *router = calloc(1, sizeof *router);
    CHECK(router != NULL);
    router->loop = loop;
    router->options = *options;
    router->limits = (struct request_limits){.total_ms = options->request_timeout_ms,
                                             .reserve_ms = options->reserve_timeout_ms,
                                             .report_ms = options->report_wait_ms};
    router->started_s = clock_wall_ms() / 1000;
    router->instance = random_os_u64() & 0xffffff;
    random_os_bytes(router->boot_id, sizeof router->boot_id);
    router->metrics = router_metrics_create();
    served_models_init(router, models);
    router->affinity = session_affinity_create(AFFINITY_SESSIONS);
    router->pump = loop_task_create(loop, on_pump, router);
    make_slots(router);
    const enum status status = open_doors(router, error);
    if (status != STATUS_OK) {
        router_destroy(router);
        return status;
    }
    router->grammars = openai_grammars_create();
    router->pool =
        text_pool_create(loop, options->text_threads, options->requests_max, options->text_bytes);
    router->reader = text_pool_create(loop, 1, JOURNAL_READS_MAX, SIZE_MAX);
    session_alive_start(router);
    served_models_log(router);
    *out = router;
    return STATUS_OK;
}

void router_destroy(struct router *router)
{
    if (!router)
        return;
    end_all(router);
    http_server_destroy(router->http);
    text_pool_destroy(router->reader);
    text_pool_destroy(router->pool); /* gives back sessions whose text was still out */
    openai_grammars_destroy(router->grammars);
    fleet_destroy(router->fleet);
    journal_close(router->journal);
    loop_timer_destroy(router->drain_timer);
    loop_timer_destroy(router->alive_timer);
    loop_task_destroy(router->pump);
    api_keys_destroy(router->keys);
    session_affinity_destroy(router->affinity);
    served_models_free(router);
    metrics_destroy(router->metrics);
    buffer_free(&router->scratch);
    CHECK(router->session_count == 0);
    free(router->slots);
    free(router);
}

uint16_t router_http_port(const struct router *router)
{
    return http_server_port(router->http);
}

uint16_t router_control_port(const struct router *router)
{
    return fleet_port(router->fleet);
}
