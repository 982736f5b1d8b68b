/* Loading by the table of tensors (tensor_table.c): every row is walked three times, to see what
 * the files hold besides, to check it, and to load it. */
#include "model/net/weights_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "model/net/tensor_table_internal.h"
#include "model/net/weight_source_internal.h"

/* One tensor of the model. */
struct place {
    const struct tensor_row *row;
    uint32_t layer, expert;
    char name[TENSOR_NAME_BYTES];
    struct tensor_source source;
    uint32_t outputs, inputs; /* of the result */
    uint64_t bytes;           /* in the file, as far as it is read */
};

struct loader {
    const struct model_file *file;
    const char *file_name;
    const struct net_config *config;
    struct backend *backend;
    enum model_quantize quantize;
    uint32_t quantized; /* matrices that it was done to */
    const struct load_progress *progress;
    struct weights *weights;
    bool *used; /* [tensors of the file] */
    uint64_t done_bytes, total_bytes;
    struct source_scratch *scratch; /* [members] */
};

typedef enum status visit_place(struct loader *loader, struct place *place, struct error *error);

/* ---- finding ---- */

/* Folders of a bare model leave the first word of the names out. */
static const struct tensor_view *find_named(const struct loader *loader, const char *name,
                                            size_t *index_out)
{
    static const char *const words[] = {"model.", "transformer."};
    const struct tensor_view *tensor = model_file_tensor_find(loader->file, name, index_out);
    for (size_t i = 0; tensor == NULL && i < ARRAY_COUNT(words); i++)
        if (strncmp(name, words[i], strlen(words[i])) == 0)
            tensor = model_file_tensor_find(loader->file, name + strlen(words[i]), index_out);
    return tensor;
}

/* The tensor of a place, NULL when there is none; place->name is what it is called. */
static const struct tensor_view *find_tensor(struct loader *loader, struct place *place)
{
    size_t index = 0;
    if (model_file_config(loader->file) == NULL)
        tensor_name_gguf(place->row, place->layer, place->name);
    else if (!tensor_name_folder(loader->config, place->row, place->layer, place->expert,
                                 place->name))
        snprintf(place->name, sizeof place->name, "%s", place->row->name);
    const struct tensor_view *tensor = find_named(loader, place->name, &index);
    if (tensor != NULL)
        loader->used[index] = true;
    return tensor;
}

/* kv heads of a layer that has fewer than the pages are each there several times. */
static uint32_t head_repeat(const struct loader *loader, const struct place *place)
{
    const bool kv = place->row->outputs == KEY_VALUE || place->row->inputs == KEY_VALUE;
    return kv ? loader->config->kv_heads / loader->config->layer_kv_heads[place->layer] : 1;
}

/* Where the rows of the place begin in its tensor, and how many the tensor has of them. */
static void place_rows(const struct loader *loader, struct place *place)
{
    const struct net_config *c = loader->config;
    struct tensor_source *source = &place->source;
    const uint32_t query = net_query_width(c);
    const uint32_t kv = c->layer_kv_heads[place->layer] * c->head_dim;
    const uint32_t own =
        (place->row->form == MATRIX ? place->outputs : place->inputs) / source->repeat;
    source->first_row = 0;
    source->tensor_rows = own;
    if (place->row->part != PART_ALL) {
        source->tensor_rows = query + 2 * kv;
        source->first_row = place->row->part == PART_QUERY ? 0
                            : place->row->part == PART_KEY ? query
                                                           : query + kv;
    }
    if (place->row->owner == OF_EXPERT && model_file_config(loader->file) == NULL)
        source->first_row = place->expert * own;
}

static enum status wrong_shape(const struct loader *loader, const struct place *place,
                               const struct tensor_view *tensor, const uint64_t expected[3],
                               struct error *error)
{
    char shape[96];
    if (place->row->form != MATRIX)
        snprintf(shape, sizeof shape, "[%" PRIu64 "]", expected[0]);
    else if (expected[2] == 1)
        snprintf(shape, sizeof shape, "[%" PRIu64 ", %" PRIu64 "]", expected[0], expected[1]);
    else
        snprintf(shape, sizeof shape, "[%" PRIu64 ", %" PRIu64 ", %" PRIu64 "]", expected[0],
                 expected[1], expected[2]);
    if (tensor == NULL)
        return error_set(error, STATUS_NOT_FOUND, "%s has no tensor '%s' of shape %s",
                         loader->file_name, place->name, shape);
    const uint64_t *d = tensor->dimensions;
    return error_set(error, STATUS_INVALID,
                     "%s: tensor '%s' has shape [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                     "], it must be %s",
                     loader->file_name, place->name, d[0], d[1], d[2], d[3], shape);
}

