/* `baton bench transfer`: real hand-offs between two processes, beside raw active messages of the
 * same sizes in the same run. */
#include "ops/baton/bench_transfer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/config.h"
#include "base/json.h"
#include "ops/baton/bench_commands.h"
#include "ops/baton/bench_time.h"

enum { RUNS_MAX = 101, REGION_BYTES_MAX = 1 << 30, DIGITS = 6 };

struct options {
    uint32_t transport, pages, layers, handoffs, runs;
    uint64_t page_bytes;
    bool scatter, json;
};

static const struct config_row option_rows[] = {
    {"transport", CONFIG_CHOICE, offsetof(struct options, transport), "tcp", "tcp|shm|loopback|tls",
     "tcp and shm: UCX; loopback: two threads and copies; tls: sockets with TLS", 0, 0},
    {"page-bytes", CONFIG_BYTES, offsetof(struct options, page_bytes), "64K", NULL,
     "bytes of a page in one layer", 64, 4 << 20},
    {"pages", CONFIG_U32, offsetof(struct options, pages), "64", "N", "pages of a hand-off", 1,
     65536},
    {"layers", CONFIG_U32, offsetof(struct options, layers), "8", "N", "layers of a page", 1, 1024},
    {"handoffs", CONFIG_U32, offsetof(struct options, handoffs), "4", "N",
     "hand-offs at the same time", 1, TRANSFER_HANDOFFS_MAX},
    {"runs", CONFIG_U32, offsetof(struct options, runs), "7", "N",
     "runs of each part, turn by turn; the median counts", 1, RUNS_MAX},
    {"scatter", CONFIG_FLAG, offsetof(struct options, scatter), NULL, NULL,
     "pages lie anywhere: no two that follow each other are neighbours", 0, 0},
    {"json", CONFIG_FLAG, offsetof(struct options, json), NULL, NULL, "one JSON object", 0, 0},
};

static const struct config_command description = {
    .program = "baton bench transfer",
    .summary = "Measures hand-offs of KV pages between two processes of this machine.",
    .examples = "  baton bench transfer --transport tcp --page-bytes 64K --pages 64\n"
                "  baton bench transfer --transport shm --page-bytes 4K --scatter --json\n",
    .operands = NULL,
    .rows = option_rows,
    .row_count = ARRAY_COUNT(option_rows),
};

static const char *const transports[] = {"tcp", "shm", "loopback", "tls"};
enum { TRANSPORT_TCP, TRANSPORT_SHM, TRANSPORT_LOOPBACK, TRANSPORT_TLS };

/* What the runs of one part gave. */
struct series {
    double speed[RUNS_MAX], cpu_per_gb[RUNS_MAX], round_trip_ns[RUNS_MAX], late_ns[RUNS_MAX];
    uint64_t bytes, messages;
};

struct report {
    const struct options *options;
    struct series series[TRANSFER_PART_COUNT];
    size_t message_bytes;
    enum transfer_part raw_part;
    double raw, plain, checked, checksum; /* GB/s */
    double limit;                         /* of checked: 1 / (1 / raw + 1 / checksum) */
    double round_trip_us, raw_round_trip_us;
};

/* ---- measuring ---- */

static enum status plan_make(const struct options *options, struct transfer_plan *plan,
                             struct error *error)
{
    const char *names = "";
    const char *mover = options->transport == TRANSPORT_LOOPBACK ? "loopback"
                        : options->transport == TRANSPORT_TLS    ? "tls"
                                                                 : "ucx";
    *plan = (struct transfer_plan){
        .ops = mover_by_name(mover, &names),
        .threads = options->transport == TRANSPORT_LOOPBACK,
        .has_raw = options->transport != TRANSPORT_LOOPBACK && mover_by_name("ucx", NULL) != NULL,
        .scatter = options->scatter,
        .pages = options->pages,
        .layers = options->layers,
        .handoffs = options->handoffs,
        .page_bytes = (size_t)options->page_bytes,
    };
    const uint64_t bytes =
        options->page_bytes * options->pages * options->layers * options->handoffs;
    if (plan->ops == NULL)
        return error_set(error, STATUS_UNSUPPORTED, "the mover %s is not built in, there is: %s",
                         mover, names);
    if ((uint64_t)options->pages * options->layers > REGION_BYTES_MAX || bytes > REGION_BYTES_MAX)
        return error_set(error, STATUS_LIMIT,
                         "%" PRIu32 " hand-offs of %" PRIu32 " pages of %" PRIu64
                         " bytes in %" PRIu32 " layers take more than %d MiB at each end",
                         options->handoffs, options->pages, options->page_bytes, options->layers,
                         REGION_BYTES_MAX >> 20);
    /* Before UCX reads them. What the user has set stays. */
    if (options->transport == TRANSPORT_SHM)
        CHECK(setenv("UCX_TLS", "posix,sysv,tcp,self", 0) == 0 &&
              setenv("UCX_MM_ERROR_HANDLING", "y", 0) == 0);
    return STATUS_OK;
}

