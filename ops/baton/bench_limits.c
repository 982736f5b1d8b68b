#include "ops/baton/bench_limits.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "ops/baton/bench_time.h"

enum {
    CLASS_BITS_MIN = 16, /* the smallest amount of memory that is measured: 64 KiB */
    CLASS_COUNT = 24,
    CACHE_BYTES_GUESS = 32 << 20,
    HUGE_PAGE = 2 << 20,
    /* What is called memory is this many times the last-level cache, within the second: of four
     * times the cache a quarter could come from there. */
    MEMORY_FACTOR = 16,
    MEMORY_FACTOR_MIN = 4,
    MEMORY_BYTES_MAX = 1 << 30,
    BUDGET_FACTOR = 4, /* a limit is measured for longer than what is held against it */
    ROUNDS = 1 << 17,  /* of arithmetic in one run: some hundred microseconds */
    /* Read in one run: enough that starting the team does not count, and short, so that some of the
     * runs are undisturbed on a machine that has other things to do. */
    RUN_BYTES = 1 << 24,
};

struct arithmetic_run {
    const struct peak_row *row;
    struct team *team; /* NULL: the caller alone */
};

struct stream_run {
    const struct bench_limits *limits;
    const struct stream_row *row;
    size_t footprint;
    size_t bytes; /* of one pass */
    size_t first;
    uint32_t passes;
};

struct bench_limits {
    struct team *team;
    enum kernel_isa isa;
    double budget_ms;
    double arithmetic[PEAK_ARITHMETIC_COUNT], single[PEAK_ARITHMETIC_COUNT];
    const struct peak_row *arithmetic_row[PEAK_ARITHMETIC_COUNT]; /* the fastest */
    double bandwidth[CLASS_COUNT];                                /* 0: not measured yet */
    const struct stream_row *bandwidth_row[CLASS_COUNT];          /* the fastest */
    struct arithmetic_run arithmetic_turn;                        /* of bench_limits_turn */
    struct stream_run stream_turn;
    char *memory;
    size_t memory_bytes;
};

size_t bench_cache_bytes(void)
{
    const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? (size_t)bytes : CACHE_BYTES_GUESS;
}

struct bench_limits *bench_limits_create(struct team *team, enum kernel_isa isa, double budget_ms)
{
    struct bench_limits *limits = calloc(1, sizeof *limits);
    CHECK(limits != NULL);
    limits->team = team;
    limits->isa = isa;
    limits->budget_ms = BUDGET_FACTOR * budget_ms;
    return limits;
}

void bench_limits_destroy(struct bench_limits *limits)
{
    free(limits->memory);
    free(limits);
}

/* What the loops gave, kept so that they are not left out. */
static _Atomic uint64_t sink;

static void arithmetic_member(void *arg, uint32_t index, uint32_t count)
{
    const struct arithmetic_run *run = arg;
    atomic_fetch_xor_explicit(&sink, (uint64_t)(int64_t)run->row->run(ROUNDS),
                              memory_order_relaxed);
}

static void arithmetic_call(void *arg, uint64_t turn)
{
    const struct arithmetic_run *run = arg;
    if (run->team == NULL)
        arithmetic_member(arg, 0, 1);
    else
        team_run(run->team, arithmetic_member, arg);
}

/* The fastest way to do it that the rung allows. */
static double arithmetic_measure(const struct bench_limits *limits, enum peak_arithmetic arithmetic,
                                 struct team *team, const struct peak_row **row_out)
{
    uint32_t count;
    double best = 0;
    const struct peak_row *rows = peak_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        const struct peak_row *row = &rows[i];
        if (row->arithmetic != arithmetic || row->isa > limits->isa || !peak_available(row))
            continue;
        struct arithmetic_run run = {row, team};
        const struct bench_time time = bench_measure(arithmetic_call, &run, limits->budget_ms);
        const double members = team == NULL ? 1 : team_count(team);
        const double rate =
            ROUNDS * (double)row->round_operations * members * NS_PER_S / time.least_ns;
        if (rate > best) {
            best = rate;
            *row_out = row;
        }
    }
    return best;
}

double bench_limits_arithmetic(struct bench_limits *limits, enum peak_arithmetic arithmetic,
                               const char **name_out)
{
    if (limits->arithmetic[arithmetic] == 0)
        limits->arithmetic[arithmetic] = arithmetic_measure(limits, arithmetic, limits->team,
                                                            &limits->arithmetic_row[arithmetic]);
    if (name_out != NULL && limits->arithmetic_row[arithmetic] != NULL)
        *name_out = limits->arithmetic_row[arithmetic]->name;
    return limits->arithmetic[arithmetic];
}

double bench_limits_arithmetic_single(struct bench_limits *limits, enum peak_arithmetic arithmetic)
{
    const struct peak_row *row;
    if (limits->single[arithmetic] == 0)
        limits->single[arithmetic] = arithmetic_measure(limits, arithmetic, NULL, &row);
    return limits->single[arithmetic];
}

static void stream_member(void *arg, uint32_t index, uint32_t count)
{
    const struct stream_run *run = arg;
    size_t first, end;
    uint64_t sum = 0;
    team_split(run->bytes, STREAM_GRAIN_BYTES, index, count, &first, &end);
    for (uint32_t pass = 0; pass < run->passes; pass++)
        sum += run->row->run(run->limits->memory + run->first + first, end - first);
    atomic_fetch_xor_explicit(&sink, sum, memory_order_relaxed);
}

