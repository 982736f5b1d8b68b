#include "router/openai_prompt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "router/openai_fields.h"

static enum status encode_failed(enum status status, const struct error *cause, const char *param,
                                 struct openai_error *error)
{
    if (status == STATUS_LIMIT)
        return openai_error_set(error, 400, param, "context_length_exceeded",
                                "The prompt is too long: it has more than %d tokens.",
                                OPENAI_PROMPT_TOKENS_MAX);
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

/* Messages while they are read; `joined` owns the contents that were put together from parts. */
struct messages {
    struct chat_message *items;
    struct buffer *joined;
    size_t count;
};

static void messages_free(struct messages *messages)
{
    for (size_t i = 0; i < messages->count; i++)
        buffer_free(&messages->joined[i]);
    free(messages->items);
    free(messages->joined);
}

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

static enum status read_part(const struct json *part, size_t message, size_t index,
                             struct buffer *joined, struct openai_error *error)
{
    const struct json *type = json_kind(part) == JSON_OBJECT ? field_get(part, "type") : NULL;
    char shown[FIELD_VALUE_BYTES];
    if (!type || json_kind(type) != JSON_STRING)
        return openai_error_set(error, 400, "messages", NULL,
                                "`messages[%zu].content[%zu]` must be an object with a `type`.",
                                message, index);
    if (strcmp(json_string(type, &(size_t){0}), "text") != 0)
        return openai_error_set(error, 400, "messages", "unsupported_value",
                                "`messages[%zu].content[%zu].type` is %s; only \"text\" is "
                                "supported.",
                                message, index, field_value_text(type, shown));
    const struct json *text = field_get(part, "text");
    if (!text || json_kind(text) != JSON_STRING)
        return openai_error_set(error, 400, "messages", NULL,
                                "`messages[%zu].content[%zu].text` must be a string.", message,
                                index);
    size_t bytes;
    const char *data = json_string(text, &bytes);
    buffer_add(joined, data, bytes);
    return STATUS_OK;
}

static enum status read_message(const struct json *message, size_t index, struct messages *out,
                                struct openai_error *error)
{
    char shown[FIELD_VALUE_BYTES];
    struct chat_message *item = &out->items[index];
    if (json_kind(message) != JSON_OBJECT)
        return openai_error_set(error, 400, "messages", NULL,
                                "`messages[%zu]` must be an object, but is %s.", index,
                                field_value_text(message, shown));
    TRY(read_role(message, index, &item->role, error));
    TRY(openai_tool_message_check(message, index, item->role, error));
    const struct json *content = field_get(message, "content");
    item->content = "";
    if (!content)
        return strcmp(item->role, "assistant") == 0
                   ? STATUS_OK
                   : openai_error_set(error, 400, "messages", NULL,
                                      "`messages[%zu].content` is missing.", index);
    if (json_kind(content) == JSON_STRING) {
        item->content = json_string(content, &item->content_bytes);
        return STATUS_OK;
    }
    if (json_kind(content) != JSON_ARRAY)
        return openai_error_set(error, 400, "messages", NULL,
                                "`messages[%zu].content` must be a string or an array of parts, "
                                "but is %s.",
                                index, field_value_text(content, shown));
    for (size_t i = 0; i < json_count(content); i++)
        TRY(read_part(json_at(content, i), index, i, &out->joined[index], error));
    if (out->joined[index].size > 0) {
        item->content = out->joined[index].data;
        item->content_bytes = out->joined[index].size;
    }
    return STATUS_OK;
}

/* How messages become a prompt. */
struct rendering {
    bool generate, go_on, add_special;
};

static enum status read_rendering(const struct json *body, struct rendering *out,
                                  struct openai_error *error)
{
    *out = (struct rendering){.generate = true};
    TRY(field_bool(body, "add_generation_prompt", &out->generate, error));
    TRY(field_bool(body, "continue_final_message", &out->go_on, error));
    TRY(field_bool(body, "add_special_tokens", &out->add_special, error));
    if (out->go_on && out->generate && field_get(body, "add_generation_prompt"))
        return openai_error_set(error, 400, "continue_final_message", NULL,
                                "`continue_final_message` and `add_generation_prompt` can not both "
                                "be true: the answer goes on with a message, or begins one.");
    return STATUS_OK;
}

/* A final message that goes on is the opened turn of the assistant, with its text behind. */
static enum status encode_final(const struct openai_rules *rules, const struct messages *messages,
                                struct token_list *ids, struct buffer *final_out,
                                struct openai_error *error)
{
    struct error cause;
    const struct chat_message *last = &messages->items[messages->count - 1];
    if (final_out)
        buffer_add(final_out, last->content, last->content_bytes);
    const enum status status = text_encode(rules->text, last->content, last->content_bytes, false,
                                           OPENAI_PROMPT_TOKENS_MAX, ids, &cause);
    return status == STATUS_OK ? STATUS_OK : encode_failed(status, &cause, "messages", error);
}

static enum status encode_messages(const struct rendering *rendering,
                                   const struct openai_rules *rules,
                                   const struct messages *messages, struct token_list *ids,
                                   struct buffer *final_out, struct openai_error *error)
{
    const size_t count = messages->count;
    if (rendering->go_on &&
        (count < 2 || strcmp(messages->items[count - 1].role, "assistant") != 0))
        return openai_error_set(error, 400, "continue_final_message", NULL,
                                "`continue_final_message` needs a final message of the assistant, "
                                "and one before it.");
    if (rendering->add_special)
        add_bos(rules, ids);
    const size_t before = ids->count;
    struct error cause;
    const enum status status = text_encode_chat(
        rules->text, messages->items, count - rendering->go_on,
        rendering->generate || rendering->go_on, OPENAI_PROMPT_TOKENS_MAX, ids, &cause);
    if (status != STATUS_OK)
        return encode_failed(status, &cause, "messages", error);
    /* A format that begins with bos itself does not get another one. */
    if (before > 0 && ids->count > before && ids->ids[before] == ids->ids[0]) {
        ids->count--;
        memmove(ids->ids, ids->ids + 1, ids->count * sizeof *ids->ids);
    }
    return rendering->go_on ? encode_final(rules, messages, ids, final_out, error) : STATUS_OK;
}

/* On failure *out still has to be freed. */
static enum status read_list(const struct json *list, struct messages *out,
                             struct openai_error *error)
{
    const size_t count = json_count(list);
    *out = (struct messages){.items = calloc(count, sizeof *out->items),
                             .joined = calloc(count, sizeof *out->joined),
                             .count = count};
    CHECK(out->items && out->joined);
    for (size_t i = 0; i < count; i++)
        TRY(read_message(json_at(list, i), i, out, error));
    return STATUS_OK;
}

static enum status read_conversation(const struct json *list, const struct json *tools,
                                     const struct rendering *rendering,
                                     const struct openai_rules *rules, struct token_list *ids,
                                     struct buffer *final_out, struct openai_error *error)
{
    struct messages messages;
    struct json *spelled = NULL;
    enum status status = read_list(list, &messages, error);
    if (status == STATUS_OK && !rules->tools.in_template &&
        (tools || openai_tool_messages_any(list))) {
        status = openai_tools_spell(list, tools, rules->tools.style, &spelled, error);
        if (status == STATUS_OK) {
            messages_free(&messages);
            status = read_list(spelled, &messages, error);
        }
    }
    if (status == STATUS_OK)
        status = encode_messages(rendering, rules, &messages, ids, final_out, error);
    messages_free(&messages);
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
    TRY(read_rendering(body, &rendering, error));
    return read_conversation(list, tools, &rendering, rules, ids, final_out, error);
}
