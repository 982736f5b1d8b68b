#include "model/text/decoder.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/utf8.h"
#include "model/text/byte_alphabet.h"
#include "model/text/byte_token.h"

enum step_kind { STEP_BYTE_LEVEL, STEP_BYTE_FALLBACK, STEP_REPLACE, STEP_STRIP };

struct step {
    enum step_kind kind;
    struct pattern *pattern;
    struct buffer text; /* replacement, or the character to strip */
    size_t left, right;
};

struct decoder {
    struct step steps[DECODER_STEPS_MAX];
    size_t count;
    struct decoder_start start;
    struct pattern_scratch *scratch; /* used while a vocabulary is opened, by one thread */
};

struct decoder *decoder_create(void)
{
    struct decoder *decoder = calloc(1, sizeof *decoder);
    CHECK(decoder != NULL);
    decoder->scratch = pattern_scratch_create();
    return decoder;
}

void decoder_destroy(struct decoder *decoder)
{
    if (decoder == NULL)
        return;
    for (size_t i = 0; i < decoder->count; i++) {
        pattern_destroy(decoder->steps[i].pattern);
        buffer_free(&decoder->steps[i].text);
    }
    pattern_scratch_destroy(decoder->scratch);
    free(decoder);
}

static enum status step_add(struct decoder *decoder, const struct step *step, struct error *error)
{
    if (decoder->count == DECODER_STEPS_MAX)
        return error_set(error, STATUS_LIMIT, "the decoder has more than %d steps, the limit",
                         DECODER_STEPS_MAX);
    decoder->steps[decoder->count++] = *step;
    return STATUS_OK;
}

enum status decoder_add_byte_level(struct decoder *decoder, struct error *error)
{
    return step_add(decoder, &(struct step){.kind = STEP_BYTE_LEVEL}, error);
}

enum status decoder_add_byte_fallback(struct decoder *decoder, struct error *error)
{
    return step_add(decoder, &(struct step){.kind = STEP_BYTE_FALLBACK}, error);
}

enum status decoder_add_replace(struct decoder *decoder, struct pattern *pattern, const char *text,
                                size_t bytes, struct error *error)
{
    struct step step = {.kind = STEP_REPLACE, .pattern = pattern};
    buffer_add(&step.text, text, bytes);
    const enum status status = step_add(decoder, &step, error);
    if (status != STATUS_OK) {
        pattern_destroy(pattern);
        buffer_free(&step.text);
    }
    return status;
}

enum status decoder_add_strip(struct decoder *decoder, const char *character, size_t bytes,
                              size_t left, size_t right, struct error *error)
{
    struct step step = {.kind = STEP_STRIP, .left = left, .right = right};
    buffer_add(&step.text, character, bytes);
    const enum status status = step_add(decoder, &step, error);
    if (status != STATUS_OK)
        buffer_free(&step.text);
    return status;
}

void decoder_set_start(struct decoder *decoder, const struct decoder_start *start)
{
    decoder->start = *start;
}

const struct decoder_start *decoder_start(const struct decoder *decoder)
{
    return &decoder->start;
}

/* A pattern that fails on a token, which is short, leaves the rest of it as it is, and so does a
 * result that is over the limit. */
static void replace_run(const struct decoder *decoder, const struct step *step, const char *text,
                        size_t bytes, struct buffer *out)
{
    const size_t begin = out->size;
    size_t done = 0;
    pattern_scratch_allow(decoder->scratch, bytes);
    for (size_t at = 0; at < bytes && out->size - begin <= DECODED_BYTES_MAX;) {
        bool found;
        size_t start;
        size_t end;
        if (pattern_find(step->pattern, decoder->scratch, text, bytes, at, &found, &start, &end,
                         NULL) != STATUS_OK ||
            !found)
            break;
        buffer_add(out, text + done, start - done);
        buffer_add(out, step->text.data, step->text.size);
        done = end;
        at = pattern_resume(text, bytes, start, end);
    }
    buffer_add(out, text + done, bytes - done);
}

static void strip_run(const struct step *step, const char *text, size_t bytes, struct buffer *out)
{
    const size_t unit = step->text.size;
    for (size_t i = 0;
         i < step->left && unit > 0 && bytes >= unit && memcmp(text, step->text.data, unit) == 0;
         i++) {
        text += unit;
        bytes -= unit;
    }
    for (size_t i = 0; i < step->right && unit > 0 && bytes >= unit &&
                       memcmp(text + bytes - unit, step->text.data, unit) == 0;
         i++)
        bytes -= unit;
    buffer_add(out, text, bytes);
}

static void step_run(const struct decoder *decoder, const struct step *step, const char *text,
                     size_t bytes, struct buffer *out)
{
    int byte;
    switch (step->kind) {
    case STEP_BYTE_LEVEL:
        if (!byte_alphabet_decode(text, bytes, out))
            buffer_add(out, text, bytes);
        break;
    case STEP_BYTE_FALLBACK:
        byte = byte_token_parse(text, bytes);
        if (byte >= 0)
            buffer_add_char(out, (char)byte);
        else
            buffer_add(out, text, bytes);
        break;
    case STEP_REPLACE:
        if (utf8_valid(text, bytes))
            replace_run(decoder, step, text, bytes, out);
        else
            buffer_add(out, text, bytes);
        break;
    case STEP_STRIP:
        strip_run(step, text, bytes, out);
        break;
    }
}

void decoder_token(const struct decoder *decoder, const char *text, size_t bytes,
                   struct buffer *out)
{
    struct buffer between[2] = {0};
    for (size_t i = 0; i < decoder->count; i++) {
        const bool last = i + 1 == decoder->count;
        struct buffer *to = last ? out : &between[i % 2];
        if (!last)
            buffer_clear(to);
        step_run(decoder, &decoder->steps[i], text, bytes, to);
        text = to->data;
        bytes = to->size;
    }
    if (decoder->count == 0)
        buffer_add(out, text, bytes);
    buffer_free(&between[0]);
    buffer_free(&between[1]);
}
