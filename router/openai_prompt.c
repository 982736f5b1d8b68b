#include "router/openai_prompt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "model/text/jinja/jinja.h"
#include "router/openai_fields.h"

static enum status encode_failed(enum status status, const struct error *cause, const char *param,
                                 struct openai_error *error)
{
    if (status == STATUS_LIMIT)
        return openai_error_set(error, 400, param, "context_length_exceeded",
                                "The prompt is too long: %s.", cause->text);
    if (status == STATUS_UNSUPPORTED)
        return openai_error_set(error, 400, param, NULL, "%s", cause->text);
    openai_error_set(error, status == STATUS_INVALID ? 400 : 500, param, NULL, "%s", cause->text);
    return STATUS_INVALID;
}

static void add_bos(const struct openai_rules *rules, struct token_list *ids)
{
    const struct text_info *info = text_info(rules->text);
    if (info->add_bos && info->bos >= 0)
        token_list_add(ids, info->bos);
}

static enum status encode(const struct json *value, const char *param, bool special,
                          const struct openai_rules *rules, struct token_list *ids,
                          struct openai_error *error)
{
    size_t bytes;
    const char *text = json_string(value, &bytes);
    struct error cause;
    const enum status status =
        text_encode(rules->text, text, bytes, special, OPENAI_PROMPT_TOKENS_MAX, ids, &cause);
    return status == STATUS_OK ? STATUS_OK : encode_failed(status, &cause, param, error);
}

/* body: of the request, of which value is the prompt or the one in its list. */
static enum status read_text(const struct json *body, const struct json *value,
                             const struct openai_rules *rules, struct token_list *ids,
                             struct openai_error *error)
{
    bool add_special = true;
    TRY(field_bool(body, "add_special_tokens", &add_special, error));
    if (add_special)
        add_bos(rules, ids);
    return encode(value, "prompt", false, rules, ids, error);
}

enum status openai_text_read(const struct json *body, const struct openai_rules *rules,
                             struct token_list *ids, struct openai_error *error)
{
    const struct json *prompt = field_get(body, "prompt");
    CHECK(prompt && json_kind(prompt) == JSON_STRING);
    return read_text(body, prompt, rules, ids, error);
}

enum status openai_content_read(const struct json *body, const struct openai_rules *rules,
                                struct token_list *ids, struct openai_error *error)
{
    const struct json *content = field_get(body, "content");
    bool add_special = false, parse_special = true;
    if (json_kind(content) != JSON_STRING)
        return field_wrong(content, "content", "a string", error);
    TRY(field_bool(body, "add_special", &add_special, error));
    TRY(field_bool(body, "parse_special", &parse_special, error));
    if (add_special)
        add_bos(rules, ids);
    return encode(content, "content", parse_special, rules, ids, error);
}

/* name: what the array is called in an error. */
static enum status read_ids(const struct json *array, const char *name,
                            const struct openai_rules *rules, struct token_list *ids,
                            struct openai_error *error)
{
    const size_t count = json_count(array);
    const uint32_t vocab_count = text_info(rules->text)->vocab_count;
    if (count > OPENAI_PROMPT_TOKENS_MAX)
        return openai_error_set(error, 400, "prompt", "context_length_exceeded",
                                "`%s` has %zu ids; the limit is %d.", name, count,
                                OPENAI_PROMPT_TOKENS_MAX);
    for (size_t i = 0; i < count; i++) {
        const struct json *item = json_at(array, i);
        char text[FIELD_VALUE_BYTES];
        if (json_kind(item) != JSON_INT)
            return openai_error_set(error, 400, "prompt", NULL,
                                    "`%s[%zu]` must be a token id like those before it, but "
                                    "is %s.",
                                    name, i, field_value_text(item, text));
        const int64_t id = json_int(item);
        if (id < 0 || id >= vocab_count)
            return openai_error_set(error, 400, "prompt", NULL,
                                    "`%s[%zu]` is %" PRId64
                                    ", but token ids of this model go from 0 to %u.",
                                    name, i, id, vocab_count - 1);
        token_list_add(ids, (int32_t)id);
    }
    return STATUS_OK;
}

