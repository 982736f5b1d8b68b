/* The stages, and running them one inside the other: a piece goes through all the later stages
 * before the next one is cut. */
#include "model/text/pretokenize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"

enum { MARK_BYTES_MAX = 16 };

enum stage_kind { STAGE_PATTERN, STAGE_SPACES, STAGE_WORDS };

struct stage {
    enum stage_kind kind;
    struct pattern *pattern;
    enum pretokenize_cut cut;
    bool invert;
    enum pretokenize_prefix prefix;
    bool split;
    char mark[MARK_BYTES_MAX];
    size_t mark_bytes;
    bool joins[256]; /* STAGE_WORDS: bytes before a mark that are not cut from it */
};

struct pretokenizer {
    struct stage stages[PRETOKENIZE_STAGES_MAX];
    size_t stage_count;
};

struct pretokenizer *pretokenizer_create(void)
{
    struct pretokenizer *pretokenizer = calloc(1, sizeof *pretokenizer);
    CHECK(pretokenizer != NULL);
    return pretokenizer;
}

void pretokenizer_destroy(struct pretokenizer *pretokenizer)
{
    if (pretokenizer == NULL)
        return;
    for (size_t i = 0; i < pretokenizer->stage_count; i++)
        pattern_destroy(pretokenizer->stages[i].pattern);
    free(pretokenizer);
}

static enum status stage_add(struct pretokenizer *pretokenizer, const struct stage *stage,
                             struct error *error)
{
    if (pretokenizer->stage_count == PRETOKENIZE_STAGES_MAX)
        return error_set(error, STATUS_LIMIT, "the pre-tokenizer has more than %d steps, the limit",
                         PRETOKENIZE_STAGES_MAX);
    pretokenizer->stages[pretokenizer->stage_count++] = *stage;
    return STATUS_OK;
}

enum status pretokenizer_add_pattern(struct pretokenizer *pretokenizer, struct pattern *pattern,
                                     enum pretokenize_cut cut, bool invert, struct error *error)
{
    const struct stage stage = {
        .kind = STAGE_PATTERN, .pattern = pattern, .cut = cut, .invert = invert};
    const enum status status = stage_add(pretokenizer, &stage, error);
    if (status != STATUS_OK)
        pattern_destroy(pattern);
    return status;
}

static enum status mark_set(struct stage *stage, const char *mark, size_t bytes,
                            struct error *error)
{
    if (bytes == 0 || bytes > MARK_BYTES_MAX)
        return error_set(error, STATUS_UNSUPPORTED,
                         "the character for spaces has %zu bytes, the limits are 1 and %d", bytes,
                         MARK_BYTES_MAX);
    memcpy(stage->mark, mark, bytes);
    stage->mark_bytes = bytes;
    return STATUS_OK;
}

enum status pretokenizer_add_spaces(struct pretokenizer *pretokenizer, const char *mark,
                                    size_t bytes, enum pretokenize_prefix prefix, bool split,
                                    struct error *error)
{
    struct stage stage = {.kind = STAGE_SPACES, .prefix = prefix, .split = split};
    TRY(mark_set(&stage, mark, bytes, error));
    return stage_add(pretokenizer, &stage, error);
}

enum status pretokenizer_add_space_prefix(struct pretokenizer *pretokenizer, struct error *error)
{
    return pretokenizer_add_spaces(pretokenizer, " ", 1, PREFIX_ALWAYS, false, error);
}

enum status pretokenizer_add_words(struct pretokenizer *pretokenizer, const char *mark,
                                   size_t bytes, const bool joins[256], struct error *error)
{
    struct stage stage = {.kind = STAGE_WORDS};
    memcpy(stage.joins, joins, sizeof stage.joins);
    TRY(mark_set(&stage, mark, bytes, error));
    return stage_add(pretokenizer, &stage, error);
}

struct span {
    size_t start, end;
    bool match;
};

struct spans {
    struct span *items;
    size_t count, capacity;
};

