/* Opening a GGUF file: the mapping, the header and the table of tensors. */
#include "model/format/gguf.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/format/gguf_internal.h"

/* Block types that exist and are not read, so that a refusal can name them. */
static const struct {
    uint32_t id;
    const char *name;
} unread_types[] = {
    {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {21, "IQ3_S"}, {22, "IQ2_S"}, {24, "I8"},      {25, "I16"},    {26, "I32"},     {27, "I64"},
    {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {39, "MXFP4"},
};

static enum status header_read(struct gguf *file, struct reader *reader, uint64_t *tensors_out,
                               uint64_t *keys_out, struct error *error)
{
    const char *magic = reader_bytes(reader, 4);
    if (magic != NULL && memcmp(magic, "FUGG", 4) == 0)
        return error_set(
            error, STATUS_UNSUPPORTED,
            "%s is a GGUF file of the other byte order, Baton reads little-endian ones",
            file->path);
    if (magic == NULL || memcmp(magic, "GGUF", 4) != 0)
        return error_set(
            error, STATUS_CORRUPT, "%s is not a GGUF file: it begins with '%s' instead of 'GGUF'",
            file->path,
            gguf_quote((const char *)file->map.data, file->map.bytes < 4 ? file->map.bytes : 4)
                .text);
    file->version = reader_u32(reader);
    const uint32_t swapped = __builtin_bswap32(file->version);
    if (!reader->failed && file->version > 3 && swapped >= 1 && swapped <= 3)
        return error_set(error, STATUS_UNSUPPORTED,
                         "%s is a big-endian GGUF file, Baton reads little-endian ones",
                         file->path);
    if (!reader->failed && (file->version < 2 || file->version > 3))
        return error_set(error, STATUS_UNSUPPORTED, "%s is a GGUF v%u file, Baton reads v2 and v3",
                         file->path, file->version);
    *tensors_out = reader_u64(reader);
    *keys_out = reader_u64(reader);
    if (reader->failed)
        return error_set(error, STATUS_CORRUPT,
                         "%s is truncated: it has %zu bytes, the header alone takes 24", file->path,
                         file->map.bytes);
    return STATUS_OK;
}

static enum status split_read(struct gguf *file, uint64_t tensor_count, struct error *error)
{
    file->split = (struct gguf_split){0, 1, tensor_count};
    const enum status status = gguf_get_u32(file, "split.count", &file->split.count, error);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    TRY(status);
    if (file->split.count <= 1) {
        file->split.count = 1;
        return STATUS_OK;
    }
    TRY(gguf_get_u32(file, "split.no", &file->split.number, error));
    TRY(gguf_get_u64(file, "split.tensors.count", &file->split.tensor_count, error));
    if (file->split.count > GGUF_PARTS_MAX || file->split.number >= file->split.count)
        return error_set(error, STATUS_CORRUPT,
                         "%s is damaged: it is part %u of %u (split.no, split.count), the limit is "
                         "%d parts",
                         file->path, file->split.number + 1, file->split.count, GGUF_PARTS_MAX);
    return STATUS_OK;
}

static enum status alignment_get(const struct gguf *file, uint64_t *out, struct error *error)
{
    *out = GGUF_ALIGNMENT_FALLBACK;
    const enum status status = gguf_get_u64(file, "general.alignment", out, error);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    TRY(status);
    if (*out == 0 || (*out & (*out - 1)) != 0 || *out > GGUF_ALIGNMENT_MAX)
        return error_set(error, STATUS_INVALID,
                         "%s: general.alignment is %llu, it must be a power of two up to %d",
                         file->path, (unsigned long long)*out, GGUF_ALIGNMENT_MAX);
    return STATUS_OK;
}

static enum status type_unknown(const struct gguf *file, const char *name, uint32_t id,
                                struct error *error)
{
    char known[160] = "";
    size_t row_count;
    const struct quant_type *rows = quant_type_rows(&row_count);
    for (size_t i = 0; i < row_count; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : " ", rows[i].name);
    }
    const char *type_name = "unknown";
    for (size_t i = 0; i < ARRAY_COUNT(unread_types); i++)
        if (unread_types[i].id == id)
            type_name = unread_types[i].name;
    return error_set(error, STATUS_UNSUPPORTED,
                     "%s: tensor '%s' has the type %u (%s), Baton reads %s", file->path, name, id,
                     type_name, known);
}

/* Dimensions and type give the size; nothing about the place yet. */
static enum status tensor_shape(const struct gguf *file, struct tensor_view *tensor,
                                struct error *error)
{
    uint64_t values = 1;
    for (uint32_t i = 0; i < TENSOR_DIMENSIONS_MAX; i++)
        if (tensor->dimensions[i] == 0 || !size_multiply(values, tensor->dimensions[i], &values))
            return error_set(error, STATUS_CORRUPT,
                             "%s is damaged: dimension %u of tensor '%s' is %llu", file->path, i,
                             tensor->name, (unsigned long long)tensor->dimensions[i]);
    const struct quant_type *type = tensor->type;
    if (tensor->dimensions[0] % type->block_values != 0)
        return error_set(error, STATUS_CORRUPT,
                         "%s is damaged: rows of tensor '%s' have %llu values, %s needs a multiple "
                         "of %u",
                         file->path, tensor->name, (unsigned long long)tensor->dimensions[0],
                         type->name, type->block_values);
    uint64_t bytes;
    if (!size_multiply(values / type->block_values, type->block_bytes, &bytes) ||
        bytes > file->map.bytes)
        return error_set(error, STATUS_CORRUPT,
                         "%s is truncated or damaged: tensor '%s' has %llu values of %s, the whole "
                         "file has %zu bytes",
                         file->path, tensor->name, (unsigned long long)values, type->name,
                         file->map.bytes);
    tensor->bytes = (size_t)bytes;
    return STATUS_OK;
}

/* One row of the table; *offset_out is relative to the start of the data. */
static enum status tensor_read(struct gguf *file, struct reader *reader, size_t i, char **names,
                               uint64_t *offset_out, struct error *error)
{
    struct tensor_view *tensor = &file->tensors[i];
    const uint64_t name_bytes = reader_u64(reader);
    const char *name = reader_bytes(reader, name_bytes);
    if (name != NULL && (name_bytes == 0 || name_bytes > GGUF_NAME_BYTES_MAX ||
                         memchr(name, 0, (size_t)name_bytes) != NULL))
        return error_set(error, STATUS_CORRUPT,
                         "%s is damaged: the name of tensor %zu has %llu bytes, the limits are 1 "
                         "and %d without a NUL",
                         file->path, i + 1, (unsigned long long)name_bytes, GGUF_NAME_BYTES_MAX);
    if (name != NULL) {
        tensor->name = memcpy(*names, name, (size_t)name_bytes);
        *names += name_bytes + 1; // the arena is zeroed: the terminator is there
    }
    tensor->dimension_count = reader_u32(reader);
    if (!reader->failed &&
        (tensor->dimension_count < 1 || tensor->dimension_count > TENSOR_DIMENSIONS_MAX))
        return error_set(error, STATUS_CORRUPT,
                         "%s is damaged: tensor '%s' has %u dimensions, the limits are 1 and %d",
                         file->path, tensor->name, tensor->dimension_count, TENSOR_DIMENSIONS_MAX);
    for (uint32_t d = 0; d < TENSOR_DIMENSIONS_MAX; d++)
        tensor->dimensions[d] =
            !reader->failed && d < tensor->dimension_count ? reader_u64(reader) : 1;
    const uint32_t type_id = reader_u32(reader);
    *offset_out = reader_u64(reader);
    if (reader->failed)
        return error_set(error, STATUS_CORRUPT, "%s is truncated or damaged in tensor %zu of %zu",
                         file->path, i + 1, file->tensor_count);
    tensor->type = quant_type_by_id(type_id);
    if (tensor->type == NULL)
        return type_unknown(file, tensor->name, type_id, error);
    tensor->type_name = tensor->type->name;
    return tensor_shape(file, tensor, error);
}

static struct gguf_string tensor_name(const struct gguf *file, size_t i)
{
    return (struct gguf_string){file->tensors[i].name, strlen(file->tensors[i].name)};
}

static int tensor_order(const void *a, const void *b)
{
    const struct tensor_view *const *x = a;
    const struct tensor_view *const *y = b;
    return ((*x)->data > (*y)->data) - ((*x)->data < (*y)->data);
}

/* Two tensors may not share bytes: in order of place, each ends before the next begins. */
static enum status overlap_check(const struct gguf *file, struct error *error)
{
    const struct tensor_view **sorted = calloc(file->tensor_count + 1, sizeof *sorted);
    if (sorted == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for the %zu tensors of %s",
                         file->tensor_count, file->path);
    for (size_t i = 0; i < file->tensor_count; i++)
        sorted[i] = &file->tensors[i];
    qsort(sorted, file->tensor_count, sizeof *sorted, tensor_order);
    enum status status = STATUS_OK;
    for (size_t i = 1; i < file->tensor_count && status == STATUS_OK; i++) {
        const struct tensor_view *before = sorted[i - 1];
        if ((const uint8_t *)before->data + before->bytes > (const uint8_t *)sorted[i]->data)
            status =
                error_set(error, STATUS_CORRUPT, "%s is damaged: tensors '%s' and '%s' overlap",
                          file->path, before->name, sorted[i]->name);
    }
    free(sorted);
    return status;
}

/* The data begins at the next multiple of the alignment; every tensor must lie inside the file. */
static enum status tensors_place(struct gguf *file, const uint64_t *offsets, size_t table_end,
                                 uint64_t alignment, struct error *error)
{
    const uint64_t base = (table_end + alignment - 1) & ~(alignment - 1);
    for (size_t i = 0; i < file->tensor_count; i++) {
        struct tensor_view *tensor = &file->tensors[i];
        if (offsets[i] % alignment != 0)
            return error_set(error, STATUS_CORRUPT,
                             "%s is damaged: tensor '%s' starts at offset %llu, which is not a "
                             "multiple of the alignment %llu",
                             file->path, tensor->name, (unsigned long long)offsets[i],
                             (unsigned long long)alignment);
        uint64_t end;
        if (!size_add(base, offsets[i], &end) || !size_add(end, tensor->bytes, &end) ||
            end > file->map.bytes)
            return error_set(error, STATUS_CORRUPT,
                             "%s is truncated or damaged: tensor '%s' needs %zu bytes at offset "
                             "%llu of the data, which starts at byte %llu of %zu",
                             file->path, tensor->name, tensor->bytes,
                             (unsigned long long)offsets[i], (unsigned long long)base,
                             file->map.bytes);
        tensor->data = file->map.data + base + offsets[i];
    }
    return overlap_check(file, error);
}

static enum status tensor_table_read(struct gguf *file, struct reader *reader, uint64_t *offsets,
                                     struct error *error)
{
    char *names = file->names;
    for (size_t i = 0; i < file->tensor_count; i++) {
        TRY(tensor_read(file, reader, i, &names, &offsets[i], error));
        const struct gguf_string name = tensor_name(file, i);
        uint32_t *slot =
            gguf_index_slot(&file->tensor_index, file, tensor_name, name.data, name.bytes);
        if (*slot != 0)
            return error_set(error, STATUS_CORRUPT, "%s is damaged: tensor '%s' is there twice",
                             file->path, name.data);
        *slot = (uint32_t)i + 1;
    }
    return STATUS_OK;
}

static enum status tensors_read(struct gguf *file, struct reader *reader, uint64_t count,
                                struct error *error)
{
    enum { TENSOR_BYTES_LEAST = 8 + 1 + 4 + 8 + 4 + 8 };
    if (count > reader_left(reader) / TENSOR_BYTES_LEAST)
        return error_set(error, STATUS_CORRUPT,
                         "%s is truncated or damaged: it claims %llu tensors, %zu bytes are left",
                         file->path, (unsigned long long)count, reader_left(reader));
    if (count > GGUF_TENSORS_MAX)
        return error_set(error, STATUS_UNSUPPORTED, "%s has %llu tensors, the limit is %d",
                         file->path, (unsigned long long)count, GGUF_TENSORS_MAX);
    uint64_t alignment;
    TRY(alignment_get(file, &alignment, error));
    file->tensor_count = (size_t)count;
    file->tensors = calloc(file->tensor_count + 1, sizeof *file->tensors);
    file->names = calloc(file->tensor_count + 1, GGUF_NAME_BYTES_MAX + 1);
    uint64_t *offsets = calloc(file->tensor_count + 1, sizeof *offsets);
    enum status status;
    if (file->tensors == NULL || file->names == NULL || offsets == NULL ||
        !gguf_index_create(&file->tensor_index, file->tensor_count))
        status = error_set(error, STATUS_NO_MEMORY, "no memory for the %zu tensors of %s",
                           file->tensor_count, file->path);
    else
        status = tensor_table_read(file, reader, offsets, error);
    if (status == STATUS_OK)
        status = tensors_place(file, offsets, reader->offset, alignment, error);
    free(offsets);
    return status;
}

static enum status file_read(struct gguf *file, struct error *error)
{
    TRY(mapped_file_open(file->path, "a GGUF file", &file->map, error));
    struct reader reader;
    reader_init(&reader, file->map.data, file->map.bytes);
    uint64_t tensor_count = 0;
    uint64_t key_count = 0;
    TRY(header_read(file, &reader, &tensor_count, &key_count, error));
    TRY(gguf_keys_read(file, &reader, key_count, error));
    TRY(split_read(file, tensor_count, error));
    return tensors_read(file, &reader, tensor_count, error);
}

enum status gguf_open(const char *path, struct gguf **file_out, struct error *error)
{
    struct gguf *file = calloc(1, sizeof *file);
    if (file == NULL || (file->path = strdup(path)) == NULL) {
        free(file);
        return error_set(error, STATUS_NO_MEMORY, "no memory to open %s", path);
    }
    const enum status status = file_read(file, error);
    if (status != STATUS_OK) {
        gguf_close(file);
        return status;
    }
    *file_out = file;
    return STATUS_OK;
}

void gguf_close(struct gguf *file)
{
    if (file == NULL)
        return;
    mapped_file_close(&file->map);
    gguf_index_free(&file->key_index);
    gguf_index_free(&file->tensor_index);
    free(file->keys);
    free(file->tensors);
    free(file->names);
    free(file->path);
    free(file);
}

const char *gguf_path(const struct gguf *file)
{
    return file->path;
}

size_t gguf_file_bytes(const struct gguf *file)
{
    return file->map.bytes;
}

size_t gguf_tensor_count(const struct gguf *file)
{
    return file->tensor_count;
}

const struct tensor_view *gguf_tensor_at(const struct gguf *file, size_t index)
{
    CHECK(index < file->tensor_count);
    return &file->tensors[index];
}

const struct tensor_view *gguf_tensor_find(const struct gguf *file, const char *name)
{
    const uint32_t slot =
        *gguf_index_slot(&file->tensor_index, file, tensor_name, name, strlen(name));
    return slot != 0 ? &file->tensors[slot - 1] : NULL;
}

struct gguf_split gguf_split(const struct gguf *file)
{
    return file->split;
}

struct digest128 gguf_weights_digest(const struct gguf *file)
{
    const struct tensor_view **tensors = calloc(file->tensor_count + 1, sizeof *tensors);
    CHECK(tensors != NULL);
    for (size_t i = 0; i < file->tensor_count; i++)
        tensors[i] = &file->tensors[i];
    const struct digest128 digest = tensor_views_digest(tensors, file->tensor_count);
    free(tensors);
    return digest;
}
