#include "router/openai_tools.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model/text/grammar/grammar.h"
#include "model/text/text.h"
#include "router/openai_fields.h"

/* Tools are nested less deeply than can be written by so many levels: a grammar has its own. */
enum { LEVELS_AROUND = 16 };

static const struct json *member(const struct json *object, const char *name, enum json_kind kind)
{
    const struct json *value = object ? field_get(object, name) : NULL;
    return value && json_kind(value) == kind ? value : NULL;
}

/* ---- tools ---- */

static bool name_is_good(const char *name, size_t bytes)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    return bytes > 0 && bytes <= TOOL_NAME_BYTES_MAX && strspn(name, good) == bytes;
}

static enum status wrong(size_t index, const char *what, struct openai_error *error)
{
    return openai_error_set(error, 400, "tools", NULL, "`tools[%zu]%s.", index, what);
}

static enum status read_tool(const struct json *tool, size_t index, struct openai_tools *out,
                             struct openai_error *error)
{
    if (json_kind(tool) != JSON_OBJECT || !field_is_text(field_get(tool, "type"), "function"))
        return wrong(index, "` must be an object with the `type` \"function\"", error);
    const struct json *function = member(tool, "function", JSON_OBJECT);
    if (!function)
        return wrong(index, ".function` must be an object", error);
    const struct json *name = member(function, "name", JSON_STRING);
    size_t bytes = 0;
    const char *text = name ? json_string(name, &bytes) : "";
    if (!name_is_good(text, bytes))
        return wrong(index,
                     ".function.name` must be 1 to 64 letters, digits, underscores or hyphens",
                     error);
    if (tool_names_have(&out->names, text, bytes))
        return openai_error_set(error, 400, "tools", NULL,
                                "`tools[%zu].function.name` is \"%s\", as is that of another tool.",
                                index, text);
    memcpy(out->names.items[out->names.count++], text, bytes);
    const struct json *described = field_get(function, "description");
    if (described && json_kind(described) != JSON_STRING)
        return wrong(index, ".function.description` must be a string", error);
    const struct json *parameters = field_get(function, "parameters");
    if (parameters && json_kind(parameters) != JSON_OBJECT)
        return wrong(index, ".function.parameters` must be a JSON schema, an object", error);
    const struct json *type = parameters ? field_get(parameters, "type") : NULL;
    if (type && !field_is_text(type, "object"))
        return wrong(index, ".function.parameters.type` must be \"object\"", error);
    const struct json *strict = field_get(function, "strict");
    return strict && json_kind(strict) != JSON_BOOL
               ? wrong(index, ".function.strict` must be a boolean", error)
               : STATUS_OK;
}

static enum status check_bytes(const struct json *list, struct openai_error *error)
{
    struct buffer text = {0};
    struct json_writer writer;
    json_writer_init(&writer, &text);
    for (int i = 0; i < LEVELS_AROUND; i++)
        json_open_array(&writer);
    const enum status status = json_put_value(&writer, list);
    const size_t bytes = text.size;
    buffer_free(&text);
    if (status != STATUS_OK)
        return openai_error_set(error, 400, "tools", NULL, "`tools` is nested too deeply.");
    return bytes <= OPENAI_TOOLS_BYTES_MAX
               ? STATUS_OK
               : openai_error_set(error, 400, "tools", NULL,
                                  "`tools` has %zu bytes; the limit is %d.", bytes,
                                  OPENAI_TOOLS_BYTES_MAX);
}

static enum status read_list(const struct json *list, struct openai_tools *out,
                             struct openai_error *error)
{
    if (json_kind(list) != JSON_ARRAY)
        return field_wrong(list, "tools", "an array", error);
    const size_t count = json_count(list);
    if (count == 0 || count > OPENAI_TOOLS_MAX)
        return openai_error_set(error, 400, "tools", NULL,
                                "`tools` must hold 1 to %d tools, but holds %zu.", OPENAI_TOOLS_MAX,
                                count);
    out->names.items = calloc(count, sizeof *out->names.items);
    CHECK(out->names.items != NULL);
    for (size_t i = 0; i < count; i++)
        TRY(read_tool(json_at(list, i), i, out, error));
    return check_bytes(list, error);
}

/* ---- tool_choice ---- */

static enum status read_named(const struct json *choice, struct openai_tools *out,
                              struct openai_error *error)
{
    const struct json *name =
        field_is_text(field_get(choice, "type"), "function")
            ? member(member(choice, "function", JSON_OBJECT), "name", JSON_STRING)
            : NULL;
    if (!name)
        return openai_error_set(error, 400, "tool_choice", NULL,
                                "`tool_choice` must be \"none\", \"auto\", \"required\" or "
                                "{\"type\": \"function\", \"function\": {\"name\": ...}}.");
    size_t bytes;
    const char *text = json_string(name, &bytes);
    char shown[FIELD_VALUE_BYTES];
    if (!tool_names_have(&out->names, text, bytes))
        return openai_error_set(error, 400, "tool_choice", NULL,
                                "`tool_choice` names the function %s, which is not in `tools`.",
                                field_value_text(name, shown));
    memset(out->names.items[0], 0, sizeof out->names.items[0]);
    memcpy(out->names.items[0], text, bytes);
    out->names.count = 1;
    out->choice = OPENAI_TOOL_CHOICE_NAMED;
    return STATUS_OK;
}

