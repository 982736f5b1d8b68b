/* Two walks over the table of tensors: one declares what will be written, one writes it row by row.
 * Rows of one GGUF tensor (parts of a fused one, experts of a layer) follow one another in the
 * table. */
#include "model/model_convert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model/format/gguf_writer.h"
#include "model/format/model_file.h"
#include "model/net/convert_internal.h"
#include "model/net/tensor_walk_internal.h"

struct output {
    char name[TENSOR_NAME_BYTES];
    const struct quant_type *type;
    uint64_t dimensions[3];
    uint32_t dimension_count;
};

struct converter {
    const struct model_conversion *conversion;
    struct tensor_walk walk;
    struct net_config config;
    struct gguf_writer *writer;
    struct output output; /* being declared */
    float *row;           /* [widest] */
    void *blocks;         /* the same, quantised */
    uint64_t done_bytes;
};

static const struct quant_type *type_for(const struct converter *c,
                                         const struct tensor_place *place)
{
    const struct tensor_row *row = place->row;
    const struct quant_type *type = c->conversion->type, *eight = quant_type_by_name("Q8_0");
    const bool small = row->outputs == EXPERTS || row->outputs == ONE || row->outputs == CONTEXT;
    if (row->form != MATRIX || small)
        return quant_type_by_name("F32");
    const bool four_bits = type->kind == WEIGHT_Q4 || type->kind == WEIGHT_Q4A;
    if ((four_bits && row->owner == OF_MODEL) || place->inputs % type->block_values != 0)
        type = eight;
    return place->inputs % type->block_values == 0 ? type : quant_type_by_name("F32");
}

/* What the place has without the repetition that pages want. */
static void place_plain(struct tensor_place *place)
{
    if (place->row->form == MATRIX)
        place->outputs /= place->source.repeat;
    else
        place->inputs /= place->source.repeat;
    place->source.repeat = 1;
}

static void output_flush(struct converter *c)
{
    if (c->output.dimension_count != 0)
        gguf_writer_add_tensor(c->writer, c->output.name, c->output.type, c->output.dimension_count,
                               c->output.dimensions);
    c->output.dimension_count = 0;
}

static enum status declare_place(void *arg, struct tensor_place *place, struct error *error)
{
    struct converter *c = arg;
    struct output *output = &c->output;
    char name[TENSOR_NAME_BYTES];
    const bool matrix = place->row->form == MATRIX;
    (void)error;
    place_plain(place);
    tensor_name_gguf(place->row, place->layer, name);
    if (output->dimension_count != 0 && strcmp(output->name, name) == 0) {
        if (place->row->owner == OF_EXPERT)
            output->dimensions[2]++;
        else
            output->dimensions[matrix ? 1 : 0] += matrix ? place->outputs : place->inputs;
        return STATUS_OK;
    }
    output_flush(c);
    *output = (struct output){.type = type_for(c, place),
                              .dimensions = {place->inputs, place->outputs, 1},
                              .dimension_count = place->row->owner == OF_EXPERT ? 3
                                                 : matrix                       ? 2
                                                                                : 1};
    memcpy(output->name, name, sizeof name);
    return STATUS_OK;
}

/* Folders pair the halves of a head, GGUF files of llama neighbours: row 2i + j of a head there is
 * row j * D/2 + i here. */
static uint32_t permuted(const struct converter *c, const struct tensor_place *place, uint32_t row)
{
    static const char *const names[] = {"attn_q.weight", "attn_k.weight", "attn_q.bias",
                                        "attn_k.bias"};
    const uint32_t head = c->config.head_dim, rotary = c->config.rotary, at = row % head;
    if (c->config.pairing == convert_architecture(&c->config)->pairing || at >= rotary)
        return row;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (strcmp(place->row->name, names[i]) == 0)
            return row - at + at % 2 * (rotary / 2) + at / 2;
    return row;
}

static enum status write_row(struct converter *c, const struct quant_type *type, const float *row,
                             uint32_t count, struct error *error)
{
    const size_t blocks = count / type->block_values;
    type->quantize(row, c->blocks, blocks);
    return gguf_writer_add_data(c->writer, c->blocks, blocks * type->block_bytes, error);
}

static enum status write_vector(struct converter *c, struct tensor_place *place,
                                struct error *error)
{
    float *values = c->row, *turned = (float *)c->blocks;
    tensor_source_vector(&place->source, place->inputs, values);
    for (uint32_t i = 0; i < place->inputs; i++)
        turned[i] = values[permuted(c, place, i)];
    return gguf_writer_add_data(c->writer, turned, place->inputs * sizeof *turned, error);
}

