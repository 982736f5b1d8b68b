/* What `baton bench kernels` prints: a JSON object a line, or a table. */
#ifndef BATON_OPS_BATON_BENCH_KERNELS_REPORT_H
#define BATON_OPS_BATON_BENCH_KERNELS_REPORT_H

#include "ops/baton/bench_kernels.h"
#include "ops/baton/bench_time.h"

/* The limits themselves, on one thread and on all. */
void bench_report_limits(struct bench_limits *limits, uint32_t threads, enum kernel_isa isa,
                         bool json);
/* roof: with the limit that binds as it was in turn with the figure. */
void bench_report_figure(const struct kernel_bench *bench, const struct kernel_figure *figure,
                         const struct bench_time *time, const struct bench_roof *roof);

#endif
