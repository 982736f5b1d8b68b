#include "worker/worker_identity.h"

#include "base/bytes.h"

/* Where scales stand, on the wire: numbers are never used for anything else. */
enum { SCALES_NONE = 0, SCALES_BEHIND_HEAD = 1 /* a float a token, behind the blocks of a head */ };

static struct wire_bin digest_bytes(struct digest128 digest, uint8_t out[16])
{
    store_le64(out, digest.low);
    store_le64(out + 8, digest.high);
    return (struct wire_bin){.data = out, .bytes = 16};
}

void worker_identity(const struct model_identity *identity, const struct model_info *info,
                     struct worker_digests *digests, struct msg_identity *out)
{
    const struct kv_layout *layout = &identity->layout;
    *out = (struct msg_identity){
        .model = wire_str(info->name),
        .weights_digest = digest_bytes(identity->weights, digests->weights),
        .tokenizer_digest = digest_bytes(identity->tokenizer, digests->tokenizer),
        .profile_id = identity->profile_id,
        .probe_digest = identity->probe_digest,
        .layout = {.version = layout->version,
                   .layers = layout->layers,
                   .kv_heads = layout->kv_heads,
                   .head_dim = layout->head_dim,
                   .page_tokens = layout->page_tokens,
                   .dtype = (uint32_t)layout->dtype,
                   .layout_id = layout->layout_id,
                   .window = layout->window},
        .head_first = 0,
        .head_count = layout->kv_heads,
        .rank = 0,
        .rank_count = 1,
        .revision = wire_str(identity->revision),
        .scale_layout = layout->dtype == KV_I8 ? SCALES_BEHIND_HEAD : SCALES_NONE,
        .rope_pairing = identity->rope_pairing,
        .rope_rotary = identity->rope_rotary,
        .rope_base = identity->rope_base,
    };
}
