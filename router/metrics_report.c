/* The body of GET /metrics: what is counted all along, what is read when somebody asks, and the
 * same once more under other servers' names. */
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "router/fleet_metrics.h"
#include "router/model_metrics.h"
#include "router/router_internal.h"
#include "router/vllm_metrics.h"

static void refresh_fleet(struct router *router)
{
    static const enum fleet_state states[] = {FLEET_UP, FLEET_DRAINING, FLEET_LOST};
    struct metrics *metrics = router->metrics;
    double pages[2][3] = {{0}}, prefix_pages[2] = {0};
    double open[2] = {0}, oldest_s[2] = {0}, queue_bytes = 0;
    const struct fleet_worker *worker;
    for (uint32_t i = 0; (worker = fleet_at(router->fleet, i)) != NULL; i++) {
        if (worker->state != FLEET_UP)
            continue;
        const int role = worker->role == WORKER_PREFILL ? 0 : 1;
        pages[role][0] += worker->pages_free;
        pages[role][1] += worker->pages_handoff;
        pages[role][2] += worker->pages_total;
        prefix_pages[role] += worker->prefix.pages;
        open[role] += worker->handoff.open;
        oldest_s[role] = fmax(oldest_s[role], worker->handoff.oldest_ms / 1e3);
        queue_bytes += (double)worker->handoff.queue_bytes;
    }
    for (uint32_t role = 0; role < 2; role++) {
        const enum worker_role name = role == 0 ? WORKER_PREFILL : WORKER_DECODE;
        for (uint32_t i = 0; i < ARRAY_COUNT(states); i++)
            metrics_set(metrics, METRIC_WORKERS_PREFILL_UP + 3 * role + i,
                        fleet_count(router->fleet, name, states[i]));
        metrics_set(metrics, METRIC_PAGES + 3 * role, pages[role][0]);
        metrics_set(metrics, METRIC_PAGES + 3 * role + 1, pages[role][1]);
        metrics_set(metrics, METRIC_PAGES + 3 * role + 2,
                    fmax(0, pages[role][2] - pages[role][0] - pages[role][1]));
        metrics_set(metrics, METRIC_PREFIX_PAGES + role, prefix_pages[role]);
        metrics_set(metrics, METRIC_HANDOFF_OPEN + role, open[role]);
        metrics_set(metrics, METRIC_HANDOFF_OLDEST + role, oldest_s[role]);
    }
    metrics_set(metrics, METRIC_HANDOFF_QUEUE, queue_bytes);
}

static void set_states(struct metrics *metrics, const uint32_t counts[REQUEST_STATE_COUNT])
{
    _Static_assert(METRIC_STATES_LAST - METRIC_STATES + 1 == REQUEST_ENDED,
                   "each state but the last has its row");
    for (uint32_t i = 0; i < REQUEST_ENDED; i++)
        metrics_set(metrics, METRIC_STATES + i, counts[i]);
}

static void refresh_requests(struct router *router)
{
    uint32_t all[REQUEST_STATE_COUNT] = {0}, of_model[MODEL_LIST_MAX][REQUEST_STATE_COUNT] = {{0}};
    for (uint32_t i = 0; i < router->slot_count; i++) {
        const struct session *session = router->slots[i].session;
        if (!session)
            continue;
        all[session->request.state]++;
        if (session->model)
            of_model[session->model->index][session->request.state]++;
    }
    set_states(router->metrics, all);
    for (uint32_t i = 0; i < router->model_count; i++) {
        if (router->models[i].metrics)
            set_states(router->models[i].metrics, of_model[i]);
    }
    metrics_set(router->metrics, METRIC_INFLIGHT, router->session_count);
    metrics_set(router->metrics, METRIC_READ_BYTES, (double)http_server_read_bytes(router->http));
    metrics_set(router->metrics, METRIC_QUEUED, served_models_queued(router));
}

/* Counters that are kept elsewhere. */
static void advance(struct metrics *metrics, enum router_metric metric, double value)
{
    const double news = value - metrics_value(metrics, metric);
    metrics_add(metrics, metric, news > 0 ? news : 0);
}

static void refresh_journal(struct router *router)
{
    struct metrics *metrics = router->metrics;
    const struct journal_stats stats = journal_stats(router->journal);
    advance(metrics, METRIC_JOURNAL_WRITTEN, (double)stats.written);
    advance(metrics, METRIC_JOURNAL_DROPPED, (double)stats.dropped);
    advance(metrics, METRIC_JOURNAL_DAMAGED, (double)stats.damaged);
    metrics_set(metrics, METRIC_JOURNAL_HEALTHY, stats.healthy);
    metrics_set(metrics, METRIC_JOURNAL_BYTES, (double)stats.bytes);
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static double resident_bytes(void)
{
    unsigned long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file)
        return 0;
    const bool known = fscanf(file, "%lu %lu", &size, &resident) == 2;
    fclose(file);
    return known ? (double)resident * (double)sysconf(_SC_PAGESIZE) : 0;
}

static void refresh_process(struct router *router)
{
    struct rusage usage;
    metrics_set(router->metrics, METRIC_PROCESS_START, (double)router->started_s);
    metrics_set(router->metrics, METRIC_PROCESS_MEMORY, resident_bytes());
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        advance(router->metrics, METRIC_PROCESS_CPU,
                seconds(usage.ru_utime) + seconds(usage.ru_stime));
}

void metrics_report_refresh(struct router *router)
{
    refresh_requests(router);
    refresh_journal(router);
    refresh_process(router);
    advance(router->metrics, METRIC_LINKS_UNPROVEN, (double)fleet_links_unproven(router->fleet));
    refresh_fleet(router);
}

/* Of a model's decode nodes. */
static struct vllm_cache cache_of(const struct router *router, uint32_t model)
{
    struct vllm_cache cache = {0};
    const struct fleet_worker *worker;
    for (uint32_t i = 0; (worker = fleet_at(router->fleet, i)) != NULL; i++) {
        if (worker->state != FLEET_UP || worker->role != WORKER_DECODE || worker->model != model)
            continue;
        cache.page_tokens = worker->identity.layout.page_tokens;
        cache.pages_total += worker->pages_total;
        cache.pages_free += worker->pages_free;
    }
    return cache;
}

static void expose_vllm(const struct router *router, struct buffer *out)
{
    struct vllm_model models[MODEL_LIST_MAX];
    for (uint32_t i = 0; i < router->model_count; i++) {
        const struct served_model *model = &router->models[i];
        models[i] =
            (struct vllm_model){.name = model->name,
                                .metrics = model->metrics ? model->metrics : router->metrics,
                                .cache = cache_of(router, i)};
    }
    vllm_metrics_expose(models, router->model_count, out);
}

void metrics_report_write(struct router *router, struct buffer *out)
{
    metrics_report_refresh(router);
    metrics_expose(router->metrics, out);
    metrics_put_header(out, "baton_build_info", METRIC_GAUGE, "1; the version is a label.");
    metrics_put_sample(out, "baton_build_info", "version=\"" BATON_VERSION "\"", 1);
    model_metrics_expose(router, out);
    fleet_metrics_expose(router->fleet, out);
    if (!router->options.no_vllm_metrics)
        expose_vllm(router, out);
}
