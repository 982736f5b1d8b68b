/* Which matrices take 4 bits when weights are quantised at load.
 *
 * --quantize int8 has nothing to choose. --quantize int4 is a promise about the result, not about
 * every matrix: 4 bits go where they cost least for what they save, as far as the divergence from 8
 * bits, measured on a text, allows it. A `struct quantize_plan` says where; quantize_choose finds
 * one. */
#ifndef BATON_MODEL_NET_QUANTIZE_INTERNAL_H
#define BATON_MODEL_NET_QUANTIZE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"
#include "model/kv/page_pool.h"
#include "model/net/weights_internal.h"

enum { QUANTIZE_TOKENS = 512, QUANTIZE_TOKENS_MIN = 64 };
/* Of the means over the measured positions, in nats; half of what int4 may cost in all. */
#define QUANTIZE_LIMIT_NATS 0.015

/* Rows and layers are those of the table of tensors. NULL in `narrow`: nothing takes 4 bits. */
struct quantize_plan {
    enum model_quantize scheme;
    uint32_t layers;
    bool *narrow; /* [layers][rows] */
    double share; /* of the values that might, how many take 4 bits */
};

/* All matrices at 8 bits, or as they are with QUANTIZE_NONE. Released after success or failure. */
enum status quantize_plan_init(struct quantize_plan *plan, enum model_quantize scheme,
                               uint32_t layers, struct error *error);
void quantize_plan_release(struct quantize_plan *plan);
bool *quantize_plan_at(const struct quantize_plan *plan, uint32_t layer, size_t row);
/* Whether a row takes 4 bits in a layer; false without a plan. */
bool quantize_plan_narrow(const struct quantize_plan *plan, uint32_t layer, size_t row);
bool quantize_plan_any(const struct quantize_plan *plan);
/* Appends what distinguishes the weights from those of the file. */
void quantize_plan_describe(const struct quantize_plan *plan, struct buffer *out);

/* A matrix that might take 4 bits: one row of the table in all layers. */
struct quantize_role {
    size_t row;
    uint64_t *values; /* [layers] */
    uint64_t total;
    double cost; /* nats, with 4 bits in all layers */
};
/* The plan that spends `budget` nats: roles whole, the cheapest for their values first, and of the
 * first that is too dear as many layers as it allows, those in the middle of the model before its
 * ends. `roles` are sorted. Returns the values that take 4 bits. */
uint64_t quantize_plan_spend(struct quantize_plan *plan, struct quantize_role *roles,
                             size_t role_count, double budget);

struct quantize_choice {
    const struct model_file *file;
    const struct net_config *config;
    struct backend *backend;
    struct weights *weights;        /* loaded by the plan that narrows nothing */
    const struct kv_layout *layout; /* of the pages to compute in */
    uint32_t max_rows;              /* of a forward call */
    uint32_t token_count;           /* ids that have a meaning */
    const int32_t *ids;             /* the text, QUANTIZE_TOKENS_MIN or more */
    uint32_t id_count;
    const struct load_progress *progress;
};
/* Sets flags of *plan. The weights are afterwards what they were before. */
enum status quantize_choose(const struct quantize_choice *choice, struct quantize_plan *plan,
                            struct error *error);

/* How far the weights of now are from those of the beginning, on one text. */
struct quantize_measure;
enum status quantize_measure_open(const struct quantize_choice *choice,
                                  struct quantize_measure **out, struct error *error);
void quantize_measure_close(struct quantize_measure *measure); /* NULL is fine */
/* The mean divergence of the second half of the positions. The ids
 * that the first weights thought unlikely (below 2^-13) count as one. */
enum status quantize_measure_run(struct quantize_measure *measure, double *nats_out,
                                 struct error *error);

/* English prose, code, numbers and lists: what is measured on without --calibrate. */
extern const char quantize_text[];

#endif
