/* `baton eval`: logits of given token sequences, as JSON for programs and as a table for people;
 * or, with --kl, how far they are from the reference's. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/config.h"
#include "base/json.h"
#include "ops/baton/commands.h"
#include "ops/baton/eval_kl.h"
#include "ops/baton/eval_output.h"
#include "ops/baton/run_generate.h"
#include "ops/baton/run_session.h"

/* The choices stand in the order of the enum. */
_Static_assert(EVAL_KL_F32 == 0 && EVAL_KL_BF16_KV == 1, "--against f32|bf16-kv");

struct options {
    const char *model, *ids, *text, *calibrate;
    uint32_t greedy, top, threads, context, chunk_tokens, kv_dtype, activations, quantize,
        positions, against;
    bool json, all_positions, kl;
};

static const struct config_row option_rows[] = {
    {"model", CONFIG_TEXT, offsetof(struct options, model), NULL, "FILE",
     "a GGUF file or Hugging Face folder", 0, 0},
    {"ids", CONFIG_TEXT, offsetof(struct options, ids), NULL, "FILE",
     "one JSON array of token ids a line; - is standard input", 0, 0},
    {"kl", CONFIG_FLAG, offsetof(struct options, kl), NULL, NULL,
     "instead of logits, their KL divergence from a reference, in nats", 0, 0},
    {"against", CONFIG_CHOICE, offsetof(struct options, against), "f32", "f32|bf16-kv",
     "with --kl, the reference: f32 activations and KV, or the run's own activations and bf16 KV",
     0, 0},
    {"text", CONFIG_TEXT, offsetof(struct options, text), NULL, "FILE",
     "with --kl, plain text in place of --ids", 0, 0},
    {"positions", CONFIG_U32, offsetof(struct options, positions), "2000", "N",
     "with --kl, how many positions are compared", 1, EVAL_KL_POSITIONS_MAX},
    {"greedy", CONFIG_U32, offsetof(struct options, greedy), "0", "N",
     "continue every line by exactly N likeliest tokens", 0, 1e9},
    {"json", CONFIG_FLAG, offsetof(struct options, json), NULL, NULL,
     "one JSON object a line: ids, last_logits, greedy", 0, 0},
    {"top", CONFIG_U32, offsetof(struct options, top), "10", "N", "rows of the table", 1, 1000},
    {"all-positions", CONFIG_FLAG, offsetof(struct options, all_positions), NULL, NULL,
     "the logits of every position (JSON: logits), not of the last only", 0, 0},
    {"kv-dtype", CONFIG_CHOICE, offsetof(struct options, kv_dtype), "bf16", "f32|bf16|int8",
     "type of the KV cache", 0, 0},
    {"activations", CONFIG_CHOICE, offsetof(struct options, activations), "auto",
     ACTIVATION_CHOICES,
     "type of the activations in products; auto is f32 with BATON_ISA=ref, else native; the last "
     "two have coarser scales",
     0, 0},
    {"quantize", CONFIG_CHOICE, offsetof(struct options, quantize), "none", "none|int8|int4",
     "quantise weights by groups of 32: floats to 8 bits; or to 4 as far as that costs little", 0,
     0},
    {"calibrate", CONFIG_TEXT, offsetof(struct options, calibrate), NULL, "FILE",
     "with --quantize int4, text to measure the cost on; without, a built-in one", 0, 0},
    {"threads", CONFIG_U32, offsetof(struct options, threads), "0", "N", "0: all CPUs", 0, 1024},
    {"context", CONFIG_U32, offsetof(struct options, context), "0", "TOKENS",
     "context to serve, 0: the model's own", 0, 1 << 26},
    {"chunk-tokens", CONFIG_U32, offsetof(struct options, chunk_tokens), "256", "N",
     "tokens of one forward pass; does not change the result", 1, 1 << 16},
};

static const struct config_command description = {
    .program = "baton eval",
    .summary = "Prints the logits of token sequences and their greedy continuation.",
    .examples = "  echo '[504, 3575, 282]' | baton eval --model FILE --ids -\n"
                "  BATON_ISA=ref baton eval --model FILE --ids ids.jsonl --kv-dtype f32 --json\n"
                "  baton eval --model FILE --kl --text book.txt --kv-dtype bf16\n",
    .operands = NULL,
    .rows = option_rows,
    .row_count = ARRAY_COUNT(option_rows),
};

/* One run over the file. */
struct evaluation {
    const struct options *options;
    struct run_session session;
    struct eval_output output;
    struct eval_kl *kl; /* NULL: logits are printed */
    uint64_t line;      /* number of the current one, from 1 */
};

