#include "model/net/probe_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"

enum { PROBE_TOKENS = 64, PROBE_PAGES_MAX = PROBE_TOKENS / KV_BLOCK_TOKENS };

/* Spread over the vocabulary, the same for every model with as many rows. */
static int32_t probe_token(uint32_t index, uint32_t vocab_count)
{
    return (int32_t)(index * 2654435761u % vocab_count);
}

static enum status run_tokens(const struct probe *probe, const uint32_t *slots, uint32_t count,
                              const float **logits_out, struct error *error)
{
    int32_t tokens[PROBE_TOKENS];
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = probe_token(i, probe->vocab_count);
    for (uint32_t done = 0; done < count;) {
        const uint32_t left = count - done;
        const struct forward_sequence sequence = {
            .tokens = tokens + done,
            .count = left < probe->max_rows ? left : probe->max_rows,
            .position = done,
            .slots = slots,
            .logit_rows = left <= probe->max_rows ? 1 : 0,
        };
        TRY(forward_run(probe->forward, &sequence, 1, NULL, logits_out, error));
        done += sequence.count;
    }
    return STATUS_OK;
}

static enum status digest_pages(const struct probe *probe, const uint32_t *slots, uint32_t count,
                                uint64_t *digest, struct error *error)
{
    const struct kv_layout *layout = page_pool_layout(probe->pages);
    const size_t bytes = kv_layout_strip_bytes(layout);
    void *copy = malloc(bytes);
    if (copy == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for a strip of %zu bytes", bytes);
    for (uint32_t layer = 0; layer < layout->layers; layer++) {
        const struct kv_view view = page_pool_view(probe->pages, layer);
        for (uint32_t i = 0; i < count; i++) {
            probe->backend->ops->download(probe->backend, copy,
                                          device_offset(view.base, slots[i] * bytes), bytes);
            *digest = hash64(copy, bytes, *digest);
        }
    }
    free(copy);
    return STATUS_OK;
}

static enum status probe_with(const struct probe *probe, const uint32_t *slots, uint32_t pages,
                              uint32_t tokens, uint64_t *digest_out, struct error *error)
{
    const float *logits = NULL;
    TRY(run_tokens(probe, slots, tokens, &logits, error));
    CHECK(logits != NULL); // of the last token, and there is one
    for (uint32_t i = 0; i < probe->vocab_count; i++) {
        if (!isfinite(logits[i]))
            return error_set(error, STATUS_CORRUPT,
                             "the model's weights give %g as the logit of token %" PRIu32,
                             (double)logits[i], i);
    }
    uint64_t digest = hash64(logits, probe->vocab_count * sizeof *logits, 0);
    TRY(digest_pages(probe, slots, pages, &digest, error));
    *digest_out = digest;
    return STATUS_OK;
}

enum status probe_run(const struct probe *probe, uint64_t *digest_out, struct error *error)
{
    uint32_t slots[PROBE_PAGES_MAX];
    const uint32_t page_tokens = page_pool_layout(probe->pages)->page_tokens;
    const uint32_t tokens =
        probe->context_tokens < PROBE_TOKENS ? probe->context_tokens : PROBE_TOKENS;
    const uint32_t pages = (tokens + page_tokens - 1) / page_tokens;
    CHECK(pages <= PROBE_PAGES_MAX);
    CHECK(page_pool_reserve(probe->pages, pages) == STATUS_OK);
    page_pool_take(probe->pages, pages, slots);
    const enum status status = probe_with(probe, slots, pages, tokens, digest_out, error);
    page_pool_free(probe->pages, slots, pages);
    return status;
}
