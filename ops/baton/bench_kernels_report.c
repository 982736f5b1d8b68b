#include "ops/baton/bench_kernels_report.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"

enum { DIGITS = 6 };

/* A figure and its limit in the same unit. */
struct value {
    const char *kind, *name, *unit;
    double value, limit;
    bool compute;       /* bound by arithmetic */
    double ceiling_pct; /* of the limit, as far as the figure's own arithmetic goes; 0: not known */
};

static void put_text(struct json_writer *writer, const char *key, const char *text)
{
    json_key(writer, key);
    json_put_text(writer, text);
}

static void put_number(struct json_writer *writer, const char *key, double value)
{
    json_key(writer, key);
    json_put_number(writer, value, DIGITS);
}

static void put_count(struct json_writer *writer, const char *key, uint64_t count)
{
    json_key(writer, key);
    json_put_u64(writer, count);
}

static void put_value(struct json_writer *writer, const struct value *value)
{
    put_text(writer, "kind", value->kind);
    put_text(writer, "name", value->name);
    put_number(writer, "value", value->value);
    put_text(writer, "unit", value->unit);
    put_number(writer, "limit", value->limit);
    put_number(writer, "pct_of_limit", 100 * value->value / value->limit);
}

static void line_end(struct json_writer *writer)
{
    json_close_object(writer);
    buffer_add_char(writer->out, '\n');
    fwrite(writer->out->data, 1, writer->out->size, stdout);
    fflush(stdout);
    buffer_free(writer->out);
}

static void limit_print(const char *name, const char *unit, double value, uint32_t threads,
                        const char *how, bool json)
{
    if (!json) {
        printf("  %-12s  %8.1f %-8s  %u thread%s  %s\n", name, value, unit, threads,
               threads == 1 ? " " : "s", how);
        return;
    }
    struct buffer line = {0};
    struct json_writer writer;
    json_writer_init(&writer, &line);
    json_open_object(&writer);
    put_value(&writer,
              &(struct value){
                  .kind = "limit", .name = name, .unit = unit, .value = value, .limit = value});
    put_count(&writer, "threads", threads);
    put_text(&writer, "how", how);
    line_end(&writer);
}

static const char *arithmetic_unit(enum peak_arithmetic arithmetic)
{
    return arithmetic >= PEAK_INT8 ? "GOP/s" : "GFLOP/s";
}

void bench_report_limits(struct bench_limits *limits, uint32_t threads, enum kernel_isa isa,
                         bool json)
{
    if (!json)
        printf("limits of this machine up to %s, best of several runs\n", kernel_isa_name(isa));
    for (enum peak_arithmetic a = PEAK_F32; a < PEAK_ARITHMETIC_COUNT; a++) {
        const char *how;
        const double all = bench_limits_arithmetic(limits, a, &how) / 1e9;
        if (all == 0)
            continue;
        if (threads > 1)
            limit_print(peak_arithmetic_name(a), arithmetic_unit(a),
                        bench_limits_arithmetic_single(limits, a) / 1e9, 1, how, json);
        limit_print(peak_arithmetic_name(a), arithmetic_unit(a), all, threads, how, json);
    }
    limit_print("read", "GB/s", bench_limits_memory(limits) / 1e9, threads, "from memory", json);
}

static void figure_print(const struct kernel_bench *bench, const struct kernel_figure *figure,
                         const struct bench_time *time, const struct value *value)
{
    char part[48], ceiling[32] = "";
    if (!*bench->header_printed)
        printf("\n%-36s %-24s %4s %11s %10s %-8s %10s %6s  %s\n", "kernel", "shape", "T", "us",
               "value", "unit", "limit", "%", "bound by");
    *bench->header_printed = true;
    if (figure->n != 0)
        snprintf(part, sizeof part, "%s %s %" PRIu32 "x%" PRIu32, bench->shape->name, figure->part,
                 figure->n, figure->k);
    else
        snprintf(part, sizeof part, "%s %s", bench->shape->name, figure->part);
    if (value->ceiling_pct > 0)
        snprintf(ceiling, sizeof ceiling, ", ceiling %.1f %%", value->ceiling_pct);
    printf("%-36s %-24s %4" PRIu32 " %11.2f %10.2f %-8s %10.2f %6.1f  %s%s\n", value->name, part,
           figure->rows, time->median_ns / NS_PER_US, value->value, value->unit, value->limit,
           100 * value->value / value->limit, value->compute ? "compute" : "memory", ceiling);
}

static void figure_put(const struct kernel_bench *bench, const struct kernel_figure *figure,
                       const struct bench_time *time, const struct value *value)
{
    struct buffer line = {0};
    struct json_writer writer;
    json_writer_init(&writer, &line);
    json_open_object(&writer);
    put_value(&writer, value);
    put_text(&writer, "bound", value->compute ? "compute" : "memory");
    if (value->ceiling_pct > 0)
        put_number(&writer, "ceiling_pct", value->ceiling_pct);
    put_text(&writer, "operation", bench->row->operation);
    put_text(&writer, "dtype", bench->row->dtype);
    put_text(&writer, "isa", kernel_isa_name(bench->row->isa));
    put_text(&writer, "shape", bench->shape->name);
    put_text(&writer, "part", figure->part);
    put_count(&writer, "rows", figure->rows);
    if (figure->n != 0) {
        put_count(&writer, "n", figure->n);
        put_count(&writer, "k", figure->k);
    }
    put_number(&writer, "time_us", time->median_ns / NS_PER_US);
    put_number(&writer, "least_time_us", time->least_ns / NS_PER_US);
    put_number(&writer, "gop_per_s", figure->operations / time->median_ns);
    put_number(&writer, "gb_per_s", figure->bytes / time->median_ns);
    put_count(&writer, "threads", team_count(bench->team));
    put_count(&writer, "runs", time->run_count);
    line_end(&writer);
}

void bench_report_figure(const struct kernel_bench *bench, const struct kernel_figure *figure,
                         const struct bench_time *time, const struct bench_roof *roof)
{
    /* A share of limits that were measured together, not of the one in turn. */
    const double ceiling =
        roof->compute && figure->ceiling > PEAK_INT8
            ? bench_limits_arithmetic(bench->limits, figure->ceiling, NULL) /
                  bench_limits_arithmetic(bench->limits, figure->arithmetic, NULL)
            : 0;
    const struct value value = {
        .kind = "kernel",
        .name = bench->row->name,
        .unit = roof->compute ? arithmetic_unit(figure->arithmetic) : "GB/s",
        .value = (roof->compute ? figure->operations : figure->bytes) / time->median_ns,
        .limit = (roof->compute ? roof->operations : roof->bytes) / 1e9,
        .compute = roof->compute,
        .ceiling_pct = 100 * ceiling,
    };
    (bench->json ? figure_put : figure_print)(bench, figure, time, &value);
}
