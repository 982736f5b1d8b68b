/* How models write tool calls: one row a style.
 *
 * The style belongs to the model and is found in its chat template, or told by the operator. */
#ifndef BATON_ROUTER_TOOL_STYLE_H
#define BATON_ROUTER_TOOL_STYLE_H

#include <stdbool.h>
#include <stddef.h>

enum tool_style {
    TOOL_STYLE_NONE, /* calls are not looked for */
    TOOL_STYLE_HERMES,
    TOOL_STYLE_LLAMA3,
    TOOL_STYLE_MISTRAL,
    TOOL_STYLE_GRANITE,
    TOOL_STYLE_COUNT
};

struct tool_syntax {
    const char *name;
    const char *open;  /* stands before a call; where tag_optional, a call may do without it */
    const char *close; /* behind a call, or NULL */
    bool tag_optional;
    bool anywhere; /* calls may follow text; else the whole answer is calls, or there are none */
    bool in_array; /* open may be followed by an array of calls */
    bool by_name;  /* or by the bare name, [ARGS] and the arguments */
    bool alone;    /* its templates show one call in a message, no more */
    bool may_lack_arguments;   /* {"name": "f"} calls f with {} */
    const char *arguments_key; /* as the model learnt it; both are understood */
    const char *list_open, *separator, *list_close; /* around and between calls, when written */
    const char *id_prefix;
    int id_characters; /* behind it */
};

/* Static; of TOOL_STYLE_NONE only the name is set. */
const struct tool_syntax *tool_syntax(enum tool_style style);
/* The style that a template's text names; NONE when it names none that is known. */
enum tool_style tool_style_of_template(const char *template, size_t bytes);
/* Whether a template puts tools into prompts at all: it names the variable. */
bool tool_template_takes_tools(const char *template, size_t bytes);
/* Whether these bytes are a mark around calls: where that is a special token, it is to be seen. */
bool tool_syntax_is_mark(const struct tool_syntax *syntax, const char *text, size_t bytes);

#endif
