#include "model/format/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/json.h"
#include "model/format/mapped_file.h"

enum { LENGTH_BYTES = 8 };

struct safetensors {
    char *path;
    struct mapped_file map;
    struct json *header; /* has the tensors' names */
    const uint8_t *data; /* behind the header */
    size_t data_bytes;
    struct tensor_view *tensors;
    const struct tensor_view **by_name;
    size_t tensor_count;
};

/* Names of types and the bytes of a value; those that are computed on have a row of quant_types.c
 * of the same name. */
static const struct {
    const char *name;
    uint32_t bytes;
} data_types[] = {
    {"F32", 4}, {"F16", 2},  {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"F64", 8}, {"BOOL", 1}, {"I8", 1},   {"U8", 1},      {"I16", 2},
    {"U16", 2}, {"I32", 4},  {"U32", 4},  {"I64", 8},     {"U64", 8},
};

static enum status damaged(const struct safetensors *file, const char *name, const char *what,
                           struct error *error)
{
    return error_set(error, STATUS_CORRUPT, "%s is damaged: tensor '%.64s' %s", file->path, name,
                     what);
}

/* An integer from 0 to 2^53 in an array. */
static bool item_u64(const struct json *array, size_t index, uint64_t *out)
{
    const struct json *item = json_at(array, index);
    if (json_kind(item) != JSON_INT || json_int(item) < 0 || json_int(item) > (int64_t)1 << 53)
        return false;
    *out = (uint64_t)json_int(item);
    return true;
}

static enum status read_type(const struct safetensors *file, const struct json *entry,
                             struct tensor_view *tensor, uint32_t *value_bytes_out,
                             struct error *error)
{
    const struct json *value = json_get(entry, "dtype");
    if (value == NULL || json_kind(value) != JSON_STRING)
        return damaged(file, tensor->name, "has no dtype", error);
    const char *name = json_string(value, NULL);
    for (size_t i = 0; i < ARRAY_COUNT(data_types); i++) {
        if (strcmp(data_types[i].name, name) == 0) {
            tensor->type_name = data_types[i].name;
            tensor->type = quant_type_by_name(name);
            *value_bytes_out = data_types[i].bytes;
            return STATUS_OK;
        }
    }
    return error_set(error, STATUS_UNSUPPORTED, "%s: tensor '%.64s' has the unknown dtype '%.20s'",
                     file->path, tensor->name, name);
}

/* Dimensions are the slowest first in the file, the fastest first in a view. */
static enum status read_shape(const struct safetensors *file, const struct json *entry,
                              uint32_t value_bytes, struct tensor_view *tensor, struct error *error)
{
    const struct json *shape = json_get(entry, "shape");
    if (shape == NULL || json_kind(shape) != JSON_ARRAY)
        return damaged(file, tensor->name, "has no shape", error);
    const size_t count = json_count(shape);
    if (count > TENSOR_DIMENSIONS_MAX)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s: tensor '%.64s' has %zu dimensions, the limit is %d", file->path,
                         tensor->name, count, TENSOR_DIMENSIONS_MAX);
    uint64_t bytes = value_bytes;
    for (size_t i = 0; i < TENSOR_DIMENSIONS_MAX; i++)
        tensor->dimensions[i] = 1;
    for (size_t i = 0; i < count; i++) {
        uint64_t *dimension = &tensor->dimensions[count - 1 - i];
        if (!item_u64(shape, i, dimension) || *dimension == 0 ||
            !size_multiply(bytes, *dimension, &bytes) || bytes > file->data_bytes)
            return damaged(file, tensor->name, "has a shape that does not fit the file", error);
    }
    tensor->dimension_count = count == 0 ? 1 : (uint32_t)count;
    tensor->bytes = (size_t)bytes;
    return STATUS_OK;
}

static enum status read_place(const struct safetensors *file, const struct json *entry,
                              struct tensor_view *tensor, struct error *error)
{
    const struct json *offsets = json_get(entry, "data_offsets");
    uint64_t begin = 0, end = 0;
    if (offsets == NULL || json_kind(offsets) != JSON_ARRAY || json_count(offsets) != 2 ||
        !item_u64(offsets, 0, &begin) || !item_u64(offsets, 1, &end))
        return damaged(file, tensor->name, "has no pair of data_offsets", error);
    if (begin > end || end > file->data_bytes)
        return error_set(error, STATUS_CORRUPT,
                         "%s is truncated or damaged: tensor '%.64s' has the data_offsets %" PRIu64
                         " and %" PRIu64 ", there are %zu bytes of data",
                         file->path, tensor->name, begin, end, file->data_bytes);
    if (end - begin != tensor->bytes)
        return error_set(error, STATUS_CORRUPT,
                         "%s is damaged: tensor '%.64s' has %" PRIu64
                         " bytes, its shape and dtype need %zu",
                         file->path, tensor->name, end - begin, tensor->bytes);
    tensor->data = file->data + begin;
    return STATUS_OK;
}

