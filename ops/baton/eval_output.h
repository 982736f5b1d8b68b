/* What `baton eval` prints for one line: a JSON object, or tables of the likeliest tokens. */
#ifndef BATON_OPS_BATON_EVAL_OUTPUT_H
#define BATON_OPS_BATON_EVAL_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/json.h"
#include "base/status.h"
#include "model/text/text.h"

struct eval_output {
    const struct text *text; /* NULL: ids alone */
    uint32_t vocab_count, top;
    bool json;
    bool positions;        /* the line's array of all positions is open */
    struct buffer pending; /* of the current line */
    struct json_writer writer;
};

void eval_output_init(struct eval_output *output, const struct text *text, uint32_t vocab_count,
                      uint32_t top, bool json);
void eval_output_free(struct eval_output *output);

/* In this order for each line: begin, position for any number of rows, last, end. */
void eval_output_begin(struct eval_output *output, uint64_t line, uint32_t id_count);
void eval_output_position(struct eval_output *output, uint32_t position, const float *logits);
void eval_output_last(struct eval_output *output, const float *logits);
/* Prints the line; no continuation was asked for when it is empty. IO when it cannot. */
enum status eval_output_end(struct eval_output *output, const struct token_list *continuation,
                            struct error *error);

#endif
