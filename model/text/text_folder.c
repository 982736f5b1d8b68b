/* Opening a Hugging Face folder: tokenizer.json, and where they are there tokenizer_config.json,
 * generation_config.json, config.json and chat_template.jinja. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "model/text/tokenizer_json_internal.h"

enum {
    TOKENIZER_BYTES_MAX = 1 << 26, /* of tokenizer.json */
    CONFIG_BYTES_MAX = 1 << 24,    /* of each other file */
};

#define TEMPLATE_DEFAULT "default"
#define TEMPLATE_TOOLS   "tool_use"

/* A file of the folder. NOT_FOUND when it is not there. */
static enum status file_read(const char *folder, const char *name, size_t bytes_max, char *path,
                             struct buffer *out, struct error *error)
{
    TRY(folder_file_path(folder, name, path, error));
    return folder_file_read(path, bytes_max, out, error);
}

enum status folder_config_read(const char *folder, const char *name, char *path, struct json **out,
                               struct error *error)
{
    struct buffer bytes = {0};
    *out = NULL;
    enum status status = file_read(folder, name, CONFIG_BYTES_MAX, path, &bytes, error);
    if (status == STATUS_OK)
        status = folder_file_object(path, &bytes, out, error);
    buffer_free(&bytes);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

enum status folder_tokenizer_read(const char *folder, char *path, struct json **out,
                                  struct digest128 *digest_out, struct error *error)
{
    struct buffer bytes = {0};
    enum status status =
        file_read(folder, "tokenizer.json", TOKENIZER_BYTES_MAX, path, &bytes, error);
    if (status == STATUS_NOT_FOUND)
        error_set(error, status, "%s is not there", path);
    if (status == STATUS_OK) {
        struct error reason;
        status = json_parse(bytes.data, bytes.size, out, &reason);
        if (status != STATUS_OK)
            error_set(error, status, "%s: %s", path, reason.text);
        *digest_out = hash128(bytes.data, bytes.size, 0);
    }
    buffer_free(&bytes);
    return status;
}

static enum status tokenizer_read(struct text *text, const char *folder, char *path,
                                  struct error *error)
{
    struct json *root;
    struct digest128 digest;
    TRY(folder_tokenizer_read(folder, path, &root, &digest, error));
    buffer_add(&text->rules, &digest, sizeof digest);
    const enum status status = tokenizer_json_read(text, root, path, error);
    json_free(root);
    return status;
}

/* A token by its text, written as a string or as {"content": …}; -1 for null or nothing. */
static enum status named_token(const struct text *text, const struct json *config, const char *key,
                               const char *path, int32_t *out, struct error *error)
{
    const struct json *value = json_get(config, key);
    *out = -1;
    if (value != NULL && json_kind(value) == JSON_OBJECT)
        value = json_get(value, "content");
    if (value == NULL || json_kind(value) != JSON_STRING)
        return STATUS_OK;
    size_t bytes;
    const char *name = json_string(value, &bytes);
    *out = vocabulary_find(&text->vocabulary, name, bytes);
    if (*out < 0)
        return error_set(error, STATUS_CORRUPT, "%s: '%s' is '%.40s', which is no token", path, key,
                         name);
    return STATUS_OK;
}

/* eos_token_id: an id or a list of them. */
static enum status end_ids_read(struct text *text, const struct json *config, struct error *error)
{
    const struct json *ids = config != NULL ? json_get(config, "eos_token_id") : NULL;
    if (ids == NULL || json_kind(ids) == JSON_NULL)
        return STATUS_OK;
    const size_t count = json_kind(ids) == JSON_ARRAY ? json_count(ids) : 1;
    for (size_t i = 0; i < count; i++) {
        const struct json *id = json_kind(ids) == JSON_ARRAY ? json_at(ids, i) : ids;
        TRY(vocabulary_check_id(&text->vocabulary, "'eos_token_id'",
                                json_kind(id) == JSON_INT ? json_int(id) : -1, error));
        if (text->info.eos < 0)
            text->info.eos = (int32_t)json_int(id);
        TRY(text_end_add(text, (int32_t)json_int(id), error));
    }
    return STATUS_OK;
}

static enum status bos_read(struct text *text, const struct json *config, const char *path,
                            struct error *error)
{
    int32_t bos;
    TRY(named_token(text, config, "bos_token", path, &bos, error));
    if (text->info.bos < 0 || bos >= 0)
        text->info.bos = bos >= 0 ? bos : text->info.bos;
    const struct json *add = json_get(config, "add_bos_token");
    if (add != NULL && json_kind(add) == JSON_BOOL)
        text->info.add_bos = json_bool(add);
    text->info.add_bos = text->info.add_bos && text->info.bos >= 0;
    return STATUS_OK;
}

/* The template of a chat: a string, or a list of named ones. */
static const struct json *template_find(const struct json *config, const char *wanted)
{
    const struct json *template = json_get(config, "chat_template");
    if (template == NULL || json_kind(template) != JSON_ARRAY)
        return strcmp(wanted, TEMPLATE_DEFAULT) == 0 ? template : NULL;
    for (size_t i = 0; i < json_count(template); i++) {
        const struct json *named = json_at(template, i);
        const struct json *name = json_kind(named) == JSON_OBJECT ? json_get(named, "name") : NULL;
        size_t bytes;
        if (name != NULL && json_kind(name) == JSON_STRING &&
            strcmp(json_string(name, &bytes), wanted) == 0)
            return json_get(named, "template");
    }
    return NULL;
}

static void template_add(const struct json *config, const char *wanted, struct buffer *out)
{
    const struct json *written = config != NULL ? template_find(config, wanted) : NULL;
    if (written == NULL || json_kind(written) != JSON_STRING)
        return;
    size_t bytes;
    const char *template = json_string(written, &bytes);
    buffer_add(out, template, bytes);
}

enum status folder_template_read(const char *folder, const struct json *config, char *path,
                                 struct buffer *out, struct error *error)
{
    struct json *own = NULL;
    const enum status status =
        file_read(folder, "chat_template.jinja", CONFIG_BYTES_MAX, path, out, error);
    if (status != STATUS_NOT_FOUND)
        return status;
    TRY(folder_config_read(folder, "chat_template.json", path, &own, error));
    template_add(own, TEMPLATE_DEFAULT, out);
    json_free(own);
    if (out->size == 0)
        template_add(config, TEMPLATE_DEFAULT, out);
    return STATUS_OK;
}

static enum status template_read(struct text *text, const struct json *config, const char *folder,
                                 char *path, struct error *error)
{
    struct buffer plain = {0}, with_tools = {0};
    enum status status = folder_template_read(folder, config, path, &plain, error);
    if (status == STATUS_OK)
        status = file_read(folder, "additional_chat_templates/" TEMPLATE_TOOLS ".jinja",
                           CONFIG_BYTES_MAX, path, &with_tools, error);
    if (status == STATUS_NOT_FOUND) {
        template_add(config, TEMPLATE_TOOLS, &with_tools);
        status = STATUS_OK;
    }
    if (status == STATUS_OK)
        chat_format_read(&text->chat, &text->vocabulary, plain, with_tools, folder);
    buffer_free(&plain);
    buffer_free(&with_tools);
    return status;
}

/* What config.json says of the model's name and context; some keep it under "text_config". */
static void model_read(struct text_info *info, const struct json *config)
{
    size_t bytes;
    const struct json *type = json_get(config, "model_type");
    if (type != NULL && json_kind(type) == JSON_STRING) {
        const char *name = json_string(type, &bytes);
        text_copy(info->architecture, sizeof info->architecture, name, bytes);
    }
    const struct json *inner = json_get(config, "text_config");
    const struct json *context = json_get(config, "max_position_embeddings");
    if (context == NULL && inner != NULL && json_kind(inner) == JSON_OBJECT)
        context = json_get(inner, "max_position_embeddings");
    if (context == NULL)
        context = json_get(config, "n_positions");
    if (context != NULL && json_kind(context) == JSON_INT && json_int(context) > 0 &&
        json_int(context) <= UINT32_MAX)
        info->context_tokens = (uint32_t)json_int(context);
}

static void name_from_path(struct text_info *info, const char *folder)
{
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && folder[start - 1] != '/')
        start--;
    text_copy(info->name, sizeof info->name, folder + start, end - start);
}

