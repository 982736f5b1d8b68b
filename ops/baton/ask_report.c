#include "ops/baton/ask_report.h"

#include <math.h>

#include "base/clock.h"
#include "base/json.h"

enum { NOTE_BYTES = 96 };

static double ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / NS_PER_MS : 0;
}

static void row_print(FILE *to, const char *name, double ms, const char *note)
{
    if (isnan(ms))
        return;
    fprintf(to, "  %-14s %9.1f ms", name, ms);
    if (note[0] != '\0')
        fprintf(to, "   %s", note);
    fputc('\n', to);
}

/* No rate: most of the time pages wait for the next layer to be computed, not for the network. */
static void bytes_note(double bytes, char *note)
{
    note[0] = '\0';
    if (!isnan(bytes))
        snprintf(note, NOTE_BYTES, "%.2f MiB, from the first page sent to the last one landed",
                 bytes / (1 << 20));
}

static void prefill_note(const struct ask_answer *answer, char *note)
{
    const struct ask_timings *timings = &answer->timings;
    note[0] = '\0';
    if (!answer->has_usage)
        return;
    const int written = snprintf(note, NOTE_BYTES, "%jd tokens", (intmax_t)answer->prompt_tokens);
    if (!isnan(timings->cached_tokens) && timings->cached_tokens > 0)
        snprintf(note + written, NOTE_BYTES - (size_t)written, ", %.0f of them cached",
                 timings->cached_tokens);
}

/* The parts of the request as the router and the nodes measured them. */
static void server_rows_print(const struct ask_answer *answer, FILE *to)
{
    const struct ask_timings *timings = &answer->timings;
    char note[NOTE_BYTES];
    row_print(to, "router queue", timings->queue_ms, "");
    prefill_note(answer, note);
    row_print(to, "prefill", timings->prefill_ms, note);
    row_print(to, "first token", timings->ttft_ms, "from request to first token, in the router");
    bytes_note(timings->handoff_bytes, note);
    row_print(to, "hand-off", timings->handoff_ms, note);
    row_print(to, "  not hidden", timings->handoff_wait_ms, "after the first token");
    row_print(to, "decode queue", timings->decode_queue_ms, "");
    row_print(to, "first step", timings->first_step_ms, "");
    note[0] = '\0';
    if (!isnan(timings->tokens_per_s))
        snprintf(note, sizeof note, "%.1f tokens/s", timings->tokens_per_s);
    row_print(to, "decode", timings->decode_ms, note);
}

void ask_timeline_print(const struct ask_answer *answer, uint64_t sent_ns, FILE *to)
{
    char note[NOTE_BYTES] = "";
    fputs("timeline\n", to);
    if (answer->has_timings)
        server_rows_print(answer, to);
    const double first_ms = ms_between(sent_ns, answer->first_text_ns);
    if (answer->first_text_ns != 0)
        row_print(to, "first text", first_ms, "seen by this program");
    if (answer->has_usage)
        snprintf(note, sizeof note, "%jd tokens, finished by %s",
                 (intmax_t)answer->completion_tokens,
                 answer->finish_reason[0] != '\0' ? answer->finish_reason : "?");
    if (answer->last_text_ns != 0)
        row_print(to, "last text", ms_between(sent_ns, answer->last_text_ns), note);
}

static void put_number(struct json_writer *writer, const char *key, double value)
{
    json_key(writer, key);
    json_put_number(writer, value, 9);
}

void ask_json_print(const struct ask_answer *answer, uint64_t sent_ns, FILE *to)
{
    struct buffer out = {0};
    struct json_writer writer;
    json_writer_init(&writer, &out);
    json_open_object(&writer);
    json_key(&writer, "text");
    json_put_string(&writer, answer->text.data ? answer->text.data : "", answer->text.size);
    json_key(&writer, "finish_reason");
    json_put_text(&writer, answer->finish_reason);
    if (answer->has_usage) {
        json_key(&writer, "usage");
        json_open_object(&writer);
        json_key(&writer, "prompt_tokens");
        json_put_int(&writer, answer->prompt_tokens);
        json_key(&writer, "completion_tokens");
        json_put_int(&writer, answer->completion_tokens);
        json_close_object(&writer);
    }
    if (answer->has_timings) {
        json_key(&writer, "timings");
        json_open_object(&writer);
#define X(name) put_number(&writer, #name, answer->timings.name);
        ASK_TIMING_ROWS(X)
#undef X
        json_close_object(&writer);
    }
    json_key(&writer, "client");
    json_open_object(&writer);
    put_number(&writer, "first_text_ms", ms_between(sent_ns, answer->first_text_ns));
    put_number(&writer, "total_ms", ms_between(sent_ns, answer->last_text_ns));
    json_close_object(&writer);
    json_close_object(&writer);
    fprintf(to, "%s\n", out.data);
    buffer_free(&out);
}