static enum status line_error(const struct evaluation *evaluation, enum status status,
                              struct error *error, const char *text)
{
    return error_set(error, status, "%s line %" PRIu64 ": %s", evaluation->options->ids,
                     evaluation->line, text);
}

/* Checks one parsed line and appends its ids. */
static enum status read_ids(const struct evaluation *evaluation, const struct json *array,
                            struct token_list *ids, struct error *error)
{
    const struct model_info *info = model_info(evaluation->session.model);
    char text[160];
    if (json_kind(array) != JSON_ARRAY)
        return line_error(evaluation, STATUS_INVALID, error, "it is not an array of token ids");
    const size_t count = json_count(array);
    if (count == 0)
        return line_error(evaluation, STATUS_INVALID, error, "it holds no ids");
    if (count > info->context_tokens) {
        snprintf(text, sizeof text, "it holds %zu ids, the context is %" PRIu32, count,
                 info->context_tokens);
        return line_error(evaluation, STATUS_LIMIT, error, text);
    }
    for (size_t i = 0; i < count; i++) {
        const struct json *item = json_at(array, i);
        if (json_kind(item) != JSON_INT) {
            snprintf(text, sizeof text, "item %zu is %s, not a token id", i,
                     json_kind_name(json_kind(item)));
            return line_error(evaluation, STATUS_INVALID, error, text);
        }
        const int64_t id = json_int(item);
        if (id < 0 || id >= (int64_t)info->vocab_count) {
            snprintf(text, sizeof text, "item %zu is %" PRId64 ", ids are from 0 to %" PRIu32, i,
                     id, info->vocab_count - 1);
            return line_error(evaluation, STATUS_INVALID, error, text);
        }
        token_list_add(ids, (int32_t)id);
    }
    return STATUS_OK;
}

static void on_logits(void *arg, uint32_t position, const float *logits)
{
    struct evaluation *evaluation = arg;
    eval_output_position(&evaluation->output, position, logits);
}

static bool collect_token(void *arg, int32_t id)
{
    token_list_add(arg, id);
    return true;
}

static enum status continue_ids(struct evaluation *evaluation, struct sequence *sequence,
                                const float *logits, struct token_list *continuation,
                                struct error *error)
{
    const struct generation generation = {
        .max_tokens = evaluation->options->greedy,
        .sampling = {.top_p = 1.0f},
        .on_token = collect_token,
        .arg = continuation,
    };
    struct generated generated;
    return sequence_generate(sequence, logits, &generation, &generated, error);
}

static enum status check_room(const struct evaluation *evaluation, size_t count,
                              struct error *error)
{
    const uint32_t context = model_info(evaluation->session.model)->context_tokens;
    const uint32_t greedy = evaluation->options->greedy;
    char text[160];
    if (count + greedy <= context)
        return STATUS_OK;
    snprintf(text, sizeof text, "%zu ids and %" PRIu32 " more are over the context of %" PRIu32,
             count, greedy, context);
    return line_error(evaluation, STATUS_LIMIT, error, text);
}

static enum status evaluate_ids(struct evaluation *evaluation, const struct token_list *ids,
                                struct error *error)
{
    const struct options *options = evaluation->options;
    const struct feed_hooks hooks = {.on_logits = options->all_positions ? on_logits : NULL,
                                     .arg = evaluation};
    const uint32_t count = (uint32_t)ids->count;
    struct token_list continuation = {0};
    struct sequence sequence;
    const float *logits = NULL;
    TRY(check_room(evaluation, ids->count, error));
    TRY(sequence_open(&evaluation->session, count + options->greedy, &sequence, error));
    eval_output_begin(&evaluation->output, evaluation->line, count);
    enum status status = sequence_feed(&sequence, ids->ids, count, &hooks, &logits, error);
    if (status == STATUS_OK)
        eval_output_last(&evaluation->output, logits);
    if (status == STATUS_OK && options->greedy > 0)
        status = continue_ids(evaluation, &sequence, logits, &continuation, error);
    sequence_close(&sequence);
    if (status == STATUS_OK)
        status = eval_output_end(&evaluation->output, &continuation, error);
    token_list_free(&continuation);
    return status;
}

static enum status evaluate_line(struct evaluation *evaluation, const char *line, size_t bytes,
                                 struct error *error)
{
    struct json *array;
    struct error cause = {0};
    struct token_list ids = {0};
    const enum status parsed = json_parse(line, bytes, &array, &cause);
    if (parsed != STATUS_OK)
        return line_error(evaluation, parsed, error, cause.text);
    enum status status = read_ids(evaluation, array, &ids, error);
    json_free(array);
    if (status == STATUS_OK)
        status = evaluation->kl != NULL ? eval_kl_add(evaluation->kl, ids.ids, ids.count, error)
                                        : evaluate_ids(evaluation, &ids, error);
    token_list_free(&ids);
    return status;
}