static enum status read_choice(const struct json *choice, struct openai_tools *out,
                               struct openai_error *error)
{
    static const struct {
        const char *text;
        enum openai_tool_choice choice;
    } words[] = {
        {"none", OPENAI_TOOL_CHOICE_NONE},
        {"auto", OPENAI_TOOL_CHOICE_AUTO},
        {"required", OPENAI_TOOL_CHOICE_REQUIRED},
    };
    if (json_kind(choice) == JSON_OBJECT)
        return read_named(choice, out, error);
    for (size_t i = 0; i < ARRAY_COUNT(words); i++) {
        if (field_is_text(choice, words[i].text)) {
            out->choice = words[i].choice;
            return STATUS_OK;
        }
    }
    return field_wrong(choice, "tool_choice", "\"none\", \"auto\", \"required\" or an object",
                       error);
}

/* ---- the grammar of calls that have to come ---- */

static void put_text_part(struct json_writer *writer, const char *key, const char *text)
{
    if (*text == '\0')
        return;
    json_open_object(writer);
    json_key(writer, key);
    json_put_text(writer, text);
    json_close_object(writer);
}

/* A mark is one token where the vocabulary has it. */
static void put_mark_part(struct json_writer *writer, const struct text *text, const char *mark)
{
    const int32_t id = text_token_find(text, mark, strlen(mark));
    put_text_part(writer, id >= 0 && text_token_special(text, id) ? "special" : "text", mark);
}

/* The schema of a tool's arguments, always that of an object. */
static void put_schema_part(struct json_writer *writer, const struct json *parameters)
{
    void *cursor = NULL;
    const char *key;
    const struct json *value;
    json_open_object(writer);
    json_key(writer, "schema");
    json_open_object(writer);
    json_key(writer, "type");
    json_put_text(writer, "object");
    while (parameters && json_next(parameters, &cursor, &key, &value)) {
        if (strcmp(key, "type") == 0)
            continue;
        json_key(writer, key);
        CHECK(json_put_value(writer, value) == STATUS_OK);
    }
    json_close_object(writer);
    json_close_object(writer);
}

static void put_call(struct json_writer *writer, const struct tool_syntax *syntax,
                     const struct text *text, const struct json *function)
{
    struct buffer head = {0};
    const bool marked = !syntax->in_array && !syntax->tag_optional;
    buffer_printf(&head, "%s{\"name\": \"%s\", \"%s\": ", marked ? "\n" : "",
                  json_string(field_get(function, "name"), &(size_t){0}), syntax->arguments_key);
    json_open_object(writer);
    json_key(writer, "parts");
    json_open_array(writer);
    if (marked)
        put_mark_part(writer, text, syntax->open);
    put_text_part(writer, "text", head.data);
    put_schema_part(writer, field_get(function, "parameters"));
    put_text_part(writer, "text", marked ? "}\n" : "}");
    if (marked)
        put_mark_part(writer, text, syntax->close);
    json_close_array(writer);
    json_close_object(writer);
    buffer_free(&head);
}

/* {"parts":[{"any":[calls]}],"repeat":[1,n],"separator":...} */
static void put_calls(struct json_writer *writer, const struct tool_syntax *syntax,
                      const struct text *text, const struct json *list,
                      const struct openai_tools *tools)
{
    const bool many =
        tools->parallel && tools->choice == OPENAI_TOOL_CHOICE_REQUIRED && !syntax->alone;
    json_open_object(writer);
    json_key(writer, "parts");
    json_open_array(writer);
    json_open_object(writer);
    json_key(writer, "any");
    json_open_array(writer);
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *function = field_get(json_at(list, i), "function");
        size_t bytes;
        const char *name = json_string(field_get(function, "name"), &bytes);
        if (tool_names_have(&tools->names, name, bytes))
            put_call(writer, syntax, text, function);
    }
    json_close_array(writer);
    json_close_object(writer);
    json_close_array(writer);
    json_key(writer, "repeat");
    json_open_array(writer);
    json_put_int(writer, 1);
    json_put_int(writer, many ? OPENAI_FORCED_CALLS_MAX : 1);
    json_close_array(writer);
    json_key(writer, "separator");
    json_put_text(writer, syntax->separator);
    json_close_object(writer);
}

static void write_grammar(const struct tool_syntax *syntax, const struct text *text,
                          const struct json *list, const struct openai_tools *tools,
                          struct openai_grammar *out)
{
    struct json_writer writer;
    out->kind = GRAMMAR_STRUCTURE;
    json_writer_init(&writer, &out->source);
    json_open_object(&writer);
    json_key(&writer, "parts");
    json_open_array(&writer);
    if (syntax->in_array)
        put_mark_part(&writer, text, syntax->open);
    put_text_part(&writer, "text", syntax->list_open);
    json_open_object(&writer);
    json_key(&writer, "any");
    json_open_array(&writer);
    put_calls(&writer, syntax, text, list, tools);
    json_close_array(&writer);
    json_close_object(&writer);
    put_text_part(&writer, "text", syntax->list_close);
    json_close_array(&writer);
    json_close_object(&writer);
}

