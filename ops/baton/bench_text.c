/* `baton bench text`: how fast text becomes ids and ids become text, on one core, beside reading
 * the same bytes from memory; and that no repeated character makes the tokenizer slow. */
#include <stdio.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/config.h"
#include "base/json.h"
#include "base/utf8.h"
#include "model/text/text.h"
#include "ops/baton/bench_commands.h"
#include "ops/baton/bench_time.h"

enum { PROSE_BYTES = 4 << 20, REPEAT_BYTES = 1 << 20, BUDGET_MS = 1500, IDS_MAX = 1 << 26 };

/* Bytes per microsecond are megabytes per second. */
static const double NS_A_US = 1e3;
static const double NS_A_MS = 1e6;

struct options {
    const char *model, *file;
    bool json;
};

static const struct config_row option_rows[] = {
    {"model", CONFIG_TEXT, offsetof(struct options, model), NULL, "PATH",
     "the GGUF file or Hugging Face folder whose vocabulary is used", 0, 0},
    {"file", CONFIG_TEXT, offsetof(struct options, file), "/usr/share/common-licenses/GPL-3",
     "FILE", "the prose, repeated up to 4 MiB", 0, 0},
    {"json", CONFIG_FLAG, offsetof(struct options, json), NULL, NULL, "one JSON object", 0, 0},
};

static const struct config_command description = {
    .program = "baton bench text",
    .summary = "Measures the tokenizer of a model: prose, ids, and a megabyte of one character.",
    .examples = "  baton bench text --model model.gguf\n"
                "  baton bench text --model FOLDER --file book.txt --json\n",
    .rows = option_rows,
    .row_count = ARRAY_COUNT(option_rows),
    .needed = "model",
};

static const struct {
    const char *label, *character;
} repeats[] = {{"a", "a"},
               {"_", "_"},
               {"space", " "},
               {"newline", "\n"},
               {"CJK", "\xe4\xbd\xa0"},
               {"emoji", "\xf0\x9f\x98\x80"}};

/* One measured call. */
struct timed_text {
    const struct text *text;
    const char *bytes;
    size_t count;
    struct token_list ids;
    struct buffer out;
    uint64_t sum;
    enum status status;
    struct error error;
};

static void call_encode(void *arg, uint64_t turn)
{
    struct timed_text *job = arg;
    token_list_clear(&job->ids);
    if (job->status == STATUS_OK)
        job->status =
            text_encode(job->text, job->bytes, job->count, false, IDS_MAX, &job->ids, &job->error);
}

static void call_decode(void *arg, uint64_t turn)
{
    struct timed_text *job = arg;
    struct text_stream stream;
    buffer_clear(&job->out);
    text_stream_init_whole(&stream, job->text, true);
    for (size_t i = 0; i < job->ids.count; i++)
        text_stream_push(&stream, job->ids.ids[i], &job->out);
    text_stream_finish(&stream, &job->out);
}

static void call_check(void *arg, uint64_t turn)
{
    struct timed_text *job = arg;
    job->sum += utf8_valid(job->bytes, job->count) ? 1 : 0;
}

/* What is printed. */
struct figures {
    double encode_mb_s, decode_mb_s, check_mb_s; /* of the text's bytes */
    double bytes_per_token;
    double repeat_ms[ARRAY_COUNT(repeats)];
};

static double speed(bench_call call, struct timed_text *job)
{
    const struct bench_time time = bench_measure(call, job, BUDGET_MS);
    return (double)job->count / (time.median_ns / NS_A_US);
}

static enum status prose_read(const char *path, struct buffer *out, struct error *error)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return error_set_errno(error, STATUS_IO, "cannot open %s", path);
    char piece[65536];
    size_t got;
    while (out->size < PROSE_BYTES && (got = fread(piece, 1, sizeof piece, file)) > 0)
        buffer_add(out, piece, got);
    fclose(file);
    const size_t once = out->size;
    if (once == 0)
        return error_set(error, STATUS_INVALID, "%s is empty", path);
    buffer_reserve(out, PROSE_BYTES + once); // so that it does not move
    while (out->size < PROSE_BYTES)
        buffer_add(out, out->data, once);
    return STATUS_OK;
}