/* Whether the array is a prompt, of ids, and no list of prompts. */
static bool is_ids(const struct json *array)
{
    if (json_count(array) == 0)
        return true;
    const enum json_kind kind = json_kind(json_at(array, 0));
    return kind == JSON_INT || kind == JSON_REAL;
}

enum status openai_prompt_count(const struct json *body, uint32_t *count_out,
                                struct openai_error *error)
{
    const struct json *prompt = field_get(body, "prompt");
    const bool list = prompt && json_kind(prompt) == JSON_ARRAY && !is_ids(prompt);
    const size_t count = list ? json_count(prompt) : 1;
    if (count > OPENAI_PROMPTS_MAX)
        return openai_error_set(error, 400, "prompt", NULL,
                                "`prompt` is a list of %zu prompts; the limit is %d.", count,
                                OPENAI_PROMPTS_MAX);
    *count_out = (uint32_t)count;
    return STATUS_OK;
}

enum status openai_prompt_read(const struct json *body, const struct openai_rules *rules,
                               uint32_t index, struct token_list *ids, struct openai_error *error)
{
    const struct json *prompt = field_get(body, "prompt");
    if (!prompt)
        return openai_error_set(error, 400, "prompt", NULL, "`prompt` is missing.");
    char name[32] = "prompt";
    if (json_kind(prompt) == JSON_ARRAY && !is_ids(prompt)) {
        prompt = json_at(prompt, index);
        snprintf(name, sizeof name, "prompt[%" PRIu32 "]", index);
    }
    if (json_kind(prompt) == JSON_STRING)
        TRY(read_text(body, prompt, rules, ids, error));
    else if (json_kind(prompt) == JSON_ARRAY)
        TRY(read_ids(prompt, name, rules, ids, error));
    else
        return field_wrong(prompt, "prompt", "a string or an array of token ids", error);
    if (ids->count == 0)
        return openai_error_set(error, 400, "prompt", NULL,
                                "`%s` is empty and this model has no token to begin with.", name);
    return STATUS_OK;
}

/* role_out: one of the known ones, static. */
static enum status read_role(const struct json *message, size_t index, const char **role_out,
                             struct openai_error *error)
{
    static const char *const roles[] = {"system", "user", "assistant", "developer", "tool"};
    const struct json *role = field_get(message, "role");
    if (!role)
        return openai_error_set(error, 400, "messages", NULL, "`messages[%zu].role` is missing.",
                                index);
    if (json_kind(role) == JSON_STRING) {
        size_t bytes;
        const char *text = json_string(role, &bytes);
        for (size_t i = 0; i < ARRAY_COUNT(roles); i++) {
            if (strlen(roles[i]) == bytes && memcmp(roles[i], text, bytes) == 0) {
                *role_out = roles[i];
                return STATUS_OK;
            }
        }
    }
    char text[FIELD_VALUE_BYTES];
    return openai_error_set(error, 400, "messages", NULL,
                            "`messages[%zu].role` must be system, user, assistant, developer or "
                            "tool, but is %s.",
                            index, field_value_text(role, text));
}

static enum status check_part(const struct json *part, size_t message, size_t index,
                              struct openai_error *error)
{
    const struct json *type = json_kind(part) == JSON_OBJECT ? field_get(part, "type") : NULL;
    char shown[FIELD_VALUE_BYTES];
    if (!type || json_kind(type) != JSON_STRING)
        return openai_error_set(error, 400, "messages", NULL,
                                "`messages[%zu].content[%zu]` must be an object with a `type`.",
                                message, index);
    if (!field_is_text(type, "text"))
        return openai_error_set(error, 400, "messages", "unsupported_value",
                                "`messages[%zu].content[%zu].type` is %s; only \"text\" is "
                                "supported.",
                                message, index, field_value_text(type, shown));
    const struct json *text = field_get(part, "text");
    if (!text || json_kind(text) != JSON_STRING)
        return openai_error_set(error, 400, "messages", NULL,
                                "`messages[%zu].content[%zu].text` must be a string.", message,
                                index);
    return STATUS_OK;
}

