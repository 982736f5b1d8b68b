/* The probe: 64 fixed tokens through a loaded model, digested. Two nodes whose digests are equal
 * compute the same bits, whatever their files, builds and chips are called. */
#ifndef BATON_MODEL_NET_PROBE_INTERNAL_H
#define BATON_MODEL_NET_PROBE_INTERNAL_H

#include <stdint.h>

#include "base/status.h"
#include "model/net/forward_internal.h"

struct probe {
    struct forward *forward;
    struct backend *backend;
    struct page_pool *pages; /* fresh: what the probe does not write is zero and is digested too */
    uint32_t vocab_count, context_tokens, max_rows;
};

/* Digest of the KV pages of all layers and of the last token's logits. Takes its pages from the
 * pool and gives them back. CORRUPT when a logit is not a number. */
enum status probe_run(const struct probe *probe, uint64_t *digest_out, struct error *error);

#endif
