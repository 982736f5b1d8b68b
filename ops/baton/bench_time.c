#include "ops/baton/bench_time.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"

enum {
    RUNS_MIN = 3,
    RUNS_MAX = 501,
    RUN_NS_MIN = 20 * NS_PER_US,
    /* In turn a run begins in caches that hold what the other one left: that has to be little. */
    TURN_NS_MIN = 300 * NS_PER_US,
};

static double now_ns(void)
{
    return (double)clock_now_ns(clock_monotonic());
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, uint32_t count)
{
    CHECK(count > 0);
    qsort(values, count, sizeof *values, compare);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* A call and its runs so far. */
struct series {
    struct bench_turn of;
    uint64_t turn;
    uint32_t calls; /* of a run */
    uint32_t run_count;
    double runs[RUNS_MAX];
};

static void series_begin(struct series *series, struct bench_turn of, double run_ns_min)
{
    series->of = of;
    series->turn = 0;
    series->run_count = 0;
    const double begin = now_ns();
    of.call(of.arg, series->turn++);
    const double first = now_ns() - begin;
    series->calls = first < run_ns_min ? (uint32_t)(run_ns_min / (first + 1)) + 1 : 1;
}

static bool series_wants_more(const struct series *series, double end)
{
    return series->run_count < RUNS_MAX && (series->run_count < RUNS_MIN || now_ns() < end);
}

static void series_run(struct series *series)
{
    const double begin = now_ns();
    for (uint32_t i = 0; i < series->calls; i++)
        series->of.call(series->of.arg, series->turn++);
    series->runs[series->run_count++] = (now_ns() - begin) / series->calls;
}

static struct bench_time series_end(struct series *series)
{
    const double median = bench_median(series->runs, series->run_count);
    return (struct bench_time){median, series->runs[0], series->run_count};
}

struct bench_time bench_measure(bench_call call, void *arg, double budget_ms)
{
    struct series series;
    series_begin(&series, (struct bench_turn){call, arg}, RUN_NS_MIN);
    const double end = now_ns() + budget_ms * NS_PER_MS;
    while (series_wants_more(&series, end))
        series_run(&series);
    return series_end(&series);
}

void bench_measure_in_turn(const struct bench_turn calls[2], double budget_ms,
                           struct bench_time times_out[2])
{
    struct series series[2];
    for (int i = 0; i < 2; i++)
        series_begin(&series[i], calls[i], TURN_NS_MIN);
    const double end = now_ns() + 2 * budget_ms * NS_PER_MS;
    while (series_wants_more(&series[0], end))
        for (int i = 0; i < 2; i++)
            series_run(&series[i]);
    for (int i = 0; i < 2; i++)
        times_out[i] = series_end(&series[i]);
}
