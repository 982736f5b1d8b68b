/* Timing of a call that is made again and again: the median of several runs. */
#ifndef BATON_OPS_BATON_BENCH_TIME_H
#define BATON_OPS_BATON_BENCH_TIME_H

#include <stdint.h>

/* turn counts the calls, so that they can rotate through memory that is not in the cache. */
typedef void (*bench_call)(void *arg, uint64_t turn);

struct bench_time {
    double median_ns, least_ns; /* of one call */
    uint32_t run_count;
};

/* One call to warm up, then runs for about budget_ms, three at least. Short calls are timed several
 * at once. */
struct bench_time bench_measure(bench_call call, void *arg, double budget_ms);
/* The same for two calls in turn, a run of one after a run of the other: what disturbs the machine
 * meets both alike. times_out: of calls[0] and of calls[1]. */
struct bench_turn {
    bench_call call;
    void *arg;
};
void bench_measure_in_turn(const struct bench_turn calls[2], double budget_ms,
                           struct bench_time times_out[2]);
/* The median of count > 0 values, which are put in order. */
double bench_median(double *values, uint32_t count);

#endif
