#include "base/metrics.h"

#include <ctype.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"

/* Up to here a double holds every integer, which needs no digits to be tried out. */
static const double INTEGERS_BELOW = 9007199254740992.0;

/* A counter or gauge uses `value` only. A histogram keeps its sum there and its observations in
 * buckets[first_bucket..], one for each bound and a last one for everything above. */
struct series {
    _Atomic double value;
    uint32_t first_bucket, bound_count;
};

struct metrics {
    const struct metric_row *rows;
    struct series *series;
    _Atomic uint64_t *buckets;
    uint32_t row_count;
};

static bool name_valid(const char *name)
{
    if (!isalpha((unsigned char)name[0]) && name[0] != '_')
        return false;
    for (const char *c = name; *c; c++) {
        if (!isalnum((unsigned char)*c) && *c != '_' && *c != ':')
            return false;
    }
    return true;
}

static bool same_name(const struct metric_row *a, const struct metric_row *b)
{
    return strcmp(a->name, b->name) == 0;
}

/* The rows are the program's own: a wrong one is a fault, found at start. */
static uint32_t check_row(const struct metric_row *rows, uint32_t row)
{
    const struct metric_row *own = &rows[row];
    CHECK(name_valid(own->name) && own->help != NULL);
    for (uint32_t i = 0; i < row; i++) {
        if (!same_name(&rows[i], own))
            continue;
        /* One name stands together, is of one kind and has no label set twice. */
        CHECK(same_name(&rows[row - 1], own) && rows[i].kind == own->kind);
        CHECK(strcmp(rows[i].help, own->help) == 0);
        CHECK(rows[i].labels && own->labels && strcmp(rows[i].labels, own->labels) != 0);
    }
    if (own->kind != METRIC_HISTOGRAM)
        return 0;
    CHECK(own->bounds != NULL);
    uint32_t bound_count = 0;
    while (own->bounds[bound_count] != 0) {
        CHECK(bound_count == 0 || own->bounds[bound_count] > own->bounds[bound_count - 1]);
        CHECK(bound_count < METRIC_BUCKETS_MAX);
        bound_count++;
    }
    return bound_count;
}

struct metrics *metrics_create(const struct metric_row *rows, uint32_t row_count)
{
    struct metrics *metrics = malloc(sizeof *metrics);
    struct series *series = calloc((size_t)row_count + 1, sizeof *series);
    CHECK(metrics && series);
    uint32_t bucket_count = 0;
    for (uint32_t i = 0; i < row_count; i++) {
        series[i].bound_count = check_row(rows, i);
        series[i].first_bucket = bucket_count;
        if (rows[i].kind == METRIC_HISTOGRAM)
            bucket_count += series[i].bound_count + 1;
    }
    _Atomic uint64_t *buckets = calloc((size_t)bucket_count + 1, sizeof *buckets);
    CHECK(buckets != NULL);
    *metrics = (struct metrics){
        .rows = rows, .series = series, .buckets = buckets, .row_count = row_count};
    return metrics;
}

void metrics_destroy(struct metrics *metrics)
{
    if (!metrics)
        return;
    free(metrics->series);
    free(metrics->buckets);
    free(metrics);
}

static void add_to(_Atomic double *value, double amount)
{
    double seen = atomic_load_explicit(value, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(value, &seen, seen + amount, memory_order_relaxed,
                                                  memory_order_relaxed))
        continue;
}

void metrics_add(struct metrics *metrics, uint32_t row, double amount)
{
    CHECK(row < metrics->row_count && metrics->rows[row].kind != METRIC_HISTOGRAM);
    CHECK(metrics->rows[row].kind == METRIC_GAUGE || amount >= 0);
    add_to(&metrics->series[row].value, amount);
}

void metrics_set(struct metrics *metrics, uint32_t row, double value)
{
    CHECK(row < metrics->row_count && metrics->rows[row].kind == METRIC_GAUGE);
    atomic_store_explicit(&metrics->series[row].value, value, memory_order_relaxed);
}

void metrics_observe(struct metrics *metrics, uint32_t row, double value)
{
    CHECK(row < metrics->row_count && metrics->rows[row].kind == METRIC_HISTOGRAM);
    CHECK(!isnan(value)); /* one would spoil the sum for good */
    struct series *series = &metrics->series[row];
    uint32_t bucket = 0;
    while (bucket < series->bound_count && value > metrics->rows[row].bounds[bucket])
        bucket++;
    add_to(&series->value, value);
    atomic_fetch_add_explicit(&metrics->buckets[series->first_bucket + bucket], 1,
                              memory_order_relaxed);
}

static uint64_t bucket_value(const struct metrics *metrics, uint32_t row, uint32_t bucket)
{
    return atomic_load_explicit(&metrics->buckets[metrics->series[row].first_bucket + bucket],
                                memory_order_relaxed);
}

double metrics_value(const struct metrics *metrics, uint32_t row)
{
    CHECK(row < metrics->row_count);
    const struct series *series = &metrics->series[row];
    if (metrics->rows[row].kind != METRIC_HISTOGRAM)
        return atomic_load_explicit(&series->value, memory_order_relaxed);
    uint64_t count = 0;
    for (uint32_t i = 0; i <= series->bound_count; i++)
        count += bucket_value(metrics, row, i);
    return (double)count;
}

