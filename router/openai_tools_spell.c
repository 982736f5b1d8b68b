/* Tools and calls in plain messages, for chat templates that know of neither. */
#include <string.h>

#include "router/openai_fields.h"
#include "router/openai_tools.h"

struct spelling {
    const struct json *messages, *tools;
    const struct tool_syntax *syntax;
    bool no_system;
    struct json_writer writer;
    struct buffer text; /* of the message being written */
};

static bool role_is(const struct json *message, const char *role)
{
    return strcmp(json_string(field_get(message, "role"), &(size_t){0}), role) == 0;
}

/* content: a string, parts of text, or NULL. */
static void add_content(struct buffer *out, const struct json *content)
{
    size_t bytes;
    if (!content)
        return;
    if (json_kind(content) == JSON_STRING) {
        const char *text = json_string(content, &bytes);
        buffer_add(out, text, bytes);
        return;
    }
    for (size_t i = 0; i < json_count(content); i++) {
        const char *text = json_string(field_get(json_at(content, i), "text"), &bytes);
        buffer_add(out, text, bytes);
    }
}

static void put_message(struct spelling *spelling, const char *role)
{
    struct json_writer *writer = &spelling->writer;
    json_open_object(writer);
    json_key(writer, "role");
    json_put_text(writer, role);
    json_key(writer, "content");
    json_put_string(writer, spelling->text.data ? spelling->text.data : "", spelling->text.size);
    json_close_object(writer);
    buffer_clear(&spelling->text);
}

/* The marks around one call that stands alone. */
static void add_open(struct spelling *spelling)
{
    const struct tool_syntax *syntax = spelling->syntax;
    if (syntax->tag_optional)
        return;
    buffer_printf(&spelling->text, "%s%s", syntax->open, syntax->in_array ? "[" : "\n");
}

static void add_close(struct spelling *spelling)
{
    const struct tool_syntax *syntax = spelling->syntax;
    if (syntax->in_array)
        buffer_add_char(&spelling->text, ']');
    else if (syntax->close)
        buffer_printf(&spelling->text, "\n%s", syntax->close);
}

static enum status add_instructions(struct spelling *spelling)
{
    struct buffer *text = &spelling->text;
    struct json_writer writer;
    buffer_add_text(text, "You can call functions. They are described here as JSON, one a line:\n"
                          "<tools>\n");
    for (size_t i = 0; i < json_count(spelling->tools); i++) {
        json_writer_init(&writer, text);
        writer.spaced = true;
        TRY(json_put_value(&writer, json_at(spelling->tools, i)));
        buffer_add_char(text, '\n');
    }
    buffer_add_text(text, "</tools>\n"
                          "To call a function, answer with its name and arguments as a JSON "
                          "object, in this form:\n");
    add_open(spelling);
    buffer_printf(text, "{\"name\": <name of the function>, \"%s\": <its arguments, an object>}",
                  spelling->syntax->arguments_key);
    add_close(spelling);
    return STATUS_OK;
}

/* Arguments that are an object stay one; anything else is a string. */
static enum status add_arguments(struct buffer *out, const struct json *arguments)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    writer.spaced = true;
    if (!arguments) {
        buffer_add_text(out, "{}");
        return STATUS_OK;
    }
    size_t bytes;
    struct json *parsed;
    struct error cause;
    const char *text = json_kind(arguments) == JSON_STRING ? json_string(arguments, &bytes) : NULL;
    if (!text || json_parse(text, bytes, &parsed, &cause) != STATUS_OK)
        return json_put_value(&writer, arguments);
    const enum status status = json_put_value(&writer, parsed);
    json_free(parsed);
    return status;
}

static enum status put_calls(struct spelling *spelling, const struct json *message,
                             const struct json *calls)
{
    struct buffer *text = &spelling->text;
    add_content(text, field_get(message, "content"));
    for (size_t i = 0; i < json_count(calls); i++) {
        const struct json *function = field_get(json_at(calls, i), "function");
        struct json_writer writer;
        size_t bytes;
        const char *name = json_string(field_get(function, "name"), &bytes);
        if (text->size > 0)
            buffer_add_char(text, '\n');
        add_open(spelling);
        buffer_add_text(text, "{\"name\": ");
        json_writer_init(&writer, text);
        json_put_string(&writer, name, bytes);
        buffer_printf(text, ", \"%s\": ", spelling->syntax->arguments_key);
        TRY(add_arguments(text, field_get(function, "arguments")));
        buffer_add_char(text, '}');
        add_close(spelling);
    }
    put_message(spelling, "assistant");
    return STATUS_OK;
}

/* Neighbouring results share a turn. */
static void put_result(struct spelling *spelling, size_t index)
{
    const size_t count = json_count(spelling->messages);
    if (spelling->text.size > 0)
        buffer_add_char(&spelling->text, '\n');
    buffer_add_text(&spelling->text, "<tool_response>\n");
    add_content(&spelling->text, field_get(json_at(spelling->messages, index), "content"));
    buffer_add_text(&spelling->text, "\n</tool_response>");
    if (index + 1 == count || !role_is(json_at(spelling->messages, index + 1), "tool"))
        put_message(spelling, "user");
}

/* The message with the instructions, and where the conversation goes on behind it. */
static enum status put_top(struct spelling *spelling, size_t *next_out)
{
    const struct json *top = json_at(spelling->messages, 0);
    const bool system = role_is(top, "system") || role_is(top, "developer");
    if (system) {
        add_content(&spelling->text, field_get(top, "content"));
        buffer_add_text(&spelling->text, "\n\n");
    }
    TRY(add_instructions(spelling));
    if (!system && spelling->no_system && role_is(top, "user")) {
        buffer_add_text(&spelling->text, "\n\n");
        add_content(&spelling->text, field_get(top, "content"));
        put_message(spelling, "user");
        *next_out = 1;
        return STATUS_OK;
    }
    put_message(spelling, "system");
    *next_out = system ? 1 : 0;
    return STATUS_OK;
}

static enum status put_all(struct spelling *spelling)
{
    const struct json *messages = spelling->messages;
    size_t first = 0;
    if (spelling->tools)
        TRY(put_top(spelling, &first));
    for (size_t i = first; i < json_count(messages); i++) {
        const struct json *message = json_at(messages, i);
        const struct json *calls = field_get(message, "tool_calls");
        if (role_is(message, "tool"))
            put_result(spelling, i);
        else if (calls && json_count(calls) > 0)
            TRY(put_calls(spelling, message, calls));
        else
            TRY(json_put_value(&spelling->writer, message));
    }
    return STATUS_OK;
}

enum status openai_tools_spell(const struct json *messages, const struct json *tools,
                               const struct tool_manner *manner, struct json **out,
                               struct openai_error *error)
{
    struct buffer text = {0};
    struct error cause;
    struct spelling spelling = {
        .messages = messages,
        .tools = tools,
        .syntax = tool_syntax(manner->style == TOOL_STYLE_NONE ? TOOL_STYLE_HERMES : manner->style),
        .no_system = manner->no_system};
    json_writer_init(&spelling.writer, &text);
    json_open_array(&spelling.writer);
    enum status status = put_all(&spelling);
    if (status == STATUS_OK) {
        json_close_array(&spelling.writer);
        status = json_parse(text.data, text.size, out, &cause);
    }
    buffer_free(&text);
    buffer_free(&spelling.text);
    return status == STATUS_OK ? STATUS_OK
                               : openai_error_set(error, 400, "messages", NULL,
                                                  "`messages` or `tools` is nested too deeply.");
}
