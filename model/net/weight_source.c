#include "model/net/weight_source_internal.h"

#include <string.h>

#include "base/check.h"
#include "model/format/quant_types.h"

/* The tensor's row that row `row` of the result is made from. */
static size_t source_row(const struct tensor_source *source, uint32_t row)
{
    if (source->repeat > 1)
        row =
            row / source->head_rows / source->repeat * source->head_rows + row % source->head_rows;
    return (size_t)source->first_row + row;
}

static const uint8_t *row_data(const struct tensor_source *source, size_t row)
{
    const struct quant_type *type = source->tensor->type;
    return (const uint8_t *)source->tensor->data +
           row * (source->inputs / type->block_values) * type->block_bytes;
}

static float factor_at(const struct tensor_view *factors, size_t index)
{
    float value;
    factors->type->dequantize((const uint8_t *)factors->data + index * factors->type->block_bytes,
                              &value, 1);
    return value;
}

static void apply_factors(const struct tensor_source *source, size_t row, float *out)
{
    const size_t columns = (source->inputs + source->factor_columns - 1) / source->factor_columns;
    const size_t first = row / source->factor_rows * columns;
    for (size_t column = 0; column < columns; column++) {
        const float factor = factor_at(source->factors, first + column);
        const size_t begin = column * source->factor_columns;
        for (size_t i = begin; i < begin + source->factor_columns && i < source->inputs; i++)
            out[i] *= factor;
    }
}

void tensor_source_row(const struct tensor_source *source, uint32_t row, float *out)
{
    const struct quant_type *type = source->tensor->type;
    const size_t from = source_row(source, row);
    if (source->transposed) {
        const uint8_t *data = source->tensor->data;
        for (size_t i = 0; i < source->inputs; i++)
            type->dequantize(data + (i * source->tensor_rows + from) * type->block_bytes, out + i,
                             1);
        return;
    }
    type->dequantize(row_data(source, from), out, source->inputs / type->block_values);
    if (source->factors != NULL)
        apply_factors(source, from, out);
}

void tensor_source_vector(const struct tensor_source *source, uint32_t count, float *out)
{
    const struct quant_type *type = source->tensor->type;
    if (type->block_values != 1) {
        CHECK(source->first_row == 0 && source->repeat <= 1);
        type->dequantize(source->tensor->data, out, count / type->block_values);
    } else {
        const uint8_t *data = source->tensor->data;
        for (uint32_t i = 0; i < count; i++)
            type->dequantize(data + source_row(source, i) * type->block_bytes, out + i, 1);
    }
    for (uint32_t i = 0; source->plus_one && i < count; i++)
        out[i] += 1.0f;
}

static void read_bf16(const struct tensor_source *source, const struct source_scratch *scratch,
                      uint32_t row, uint16_t *out)
{
    const size_t inputs = source->inputs;
    if (source->tensor->type->kind == WEIGHT_BF16 && !source->transposed) {
        /* Copied because the file promises no alignment. */
        memcpy(out, row_data(source, source_row(source, row)), inputs * sizeof *out);
        return;
    }
    tensor_source_row(source, row, scratch->row);
    for (size_t i = 0; i < inputs; i++)
        out[i] = float_to_bf16(scratch->row[i]);
}

static void quantize_row(const struct tensor_source *source, const struct source_scratch *scratch,
                         uint32_t row, int8_t *q, float *scale, float *offset)
{
    tensor_source_row(source, row, scratch->row);
    for (size_t group = 0; group < source->inputs / WEIGHT_GROUP; group++) {
        const float *values = scratch->row + group * WEIGHT_GROUP;
        if (source->quantize == QUANTIZE_INT8)
            quant_fit_int8(values, q + group * WEIGHT_GROUP, scale + group);
        else
            quant_fit_int4(values, q + group * WEIGHT_GROUP, scale + group, offset + group);
    }
}

void matrix_source_read(void *arg, uint32_t member, uint32_t first_row, uint32_t row_count,
                        struct weight_rows *rows_out)
{
    const struct tensor_source *source = arg;
    const struct source_scratch *scratch = &source->scratch[member];
    const struct quant_type *type = source->tensor->type;
    const size_t inputs = source->inputs, groups = inputs / WEIGHT_GROUP;
    const bool offset = source->kind == WEIGHT_Q8A || source->kind == WEIGHT_Q4A;
    float *floats = scratch->words;
    uint16_t *halves = scratch->words;
    int8_t *q = scratch->words;
    for (uint32_t i = 0; i < row_count; i++) {
        const uint32_t row = first_row + i;
        if (source->kind == WEIGHT_F32)
            tensor_source_row(source, row, floats + i * inputs);
        else if (source->kind == WEIGHT_BF16)
            read_bf16(source, scratch, row, halves + i * inputs);
        else if (source->quantize != QUANTIZE_NONE)
            quantize_row(source, scratch, row, q + i * inputs, scratch->scale + i * groups,
                         scratch->offset + i * groups);
        else
            type->split(row_data(source, source_row(source, row)), q + i * inputs,
                        scratch->scale + i * groups, offset ? scratch->offset + i * groups : NULL,
                        inputs / type->block_values);
    }
    *rows_out = (struct weight_rows){0};
    if (source->kind == WEIGHT_F32)
        rows_out->f32 = floats;
    else if (source->kind == WEIGHT_BF16)
        rows_out->bf16 = halves;
    else
        *rows_out = (struct weight_rows){
            .q = q, .scale = scratch->scale, .offset = offset ? scratch->offset : NULL};
}
