/* A model, from either kind of file, written as one GGUF file. */
#ifndef BATON_MODEL_MODEL_CONVERT_H
#define BATON_MODEL_MODEL_CONVERT_H

#include <stdint.h>

#include "base/status.h"
#include "model/format/quant_types.h"

struct model_conversion {
    const char *in;                /* as model_options.path */
    const char *out;               /* written as NAME.part first; none of the input files */
    const struct quant_type *type; /* of the matrices, one that has `quantize` */
    /* Called with bytes of the input done and to do; may be NULL. */
    void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_arg;
};

/* Matrices get `type`; with one of 4 bits embedding and head get Q8_0. A matrix whose rows are no
 * whole blocks of it gets Q8_0, or F32. Norms, biases, routers and learned positions are F32. Keys
 * of a GGUF file are copied; a folder's come from its config.json and its tokenizer, which is left
 * out, with a warning, where a GGUF file cannot say it: *text_out is whether the new file has one.
 * UNSUPPORTED with what GGUF has no words for. */
enum status model_convert(const struct model_conversion *conversion, bool *text_out,
                          struct error *error);

#endif
