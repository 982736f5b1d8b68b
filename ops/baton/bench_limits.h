/* The limits of this machine, measured in the run that is held against them: what the arithmetic
 * could do and how fast memory can be read, by all members of a team.
 *
 * Each is measured when it is first asked for and then remembered; the best of several runs counts,
 * so that a machine busy with other things does not make the limit small; of memory the median.
 * Where that is not enough - memory may be twice as fast a minute later - a limit is measured again
 * in turn with what is held against it. */
#ifndef BATON_OPS_BATON_BENCH_LIMITS_H
#define BATON_OPS_BATON_BENCH_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/team.h"
#include "kernels/peak.h"
#include "ops/baton/bench_time.h"

struct bench_limits;

/* isa: the highest rung whose instructions count. budget_ms: the time of one figure; a limit takes
 * a few times as long. The team must outlive the limits. */
struct bench_limits *bench_limits_create(struct team *team, enum kernel_isa isa, double budget_ms);
void bench_limits_destroy(struct bench_limits *limits);

/* Operations per second; *name_out (may be NULL) is the instruction that reached it. 0 and nothing
 * named where the rung has no loop for it: the ceilings of int8 (kernels/peak.h) below AVX-512. */
double bench_limits_arithmetic(struct bench_limits *limits, enum peak_arithmetic arithmetic,
                               const char **name_out);
/* The same on one thread. */
double bench_limits_arithmetic_single(struct bench_limits *limits, enum peak_arithmetic arithmetic);
/* Bytes per second when `bytes` are read over and over: a cache's speed if they fit one. Measured
 * for powers of two, the next smaller counts; of much more than the last-level cache it is the
 * memory's. */
double bench_limits_bandwidth(struct bench_limits *limits, size_t bytes);
/* Memory's own. */
double bench_limits_memory(struct bench_limits *limits);
/* Of the last level, a guess where the system does not say. */
size_t bench_cache_bytes(void);

/* What work could take at best, and which roof it stands under. */
struct bench_roof {
    double seconds;
    bool compute;      /* the arithmetic binds, not memory */
    double operations; /* per second, the limit of each kind */
    double bytes;
    enum peak_arithmetic arithmetic; /* what was asked for */
    size_t footprint;
};
/* footprint: the bytes that the calls go through before they come back to the same. */
struct bench_roof bench_limits_roof(struct bench_limits *limits, enum peak_arithmetic arithmetic,
                                    double operations, double bytes, size_t footprint);

/* A run of the limit that binds under a roof, to be measured in turn with what is held against it:
 * *work_out operations or bytes a call. The roof is of these limits; the call holds until the next
 * one is asked for. */
struct bench_turn bench_limits_turn(struct bench_limits *limits, const struct bench_roof *roof,
                                    double *work_out);

/* The rung that `name` asks for, the best one for NULL; UNSUPPORTED with a sentence. */
enum status bench_isa(const char *name, enum kernel_isa *isa_out, struct error *error);

#endif
