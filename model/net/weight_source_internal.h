/* How a matrix or vector of the model is read out of a tensor of its file: which rows, in which
 * order, and in which canonical form the backend gets them. */
#ifndef BATON_MODEL_NET_WEIGHT_SOURCE_INTERNAL_H
#define BATON_MODEL_NET_WEIGHT_SOURCE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/backend.h"
#include "model/format/tensor_view.h"
#include "model/model.h"

/* Of one member of the team: WEIGHT_READ_ROWS rows of the longest K. */
struct source_scratch {
    void *words;   /* float or bf16 values, or q; [rows][K] of 4 bytes */
    float *row;    /* [K] */
    float *scale;  /* [rows][K / 32] */
    float *offset; /* [rows][K / 32] */
};

struct tensor_source {
    const struct tensor_view *tensor;
    const struct tensor_view
        *factors; /* of float8 values: one, one a row, or one a tile; or NULL */
    uint32_t factor_rows, factor_columns; /* values of a tile */
    uint32_t inputs;                      /* values of a row */
    uint32_t first_row;                   /* of the tensor's rows */
    uint32_t tensor_rows;                 /* all rows of the tensor, for the transposed ones */
    bool transposed;                      /* the tensor is [inputs][tensor_rows] */
    /* Rows come in heads of head_rows, each head `repeat` times; repeat 1: as they are. */
    uint32_t head_rows, repeat;
    bool plus_one;
    enum model_quantize quantize;         /* INT8: kind is Q8, INT4: Q4A */
    enum weight_kind kind;                /* the form that matrix_source_read gives */
    const struct source_scratch *scratch; /* [members] */
};

/* Row `row` of the result as floats. */
void tensor_source_row(const struct tensor_source *source, uint32_t row, float *out);
/* All `count` values of a vector: one row, or a row a value where the tensor is cut or repeated. */
void tensor_source_vector(const struct tensor_source *source, uint32_t count, float *out);
/* As weight_source; arg is a struct tensor_source. */
void matrix_source_read(void *arg, uint32_t member, uint32_t first_row, uint32_t row_count,
                        struct weight_rows *rows_out);

#endif