static enum status write_place(void *arg, struct tensor_place *place, struct error *error)
{
    struct converter *c = arg;
    const struct model_conversion *conversion = c->conversion;
    place_plain(place);
    const struct quant_type *type = type_for(c, place);
    if (place->row->form != MATRIX) {
        TRY(write_vector(c, place, error));
    } else {
        for (uint32_t row = 0; row < place->outputs; row++) {
            tensor_source_row(&place->source, permuted(c, place, row), c->row);
            TRY(write_row(c, type, c->row, place->inputs, error));
        }
    }
    c->done_bytes += place->bytes;
    if (conversion->progress != NULL)
        conversion->progress(conversion->progress_arg, c->done_bytes, c->walk.total_bytes);
    return STATUS_OK;
}

/* llama3 scaling as the factors that frequencies are divided by. */
static bool has_factors(const struct converter *c)
{
    return c->config.rope[ROPE_GLOBAL].scaling == SCALING_LLAMA3;
}

static enum status write_factors(struct converter *c, struct error *error)
{
    const uint32_t half = c->config.rotary / 2;
    struct rope_config plain = c->config.rope[ROPE_GLOBAL];
    float magnitude, *scaled = c->row, *factors = (float *)c->blocks;
    if (!has_factors(c))
        return STATUS_OK;
    rope_frequencies(&plain, c->config.rotary, scaled, &magnitude);
    plain.scaling = SCALING_NONE;
    rope_frequencies(&plain, c->config.rotary, factors, &magnitude);
    for (uint32_t i = 0; i < half; i++)
        factors[i] /= scaled[i];
    return gguf_writer_add_data(c->writer, factors, half * sizeof *factors, error);
}

/* general.file_type, of the types that are written. */
static uint32_t file_type_of(const struct quant_type *type)
{
    static const struct {
        const char *name;
        uint32_t file_type;
    } rows[] = {{"F32", 0},  {"F16", 1},   {"Q4_0", 2}, {"Q4_1", 3},
                {"Q8_0", 7}, {"Q4_K", 15}, {"BF16", 32}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        if (strcmp(rows[i].name, type->name) == 0)
            return rows[i].file_type;
    CHECK(false);
}

static enum status write_model(struct converter *c, bool *text_out, struct error *error)
{
    const uint64_t half = c->config.rotary / 2;
    TRY(convert_keys(c->writer, c->walk.file, &c->config, file_type_of(c->conversion->type),
                     text_out, error));
    TRY(tensor_walk_each(&c->walk, declare_place, c, error));
    output_flush(c);
    if (has_factors(c))
        gguf_writer_add_tensor(c->writer, "rope_freqs.weight", quant_type_by_name("F32"), 1, &half);
    TRY(tensor_walk_each(&c->walk, write_place, c, error));
    return write_factors(c, error);
}

static enum status convert_file(struct converter *c, bool *text_out, struct error *error)
{
    const struct model_conversion *conversion = c->conversion;
    const size_t widest = net_widest(&c->config);
    TRY(tensor_walk_check(&c->walk, error));
    c->row = malloc(widest * sizeof(float));
    c->blocks = malloc(widest * sizeof(float));
    if (c->row == NULL || c->blocks == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory to convert rows of %zu values",
                         widest);
    TRY(gguf_writer_open(conversion->out, &c->writer, error));
    const enum status status = write_model(c, text_out, error);
    if (status != STATUS_OK) {
        gguf_writer_abort(c->writer);
        return status;
    }
    return gguf_writer_finish(c->writer, error);
}

/* The writer fills OUT.part and renames it, so neither name may be one that is read. */
static bool overwrites_input(const struct model_file *file, const char *out)
{
    char part[4096];
    const int bytes = snprintf(part, sizeof part, "%s.part", out);
    return model_file_is_input(file, out) ||
           (bytes < (int)sizeof part && model_file_is_input(file, part));
}

static enum status convert_open(const struct model_file *file,
                                const struct model_conversion *conversion, bool *text_out,
                                struct error *error)
{
    struct converter c = {.conversion = conversion};
    if (overwrites_input(file, conversion->out))
        return error_set(error, STATUS_INVALID, "%s or %s.part is a file of the model that is read",
                         conversion->out, conversion->out);
    TRY(net_config_read(file, 1, &c.config, error));
    c.walk = (struct tensor_walk){
        .file = file, .file_name = model_file_name(file), .config = &c.config, .reference = true};
    const enum status status = convert_file(&c, text_out, error);
    tensor_walk_release(&c.walk);
    free(c.row);
    free(c.blocks);
    return status;
}

enum status model_convert(const struct model_conversion *conversion, bool *text_out,
                          struct error *error)
{
    struct model_file *file;
    CHECK(conversion->type->quantize != NULL);
    TRY(model_file_open(conversion->in, &file, error));
    const enum status status = convert_open(file, conversion, text_out, error);
    model_file_close(file);
    return status;
}
