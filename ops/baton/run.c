/* `baton run`: one prompt, one process. The same parameters give the same bytes as the cluster. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/config.h"
#include "base/json.h"
#include "base/random.h"
#include "model/text/jinja/jinja.h"
#include "ops/baton/chat_messages.h"
#include "ops/baton/commands.h"
#include "ops/baton/run_generate.h"
#include "ops/baton/run_grammar.h"
#include "ops/baton/run_session.h"

enum {
    RAW_MAX_TOKENS = 16,         /* what /v1/completions takes when max_tokens is not given */
    PROMPT_BYTES_MAX = 64 << 20, /* of standard input */
    PROMPT_TOKENS_MAX = 1 << 24, /* held while encoding; the context is the real limit */
    EXIT_INTERRUPTED = 130,      /* 128 + SIGINT, as shells expect */
};

struct options {
    const char *model, *system, *chat_template, *seed, *calibrate, *json_schema, *regex, *grammar;
    bool raw, stats;
    uint32_t max_tokens, min_tokens, threads, context, chunk_tokens, kv_dtype, activations,
        quantize, top_k;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
};

static const struct config_row option_rows[] = {
    {"model", CONFIG_TEXT, offsetof(struct options, model), NULL, "FILE",
     "a GGUF file or Hugging Face folder", 0, 0},
    {"raw", CONFIG_FLAG, offsetof(struct options, raw), NULL, NULL,
     "continue the bare text instead of answering it as a chat message", 0, 0},
    {"system", CONFIG_TEXT, offsetof(struct options, system), NULL, "TEXT",
     "system message, the model's own when not given", 0, 0},
    {"chat-template", CONFIG_TEXT, offsetof(struct options, chat_template), NULL, "FILE",
     "Jinja template of the chat, instead of the model's own", 0, 0},
    {"max-tokens", CONFIG_U32, offsetof(struct options, max_tokens), "0", "N",
     "tokens of the answer; 0: 16 with --raw, else what the context has room for", 0, 1e9},
    {"temperature", CONFIG_F64, offsetof(struct options, temperature), "0", "T",
     "0 takes the likeliest token always", 0, 2},
    {"top-k", CONFIG_U32, offsetof(struct options, top_k), "0", "K",
     "only the K likeliest tokens, 0: off", 0, 1e9},
    {"top-p", CONFIG_F64, offsetof(struct options, top_p), "1", "P",
     "only the likeliest tokens with this much probability together", 1e-9, 1},
    {"min-p", CONFIG_F64, offsetof(struct options, min_p), "0", "P",
     "only tokens at least P times as likely as the likeliest", 0, 1},
    {"repetition-penalty", CONFIG_F64, offsetof(struct options, repetition_penalty), "1", "R",
     "logits of tokens in prompt or answer, divided by R (multiplied below zero)", 1e-6, 1e6},
    {"presence-penalty", CONFIG_F64, offsetof(struct options, presence_penalty), "0", "P",
     "taken from the logits of tokens in the answer", -2, 2},
    {"frequency-penalty", CONFIG_F64, offsetof(struct options, frequency_penalty), "0", "F",
     "the same, for each time they are there", -2, 2},
    {"min-tokens", CONFIG_U32, offsetof(struct options, min_tokens), "0", "N",
     "no end of the answer before N tokens", 0, 1e9},
    {"json-schema", CONFIG_TEXT, offsetof(struct options, json_schema), NULL, "FILE",
     "the answer is a JSON document that this schema describes", 0, 0},
    {"regex", CONFIG_TEXT, offsetof(struct options, regex), NULL, "PATTERN",
     "the answer as a whole matches this regular expression", 0, 0},
    {"grammar", CONFIG_TEXT, offsetof(struct options, grammar), NULL, "FILE",
     "the answer follows these rules, as llama.cpp writes them", 0, 0},
    {"seed", CONFIG_TEXT, offsetof(struct options, seed), NULL, "N",
     "of the draws; a random one when not given", 0, 0},
    {"quantize", CONFIG_CHOICE, offsetof(struct options, quantize), "none", "none|int8|int4",
     "quantise weights by groups of 32: floats to 8 bits; or to 4 as far as that costs little", 0,
     0},
    {"calibrate", CONFIG_TEXT, offsetof(struct options, calibrate), NULL, "FILE",
     "with --quantize int4, text to measure the cost on; without, a built-in one", 0, 0},
    {"kv-dtype", CONFIG_CHOICE, offsetof(struct options, kv_dtype), "bf16", "f32|bf16|int8",
     "type of the KV cache", 0, 0},
    {"activations", CONFIG_CHOICE, offsetof(struct options, activations), "auto",
     ACTIVATION_CHOICES, "how activations enter products; the last two are faster and less exact",
     0, 0},
    {"threads", CONFIG_U32, offsetof(struct options, threads), "0", "N", "0: all CPUs", 0, 1024},
    {"context", CONFIG_U32, offsetof(struct options, context), "0", "TOKENS",
     "context to serve, 0: the model's own", 0, 1 << 26},
    {"chunk-tokens", CONFIG_U32, offsetof(struct options, chunk_tokens), "256", "N",
     "prompt tokens of one forward pass; does not change the answer", 1, 1 << 16},
    {"stats", CONFIG_FLAG, offsetof(struct options, stats), NULL, NULL,
     "speeds on standard error (there anyway when that is a terminal)", 0, 0},
};