static enum status part_run(struct transfer_pair *pair, struct report *report,
                            enum transfer_part part, uint32_t run, struct error *error)
{
    struct series *series = &report->series[part];
    struct transfer_figures figures;
    TRY(transfer_pair_run(pair, part, report->message_bytes, &figures, error));
    const double gb = (double)figures.bytes * 1e-9;
    series->speed[run] = gb / figures.seconds;
    series->cpu_per_gb[run] = gb > 0 ? figures.cpu_seconds / gb : 0;
    series->round_trip_ns[run] = figures.round_trip_ns;
    series->late_ns[run] = figures.late_ns;
    series->bytes += figures.bytes;
    series->messages += figures.messages;
    return STATUS_OK;
}

static enum status measure(const struct transfer_plan *plan, struct transfer_pair *pair,
                           struct report *report, struct error *error)
{
    const uint32_t runs = report->options->runs;
    /* To warm up, and to see how large the messages become. */
    TRY(part_run(pair, report, TRANSFER_CHECKED, 0, error));
    TRY(part_run(pair, report, TRANSFER_PLAIN, 0, error));
    const struct series *plain = &report->series[TRANSFER_PLAIN];
    report->message_bytes = (size_t)(plain->bytes / plain->messages);
    for (uint32_t run = 0; run < runs; run++) {
        if (plan->has_raw) {
            TRY(part_run(pair, report, TRANSFER_RAW, run, error));
            if (!plan->scatter)
                TRY(part_run(pair, report, TRANSFER_RAW_RENDEZVOUS, run, error));
        }
        TRY(part_run(pair, report, TRANSFER_PLAIN, run, error));
        TRY(part_run(pair, report, TRANSFER_CHECKED, run, error));
        if (plan->has_raw)
            TRY(part_run(pair, report, TRANSFER_RALLY_RAW, run, error));
        TRY(part_run(pair, report, TRANSFER_RALLY, run, error));
    }
    return STATUS_OK;
}

static void conclude(const struct transfer_plan *plan, struct report *report)
{
    const uint32_t runs = report->options->runs;
    struct series *series = report->series;
    report->raw =
        transfer_copy_speed(plan, plan->scatter ? plan->page_bytes : report->message_bytes);
    if (plan->has_raw) { /* whichever way is the faster one */
        const double eager = bench_median(series[TRANSFER_RAW].speed, runs);
        const double rendezvous = bench_median(series[TRANSFER_RAW_RENDEZVOUS].speed, runs);
        report->raw_part = rendezvous > eager ? TRANSFER_RAW_RENDEZVOUS : TRANSFER_RAW;
        report->raw = rendezvous > eager ? rendezvous : eager;
    }
    report->plain = bench_median(series[TRANSFER_PLAIN].speed, runs);
    report->checked = bench_median(series[TRANSFER_CHECKED].speed, runs);
    report->checksum = transfer_checksum_speed(plan);
    report->limit = 1 / (1 / report->raw + 1 / report->checksum);
    report->round_trip_us = bench_median(series[TRANSFER_RALLY].round_trip_ns, runs) * 1e-3;
    if (plan->has_raw)
        report->raw_round_trip_us =
            bench_median(series[TRANSFER_RALLY_RAW].round_trip_ns, runs) * 1e-3;
}

/* ---- telling ---- */

static double cpu_of(struct report *report, enum transfer_part part)
{
    return bench_median(report->series[part].cpu_per_gb, report->options->runs);
}

static double late_us_of(struct report *report, enum transfer_part part)
{
    return bench_median(report->series[part].late_ns, report->options->runs) * 1e-3;
}

