/* ChatML: recognising it, and turning messages into text or ids.
 *
 * The scaffold (turn markers) is made of token ids that no message can bring about; role and
 * content of a message are encoded together as plain text, which is how the model saw them in
 * training. */
#include "base/check.h"
#include "model/text/text_internal.h"

static const char turn_start[] = "<|im_start|>";
static const char turn_end[] = "<|im_end|>";

static const char *find(const char *data, size_t bytes, const char *what)
{
    return memmem(data, bytes, what, strlen(what));
}

/* Appends the text of a template literal up to its end, escapes undone. quote 0: raw text of the
 * template. False when the literal or the template's own syntax begins before the end marker. */
static bool literal_read(const char *from, const char *to, char quote, struct buffer *out)
{
    for (const char *at = from; at < to; at++) {
        if (quote == 0 && *at == '{' && at + 1 < to && (at[1] == '{' || at[1] == '%'))
            return false;
        if (quote != 0 && *at == quote)
            return false;
        if (quote == 0 || *at != '\\' || at + 1 == to) {
            buffer_add_char(out, *at);
            continue;
        }
        at++;
        const char *escapes = "n\nt\tr\r\\\\'\'\"\"";
        const char *known = strchr(escapes, *at);
        while (known != NULL && (known - escapes) % 2 != 0) // only the letters, not their values
            known = strchr(known + 1, *at);
        if (known != NULL && *at != '\0') {
            buffer_add_char(out, known[1]);
        } else {
            buffer_add_char(out, '\\');
            buffer_add_char(out, *at);
        }
    }
    return true;
}

/* The system turn that the template writes out as a literal, for conversations without one. */
static bool default_system_find(const char *template, size_t bytes, struct buffer *out)
{
    static const char opening[] = "<|im_start|>system";
    enum { TRIES_MAX = 64 }; /* each may read the template to its end */
    const char *end = template + bytes;
    const char *at = template;
    for (int tries = 0; tries < TRIES_MAX; tries++, at++) {
        at = find(at, (size_t)(end - at), opening);
        if (at == NULL)
            return false;
        const char before = at > template ? at[-1] : '\0';
        const char quote = before == '\'' || before == '"' ? before : '\0';
        const char *content = at + sizeof opening - 1;
        if (end - content >= 2 && content[0] == '\\' && content[1] == 'n')
            content += 2;
        else if (content < end && *content == '\n')
            content++;
        else
            continue;
        const char *close = find(content, (size_t)(end - content), turn_end);
        if (close == NULL)
            return false;
        buffer_clear(out);
        if (close > content && literal_read(content, close, quote, out))
            return true;
    }
    return false;
}

/* Whether the first thing the template prints is the bos token. */
static bool begins_with_bos(const char *template, size_t bytes)
{
    const char *at = find(template, bytes, "bos_token");
    const char *turn = find(template, bytes, turn_start);
    if (at == NULL || turn == NULL || at > turn)
        return false;
    const char *open = at;
    while (open > template && (open[-1] == ' ' || open[-1] == '-'))
        open--;
    return open - template >= 2 && open[-1] == '{' && open[-2] == '{';
}

void chat_format_read(struct chat_format *chat, const struct vocabulary *vocabulary,
                      const char *template, size_t bytes)
{
    chat->turn_start = vocabulary_find(vocabulary, turn_start, sizeof turn_start - 1);
    chat->turn_end = vocabulary_find(vocabulary, turn_end, sizeof turn_end - 1);
    const bool markers = chat->turn_start >= 0 && chat->turn_end >= 0;
    const bool written = bytes == 0 || (find(template, bytes, turn_start) != NULL &&
                                        find(template, bytes, turn_end) != NULL);
    if (!markers || !written)
        return;
    chat->kind = CHAT_CHATML;
    if (bytes == 0)
        return;
    chat->has_default_system = default_system_find(template, bytes, &chat->default_system);
    chat->bos_first = begins_with_bos(template, bytes);
    chat->tool_as_user = find(template, bytes, "<tool_response>") != NULL;
}

/* Where a conversation goes: text for people, or ids. */
struct chat_sink {
    const struct text *text;
    struct buffer *out; /* NULL: to ids */
    struct token_list *ids;
    size_t max_tokens;
    struct error *error;
    struct buffer plain; /* ids: text gathered since the last marker */
};

static enum status plain_flush(struct chat_sink *sink)
{
    /* Markers stand before everything. */
    const enum status status = text_encode_inside(sink->text, sink->plain.data, sink->plain.size,
                                                  sink->max_tokens, sink->ids, sink->error);
    buffer_clear(&sink->plain);
    return status;
}

static void plain_add(struct chat_sink *sink, const char *bytes, size_t count)
{
    buffer_add(sink->out != NULL ? sink->out : &sink->plain, bytes, count);
}

static void plain_text(struct chat_sink *sink, const char *text)
{
    plain_add(sink, text, strlen(text));
}

