#include "model/net/tensor_walk_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Folders of a bare model leave the first word of the names out. */
static const struct tensor_view *find_named(const struct tensor_walk *walk, const char *name,
                                            size_t *index_out)
{
    static const char *const words[] = {"model.", "transformer."};
    const struct tensor_view *tensor = model_file_tensor_find(walk->file, name, index_out);
    for (size_t i = 0; tensor == NULL && i < ARRAY_COUNT(words); i++)
        if (strncmp(name, words[i], strlen(words[i])) == 0)
            tensor = model_file_tensor_find(walk->file, name + strlen(words[i]), index_out);
    return tensor;
}

/* The tensor of a place, NULL when there is none; place->name is what it is called. */
static const struct tensor_view *find_tensor(struct tensor_walk *walk, struct tensor_place *place)
{
    size_t index = 0;
    if (model_file_config(walk->file) == NULL)
        tensor_name_gguf(place->row, place->layer, place->name);
    else if (!tensor_name_folder(walk->config, place->row, place->layer, place->expert,
                                 place->name))
        snprintf(place->name, sizeof place->name, "%s", place->row->name);
    const struct tensor_view *tensor = find_named(walk, place->name, &index);
    if (tensor != NULL)
        walk->used[index] = true;
    return tensor;
}

/* kv heads of a layer that has fewer than the pages are each there several times. */
static uint32_t head_repeat(const struct tensor_walk *walk, const struct tensor_place *place)
{
    const bool kv = place->row->outputs == KEY_VALUE || place->row->inputs == KEY_VALUE;
    return kv ? walk->config->kv_heads / walk->config->layer_kv_heads[place->layer] : 1;
}

/* Where the rows of the place begin in its tensor, and how many the tensor has of them. */
static void place_rows(const struct tensor_walk *walk, struct tensor_place *place)
{
    const struct net_config *c = walk->config;
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
    if (place->row->owner == OF_EXPERT && model_file_config(walk->file) == NULL)
        source->first_row = place->expert * own;
}

static enum status wrong_shape(const struct tensor_walk *walk, const struct tensor_place *place,
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
                         walk->file_name, place->name, shape);
    const uint64_t *d = tensor->dimensions;
    return error_set(error, STATUS_INVALID,
                     "%s: tensor '%s' has shape [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                     "], it must be %s",
                     walk->file_name, place->name, d[0], d[1], d[2], d[3], shape);
}

/* Shape of the tensor itself, the fastest dimension first. */
static void place_shape(const struct tensor_walk *walk, const struct tensor_place *place,
                        uint64_t out[3])
{
    const bool folder = model_file_config(walk->file) != NULL;
    const struct tensor_source *source = &place->source;
    out[0] = place->row->form == MATRIX ? place->inputs : source->tensor_rows;
    out[1] = place->row->form == MATRIX ? source->tensor_rows : 1;
    out[2] = place->row->owner == OF_EXPERT && !folder ? walk->config->experts : 1;
    if (source->transposed) {
        out[0] = source->tensor_rows;
        out[1] = place->inputs;
    }
}

/* Which values a scale is for, by the shape of the scales: one for all, one a row, or one a tile.
 * False where it is none of these. */
static bool factors_fit(const struct tensor_walk *walk, struct tensor_source *source)
{
    enum { TILE_USUAL = 128 };
    const struct net_config *c = walk->config;
    const uint64_t *shape = source->factors->dimensions, rows = source->tensor_rows;
    const uint32_t tile_rows = c->tile_rows != 0 ? c->tile_rows : TILE_USUAL;
    const uint32_t tile_columns = c->tile_columns != 0 ? c->tile_columns : TILE_USUAL;
    const bool vector = source->factors->dimension_count == 1;
    source->factor_rows = source->tensor_rows;
    source->factor_columns = source->inputs;
    if (shape[2] != 1 || shape[3] != 1)
        return false;
    if (shape[0] == 1 && shape[1] == 1)
        return true;
    source->factor_rows = 1;
    if ((shape[0] == 1 && shape[1] == rows) || (vector && shape[0] == rows))
        return true;
    source->factor_rows = tile_rows;
    source->factor_columns = tile_columns;
    return shape[0] == (source->inputs + (uint64_t)tile_columns - 1) / tile_columns &&
           shape[1] == (rows + tile_rows - 1) / tile_rows;
}

/* Float8 values have scales beside them, called NAME_scale_inv or NAME_scale: either way values are
 * multiplied by them. */
