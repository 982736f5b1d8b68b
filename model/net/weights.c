/* Loading by the table of tensors (tensor_table.c). */
#include "model/net/weights_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "model/net/tensor_walk_internal.h"

struct loader {
    struct tensor_walk walk;
    struct backend *backend;
    struct load_progress *progress; /* NULL: nobody is told */
    struct weights *weights;
    bool narrow_only;
    uint64_t done_bytes;
    struct source_scratch *scratch; /* [members] */
};

void load_progress_report(const struct load_progress *progress, uint64_t done, uint64_t total)
{
    if (progress->report == NULL || total == 0)
        return;
    const double part = progress->from + progress->share * (double)done / (double)total;
    progress->report(progress->arg, (uint64_t)(part * (double)progress->total_bytes),
                     progress->total_bytes);
}

static void report(struct loader *loader, uint64_t bytes)
{
    loader->done_bytes += bytes;
    if (loader->progress != NULL)
        load_progress_report(loader->progress, loader->done_bytes, loader->walk.total_bytes);
}

static enum status load_vector(struct loader *loader, struct tensor_place *place, device_ptr *out,
                               struct error *error)
{
    const size_t bytes = place->inputs * sizeof(float);
    float *values = loader->scratch[0].words;
    tensor_source_vector(&place->source, place->inputs, values);
    TRY(loader->backend->ops->allocate(loader->backend, bytes, out, error));
    loader->backend->ops->upload(loader->backend, *out, values, bytes);
    loader->weights->bytes += bytes;
    return STATUS_OK;
}