/* A small amount is read over and over, of a large one the next part. */
static void stream_call(void *arg, uint64_t turn)
{
    struct stream_run *run = arg;
    run->first = turn * run->bytes % run->footprint;
    team_run(run->limits->team, stream_member, arg);
}

static void memory_grow(struct bench_limits *limits, size_t bytes)
{
    if (bytes <= limits->memory_bytes)
        return;
    /* In large pages, as the weights are. */
    const size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    free(limits->memory);
    limits->memory = aligned_alloc(HUGE_PAGE, whole);
    CHECK(limits->memory != NULL);
    (void)madvise(limits->memory, whole, MADV_HUGEPAGE); /* only advice */
    memset(limits->memory, 1, bytes);
    limits->memory_bytes = bytes;
}

/* Of `bytes` that are read over and over. */
static struct stream_run stream_run_of(const struct bench_limits *limits,
                                       const struct stream_row *row, size_t bytes)
{
    const size_t pass_bytes = bytes < RUN_BYTES ? bytes : RUN_BYTES;
    return (struct stream_run){.limits = limits,
                               .row = row,
                               .footprint = bytes,
                               .bytes = pass_bytes,
                               .passes = (uint32_t)(RUN_BYTES / pass_bytes)};
}

static double stream_measure(struct bench_limits *limits, size_t bytes,
                             const struct stream_row **row_out)
{
    uint32_t count;
    double best = 0;
    const struct stream_row *rows = stream_rows(&count);
    memory_grow(limits, bytes);
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i].isa > limits->isa || !kernel_isa_available(rows[i].isa))
            continue;
        struct stream_run run = stream_run_of(limits, &rows[i], bytes);
        const struct bench_time time = bench_measure(stream_call, &run, limits->budget_ms);
        /* Some runs through more than the last-level cache holds may still come from a cache, of
         * which the system need not tell everything: there the median counts. */
        const double ns = bytes > bench_cache_bytes() ? time.median_ns : time.least_ns;
        const double rate = (double)run.bytes * run.passes * NS_PER_S / ns;
        if (rate > best) {
            best = rate;
            *row_out = &rows[i];
        }
    }
    return best;
}

/* More is measured as this much. */
static size_t memory_class_bytes(void)
{
    const size_t cache = bench_cache_bytes(), least = MEMORY_FACTOR_MIN * cache;
    const size_t wanted = MEMORY_FACTOR * cache;
    const size_t most = least > MEMORY_BYTES_MAX ? least : MEMORY_BYTES_MAX;
    return wanted < most ? wanted : most;
}

/* The power of two, from CLASS_BITS_MIN on, that so many bytes are measured as. */
static uint32_t bandwidth_class(size_t bytes)
{
    uint32_t class = 0;
    const size_t most = memory_class_bytes();
    while (class + 1 < CLASS_COUNT && (size_t)2 << (CLASS_BITS_MIN + class) <= bytes &&
           (size_t)1 << (CLASS_BITS_MIN + class) < most)
        class ++;
    return class;
}

double bench_limits_bandwidth(struct bench_limits *limits, size_t bytes)
{
    const uint32_t class = bandwidth_class(bytes);
    if (limits->bandwidth[class] == 0)
        limits->bandwidth[class] = stream_measure(limits, (size_t)1 << (CLASS_BITS_MIN + class),
                                                  &limits->bandwidth_row[class]);
    return limits->bandwidth[class];
}

double bench_limits_memory(struct bench_limits *limits)
{
    return bench_limits_bandwidth(limits, SIZE_MAX);
}

struct bench_roof bench_limits_roof(struct bench_limits *limits, enum peak_arithmetic arithmetic,
                                    double operations, double bytes, size_t footprint)
{
    struct bench_roof roof = {
        .operations = bench_limits_arithmetic(limits, arithmetic, NULL),
        .bytes = bench_limits_bandwidth(limits, footprint),
        .arithmetic = arithmetic,
        .footprint = footprint,
    };
    const double compute = operations / roof.operations, memory = bytes / roof.bytes;
    roof.compute = compute > memory;
    roof.seconds = roof.compute ? compute : memory;
    return roof;
}

struct bench_turn bench_limits_turn(struct bench_limits *limits, const struct bench_roof *roof,
                                    double *work_out)
{
    if (roof->compute) {
        const struct peak_row *row = limits->arithmetic_row[roof->arithmetic];
        limits->arithmetic_turn = (struct arithmetic_run){row, limits->team};
        *work_out = ROUNDS * (double)row->round_operations * team_count(limits->team);
        return (struct bench_turn){arithmetic_call, &limits->arithmetic_turn};
    }
    const uint32_t class = bandwidth_class(roof->footprint);
    limits->stream_turn =
        stream_run_of(limits, limits->bandwidth_row[class], (size_t)1 << (CLASS_BITS_MIN + class));
    *work_out = RUN_BYTES;
    return (struct bench_turn){stream_call, &limits->stream_turn};
}

enum status bench_isa(const char *name, enum kernel_isa *isa_out, struct error *error)
{
    if (name == NULL || name[0] == '\0') {
        *isa_out = kernel_isa_best();
        return STATUS_OK;
    }
    enum kernel_isa isa;
    if (!kernel_isa_parse(name, &isa) || !kernel_isa_available(isa))
        return error_set(error, STATUS_UNSUPPORTED,
                         "--isa is '%s', which %s; the best here is '%s'", name,
                         kernel_isa_parse(name, &isa) ? "this CPU lacks" : "is not known",
                         kernel_isa_name(kernel_isa_best()));
    *isa_out = isa;
    return STATUS_OK;
}
