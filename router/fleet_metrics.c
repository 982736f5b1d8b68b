#include "router/fleet_metrics.h"

#include "base/check.h"

static double state_of(const struct fleet_worker *worker)
{
    return 1; /* which one is a label */
}

static double running_of(const struct fleet_worker *worker)
{
    return worker->running;
}

static double waiting_of(const struct fleet_worker *worker)
{
    return worker->waiting;
}

static double charged_of(const struct fleet_worker *worker)
{
    return (double)worker->backlog.charged;
}

static double speed_of(const struct fleet_worker *worker)
{
    return worker->tokens_per_s;
}

static double pages_of(const struct fleet_worker *worker)
{
    return worker->pages_total;
}

static double pages_free_of(const struct fleet_worker *worker)
{
    return worker->pages_free;
}

static double pages_handoff_of(const struct fleet_worker *worker)
{
    return worker->pages_handoff;
}

static double oldest_of(const struct fleet_worker *worker)
{
    return worker->handoff.oldest_ms / 1e3;
}

static const struct family {
    const char *name, *help;
    double (*value)(const struct fleet_worker *worker);
    bool live_only; /* says something only of a worker that is up or draining */
} families[] = {
    {"baton_worker_state", "1 for the state each worker is in.", state_of, false},
    {"baton_worker_requests_running", "Requests a worker computes.", running_of, true},
    {"baton_worker_requests_waiting", "Requests that wait at a worker.", waiting_of, true},
    {"baton_worker_charged_tokens", "Tokens this router has booked on a worker.", charged_of, true},
    {"baton_worker_speed_tokens_per_second", "Speed of a worker while it is busy.", speed_of, true},
    {"baton_worker_kv_pages", "KV pages a worker has.", pages_of, true},
    {"baton_worker_kv_pages_free", "KV pages a worker has free.", pages_free_of, true},
    {"baton_worker_kv_pages_handoff", "KV pages a worker has in hand-offs.", pages_handoff_of,
     true},
    {"baton_worker_handoff_oldest_seconds", "How long a worker's oldest hand-off holds its pages.",
     oldest_of, true},
};

void fleet_metrics_expose(const struct fleet *fleet, struct buffer *out)
{
    struct buffer labels = {0};
    for (size_t i = 0; i < ARRAY_COUNT(families); i++) {
        const struct family *family = &families[i];
        metrics_put_header(out, family->name, METRIC_GAUGE, family->help);
        const struct fleet_worker *worker;
        for (uint32_t at = 0; (worker = fleet_at(fleet, at)) != NULL; at++) {
            const bool live = worker->state == FLEET_UP || worker->state == FLEET_DRAINING;
            /* A name that was refused may be another's. */
            if (worker->state == FLEET_REFUSED || worker->state == FLEET_LEFT ||
                (family->live_only && !live))
                continue;
            buffer_clear(&labels);
            metrics_put_label(&labels, "node", worker->node);
            metrics_put_label(&labels, "role", fleet_role_name(worker->role));
            metrics_put_label(&labels, "model", fleet_model_name(fleet, worker->model));
            if (!family->live_only)
                metrics_put_label(&labels, "state", fleet_state_name(worker->state));
            metrics_put_sample(out, family->name, labels.data, family->value(worker));
        }
    }
    buffer_free(&labels);
}
