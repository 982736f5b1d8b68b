/* What `baton bench model` prints: a line a phase and size, with a table of its parts if asked. */
#include <inttypes.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "ops/baton/bench_model.h"

enum { DIGITS = 6 };

static const char *const phase_names[] = {[PHASE_PREFILL] = "prefill", [PHASE_DECODE] = "decode"};

static const char *roof_name(bool compute)
{
    return compute ? "compute" : "memory";
}

/* A phase as a whole, or one part of it. */
struct line {
    double seconds; /* measured, of one prompt or step */
    double roof_seconds;
    double operations, bytes;
    bool compute;
};

static struct line part_line(const struct model_report *report, const struct phase_result *result,
                             enum forward_part part)
{
    const struct part_roof under = model_part_roof(&result->profile, report->limits, part);
    const struct part_work *work = &result->profile.work[part];
    const double count = result->profiled;
    return (struct line){
        .seconds = result->profile.part_ns[part] / count / NS_PER_S,
        .roof_seconds = under.roof.seconds / count,
        .operations = work->operations / count,
        .bytes = work->bytes / count,
        .compute = under.roof.compute,
    };
}

/* The whole stands under the roof that binds for most of the time its parts need at best. What goes
 * row by row moves activations, which stay in the caches: no traffic of the whole. */
static struct line whole_line(const struct line *parts, double seconds)
{
    struct line whole = {.seconds = seconds};
    double compute_seconds = 0;
    for (enum forward_part part = 0; part < FORWARD_PART_COUNT; part++) {
        whole.roof_seconds += parts[part].roof_seconds;
        whole.operations += parts[part].operations;
        whole.bytes += part == FORWARD_ROWS ? 0 : parts[part].bytes;
        compute_seconds += parts[part].compute ? parts[part].roof_seconds : 0;
    }
    whole.compute = compute_seconds > whole.roof_seconds / 2;
    return whole;
}