static void print_text(const struct transfer_plan *plan, struct report *report)
{
    const struct options *o = report->options;
    printf("%" PRIu32 " hand-offs of %" PRIu32 " pages, %" PRIu32 " layers of %" PRIu64
           " bytes%s, over %s; messages of %zu bytes\n\n",
           o->handoffs, o->pages, o->layers, o->page_bytes, o->scatter ? ", scattered" : "",
           transports[o->transport], report->message_bytes);
    if (plan->has_raw)
        printf("raw active messages    %7.2f GB/s %-26s %6.3f CPU s/GB\n", report->raw,
               report->raw_part == TRANSFER_RAW ? "eager" : "rendezvous",
               cpu_of(report, report->raw_part));
    else
        printf("copies of one thread   %7.2f GB/s\n", report->raw);
    printf("hand-off, no checksum  %7.2f GB/s %5.1f %% of raw %12s %6.3f CPU s/GB\n", report->plain,
           100 * report->plain / report->raw, "", cpu_of(report, TRANSFER_PLAIN));
    printf("hand-off, crc32c       %7.2f GB/s %5.1f %% of %.2f GB/s %8s %6.3f CPU s/GB\n",
           report->checked, 100 * report->checked / report->limit, report->limit, "",
           cpu_of(report, TRANSFER_CHECKED));
    printf("crc32c alone           %7.2f GB/s\n", report->checksum);
    printf("other work waits       %7.0f us at most without checksums, %.0f us with them\n",
           late_us_of(report, TRANSFER_PLAIN), late_us_of(report, TRANSFER_CHECKED));
    printf("control round trip     %7.2f us", report->round_trip_us);
    if (plan->has_raw)
        printf("   %5.2f x raw, which takes %.2f us",
               report->round_trip_us / report->raw_round_trip_us, report->raw_round_trip_us);
    printf("\n\nThe limit of a hand-off with checksums is 1 / (1 / raw + 1 / crc32c).\n");
}

static void put_number(struct json_writer *writer, const char *key, double value)
{
    json_key(writer, key);
    json_put_number(writer, value, DIGITS);
}

static void put_options(struct json_writer *writer, const struct report *report)
{
    const struct options *o = report->options;
    json_key(writer, "transport");
    json_put_text(writer, transports[o->transport]);
    put_number(writer, "page_bytes", (double)o->page_bytes);
    put_number(writer, "pages", o->pages);
    put_number(writer, "layers", o->layers);
    put_number(writer, "handoffs", o->handoffs);
    put_number(writer, "runs", o->runs);
    json_key(writer, "scatter");
    json_put_bool(writer, o->scatter);
    put_number(writer, "message_bytes", (double)report->message_bytes);
}

static void print_json(const struct transfer_plan *plan, struct report *report)
{
    struct buffer out = {0};
    struct json_writer writer;
    json_writer_init(&writer, &out);
    json_open_object(&writer);
    put_options(&writer, report);
    put_number(&writer, "raw_gb_per_s", report->raw);
    put_number(&writer, "plain_gb_per_s", report->plain);
    put_number(&writer, "plain_of_raw", report->plain / report->raw);
    put_number(&writer, "crc32c_gb_per_s", report->checksum);
    put_number(&writer, "checked_gb_per_s", report->checked);
    put_number(&writer, "checked_limit_gb_per_s", report->limit);
    put_number(&writer, "checked_of_limit", report->checked / report->limit);
    put_number(&writer, "plain_cpu_s_per_gb", cpu_of(report, TRANSFER_PLAIN));
    put_number(&writer, "checked_cpu_s_per_gb", cpu_of(report, TRANSFER_CHECKED));
    put_number(&writer, "plain_late_us", late_us_of(report, TRANSFER_PLAIN));
    put_number(&writer, "checked_late_us", late_us_of(report, TRANSFER_CHECKED));
    put_number(&writer, "round_trip_us", report->round_trip_us);
    if (plan->has_raw) {
        put_number(&writer, "raw_cpu_s_per_gb", cpu_of(report, report->raw_part));
        put_number(&writer, "raw_round_trip_us", report->raw_round_trip_us);
        put_number(&writer, "round_trip_of_raw", report->round_trip_us / report->raw_round_trip_us);
    }
    json_close_object(&writer);
    buffer_add(&out, "\n", 1);
    fwrite(out.data, 1, out.size, stdout);
    buffer_free(&out);
}

static enum status run(const struct options *options, struct error *error)
{
    struct transfer_plan plan;
    struct transfer_pair *pair;
    TRY(plan_make(options, &plan, error));
    struct report *report = calloc(1, sizeof *report);
    CHECK(report != NULL);
    report->options = options;
    enum status status = transfer_pair_start(&plan, &pair, error);
    if (status == STATUS_OK) {
        status = measure(&plan, pair, report, error);
        transfer_pair_end(pair);
    }
    if (status == STATUS_OK) {
        conclude(&plan, report);
        if (options->json)
            print_json(&plan, report);
        else
            print_text(&plan, report);
        if (fflush(stdout) != 0 || ferror(stdout))
            status = error_set_errno(error, STATUS_IO, "cannot write the figures");
    }
    free(report);
    return status;
}

int bench_transfer(int argc, char **argv)
{
    struct options options;
    int operand;
    const int code = config_begin(&description, argc, argv, &options, &operand);
    if (code != CONFIG_GO_ON)
        return code;
    struct error error = {0};
    return config_end(&description, run(&options, &error), &error);
}
