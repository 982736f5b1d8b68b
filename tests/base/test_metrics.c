#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/check.h"
#include "base/metrics.h"

enum { REQUESTS_OK, REQUESTS_BAD, PAGES, SECONDS, SECONDS_ODD, ROW_COUNT };

static const double bounds[] = {0.1, 1, 2.5, 0};
static const struct metric_row rows[ROW_COUNT] = {
    [REQUESTS_OK] = {"baton_requests_total", "code=\"200\"", METRIC_COUNTER, "Requests.", NULL},
    [REQUESTS_BAD] = {"baton_requests_total", "code=\"400\"", METRIC_COUNTER, "Requests.", NULL},
    [PAGES] = {"baton_pages", NULL, METRIC_GAUGE, "Free \\ used\npages.", NULL},
    [SECONDS] = {"baton_seconds", "phase=\"prefill\"", METRIC_HISTOGRAM, "Time.", bounds},
    [SECONDS_ODD] = {"baton_odd_seconds", NULL, METRIC_HISTOGRAM, "Time.", bounds},
};

Test(metrics, every_series_is_there_at_zero)
{
    struct metrics *metrics = metrics_create(rows, ROW_COUNT);
    struct buffer out = {0};
    metrics_expose(metrics, &out);
    cr_assert_str_eq(out.data, "# HELP baton_requests_total Requests.\n"
                               "# TYPE baton_requests_total counter\n"
                               "baton_requests_total{code=\"200\"} 0\n"
                               "baton_requests_total{code=\"400\"} 0\n"
                               "# HELP baton_pages Free \\\\ used\\npages.\n"
                               "# TYPE baton_pages gauge\n"
                               "baton_pages 0\n"
                               "# HELP baton_seconds Time.\n"
                               "# TYPE baton_seconds histogram\n"
                               "baton_seconds_bucket{phase=\"prefill\",le=\"0.1\"} 0\n"
                               "baton_seconds_bucket{phase=\"prefill\",le=\"1\"} 0\n"
                               "baton_seconds_bucket{phase=\"prefill\",le=\"2.5\"} 0\n"
                               "baton_seconds_bucket{phase=\"prefill\",le=\"+Inf\"} 0\n"
                               "baton_seconds_sum{phase=\"prefill\"} 0\n"
                               "baton_seconds_count{phase=\"prefill\"} 0\n"
                               "# HELP baton_odd_seconds Time.\n"
                               "# TYPE baton_odd_seconds histogram\n"
                               "baton_odd_seconds_bucket{le=\"0.1\"} 0\n"
                               "baton_odd_seconds_bucket{le=\"1\"} 0\n"
                               "baton_odd_seconds_bucket{le=\"2.5\"} 0\n"
                               "baton_odd_seconds_bucket{le=\"+Inf\"} 0\n"
                               "baton_odd_seconds_sum 0\n"
                               "baton_odd_seconds_count 0\n");
    buffer_free(&out);
    metrics_destroy(metrics);
    metrics_destroy(NULL);
}

static const char *exposed(const struct metrics *metrics, struct buffer *out)
{
    buffer_clear(out);
    metrics_expose(metrics, out);
    return out->data;
}

Test(metrics, buckets_are_cumulative_and_bounds_belong_below)
{
    struct metrics *metrics = metrics_create(rows, ROW_COUNT);
    static const double values[] = {0.05, 0.1, 0.5, 1, 2.5, 2.6, 1000, -1};
    for (size_t i = 0; i < ARRAY_COUNT(values); i++)
        metrics_observe(metrics, SECONDS_ODD, values[i]);
    struct buffer out = {0};
    const char *text = exposed(metrics, &out);
    cr_assert_not_null(strstr(text, "baton_odd_seconds_bucket{le=\"0.1\"} 3\n"
                                    "baton_odd_seconds_bucket{le=\"1\"} 5\n"
                                    "baton_odd_seconds_bucket{le=\"2.5\"} 6\n"
                                    "baton_odd_seconds_bucket{le=\"+Inf\"} 8\n"
                                    "baton_odd_seconds_sum 1005.75\n"
                                    "baton_odd_seconds_count 8\n"));
    cr_assert_not_null(strstr(text, "baton_seconds_count{phase=\"prefill\"} 0\n"));
    cr_assert_eq(metrics_value(metrics, SECONDS_ODD), 8);
    buffer_free(&out);
    metrics_destroy(metrics);
}

Test(metrics, values_read_back_as_they_were_set)
{
    static const double values[] = {0.1, 1.0 / 3, 1e300, 9007199254740993.0, -2.5, 1e-7, 123456789};
    struct metrics *metrics = metrics_create(rows, ROW_COUNT);
    struct buffer out = {0};
    for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
        metrics_set(metrics, PAGES, values[i]);
        const char *at = strstr(exposed(metrics, &out), "\nbaton_pages ");
        cr_assert_not_null(at);
        cr_assert_eq(strtod(at + strlen("\nbaton_pages "), NULL), values[i]);
    }
    metrics_set(metrics, PAGES, INFINITY);
    cr_assert_not_null(strstr(exposed(metrics, &out), "\nbaton_pages +Inf\n"));
    metrics_set(metrics, PAGES, -INFINITY);
    cr_assert_not_null(strstr(exposed(metrics, &out), "\nbaton_pages -Inf\n"));
    metrics_set(metrics, PAGES, NAN);
    cr_assert_not_null(strstr(exposed(metrics, &out), "\nbaton_pages NaN\n"));
    metrics_set(metrics, PAGES, 0.1);
    cr_assert_not_null(strstr(exposed(metrics, &out), "\nbaton_pages 0.1\n"));
    buffer_free(&out);
    metrics_destroy(metrics);
}