/* Shape of the tensor itself, the fastest dimension first. */
static void place_shape(const struct loader *loader, const struct place *place, uint64_t out[3])
{
    const bool folder = model_file_config(loader->file) != NULL;
    const struct tensor_source *source = &place->source;
    out[0] = place->row->form == MATRIX ? place->inputs : source->tensor_rows;
    out[1] = place->row->form == MATRIX ? source->tensor_rows : 1;
    out[2] = place->row->owner == OF_EXPERT && !folder ? loader->config->experts : 1;
    if (source->transposed) {
        out[0] = source->tensor_rows;
        out[1] = place->inputs;
    }
}

/* Float8 values have factors beside them: NAME_scale_inv by tiles of 128, or NAME_scale, one or one
 * a row. */
static enum status find_factors(struct loader *loader, struct place *place, struct error *error)
{
    enum { TILE = 128 };
    char name[TENSOR_NAME_BYTES + 16];
    size_t index = 0;
    struct tensor_source *source = &place->source;
    snprintf(name, sizeof name, "%s_scale_inv", place->name);
    source->factors = find_named(loader, name, &index);
    source->factor_rows = source->factor_columns = TILE;
    if (source->factors == NULL) {
        snprintf(name, sizeof name, "%s_scale", place->name);
        source->factors = find_named(loader, name, &index);
        if (source->factors == NULL)
            return error_set(error, STATUS_NOT_FOUND,
                             "%s: tensor '%s' is F8_E4M3 and has neither '%s_inv' nor '%s' for its "
                             "scales",
                             loader->file_name, place->name, name, name);
        const bool one = source->factors->bytes ==
                         (source->factors->type == NULL ? 0 : source->factors->type->block_bytes);
        source->factor_columns = place->inputs;
        source->factor_rows = one ? source->tensor_rows : 1;
    }
    loader->used[index] = true;
    const uint64_t rows = (source->tensor_rows + source->factor_rows - 1) / source->factor_rows;
    const uint64_t columns = (place->inputs + source->factor_columns - 1) / source->factor_columns;
    const struct quant_type *type = source->factors->type;
    if (type == NULL || type->block_values != 1 ||
        source->factors->bytes != rows * columns * type->block_bytes)
        return error_set(error, STATUS_INVALID,
                         "%s: '%s' must hold %" PRIu64 " scales of F32, F16 or BF16",
                         loader->file_name, name, rows * columns);
    return STATUS_OK;
}

/* The form in which a matrix is computed on: that of its type; where it would have to be rounded
 * for that, the reference profile takes floats instead. */
static enum weight_kind kind_for(const struct loader *loader, const struct quant_type *type)
{
    const bool reference = loader->backend->activations == ACTIVATION_F32;
    return reference && !type->exact ? WEIGHT_F32 : type->kind;
}

/* What is done to a matrix: see enum model_quantize. Rows that are no whole groups stay floats. */
static enum model_quantize quantize_of(const struct loader *loader, const struct place *place)
{
    const struct tensor_row *row = place->row;
    const bool small = row->outputs == EXPERTS || row->outputs == ONE || row->outputs == CONTEXT;
    if (loader->quantize == QUANTIZE_NONE || row->form != MATRIX || small ||
        place->source.tensor->type->block_values != 1 || place->inputs % WEIGHT_GROUP != 0)
        return QUANTIZE_NONE;
    return row->owner == OF_MODEL ? QUANTIZE_INT8 : loader->quantize;
}