static enum status measure(const struct text *text, const struct buffer *prose,
                           struct figures *figures, struct error *error)
{
    struct timed_text job = {.text = text, .bytes = prose->data, .count = prose->size};
    figures->check_mb_s = speed(call_check, &job);
    figures->encode_mb_s = speed(call_encode, &job);
    figures->decode_mb_s = speed(call_decode, &job);
    figures->bytes_per_token = job.ids.count > 0 ? (double)prose->size / (double)job.ids.count : 0;
    struct buffer repeated = {0};
    for (size_t i = 0; i < ARRAY_COUNT(repeats); i++) {
        buffer_clear(&repeated);
        while (repeated.size < REPEAT_BYTES)
            buffer_add_text(&repeated, repeats[i].character);
        job.bytes = repeated.data;
        job.count = repeated.size;
        figures->repeat_ms[i] = bench_measure(call_encode, &job, 1).median_ns / NS_A_MS;
    }
    buffer_free(&repeated);
    buffer_free(&job.out);
    token_list_free(&job.ids);
    if (job.status != STATUS_OK)
        return error_set(error, job.status, "%s", job.error.text);
    return STATUS_OK;
}

static void figures_print(const struct figures *figures)
{
    printf("text to ids   %7.1f MB/s   %.2f bytes a token\n", figures->encode_mb_s,
           figures->bytes_per_token);
    printf("ids to text   %7.1f MB/s\n", figures->decode_mb_s);
    printf("UTF-8 check   %7.1f MB/s   what reading every byte takes\n", figures->check_mb_s);
    printf("1 MiB of one character, ms:");
    for (size_t i = 0; i < ARRAY_COUNT(repeats); i++)
        printf(" %s %.0f", repeats[i].label, figures->repeat_ms[i]);
    putchar('\n');
}

static void figures_print_json(const struct figures *figures)
{
    enum { DIGITS = 6 };
    struct buffer out = {0};
    struct json_writer writer;
    json_writer_init(&writer, &out);
    json_open_object(&writer);
    json_key(&writer, "encode_mb_s");
    json_put_number(&writer, figures->encode_mb_s, DIGITS);
    json_key(&writer, "decode_mb_s");
    json_put_number(&writer, figures->decode_mb_s, DIGITS);
    json_key(&writer, "check_mb_s");
    json_put_number(&writer, figures->check_mb_s, DIGITS);
    json_key(&writer, "bytes_per_token");
    json_put_number(&writer, figures->bytes_per_token, DIGITS);
    json_key(&writer, "repeated_mib_ms");
    json_open_object(&writer);
    for (size_t i = 0; i < ARRAY_COUNT(repeats); i++) {
        json_key(&writer, repeats[i].label);
        json_put_number(&writer, figures->repeat_ms[i], DIGITS);
    }
    json_close_object(&writer);
    json_close_object(&writer);
    puts(out.data);
    buffer_free(&out);
}

static enum status run(const void *arg, struct error *error)
{
    const struct options *options = arg;
    struct text *text;
    struct figures figures = {0};
    struct buffer prose = {0};
    TRY(text_open(options->model, &text, error));
    enum status status = prose_read(options->file, &prose, error);
    if (status == STATUS_OK)
        status = measure(text, &prose, &figures, error);
    if (status == STATUS_OK && options->json)
        figures_print_json(&figures);
    else if (status == STATUS_OK)
        figures_print(&figures);
    buffer_free(&prose);
    text_close(text);
    return status;
}

int bench_text(int argc, char **argv)
{
    struct options options;
    return config_do(&description, argc, argv, &options, run);
}