/* One call of pretokenize. Each stage has its own buffers: the stage inside it runs meanwhile. */
struct run {
    const struct pretokenizer *pretokenizer;
    struct pattern_scratch *scratch;
    struct buffer marked[PRETOKENIZE_STAGES_MAX];
    struct spans spans[PRETOKENIZE_STAGES_MAX];
    pretokenize_piece on_piece;
    void *arg;
    bool continues;
    struct error *error;
};

static enum status stage_run(struct run *run, size_t stage, const char *text, size_t bytes,
                             bool first);

static enum status piece_pass(struct run *run, size_t stage, const char *piece, size_t bytes,
                              bool first)
{
    if (bytes == 0)
        return STATUS_OK;
    if (stage == run->pretokenizer->stage_count)
        return run->on_piece(run->arg, piece, bytes);
    return stage_run(run, stage, piece, bytes, first);
}

/* Matches and what lies between them, each a piece: without a list of them. */
static enum status isolate(struct run *run, size_t stage, const char *text, size_t bytes,
                           bool first)
{
    const struct pattern *pattern = run->pretokenizer->stages[stage].pattern;
    size_t done = 0;
    pattern_scratch_allow(run->scratch, bytes);
    for (size_t at = 0; at < bytes;) {
        bool found;
        size_t start;
        size_t end;
        TRY(pattern_find(pattern, run->scratch, text, bytes, at, &found, &start, &end, run->error));
        if (!found)
            break;
        TRY(piece_pass(run, stage + 1, text + done, start - done, first && done == 0));
        TRY(piece_pass(run, stage + 1, text + start, end - start, first && start == 0));
        done = end;
        at = pattern_resume(text, bytes, start, end);
    }
    return piece_pass(run, stage + 1, text + done, bytes - done, first && done == 0);
}

static void span_add(struct spans *spans, size_t start, size_t end, bool match)
{
    if (spans->count == spans->capacity) {
        spans->capacity = spans->capacity * 2 + 64;
        spans->items = realloc(spans->items, spans->capacity * sizeof *spans->items);
        CHECK(spans->items != NULL);
    }
    spans->items[spans->count++] = (struct span){start, end, match};
}

/* The whole text as spans that match and spans that do not. */
static enum status spans_find(struct run *run, const struct stage *stage, struct spans *spans,
                              const char *text, size_t bytes)
{
    size_t done = 0;
    spans->count = 0;
    pattern_scratch_allow(run->scratch, bytes);
    for (size_t at = 0; at < bytes;) {
        bool found;
        size_t start;
        size_t end;
        TRY(pattern_find(stage->pattern, run->scratch, text, bytes, at, &found, &start, &end,
                         run->error));
        if (!found)
            break;
        if (start > done)
            span_add(spans, done, start, stage->invert);
        span_add(spans, start, end, !stage->invert);
        done = end;
        at = pattern_resume(text, bytes, start, end);
    }
    if (done < bytes)
        span_add(spans, done, bytes, stage->invert);
    return STATUS_OK;
}

/* Whether span i is one piece with the one before it. */
static bool joins(enum pretokenize_cut cut, const struct spans *spans, size_t i)
{
    const bool match = spans->items[i].match;
    const bool match_before = spans->items[i - 1].match;
    switch (cut) {
    case CUT_MERGED_WITH_PREVIOUS:
        return match && !match_before;
    case CUT_MERGED_WITH_NEXT:
        return match_before && !match;
    case CUT_CONTIGUOUS:
        return match == match_before;
    case CUT_ISOLATED:
    case CUT_REMOVED:
        break;
    }
    return false;
}

static enum status cut_run(struct run *run, size_t index, const char *text, size_t bytes,
                           bool first)
{
    const struct stage *stage = &run->pretokenizer->stages[index];
    struct spans *spans = &run->spans[index];
    TRY(spans_find(run, stage, spans, text, bytes));
    for (size_t i = 0; i < spans->count;) {
        const size_t begin = i;
        do
            i++;
        while (i < spans->count && joins(stage->cut, spans, i));
        if (stage->cut == CUT_REMOVED && spans->items[begin].match)
            continue;
        const size_t start = spans->items[begin].start;
        TRY(piece_pass(run, index + 1, text + start, spans->items[i - 1].end - start,
                       first && start == 0));
    }
    return STATUS_OK;
}