/* *present_out is false when the tensor is optional and absent. */
static enum status settle_place(struct loader *loader, struct place *place, bool *present_out,
                                struct error *error)
{
    const struct net_config *c = loader->config;
    const struct tensor_view *tensor = find_tensor(loader, place);
    struct tensor_source *source = &place->source;
    uint64_t expected[3];
    place->outputs = tensor_dimension_value(c, place->row->outputs);
    place->inputs = tensor_dimension_value(c, place->row->inputs);
    *source = (struct tensor_source){.tensor = tensor,
                                     .inputs = place->inputs,
                                     .head_rows = c->head_dim,
                                     .repeat = head_repeat(loader, place)};
    source->transposed =
        model_file_config(loader->file) != NULL && tensor_transposed(c, place->row);
    source->plus_one = model_file_config(loader->file) != NULL && place->row->gain &&
                       net_has(c, TRAIT_GAIN_PLUS_ONE);
    place_rows(loader, place);
    place_shape(loader, place, expected);
    *present_out = tensor != NULL;
    if (tensor == NULL)
        return tensor_presence(c, place->row) == TENSOR_OPTIONAL
                   ? STATUS_OK
                   : wrong_shape(loader, place, NULL, expected, error);
    const uint64_t *d = tensor->dimensions;
    if (d[0] != expected[0] || d[1] != expected[1] || d[2] != expected[2] || d[3] != 1)
        return wrong_shape(loader, place, tensor, expected, error);
    if (tensor->type == NULL)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: tensor '%s' is %s, which Baton does not compute on",
                         loader->file_name, place->name, tensor->type_name);
    if (place->row->form != MATRIX && tensor->type->block_values != 1)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: tensor '%s' is a vector of %s, Baton reads F32, F16 and BF16",
                         loader->file_name, place->name, tensor->type_name);
    source->quantize = quantize_of(loader, place);
    source->kind = source->quantize == QUANTIZE_INT8   ? WEIGHT_Q8
                   : source->quantize == QUANTIZE_INT4 ? WEIGHT_Q4A
                                                       : kind_for(loader, tensor->type);
    const uint64_t values = (uint64_t)place->outputs * place->inputs / source->repeat;
    place->bytes = values / tensor->type->block_values * tensor->type->block_bytes;
    return tensor->type->scaled ? find_factors(loader, place, error) : STATUS_OK;
}

/* ---- walking ---- */

static enum status visit_row(struct loader *loader, const struct tensor_row *row, uint32_t layer,
                             visit_place *visit, struct error *error)
{
    const uint32_t count = row->owner == OF_EXPERT ? loader->config->experts : 1;
    for (uint32_t expert = 0; expert < count; expert++) {
        struct place place = {.row = row, .layer = layer, .expert = expert};
        bool present = false;
        if (visit == NULL) {
            find_tensor(loader, &place);
            continue;
        }
        TRY(settle_place(loader, &place, &present, error));
        if (present)
            TRY(visit(loader, &place, error));
    }
    return STATUS_OK;
}

/* Runs visit for every tensor of the table that the files have, those of the model itself first.
 * visit NULL: marks what is used, whatever it is. */
static enum status for_each_place(struct loader *loader, visit_place *visit, struct error *error)
{
    size_t count;
    const struct tensor_row *rows = tensor_rows(&count);
    for (uint32_t pass = 0; pass <= loader->config->layers; pass++) {
        for (size_t i = 0; i < count; i++) {
            if ((rows[i].owner != OF_MODEL) != (pass > 0) ||
                tensor_presence(loader->config, &rows[i]) == TENSOR_ABSENT)
                continue;
            TRY(visit_row(loader, &rows[i], pass == 0 ? 0 : pass - 1, visit, error));
        }
    }
    return STATUS_OK;
}

static enum status count_bytes(struct loader *loader, struct place *place, struct error *error)
{
    (void)error;
    loader->quantized += place->source.quantize != QUANTIZE_NONE;
    loader->total_bytes += place->bytes;
    return STATUS_OK;
}

/* Scales of a float8 tensor are marked when it is settled. */
static bool name_of_factors(const char *name)
{
    const size_t bytes = strlen(name);
    return (bytes > 10 && strcmp(name + bytes - 10, "_scale_inv") == 0) ||
           (bytes > 6 && strcmp(name + bytes - 6, "_scale") == 0);
}

/* What the table does not name would change the result if it were computed, so the model is
 * refused. */