static const struct config_command description = {
    .program = "baton run",
    .summary = "Answers one prompt in this process, without a cluster.",
    .examples = "  baton run --model FILE \"What is a relay race?\"\n"
                "  baton run --model FILE --raw --max-tokens 64 \"Once upon a time\"\n"
                "  baton run --model FILE - < question.txt\n",
    .operands = "PROMPT (- reads standard input)",
    .rows = option_rows,
    .row_count = ARRAY_COUNT(option_rows),
};

static volatile sig_atomic_t interrupt_seen;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupt_seen = 1;
}

static bool interrupted(void *arg)
{
    (void)arg;
    return interrupt_seen != 0;
}

/* Where the answer goes. */
struct printer {
    struct text_stream stream;
    struct buffer pending;
    bool failed;
};

static void printer_flush(struct printer *printer)
{
    if (printer->pending.size == 0)
        return;
    if (fwrite(printer->pending.data, 1, printer->pending.size, stdout) != printer->pending.size ||
        fflush(stdout) != 0)
        printer->failed = true;
    buffer_clear(&printer->pending);
}

static bool print_token(void *arg, int32_t id)
{
    struct printer *printer = arg;
    text_stream_push(&printer->stream, id, &printer->pending);
    printer_flush(printer);
    return !printer->failed;
}

static enum status read_prompt(const char *operand, struct buffer *prompt, struct error *error)
{
    if (strcmp(operand, "-") != 0) {
        buffer_add_text(prompt, operand);
        return STATUS_OK;
    }
    char piece[4096];
    size_t got;
    while ((got = fread(piece, 1, sizeof piece, stdin)) > 0) {
        if (prompt->size + got > PROMPT_BYTES_MAX)
            return error_set(error, STATUS_LIMIT, "the prompt is longer than %d bytes",
                             PROMPT_BYTES_MAX);
        buffer_add(prompt, piece, got);
    }
    if (ferror(stdin))
        return error_set_errno(error, STATUS_IO, "cannot read standard input");
    return STATUS_OK;
}

static enum status parse_seed(const char *text, uint64_t *seed_out, struct error *error)
{
    if (text == NULL) {
        *seed_out = random_os_u64();
        return STATUS_OK;
    }
    char *end;
    errno = 0;
    const bool negative = text[0] == '-';
    const int64_t below = negative ? strtoll(text, &end, 10) : 0;
    const uint64_t above = negative ? 0 : strtoull(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0)
        return error_set(error, STATUS_INVALID, "--seed is '%s', it must be a 64-bit integer",
                         text);
    *seed_out = negative ? (uint64_t)below : above;
    return STATUS_OK;
}

/* A chat message through the model's template, as the endpoint does it. */
static enum status encode_message(const struct run_session *session, const struct options *options,
                                  const struct buffer *prompt, struct token_list *ids,
                                  struct error *error)
{
    struct buffer text = {0};
    struct json_writer writer;
    struct json *messages = NULL;
    struct jinja *template = NULL;
    json_writer_init(&writer, &text);
    chat_messages_put(&writer, options->system, prompt);
    enum status status = json_parse(text.data, text.size, &messages, error);
    if (status == STATUS_OK && options->chat_template != NULL)
        status = jinja_open(options->chat_template, &template, error);
    if (status == STATUS_OK) {
        const struct chat_input input = {.messages = messages,
                                         .template = template,
                                         .add_generation_prompt = true,
                                         .now_s = (int64_t)time(NULL)};
        status = text_encode_chat(session->text, &input, PROMPT_TOKENS_MAX, ids, error);
    }
    jinja_free(template);
    json_free(messages);
    buffer_free(&text);
    return status;
}

/* As the endpoints do it: a chat message, or the text with the tokenizer's bos. */
static enum status encode_prompt(const struct run_session *session, const struct options *options,
                                 const struct buffer *prompt, struct token_list *ids,
                                 struct error *error)
{
    if (!options->raw)
        return encode_message(session, options, prompt, ids, error);
    const struct text_info *info = text_info(session->text);
    if (info->add_bos && info->bos >= 0)
        token_list_add(ids, info->bos);
    return text_encode(session->text, prompt->size == 0 ? "" : prompt->data, prompt->size, false,
                       PROMPT_TOKENS_MAX, ids, error);
}

static double per_second(uint64_t count, uint64_t ns)
{
    return ns == 0 ? 0.0 : (double)count * 1e9 / (double)ns;
}

