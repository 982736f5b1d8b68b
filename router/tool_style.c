#include "router/tool_style.h"

#include <string.h>

#include "base/check.h"
#include "router/tool_calls.h"

/* Hermes 2 Pro and later, Qwen 2.5 and 3, SmolLM3; Llama 3.1 to 3.3; Mistral since its v3
 * tokenizer. Mistral's templates refuse ids that are not of 9 letters or digits. */
static const struct tool_syntax rows[TOOL_STYLE_COUNT] = {
    [TOOL_STYLE_NONE] = {.name = "none"},
    [TOOL_STYLE_HERMES] = {.name = "hermes",
                           .open = "<tool_call>",
                           .close = "</tool_call>",
                           .anywhere = true,
                           .may_lack_arguments = true,
                           .arguments_key = "arguments",
                           .list_open = "",
                           .separator = "\n",
                           .list_close = "",
                           .id_prefix = "call_",
                           .id_characters = 24},
    [TOOL_STYLE_LLAMA3] = {.name = "llama3",
                           .open = "<|python_tag|>",
                           .tag_optional = true,
                           .alone = true,
                           .arguments_key = "parameters",
                           .list_open = "",
                           .separator = "; ",
                           .list_close = "",
                           .id_prefix = "call_",
                           .id_characters = 24},
    [TOOL_STYLE_MISTRAL] = {.name = "mistral",
                            .open = "[TOOL_CALLS]",
                            .anywhere = true,
                            .in_array = true,
                            .by_name = true,
                            .may_lack_arguments = true,
                            .arguments_key = "arguments",
                            .list_open = "[",
                            .separator = ", ",
                            .list_close = "]",
                            .id_prefix = "",
                            .id_characters = 9},
    [TOOL_STYLE_GRANITE] = {.name = "granite",
                            .open = "<|tool_call|>",
                            .anywhere = true,
                            .in_array = true,
                            .may_lack_arguments = true,
                            .arguments_key = "arguments",
                            .list_open = "[",
                            .separator = ", ",
                            .list_close = "]",
                            .id_prefix = "call_",
                            .id_characters = 24},
};

const struct tool_syntax *tool_syntax(enum tool_style style)
{
    CHECK(style < TOOL_STYLE_COUNT);
    return &rows[style];
}

static bool names(const char *template, size_t bytes, const char *what)
{
    return bytes > 0 && memmem(template, bytes, what, strlen(what)) != NULL;
}

enum tool_style tool_style_of_template(const char *template, size_t bytes)
{
    /* The first that is there: templates of Hermes on a Llama vocabulary name both. */
    static const struct {
        const char *mark;
        enum tool_style style;
    } marks[] = {
        {"[TOOL_CALLS]", TOOL_STYLE_MISTRAL},
        {"<tool_call>", TOOL_STYLE_HERMES},
        {"<|tool_call|>", TOOL_STYLE_GRANITE},
        {"<|python_tag|>", TOOL_STYLE_LLAMA3},
        {"{\"name\": function name, \"parameters\":", TOOL_STYLE_LLAMA3},
    };
    for (size_t i = 0; i < ARRAY_COUNT(marks); i++)
        if (names(template, bytes, marks[i].mark))
            return marks[i].style;
    return TOOL_STYLE_NONE;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool tool_template_takes_tools(const char *template, size_t bytes)
{
    static const char word[] = "tools";
    const char *at = template, *end = template + bytes;
    while (names(at, (size_t)(end - at), word)) {
        at = memmem(at, (size_t)(end - at), word, sizeof word - 1);
        const char *behind = at + sizeof word - 1;
        if ((at == template || !is_word(at[-1])) && (behind == end || !is_word(*behind)))
            return true;
        at = behind;
    }
    return false;
}

static bool is(const char *text, size_t bytes, const char *mark)
{
    return mark && bytes == strlen(mark) && memcmp(text, mark, bytes) == 0;
}

bool tool_syntax_is_mark(const struct tool_syntax *syntax, const char *text, size_t bytes)
{
    return is(text, bytes, syntax->open) || is(text, bytes, syntax->close) ||
           (syntax->by_name &&
            (is(text, bytes, TOOL_MARK_ARGUMENTS) || is(text, bytes, TOOL_MARK_ID)));
}
