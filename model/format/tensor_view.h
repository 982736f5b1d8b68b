/* A tensor of a file that is open: its shape, its type and where its bytes are. GGUF files and
 * safetensors files give the same. */
#ifndef BATON_MODEL_FORMAT_TENSOR_VIEW_H
#define BATON_MODEL_FORMAT_TENSOR_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "model/format/quant_types.h"

enum { TENSOR_DIMENSIONS_MAX = 4 };

struct tensor_view {
    const char *name;              /* terminated, owned by the file */
    const struct quant_type *type; /* NULL: one that Baton does not compute on */
    const char *type_name;         /* as the file has it */
    uint32_t dimension_count;
    uint64_t dimensions[TENSOR_DIMENSIONS_MAX]; /* [0] is the fastest; unused ones are 1 */
    const void *data;                           /* in the mapping; aligned as the file says */
    size_t bytes;
};

/* XXH3-128 over names, types, shapes and bytes in the order given (reads them all). */
struct digest128 tensor_views_digest(const struct tensor_view *const *tensors, size_t count);

#endif