static void print_stats(const struct run_session *session, uint32_t prompt_count,
                        const struct sampling *sampling, const struct generated *result)
{
    static const char *const ends[] = {
        [END_EOS] = "end of answer", [END_LENGTH] = "length", [END_STOPPED] = "interrupted"};
    const struct model_info *info = model_info(session->model);
    fprintf(stderr, "%s, %s\n", info->name, model_backend_text(session->model));
    fprintf(stderr,
            "prompt %" PRIu32 " tokens at %.1f tokens/s, first token after %.1f ms, answer %" PRIu32
            " tokens",
            prompt_count, per_second(prompt_count, result->first_token_ns),
            (double)result->first_token_ns / 1e6, result->token_count);
    if (result->token_count > 1)
        fprintf(stderr, " at %.1f tokens/s",
                per_second(result->token_count - 1, result->decode_ns));
    fprintf(stderr, ", ended by %s", ends[result->end]);
    if (sampling->temperature > 0.0f)
        fprintf(stderr, ", seed %" PRIu64, sampling->seed);
    fputc('\n', stderr);
}

static enum status answer(struct run_session *session, const struct options *options,
                          const struct token_list *ids, uint64_t seed,
                          struct grammar_program *grammar, struct error *error)
{
    struct printer printer = {0};
    text_stream_init(&printer.stream, session->text, true);
    const struct generation generation = {
        .max_tokens = options->max_tokens != 0 ? options->max_tokens
                      : options->raw           ? RAW_MAX_TOKENS
                                               : UINT32_MAX,
        .sampling = {.temperature = (float)options->temperature,
                     .top_p = (float)options->top_p,
                     .min_p = (float)options->min_p,
                     .top_k = (int32_t)options->top_k,
                     .seed = seed,
                     .repetition_penalty = (float)options->repetition_penalty,
                     .presence_penalty = (float)options->presence_penalty,
                     .frequency_penalty = (float)options->frequency_penalty,
                     .min_tokens = options->min_tokens},
        .stop_at_eos = true,
        .grammar = grammar,
        .on_token = print_token,
        .interrupted = interrupted,
        .arg = &printer,
    };
    const uint32_t prompt_count = (uint32_t)ids->count;
    struct generated result = {0};
    enum status status = generate(session, ids->ids, prompt_count, &generation, &result, error);
    text_stream_finish(&printer.stream, &printer.pending);
    printer_flush(&printer);
    buffer_free(&printer.pending);
    if (status != STATUS_OK)
        return status;
    if (printer.failed)
        return error_set_errno(error, STATUS_IO, "cannot write the answer");
    if (isatty(STDOUT_FILENO))
        putchar('\n');
    if (options->stats || isatty(STDERR_FILENO))
        print_stats(session, prompt_count, &generation.sampling, &result);
    return result.end == END_STOPPED ? STATUS_CANCELED : STATUS_OK;
}

static enum status encode_and_answer(struct run_session *session, const struct options *options,
                                     const struct buffer *prompt, uint64_t seed,
                                     struct error *error)
{
    struct token_list ids = {0};
    struct run_grammar grammar;
    TRY(run_grammar_open(session->text, options->json_schema, options->regex, options->grammar,
                         &grammar, error));
    enum status status = encode_prompt(session, options, prompt, &ids, error);
    if (status == STATUS_OK && ids.count == 0)
        status = error_set(error, STATUS_INVALID, "the prompt is empty");
    if (status == STATUS_OK)
        status = answer(session, options, &ids, seed, grammar.program, error);
    run_grammar_close(&grammar);
    token_list_free(&ids);
    return status;
}

static enum status run(const struct options *options, uint64_t seed, const char *operand,
                       struct error *error)
{
    struct buffer prompt = {0};
    struct run_session session;
    enum status status = read_prompt(operand, &prompt, error);
    if (status == STATUS_OK) {
        const struct model_options model = {
            .path = options->model,
            .activations = (enum activation_mode)options->activations,
            .kv_dtype = (enum kv_dtype)options->kv_dtype,
            .quantize = (enum model_quantize)options->quantize,
            .calibrate = options->calibrate,
            .threads = options->threads,
            .context_tokens = options->context,
            .max_rows = options->chunk_tokens,
        };
        status = run_session_open(&model, SESSION_TEXT, &session, error);
    }
    if (status == STATUS_OK) {
        /* The second Ctrl-C ends the process the hard way. */
        const struct sigaction on_signal = {.sa_handler = on_interrupt,
                                            .sa_flags = (int)SA_RESETHAND};
        CHECK(sigaction(SIGINT, &on_signal, NULL) == 0);
        CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
        status = encode_and_answer(&session, options, &prompt, seed, error);
        run_session_close(&session);
    }
    buffer_free(&prompt);
    return status;
}

int command_run(int argc, char **argv)
{
    struct options options;
    int operand;
    const int code = config_begin(&description, argc, argv, &options, &operand);
    if (code != CONFIG_GO_ON)
        return code;
    if (options.model == NULL)
        return config_misused(&description, "--model is missing");
    if (argc - operand != 1)
        return config_misused(&description, "one prompt is needed");
    struct error error = {0};
    uint64_t seed = 0;
    if (parse_seed(options.seed, &seed, &error) != STATUS_OK)
        return config_misused(&description, "%s", error.text);
    const enum status status = run(&options, seed, argv[operand], &error);
    return status == STATUS_CANCELED ? EXIT_INTERRUPTED : config_end(&description, status, &error);
}