static enum status load_host_vector(struct loader *loader, struct tensor_place *place, float **out,
                                    struct error *error)
{
    *out = malloc(place->inputs * sizeof **out);
    if (*out == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for '%s'", place->name);
    tensor_source_vector(&place->source, place->inputs, *out);
    for (uint32_t i = 0; i < place->inputs; i++) {
        if (!((*out)[i] > 0.0f && (*out)[i] <= 1e9f))
            return error_set(error, STATUS_INVALID,
                             "%s: '%s' holds %g at %" PRIu32 ", which is no factor",
                             loader->walk.file_name, place->name, (double)(*out)[i], i);
    }
    return STATUS_OK;
}

static enum status load_matrix(struct loader *loader, struct tensor_place *place,
                               struct weight **out, struct error *error)
{
    const struct backend_ops *ops = loader->backend->ops;
    place->source.scratch = loader->scratch;
    TRY(ops->weight_create(loader->backend, place->source.kind, place->outputs, place->inputs, out,
                           error));
    ops->weight_fill(loader->backend, *out,
                     &(struct weight_source){matrix_source_read, &place->source});
    loader->weights->bytes += ops->weight_bytes(*out);
    /* The head meets few rows, and what is rounded there goes into the logits as it is. */
    if (loader->walk.plan->scheme != QUANTIZE_NONE && place->row->owner == OF_MODEL)
        ops->weight_take_floats(loader->backend, *out);
    return STATUS_OK;
}

static void *owner_of(struct weights *weights, const struct tensor_row *row, uint32_t layer,
                      uint32_t expert)
{
    uint8_t *owner = (uint8_t *)weights;
    if (row->owner == OF_LAYER)
        owner = (uint8_t *)&weights->layers[layer];
    else if (row->owner == OF_EXPERT)
        owner = (uint8_t *)&weights->layers[layer].experts[expert];
    return owner + row->offset;
}

static enum status load_place(void *arg, struct tensor_place *place, struct error *error)
{
    struct loader *loader = arg;
    if (loader->narrow_only && place->source.quantize != QUANTIZE_INT4)
        return STATUS_OK;
    void *to = owner_of(loader->weights, place->row, place->layer, place->expert);
    TRY(place->row->form == MATRIX   ? load_matrix(loader, place, to, error)
        : place->row->form == VECTOR ? load_vector(loader, place, to, error)
                                     : load_host_vector(loader, place, to, error));
    report(loader, place->bytes);
    return STATUS_OK;
}

static void free_scratch(struct loader *loader)
{
    for (uint32_t i = 0; loader->scratch != NULL && i < loader->backend->members; i++) {
        free(loader->scratch[i].words);
        free(loader->scratch[i].row);
        free(loader->scratch[i].scale);
        free(loader->scratch[i].offset);
    }
    free(loader->scratch);
    tensor_walk_release(&loader->walk);
}

static bool allocate_member(struct source_scratch *scratch, size_t longest)
{
    const size_t values = WEIGHT_READ_ROWS * longest;
    const size_t groups = WEIGHT_READ_ROWS * (longest / WEIGHT_GROUP + 1);
    scratch->words = malloc(values * sizeof(float));
    scratch->row = malloc(longest * sizeof(float));
    scratch->scale = malloc(groups * sizeof(float));
    scratch->offset = malloc(groups * sizeof(float));
    return scratch->words != NULL && scratch->row != NULL && scratch->scale != NULL &&
           scratch->offset != NULL;
}

static bool allocate_layers(struct weights *weights, const struct net_config *config)
{
    weights->layers = calloc(config->layers, sizeof *weights->layers);
    if (weights->layers == NULL)
        return false;
    weights->layer_count = config->layers;
    weights->expert_count = config->experts;
    for (uint32_t i = 0; i < config->layers; i++) {
        if (!net_expert_layer(config, i))
            continue;
        weights->layers[i].experts = calloc(config->experts, sizeof(struct expert_weights));
        if (weights->layers[i].experts == NULL)
            return false;
    }
    return true;
}

static enum status allocate_scratch(struct loader *loader, struct error *error)
{
    const uint32_t members = loader->backend->members;
    const size_t longest = net_widest(loader->walk.config);
    loader->scratch = calloc(members, sizeof *loader->scratch);
    bool allocated =
        loader->scratch != NULL && allocate_layers(loader->weights, loader->walk.config);
    for (uint32_t i = 0; allocated && i < members; i++)
        allocated = allocate_member(&loader->scratch[i], longest);
    if (!allocated)
        return error_set(error, STATUS_NO_MEMORY, "no memory to load rows of %zu values", longest);
    return STATUS_OK;
}

static enum status load_all(struct loader *loader, struct error *error)
{
    TRY(tensor_walk_check(&loader->walk, error));
    TRY(allocate_scratch(loader, error));
    if (loader->progress != NULL && loader->progress->total_bytes == 0)
        loader->progress->total_bytes = loader->walk.total_bytes;
    return tensor_walk_each(&loader->walk, load_place, loader, error);
}

static struct tensor_walk walk_of(const struct model_file *file, const struct net_config *config,
                                  const struct backend *backend, const struct quantize_plan *plan)
{
    return (struct tensor_walk){.file = file,
                                .file_name = model_file_name(file),
                                .config = config,
                                .reference = backend->activations == ACTIVATION_F32,
                                .plan = plan};
}

enum status weights_check(const struct model_file *file, const struct net_config *config,
                          struct error *error)
{
    struct tensor_walk walk = {.file = file, .file_name = model_file_name(file), .config = config};
    const enum status status = tensor_walk_check(&walk, error);
    tensor_walk_release(&walk);
    return status;
}

enum status weights_each(const struct model_file *file, const struct net_config *config,
                         struct backend *backend, const struct quantize_plan *plan,
                         tensor_visit *visit, void *arg, struct error *error)
{
    struct tensor_walk walk = walk_of(file, config, backend, plan);
    enum status status = tensor_walk_check(&walk, error);
    if (status == STATUS_OK)
        status = tensor_walk_each(&walk, visit, arg, error);
    tensor_walk_release(&walk);
    return status;
}

enum status weights_load(const struct model_file *file, const struct net_config *config,
                         struct backend *backend, const struct quantize_plan *plan,
                         struct load_progress *progress, struct weights *weights,
                         struct error *error)
{
    struct loader loader = {.walk = walk_of(file, config, backend, plan),
                            .backend = backend,
                            .progress = progress,
                            .weights = weights};
    const enum status status = load_all(&loader, error);
    free_scratch(&loader);
    weights->tensor_bytes = loader.walk.total_bytes;
    return status;
}

enum status weights_load_narrow(const struct model_file *file, const struct net_config *config,
                                struct backend *backend, const struct quantize_plan *plan,
                                struct weights *weights, struct error *error)
{
    struct loader loader = {.walk = walk_of(file, config, backend, plan),
                            .backend = backend,
                            .weights = weights,
                            .narrow_only = true};
    const enum status status = load_all(&loader, error);
    free_scratch(&loader);
    return status;
}

static void exchange_at(struct weight **a, struct weight **b)
{
    struct weight *kept = *a;
    *a = *b;
    *b = kept;
}

void weights_exchange(struct weights *a, struct weights *b, const struct quantize_plan *plan)
{
    size_t count;
    const struct tensor_row *rows = tensor_rows(&count);
    for (uint32_t layer = 0; layer < a->layer_count; layer++) {
        for (size_t row = 0; row < count; row++) {
            if (!quantize_plan_narrow(plan, layer, row))
                continue;
            const bool expert = rows[row].owner == OF_EXPERT;
            for (uint32_t e = 0; e < (expert ? a->expert_count : 1); e++)
                exchange_at(owner_of(a, &rows[row], layer, e), owner_of(b, &rows[row], layer, e));
        }
    }
}

static void release_at(struct backend *backend, enum tensor_form form, void *at)
{
    if (form == MATRIX)
        backend->ops->weight_release(backend, *(struct weight **)at);
    else if (form == VECTOR)
        backend->ops->release(backend, *(device_ptr *)at);
    else
        free(*(float **)at);
}

/* Several rows may be for one member: of those only the first of the table releases it. */
static bool member_seen(const struct tensor_row *rows, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (rows[i].owner == rows[index].owner && rows[i].offset == rows[index].offset)
            return true;
    return false;
}

void weights_release(struct weights *weights, struct backend *backend)
{
    size_t count;
    const struct tensor_row *rows = tensor_rows(&count);
    for (size_t i = 0; i < count; i++) {
        const uint32_t layers = rows[i].owner == OF_MODEL ? 1 : weights->layer_count;
        for (uint32_t layer = 0; layer < layers && !member_seen(rows, i); layer++) {
            const bool experts = rows[i].owner == OF_EXPERT;
            if (experts && weights->layers[layer].experts == NULL)
                continue;
            for (uint32_t e = 0; e < (experts ? weights->expert_count : 1); e++)
                release_at(backend, rows[i].form, owner_of(weights, &rows[i], layer, e));
        }
    }
    for (uint32_t i = 0; i < weights->layer_count; i++)
        free(weights->layers[i].experts);
    free(weights->layers);
    *weights = (struct weights){0};
}
