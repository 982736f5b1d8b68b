#include "ops/baton/eval_output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "base/utf8.h"

enum { LOGIT_DIGITS = 9 }; /* enough to read the same float back */

void eval_output_init(struct eval_output *output, const struct text *text, uint32_t vocab_count,
                      uint32_t top, bool json)
{
    *output = (struct eval_output){
        .text = text,
        .vocab_count = vocab_count,
        .top = top < vocab_count ? top : vocab_count,
        .json = json,
    };
}

void eval_output_free(struct eval_output *output)
{
    buffer_free(&output->pending);
}

static void put_logits(struct eval_output *output, const float *logits)
{
    json_open_array(&output->writer);
    for (uint32_t i = 0; i < output->vocab_count; i++)
        json_put_number(&output->writer, (double)logits[i], LOGIT_DIGITS);
    json_close_array(&output->writer);
}

/* Bytes of the printable character at p, 0 when it is none: malformed, a control, a quote. */
static size_t printable_bytes(const uint8_t *p, size_t bytes)
{
    uint32_t code_point;
    const int length = utf8_sequence(p, bytes, &code_point);
    const bool control =
        length > 0 && (code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0));
    return length <= 0 || control || *p == '"' || *p == '\\' ? 0 : (size_t)length;
}

/* A token's bytes in quotes, with escapes for what a terminal should not get. */
static void put_quoted(struct buffer *out, const char *bytes, size_t count)
{
    const uint8_t *p = (const uint8_t *)bytes;
    const uint8_t *end = p + count;
    buffer_add_char(out, '"');
    while (p < end) {
        const size_t length = printable_bytes(p, (size_t)(end - p));
        if (length > 0)
            buffer_add(out, p, length);
        else if (*p == '\n')
            buffer_add_text(out, "\\n");
        else if (*p == '"' || *p == '\\')
            buffer_printf(out, "\\%c", *p);
        else
            buffer_printf(out, "\\x%02x", *p);
        p += length > 0 ? length : 1;
    }
    buffer_add_char(out, '"');
}

/* Lowest id among the largest logits that come after (bound, bound_id) in the order. */
static uint32_t next_best(const float *logits, uint32_t count, float bound, uint32_t bound_id)
{
    uint32_t best = count;
    for (uint32_t i = 0; i < count; i++) {
        const bool after = logits[i] < bound || (logits[i] == bound && i > bound_id);
        if (after && (best == count || logits[i] > logits[best]))
            best = i;
    }
    return best;
}

static void put_token(struct buffer *out, const struct text *text, uint32_t id)
{
    size_t bytes;
    const char *token = text_token_bytes(text, (int32_t)id, &bytes);
    buffer_add_text(out, "  ");
    put_quoted(out, token, bytes);
}

static void put_table(struct eval_output *output, const float *logits)
{
    struct buffer *out = &output->pending;
    uint32_t id = 0, place = 0;
    float bound = INFINITY;
    buffer_printf(out, "  %4s  %8s  %10s%s\n", "rank", "id", "logit",
                  output->text ? "  token" : "");
    for (; place < output->top; place++) {
        id = next_best(logits, output->vocab_count, bound, id);
        if (id == output->vocab_count) /* what is left is not a number */
            break;
        buffer_printf(out, "  %4" PRIu32 "  %8" PRIu32 "  %10.4f", place + 1, id,
                      (double)logits[id]);
        if (output->text)
            put_token(out, output->text, id);
        buffer_add_char(out, '\n');
        bound = logits[id];
    }
}

void eval_output_begin(struct eval_output *output, uint64_t line, uint32_t id_count)
{
    buffer_clear(&output->pending);
    output->positions = false;
    if (output->json) {
        json_writer_init(&output->writer, &output->pending);
        json_open_object(&output->writer);
        json_key(&output->writer, "ids");
        json_put_u64(&output->writer, id_count);
    } else {
        buffer_printf(&output->pending, "line %" PRIu64 ": %" PRIu32 " ids\n", line, id_count);
    }
}

void eval_output_position(struct eval_output *output, uint32_t position, const float *logits)
{
    if (!output->json) {
        buffer_printf(&output->pending, " position %" PRIu32 "\n", position);
        put_table(output, logits);
        output->positions = true;
        return;
    }
    if (!output->positions) {
        json_key(&output->writer, "logits");
        json_open_array(&output->writer);
        output->positions = true;
    }
    put_logits(output, logits);
}

void eval_output_last(struct eval_output *output, const float *logits)
{
    if (output->json) {
        if (output->positions)
            json_close_array(&output->writer);
        json_key(&output->writer, "last_logits");
        put_logits(output, logits);
    } else if (!output->positions) {
        put_table(output, logits);
    }
}

static void put_continuation(struct eval_output *output, const struct token_list *ids)
{
    struct buffer *out = &output->pending;
    struct buffer text = {0};
    struct text_stream stream;
    buffer_add_text(out, "  continuation:");
    for (size_t i = 0; i < ids->count; i++)
        buffer_printf(out, " %" PRId32, ids->ids[i]);
    buffer_add_char(out, '\n');
    if (!output->text)
        return;
    text_stream_init(&stream, output->text, false);
    for (size_t i = 0; i < ids->count; i++)
        text_stream_push(&stream, ids->ids[i], &text);
    text_stream_finish(&stream, &text);
    buffer_add_text(out, "  ");
    put_quoted(out, text.size == 0 ? "" : text.data, text.size);
    buffer_add_char(out, '\n');
    buffer_free(&text);
}

enum status eval_output_end(struct eval_output *output, const struct token_list *continuation,
                            struct error *error)
{
    if (output->json) {
        json_key(&output->writer, "greedy");
        json_open_array(&output->writer);
        for (size_t i = 0; i < continuation->count; i++)
            json_put_int(&output->writer, continuation->ids[i]);
        json_close_array(&output->writer);
        json_close_object(&output->writer);
        buffer_add_char(&output->pending, '\n');
    } else if (continuation->count > 0) {
        put_continuation(output, continuation);
    }
    const size_t bytes = output->pending.size;
    if (fwrite(output->pending.data, 1, bytes, stdout) != bytes || fflush(stdout) != 0)
        return error_set_errno(error, STATUS_IO, "cannot write the result");
    return STATUS_OK;
}
