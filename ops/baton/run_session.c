#include "ops/baton/run_session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

/* Words about a load that takes a second or more: on a terminal one line that is rewritten, in a
 * file a line for each quarter; at last how fast it was. */
enum { PATIENCE_MS = 1000, QUARTER = 25 };
struct progress_line {
    uint64_t start_ns;
    uint32_t told; /* per cent */
    bool terminal, spoken;
};

static void show_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct progress_line *line = arg;
    const uint32_t step = line->terminal ? 1 : QUARTER;
    const uint32_t percent = (uint32_t)(100.0 * (double)done_bytes / (double)total_bytes);
    if (percent / step == line->told / step || percent == 100 ||
        clock_now_ns(clock_monotonic()) - line->start_ns < PATIENCE_MS * NS_PER_MS)
        return;
    line->told = percent;
    line->spoken = true;
    fprintf(stderr, "%sloading %3" PRIu32 " %% of %.0f MB%s", line->terminal ? "\r" : "", percent,
            (double)total_bytes / 1e6, line->terminal ? "" : "\n");
}

static void show_loaded(const struct progress_line *line, const struct model_info *info)
{
    if (line->spoken)
        fprintf(stderr, "%sloaded %.0f MB in %.1f s, %.1f GB/s\n", line->terminal ? "\r\033[K" : "",
                (double)info->tensor_bytes / 1e6, info->pack_seconds,
                (double)info->tensor_bytes / (info->pack_seconds * 1e9));
    if (info->narrow_share > 0)
        fprintf(stderr, "%.0f %% of what may take 4 bits take them, weights %.0f MB\n",
                100 * info->narrow_share, (double)info->weight_bytes / 1e6);
}

enum status run_session_open(const struct model_options *options, enum session_text wanted,
                             struct run_session *out, struct error *error)
{
    struct run_session session = {.chunk_tokens = options->max_rows};
    struct progress_line line = {.start_ns = clock_now_ns(clock_monotonic()),
                                 .terminal = isatty(STDERR_FILENO)};
    struct model_options with_progress = *options;
    with_progress.progress = show_progress;
    with_progress.progress_arg = &line;
    enum status status = text_open(options->path, &session.text, error);
    /* What else may not be there is missed by model_open as well. */
    if (status == STATUS_NOT_FOUND && wanted == SESSION_TEXT_IF_THERE)
        session.text = NULL;
    else if (status != STATUS_OK)
        return status;
    status = model_open(&with_progress, &session.model, error);
    if (status != STATUS_OK) {
        if (line.spoken && line.terminal)
            fputs("\r\033[K", stderr);
        text_close(session.text);
        return status;
    }
    show_loaded(&line, model_info(session.model));
    *out = session;
    return STATUS_OK;
}

void run_session_close(struct run_session *session)
{
    model_close(session->model);
    text_close(session->text);
}

enum status sequence_open(struct run_session *session, uint32_t tokens, struct sequence *out,
                          struct error *error)
{
    struct page_pool *pages = model_pages(session->model);
    const uint32_t page_tokens = page_pool_layout(pages)->page_tokens;
    const uint32_t count = (tokens + page_tokens - 1) / page_tokens;
    uint32_t *slots = malloc(count * sizeof *slots);
    int32_t *ids = malloc(((size_t)tokens + 1) * sizeof *ids);
    if (slots == NULL || ids == NULL) {
        free(slots);
        free(ids);
        return error_set(error, STATUS_NO_MEMORY, "no memory for a table of %" PRIu32 " pages",
                         count);
    }
    if (page_pool_reserve(pages, count) != STATUS_OK) {
        free(slots);
        free(ids);
        return error_set(error, STATUS_BUSY,
                         "%" PRIu32 " tokens take %" PRIu32 " KV pages, the pool has %" PRIu32,
                         tokens, count, page_pool_free_count(pages));
    }
    page_pool_take(pages, count, slots);
    *out =
        (struct sequence){.session = session, .slots = slots, .slot_count = count, .tokens = ids};
    return STATUS_OK;
}

void sequence_close(struct sequence *sequence)
{
    page_pool_free(model_pages(sequence->session->model), sequence->slots, sequence->slot_count);
    free(sequence->slots);
    free(sequence->tokens);
}

enum status sequence_feed(struct sequence *sequence, const int32_t *tokens, uint32_t count,
                          const struct feed_hooks *hooks, const float **last_logits_out,
                          struct error *error)
{
    static const struct feed_hooks no_hooks = {0};
    struct model *model = sequence->session->model;
    const size_t vocab = model_info(model)->vocab_count;
    const uint32_t chunk = sequence->session->chunk_tokens;
    const float *logits = NULL;
    uint32_t rows = 0;
    CHECK(count > 0);
    if (hooks == NULL)
        hooks = &no_hooks;
    for (uint32_t done = 0; done < count; done += rows) {
        if (hooks->interrupted != NULL && hooks->interrupted(hooks->arg))
            return error_set(error, STATUS_CANCELED, "interrupted");
        rows = count - done < chunk ? count - done : chunk;
        const bool every = hooks->on_logits != NULL;
        const struct forward_sequence part = {
            .tokens = tokens + done,
            .count = rows,
            .position = sequence->position,
            .slots = sequence->slots,
            .logit_rows = every ? rows : done + rows == count,
        };
        TRY(model_forward(model, &part, 1, NULL, &logits, error));
        for (uint32_t row = 0; every && row < rows; row++)
            hooks->on_logits(hooks->arg, sequence->position + row, logits + row * vocab);
        if (every)
            logits += (rows - 1) * vocab;
        memcpy(sequence->tokens + sequence->position, tokens + done, rows * sizeof *tokens);
        sequence->position += rows;
    }
    *last_logits_out = logits;
    return STATUS_OK;
}