static int name_order(const void *a, const void *b)
{
    const struct tensor_view *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int tensor_order(const void *a, const void *b)
{
    const struct tensor_view *x = a, *y = b;
    return (x->data > y->data) - (x->data < y->data);
}

/* In order of place each tensor begins where the one before ends. */
static enum status check_fill(const struct safetensors *file, struct error *error)
{
    const uint8_t *end = file->data;
    for (size_t i = 0; i < file->tensor_count; i++) {
        const struct tensor_view *tensor = &file->tensors[i];
        if ((const uint8_t *)tensor->data != end)
            return damaged(file, tensor->name,
                           (const uint8_t *)tensor->data < end ? "overlaps the one before it"
                                                               : "has a hole before it",
                           error);
        end += tensor->bytes;
    }
    if (end != file->data + file->data_bytes)
        return error_set(error, STATUS_CORRUPT,
                         "%s is damaged: %zu bytes behind the last tensor belong to none",
                         file->path, (size_t)(file->data + file->data_bytes - end));
    return STATUS_OK;
}

static enum status read_entry(const struct safetensors *file, const char *name,
                              const struct json *entry, struct tensor_view *tensor,
                              struct error *error)
{
    uint32_t value_bytes = 0;
    tensor->name = name;
    if (json_kind(entry) != JSON_OBJECT || name[0] == 0 ||
        strlen(name) > SAFETENSORS_NAME_BYTES_MAX)
        return error_set(error, STATUS_CORRUPT,
                         "%s is damaged: '%.64s' is not a name of 1 to %d bytes with an object",
                         file->path, name, SAFETENSORS_NAME_BYTES_MAX);
    TRY(read_type(file, entry, tensor, &value_bytes, error));
    TRY(read_shape(file, entry, value_bytes, tensor, error));
    return read_place(file, entry, tensor, error);
}

static enum status read_tensors(struct safetensors *file, struct error *error)
{
    void *cursor = NULL;
    const char *name;
    const struct json *entry;
    file->tensors = calloc(json_count(file->header) + 1, sizeof *file->tensors);
    file->by_name = calloc(json_count(file->header) + 1, sizeof *file->by_name);
    if (file->tensors == NULL || file->by_name == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for the %zu tensors of %s",
                         json_count(file->header), file->path);
    while (json_next(file->header, &cursor, &name, &entry)) {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        TRY(read_entry(file, name, entry, &file->tensors[file->tensor_count], error));
        file->tensor_count++;
    }
    qsort(file->tensors, file->tensor_count, sizeof *file->tensors, tensor_order);
    for (size_t i = 0; i < file->tensor_count; i++)
        file->by_name[i] = &file->tensors[i];
    qsort(file->by_name, file->tensor_count, sizeof *file->by_name, name_order);
    return check_fill(file, error);
}

static enum status read_header(struct safetensors *file, struct error *error)
{
    if (file->map.bytes < LENGTH_BYTES)
        return error_set(error, STATUS_CORRUPT,
                         "%s is truncated: it has %zu bytes, the length of the header alone takes "
                         "%d",
                         file->path, file->map.bytes, LENGTH_BYTES);
    const uint64_t length = load_le64(file->map.data);
    const size_t left = file->map.bytes - LENGTH_BYTES;
    if (length > left || length > SAFETENSORS_HEADER_BYTES_MAX)
        return error_set(error, STATUS_CORRUPT,
                         "%s is no safetensors file or damaged: it claims a header of %" PRIu64
                         " bytes, the file has %zu and the limit is %d",
                         file->path, length, left, SAFETENSORS_HEADER_BYTES_MAX);
    file->data = file->map.data + LENGTH_BYTES + length;
    file->data_bytes = left - (size_t)length;
    struct error cause;
    if (json_parse((const char *)file->map.data + LENGTH_BYTES, (size_t)length, &file->header,
                   &cause) != STATUS_OK)
        return error_set(error, STATUS_CORRUPT, "%s is damaged: its header: %s", file->path,
                         cause.text);
    if (json_kind(file->header) != JSON_OBJECT)
        return error_set(error, STATUS_CORRUPT, "%s is damaged: its header is %s, not an object",
                         file->path, json_kind_name(json_kind(file->header)));
    return read_tensors(file, error);
}

enum status safetensors_open(const char *path, struct safetensors **out, struct error *error)
{
    struct safetensors *file = calloc(1, sizeof *file);
    if (file == NULL || (file->path = strdup(path)) == NULL) {
        free(file);
        return error_set(error, STATUS_NO_MEMORY, "no memory to open %s", path);
    }
    enum status status = mapped_file_open(path, "a safetensors file", &file->map, error);
    if (status == STATUS_OK)
        status = read_header(file, error);
    if (status != STATUS_OK) {
        safetensors_close(file);
        return status;
    }
    *out = file;
    return STATUS_OK;
}

void safetensors_close(struct safetensors *file)
{
    if (file == NULL)
        return;
    mapped_file_close(&file->map);
    if (file->header != NULL)
        json_free(file->header);
    free(file->tensors);
    free(file->by_name);
    free(file->path);
    free(file);
}

size_t safetensors_tensor_count(const struct safetensors *file)
{
    return file->tensor_count;
}

const struct tensor_view *safetensors_tensor_at(const struct safetensors *file, size_t index)
{
    CHECK(index < file->tensor_count);
    return &file->tensors[index];
}

const struct tensor_view *safetensors_tensor_find(const struct safetensors *file, const char *name)
{
    const struct tensor_view key = {.name = name};
    const struct tensor_view *const wanted = &key;
    const struct tensor_view **found = file->tensor_count == 0
                                           ? NULL
                                           : bsearch(&wanted, file->by_name, file->tensor_count,
                                                     sizeof(struct tensor_view *), name_order);
    return found == NULL ? NULL : *found;
}