static enum status check_message(const struct json *message, size_t index,
                                 struct openai_error *error)
{
    char shown[FIELD_VALUE_BYTES];
    const char *role = NULL;
    if (json_kind(message) != JSON_OBJECT)
        return openai_error_set(error, 400, "messages", NULL,
                                "`messages[%zu]` must be an object, but is %s.", index,
                                field_value_text(message, shown));
    TRY(read_role(message, index, &role, error));
    TRY(openai_tool_message_check(message, index, role, error));
    const struct json *content = field_get(message, "content");
    if (!content)
        return strcmp(role, "assistant") == 0
                   ? STATUS_OK
                   : openai_error_set(error, 400, "messages", NULL,
                                      "`messages[%zu].content` is missing.", index);
    if (json_kind(content) == JSON_STRING)
        return STATUS_OK;
    if (json_kind(content) != JSON_ARRAY)
        return openai_error_set(error, 400, "messages", NULL,
                                "`messages[%zu].content` must be a string or an array of parts, "
                                "but is %s.",
                                index, field_value_text(content, shown));
    for (size_t i = 0; i < json_count(content); i++)
        TRY(check_part(json_at(content, i), index, i, error));
    return STATUS_OK;
}

/* How messages become a prompt. */
struct rendering {
    struct chat_input input;
    bool add_special;
    struct jinja *template; /* of the request itself, or NULL */
};

/* A field that goes to the template as it is; of one kind. */
static enum status read_variable(const struct json *body, const char *name, enum json_kind kind,
                                 const struct json **out, struct openai_error *error)
{
    const struct json *value = field_get(body, name);
    if (value && json_kind(value) != kind)
        return field_wrong(value, name, json_kind_name(kind), error);
    *out = value;
    return STATUS_OK;
}

static enum status read_template(const struct json *body, const struct openai_rules *rules,
                                 struct jinja **out, struct openai_error *error)
{
    const struct json *source = NULL;
    struct error cause;
    size_t bytes;
    TRY(read_variable(body, "chat_template", JSON_STRING, &source, error));
    if (!source)
        return STATUS_OK;
    if (!rules->trust_template)
        return openai_error_set(error, 400, "chat_template", "unsupported_value",
                                "`chat_template` is not taken from requests here: the router was "
                                "started without --trust-request-chat-template.");
    const char *text = json_string(source, &bytes);
    if (jinja_compile(text, bytes, out, &cause) == STATUS_OK)
        return STATUS_OK;
    return openai_error_set(error, 400, "chat_template", NULL,
                            "`chat_template` does not compile: %s.", cause.text);
}

static enum status read_rendering(const struct json *body, const struct openai_rules *rules,
                                  struct rendering *out, struct openai_error *error)
{
    struct chat_input *input = &out->input;
    *out = (struct rendering){.input = {.template = rules->template,
                                        .add_generation_prompt = true,
                                        .now_s = (int64_t)(clock_wall_ms() / 1000)}};
    TRY(field_bool(body, "add_generation_prompt", &input->add_generation_prompt, error));
    TRY(field_bool(body, "continue_final_message", &input->continue_final_message, error));
    TRY(field_bool(body, "add_special_tokens", &out->add_special, error));
    TRY(read_variable(body, "documents", JSON_ARRAY, &input->documents, error));
    TRY(read_variable(body, "reasoning_effort", JSON_STRING, &input->reasoning_effort, error));
    TRY(read_variable(body, "chat_template_kwargs", JSON_OBJECT, &input->variables, error));
    if (input->continue_final_message && input->add_generation_prompt &&
        field_get(body, "add_generation_prompt"))
        return openai_error_set(error, 400, "continue_final_message", NULL,
                                "`continue_final_message` and `add_generation_prompt` can not both "
                                "be true: the answer goes on with a message, or begins one.");
    if (input->continue_final_message)
        input->add_generation_prompt = false;
    TRY(read_template(body, rules, &out->template, error));
    if (out->template)
        input->template = out->template;
    return STATUS_OK;
}

