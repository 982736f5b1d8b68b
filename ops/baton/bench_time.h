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
/* The median of count > 0 values, which are put in order. */
double bench_median(double *values, uint32_t count);

#endif
