#include "tests/model/net/variant_folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "tests/model/format/model_folder.h"

static void read_file(const char *name, const char *ending, struct buffer *out)
{
    char path[512], part[4096];
    CHECK(snprintf(path, sizeof path, "%s/%s%s", BATON_VARIANTS_DIR, name, ending) <
          (int)sizeof path);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    for (size_t bytes; (bytes = fread(part, 1, sizeof part, file)) > 0;)
        buffer_add(out, part, bytes);
    fclose(file);
}

void variant_config(const char *name, struct buffer *out)
{
    read_file(name, ".config.json", out);
}

struct json *variant_read(const char *name)
{
    struct buffer text = {0};
    struct json *root = NULL;
    struct error error;
    read_file(name, ".json", &text);
    CHECK(json_parse(text.data, text.size, &root, &error) == STATUS_OK);
    buffer_free(&text);
    return root;
}

/* [name, shape, scale, offset] */
static const struct json *tensor_at(const struct json *variant, size_t index)
{
    return json_at(json_get(variant, "tensors"), index);
}

const char *variant_tensor_name(const struct json *variant, size_t index)
{
    return json_string(json_at(tensor_at(variant, index), 0), NULL);
}

void variant_shape(const struct json *variant, size_t index, uint32_t *rows_out,
                   uint32_t *columns_out)
{
    const struct json *shape = json_at(tensor_at(variant, index), 1);
    *rows_out = (uint32_t)json_int(json_at(shape, 0));
    *columns_out = json_count(shape) == 2 ? (uint32_t)json_int(json_at(shape, 1)) : 0;
}

/* In [-1, 1), from the tensor's name and the place. */
static float unit_of(uint32_t seed, size_t place)
{
    uint32_t x = (uint32_t)place * 2654435761u + seed;
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    x ^= x >> 16;
    return (float)(x >> 8) / (float)(1 << 23) - 1.0f;
}

float *variant_values(const struct json *variant, size_t index, size_t *count_out)
{
    const struct json *tensor = tensor_at(variant, index), *shape = json_at(tensor, 1);
    const float scale = (float)json_number(json_at(tensor, 2));
    const float offset = (float)json_number(json_at(tensor, 3));
    uint32_t seed = 2166136261u;
    size_t count = 1;
    for (const char *c = variant_tensor_name(variant, index); *c != 0; c++)
        seed = (seed ^ (uint8_t)*c) * 16777619u;
    for (size_t i = 0; i < json_count(shape); i++)
        count *= (size_t)json_int(json_at(shape, i));
    float *values = malloc(count * sizeof *values);
    CHECK(values != NULL);
    for (size_t i = 0; i < count; i++) {
        const float part = scale * unit_of(seed, i);
        values[i] = offset + part;
    }
    *count_out = count;
    return values;
}

void tensor_file_add(struct tensor_file *file, const char *name, const char *dtype, uint64_t rows,
                     uint64_t columns, const void *values, size_t bytes)
{
    buffer_printf(&file->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                  file->header.size == 0 ? "{" : ",", name, dtype);
    if (rows != 0)
        buffer_printf(&file->header, "%" PRIu64, rows);
    if (columns != 0)
        buffer_printf(&file->header, ",%" PRIu64, columns);
    buffer_printf(&file->header, "],\"data_offsets\":[%zu,%zu]}", file->data.size,
                  file->data.size + bytes);
    buffer_add(&file->data, values, bytes);
}

void tensor_file_write(struct tensor_file *file, const char *name)
{
    struct buffer whole = {0};
    buffer_add_char(&file->header, '}');
    const uint64_t length = file->header.size;
    buffer_add(&whole, &length, sizeof length);
    buffer_add(&whole, file->header.data, file->header.size);
    buffer_add(&whole, file->data.data, file->data.size);
    model_folder_write(name, whole.data, whole.size);
    buffer_free(&whole);
    buffer_free(&file->header);
    buffer_free(&file->data);
    *file = (struct tensor_file){0};
}

static void add_tensor(const struct json *variant, size_t index, const char *name,
                       struct tensor_file *file)
{
    uint32_t rows, columns;
    size_t count;
    float *values = variant_values(variant, index, &count);
    variant_shape(variant, index, &rows, &columns);
    tensor_file_add(file, name, "F32", rows, columns, values, count * sizeof *values);
    free(values);
}

void variant_add_layers(const struct json *variant, uint32_t layers, struct tensor_file *file)
{
    enum { OWN_LAYERS = 4 };
    static const char before[] = "model.layers.";
    const size_t bytes = sizeof before - 1;
    for (size_t i = 0; i < json_count(json_get(variant, "tensors")); i++) {
        const char *name = variant_tensor_name(variant, i);
        if (strncmp(name, before, bytes) != 0) {
            add_tensor(variant, i, name, file);
            continue;
        }
        for (uint32_t layer = (uint32_t)strtoul(name + bytes, NULL, 10); layer < layers;
             layer += OWN_LAYERS) {
            char other[128];
            snprintf(other, sizeof other, "%s%" PRIu32 "%s", before, layer,
                     strchr(name + bytes, '.'));
            add_tensor(variant, i, other, file);
        }
    }
}

const char *variant_write(const char *name)
{
    struct json *variant = variant_read(name);
    struct tensor_file file = {0};
    struct buffer config = {0};
    const char *folder = model_folder_make();
    for (size_t i = 0; i < json_count(json_get(variant, "tensors")); i++)
        add_tensor(variant, i, variant_tensor_name(variant, i), &file);
    tensor_file_write(&file, "model.safetensors");
    variant_config(name, &config);
    model_folder_write("config.json", config.data, config.size);
    buffer_free(&config);
    json_free(variant);
    return folder;
}
