#include "model/format/tensor_view.h"

#include <string.h>

#include "base/bytes.h"

/* One record a tensor, its bytes as a digest; the digest of all records is the result. */
struct digest128 tensor_views_digest(const struct tensor_view *const *tensors, size_t count)
{
    struct buffer records = {0};
    for (size_t i = 0; i < count; i++) {
        const struct tensor_view *tensor = tensors[i];
        const struct digest128 bytes = hash128(tensor->data, tensor->bytes, 0);
        buffer_add(&records, tensor->name, strlen(tensor->name) + 1);
        buffer_add(&records, tensor->type_name, strlen(tensor->type_name) + 1);
        buffer_add(&records, tensor->dimensions, sizeof tensor->dimensions);
        buffer_add(&records, &bytes, sizeof bytes);
    }
    const struct digest128 digest = hash128(records.data, records.size, 0);
    buffer_free(&records);
    return digest;
}
