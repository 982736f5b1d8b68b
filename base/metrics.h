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
double metrics_sum(const struct metrics *metrics, uint32_t row);   /* of a histogram */
const double *metrics_bounds(const struct metrics *metrics, uint32_t row); /* of a histogram */
/* A histogram's observations by bucket, those above the last bound behind them. Returns how many
 * buckets that is; counts_out: [METRIC_BUCKETS_MAX + 1]. */
uint32_t metrics_buckets(const struct metrics *metrics, uint32_t row, uint64_t *counts_out);
void metrics_expose(const struct metrics *metrics, struct buffer *out);

/* The format piece by piece, for series whose labels are known only when they are asked for: the
 * header once a name, then its samples. */
void metrics_put_header(struct buffer *out, const char *name, enum metric_kind kind,
                        const char *help);
/* labels: as in a row, NULL for none. */
void metrics_put_sample(struct buffer *out, const char *name, const char *labels, double value);
/* The buckets, sum and count of a histogram row, under another name. */
void metrics_put_histogram(struct buffer *out, const struct metrics *metrics, uint32_t row,
                           const char *name, const char *labels);
/* Adds key="value" to a list of labels; any value is fine, bad UTF-8 becomes
 * U+FFFD. */
void metrics_put_label(struct buffer *labels, const char *key, const char *value);

#endif
