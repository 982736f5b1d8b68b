#include "ops/baton/bench_time.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"

enum { RUNS_MIN = 3, RUNS_MAX = 501, RUN_NS_MIN = 20 * NS_PER_US };

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

struct bench_time bench_measure(bench_call call, void *arg, double budget_ms)
{
    double runs[RUNS_MAX];
    struct bench_time time = {0};
    uint64_t turn = 0;
    double begin = now_ns();
    call(arg, turn++);
    const double first = now_ns() - begin;
    const uint32_t calls = first < RUN_NS_MIN ? (uint32_t)(RUN_NS_MIN / (first + 1)) + 1 : 1;
    const double end = now_ns() + budget_ms * NS_PER_MS;
    while (time.run_count < RUNS_MAX && (time.run_count < RUNS_MIN || now_ns() < end)) {
        begin = now_ns();
        for (uint32_t i = 0; i < calls; i++)
            call(arg, turn++);
        runs[time.run_count++] = (now_ns() - begin) / calls;
    }
    time.median_ns = bench_median(runs, time.run_count);
    time.least_ns = runs[0];
    return time;
}
