/* The tools of a chat request, and what messages say of calls: read and checked. Text threads. */
#ifndef BATON_ROUTER_OPENAI_TOOLS_H
#define BATON_ROUTER_OPENAI_TOOLS_H

#include "base/json.h"
#include "router/openai_error.h"
#include "router/openai_grammar.h"
#include "router/tool_calls.h"

struct text;

enum {
    OPENAI_TOOLS_MAX = 128,
    OPENAI_TOOLS_BYTES_MAX = 262144, /* of their descriptions together */
    OPENAI_FORCED_CALLS_MAX = 8      /* of an answer that has to call */
};

enum openai_tool_choice {
    OPENAI_TOOL_CHOICE_NONE, /* no tools, or none may be called */
    OPENAI_TOOL_CHOICE_AUTO,
    OPENAI_TOOL_CHOICE_REQUIRED,
    OPENAI_TOOL_CHOICE_NAMED
};

struct openai_tools {
    enum openai_tool_choice choice;
    enum tool_style style;   /* that calls are looked for in; NONE: they are not */
    struct tool_names names; /* that may be called */
    bool parallel;           /* more than one call is told */
};

/* How the model is told of tools and writes calls. */
struct tool_manner {
    enum tool_style style;
    bool in_template; /* the chat template shows tools and calls; else they are put into messages */
    bool no_system;   /* the chat template takes no system message */
};

/* Reads tools, tool_choice and parallel_tool_calls. list_out: the tools the prompt is to show, part
 * of body, or NULL. Where calls have to come, their grammar goes to *grammar, which must be free
 * (kind 0) or is a 400. On failure *out still has to be freed. */
enum status openai_tools_read(const struct json *body, const struct tool_manner *manner,
                              const struct text *text, struct openai_tools *out,
                              const struct json **list_out, struct openai_grammar *grammar,
                              struct openai_error *error);
void openai_tools_free(struct openai_tools *tools);

/* tool_calls of an assistant's message, tool_call_id of a tool's. message: an object; index: its
 * place, for the error. */
enum status openai_tool_message_check(const struct json *message, size_t index, const char *role,
                                      struct openai_error *error);
/* Whether a message of the list says something of calls. */
bool openai_tool_messages_any(const struct json *messages);
/* For chat templates that show neither tools nor calls: the same conversation in plain messages.
 * tools (NULL: none) and how to call them go into the system message, which is made if there is
 * none, or in front of the first one where the template takes none; calls into the text of the
 * assistant, their results into messages of the user. messages were checked. The caller frees
 * *out. */
enum status openai_tools_spell(const struct json *messages, const struct json *tools,
                               const struct tool_manner *manner, struct json **out,
                               struct openai_error *error);

#endif
