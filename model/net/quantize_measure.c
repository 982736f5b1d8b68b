/* A text through the model, twice or more: what the first weights thought is kept, as far as it
 * matters, and what later ones think is held against it. */
#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/net/forward_internal.h"
#include "model/net/quantize_internal.h"
#include "model/sampler_internal.h"

enum { CHUNK = 32, LIKELY = 1 << 13 };

/* The first weights' likely ids of a position are [first, end) of the lists. */
struct kept {
    size_t first, end;
    double rest; /* what all others have together */
};

struct quantize_measure {
    struct page_pool *pages;
    struct forward *forward;
    const int32_t *ids;
    uint32_t count, silent; /* tokens, and those whose logits are not looked at */
    uint32_t chunk, vocab_count, token_count;
    uint32_t *slots;
    uint32_t slot_count;
    double *weights;   /* [vocab] of one row */
    struct kept *kept; /* [count - silent] */
    struct buffer likely_ids, likely_chances;
    bool primed;
    double sum;
};

static enum status no_memory(struct error *error)
{
    return error_set(error, STATUS_NO_MEMORY, "no memory to measure what quantising costs");
}

static enum status open_pages(struct quantize_measure *m, const struct quantize_choice *choice,
                              struct error *error)
{
    const uint32_t page_tokens = choice->layout->page_tokens;
    m->slot_count = (m->count + page_tokens - 1) / page_tokens;
    m->slots = calloc(m->slot_count, sizeof *m->slots);
    m->weights = calloc(m->vocab_count, sizeof *m->weights);
    m->kept = calloc(m->count, sizeof *m->kept);
    if (m->slots == NULL || m->weights == NULL || m->kept == NULL)
        return no_memory(error);
    TRY(page_pool_create(choice->backend, choice->layout, m->slot_count, &m->pages, error));
    CHECK(page_pool_reserve(m->pages, m->slot_count) == STATUS_OK);
    page_pool_take(m->pages, m->slot_count, m->slots);
    const struct forward_limits limits = {.rows = m->chunk,
                                          .sequences = 1,
                                          .logit_rows = m->chunk,
                                          .context_tokens = m->count,
                                          .token_count = m->token_count};
    return forward_create(choice->backend, choice->config, choice->weights, m->pages, &limits,
                          &m->forward, error);
}

enum status quantize_measure_open(const struct quantize_choice *choice,
                                  struct quantize_measure **out, struct error *error)
{
    struct quantize_measure *m = calloc(1, sizeof *m);
    if (m == NULL)
        return no_memory(error);
    m->ids = choice->ids;
    m->count = choice->id_count;
    m->silent = m->count / 2;
    m->chunk = choice->max_rows < CHUNK ? choice->max_rows : CHUNK;
    m->vocab_count = choice->config->vocab_count;
    m->token_count = choice->token_count;
    const enum status status = open_pages(m, choice, error);
    if (status != STATUS_OK) {
        quantize_measure_close(m);
        return status;
    }
    *out = m;
    return STATUS_OK;
}

void quantize_measure_close(struct quantize_measure *m)
{
    if (m == NULL)
        return;
    forward_destroy(m->forward);
    if (m->pages != NULL) {
        page_pool_free(m->pages, m->slots, m->slot_count);
        page_pool_destroy(m->pages);
    }
    buffer_free(&m->likely_ids);
    buffer_free(&m->likely_chances);
    free(m->slots);
    free(m->weights);
    free(m->kept);
    free(m);
}

static void keep_row(struct quantize_measure *m, struct kept *kept, double total)
{
    double likely = 0;
    kept->first = m->likely_ids.size / sizeof(uint32_t);
    for (uint32_t id = 0; id < m->token_count; id++) {
        if (m->weights[id] * LIKELY < total)
            continue;
        const double chance = m->weights[id] / total;
        buffer_add(&m->likely_ids, &id, sizeof id);
        buffer_add(&m->likely_chances, &chance, sizeof chance);
        likely += chance;
    }
    kept->end = m->likely_ids.size / sizeof(uint32_t);
    kept->rest = 1 - likely;
}

static double compare_row(const struct quantize_measure *m, const struct kept *kept, double total)
{
    /* What is left after so many sums may be below zero by rounding, or nothing. */
    const double least = 1e-9;
    const uint32_t *ids = (const uint32_t *)(const void *)m->likely_ids.data;
    const double *chances = (const double *)(const void *)m->likely_chances.data;
    double nats = 0, likely = 0;
    for (size_t i = kept->first; i < kept->end; i++) {
        const double chance = fmax(m->weights[ids[i]] / total, 0x1p-200);
        nats += chances[i] * log(chances[i] / chance);
        likely += chance;
    }
    const double rest = fmax(kept->rest, least);
    return nats + rest * log(rest / fmax(1 - likely, least));
}

static void look_at_row(struct quantize_measure *m, uint32_t position, const float *logits)
{
    struct kept *kept = &m->kept[position - m->silent];
    const double total = sampler_weigh(logits, m->token_count, m->weights);
    if (isnan(total)) { // comparisons with it would keep every id of the row
        m->sum = (double)NAN;
        return;
    }
    if (!m->primed)
        keep_row(m, kept, total);
    m->sum += compare_row(m, kept, total);
}

enum status quantize_measure_run(struct quantize_measure *m, double *nats_out, struct error *error)
{
    m->sum = 0;
    for (uint32_t done = 0, rows; done < m->count; done += rows) {
        const uint32_t end = done < m->silent ? m->silent : m->count;
        const float *logits = NULL;
        rows = end - done < m->chunk ? end - done : m->chunk;
        const struct forward_sequence part = {.tokens = m->ids + done,
                                              .count = rows,
                                              .position = done,
                                              .slots = m->slots,
                                              .logit_rows = done < m->silent ? 0 : rows};
        TRY(forward_run(m->forward, &part, 1, NULL, &logits, error));
        for (uint32_t row = 0; row < part.logit_rows; row++)
            look_at_row(m, done + row, logits + (size_t)row * m->vocab_count);
    }
    m->primed = true;
    *nats_out = m->sum / (m->count - m->silent);
    return STATUS_OK;
}