double metrics_sum(const struct metrics *metrics, uint32_t row)
{
    CHECK(row < metrics->row_count && metrics->rows[row].kind == METRIC_HISTOGRAM);
    return atomic_load_explicit(&metrics->series[row].value, memory_order_relaxed);
}

const double *metrics_bounds(const struct metrics *metrics, uint32_t row)
{
    CHECK(row < metrics->row_count && metrics->rows[row].kind == METRIC_HISTOGRAM);
    return metrics->rows[row].bounds;
}

uint32_t metrics_buckets(const struct metrics *metrics, uint32_t row, uint64_t *counts_out)
{
    CHECK(row < metrics->row_count && metrics->rows[row].kind == METRIC_HISTOGRAM);
    const uint32_t count = metrics->series[row].bound_count + 1;
    for (uint32_t i = 0; i < count; i++)
        counts_out[i] = bucket_value(metrics, row, i);
    return count;
}

/* The fewest digits that read back as the same number. */
static void put_value(struct buffer *out, double value)
{
    if (isnan(value)) {
        buffer_add_text(out, "NaN");
        return;
    }
    if (isinf(value)) {
        buffer_add_text(out, value > 0 ? "+Inf" : "-Inf");
        return;
    }
    if (value == floor(value) && fabs(value) < INTEGERS_BELOW) {
        buffer_printf(out, "%lld", (long long)value);
        return;
    }
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    buffer_add_text(out, text);
}

/* name[suffix]{labels,extra} */
static void put_series_name(struct buffer *out, const char *name, const char *suffix,
                            const char *labels, const char *extra)
{
    if (!labels)
        labels = "";
    buffer_add_text(out, name);
    buffer_add_text(out, suffix);
    if (*labels || *extra) {
        buffer_add_char(out, '{');
        buffer_add_text(out, labels);
        buffer_add_text(out, *labels && *extra ? "," : "");
        buffer_add_text(out, extra);
        buffer_add_char(out, '}');
    }
    buffer_add_char(out, ' ');
}

void metrics_put_histogram(struct buffer *out, const struct metrics *metrics, uint32_t row,
                           const char *name, const char *labels)
{
    /* Each bucket is read once, so that the last one and the count always agree. */
    uint64_t counts[METRIC_BUCKETS_MAX + 1], count = 0;
    const uint32_t bucket_count = metrics_buckets(metrics, row, counts);
    struct buffer bound = {0};
    for (uint32_t i = 0; i < bucket_count; i++) {
        buffer_clear(&bound);
        buffer_add_text(&bound, "le=\"");
        put_value(&bound, i + 1 < bucket_count ? metrics->rows[row].bounds[i] : (double)INFINITY);
        buffer_add_char(&bound, '"');
        count += counts[i];
        put_series_name(out, name, "_bucket", labels, bound.data);
        buffer_printf(out, "%llu\n", (unsigned long long)count);
    }
    buffer_free(&bound);
    put_series_name(out, name, "_sum", labels, "");
    put_value(out, metrics_sum(metrics, row));
    buffer_add_char(out, '\n');
    put_series_name(out, name, "_count", labels, "");
    buffer_printf(out, "%llu\n", (unsigned long long)count);
}

void metrics_put_header(struct buffer *out, const char *name, enum metric_kind kind,
                        const char *help)
{
    static const char *const kinds[] = {
        [METRIC_COUNTER] = "counter", [METRIC_GAUGE] = "gauge", [METRIC_HISTOGRAM] = "histogram"};
    buffer_printf(out, "# HELP %s ", name);
    for (const char *c = help; *c; c++) {
        if (*c == '\\' || *c == '\n')
            buffer_add_text(out, *c == '\n' ? "\\n" : "\\\\");
        else
            buffer_add_char(out, *c);
    }
    buffer_printf(out, "\n# TYPE %s %s\n", name, kinds[kind]);
}

void metrics_put_sample(struct buffer *out, const char *name, const char *labels, double value)
{
    put_series_name(out, name, "", labels, "");
    put_value(out, value);
    buffer_add_char(out, '\n');
}

void metrics_put_label(struct buffer *labels, const char *key, const char *value)
{
    if (labels->size > 0)
        buffer_add_char(labels, ',');
    buffer_printf(labels, "%s=\"", key);
    const size_t bytes = strlen(value);
    for (size_t i = 0; i < bytes;) {
        const int length = utf8_sequence((const uint8_t *)value + i, bytes - i, NULL);
        if (length <= 0)
            buffer_add_text(labels, "\xEF\xBF\xBD");
        else if (value[i] == '\n')
            buffer_add_text(labels, "\\n");
        else if (value[i] == '\\' || value[i] == '"')
            buffer_add(labels, (const char[]){'\\', value[i]}, 2);
        else
            buffer_add(labels, value + i, (size_t)length);
        i += length > 0 ? (size_t)length : 1;
    }
    buffer_add_char(labels, '"');
}

void metrics_expose(const struct metrics *metrics, struct buffer *out)
{
    for (uint32_t i = 0; i < metrics->row_count; i++) {
        const struct metric_row *row = &metrics->rows[i];
        if (i == 0 || !same_name(row, row - 1))
            metrics_put_header(out, row->name, row->kind, row->help);
        if (row->kind == METRIC_HISTOGRAM)
            metrics_put_histogram(out, metrics, i, row->name, row->labels);
        else
            metrics_put_sample(out, row->name, row->labels, metrics_value(metrics, i));
    }
}
