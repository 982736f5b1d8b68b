#include "model/text/normalizer.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/utf8.h"

enum step_kind {
    STEP_FORM,
    STEP_CHARSMAP,
    STEP_LOWERCASE,
    STEP_STRIP_MARKS,
    STEP_STRIP,
    STEP_PREPEND,
    STEP_REPLACE,
};

struct step {
    enum step_kind kind;
    enum unicode_form form;
    unsigned sides;
    struct charsmap *charsmap;
    struct pattern *pattern;
    struct buffer text;
};

struct normalizer {
    struct step steps[NORMALIZER_STEPS_MAX];
    size_t count;
};

struct normalizer *normalizer_create(void)
{
    struct normalizer *normalizer = calloc(1, sizeof *normalizer);
    CHECK(normalizer != NULL);
    return normalizer;
}

void normalizer_destroy(struct normalizer *normalizer)
{
    if (normalizer == NULL)
        return;
    for (size_t i = 0; i < normalizer->count; i++) {
        charsmap_destroy(normalizer->steps[i].charsmap);
        pattern_destroy(normalizer->steps[i].pattern);
        buffer_free(&normalizer->steps[i].text);
    }
    free(normalizer);
}

/* The new step, NULL when there are too many. */
static struct step *step_add(struct normalizer *normalizer, enum step_kind kind,
                             struct error *error)
{
    if (normalizer->count == NORMALIZER_STEPS_MAX) {
        error_set(error, STATUS_LIMIT, "the normalizer has more than %d steps, the limit",
                  NORMALIZER_STEPS_MAX);
        return NULL;
    }
    struct step *step = &normalizer->steps[normalizer->count++];
    step->kind = kind;
    return step;
}

enum status normalizer_add_form(struct normalizer *normalizer, enum unicode_form form,
                                struct error *error)
{
    struct step *step = step_add(normalizer, STEP_FORM, error);
    if (step == NULL)
        return STATUS_LIMIT;
    step->form = form;
    return STATUS_OK;
}

enum status normalizer_add_charsmap(struct normalizer *normalizer, struct charsmap *charsmap,
                                    struct error *error)
{
    struct step *step = step_add(normalizer, STEP_CHARSMAP, error);
    if (step == NULL) {
        charsmap_destroy(charsmap);
        return STATUS_LIMIT;
    }
    step->charsmap = charsmap;
    return STATUS_OK;
}

enum status normalizer_add_lowercase(struct normalizer *normalizer, struct error *error)
{
    return step_add(normalizer, STEP_LOWERCASE, error) != NULL ? STATUS_OK : STATUS_LIMIT;
}

enum status normalizer_add_strip_marks(struct normalizer *normalizer, struct error *error)
{
    return step_add(normalizer, STEP_STRIP_MARKS, error) != NULL ? STATUS_OK : STATUS_LIMIT;
}

enum status normalizer_add_strip(struct normalizer *normalizer, unsigned sides, struct error *error)
{
    struct step *step = step_add(normalizer, STEP_STRIP, error);
    if (step == NULL)
        return STATUS_LIMIT;
    step->sides = sides;
    return STATUS_OK;
}

enum status normalizer_add_prepend(struct normalizer *normalizer, const char *text, size_t bytes,
                                   struct error *error)
{
    struct step *step = step_add(normalizer, STEP_PREPEND, error);
    if (step == NULL)
        return STATUS_LIMIT;
    buffer_add(&step->text, text, bytes);
    return STATUS_OK;
}

enum status normalizer_add_replace(struct normalizer *normalizer, struct pattern *pattern,
                                   const char *text, size_t bytes, struct error *error)
{
    struct step *step = step_add(normalizer, STEP_REPLACE, error);
    if (step == NULL) {
        pattern_destroy(pattern);
        return STATUS_LIMIT;
    }
    step->pattern = pattern;
    buffer_add(&step->text, text, bytes);
    return STATUS_OK;
}

void normalizer_scratch_free(struct normalizer_scratch *scratch)
{
    buffer_free(&scratch->buffers[0]);
    buffer_free(&scratch->buffers[1]);
    *scratch = (struct normalizer_scratch){0};
}

