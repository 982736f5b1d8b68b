/* The phases of `baton bench model`: prompts of random tokens, and steps of a batch whose context
 * is in the pages. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "ops/baton/bench_model.h"
#include "ops/baton/bench_time.h"

enum { SEED = 1 };

static double seconds_since(uint64_t begin_ns)
{
    return (double)(clock_now_ns(clock_monotonic()) - begin_ns) / NS_PER_S;
}

static void *checked_malloc(size_t bytes)
{
    void *memory = malloc(bytes);
    CHECK(memory != NULL);
    return memory;
}

static int32_t *tokens_draw(const struct run_session *session, uint32_t count)
{
    int32_t *tokens = checked_malloc(count * sizeof *tokens);
    struct random random;
    random_init(&random, SEED);
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (int32_t)random_below(&random, model_info(session->model)->token_count);
    return tokens;
}

/* Where a profile stands, for calls whose work is to be counted and perhaps their parts timed. */
struct accounting {
    struct model_profile *profile; /* NULL: none of it */
    bool timed;
};

static enum status forward(struct run_session *session, const struct forward_sequence *sequences,
                           uint32_t count, struct accounting accounting, struct error *error)
{
    const float *logits;
    if (accounting.profile != NULL)
        model_profile_begin(accounting.profile, sequences, count);
    return model_forward(session->model, sequences, count,
                         accounting.timed ? &accounting.profile->hooks : NULL, &logits, error);
}

/* A whole prompt; logits of its last token. */
static enum status feed(struct sequence *sequence, const int32_t *tokens, uint32_t count,
                        struct accounting accounting, struct error *error)
{
    const uint32_t chunk = sequence->session->chunk_tokens;
    uint32_t rows;
    for (uint32_t done = 0; done < count; done += rows) {
        rows = count - done < chunk ? count - done : chunk;
        const struct forward_sequence part = {.tokens = tokens + done,
                                              .count = rows,
                                              .position = done,
                                              .slots = sequence->slots,
                                              .logit_rows = done + rows == count};
        TRY(forward(sequence->session, &part, 1, accounting, error));
    }
    return STATUS_OK;
}

static enum status prefill_runs(struct sequence *sequence, const int32_t *tokens, uint32_t count,
                                const struct phase_options *options, struct phase_result *out,
                                struct error *error)
{
    double *seconds = checked_malloc(options->run_count * sizeof *seconds);
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < options->run_count && status == STATUS_OK; i++) {
        const uint64_t begin_ns = clock_now_ns(clock_monotonic());
        status = feed(sequence, tokens, count, (struct accounting){&out->counted, false}, error);
        seconds[i] = seconds_since(begin_ns);
    }
    out->runs = options->run_count;
    out->seconds = bench_median(seconds, options->run_count);
    free(seconds);
    for (uint32_t i = 0; options->breakdown && i < options->run_count && status == STATUS_OK; i++) {
        status = feed(sequence, tokens, count, (struct accounting){&out->profile, true}, error);
        out->profiled++;
    }
    return status;
}

enum status bench_prefill(struct run_session *session, enum kv_dtype kv_dtype, uint32_t token_count,
                          const struct phase_options *options, struct phase_result *out,
                          struct error *error)
{
    struct sequence sequence;
    struct phase_result result = {0};
    model_profile_init(&result.profile, session->model, kv_dtype);
    model_profile_init(&result.counted, session->model, kv_dtype);
    TRY(sequence_open(session, token_count, &sequence, error));
    int32_t *tokens = tokens_draw(session, token_count);
    const enum status status =
        prefill_runs(&sequence, tokens, token_count, options, &result, error);
    free(tokens);
    sequence_close(&sequence);
    if (status == STATUS_OK)
        *out = result;
    return status;
}

