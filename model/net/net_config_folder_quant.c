/* quantization_config: what is read are float8 weights with scales (E4M3), in the forms that three
 * programs write them. What it says of activations and of the cache is not followed: those are kept
 * as the profile of the backend has them, which is closer to what the model was trained with. */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "model/net/net_config_folder_internal.h"

static enum status wrong_text(const struct folder_source *source, const char *key,
                              const char *found, const char *wanted)
{
    return error_set(source->error, STATUS_UNSUPPORTED,
                     "%s: '%s' in %s is '%.40s', Baton reads weights of %s", source->name, key,
                     source->where, found, wanted);
}

/* A text that must be `wanted` where it is there. */
static enum status expect_text(const struct folder_source *source, const char *key,
                               const char *wanted)
{
    const char *found = wanted;
    if (folder_find(source, key) != NULL)
        TRY(folder_read_text(source, key, &found));
    return strcmp(found, wanted) == 0 ? STATUS_OK : wrong_text(source, key, found, wanted);
}

/* Rows and columns of the tiles that share a scale; stays where the key is absent. */
static enum status read_tile(const struct folder_source *source, const char *key,
                             struct net_config *config)
{
    const struct json *value = folder_find(source, key);
    uint32_t sides[2];
    if (value == NULL)
        return STATUS_OK;
    if (json_kind(value) != JSON_ARRAY || json_count(value) != 2)
        return folder_not_kind(source, key, "a list of two integers");
    for (size_t i = 0; i < 2; i++) {
        const struct json *side = json_at(value, i);
        if (json_kind(side) != JSON_INT || json_int(side) < 1 || json_int(side) > NET_WIDTH_MAX)
            return error_set(source->error, STATUS_INVALID,
                             "%s: item %zu of '%s' in %s must be an integer from 1 to %d",
                             source->name, i, key, source->where, NET_WIDTH_MAX);
        sides[i] = (uint32_t)json_int(side);
    }
    config->tile_rows = sides[0];
    config->tile_columns = sides[1];
    return STATUS_OK;
}

/* Groups of modules, each with its scheme; tiles are those of all. */
static enum status read_group(const struct folder_source *source, const struct json *group,
                              struct net_config *config)
{
    const struct json *weights =
        json_kind(group) == JSON_OBJECT ? json_get(group, "weights") : NULL;
    bool symmetric = true;
    uint32_t bits = 0;
    if (weights == NULL || json_kind(weights) != JSON_OBJECT)
        return folder_not_kind(source, "weights", "an object");
    const struct folder_source inner = {weights, source->name, "weights", source->error};
    const uint32_t rows = config->tile_rows, columns = config->tile_columns;
    TRY(expect_text(&inner, "type", "float"));
    TRY(folder_read_count(&inner, "num_bits", 64, &bits));
    TRY(folder_read_bool_or(&inner, "symmetric", &symmetric));
    if (bits != 8 || !symmetric)
        return folder_refused(&inner, bits != 8 ? "num_bits" : "symmetric",
                              bits != 8 ? "not 8" : "false");
    TRY(read_tile(&inner, "block_structure", config));
    if (rows != 0 && (rows != config->tile_rows || columns != config->tile_columns))
        return folder_refused(&inner, "block_structure", "another for each group");
    return STATUS_OK;
}

static enum status read_compressed(const struct folder_source *source, struct net_config *config)
{
    const struct json *groups = folder_find(source, "config_groups"), *group;
    const struct json *sparsity = folder_find(source, "sparsity_config");
    const struct json *transform = folder_find(source, "transform_config");
    void *cursor = NULL;
    const char *name, *format = "naive-quantized";
    if (folder_find(source, "format") != NULL)
        TRY(folder_read_text(source, "format", &format));
    if (strcmp(format, "naive-quantized") != 0)
        TRY(expect_text(source, "format", "float-quantized"));
    if (sparsity != NULL && json_kind(sparsity) == JSON_OBJECT && json_count(sparsity) != 0) {
        const struct folder_source inner = {sparsity, source->name, "sparsity_config",
                                            source->error};
        TRY(expect_text(&inner, "format", "dense"));
    }
    if (transform != NULL && json_kind(transform) == JSON_OBJECT && json_count(transform) != 0)
        return folder_refused(source, "transform_config", "not empty");
    if (groups == NULL || json_kind(groups) != JSON_OBJECT)
        return folder_not_kind(source, "config_groups", "an object");
    while (json_next(groups, &cursor, &name, &group))
        TRY(read_group(source, group, config));
    return STATUS_OK;
}

enum status folder_read_quantization(const struct folder_source *source, struct net_config *config)
{
    enum { TILE_USUAL = 128 };
    const struct json *value = folder_find(source, "quantization_config");
    const char *method = NULL;
    if (value == NULL)
        return STATUS_OK;
    if (json_kind(value) != JSON_OBJECT)
        return folder_not_kind(source, "quantization_config", "an object");
    const struct folder_source inner = {value, source->name, "quantization_config", source->error};
    TRY(folder_read_text(&inner, "quant_method", &method));
    config->float8 = true;
    if (strcmp(method, "compressed-tensors") == 0) {
        TRY(read_compressed(&inner, config));
    } else if (strcmp(method, "fp8") == 0) {
        TRY(expect_text(&inner, "fmt", "e4m3"));
        TRY(read_tile(&inner, "weight_block_size", config));
    } else if (strcmp(method, "fbgemm_fp8") != 0) {
        return wrong_text(&inner, "quant_method", method, "fp8, fbgemm_fp8 and compressed-tensors");
    }
    if (config->tile_rows == 0)
        config->tile_rows = config->tile_columns = TILE_USUAL;
    return STATUS_OK;
}
