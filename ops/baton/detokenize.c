/* `baton detokenize`: a JSON array of token ids on standard input, their bytes on standard output.
 */
#include <stdio.h>

#include "base/check.h"
#include "base/config.h"
#include "base/json.h"
#include "model/text/text.h"
#include "ops/baton/commands.h"
#include "ops/baton/text_input.h"

struct options {
    const char *model;
};

static const struct config_row option_rows[] = {
    {"model", CONFIG_TEXT, offsetof(struct options, model), NULL, "PATH",
     "the GGUF file or Hugging Face folder whose vocabulary is used", 0, 0},
};

static const struct config_command description = {
    .program = "baton detokenize",
    .summary = "Writes the bytes that a JSON array of token ids on standard input stands for.",
    .examples = "  echo '[19556, 905]' | baton detokenize --model model.gguf\n",
    .rows = option_rows,
    .row_count = ARRAY_COUNT(option_rows),
    .needed = "model",
};

static enum status ids_decode(const struct text *text, const struct json *ids, struct buffer *out,
                              struct error *error)
{
    if (json_kind(ids) != JSON_ARRAY)
        return error_set(error, STATUS_INVALID,
                         "standard input holds %s, an array of ids is needed",
                         json_kind_name(json_kind(ids)));
    const uint32_t vocab_count = text_info(text)->vocab_count;
    struct token_list list = {0};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < json_count(ids) && status == STATUS_OK; i++) {
        const struct json *item = json_at(ids, i);
        const int64_t id = json_kind(item) == JSON_INT ? json_int(item) : -1;
        if (json_kind(item) != JSON_INT)
            status = error_set(error, STATUS_INVALID, "item %zu is %s, an id is needed", i,
                               json_kind_name(json_kind(item)));
        else if (id < 0 || id >= vocab_count)
            status = error_set(error, STATUS_INVALID, "item %zu is %lld, ids go from 0 to %u", i,
                               (long long)id, vocab_count - 1);
        token_list_add(&list, (int32_t)id);
    }
    if (status == STATUS_OK)
        text_decode(text, list.ids, list.count, out);
    token_list_free(&list);
    return status;
}

static enum status detokenize(const void *arg, struct error *error)
{
    const struct options *options = arg;
    struct text *text;
    TRY(text_open(options->model, &text, error));
    struct buffer input = {0};
    struct buffer output = {0};
    struct json *ids = NULL;
    enum status status = text_input_read(&input, error);
    if (status == STATUS_OK)
        status = json_parse(input.data, input.size, &ids, error);
    if (status == STATUS_OK)
        status = ids_decode(text, ids, &output, error);
    if (status == STATUS_OK)
        status = text_output_write(&output, error);
    json_free(ids);
    buffer_free(&output);
    buffer_free(&input);
    text_close(text);
    return status;
}

int command_detokenize(int argc, char **argv)
{
    struct options options;
    return config_do(&description, argc, argv, &options, detokenize);
}