/* A text on its way through the steps. */
struct passage {
    struct normalizer_scratch *scratch;
    const char *text;
    size_t bytes;
    size_t bytes_first, bytes_max; /* of the text as it came, and what it may become */
    struct error *error;
};

static enum status too_long(const struct passage *passage)
{
    return error_set(passage->error, STATUS_LIMIT,
                     "normalising a text of %zu bytes makes more than %zu bytes, the limit",
                     passage->bytes_first, passage->bytes_max);
}

static enum status replace_run(const struct step *step, struct passage *passage, struct buffer *out)
{
    struct normalizer_scratch *scratch = passage->scratch;
    const char *text = passage->text;
    const size_t bytes = passage->bytes;
    size_t done = 0;
    pattern_scratch_allow(scratch->pattern, bytes);
    for (size_t at = 0; at < bytes;) {
        bool found;
        size_t start;
        size_t end;
        TRY(pattern_find(step->pattern, scratch->pattern, text, bytes, at, &found, &start, &end,
                         passage->error));
        if (!found)
            break;
        buffer_add(out, text + done, start - done);
        buffer_add(out, step->text.data, step->text.size);
        if (out->size > passage->bytes_max)
            return too_long(passage);
        done = end;
        at = pattern_resume(text, bytes, start, end);
    }
    buffer_add(out, text + done, bytes - done);
    return STATUS_OK;
}

/* Into out, which is empty; or the text becomes a part of what it was. */
static enum status step_run(const struct step *step, struct passage *passage, struct buffer *out)
{
    const char *text = passage->text;
    const size_t bytes = passage->bytes;
    switch (step->kind) {
    case STEP_FORM:
        return unicode_normalize(step->form, text, bytes, passage->bytes_max, out, &passage->text,
                                 &passage->bytes)
                   ? STATUS_OK
                   : too_long(passage);
    case STEP_STRIP:
        unicode_strip_spaces(text, bytes, (step->sides & STRIP_LEFT) != 0,
                             (step->sides & STRIP_RIGHT) != 0, &passage->text, &passage->bytes);
        return STATUS_OK;
    case STEP_CHARSMAP:
        if (!charsmap_run(step->charsmap, text, bytes, passage->bytes_max, out))
            return too_long(passage);
        break;
    case STEP_LOWERCASE:
        unicode_lowercase(text, bytes, out);
        break;
    case STEP_STRIP_MARKS:
        unicode_strip_marks(text, bytes, out);
        break;
    case STEP_PREPEND:
        buffer_add(out, step->text.data, step->text.size);
        buffer_add(out, text, bytes);
        break;
    case STEP_REPLACE:
        TRY(replace_run(step, passage, out));
        break;
    }
    passage->text = out->data;
    passage->bytes = out->size;
    return STATUS_OK;
}

enum status normalizer_run(const struct normalizer *normalizer, struct normalizer_scratch *scratch,
                           const char *text, size_t bytes, bool continues, const char **text_out,
                           size_t *bytes_out, struct error *error)
{
    struct passage passage = {.scratch = scratch,
                              .text = text,
                              .bytes = bytes,
                              .bytes_first = bytes,
                              .bytes_max = NORMALIZED_BYTES_MAX,
                              .error = error};
    if (bytes < (NORMALIZED_BYTES_MAX - NORMALIZED_BYTES_BASE) / NORMALIZED_BYTES_PER_BYTE)
        passage.bytes_max = NORMALIZED_BYTES_BASE + bytes * NORMALIZED_BYTES_PER_BYTE;
    size_t side = 0;
    for (size_t i = 0; i < normalizer->count && passage.bytes > 0; i++) {
        const struct step *step = &normalizer->steps[i];
        if (step->kind == STEP_PREPEND && continues)
            continue;
        struct buffer *out = &scratch->buffers[side];
        const char *from = passage.text;
        buffer_clear(out);
        TRY(step_run(step, &passage, out));
        if (passage.bytes > passage.bytes_max)
            return too_long(&passage);
        if (passage.text == out->data && passage.text != from)
            side = 1 - side; // the next step reads it
    }
    *text_out = passage.text;
    *bytes_out = passage.bytes;
    return STATUS_OK;
}