static enum status force_calls(const struct json *list, const struct text *text,
                               const struct openai_tools *tools, struct openai_grammar *grammar,
                               struct openai_error *error)
{
    if (tools->style == TOOL_STYLE_NONE)
        return openai_error_set(error, 400, "tool_choice", "unsupported_value",
                                "`tool_choice` asks for a call, but how this model writes calls is "
                                "not known.");
    if (grammar->kind != 0)
        return openai_error_set(error, 400, "tool_choice", NULL,
                                "`tool_choice` asks for a call, and another field says as well "
                                "what the answer has to be; only one of them may.");
    write_grammar(tool_syntax(tools->style), text, list, tools, grammar);
    return STATUS_OK;
}

enum status openai_tools_read(const struct json *body, const struct tool_manner *manner,
                              const struct text *text, struct openai_tools *out,
                              const struct json **list_out, struct openai_grammar *grammar,
                              struct openai_error *error)
{
    const struct json *list = field_get(body, "tools"), *choice = field_get(body, "tool_choice");
    *out = (struct openai_tools){.parallel = true};
    *list_out = NULL;
    TRY(field_bool(body, "parallel_tool_calls", &out->parallel, error));
    if (!list) {
        if (choice && !field_is_text(choice, "none"))
            return openai_error_set(error, 400, "tool_choice", NULL,
                                    "`tool_choice` is set, but `tools` is not.");
        return STATUS_OK;
    }
    TRY(read_list(list, out, error));
    out->choice = OPENAI_TOOL_CHOICE_AUTO;
    if (choice)
        TRY(read_choice(choice, out, error));
    if (out->choice == OPENAI_TOOL_CHOICE_NONE)
        return STATUS_OK;
    *list_out = list;
    /* An answer that has to be something else holds no calls. */
    out->style = grammar->kind != 0 ? TOOL_STYLE_NONE : manner->style;
    if (out->choice == OPENAI_TOOL_CHOICE_AUTO)
        return STATUS_OK;
    out->style = manner->style;
    return force_calls(list, text, out, grammar, error);
}

void openai_tools_free(struct openai_tools *tools)
{
    free(tools->names.items);
    tools->names = (struct tool_names){0};
}

/* ---- messages ---- */

static enum status check_call(const struct json *call, size_t message, size_t index,
                              struct openai_error *error)
{
    const struct json *function =
        json_kind(call) == JSON_OBJECT ? member(call, "function", JSON_OBJECT) : NULL;
    const struct json *arguments = function ? field_get(function, "arguments") : NULL;
    const struct json *id = function ? field_get(call, "id") : NULL;
    const char *what = NULL;
    if (!function)
        what = "` must be an object with a `function`";
    else if (!member(function, "name", JSON_STRING))
        what = ".function.name` must be a string";
    else if (arguments && json_kind(arguments) != JSON_STRING &&
             json_kind(arguments) != JSON_OBJECT)
        what = ".function.arguments` must be a string";
    else if (id && json_kind(id) != JSON_STRING)
        what = ".id` must be a string";
    return what ? openai_error_set(error, 400, "messages", NULL,
                                   "`messages[%zu].tool_calls[%zu]%s.", message, index, what)
                : STATUS_OK;
}

enum status openai_tool_message_check(const struct json *message, size_t index, const char *role,
                                      struct openai_error *error)
{
    const struct json *calls = field_get(message, "tool_calls");
    if (calls && json_kind(calls) != JSON_ARRAY)
        return openai_error_set(error, 400, "messages", NULL,
                                "`messages[%zu].tool_calls` must be an array.", index);
    for (size_t i = 0; calls && i < json_count(calls); i++)
        TRY(check_call(json_at(calls, i), index, i, error));
    if (calls && json_count(calls) > 0 && strcmp(role, "assistant") != 0)
        return openai_error_set(error, 400, "messages", NULL,
                                "`messages[%zu].tool_calls` is only for the assistant.", index);
    if (strcmp(role, "tool") == 0 && !member(message, "tool_call_id", JSON_STRING))
        return openai_error_set(error, 400, "messages", NULL,
                                "`messages[%zu].tool_call_id` must be a string: the id of the call "
                                "that this is the result of.",
                                index);
    return STATUS_OK;
}

bool openai_tool_messages_any(const struct json *messages)
{
    for (size_t i = 0; i < json_count(messages); i++) {
        const struct json *message = json_at(messages, i);
        const struct json *calls = member(message, "tool_calls", JSON_ARRAY);
        if ((calls && json_count(calls) > 0) || field_is_text(field_get(message, "role"), "tool"))
            return true;
    }
    return false;
}