/* The text of a message that goes on: the answer repeats it where the client asks for that. */
static enum status read_final(const struct json *messages, struct buffer *final_out,
                              struct openai_error *error)
{
    const size_t count = json_count(messages);
    const struct json *last = json_at(messages, count - 1);
    const struct json *content = field_get(last, "content");
    size_t bytes;
    if (count < 2 || strcmp(json_string(field_get(last, "role"), &bytes), "assistant") != 0)
        return openai_error_set(error, 400, "continue_final_message", NULL,
                                "`continue_final_message` needs a final message of the assistant, "
                                "and one before it.");
    if (!content || !final_out)
        return STATUS_OK;
    if (json_kind(content) == JSON_STRING) {
        const char *text = json_string(content, &bytes);
        buffer_add(final_out, text, bytes);
        return STATUS_OK;
    }
    for (size_t i = 0; i < json_count(content); i++) {
        const char *text = json_string(json_get(json_at(content, i), "text"), &bytes);
        buffer_add(final_out, text, bytes);
    }
    return STATUS_OK;
}

static enum status encode_messages(const struct rendering *rendering,
                                   const struct openai_rules *rules, struct token_list *ids,
                                   struct buffer *final_out, struct openai_error *error)
{
    struct error cause;
    if (rendering->input.continue_final_message)
        TRY(read_final(rendering->input.messages, final_out, error));
    if (rendering->add_special)
        add_bos(rules, ids);
    const size_t before = ids->count;
    const enum status status =
        text_encode_chat(rules->text, &rendering->input, OPENAI_PROMPT_TOKENS_MAX, ids, &cause);
    if (status != STATUS_OK)
        return encode_failed(status, &cause, "messages", error);
    /* A format that begins with bos itself does not get another one. */
    if (before > 0 && ids->count > before && ids->ids[before] == ids->ids[0]) {
        ids->count--;
        memmove(ids->ids, ids->ids + 1, ids->count * sizeof *ids->ids);
    }
    return STATUS_OK;
}

static enum status read_conversation(const struct json *list, const struct json *tools,
                                     struct rendering *rendering, const struct openai_rules *rules,
                                     struct token_list *ids, struct buffer *final_out,
                                     struct openai_error *error)
{
    struct json *spelled = NULL;
    for (size_t i = 0; i < json_count(list); i++)
        TRY(check_message(json_at(list, i), i, error));
    rendering->input.messages = list;
    if (rules->tools.in_template) {
        rendering->input.tools = tools;
    } else if (tools || openai_tool_messages_any(list)) {
        TRY(openai_tools_spell(list, tools, &rules->tools, &spelled, error));
        rendering->input.messages = spelled;
    }
    const enum status status = encode_messages(rendering, rules, ids, final_out, error);
    if (spelled)
        json_free(spelled);
    return status;
}

enum status openai_messages_read(const struct json *body, const struct json *tools,
                                 const struct openai_rules *rules, struct token_list *ids,
                                 struct buffer *final_out, struct openai_error *error)
{
    const struct json *list = field_get(body, "messages");
    if (!list)
        return openai_error_set(error, 400, "messages", NULL, "`messages` is missing.");
    if (json_kind(list) != JSON_ARRAY)
        return field_wrong(list, "messages", "an array", error);
    const size_t count = json_count(list);
    if (count == 0 || count > OPENAI_MESSAGES_MAX)
        return openai_error_set(error, 400, "messages", NULL,
                                "`messages` must hold 1 to %d messages, but holds %zu.",
                                OPENAI_MESSAGES_MAX, count);
    struct rendering rendering;
    enum status status = read_rendering(body, rules, &rendering, error);
    if (status == STATUS_OK)
        status = read_conversation(list, tools, &rendering, rules, ids, final_out, error);
    jinja_free(rendering.template);
    return status;
}