static void *add_many(void *arg)
{
    for (int i = 0; i < 50000; i++) {
        metrics_add(arg, REQUESTS_OK, 1);
        metrics_add(arg, PAGES, i % 2 ? -1 : 1);
        metrics_observe(arg, SECONDS, 0.5);
    }
    return NULL;
}

Test(metrics, no_change_from_any_thread_is_lost)
{
    struct metrics *metrics = metrics_create(rows, ROW_COUNT);
    pthread_t threads[4];
    for (size_t i = 0; i < ARRAY_COUNT(threads); i++)
        CHECK(pthread_create(&threads[i], NULL, add_many, metrics) == 0);
    for (size_t i = 0; i < ARRAY_COUNT(threads); i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    cr_assert_eq(metrics_value(metrics, REQUESTS_OK), 200000);
    cr_assert_eq(metrics_value(metrics, REQUESTS_BAD), 0);
    cr_assert_eq(metrics_value(metrics, PAGES), 0);
    cr_assert_eq(metrics_value(metrics, SECONDS), 200000);
    struct buffer out = {0};
    cr_assert_not_null(
        strstr(exposed(metrics, &out), "baton_seconds_sum{phase=\"prefill\"} 100000"));
    buffer_free(&out);
    metrics_destroy(metrics);
}

Test(metrics, a_counter_does_not_go_down, .signal = SIGABRT)
{
    metrics_add(metrics_create(rows, ROW_COUNT), REQUESTS_OK, -1);
}

Test(metrics, rows_of_a_name_stand_together, .signal = SIGABRT)
{
    static const struct metric_row apart[] = {
        {"a_total", "x=\"1\"", METRIC_COUNTER, "A.", NULL},
        {"b_total", NULL, METRIC_COUNTER, "B.", NULL},
        {"a_total", "x=\"2\"", METRIC_COUNTER, "A.", NULL},
    };
    metrics_create(apart, ARRAY_COUNT(apart));
}

Test(metrics, a_series_is_there_once, .signal = SIGABRT)
{
    static const struct metric_row twice[] = {
        {"a_total", "x=\"1\"", METRIC_COUNTER, "A.", NULL},
        {"a_total", "x=\"1\"", METRIC_COUNTER, "A.", NULL},
    };
    metrics_create(twice, ARRAY_COUNT(twice));
}

Test(metrics, names_are_checked, .signal = SIGABRT)
{
    static const struct metric_row bad[] = {{"1st total", NULL, METRIC_COUNTER, "A.", NULL}};
    metrics_create(bad, ARRAY_COUNT(bad));
}

Test(metrics, labels_take_any_text)
{
    struct buffer labels = {0}, out = {0};
    metrics_put_label(&labels, "node", "a\"b\\c\nd\xff\xc3\xa9");
    metrics_put_label(&labels, "role", "");
    cr_assert_str_eq(labels.data, "node=\"a\\\"b\\\\c\\nd\xEF\xBF\xBD\xc3\xa9\",role=\"\"");
    metrics_put_header(&out, "baton_x", METRIC_GAUGE, "X.");
    metrics_put_sample(&out, "baton_x", NULL, 1234567);
    metrics_put_sample(&out, "baton_x", "a=\"b\"", 0.1);
    cr_assert_str_eq(out.data, "# HELP baton_x X.\n# TYPE baton_x gauge\nbaton_x 1234567\n"
                               "baton_x{a=\"b\"} 0.1\n");
    buffer_free(&labels);
    buffer_free(&out);
}

Test(metrics, a_histogram_can_be_shown_under_another_name)
{
    struct metrics *metrics = metrics_create(rows, ROW_COUNT);
    metrics_observe(metrics, SECONDS_ODD, 0.5);
    metrics_observe(metrics, SECONDS_ODD, 3);
    uint64_t counts[METRIC_BUCKETS_MAX + 1];
    cr_assert_eq(metrics_buckets(metrics, SECONDS_ODD, counts), 4);
    cr_expect_eq(counts[0] + counts[2], 0);
    cr_expect(counts[1] == 1 && counts[3] == 1);
    cr_expect_eq(metrics_sum(metrics, SECONDS_ODD), 3.5);
    struct buffer out = {0};
    metrics_put_histogram(&out, metrics, SECONDS_ODD, "other:seconds", "a=\"b\"");
    cr_assert_str_eq(out.data, "other:seconds_bucket{a=\"b\",le=\"0.1\"} 0\n"
                               "other:seconds_bucket{a=\"b\",le=\"1\"} 1\n"
                               "other:seconds_bucket{a=\"b\",le=\"2.5\"} 1\n"
                               "other:seconds_bucket{a=\"b\",le=\"+Inf\"} 2\n"
                               "other:seconds_sum{a=\"b\"} 3.5\n"
                               "other:seconds_count{a=\"b\"} 2\n");
    buffer_free(&out);
    metrics_destroy(metrics);
}
