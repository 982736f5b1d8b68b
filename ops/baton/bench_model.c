/* `baton bench model`: tokens per second of both phases of one model. Sampling is not in it. */
#include "ops/baton/bench_model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/config.h"
#include "ops/baton/bench_commands.h"

enum { COUNTS_MAX = 16, COUNT_MAX = 1 << 20, DEFAULT_PAGE_TOKENS = 64, LIMITS_BUDGET_MS = 25 };

struct options {
    const char *model, *prefill, *decode_batch, *isa;
    uint32_t context, threads, kv_dtype, activations, chunk_tokens, steps, runs;
    bool json, breakdown, load;
};

static const struct config_row option_rows[] = {
    {"model", CONFIG_TEXT, offsetof(struct options, model), NULL, "FILE",
     "a GGUF file or Hugging Face folder", 0, 0},
    {"prefill", CONFIG_TEXT, offsetof(struct options, prefill), "512,2048", "N,N...",
     "lengths of prompts, `none` for no prefill", 0, 0},
    {"decode-batch", CONFIG_TEXT, offsetof(struct options, decode_batch), "1,8,32", "N,N...",
     "numbers of sequences in a step, `none` for no decode", 0, 0},
    {"context", CONFIG_U32, offsetof(struct options, context), "256", "TOKENS",
     "tokens each sequence of a step has in the cache", 0, COUNT_MAX},
    {"chunk-tokens", CONFIG_U32, offsetof(struct options, chunk_tokens), "512", "N",
     "prompt tokens of one forward pass", 1, 1 << 16},
    {"steps", CONFIG_U32, offsetof(struct options, steps), "16", "N", "decode steps in a run", 1,
     1 << 16},
    {"runs", CONFIG_U32, offsetof(struct options, runs), "3", "N",
     "runs of each phase and size, the median counts", 1, 1000},
    {"threads", CONFIG_U32, offsetof(struct options, threads), "0", "N", "0: all CPUs", 0, 1024},
    {"kv-dtype", CONFIG_CHOICE, offsetof(struct options, kv_dtype), "bf16", "f32|bf16|int8",
     "type of the KV cache", 0, 0},
    {"activations", CONFIG_CHOICE, offsetof(struct options, activations), "auto",
     ACTIVATION_CHOICES, "type of the activations in products", 0, 0},
    {"isa", CONFIG_TEXT, offsetof(struct options, isa), NULL, "NAME",
     "instruction set, the CPU's best when not given", 0, 0},
    {"breakdown", CONFIG_FLAG, offsetof(struct options, breakdown), NULL, NULL,
     "where the time goes, and the roof each part stands under", 0, 0},
    {"load", CONFIG_FLAG, offsetof(struct options, load), NULL, NULL,
     "how long opening the model takes, and its packing beside a mere copy", 0, 0},
    {"json", CONFIG_FLAG, offsetof(struct options, json), NULL, NULL, "one JSON object a line", 0,
     0},
};

static const struct config_command description = {
    .program = "baton bench model",
    .summary = "Measures tokens per second of prefill and decode of a model on this machine.",
    .examples = "  baton bench model --model FILE --breakdown\n"
                "  baton bench model --model FILE --prefill 512 --decode-batch none --json\n",
    .operands = NULL,
    .rows = option_rows,
    .row_count = ARRAY_COUNT(option_rows),
};

struct counts {
    uint32_t values[COUNTS_MAX];
    uint32_t count, largest;
};