static enum status find_factors(struct tensor_walk *walk, struct tensor_place *place,
                                struct error *error)
{
    char name[TENSOR_NAME_BYTES + 16];
    size_t index = 0;
    struct tensor_source *source = &place->source;
    snprintf(name, sizeof name, "%s_scale_inv", place->name);
    source->factors = find_named(walk, name, &index);
    if (source->factors == NULL) {
        name[strlen(name) - strlen("_inv")] = 0;
        source->factors = find_named(walk, name, &index);
    }
    if (source->factors == NULL)
        return error_set(error, STATUS_NOT_FOUND,
                         "%s: tensor '%s' is F8_E4M3 and has neither '%s_inv' nor '%s' for its "
                         "scales",
                         walk->file_name, place->name, name, name);
    walk->used[index] = true;
    const struct quant_type *type = source->factors->type;
    if (type == NULL || type->block_values != 1 || type->scaled)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: '%s' is %s, Baton reads scales of F32, F16 and BF16", walk->file_name,
                         name, source->factors->type_name);
    if (!factors_fit(walk, source))
        return error_set(error, STATUS_INVALID,
                         "%s: '%s' holds neither one scale, nor one for each of %" PRIu32
                         " rows, nor one for each %" PRIu32 " by %" PRIu32 " of [%" PRIu32
                         ", %" PRIu32 "] values",
                         walk->file_name, name, source->tensor_rows, source->factor_rows,
                         source->factor_columns, source->tensor_rows, source->inputs);
    return STATUS_OK;
}

/* The form in which a matrix is computed on: that of its type; where it would have to be rounded
 * for that, the reference profile takes floats instead. */
static enum weight_kind kind_for(const struct tensor_walk *walk, const struct quant_type *type)
{
    return walk->reference && !type->exact ? WEIGHT_F32 : type->kind;
}

/* Whether 4 bits would be fewer than it has. Rows that are no whole groups stay as they are, and so
 * does what is small or belongs to the model as a whole. */
static bool can_narrow(const struct tensor_place *place)
{
    const struct tensor_row *row = place->row;
    const enum weight_kind kind = place->source.tensor->type->kind;
    return row->form == MATRIX && row->owner != OF_MODEL && row->outputs != EXPERTS &&
           row->outputs != ONE && place->inputs % WEIGHT_GROUP == 0 && kind != WEIGHT_Q4 &&
           kind != WEIGHT_Q4A;
}

/* What is done to a matrix: see enum model_quantize. Blocks of a file are quantised already and
 * stay, unless the plan narrows them. */
static enum model_quantize quantize_of(const struct tensor_walk *walk,
                                       const struct tensor_place *place)
{
    const struct quantize_plan *plan = walk->plan;
    size_t count;
    if (plan == NULL || plan->scheme == QUANTIZE_NONE)
        return QUANTIZE_NONE;
    const size_t row = (size_t)(place->row - tensor_rows(&count));
    if (place->narrowable && quantize_plan_narrow(plan, place->layer, row))
        return QUANTIZE_INT4;
    const bool table = place->row->owner == OF_MODEL && place->row->form == MATRIX &&
                       place->row->outputs != CONTEXT && place->inputs % WEIGHT_GROUP == 0;
    const bool floats = place->source.tensor->type->block_values == 1;
    return floats && (place->narrowable || table) ? QUANTIZE_INT8 : QUANTIZE_NONE;
}

/* *present_out is false when the tensor is optional and absent. */
static enum status settle_place(struct tensor_walk *walk, struct tensor_place *place,
                                bool *present_out, struct error *error)
{
    const struct net_config *c = walk->config;
    const struct tensor_view *tensor = find_tensor(walk, place);
    struct tensor_source *source = &place->source;
    uint64_t expected[3];
    place->outputs = tensor_dimension_value(c, place->row->outputs);
    place->inputs = tensor_dimension_value(c, place->row->inputs);
    *source = (struct tensor_source){.tensor = tensor,
                                     .inputs = place->inputs,
                                     .head_rows = c->head_dim,
                                     .repeat = head_repeat(walk, place)};
    source->transposed = model_file_config(walk->file) != NULL && tensor_transposed(c, place->row);
    source->plus_one = model_file_config(walk->file) != NULL && place->row->gain &&
                       net_has(c, TRAIT_GAIN_PLUS_ONE);
    place_rows(walk, place);
    place_shape(walk, place, expected);
    *present_out = tensor != NULL;
    if (tensor == NULL)
        return tensor_presence(c, place->row, place->layer) == TENSOR_OPTIONAL
                   ? STATUS_OK
                   : wrong_shape(walk, place, NULL, expected, error);
    const uint64_t *d = tensor->dimensions;
    if (d[0] != expected[0] || d[1] != expected[1] || d[2] != expected[2] || d[3] != 1)
        return wrong_shape(walk, place, tensor, expected, error);
    if (tensor->type == NULL)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: tensor '%s' is %s, which Baton does not compute on", walk->file_name,
                         place->name, tensor->type_name);
    if (tensor->type->scaled && source->transposed)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: tensor '%s' is of %s in a folder that keeps matrices transposed, "
                         "which Baton does not read",
                         walk->file_name, place->name, tensor->type_name);
    if (place->row->form != MATRIX && (tensor->type->block_values != 1 || tensor->type->scaled))
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: tensor '%s' is a vector of %s, Baton reads F32, F16 and BF16",
                         walk->file_name, place->name, tensor->type_name);
    place->narrowable = can_narrow(place);
    source->quantize = quantize_of(walk, place);
    source->kind = source->quantize == QUANTIZE_INT8   ? WEIGHT_Q8
                   : source->quantize == QUANTIZE_INT4 ? WEIGHT_Q4A
                                                       : kind_for(walk, tensor->type);
    const uint64_t values = (uint64_t)place->outputs * place->inputs / source->repeat;
    place->bytes = values / tensor->type->block_values * tensor->type->block_bytes;
    return tensor->type->scaled ? find_factors(walk, place, error) : STATUS_OK;
}