static enum status refuse_unused(const struct loader *loader, bool factors, struct error *error)
{
    for (size_t i = 0; i < model_file_tensor_count(loader->file); i++) {
        const struct tensor_view *tensor = model_file_tensor_at(loader->file, i);
        /* A tied head that is stored all the same is the embedding once more. */
        const bool head =
            loader->config->head == HEAD_TIED && strcmp(tensor->name, "lm_head.weight") == 0;
        if (loader->used[i] || head || tensor_name_ignored(tensor->name) ||
            (!factors && name_of_factors(tensor->name)))
            continue;
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: tensor '%s' has no place in a %s model of %" PRIu32 " layers",
                         loader->file_name, tensor->name, loader->config->architecture->label,
                         loader->config->layers);
    }
    return STATUS_OK;
}

/* ---- loading ---- */

static void report(struct loader *loader, uint64_t bytes)
{
    loader->done_bytes += bytes;
    if (loader->progress->report != NULL)
        loader->progress->report(loader->progress->arg, loader->done_bytes, loader->total_bytes);
}

static enum status load_vector(struct loader *loader, struct place *place, device_ptr *out,
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

static enum status load_host_vector(struct loader *loader, struct place *place, float **out,
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
                             loader->file_name, place->name, (double)(*out)[i], i);
    }
    return STATUS_OK;
}

static enum status load_matrix(struct loader *loader, struct place *place, struct weight **out,
                               struct error *error)
{
    const struct backend_ops *ops = loader->backend->ops;
    place->source.scratch = loader->scratch;
    TRY(ops->weight_create(loader->backend, place->source.kind, place->outputs, place->inputs, out,
                           error));
    ops->weight_fill(loader->backend, *out,
                     &(struct weight_source){matrix_source_read, &place->source});
    loader->weights->bytes += ops->weight_bytes(*out);
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

static enum status load_place(struct loader *loader, struct place *place, struct error *error)
{
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
    free(loader->used);
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
    for (uint32_t i = 0; config->experts != 0 && i < config->layers; i++) {
        weights->layers[i].experts = calloc(config->experts, sizeof(struct expert_weights));
        if (weights->layers[i].experts == NULL)
            return false;
    }
    return true;
}

static enum status allocate_scratch(struct loader *loader, struct error *error)
{
    const uint32_t members = loader->backend->members;
    const size_t longest = net_widest(loader->config);
    loader->scratch = calloc(members, sizeof *loader->scratch);
    bool allocated = loader->scratch != NULL && allocate_layers(loader->weights, loader->config);
    for (uint32_t i = 0; allocated && i < members; i++)
        allocated = allocate_member(&loader->scratch[i], longest);
    if (!allocated)
        return error_set(error, STATUS_NO_MEMORY, "no memory to load rows of %zu values", longest);
    return STATUS_OK;
}

static enum status load_all(struct loader *loader, struct error *error)
{
    loader->used = calloc(model_file_tensor_count(loader->file) + 1, sizeof *loader->used);
    if (loader->used == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for a table of %zu tensors",
                         model_file_tensor_count(loader->file));
    TRY(for_each_place(loader, NULL, error));
    TRY(refuse_unused(loader, false, error));
    TRY(for_each_place(loader, count_bytes, error));
    TRY(refuse_unused(loader, true, error));
    if (loader->quantize != QUANTIZE_NONE && loader->quantized == 0)
        return error_set(error, STATUS_INVALID,
                         "%s has no matrix of floats that could be quantised: its weights are "
                         "quantised already",
                         loader->file_name);
    TRY(allocate_scratch(loader, error));
    return for_each_place(loader, load_place, error);
}

enum status weights_load(const struct model_file *file, const struct net_config *config,
                         struct backend *backend, enum model_quantize quantize,
                         const struct load_progress *progress, struct weights *weights,
                         struct error *error)
{
    struct loader loader = {
        .file = file,
        .file_name = model_file_name(file),
        .config = config,
        .backend = backend,
        .quantize = quantize,
        .progress = progress,
        .weights = weights,
    };
    const enum status status = load_all(&loader, error);
    free_scratch(&loader);
    weights->tensor_bytes = loader.total_bytes;
    return status;
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