/* The configuration files, any of which may be NULL. generation_config.json is what a generation
 * ends by; config.json stands in for it where it is missing. */
static enum status configs_apply(struct text *text, const struct json *tokenizer,
                                 const struct json *generation, const struct json *model,
                                 const char *path, struct error *error)
{
    if (tokenizer != NULL) {
        int32_t eos;
        TRY(bos_read(text, tokenizer, path, error));
        TRY(named_token(text, tokenizer, "eos_token", path, &eos, error));
        if (eos >= 0) {
            text->info.eos = eos;
            TRY(text_end_add(text, eos, error));
        }
    }
    const bool ends = generation != NULL && json_get(generation, "eos_token_id") != NULL;
    TRY(end_ids_read(text, ends ? generation : model, error));
    text_ends_by_name(text);
    if (model != NULL)
        model_read(&text->info, model);
    return STATUS_OK;
}

enum status text_read_folder(struct text *text, const char *folder, struct error *error)
{
    char tokenizer_path[FOLDER_PATH_BYTES];
    char config_path[FOLDER_PATH_BYTES];
    char path[FOLDER_PATH_BYTES];
    struct json *tokenizer = NULL;
    struct json *generation = NULL;
    struct json *model = NULL;
    name_from_path(&text->info, folder);
    TRY(tokenizer_read(text, folder, tokenizer_path, error));
    enum status status =
        folder_config_read(folder, "tokenizer_config.json", config_path, &tokenizer, error);
    if (status == STATUS_OK)
        status = folder_config_read(folder, "generation_config.json", path, &generation, error);
    if (status == STATUS_OK)
        status = folder_config_read(folder, "config.json", path, &model, error);
    if (status == STATUS_OK)
        status = configs_apply(text, tokenizer, generation, model, config_path, error);
    if (status == STATUS_OK)
        status = template_read(text, tokenizer, folder, path, error);
    json_free(tokenizer);
    json_free(generation);
    json_free(model);
    return status;
}
