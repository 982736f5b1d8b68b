/* Metrics as rows, exposed in the Prometheus text format. Counters and gauges may be changed from
 * any thread (relaxed atomics); exposition runs on one. Names carry their unit. */
#ifndef BATON_BASE_METRICS_H
#define BATON_BASE_METRICS_H

#include <stdint.h>

#include "base/bytes.h"

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

enum { METRIC_BUCKETS_MAX = 32 };

struct metric_row {
    const char *name;   /* "baton_requests_total" */
    const char *labels; /* "code=\"200\"" or NULL; rows of one name stand together */
    enum metric_kind kind;
    const char *help;     /* the same for all rows of a name */
    const double *bounds; /* histogram: ascending upper bounds, ended by 0 */
};

struct metrics;

/* rows: static, indexed by the caller's enum. All series exist at zero from the start. */
struct metrics *metrics_create(const struct metric_row *rows, uint32_t row_count);
void metrics_destroy(struct metrics *metrics);
void metrics_add(struct metrics *metrics, uint32_t row, double amount);
void metrics_set(struct metrics *metrics, uint32_t row, double value);
void metrics_observe(struct metrics *metrics, uint32_t row, double value);
double metrics_value(const struct metrics *metrics, uint32_t row); /* histogram: its count */
void metrics_expose(const struct metrics *metrics, struct buffer *out);

#endif
