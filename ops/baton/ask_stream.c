#include "ops/baton/ask_stream.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

enum { BODY_SHOWN_BYTES = 120 };

void ask_stream_init(struct ask_stream *stream, void (*on_text)(void *, const char *, size_t),
                     void *arg)
{
    memset(stream, 0, sizeof *stream);
    stream->on_text = on_text;
    stream->arg = arg;
}

void ask_stream_free(struct ask_stream *stream)
{
    buffer_free(&stream->answer.text);
    buffer_free(&stream->line);
    buffer_free(&stream->event);
}

/* The member if it is there and of that kind. */
static const struct json *member(const struct json *object, const char *key, enum json_kind kind)
{
    if (!object || json_kind(object) != JSON_OBJECT)
        return NULL;
    const struct json *value = json_get(object, key);
    return value && json_kind(value) == kind ? value : NULL;
}

static const struct json *member_number(const struct json *object, const char *key)
{
    const struct json *value = member(object, key, JSON_REAL);
    return value ? value : member(object, key, JSON_INT);
}

static double number_or_nan(const struct json *object, const char *key)
{
    const struct json *value = member_number(object, key);
    return value ? json_number(value) : (double)NAN;
}

static enum status take_text(struct ask_stream *stream, const struct json *content, uint64_t now_ns,
                             struct error *error)
{
    struct ask_answer *answer = &stream->answer;
    size_t bytes;
    const char *text = json_string(content, &bytes);
    if (bytes == 0)
        return STATUS_OK;
    if (answer->text.size + bytes > ASK_ANSWER_BYTES_MAX)
        return error_set(error, STATUS_LIMIT, "the answer is longer than %d bytes",
                         ASK_ANSWER_BYTES_MAX);
    if (answer->first_text_ns == 0)
        answer->first_text_ns = now_ns;
    answer->last_text_ns = now_ns;
    buffer_add(&answer->text, text, bytes);
    if (stream->on_text)
        stream->on_text(stream->arg, text, bytes);
    return STATUS_OK;
}

static enum status take_choice(struct ask_stream *stream, const struct json *choice,
                               uint64_t now_ns, struct error *error)
{
    const struct json *delta = member(choice, "delta", JSON_OBJECT);
    const struct json *content = delta ? member(delta, "content", JSON_STRING) : NULL;
    if (content)
        TRY(take_text(stream, content, now_ns, error));
    const struct json *reason = member(choice, "finish_reason", JSON_STRING);
    if (reason) {
        size_t bytes;
        snprintf(stream->answer.finish_reason, sizeof stream->answer.finish_reason, "%s",
                 json_string(reason, &bytes));
    }
    return STATUS_OK;
}

static void take_numbers(struct ask_answer *answer, const struct json *chunk)
{
    const struct json *usage = member(chunk, "usage", JSON_OBJECT);
    const struct json *prompt = member(usage, "prompt_tokens", JSON_INT);
    const struct json *completion = member(usage, "completion_tokens", JSON_INT);
    if (prompt && completion) {
        answer->has_usage = true;
        answer->prompt_tokens = json_int(prompt);
        answer->completion_tokens = json_int(completion);
    }
    const struct json *timings = member(chunk, "timings", JSON_OBJECT);
    if (timings) {
        answer->has_timings = true;
#define X(name) answer->timings.name = number_or_nan(timings, #name);
        ASK_TIMING_ROWS(X)
#undef X
    }
}

static void error_sentence(const struct json *root, char *out, size_t out_bytes)
{
    const struct json *object = member(root, "error", JSON_OBJECT);
    const struct json *message = member(object ? object : root, "message", JSON_STRING);
    size_t bytes;
    snprintf(out, out_bytes, "%s",
             message ? json_string(message, &bytes) : "an error without a message");
}