/* Gives `to` the pages of `from` as its own: the same bytes in other memory. */
static void pages_copy(struct page_pool *pages, const struct sequence *from,
                       const struct sequence *to)
{
    const struct kv_layout *layout = page_pool_layout(pages);
    const size_t bytes = kv_layout_strip_bytes(layout);
    for (uint32_t layer = 0; layer < layout->layers; layer++)
        for (uint32_t page = 0; page < from->slot_count; page++)
            memcpy(page_pool_strip(pages, layer, to->slots[page]),
                   page_pool_strip(pages, layer, from->slots[page]), bytes);
}

/* The context of every sequence: computed once and copied, computed again on a device whose memory
 * the host does not see. */
static enum status contexts_fill(struct sequence *sequences, uint32_t count, const int32_t *tokens,
                                 uint32_t context, struct error *error)
{
    struct page_pool *pages = model_pages(sequences[0].session->model);
    const bool visible = page_pool_strip(pages, 0, 0) != NULL;
    for (uint32_t i = 0; i < count && context > 0; i++) {
        if (i > 0 && visible)
            pages_copy(pages, &sequences[0], &sequences[i]);
        else
            TRY(feed(&sequences[i], tokens, context, (struct accounting){0}, error));
    }
    return STATUS_OK;
}

/* Steps from the context on; every sequence brings a token and gets its logits. */
static enum status steps_run(struct sequence *sequences, struct forward_sequence *batch,
                             uint32_t count, const int32_t *tokens,
                             const struct phase_options *options, struct accounting accounting,
                             double *seconds, struct error *error)
{
    for (uint32_t step = 0; step < options->step_count; step++) {
        for (uint32_t i = 0; i < count; i++)
            batch[i] = (struct forward_sequence){.tokens = &tokens[i],
                                                 .count = 1,
                                                 .position = options->context + step,
                                                 .slots = sequences[i].slots,
                                                 .logit_rows = 1};
        const uint64_t begin_ns = clock_now_ns(clock_monotonic());
        TRY(forward(sequences[0].session, batch, count, accounting, error));
        seconds[step] = seconds_since(begin_ns);
    }
    return STATUS_OK;
}

static enum status decode_runs(struct sequence *sequences, uint32_t count, const int32_t *tokens,
                               const struct phase_options *options, struct phase_result *out,
                               struct error *error)
{
    const size_t steps = options->step_count;
    struct forward_sequence *batch = checked_malloc(count * sizeof *batch);
    double *seconds = checked_malloc(options->run_count * steps * sizeof *seconds);
    enum status status = contexts_fill(sequences, count, tokens, options->context, error);
    for (uint32_t i = 0; i < options->run_count && status == STATUS_OK; i++)
        status = steps_run(sequences, batch, count, tokens, options,
                           (struct accounting){&out->counted, false}, seconds + i * steps, error);
    if (status == STATUS_OK) {
        out->runs = options->run_count * options->step_count;
        out->seconds = bench_median(seconds, out->runs);
    }
    if (status == STATUS_OK && options->breakdown) {
        status = steps_run(sequences, batch, count, tokens, options,
                           (struct accounting){&out->profile, true}, seconds, error);
        out->profiled = options->step_count;
    }
    free(batch);
    free(seconds);
    return status;
}

enum status bench_decode(struct run_session *session, enum kv_dtype kv_dtype, uint32_t batch,
                         const struct phase_options *options, struct phase_result *out,
                         struct error *error)
{
    const uint32_t room = options->context + options->step_count;
    struct sequence *sequences = checked_malloc(batch * sizeof *sequences);
    struct phase_result result = {0};
    uint32_t open = 0;
    enum status status = STATUS_OK;
    model_profile_init(&result.profile, session->model, kv_dtype);
    model_profile_init(&result.counted, session->model, kv_dtype);
    while (open < batch && status == STATUS_OK) {
        status = sequence_open(session, room, &sequences[open], error);
        open += status == STATUS_OK;
    }
    int32_t *tokens = tokens_draw(session, options->context > batch ? options->context : batch);
    if (status == STATUS_OK)
        status = decode_runs(sequences, batch, tokens, options, &result, error);
    free(tokens);
    while (open > 0)
        sequence_close(&sequences[--open]);
    free(sequences);
    if (status == STATUS_OK)
        *out = result;
    return status;
}
