/* Operands of measured calls, and the one way they are measured. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "ops/baton/bench_kernels.h"
#include "ops/baton/bench_kernels_report.h"

enum { PATTERN_FLOATS = 4096 };

void bench_give_up(const struct error *error)
{
    fprintf(stderr, "baton bench kernels: %s\n", error->text);
    exit(EXIT_FAILURE);
}

device_ptr bench_allocate(struct kernel_bench *bench, size_t bytes)
{
    device_ptr p;
    struct error error = {0};
    if (bench->backend->ops->allocate(bench->backend, bytes, &p, &error) != STATUS_OK)
        bench_give_up(&error);
    return p;
}

device_ptr bench_floats(struct kernel_bench *bench, size_t count)
{
    float pattern[PATTERN_FLOATS];
    const device_ptr p = bench_allocate(bench, count * sizeof(float));
    for (size_t i = 0; i < PATTERN_FLOATS; i++)
        pattern[i] = (float)random_normal(&bench->random);
    for (size_t done = 0; done < count; done += PATTERN_FLOATS) {
        const size_t part = count - done < PATTERN_FLOATS ? count - done : PATTERN_FLOATS;
        bench->backend->ops->upload(bench->backend, device_offset(p, done * sizeof(float)), pattern,
                                    part * sizeof(float));
    }
    return p;
}

void bench_release(struct kernel_bench *bench, device_ptr p)
{
    bench->backend->ops->release(bench->backend, p);
}

void bench_figure(struct kernel_bench *bench, const struct kernel_figure *figure,
                  void (*call)(void *arg, uint64_t turn), void *arg)
{
    double work;
    struct bench_time times[2];
    struct bench_roof roof = bench_limits_roof(
        bench->limits, figure->arithmetic, figure->operations, figure->bytes, figure->footprint);
    const struct bench_turn turns[2] = {{call, arg},
                                        bench_limits_turn(bench->limits, &roof, &work)};
    bench_measure_in_turn(turns, bench->budget_ms, times);
    *(roof.compute ? &roof.operations : &roof.bytes) = work * NS_PER_S / times[1].median_ns;
    bench_report_figure(bench, figure, &times[0], &roof);
}
