/* One table says which tensors a model has, in which shape, and where they go; the loader walks it
 * twice: once to check the whole file, once to load. */
#include "model/net/weights_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"

enum dimension { ONE, EMBEDDING, VOCAB, QUERY, KEY_VALUE, FEED_FORWARD, ROTARY_HALF };
enum tensor_form { MATRIX, VECTOR, HOST_VECTOR };
enum row_need { ALWAYS, IF_THERE, QKV_BIAS };

/* A tensor of [outputs][inputs], or a vector of `inputs`. The name is the whole one, or what
 * follows "blk.N." for a tensor of a layer; the offset is into struct weights or layer_weights. */
struct tensor_row {
    const char *name;
    bool per_layer;
    enum tensor_form form;
    enum dimension outputs, inputs;
    enum row_need need;
    size_t offset;
};

#define WHOLE(member)                                 false, offsetof(struct weights, member)
#define LAYER(member)                                 true, offsetof(struct layer_weights, member)
#define ROW(name, place, form, outputs, inputs, need) ROW_(name, place, form, outputs, inputs, need)
#define ROW_(name, layer, offset, form, outputs, inputs, need)                                     \
    {                                                                                              \
        name, layer, form, outputs, inputs, need, offset                                           \
    }

/* clang-format off */
static const struct tensor_row tensor_rows[] = {
    ROW("token_embd.weight",  WHOLE(embedding),        MATRIX, VOCAB, EMBEDDING, ALWAYS),
    ROW("output.weight",      WHOLE(own_head),         MATRIX, VOCAB, EMBEDDING, IF_THERE),
    ROW("output_norm.weight", WHOLE(output_norm),      VECTOR, ONE, EMBEDDING, ALWAYS),
    ROW("rope_freqs.weight",  WHOLE(rope_factors),     HOST_VECTOR, ONE, ROTARY_HALF, IF_THERE),
    ROW("attn_norm.weight",   LAYER(attention_norm),   VECTOR, ONE, EMBEDDING, ALWAYS),
    ROW("attn_q.weight",      LAYER(query),            MATRIX, QUERY, EMBEDDING, ALWAYS),
    ROW("attn_k.weight",      LAYER(key),              MATRIX, KEY_VALUE, EMBEDDING, ALWAYS),
    ROW("attn_v.weight",      LAYER(value),            MATRIX, KEY_VALUE, EMBEDDING, ALWAYS),
    ROW("attn_q.bias",        LAYER(query_bias),       VECTOR, ONE, QUERY, QKV_BIAS),
    ROW("attn_k.bias",        LAYER(key_bias),         VECTOR, ONE, KEY_VALUE, QKV_BIAS),
    ROW("attn_v.bias",        LAYER(value_bias),       VECTOR, ONE, KEY_VALUE, QKV_BIAS),
    ROW("attn_output.weight", LAYER(output),           MATRIX, EMBEDDING, QUERY, ALWAYS),
    ROW("attn_output.bias",   LAYER(output_bias),      VECTOR, ONE, EMBEDDING, IF_THERE),
    ROW("ffn_norm.weight",    LAYER(feed_forward_norm), VECTOR, ONE, EMBEDDING, ALWAYS),
    ROW("ffn_gate.weight",    LAYER(gate),             MATRIX, FEED_FORWARD, EMBEDDING, ALWAYS),
    ROW("ffn_up.weight",      LAYER(up),               MATRIX, FEED_FORWARD, EMBEDDING, ALWAYS),
    ROW("ffn_down.weight",    LAYER(down),             MATRIX, EMBEDDING, FEED_FORWARD, ALWAYS),
};
/* clang-format on */

struct loader {
    const struct gguf *file;
    const char *file_name;
    const struct net_config *config;
    struct backend *backend;
    const struct load_progress *progress;
    struct weights *weights;
    uint64_t done_bytes, total_bytes;
    struct scratch *scratch; /* [members] */
};

/* Of one member of the team: WEIGHT_READ_ROWS rows of the longest K. */
struct scratch {
    void *words;   /* float or bf16 values, or q; [rows][K] of 4 bytes */
    float *scale;  /* [rows][K / 32] */
    float *offset; /* [rows][K / 32] */
};

/* A matrix that the backend reads. */
struct matrix_source {
    const struct gguf_tensor *tensor;
    const struct scratch *scratch; /* [members] */
};