void model_report_begin(struct model_report *report)
{
    if (report->json)
        return;
    const struct model_info *info = model_info(report->session->model);
    printf("%s, %s, KV %s, %" PRIu32 " threads, chunks of %" PRIu32 " tokens\n", info->name,
           model_backend_text(report->session->model), report->kv_dtype, report->threads,
           report->session->chunk_tokens);
    printf("weights %.1f MB, memory read %.1f GB/s", (double)info->weight_bytes / 1e6,
           bench_limits_memory(report->limits) / 1e9);
    for (enum peak_arithmetic a = PEAK_F32; a <= PEAK_INT8; a++)
        printf(", %s %.0f", peak_arithmetic_name(a),
               bench_limits_arithmetic(report->limits, a, NULL) / 1e9);
    puts(" G/s");
    struct model_profile none;
    model_profile_init(&none, report->session->model, KV_BF16);
    const struct part_roof products = model_part_roof(&none, report->limits, FORWARD_MLP);
    printf("%s products are bound by memory below %.0f flop a byte, by arithmetic above\n",
           peak_arithmetic_name(products.arithmetic),
           products.roof.operations / bench_limits_memory(report->limits));
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static void print_heads(void)
{
    printf("    %-22s %8s %13s %16s %12s %19s  %s\n", "part", "share", "time", "work", "memory",
           "intensity", "reached of its roof");
}

static void print_line(const char *name, const struct line *line, double share)
{
    printf("    %-22s %6.1f %% %10.3f ms %10.3f GFLOP %9.2f MB", name, share, line->seconds * 1e3,
           line->operations / 1e9, line->bytes / 1e6);
    if (line->bytes > 0)
        printf(" %9.1f flop/byte", line->operations / line->bytes);
    else
        printf(" %19s", "");
    printf("  %5.1f %% of %s\n", percent(line->roof_seconds, line->seconds),
           roof_name(line->compute));
}

static double operations_of(const struct phase_result *result)
{
    double sum = 0;
    for (enum forward_part part = 0; part < FORWARD_PART_COUNT; part++)
        sum += result->counted.work[part].operations;
    return sum / result->runs;
}

/* How time and work have grown since the size before. */
static void print_growth(struct model_report *report, enum bench_phase phase, uint32_t count,
                         const struct phase_result *result)
{
    const double operations = operations_of(result);
    if (report->last[phase].count != 0)
        printf("; %.2f times the time of %" PRIu32 " for %.2f times its work",
               result->seconds / report->last[phase].seconds, report->last[phase].count,
               operations / report->last[phase].operations);
    putchar('\n');
    report->last[phase].count = count;
    report->last[phase].seconds = result->seconds;
    report->last[phase].operations = operations;
}

static void print_phase(struct model_report *report, enum bench_phase phase, uint32_t count,
                        const struct phase_result *result, const struct line *parts)
{
    const double tokens = (double)count / result->seconds, milliseconds = result->seconds * 1e3;
    char what[64];
    if (phase == PHASE_PREFILL)
        snprintf(what, sizeof what, "prefill %" PRIu32 " tokens", count);
    else
        snprintf(what, sizeof what, "decode batch %" PRIu32 ", context %" PRIu32, count,
                 report->context);
    printf("%-32s %8.1f tokens/s, %.3f ms a %s, %.4f a row", what, tokens, milliseconds,
           phase == PHASE_PREFILL ? "prompt" : "step", milliseconds / count);
    print_growth(report, phase, count, result);
    if (result->profiled == 0)
        return;
    const struct line whole = whole_line(parts, result->seconds);
    double sum = 0;
    for (enum forward_part part = 0; part < FORWARD_PART_COUNT; part++)
        sum += parts[part].seconds;
    print_heads();
    for (enum forward_part part = 0; part < FORWARD_PART_COUNT; part++)
        print_line(model_part_name(part), &parts[part], percent(parts[part].seconds, sum));
    print_line("all", &whole, 100);
    buffer_printf(&report->shares, "%s%s %" PRIu32 ": %.1f %%",
                  report->shares.size == 0 ? "" : ", ", phase_names[phase], count,
                  percent(parts[FORWARD_ATTENTION].seconds, sum));
}

void model_report_end(struct model_report *report)
{
    if (report->shares.size > 0)
        printf("attention's share: %s\n", report->shares.data);
    buffer_free(&report->shares);
}

static void put_number(struct json_writer *writer, const char *key, double value)
{
    json_key(writer, key);
    json_put_number(writer, value, DIGITS);
}

static void put_text(struct json_writer *writer, const char *key, const char *text)
{
    json_key(writer, key);
    json_put_text(writer, text);
}

static void put_roof(struct json_writer *writer, const struct line *line)
{
    put_number(writer, "flop", line->operations);
    put_number(writer, "bytes", line->bytes);
    json_key(writer, "intensity");
    if (line->bytes > 0)
        json_put_number(writer, line->operations / line->bytes, DIGITS);
    else
        json_put_null(writer);
    put_text(writer, "roof", roof_name(line->compute));
    put_number(writer, "pct_of_roof", percent(line->roof_seconds, line->seconds));
}

static void put_parts(struct json_writer *writer, const struct line *parts)
{
    double sum = 0;
    for (enum forward_part part = 0; part < FORWARD_PART_COUNT; part++)
        sum += parts[part].seconds;
    json_key(writer, "breakdown");
    json_open_array(writer);
    for (enum forward_part part = 0; part < FORWARD_PART_COUNT; part++) {
        json_open_object(writer);
        put_text(writer, "part", model_part_name(part));
        put_number(writer, "share_pct", percent(parts[part].seconds, sum));
        put_number(writer, "time_ms", parts[part].seconds * 1e3);
        put_roof(writer, &parts[part]);
        json_close_object(writer);
    }
    json_close_array(writer);
}

static void put_phase(struct model_report *report, enum bench_phase phase, uint32_t count,
                      const struct phase_result *result, const struct line *parts)
{
    struct buffer out = {0};
    struct json_writer writer;
    json_writer_init(&writer, &out);
    json_open_object(&writer);
    put_text(&writer, "phase", phase_names[phase]);
    json_key(&writer, phase == PHASE_PREFILL ? "tokens" : "batch");
    json_put_u64(&writer, count);
    put_number(&writer, "tokens_per_s", (double)count / result->seconds);
    put_number(&writer, "time_ms", result->seconds * 1e3);
    put_number(&writer, "time_per_row_ms", result->seconds * 1e3 / count);
    if (result->profiled == 0)
        put_number(&writer, "flop", operations_of(result));
    if (phase == PHASE_DECODE) {
        json_key(&writer, "context");
        json_put_u64(&writer, report->context);
    }
    json_key(&writer, "threads");
    json_put_u64(&writer, report->threads);
    json_key(&writer, "runs");
    json_put_u64(&writer, result->runs);
    put_text(&writer, "kv_dtype", report->kv_dtype);
    put_text(&writer, "backend", model_backend_text(report->session->model));
    if (result->profiled > 0) {
        const struct line whole = whole_line(parts, result->seconds);
        put_number(&writer, "memory_gb_per_s", bench_limits_memory(report->limits) / 1e9);
        put_roof(&writer, &whole);
        put_parts(&writer, parts);
    }
    json_close_object(&writer);
    buffer_add_char(&out, '\n');
    fwrite(out.data, 1, out.size, stdout);
    buffer_free(&out);
}

static void put_load(const struct load_result *result)
{
    struct buffer out = {0};
    struct json_writer writer;
    json_writer_init(&writer, &out);
    json_open_object(&writer);
    put_text(&writer, "phase", "load");
    json_key(&writer, "bytes");
    json_put_u64(&writer, result->bytes);
    put_number(&writer, "open_ms", result->open_seconds * 1e3);
    put_number(&writer, "pack_ms", result->pack_seconds * 1e3);
    put_number(&writer, "copy_ms", result->copy_seconds * 1e3);
    json_close_object(&writer);
    buffer_add_char(&out, '\n');
    fwrite(out.data, 1, out.size, stdout);
    buffer_free(&out);
}

void model_report_load(struct model_report *report, const struct load_result *result)
{
    const double bytes = (double)result->bytes;
    if (report->json)
        put_load(result);
    else
        printf("opened in %.3f s; packing %.1f MB took %.3f s, %.2f GB/s; copying them %.3f s, "
               "%.2f GB/s\n",
               result->open_seconds, bytes / 1e6, result->pack_seconds,
               bytes / result->pack_seconds / 1e9, result->copy_seconds,
               bytes / result->copy_seconds / 1e9);
    fflush(stdout);
}

void model_report_phase(struct model_report *report, enum bench_phase phase, uint32_t count,
                        const struct phase_result *result)
{
    struct line parts[FORWARD_PART_COUNT] = {0};
    for (enum forward_part part = 0; part < FORWARD_PART_COUNT && result->profiled > 0; part++)
        parts[part] = part_line(report, result, part);
    (report->json ? put_phase : print_phase)(report, phase, count, result, parts);
    fflush(stdout);
}
