#include "model/format/model_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/json.h"
#include "model/format/folder_file.h"
#include "model/format/gguf.h"
#include "model/format/safetensors.h"

enum { SHARDS_MAX = 1024 };

struct shard {
    char *name; /* in the folder */
    struct safetensors *file;
};

struct model_file {
    char *path;
    struct json *config;
    struct gguf **parts; /* [part_count], in order */
    uint32_t part_count;
    struct shard shards[SHARDS_MAX];
    size_t shard_count;
    const struct tensor_view **tensors; /* in order of names */
    size_t tensor_count;
};

static int view_order(const void *a, const void *b)
{
    const struct tensor_view *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Makes room for `count` tensors. */
static enum status table_allocate(struct model_file *file, size_t count, struct error *error)
{
    file->tensors = calloc(count + 1, sizeof *file->tensors);
    if (file->tensors == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory for the %zu tensors of %s", count,
                         file->path);
    return STATUS_OK;
}

static enum status table_sort(struct model_file *file, struct error *error)
{
    qsort(file->tensors, file->tensor_count, sizeof *file->tensors, view_order);
    for (size_t i = 1; i < file->tensor_count; i++)
        if (strcmp(file->tensors[i - 1]->name, file->tensors[i]->name) == 0)
            return error_set(error, STATUS_CORRUPT, "%s is damaged: tensor '%.64s' is there twice",
                             file->path, file->tensors[i]->name);
    return STATUS_OK;
}

/* ---- GGUF ---- */

/* The name of part `number` of those that `path` is one of: NAME-00002-of-00003.gguf. */
static enum status part_path(const char *path, const struct gguf_split *split, uint32_t number,
                             char out[FOLDER_PATH_BYTES], struct error *error)
{
    char own[64], other[64];
    snprintf(own, sizeof own, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", split->number + 1,
             split->count);
    snprintf(other, sizeof other, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", number + 1, split->count);
    const size_t bytes = strlen(path), tail = strlen(own);
    if (bytes <= tail || strcmp(path + bytes - tail, own) != 0)
        return error_set(error, STATUS_INVALID,
                         "%s is part %" PRIu32 " of a model in %" PRIu32
                         " files, so its name must end in '%s'",
                         path, split->number + 1, split->count, own);
    if (bytes >= FOLDER_PATH_BYTES)
        return error_set(error, STATUS_LIMIT, "a path of %zu bytes is over the limit of %d", bytes,
                         FOLDER_PATH_BYTES - 1);
    snprintf(out, FOLDER_PATH_BYTES, "%.*s%s", (int)(bytes - tail), path, other);
    return STATUS_OK;
}

static enum status part_open(const char *path, const struct gguf_split *split, uint32_t number,
                             struct gguf **out, struct error *error)
{
    char name[FOLDER_PATH_BYTES];
    struct gguf *part = NULL;
    TRY(part_path(path, split, number, name, error));
    TRY(gguf_open(name, &part, error));
    const struct gguf_split found = gguf_split(part);
    if (found.number != number || found.count != split->count ||
        found.tensor_count != split->tensor_count) {
        gguf_close(part);
        return error_set(error, STATUS_CORRUPT,
                         "%s says it is part %" PRIu32 " of %" PRIu32 " with %" PRIu64
                         " tensors in all, it must be part %" PRIu32 " of %" PRIu32
                         " with %" PRIu64,
                         name, found.number + 1, found.count, found.tensor_count, number + 1,
                         split->count, split->tensor_count);
    }
    *out = part;
    return STATUS_OK;
}

static enum status open_parts(struct model_file *file, struct gguf *first, struct error *error)
{
    const struct gguf_split split = gguf_split(first);
    file->parts = calloc(split.count, sizeof(struct gguf *));
    if (file->parts == NULL) {
        gguf_close(first);
        return error_set(error, STATUS_NO_MEMORY, "no memory for %" PRIu32 " parts", split.count);
    }
    file->part_count = split.count;
    file->parts[split.number] = first;
    for (uint32_t i = 0; i < split.count; i++)
        if (i != split.number)
            TRY(part_open(file->path, &split, i, &file->parts[i], error));
    size_t count = 0;
    for (uint32_t i = 0; i < split.count; i++)
        count += gguf_tensor_count(file->parts[i]);
    if (count != split.tensor_count)
        return error_set(error, STATUS_CORRUPT,
                         "%s and its other parts have %zu tensors, split.tensors.count is %" PRIu64,
                         file->path, count, split.tensor_count);
    TRY(table_allocate(file, count, error));
    for (uint32_t i = 0; i < split.count; i++)
        for (size_t t = 0; t < gguf_tensor_count(file->parts[i]); t++)
            file->tensors[file->tensor_count++] = gguf_tensor_at(file->parts[i], t);
    return table_sort(file, error);
}

/* ---- folders ---- */

static enum status folder_path(const struct model_file *file, const char *name,
                               char out[FOLDER_PATH_BYTES], struct error *error)
{
    return folder_file_path(file->path, name, out, error);
}

/* An object in a JSON file of the folder. */
static enum status read_object(const struct model_file *file, const char *name, size_t bytes_max,
                               struct json **out, struct error *error)
{
    char path[FOLDER_PATH_BYTES];
    struct buffer text = {0};
    TRY(folder_path(file, name, path, error));
    enum status status = folder_file_read(path, bytes_max, &text, error);
    if (status == STATUS_OK)
        status = folder_file_object(path, &text, out, error);
    buffer_free(&text);
    return status;
}

/* The shard of that name, opened when it is named for the first time. */
static enum status shard_open(struct model_file *file, const char *name, struct shard **out,
                              struct error *error)
{
    char path[FOLDER_PATH_BYTES];
    for (size_t i = 0; i < file->shard_count; i++) {
        if (strcmp(file->shards[i].name, name) == 0) {
            *out = &file->shards[i];
            return STATUS_OK;
        }
    }
    if (name[0] == 0 || name[0] == '.' || strchr(name, '/') != NULL)
        return error_set(error, STATUS_INVALID,
                         "%s: '%.64s' in model.safetensors.index.json is no name of a file of the "
                         "folder",
                         file->path, name);
    if (file->shard_count == SHARDS_MAX)
        return error_set(error, STATUS_LIMIT, "%s has more than %d files of weights", file->path,
                         SHARDS_MAX);
    TRY(folder_path(file, name, path, error));
    struct shard *shard = &file->shards[file->shard_count];
    TRY(safetensors_open(path, &shard->file, error));
    file->shard_count++;
    shard->name = strdup(name);
    if (shard->name == NULL)
        return error_set(error, STATUS_NO_MEMORY, "no memory to open %s", path);
    *out = shard;
    return STATUS_OK;
}

static enum status index_entry(struct model_file *file, const char *name, const struct json *value,
                               struct error *error)
{
    struct shard *shard = NULL;
    if (json_kind(value) != JSON_STRING)
        return error_set(error, STATUS_CORRUPT,
                         "%s: '%.64s' in model.safetensors.index.json has %s instead of a file's "
                         "name",
                         file->path, name, json_kind_name(json_kind(value)));
    TRY(shard_open(file, json_string(value, NULL), &shard, error));
    if (safetensors_tensor_find(shard->file, name) == NULL)
        return error_set(
            error, STATUS_CORRUPT,
            "%s: %.64s has no tensor '%.64s', which model.safetensors.index.json says is "
            "there",
            file->path, shard->name, name);
    return STATUS_OK;
}

/* The tensors of all files of the folder, so that one which two files have is found, and one which
 * the index forgot is not left out. */
static enum status collect_tensors(struct model_file *file, struct error *error)
{
    size_t count = 0;
    for (size_t i = 0; i < file->shard_count; i++)
        count += safetensors_tensor_count(file->shards[i].file);
    TRY(table_allocate(file, count, error));
    for (size_t i = 0; i < file->shard_count; i++)
        for (size_t t = 0; t < safetensors_tensor_count(file->shards[i].file); t++)
            file->tensors[file->tensor_count++] = safetensors_tensor_at(file->shards[i].file, t);
    return table_sort(file, error);
}

static enum status open_index(struct model_file *file, const struct json *index,
                              struct error *error)
{
    const struct json *map = json_get(index, "weight_map");
    if (map == NULL || json_kind(map) != JSON_OBJECT)
        return error_set(error, STATUS_CORRUPT,
                         "%s: model.safetensors.index.json has no weight_map", file->path);
    void *cursor = NULL;
    const char *name;
    const struct json *value;
    while (json_next(map, &cursor, &name, &value))
        TRY(index_entry(file, name, value, error));
    return collect_tensors(file, error);
}

static enum status open_single(struct model_file *file, struct error *error)
{
    struct shard *shard = NULL;
    TRY(shard_open(file, "model.safetensors", &shard, error));
    return collect_tensors(file, error);
}

static enum status open_folder(struct model_file *file, struct error *error)
{
    char path[FOLDER_PATH_BYTES];
    struct stat info;
    TRY(read_object(file, "config.json", MODEL_CONFIG_BYTES_MAX, &file->config, error));
    TRY(folder_path(file, "model.safetensors", path, error));
    if (stat(path, &info) == 0)
        return open_single(file, error);
    TRY(folder_path(file, "model.safetensors.index.json", path, error));
    if (stat(path, &info) != 0)
        return error_set(error, STATUS_NOT_FOUND,
                         "%s has neither model.safetensors nor model.safetensors.index.json",
                         file->path);
    struct json *index = NULL;
    TRY(read_object(file, "model.safetensors.index.json", MODEL_INDEX_BYTES_MAX, &index, error));
    const enum status status = open_index(file, index, error);
    json_free(index);
    return status;
}

/* ---- both ---- */

static enum status open_any(struct model_file *file, struct error *error)
{
    struct stat info;
    struct gguf *first = NULL;
    if (stat(file->path, &info) == 0 && S_ISDIR(info.st_mode))
        return open_folder(file, error);
    TRY(gguf_open(file->path, &first, error));
    return open_parts(file, first, error);
}

enum status model_file_open(const char *path, struct model_file **out, struct error *error)
{
    struct model_file *file = calloc(1, sizeof *file);
    if (file == NULL || (file->path = strdup(path)) == NULL) {
        free(file);
        return error_set(error, STATUS_NO_MEMORY, "no memory to open %s", path);
    }
    for (size_t end = strlen(file->path); end > 1 && file->path[end - 1] == '/'; end--)
        file->path[end - 1] = 0;
    const enum status status = open_any(file, error);
    if (status != STATUS_OK) {
        model_file_close(file);
        return status;
    }
    *out = file;
    return STATUS_OK;
}

void model_file_close(struct model_file *file)
{
    if (file == NULL)
        return;
    for (uint32_t i = 0; i < file->part_count; i++)
        gguf_close(file->parts[i]);
    for (size_t i = 0; i < file->shard_count; i++) {
        safetensors_close(file->shards[i].file);
        free(file->shards[i].name);
    }
    if (file->config != NULL)
        json_free(file->config);
    free(file->parts);
    free(file->tensors);
    free(file->path);
    free(file);
}

const char *model_file_path(const struct model_file *file)
{
    return file->path;
}

const char *model_file_name(const struct model_file *file)
{
    const char *slash = strrchr(file->path, '/');
    return slash == NULL || slash[1] == 0 ? file->path : slash + 1;
}

const struct gguf *model_file_gguf(const struct model_file *file)
{
    return file->parts == NULL ? NULL : file->parts[0];
}

const struct json *model_file_config(const struct model_file *file)
{
    return file->config;
}

void model_file_revision(const struct model_file *file, char out[65])
{
    out[0] = 0;
    if (file->config == NULL) {
        struct gguf_string version;
        if (gguf_get_string(file->parts[0], "general.version", &version, NULL) == STATUS_OK)
            snprintf(out, 65, "%.*s", (int)(version.bytes < 64 ? version.bytes : 64), version.data);
        return;
    }
    const char *name = model_file_name(file);
    if (strlen(name) == 40 && strspn(name, "0123456789abcdef") == 40)
        snprintf(out, 65, "%s", name);
}

static bool same_file(const struct stat *info, const char *path)
{
    struct stat other;
    return stat(path, &other) == 0 && other.st_dev == info->st_dev && other.st_ino == info->st_ino;
}

bool model_file_is_input(const struct model_file *file, const char *path)
{
    char name[FOLDER_PATH_BYTES];
    struct stat info;
    struct error error;
    if (stat(path, &info) != 0)
        return false;
    for (uint32_t i = 0; i < file->part_count; i++)
        if (same_file(&info, gguf_path(file->parts[i])))
            return true;
    for (size_t i = 0; i < file->shard_count; i++)
        if (folder_path(file, file->shards[i].name, name, &error) == STATUS_OK &&
            same_file(&info, name))
            return true;
    return false;
}

size_t model_file_tensor_count(const struct model_file *file)
{
    return file->tensor_count;
}

const struct tensor_view *model_file_tensor_at(const struct model_file *file, size_t index)
{
    CHECK(index < file->tensor_count);
    return file->tensors[index];
}

const struct tensor_view *model_file_tensor_find(const struct model_file *file, const char *name,
                                                 size_t *index_out)
{
    const struct tensor_view key = {.name = name};
    const struct tensor_view *const wanted = &key;
    const struct tensor_view **found = file->tensor_count == 0
                                           ? NULL
                                           : bsearch(&wanted, file->tensors, file->tensor_count,
                                                     sizeof(struct tensor_view *), view_order);
    if (found == NULL)
        return NULL;
    if (index_out != NULL)
        *index_out = (size_t)(found - file->tensors);
    return *found;
}

struct digest128 model_file_digest(const struct model_file *file)
{
    return tensor_views_digest(file->tensors, file->tensor_count);
}