static uint32_t dimension_value(const struct net_config *config, enum dimension dimension)
{
    switch (dimension) {
    case ONE:
        return 1;
    case EMBEDDING:
        return config->embedding;
    case VOCAB:
        return config->vocab_count;
    case QUERY:
        return net_query_width(config);
    case KEY_VALUE:
        return net_kv_width(config);
    case FEED_FORWARD:
        return config->feed_forward;
    case ROTARY_HALF:
        return config->rotary / 2;
    }
    CHECK(false);
}

static void row_name(const struct tensor_row *row, uint32_t layer, char name[GGUF_NAME_BYTES_MAX])
{
    if (row->per_layer)
        snprintf(name, GGUF_NAME_BYTES_MAX, "blk.%" PRIu32 ".%s", layer, row->name);
    else
        snprintf(name, GGUF_NAME_BYTES_MAX, "%s", row->name);
}

static bool row_required(const struct net_config *config, const struct tensor_row *row)
{
    return row->need == ALWAYS ||
           (row->need == QKV_BIAS && config->architecture->qkv_bias == NEED_REQUIRED);
}

static enum status check_type(const struct loader *loader, const struct tensor_row *row,
                              const struct gguf_tensor *tensor, struct error *error)
{
    if (row->form != MATRIX || tensor->type->computable)
        return STATUS_OK;
    struct buffer known = {0};
    size_t count;
    const struct quant_type *types = quant_type_rows(&count);
    for (size_t i = 0; i < count; i++) {
        if (types[i].computable)
            buffer_printf(&known, "%s%s", known.size == 0 ? "" : ", ", types[i].name);
    }
    const enum status status =
        error_set(error, STATUS_UNSUPPORTED, "%s: tensor '%s' is %s; Baton computes on %s",
                  loader->file_name, tensor->name, tensor->type->name, known.data);
    buffer_free(&known);
    return status;
}

/* *tensor_out is NULL when the tensor is optional and absent. */
static enum status find_tensor(const struct loader *loader, const struct tensor_row *row,
                               uint32_t layer, const struct gguf_tensor **tensor_out,
                               struct error *error)
{
    char name[GGUF_NAME_BYTES_MAX], shape[48];
    const uint32_t outputs = dimension_value(loader->config, row->outputs);
    const uint32_t inputs = dimension_value(loader->config, row->inputs);
    row_name(row, layer, name);
    if (row->form == MATRIX)
        snprintf(shape, sizeof shape, "[%" PRIu32 ", %" PRIu32 "]", inputs, outputs);
    else
        snprintf(shape, sizeof shape, "[%" PRIu32 "]", inputs);
    const struct gguf_tensor *tensor = gguf_tensor_find(loader->file, name);
    if (tensor == NULL && row_required(loader->config, row))
        return error_set(error, STATUS_NOT_FOUND, "%s has no tensor '%s' of shape %s",
                         loader->file_name, name, shape);
    *tensor_out = tensor;
    if (tensor == NULL)
        return STATUS_OK;
    const uint64_t *d = tensor->dimensions;
    if (d[0] != inputs || d[1] != outputs || d[2] != 1 || d[3] != 1)
        return error_set(error, STATUS_INVALID,
                         "%s: tensor '%s' has shape [%" PRIu64 ", %" PRIu64 ", %" PRIu64
                         ", %" PRIu64 "], it must be %s",
                         loader->file_name, name, d[0], d[1], d[2], d[3], shape);
    return check_type(loader, row, tensor, error);
}

/* Runs visit for every tensor of the table that the file has, whole ones first. */
static enum status for_each_tensor(
    struct loader *loader,
    enum status (*visit)(struct loader *loader, const struct tensor_row *row, uint32_t layer,
                         const struct gguf_tensor *tensor, struct error *error),
    struct error *error)
{
    for (uint32_t pass = 0; pass <= loader->config->layers; pass++) {
        for (size_t i = 0; i < ARRAY_COUNT(tensor_rows); i++) {
            const struct tensor_row *row = &tensor_rows[i];
            const uint32_t layer = pass == 0 ? 0 : pass - 1;
            const struct gguf_tensor *tensor = NULL;
            if (row->per_layer != (pass > 0))
                continue;
            TRY(find_tensor(loader, row, layer, &tensor, error));
            if (tensor != NULL)
                TRY(visit(loader, row, layer, tensor, error));
        }
    }
    return STATUS_OK;
}

static enum status count_bytes(struct loader *loader, const struct tensor_row *row, uint32_t layer,
                               const struct gguf_tensor *tensor, struct error *error)
{
    (void)row, (void)layer, (void)error;
    loader->total_bytes += tensor->bytes;
    return STATUS_OK;
}

/* True for a tensor the table names; what it does not name would change the result if it were
 * computed, so the model is refused. */
