/* `baton tokenize`: text on standard input, its token ids as one JSON array on standard output. */
#include <stdio.h>

#include "base/check.h"
#include "base/config.h"
#include "base/json.h"
#include "model/text/text.h"
#include "ops/baton/commands.h"
#include "ops/baton/text_input.h"

enum { IDS_MAX = 1 << 30 }; /* the input is bounded, and what normalising makes of it */

struct options {
    const char *model;
    bool special;
};

static const struct config_row option_rows[] = {
    {"model", CONFIG_TEXT, offsetof(struct options, model), NULL, "PATH",
     "the GGUF file or Hugging Face folder whose vocabulary is used", 0, 0},
    {"special", CONFIG_FLAG, offsetof(struct options, special), NULL, NULL,
     "special tokens written in the text become their ids", 0, 0},
};

static const struct config_command description = {
    .program = "baton tokenize",
    .summary = "Prints the token ids of the text on standard input as one JSON array.",
    .examples = "  echo -n 'Hello world' | baton tokenize --model model.gguf\n",
    .rows = option_rows,
    .row_count = ARRAY_COUNT(option_rows),
    .needed = "model",
};

static enum status tokenize(const void *arg, struct error *error)
{
    const struct options *options = arg;
    struct text *text;
    TRY(text_open(options->model, &text, error));
    struct buffer input = {0};
    struct buffer output = {0};
    struct token_list ids = {0};
    enum status status = text_input_read(&input, error);
    if (status == STATUS_OK)
        status = text_encode(text, input.data, input.size, options->special, IDS_MAX, &ids, error);
    if (status == STATUS_OK) {
        struct json_writer writer;
        json_writer_init(&writer, &output);
        json_open_array(&writer);
        for (size_t i = 0; i < ids.count; i++)
            json_put_int(&writer, ids.ids[i]);
        json_close_array(&writer);
        buffer_add_char(&output, '\n');
        status = text_output_write(&output, error);
    }
    token_list_free(&ids);
    buffer_free(&output);
    buffer_free(&input);
    text_close(text);
    return status;
}

int command_tokenize(int argc, char **argv)
{
    struct options options;
    return config_do(&description, argc, argv, &options, tokenize);
}
