/* Messages as the API has them become what templates expect. */
#include "base/utf8.h"
#include "model/text/jinja/jinja_internal.h"

struct json_root {
    struct json *json;
    struct json_root *next;
};

void jinja_roots_free(struct jinja_run *run)
{
    for (struct json_root *root = run->roots; root != NULL; root = root->next)
        json_free(root->json);
}

static bool is_text(const struct json *json, const char *text)
{
    size_t bytes;
    if (json == NULL || json_kind(json) != JSON_STRING)
        return false;
    const char *data = json_string(json, &bytes);
    return bytes == strlen(text) && memcmp(data, text, bytes) == 0;
}

/* A known role is the template's own word, whoever wrote it: some templates make markers of it. */
static struct value role_value(struct jinja_run *run, const struct json *role,
                               const struct jinja_message_style *style)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
    for (size_t i = 0; i < ARRAY_COUNT(roles); i++)
        if (is_text(role, roles[i]))
            return string_text(&run->heap,
                               style->developer_is_system && i == 4 ? "system" : roles[i]);
    return value_from_json(&run->heap, role);
}

/* Models write arguments as text, and templates want the object. Text that is none stays text. */
static struct value arguments_value(struct jinja_run *run, const struct json *arguments,
                                    bool *parsed_out)
{
    struct json *object;
    size_t bytes;
    const char *text = json_string(arguments, &bytes);
    if (bytes == 0)
        return value_dict(&run->heap);
    struct json_root *root = jinja_take(&run->heap, sizeof *root);
    struct error ignored;
    if (json_parse(text, bytes, &object, &ignored) != STATUS_OK)
        return value_from_json(&run->heap, arguments);
    *root = (struct json_root){object, run->roots};
    run->roots = root;
    *parsed_out = true;
    return value_from_json(&run->heap, object);
}

static struct value object_with(struct jinja_run *run, const struct json *object, const char *key,
                                struct value member)
{
    struct value value = value_from_json(&run->heap, object);
    dict_set(&run->heap, value.dict, string_text(&run->heap, key), member);
    return value;
}

static struct value calls_value(struct jinja_run *run, const struct json *calls,
                                struct jinja_message_style *style)
{
    struct value list = value_list(&run->heap, KIND_LIST);
    for (size_t i = 0; i < json_count(calls); i++) {
        const struct json *call = json_at(calls, i);
        const struct json *function =
            json_kind(call) == JSON_OBJECT ? json_get(call, "function") : NULL;
        const struct json *arguments = function != NULL && json_kind(function) == JSON_OBJECT
                                           ? json_get(function, "arguments")
                                           : NULL;
        struct value value;
        if (arguments != NULL && json_kind(arguments) == JSON_STRING && style->parse_arguments)
            value = object_with(run, call, "function",
                                object_with(run, function, "arguments",
                                            arguments_value(run, arguments, &style->parsed)));
        else
            value = value_from_json(&run->heap, call);
        list_add(&run->heap, list.list, value);
    }
    return list;
}

static struct value text_part(struct jinja_run *run, struct value text)
{
    struct value part = value_dict(&run->heap);
    dict_set(&run->heap, part.dict, string_text(&run->heap, "type"),
             string_text(&run->heap, "text"));
    dict_set(&run->heap, part.dict, string_text(&run->heap, "text"), text);
    return part;
}

/* The text of all parts as one, where there is nothing but text. */
static bool parts_joined(struct jinja_run *run, const struct json *parts, struct value *out)
{
    struct builder text = {.heap = &run->heap};
    for (size_t i = 0; i < json_count(parts); i++) {
        const struct json *part = json_at(parts, i);
        const struct json *inner = json_kind(part) == JSON_OBJECT ? json_get(part, "text") : NULL;
        if (inner == NULL || json_kind(inner) != JSON_STRING)
            return false;
        builder_add_string(&text, value_from_json(&run->heap, inner).string);
    }
    *out = builder_value(&text);
    return true;
}

static struct value content_value(struct jinja_run *run, const struct json *content,
                                  const struct jinja_message_style *style)
{
    struct value value = string_text(&run->heap, "");
    const enum json_kind kind = content != NULL ? json_kind(content) : JSON_NULL;
    if (kind == JSON_ARRAY && !style->parts && parts_joined(run, content, &value))
        return value;
    if (kind != JSON_NULL)
        value = value_from_json(&run->heap, content);
    if (value.kind != KIND_STRING || !style->wrap)
        return value;
    struct value list = value_list(&run->heap, KIND_LIST);
    if (value.string->bytes > 0)
        list_add(&run->heap, list.list, text_part(run, value));
    return list;
}

static struct value message_value(struct jinja_run *run, const struct json *message,
                                  struct jinja_message_style *style)
{
    struct jinja_heap *heap = &run->heap;
    struct value value = value_dict(heap);
    void *cursor = NULL;
    const char *key;
    const struct json *member;
    bool has_content = false;
    if (json_kind(message) != JSON_OBJECT)
        return value_from_json(heap, message);
    while (json_next(message, &cursor, &key, &member)) {
        struct value inner;
        const bool list = json_kind(member) == JSON_ARRAY;
        if (strcmp(key, "content") == 0) {
            inner = content_value(run, member, style);
            has_content = true;
        } else if (json_kind(member) == JSON_NULL ||
                   (list && json_count(member) == 0 && strcmp(key, "tool_calls") == 0)) {
            continue; // clients send what they do not set
        } else if (strcmp(key, "role") == 0) {
            inner = role_value(run, member, style);
        } else if (strcmp(key, "tool_calls") == 0 && list) {
            inner = calls_value(run, member, style);
        } else {
            inner = value_from_json(heap, member);
        }
        dict_set(heap, value.dict, string_value(heap, key, strlen(key), FROM_INPUT), inner);
    }
    if (!has_content)
        dict_set(heap, value.dict, string_text(heap, "content"), content_value(run, NULL, style));
    return value;
}

/* Puts the tag behind the last text of the last message. */
static void tag_put(struct jinja_run *run, struct list *messages, const char *tag)
{
    struct jinja_heap *heap = &run->heap;
    const struct value last = messages->items[messages->count - 1];
    struct value *text =
        last.kind == KIND_DICT ? dict_find_text(heap, last.dict, "content", 7) : NULL;
    if (text != NULL && text->kind == KIND_LIST) {
        const struct list *parts = text->list;
        text = NULL;
        for (size_t i = parts->count; i > 0 && text == NULL; i--)
            if (parts->items[i - 1].kind == KIND_DICT)
                text = dict_find_text(heap, parts->items[i - 1].dict, "text", 4);
    }
    if (text == NULL || text->kind != KIND_STRING)
        jinja_fail(heap, STATUS_INVALID, "the final message has no text to continue");
    *text = arithmetic(run, OP_ADD, *text, string_text(heap, tag));
}

void jinja_set_messages(struct jinja_run *run, const struct json *messages,
                        struct jinja_message_style *style)
{
    struct value list = value_list(&run->heap, KIND_LIST);
    for (size_t i = 0; i < json_count(messages); i++)
        list_add(&run->heap, list.list, message_value(run, json_at(messages, i), style));
    if (style->tag != NULL && list.list->count > 0)
        tag_put(run, list.list, style->tag);
    jinja_set_value(run, "messages", list);
}