static bool tensor_known(const struct loader *loader, const struct gguf_tensor *tensor)
{
    const char *rest = tensor->name;
    bool per_layer = false;
    if (strncmp(rest, "blk.", 4) == 0) {
        char *end;
        const unsigned long layer = strtoul(rest + 4, &end, 10);
        if (end == rest + 4 || *end != '.' || layer >= loader->config->layers)
            return false;
        rest = end + 1;
        per_layer = true;
    }
    for (size_t i = 0; i < ARRAY_COUNT(tensor_rows); i++) {
        if (tensor_rows[i].per_layer == per_layer && strcmp(tensor_rows[i].name, rest) == 0)
            return true;
    }
    return false;
}

static enum status refuse_unknown(const struct loader *loader, struct error *error)
{
    for (size_t i = 0; i < gguf_tensor_count(loader->file); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(loader->file, i);
        if (!tensor_known(loader, tensor))
            return error_set(error, STATUS_UNSUPPORTED,
                             "%s: tensor '%s' has no place in a %s model of %" PRIu32 " layers",
                             loader->file_name, tensor->name, loader->config->architecture->name,
                             loader->config->layers);
    }
    return STATUS_OK;
}

static void report(struct loader *loader, size_t bytes)
{
    loader->done_bytes += bytes;
    if (loader->progress->report != NULL)
        loader->progress->report(loader->progress->arg, loader->done_bytes, loader->total_bytes);
}

static enum status load_vector(struct loader *loader, const struct gguf_tensor *tensor,
                               device_ptr *out, struct error *error)
{
    const size_t count = (size_t)tensor->dimensions[0];
    float *values = loader->scratch[0].words;
    tensor->type->dequantize(tensor->data, values, count / tensor->type->block_values);
    TRY(loader->backend->ops->allocate(loader->backend, count * sizeof(float), out, error));
    loader->backend->ops->upload(loader->backend, *out, values, count * sizeof(float));
    loader->weights->bytes += count * sizeof(float);
    return STATUS_OK;
}