static enum status marker_add(struct chat_sink *sink, int32_t id)
{
    if (sink->out != NULL) {
        size_t count;
        const char *bytes = text_token_bytes(sink->text, id, &count);
        buffer_add(sink->out, bytes, count);
        return STATUS_OK;
    }
    TRY(plain_flush(sink));
    if (sink->ids->count >= sink->max_tokens)
        return error_set(sink->error, STATUS_LIMIT,
                         "the conversation has more than %zu tokens, the limit", sink->max_tokens);
    token_list_add(sink->ids, id);
    return STATUS_OK;
}

static enum status turn_open(struct chat_sink *sink, const char *role)
{
    TRY(marker_add(sink, sink->text->chat.turn_start));
    plain_text(sink, role);
    plain_text(sink, "\n");
    return STATUS_OK;
}

static enum status turn_close(struct chat_sink *sink)
{
    TRY(marker_add(sink, sink->text->chat.turn_end));
    plain_text(sink, "\n");
    return STATUS_OK;
}

/* NULL for a role that is not known. */
static const char *role_name(const char *role)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    if (strcmp(role, "developer") == 0)
        return "system";
    for (size_t i = 0; i < ARRAY_COUNT(roles); i++)
        if (strcmp(role, roles[i]) == 0)
            return roles[i];
    return NULL;
}

static bool is_tool(const struct chat_message *messages, size_t count, size_t i)
{
    return i < count && strcmp(messages[i].role, "tool") == 0;
}

/* Neighbouring tool answers share one user turn. */
static enum status tool_add(struct chat_sink *sink, const struct chat_message *messages,
                            size_t count, size_t i)
{
    if (i == 0 || !is_tool(messages, count, i - 1)) {
        TRY(marker_add(sink, sink->text->chat.turn_start));
        plain_text(sink, "user");
    }
    plain_text(sink, "\n<tool_response>\n");
    plain_add(sink, messages[i].content, messages[i].content_bytes);
    plain_text(sink, "\n</tool_response>");
    return is_tool(messages, count, i + 1) ? STATUS_OK : turn_close(sink);
}

static enum status message_add(struct chat_sink *sink, const struct chat_message *messages,
                               size_t count, size_t i)
{
    if (is_tool(messages, count, i) && sink->text->chat.tool_as_user)
        return tool_add(sink, messages, count, i);
    TRY(turn_open(sink, role_name(messages[i].role)));
    plain_add(sink, messages[i].content, messages[i].content_bytes);
    return turn_close(sink);
}

static enum status chat_check(const struct text *text, const struct chat_message *messages,
                              size_t count, struct error *error)
{
    if (text->chat.kind == CHAT_NONE)
        return error_set(error, STATUS_UNSUPPORTED,
                         "the model '%s' has no chat format that Baton knows (ChatML)",
                         text->info.name);
    if (count == 0)
        return error_set(error, STATUS_INVALID, "a conversation needs at least one message");
    for (size_t i = 0; i < count; i++)
        if (role_name(messages[i].role) == NULL)
            return error_set(error, STATUS_INVALID,
                             "message %zu has the role '%.40s', the roles are system, developer, "
                             "user, assistant and tool",
                             i, messages[i].role);
    return STATUS_OK;
}

static enum status chat_write(struct chat_sink *sink, const struct chat_message *messages,
                              size_t count, bool add_generation_prompt)
{
    const struct chat_format *chat = &sink->text->chat;
    if (chat->bos_first && sink->text->info.bos >= 0)
        TRY(marker_add(sink, sink->text->info.bos));
    if (chat->has_default_system && strcmp(role_name(messages[0].role), "system") != 0) {
        TRY(turn_open(sink, "system"));
        plain_add(sink, chat->default_system.data, chat->default_system.size);
        TRY(turn_close(sink));
    }
    for (size_t i = 0; i < count; i++)
        TRY(message_add(sink, messages, count, i));
    if (add_generation_prompt)
        TRY(turn_open(sink, "assistant"));
    return sink->out != NULL ? STATUS_OK : plain_flush(sink);
}

enum status text_encode_chat(const struct text *text, const struct chat_message *messages,
                             size_t message_count, bool add_generation_prompt, size_t max_tokens,
                             struct token_list *ids, struct error *error)
{
    TRY(chat_check(text, messages, message_count, error));
    struct chat_sink sink = {.text = text, .ids = ids, .max_tokens = max_tokens, .error = error};
    const enum status status = chat_write(&sink, messages, message_count, add_generation_prompt);
    buffer_free(&sink.plain);
    return status;
}

enum status text_render_chat(const struct text *text, const struct chat_message *messages,
                             size_t message_count, bool add_generation_prompt, struct buffer *out,
                             struct error *error)
{
    TRY(chat_check(text, messages, message_count, error));
    struct chat_sink sink = {.text = text, .out = out, .error = error};
    return chat_write(&sink, messages, message_count, add_generation_prompt);
}
