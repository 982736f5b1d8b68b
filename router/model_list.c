#include "router/model_list.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/utf8.h"

/* "/models/SmolLM2-135M.gguf" is served as "SmolLM2-135M", a folder "/models/Qwen2.5-0.5B/" as
 * "Qwen2.5-0.5B"; the caller frees. */
static char *name_of_path(const char *path)
{
    static const char ending[] = ".gguf";
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    const size_t bytes = end - start;
    const size_t cut = bytes >= sizeof ending && memcmp(path + end - (sizeof ending - 1), ending,
                                                        sizeof ending - 1) == 0
                           ? sizeof ending - 1
                           : 0;
    return strndup(path + start, bytes - cut);
}

/* The path in an operand; *name_bytes_out of the name before it, 0 where there is none. A name may
 * have slashes, as "Qwen/Qwen2.5-0.5B" does, so what has a "=" is a path by itself where it is
 * there or begins with a slash or a dot. */
static const char *split(const char *operand, size_t *name_bytes_out)
{
    const char *equals = strchr(operand, '=');
    *name_bytes_out = 0;
    if (!equals || operand[0] == '/' || operand[0] == '.' || access(operand, F_OK) == 0)
        return operand;
    *name_bytes_out = (size_t)(equals - operand);
    return equals + 1;
}

const char *model_list_operand(const char *operand, char **name_out)
{
    size_t bytes;
    const char *path = split(operand, &bytes);
    *name_out = bytes > 0           ? strndup(operand, bytes)
                : operand[0] == '=' ? strdup("")
                                    : name_of_path(path);
    CHECK(*name_out != NULL);
    return path;
}

/* It stands in answers, logs and labels of metrics. */
static enum status check_name(const struct model_list *list, const char *name, struct error *error)
{
    const size_t bytes = strlen(name);
    if (bytes == 0 || bytes > MODEL_LIST_NAME_MAX)
        return error_set(error, STATUS_INVALID,
                         "--model: the name \"%.32s\" has %zu bytes; 1 to %d are allowed", name,
                         bytes, MODEL_LIST_NAME_MAX);
    if (!utf8_valid(name, bytes))
        return error_set(error, STATUS_INVALID, "--model: a name of %zu bytes is not UTF-8", bytes);
    for (const char *c = name; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return error_set(error, STATUS_INVALID,
                             "--model: the name of %zu bytes has the control character 0x%02x at "
                             "%zu",
                             bytes, (unsigned char)*c, (size_t)(c - name));
    }
    for (uint32_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].name, name) == 0)
            return error_set(error, STATUS_INVALID,
                             "--model: two models have the name \"%.64s\"; give each its own as "
                             "NAME=PATH",
                             name);
    }
    return STATUS_OK;
}

static enum status add(struct model_list *list, const char *operand, const char *name,
                       struct error *error)
{
    struct model_entry *entry = &list->items[list->count];
    *entry = (struct model_entry){.tool_style = TOOL_STYLE_COUNT};
    const char *path = model_list_operand(operand, &entry->name);
    if (name) {
        free(entry->name);
        entry->name = strdup(name);
        CHECK(entry->name != NULL);
    }
    if (*path == '\0') {
        free(entry->name);
        entry->name = NULL;
        return error_set(error, STATUS_INVALID, "--model: \"%.64s\" has no path", operand);
    }
    enum status status = check_name(list, entry->name, error);
    if (status == STATUS_OK)
        status = text_open(path, &entry->text, error);
    if (status != STATUS_OK) {
        free(entry->name);
        entry->name = NULL;
        return status;
    }
    list->count++;
    return STATUS_OK;
}

enum status model_list_open(const struct config_texts *operands, const char *name,
                            struct model_list *out, struct error *error)
{
    struct model_list list = {.count = 0};
    if (operands->count > 1 && name)
        return error_set(error, STATUS_INVALID,
                         "--model-name is of one model, and --model names %u: say --model "
                         "NAME=PATH",
                         operands->count);
    for (uint32_t i = 0; i < operands->count; i++) {
        const enum status status = add(&list, operands->items[i], name, error);
        if (status != STATUS_OK) {
            model_list_close(&list);
            return status;
        }
    }
    *out = list;
    return STATUS_OK;
}

void model_list_close(struct model_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        text_close(list->items[i].text);
        jinja_free(list->items[i].template);
        free(list->items[i].name);
    }
    list->count = 0;
}
