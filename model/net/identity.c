/* Whether two nodes may pass pages to each other. */
#include <inttypes.h>

#include "model/model.h"

static enum status compare_digest(const char *what, struct digest128 ours, struct digest128 theirs,
                                  struct error *error)
{
    if (digest128_equal(ours, theirs))
        return STATUS_OK;
    char our_text[DIGEST_TEXT_BYTES], their_text[DIGEST_TEXT_BYTES];
    digest128_text(ours, our_text);
    digest128_text(theirs, their_text);
    return error_set(error, STATUS_MISMATCH, "the %s differ: %s here and %s on the other side",
                     what, our_text, their_text);
}

static enum status compare_number(const char *what, uint64_t ours, uint64_t theirs,
                                  struct error *error)
{
    if (ours == theirs)
        return STATUS_OK;
    return error_set(error, STATUS_MISMATCH,
                     "the %s differ: %016" PRIx64 " here and %016" PRIx64 " on the other side",
                     what, ours, theirs);
}

enum status model_identity_compare(const struct model_identity *ours,
                                   const struct model_identity *theirs, struct error *error)
{
    TRY(compare_digest("models' weights", ours->weights, theirs->weights, error));
    TRY(compare_digest("tokenizers", ours->tokenizer, theirs->tokenizer, error));
    TRY(compare_number("numerics profiles", ours->profile_id, theirs->profile_id, error));
    TRY(kv_layout_compare(&ours->layout, &theirs->layout, error));
    return compare_number("results of the probe pass", ours->probe_digest, theirs->probe_digest,
                          error);
}
