/* Do two sides fit? Pure comparisons with sentences. */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "router/fleet.h"

static void copy_bytes(struct wire_bin from, uint8_t out[16])
{
    memset(out, 0, 16);
    memcpy(out, from.data, from.bytes < 16 ? from.bytes : 16);
}

void fleet_identity_copy(const struct msg_identity *message, struct fleet_identity *out)
{
    *out = (struct fleet_identity){
        .profile_id = message->profile_id,
        .probe_digest = message->probe_digest,
        .layout = message->layout,
        .head_first = message->head_first,
        .head_count = message->head_count,
        .rank = message->rank,
        .rank_count = message->rank_count,
        .scale_layout = message->scale_layout,
        .rope_pairing = message->rope_pairing,
        .rope_rotary = message->rope_rotary,
        .rope_base = message->rope_base,
    };
    wire_str_copy(message->revision, out->revision, sizeof out->revision);
    wire_str_copy(message->model, out->model, sizeof out->model);
    wire_str_copy(message->mover, out->mover, sizeof out->mover);
    if (message->weights_digest.bytes > 0)
        copy_bytes(message->weights_digest, out->weights_digest);
    if (message->tokenizer_digest.bytes > 0)
        copy_bytes(message->tokenizer_digest, out->tokenizer_digest);
}

void fleet_digest_text(const uint8_t bytes[16], char out[DIGEST_TEXT_BYTES])
{
    digest128_text((struct digest128){.low = load_le64(bytes), .high = load_le64(bytes + 8)}, out);
}

static enum status digests_differ(const char *name, const uint8_t a[16], const uint8_t b[16],
                                  struct error *error)
{
    char a_text[DIGEST_TEXT_BYTES], b_text[DIGEST_TEXT_BYTES];
    fleet_digest_text(a, a_text);
    fleet_digest_text(b, b_text);
    return error_set(error, STATUS_MISMATCH, "the %s is %s on one side and %s on the other", name,
                     a_text, b_text);
}

/* As --kv-dtype has it. */
static const char *dtype_name(uint32_t dtype)
{
    static const char *const names[] = {"f32", "bf16", "int8"};
    return dtype < ARRAY_COUNT(names) ? names[dtype] : "unknown";
}

enum status fleet_identity_compare(const struct fleet_identity *a, const struct fleet_identity *b,
                                   struct error *error)
{
    if (memcmp(a->weights_digest, b->weights_digest, 16) != 0)
        return digests_differ("weights digest", a->weights_digest, b->weights_digest, error);
    if (memcmp(a->tokenizer_digest, b->tokenizer_digest, 16) != 0)
        return digests_differ("tokenizer digest", a->tokenizer_digest, b->tokenizer_digest, error);
    const struct {
        const char *name;
        uint64_t a, b;
    } rows[] = {
        {"KV layout version", a->layout.version, b->layout.version},
        {"layer count", a->layout.layers, b->layout.layers},
        {"KV head count", a->layout.kv_heads, b->layout.kv_heads},
        {"head size", a->layout.head_dim, b->layout.head_dim},
        {"page size in tokens", a->layout.page_tokens, b->layout.page_tokens},
        {"KV layout id", a->layout.layout_id, b->layout.layout_id},
        {"attention window", a->layout.window, b->layout.window},
        {"first head", a->head_first, b->head_first},
        {"head range", a->head_count, b->head_count},
        {"rank", a->rank, b->rank},
        {"rank count", a->rank_count, b->rank_count},
        {"scale layout", a->scale_layout, b->scale_layout},
        {"RoPE pairing", a->rope_pairing, b->rope_pairing},
        {"RoPE size", a->rope_rotary, b->rope_rotary},
        /* What follows from the others, or from the processors, is the last to name. */
        {"numerics profile", a->profile_id, b->profile_id},
        {"probe digest", a->probe_digest, b->probe_digest},
    };
    if (strcmp(a->revision, b->revision) != 0)
        return error_set(error, STATUS_MISMATCH,
                         "the model revision is \"%s\" on one side and \"%s\" on the other",
                         a->revision, b->revision);
    if (a->rope_base != b->rope_base)
        return error_set(error, STATUS_MISMATCH,
                         "the RoPE base is %.9g on one side and %.9g on the other",
                         (double)a->rope_base, (double)b->rope_base);
    if (a->layout.dtype != b->layout.dtype)
        return error_set(error, STATUS_MISMATCH,
                         "the KV dtype is %s on one side and %s on the other",
                         dtype_name(a->layout.dtype), dtype_name(b->layout.dtype));
    if (strcmp(a->mover, b->mover) != 0)
        return error_set(error, STATUS_MISMATCH, "the mover is %s on one side and %s on the other",
                         a->mover, b->mover);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        if (rows[i].a != rows[i].b)
            return error_set(error, STATUS_MISMATCH,
                             "the %s is %" PRIu64 " on one side and %" PRIu64 " on the other",
                             rows[i].name, rows[i].a, rows[i].b);
    }
    return STATUS_OK;
}

