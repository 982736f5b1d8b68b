/* A conversation through the model's template, as text or as ids. */
#include "base/check.h"
#include "base/log.h"
#include "model/text/jinja/jinja.h"
#include "model/text/text_internal.h"

/* For a model without a template whose vocabulary has ChatML's markers. */
static const char chatml[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/* Stands at the end of a final message while it is rendered, and is cut off with all behind it. */
static const char tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";

static struct jinja *compile(struct chat_format *chat, const struct buffer *source,
                             const char *path)
{
    struct jinja *template = NULL;
    struct error error;
    if (source->size == 0)
        return NULL;
    if (jinja_compile(source->data, source->size, &template, &error) != STATUS_OK) {
        LOG_WARN("%s: the chat template does not compile, chats will be refused: %s", path,
                 error.text);
        text_copy(chat->fault, sizeof chat->fault, error.text, strlen(error.text));
    }
    return template;
}

void chat_format_read(struct chat_format *chat, const struct vocabulary *vocabulary,
                      struct buffer plain, struct buffer with_tools, const char *path)
{
    const struct buffer own = {.data = (char *)chatml, .size = sizeof chatml - 1};
    const bool markers = vocabulary_find(vocabulary, "<|im_start|>", 12) >= 0 &&
                         vocabulary_find(vocabulary, "<|im_end|>", 10) >= 0;
    chat->plain = compile(chat, plain.size == 0 && markers ? &own : &plain, path);
    chat->with_tools = compile(chat, &with_tools, path);
}

void chat_format_free(struct chat_format *chat)
{
    jinja_free(chat->plain);
    jinja_free(chat->with_tools);
}

const char *text_chat_source(const struct text *text, const struct jinja *template,
                             size_t *bytes_out)
{
    if (template == NULL)
        template = text->chat.with_tools != NULL ? text->chat.with_tools : text->chat.plain;
    *bytes_out = 0;
    return template != NULL ? jinja_source(template, bytes_out) : "";
}

/* One rendering. */
struct rendering {
    const struct text *text;
    const struct chat_input *input;
    struct jinja_message_style style;
};

static void token_set(struct jinja_run *run, const struct text *text, const char *name, int32_t id)
{
    size_t bytes;
    if (id < 0)
        return;
    const char *data = text_token_bytes(text, id, &bytes);
    jinja_set_text(run, name, data, bytes);
}

static void optional_set(struct jinja_run *run, const char *name, const struct json *value)
{
    if (value != NULL)
        jinja_set_json(run, name, value);
    else
        jinja_set_none(run, name);
}

static void fill(struct jinja_run *run, void *arg)
{
    struct rendering *rendering = arg;
    const struct chat_input *input = rendering->input;
    token_set(run, rendering->text, "bos_token", rendering->text->info.bos);
    token_set(run, rendering->text, "eos_token", rendering->text->info.eos);
    if (input->reasoning_effort != NULL)
        jinja_set_json(run, "reasoning_effort", input->reasoning_effort);
    if (input->variables != NULL)
        jinja_set_members(run, input->variables);
    optional_set(run, "tools", input->tools);
    optional_set(run, "documents", input->documents);
    jinja_set_bool(run, "add_generation_prompt", input->add_generation_prompt);
    jinja_set_messages(run, input->messages, &rendering->style);
}

static enum status template_choose(const struct text *text, const struct chat_input *input,
                                   const struct jinja **out, struct error *error)
{
    const struct chat_format *chat = &text->chat;
    *out = input->template                                    ? input->template
           : input->tools != NULL && chat->with_tools != NULL ? chat->with_tools
                                                              : chat->plain;
    if (*out != NULL)
        return STATUS_OK;
    if (chat->fault[0] != '\0')
        return error_set(error, STATUS_UNSUPPORTED,
                         "the chat template of the model '%s' does not compile: %s",
                         text->info.name, chat->fault);
    return error_set(error, STATUS_UNSUPPORTED, "the model '%s' has no chat template",
                     text->info.name);
}

static size_t json_bytes(const struct json *json)
{
    enum { NODE_BYTES = 16 };
    size_t bytes = NODE_BYTES, length = 0;
    void *cursor = NULL;
    const char *key;
    const struct json *member;
    if (json == NULL)
        return 0;
    switch (json_kind(json)) {
    case JSON_STRING:
        json_string(json, &length);
        return bytes + length;
    case JSON_ARRAY:
        for (size_t i = 0; i < json_count(json); i++)
            bytes += json_bytes(json_at(json, i));
        return bytes;
    case JSON_OBJECT:
        while (json_next(json, &cursor, &key, &member))
            bytes += strlen(key) + json_bytes(member);
        return bytes;
    default:
        return bytes;
    }
}

/* Cuts the prompt where the final message ends. */
static enum status tag_cut(struct jinja_prompt *prompt, struct error *error)
{
    enum { TAG_WORD = sizeof tag - 2 }; /* without its space, which a template may have trimmed */
    size_t at = prompt->text.size;
    while (at > 0 && (prompt->text.size - (at - 1) < TAG_WORD ||
                      memcmp(prompt->text.data + at - 1, tag, TAG_WORD) != 0))
        at--;
    if (at == 0)
        return error_set(error, STATUS_INVALID,
                         "the chat template does not show the final message, it can not be "
                         "continued");
    size_t end = at - 1;
    const bool trimmed =
        prompt->text.size - end <= TAG_WORD || prompt->text.data[end + TAG_WORD] != tag[TAG_WORD];
    if (trimmed) {
        const char *kept;
        unicode_strip_spaces(prompt->text.data, end, false, true, &kept, &end);
    }
    prompt->text.size = prompt->marks.size = end;
    return STATUS_OK;
}

static enum status render(const struct text *text, const struct chat_input *input,
                          struct jinja_prompt *prompt, struct error *error)
{
    const struct jinja *template;
    TRY(template_choose(text, input, &template, error));
    const struct jinja_habits habits = jinja_habits(template);
    struct rendering rendering = {.text = text,
                                  .input = input,
                                  .style = {.parts = habits.content_parts,
                                            .wrap = habits.content_parts && !habits.content_string,
                                            .developer_is_system = !habits.developer,
                                            .parse_arguments = true,
                                            .tag = input->continue_final_message ? tag : NULL}};
    const size_t bytes = json_bytes(input->messages) + json_bytes(input->tools) +
                         json_bytes(input->documents) + json_bytes(input->variables);
    enum status status = jinja_render(template, &jinja_limits_default, bytes, input->now_s, fill,
                                      &rendering, prompt, error);
    if (status == STATUS_INVALID && rendering.style.parsed) {
        /* Some templates put arguments together as text. The first error is the one to tell. */
        struct error second;
        rendering.style.parse_arguments = false;
        if (jinja_render(template, &jinja_limits_default, bytes, input->now_s, fill, &rendering,
                         prompt, &second) == STATUS_OK)
            status = STATUS_OK;
    }
    if (status != STATUS_OK) // a limit of the template is no matter of how long the prompt is
        return status == STATUS_LIMIT ? STATUS_INVALID : status;
    return input->continue_final_message ? tag_cut(prompt, error) : STATUS_OK;
}

enum status text_encode_chat(const struct text *text, const struct chat_input *input,
                             size_t max_tokens, struct token_list *ids, struct error *error)
{
    struct jinja_prompt prompt = {0};
    enum status status = render(text, input, &prompt, error);
    if (status == STATUS_OK && prompt.text.size > 0)
        status = text_encode_marked(text, prompt.text.data, (const uint8_t *)prompt.marks.data,
                                    prompt.text.size, max_tokens, ids, error);
    jinja_prompt_free(&prompt);
    return status;
}

enum status text_render_chat(const struct text *text, const struct chat_input *input,
                             struct buffer *out, struct error *error)
{
    struct jinja_prompt prompt = {0};
    const enum status status = render(text, input, &prompt, error);
    if (status == STATUS_OK)
        buffer_add(out, prompt.text.data, prompt.text.size);
    jinja_prompt_free(&prompt);
    return status;
}