static bool mark_at(const struct stage *stage, const char *text, size_t bytes, size_t at)
{
    return bytes - at >= stage->mark_bytes &&
           memcmp(text + at, stage->mark, stage->mark_bytes) == 0;
}

/* Cuts before every mark, or only before those that follow something else. */
static enum status marks_cut(struct run *run, size_t index, const char *text, size_t bytes,
                             bool every, bool first)
{
    const struct stage *stage = &run->pretokenizer->stages[index];
    size_t start = 0;
    bool after_mark = false;
    for (size_t at = 0; at < bytes;) {
        const char *next = memchr(text + at, stage->mark[0], bytes - at);
        if (next == NULL)
            break;
        if (next != text + at) {
            after_mark = false;
            at = (size_t)(next - text);
        }
        if (!mark_at(stage, text, bytes, at)) {
            after_mark = false;
            at++;
            continue;
        }
        if (at > start && (every || (!after_mark && !stage->joins[(uint8_t)text[at - 1]]))) {
            TRY(piece_pass(run, index + 1, text + start, at - start, first && start == 0));
            start = at;
        }
        after_mark = true;
        at += stage->mark_bytes;
    }
    return piece_pass(run, index + 1, text + start, bytes - start, first && start == 0);
}

static enum status spaces_run(struct run *run, size_t index, const char *text, size_t bytes,
                              bool first)
{
    const struct stage *stage = &run->pretokenizer->stages[index];
    struct buffer *marked = &run->marked[index];
    buffer_clear(marked);
    for (size_t at = 0; at < bytes;) {
        const char *space = memchr(text + at, ' ', bytes - at);
        const size_t end = space != NULL ? (size_t)(space - text) : bytes;
        buffer_add(marked, text + at, end - at);
        if (space != NULL)
            buffer_add(marked, stage->mark, stage->mark_bytes);
        at = end + 1;
    }
    const bool prefixed =
        stage->prefix == PREFIX_ALWAYS || (stage->prefix == PREFIX_FIRST && first);
    if (prefixed && !run->continues && !mark_at(stage, marked->data, marked->size, 0)) {
        buffer_add(marked, stage->mark, stage->mark_bytes); // for its room
        memmove(marked->data + stage->mark_bytes, marked->data, marked->size - stage->mark_bytes);
        memcpy(marked->data, stage->mark, stage->mark_bytes);
    }
    if (stage->split)
        return marks_cut(run, index, marked->data, marked->size, true, first);
    return piece_pass(run, index + 1, marked->data, marked->size, first);
}

static enum status stage_run(struct run *run, size_t index, const char *text, size_t bytes,
                             bool first)
{
    const struct stage *stage = &run->pretokenizer->stages[index];
    switch (stage->kind) {
    case STAGE_PATTERN:
        if (stage->cut == CUT_ISOLATED)
            return isolate(run, index, text, bytes, first);
        return cut_run(run, index, text, bytes, first);
    case STAGE_SPACES:
        return spaces_run(run, index, text, bytes, first);
    case STAGE_WORDS:
        return marks_cut(run, index, text, bytes, false, first);
    }
    return STATUS_INTERNAL;
}

enum status pretokenize(const struct pretokenizer *pretokenizer,
                        const struct pretokenize_input *input, pretokenize_piece on_piece,
                        void *arg, struct error *error)
{
    struct run run = {.pretokenizer = pretokenizer,
                      .scratch = input->scratch,
                      .on_piece = on_piece,
                      .arg = arg,
                      .continues = input->continues,
                      .error = error};
    const enum status status = piece_pass(&run, 0, input->text, input->bytes, input->first);
    for (size_t i = 0; i < pretokenizer->stage_count; i++) {
        buffer_free(&run.marked[i]);
        free(run.spans[i].items);
    }
    return status;
}