static enum status counts_parse(const char *option, const char *text, struct counts *out,
                                struct error *error)
{
    *out = (struct counts){0};
    if (strcmp(text, "none") == 0)
        return STATUS_OK;
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        const unsigned long long value = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || errno != 0 || (*end != ',' && *end != '\0') || value == 0 ||
            value > COUNT_MAX)
            return error_set(error, STATUS_INVALID,
                             "--%s is '%s', it must be numbers from 1 to %d with commas between, "
                             "or none",
                             option, text, COUNT_MAX);
        if (out->count == COUNTS_MAX)
            return error_set(error, STATUS_LIMIT, "--%s has more than %d numbers", option,
                             COUNTS_MAX);
        out->values[out->count++] = (uint32_t)value;
        out->largest = value > out->largest ? (uint32_t)value : out->largest;
        at = end;
        if (*end == '\0')
            return STATUS_OK;
    }
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Room for the longest prompt and the largest batch. */
static struct model_options model_options_of(const struct options *options,
                                             const struct counts *prefill,
                                             const struct counts *decode)
{
    const uint32_t room = decode->count > 0 ? options->context + options->steps : 0;
    const uint64_t pages = (room + DEFAULT_PAGE_TOKENS - 1) / DEFAULT_PAGE_TOKENS;
    const uint64_t batch_tokens = pages * DEFAULT_PAGE_TOKENS * decode->largest;
    const uint32_t longest = larger(larger(prefill->largest, room), 1);
    return (struct model_options){
        .path = options->model,
        .isa = options->isa,
        .activations = (enum activation_mode)options->activations,
        .kv_dtype = (enum kv_dtype)options->kv_dtype,
        .threads = options->threads,
        .page_tokens = DEFAULT_PAGE_TOKENS,
        .context_tokens = longest,
        .kv_tokens = batch_tokens > longest ? batch_tokens : longest,
        .max_rows = larger(options->chunk_tokens, decode->largest),
        .max_sequences = larger(decode->largest, 1),
    };
}

static enum status phases_run(const struct options *options, const struct counts *prefill,
                              const struct counts *decode, struct run_session *session,
                              struct model_report *report, struct error *error)
{
    const enum kv_dtype kv_dtype = (enum kv_dtype)options->kv_dtype;
    const struct phase_options phase = {.context = options->context,
                                        .step_count = options->steps,
                                        .run_count = options->runs,
                                        .breakdown = options->breakdown};
    struct phase_result result;
    for (uint32_t i = 0; i < prefill->count; i++) {
        TRY(bench_prefill(session, kv_dtype, prefill->values[i], &phase, &result, error));
        model_report_phase(report, PHASE_PREFILL, prefill->values[i], &result);
    }
    for (uint32_t i = 0; i < decode->count; i++) {
        TRY(bench_decode(session, kv_dtype, decode->values[i], &phase, &result, error));
        model_report_phase(report, PHASE_DECODE, decode->values[i], &result);
    }
    if (fflush(stdout) != 0 || ferror(stdout))
        return error_set_errno(error, STATUS_IO, "cannot write the figures");
    return STATUS_OK;
}

/* What was asked for, on an open model. */
static enum status report_run(const struct options *options, const struct counts *prefill,
                              const struct counts *decode, struct run_session *session,
                              const struct load_result *load, enum kernel_isa isa,
                              struct team *team, struct error *error)
{
    struct model_report report = {
        .limits = bench_limits_create(team, isa, LIMITS_BUDGET_MS),
        .session = session,
        .threads = team_count(team),
        .context = options->context,
        .kv_dtype = kv_dtype_name((enum kv_dtype)options->kv_dtype),
        .json = options->json,
    };
    model_report_begin(&report);
    if (options->load)
        model_report_load(&report, load);
    const enum status status = phases_run(options, prefill, decode, session, &report, error);
    model_report_end(&report);
    bench_limits_destroy(report.limits);
    return status;
}

static enum status run(const struct options *options, struct team *team, struct error *error)
{
    struct counts prefill, decode;
    struct run_session session;
    struct load_result load = {0};
    enum kernel_isa isa;
    TRY(counts_parse("prefill", options->prefill, &prefill, error));
    TRY(counts_parse("decode-batch", options->decode_batch, &decode, error));
    TRY(bench_isa(options->isa, &isa, error));
    if (prefill.count == 0 && decode.count == 0 && !options->load)
        return error_set(error, STATUS_INVALID, "neither prefill nor decode nor load is asked for");
    const struct model_options model = model_options_of(options, &prefill, &decode);
    if (options->load)
        TRY(bench_load(&model, team, options->runs, &load, error));
    TRY(run_session_open(&model, SESSION_TEXT, &session, error));
    session.chunk_tokens = options->chunk_tokens;
    const enum status status =
        report_run(options, &prefill, &decode, &session, &load, isa, team, error);
    run_session_close(&session);
    return status;
}

int bench_model(int argc, char **argv)
{
    struct options options;
    int operand;
    const int code = config_begin(&description, argc, argv, &options, &operand);
    if (code != CONFIG_GO_ON)
        return code;
    if (options.model == NULL)
        return config_misused(&description, "--model is missing");
    struct error error = {0};
    struct team *team = team_create(options.threads);
    const enum status status = run(&options, team, &error);
    team_destroy(team);
    return config_end(&description, status, &error);
}