static enum status load_host_vector(struct loader *loader, const struct gguf_tensor *tensor,
                                    float **out, struct error *error)
{
    const size_t count = (size_t)tensor->dimensions[0];
    *out = malloc(count * sizeof **out);
    if (*out == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for '%s'", tensor->name);
    tensor->type->dequantize(tensor->data, *out, count / tensor->type->block_values);
    for (size_t i = 0; i < count; i++) {
        if (!((*out)[i] > 0.0f && (*out)[i] <= 1e9f))
            return error_set(error, STATUS_INVALID, "%s: '%s' holds %g at %zu, which is no factor",
                             loader->file_name, tensor->name, (double)(*out)[i], i);
    }
    return STATUS_OK;
}

/* As weight_source: rows converted to the canonical form of their type. */
static void matrix_read(void *arg, uint32_t member, uint32_t first_row, uint32_t row_count,
                        struct weight_rows *rows_out)
{
    const struct matrix_source *source = arg;
    const struct scratch *scratch = &source->scratch[member];
    const struct quant_type *type = source->tensor->type;
    const size_t inputs = (size_t)source->tensor->dimensions[0];
    const size_t row_blocks = inputs / type->block_values, blocks = row_count * row_blocks;
    const uint8_t *data =
        (const uint8_t *)source->tensor->data + (size_t)first_row * row_blocks * type->block_bytes;
    switch (type->kind) {
    case WEIGHT_F32:
        type->dequantize(data, scratch->words, blocks);
        *rows_out = (struct weight_rows){.f32 = scratch->words};
        return;
    case WEIGHT_BF16: /* copied because the file promises no alignment */
        memcpy(scratch->words, data, row_count * inputs * sizeof(uint16_t));
        *rows_out = (struct weight_rows){.bf16 = scratch->words};
        return;
    case WEIGHT_Q8:
    case WEIGHT_Q4:
        type->split(data, scratch->words, scratch->scale, NULL, blocks);
        *rows_out = (struct weight_rows){.q = scratch->words, .scale = scratch->scale};
        return;
    case WEIGHT_Q8A:
    case WEIGHT_Q4A:
        type->split(data, scratch->words, scratch->scale, scratch->offset, blocks);
        *rows_out = (struct weight_rows){
            .q = scratch->words, .scale = scratch->scale, .offset = scratch->offset};
        return;
    }
    CHECK(false);
}

static enum status load_matrix(struct loader *loader, const struct gguf_tensor *tensor,
                               struct weight **out, struct error *error)
{
    const struct backend_ops *ops = loader->backend->ops;
    struct matrix_source source = {tensor, loader->scratch};
    TRY(ops->weight_create(loader->backend, tensor->type->kind, (uint32_t)tensor->dimensions[1],
                           (uint32_t)tensor->dimensions[0], out, error));
    ops->weight_fill(loader->backend, *out, &(struct weight_source){matrix_read, &source});
    loader->weights->bytes += ops->weight_bytes(*out);
    return STATUS_OK;
}

static enum status load_tensor(struct loader *loader, const struct tensor_row *row, uint32_t layer,
                               const struct gguf_tensor *tensor, struct error *error)
{
    uint8_t *owner =
        row->per_layer ? (uint8_t *)&loader->weights->layers[layer] : (uint8_t *)loader->weights;
    void *place = owner + row->offset;
    TRY(row->form == MATRIX   ? load_matrix(loader, tensor, place, error)
        : row->form == VECTOR ? load_vector(loader, tensor, place, error)
                              : load_host_vector(loader, tensor, place, error));
    report(loader, tensor->bytes);
    return STATUS_OK;
}

static void free_scratch(struct loader *loader)
{
    for (uint32_t i = 0; loader->scratch != NULL && i < loader->backend->members; i++) {
        free(loader->scratch[i].words);
        free(loader->scratch[i].scale);
        free(loader->scratch[i].offset);
    }
    free(loader->scratch);
}

static bool allocate_member(struct scratch *scratch, size_t longest)
{
    const size_t values = WEIGHT_READ_ROWS * longest;
    const size_t groups = WEIGHT_READ_ROWS * (longest / WEIGHT_GROUP + 1);
    scratch->words = malloc(values * sizeof(float));
    scratch->scale = malloc(groups * sizeof(float));
    scratch->offset = malloc(groups * sizeof(float));
    return scratch->words != NULL && scratch->scale != NULL && scratch->offset != NULL;
}

static enum status allocate_scratch(struct loader *loader, struct error *error)
{
    const struct net_config *c = loader->config;
    const uint32_t widths[] = {c->embedding, net_query_width(c), net_kv_width(c), c->feed_forward};
    const uint32_t members = loader->backend->members;
    size_t longest = 0;
    for (size_t i = 0; i < ARRAY_COUNT(widths); i++)
        longest = widths[i] > longest ? widths[i] : longest;
    loader->scratch = calloc(members, sizeof *loader->scratch);
    loader->weights->layers = calloc(c->layers, sizeof *loader->weights->layers);
    bool allocated = loader->scratch != NULL && loader->weights->layers != NULL;
    for (uint32_t i = 0; allocated && i < members; i++)
        allocated = allocate_member(&loader->scratch[i], longest);
    if (!allocated)
        return error_set(error, STATUS_NO_MEMORY, "no memory to load rows of %zu values", longest);
    loader->weights->layer_count = c->layers;
    return STATUS_OK;
}

enum status weights_load(const struct gguf *file, const struct net_config *config,
                         struct backend *backend, const struct load_progress *progress,
                         struct weights *weights, struct error *error)
{
    const char *slash = strrchr(gguf_path(file), '/');
    struct loader loader = {
        .file = file,
        .file_name = slash == NULL ? gguf_path(file) : slash + 1,
        .config = config,
        .backend = backend,
        .progress = progress,
        .weights = weights,
    };
    TRY(refuse_unknown(&loader, error));
    TRY(for_each_tensor(&loader, count_bytes, error));
    enum status status = allocate_scratch(&loader, error);
    if (status == STATUS_OK)
        status = for_each_tensor(&loader, load_tensor, error);
    free_scratch(&loader);
    weights->tensor_bytes = loader.total_bytes;
    return status;
}

void weights_release(struct weights *weights, struct backend *backend)
{
    for (size_t i = 0; i < ARRAY_COUNT(tensor_rows); i++) {
        const struct tensor_row *row = &tensor_rows[i];
        for (uint32_t layer = 0; layer < (row->per_layer ? weights->layer_count : 1); layer++) {
            uint8_t *owner =
                row->per_layer ? (uint8_t *)&weights->layers[layer] : (uint8_t *)weights;
            void *place = owner + row->offset;
            if (row->form == MATRIX)
                backend->ops->weight_release(backend, *(struct weight **)place);
            else if (row->form == VECTOR)
                backend->ops->release(backend, *(device_ptr *)place);
            else
                free(*(float **)place);
        }
    }
    free(weights->layers);
    *weights = (struct weights){0};
}