static enum status check_form(const struct msg_hello *hello, struct error *error)
{
    if (hello->role != WORKER_PREFILL && hello->role != WORKER_DECODE)
        return error_set(error, STATUS_INVALID, "the role of the worker is %u, not 1 or 2",
                         hello->role);
    if (hello->boot_id.bytes != 16)
        return error_set(error, STATUS_INVALID, "the boot id of the worker has %u bytes, not 16",
                         hello->boot_id.bytes);
    if (hello->node.bytes == 0)
        return error_set(error, STATUS_INVALID, "the worker has no name");
    for (uint32_t i = 0; i < hello->node.bytes; i++) {
        const unsigned char c = (unsigned char)hello->node.data[i];
        if (c <= ' ' || c >= 0x7f || c == '"' || c == '\\')
            return error_set(error, STATUS_INVALID,
                             "the worker's name has byte 0x%02x at %u; names are printable ASCII "
                             "without spaces, quotes and backslashes",
                             c, i);
    }
    return STATUS_OK;
}

enum status fleet_hello_check(const struct fleet_rules *rules, const struct msg_hello *hello,
                              uint32_t *model_out, struct error *error)
{
    TRY(check_form(hello, error));
    struct fleet_identity identity;
    fleet_identity_copy(&hello->identity, &identity);
    uint32_t model;
    TRY(fleet_model_find(rules, hello->model_name, &identity, &model, error));
    const struct text_info *text = rules->models[model].text;
    if (hello->vocab_count < text->vocab_count)
        return error_set(error, STATUS_MISMATCH,
                         "vocab_count is %u at the worker, fewer than the %u of the router's "
                         "tokenizer",
                         hello->vocab_count, text->vocab_count);
    if (hello->context_tokens == 0 || hello->context_tokens > text->context_tokens)
        return error_set(error, STATUS_MISMATCH,
                         "context_tokens is %u at the worker; the router's model allows 1 to %u",
                         hello->context_tokens, text->context_tokens);
    if (hello->identity.rank_count > 1)
        return error_set(error, STATUS_UNSUPPORTED,
                         "rank_count is %u at the worker; the router takes workers of one rank",
                         hello->identity.rank_count);
    *model_out = model;
    return STATUS_OK;
}

enum status fleet_weights_check(const struct msg_hello *hello, const struct fleet_worker *here,
                                struct error *error)
{
    struct fleet_identity identity;
    fleet_identity_copy(&hello->identity, &identity);
    if (memcmp(identity.weights_digest, here->identity.weights_digest, 16) == 0)
        return STATUS_OK;
    char own_text[DIGEST_TEXT_BYTES], other_text[DIGEST_TEXT_BYTES];
    fleet_digest_text(identity.weights_digest, own_text);
    fleet_digest_text(here->identity.weights_digest, other_text);
    return error_set(error, STATUS_MISMATCH,
                     "weights_digest is %s at the worker (model %.64s) and %s at node %s (model "
                     "%.64s): one model name stands for one set of weights",
                     own_text, identity.model, other_text, here->node, here->identity.model);
}
