/* `baton render`: a conversation as JSON on standard input, the prompt that a chat template makes
 * of it on standard output. For who writes templates. */
#include <stdio.h>
#include <time.h>

#include "base/check.h"
#include "base/config.h"
#include "base/json.h"
#include "model/text/jinja/jinja.h"
#include "model/text/text.h"
#include "ops/baton/commands.h"
#include "ops/baton/text_input.h"

struct options {
    const char *template, *model;
    uint64_t now_s;
};

static const struct config_row option_rows[] = {
    {"template", CONFIG_TEXT, offsetof(struct options, template), NULL, "FILE",
     "the Jinja template; what the JSON holds goes to it as it is", 0, 0},
    {"model", CONFIG_TEXT, offsetof(struct options, model), NULL, "PATH",
     "use the template of this GGUF file or Hugging Face folder, as the router does", 0, 0},
    {"now", CONFIG_U64, offsetof(struct options, now_s), "0", "SECONDS",
     "the time that strftime_now shows, since 1970; 0: now", 0, 1e12},
};

static const struct config_command description = {
    .program = "baton render",
    .summary =
        "Prints the prompt that a chat template makes of the JSON object on standard input:\n"
        "messages, tools, add_generation_prompt (true), bos_token (<s>), eos_token (</s>) and any\n"
        "other variable.",
    .examples = "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' |\n"
                "    baton render --template chat_template.jinja\n",
    .rows = option_rows,
    .row_count = ARRAY_COUNT(option_rows),
};

/* The variables of a template, as transformers hands them over. */
static void fill(struct jinja_run *run, void *arg)
{
    jinja_set_none(run, "tools");
    jinja_set_none(run, "documents");
    jinja_set_bool(run, "add_generation_prompt", true);
    jinja_set_text(run, "bos_token", "<s>", 3);
    jinja_set_text(run, "eos_token", "</s>", 4);
    jinja_set_members(run, arg);
}

static enum status with_file(const struct options *options, struct json *root, size_t bytes,
                             int64_t now_s, struct buffer *out, struct error *error)
{
    struct jinja *template;
    struct jinja_prompt prompt = {0};
    enum status status = jinja_open(options->template, &template, error);
    if (status == STATUS_OK) {
        status =
            jinja_render(template, &jinja_limits_default, bytes, now_s, fill, root, &prompt, error);
        jinja_free(template);
    }
    if (status == STATUS_OK)
        buffer_add(out, prompt.text.data, prompt.text.size);
    jinja_prompt_free(&prompt);
    return status;
}

static bool truth(const struct json *root, const char *name, bool otherwise)
{
    const struct json *value = json_get(root, name);
    return value != NULL && json_kind(value) == JSON_BOOL ? json_bool(value) : otherwise;
}

static const struct json *array_of(const struct json *root, const char *name)
{
    const struct json *value = json_get(root, name);
    return value != NULL && json_kind(value) == JSON_ARRAY ? value : NULL;
}

static enum status with_model(const struct options *options, const struct json *root, int64_t now_s,
                              struct buffer *out, struct error *error)
{
    struct text *text;
    const struct chat_input input = {
        .messages = array_of(root, "messages"),
        .tools = array_of(root, "tools"),
        .documents = array_of(root, "documents"),
        .variables = root,
        .add_generation_prompt = truth(root, "add_generation_prompt", true),
        .continue_final_message = truth(root, "continue_final_message", false),
        .now_s = now_s};
    if (input.messages == NULL)
        return error_set(error, STATUS_INVALID, "standard input has no array 'messages'");
    TRY(text_open(options->model, &text, error));
    const enum status status = text_render_chat(text, &input, out, error);
    text_close(text);
    return status;
}

static enum status render(const struct options *options, struct error *error)
{
    struct buffer input = {0}, output = {0};
    struct json *root = NULL;
    const int64_t now_s = options->now_s > 0 ? (int64_t)options->now_s : (int64_t)time(NULL);
    enum status status = text_input_read(&input, error);
    if (status == STATUS_OK)
        status = json_parse(input.data, input.size, &root, error);
    if (status == STATUS_OK && json_kind(root) != JSON_OBJECT)
        status = error_set(error, STATUS_INVALID, "standard input must be a JSON object, but is %s",
                           json_kind_name(json_kind(root)));
    if (status == STATUS_OK)
        status = options->template != NULL
                     ? with_file(options, root, input.size, now_s, &output, error)
                     : with_model(options, root, now_s, &output, error);
    if (status == STATUS_OK)
        status = text_output_write(&output, error);
    json_free(root);
    buffer_free(&output);
    buffer_free(&input);
    return status;
}

int command_render(int argc, char **argv)
{
    struct options options;
    int first_operand;
    const int code = config_begin(&description, argc, argv, &options, &first_operand);
    if (code != CONFIG_GO_ON)
        return code;
    if ((options.template == NULL) == (options.model == NULL))
        return config_misused(&description, "one of --template FILE and --model PATH is needed");
    struct error error;
    return config_end(&description, render(&options, &error), &error);
}