/* ---- walking ---- */

static enum status visit_row(struct tensor_walk *walk, const struct tensor_row *row, uint32_t layer,
                             tensor_visit *visit, void *arg, struct error *error)
{
    const uint32_t count = row->owner == OF_EXPERT ? walk->config->experts : 1;
    for (uint32_t expert = 0; expert < count; expert++) {
        struct tensor_place place = {.row = row, .layer = layer, .expert = expert};
        bool present = false;
        if (visit == NULL) {
            /* Experts of a GGUF file are one tensor; past one that is not there none is looked for.
             */
            if (find_tensor(walk, &place) == NULL || model_file_config(walk->file) == NULL)
                break;
            continue;
        }
        TRY(settle_place(walk, &place, &present, error));
        if (present)
            TRY(visit(arg, &place, error));
    }
    return STATUS_OK;
}

/* visit NULL: marks what is used, whatever it is. */
enum status tensor_walk_each(struct tensor_walk *walk, tensor_visit *visit, void *arg,
                             struct error *error)
{
    size_t count;
    const struct tensor_row *rows = tensor_rows(&count);
    for (uint32_t pass = 0; pass <= walk->config->layers; pass++) {
        for (size_t i = 0; i < count; i++) {
            const uint32_t layer = pass == 0 ? 0 : pass - 1;
            if ((rows[i].owner != OF_MODEL) != (pass > 0) ||
                tensor_presence(walk->config, &rows[i], layer) == TENSOR_ABSENT)
                continue;
            TRY(visit_row(walk, &rows[i], layer, visit, arg, error));
        }
    }
    return STATUS_OK;
}

static enum status count_bytes(void *arg, struct tensor_place *place, struct error *error)
{
    struct tensor_walk *walk = arg;
    (void)error;
    walk->total_bytes += place->bytes;
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
static enum status refuse_unused(const struct tensor_walk *walk, bool factors, struct error *error)
{
    for (size_t i = 0; i < model_file_tensor_count(walk->file); i++) {
        const struct tensor_view *tensor = model_file_tensor_at(walk->file, i);
        /* A tied head that is stored all the same is the embedding once more. */
        const bool head =
            walk->config->head == HEAD_TIED && strcmp(tensor->name, "lm_head.weight") == 0;
        if (walk->used[i] || head || tensor_name_ignored(walk->config, tensor->name) ||
            (!factors && name_of_factors(tensor->name)))
            continue;
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: tensor '%.64s' has no place in a %s model of %" PRIu32 " layers",
                         walk->file_name, tensor->name, walk->config->architecture->label,
                         walk->config->layers);
    }
    return STATUS_OK;
}

enum status tensor_walk_check(struct tensor_walk *walk, struct error *error)
{
    walk->used = calloc(model_file_tensor_count(walk->file) + 1, sizeof *walk->used);
    if (walk->used == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for a table of %zu tensors",
                         model_file_tensor_count(walk->file));
    TRY(tensor_walk_each(walk, NULL, NULL, error));
    TRY(refuse_unused(walk, false, error));
    TRY(tensor_walk_each(walk, count_bytes, walk, error));
    TRY(refuse_unused(walk, true, error));
    return STATUS_OK;
}

void tensor_walk_release(struct tensor_walk *walk)
{
    free(walk->used);
    walk->used = NULL;
}