/* Blank lines are passed over. */
static enum status evaluate_file(struct evaluation *evaluation, FILE *file, struct error *error)
{
    char *line = NULL;
    size_t capacity = 0;
    enum status status = STATUS_OK;
    ssize_t bytes;
    errno = 0;
    while (status == STATUS_OK && (bytes = getline(&line, &capacity, file)) >= 0) {
        evaluation->line++;
        if (strspn(line, " \t\r\n") < (size_t)bytes)
            status = evaluate_line(evaluation, line, (size_t)bytes, error);
    }
    if (status == STATUS_OK && ferror(file))
        status = error_set_errno(error, STATUS_IO, "cannot read %s", evaluation->options->ids);
    free(line);
    return status;
}

static enum status evaluate_kl(struct evaluation *evaluation, const struct model_options *model,
                               FILE *file, struct error *error)
{
    const struct options *options = evaluation->options;
    TRY(eval_kl_open(&evaluation->session, model, (enum eval_kl_reference)options->against,
                     options->positions, &evaluation->kl, error));
    enum status status = file != NULL ? evaluate_file(evaluation, file, error)
                                      : eval_kl_add_text(evaluation->kl, options->text, error);
    if (status == STATUS_OK)
        status = eval_kl_print(evaluation->kl, options->json, error);
    eval_kl_close(evaluation->kl);
    return status;
}

static enum status evaluate_logits(struct evaluation *evaluation, FILE *file, struct error *error)
{
    const struct options *options = evaluation->options;
    const struct model_info *info = model_info(evaluation->session.model);
    eval_output_init(&evaluation->output, evaluation->session.text, info->vocab_count, options->top,
                     options->json);
    if (!options->json)
        printf("%s, %s\n", info->name, model_backend_text(evaluation->session.model));
    const enum status status = evaluate_file(evaluation, file, error);
    eval_output_free(&evaluation->output);
    return status;
}

/* file: the token ids; NULL for --text. */
static enum status evaluate(const struct options *options, FILE *file, struct error *error)
{
    const struct model_options model = {
        .path = options->model,
        .activations = (enum activation_mode)options->activations,
        .quantize = (enum model_quantize)options->quantize,
        .calibrate = options->calibrate,
        .kv_dtype = (enum kv_dtype)options->kv_dtype,
        .threads = options->threads,
        .context_tokens = options->context,
        .max_rows = options->chunk_tokens,
        .max_logit_rows = options->all_positions || options->kl ? options->chunk_tokens : 1,
    };
    struct evaluation evaluation = {.options = options};
    const enum session_text text = options->text == NULL ? SESSION_TEXT_IF_THERE : SESSION_TEXT;
    TRY(run_session_open(&model, text, &evaluation.session, error));
    const enum status status = options->kl ? evaluate_kl(&evaluation, &model, file, error)
                                           : evaluate_logits(&evaluation, file, error);
    run_session_close(&evaluation.session);
    return status;
}

/* What is wrong with options that are right one by one; NULL for nothing. */
static const char *options_complaint(const struct options *options)
{
    if (options->model == NULL)
        return "--model is missing";
    if (options->text != NULL && !options->kl)
        return "--text is for --kl only";
    if (options->ids != NULL && options->text != NULL)
        return "--ids and --text exclude each other";
    if (options->ids == NULL && options->text == NULL)
        return options->kl ? "--ids or --text is missing" : "--ids is missing";
    return NULL;
}

int command_eval(int argc, char **argv)
{
    struct options options;
    int operand;
    const int code = config_begin(&description, argc, argv, &options, &operand);
    if (code != CONFIG_GO_ON)
        return code;
    const char *complaint = options_complaint(&options);
    if (complaint != NULL)
        return config_misused(&description, "%s", complaint);
    const bool standard_input = options.ids != NULL && strcmp(options.ids, "-") == 0;
    FILE *file = standard_input ? stdin : options.ids != NULL ? fopen(options.ids, "r") : NULL;
    if (file == NULL && options.ids != NULL) {
        fprintf(stderr, "baton eval: cannot open %s: %s\n", options.ids, strerror(errno));
        return 1;
    }
    struct error error = {0};
    const enum status status = evaluate(&options, file, &error);
    if (file != NULL && !standard_input)
        fclose(file);
    return config_end(&description, status, &error);
}