static enum status take_chunk(struct ask_stream *stream, const struct json *chunk, uint64_t now_ns,
                              struct error *error)
{
    const struct json *failure = json_kind(chunk) == JSON_OBJECT ? json_get(chunk, "error") : NULL;
    if (failure && json_kind(failure) != JSON_NULL) {
        char sentence[256];
        error_sentence(chunk, sentence, sizeof sentence);
        return error_set(error, STATUS_REFUSED, "%s", sentence);
    }
    const struct json *choices = member(chunk, "choices", JSON_ARRAY);
    if (!choices)
        return error_set(error, STATUS_CORRUPT,
                         "the server sent an event that is no chat completion chunk");
    if (json_count(choices) > 0)
        TRY(take_choice(stream, json_at(choices, 0), now_ns, error));
    take_numbers(&stream->answer, chunk);
    return STATUS_OK;
}

/* The empty line that ends an event. */
static enum status take_event(struct ask_stream *stream, uint64_t now_ns, struct error *error)
{
    struct buffer *event = &stream->event;
    if (event->size == 0)
        return STATUS_OK;
    enum status status = STATUS_OK;
    if (event->size == strlen("[DONE]") && memcmp(event->data, "[DONE]", event->size) == 0) {
        stream->answer.done = true;
    } else {
        struct json *chunk;
        status = json_parse(event->data, event->size, &chunk, error);
        if (status == STATUS_OK) {
            status = take_chunk(stream, chunk, now_ns, error);
            json_free(chunk);
        }
    }
    buffer_clear(event);
    return status;
}

/* Fields other than data, and comments, say nothing about the answer. */
static enum status take_line(struct ask_stream *stream, struct error *error)
{
    const char *line = stream->line.data;
    size_t bytes = stream->line.size;
    if (bytes < 5 || memcmp(line, "data:", 5) != 0)
        return STATUS_OK;
    line += 5;
    bytes -= 5;
    if (bytes > 0 && line[0] == ' ') {
        line++;
        bytes--;
    }
    if (stream->event.size + bytes + 1 > ASK_EVENT_BYTES_MAX)
        return error_set(error, STATUS_LIMIT, "an event of the server is longer than %d bytes",
                         ASK_EVENT_BYTES_MAX);
    if (stream->event.size > 0)
        buffer_add_char(&stream->event, '\n');
    buffer_add(&stream->event, line, bytes);
    return STATUS_OK;
}

enum status ask_stream_add(struct ask_stream *stream, const char *data, size_t bytes,
                           uint64_t now_ns, struct error *error)
{
    struct buffer *line = &stream->line;
    while (bytes > 0) {
        const char *newline = memchr(data, '\n', bytes);
        const size_t taken = newline ? (size_t)(newline - data) : bytes;
        if (line->size + taken > ASK_EVENT_BYTES_MAX)
            return error_set(error, STATUS_LIMIT, "a line of the server is longer than %d bytes",
                             ASK_EVENT_BYTES_MAX);
        buffer_add(line, data, taken);
        if (!newline)
            return STATUS_OK;
        data += taken + 1;
        bytes -= taken + 1;
        if (line->size > 0 && line->data[line->size - 1] == '\r')
            line->data[--line->size] = '\0';
        if (line->size == 0)
            TRY(take_event(stream, now_ns, error));
        else
            TRY(take_line(stream, error));
        buffer_clear(line);
    }
    return STATUS_OK;
}

void ask_error_message(const char *body, size_t bytes, char *out, size_t out_bytes)
{
    struct json *root;
    if (bytes > 0 && json_parse(body, bytes, &root, NULL) == STATUS_OK) {
        error_sentence(root, out, out_bytes);
        json_free(root);
        return;
    }
    const size_t shown = bytes < BODY_SHOWN_BYTES ? bytes : BODY_SHOWN_BYTES;
    if (shown == 0)
        snprintf(out, out_bytes, "an empty body");
    else
        snprintf(out, out_bytes, "%.*s", (int)shown, body);
}
