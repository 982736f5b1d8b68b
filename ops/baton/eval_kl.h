/* `baton eval --kl`: how far the run's distributions are from those of a reference: f32 throughout,
 * or the same settings with another KV cache.
 *
 * A `struct eval_kl` is fed token sequences; each is cut in windows, which both models read from an
 * empty context. At every position the divergence KL(reference || run) over the tokenizer's ids is
 * taken, in nats. */
#ifndef BATON_OPS_BATON_EVAL_KL_H
#define BATON_OPS_BATON_EVAL_KL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "ops/baton/run_session.h"

enum { EVAL_KL_WINDOW = 512, EVAL_KL_POSITIONS_MAX = 1 << 24 };

struct eval_kl;

/* What a run is compared with: the same file. */
enum eval_kl_reference {
    EVAL_KL_F32,     /* f32 activations and f32 KV */
    EVAL_KL_BF16_KV, /* the run's activations and bf16 KV: what the KV cache alone costs */
};

/* run: the settings to judge, opened with run_options, whose max_logit_rows are its max_rows. Stops
 * after `positions` of them. */
enum status eval_kl_open(struct run_session *run, const struct model_options *run_options,
                         enum eval_kl_reference against, uint32_t positions, struct eval_kl **out,
                         struct error *error);
void eval_kl_close(struct eval_kl *kl);

/* Does nothing when there are positions enough. */
enum status eval_kl_add(struct eval_kl *kl, const int32_t *ids, size_t count, struct error *error);
/* The text of a file, in windows that are raw prompts: with bos first where the model wants it. */
enum status eval_kl_add_text(struct eval_kl *kl, const char *path, struct error *error);
/* Mean, 99th percentile and largest divergence, and how often both have the same likeliest token.
 * INVALID when there were fewer positions than asked for. */
enum status eval_kl_print(struct eval_kl *kl, bool json, struct error *error);

/* KL(reference || run) of two rows of logits, in nats; NaN when one is not finite. */
double eval_kl_divergence(const float *reference, const float *run, uint32_t count);

#endif
