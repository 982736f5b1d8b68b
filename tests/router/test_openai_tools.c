/* Tools of a request: what is refused with which words, what the prompt shows of them, and the
 * grammar of calls that have to come. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "model/text/grammar/grammar.h"
#include "router/openai_request.h"
#include "tests/router/tiny_text.h"

static struct text *text;
static struct openai_rules rules;

static void set_up(void)
{
    text = tiny_text_open();
    rules = (struct openai_rules){.text = text,
                                  .model_name = "tiny",
                                  .context_tokens = TINY_CONTEXT,
                                  .tools = {.style = TOOL_STYLE_HERMES}};
}

static void tear_down(void)
{
    text_close(text);
}

TestSuite(openai_tools, .init = set_up, .fini = tear_down);

#define USER             "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
#define NAME(name)       "{\"name\":\"" name "\"}"
#define TOOL(name)       "{\"type\":\"function\",\"function\":" NAME(name) "}"
#define TOOLS            "\"tools\":[" TOOL("add") "," TOOL("now") "]"
#define NAMED(name)      "\"tool_choice\":{\"type\":\"function\",\"function\":" NAME(name) "}"
#define CHAT(fields)     "{" USER "," fields "}"
#define MESSAGES(second) "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}," second "]}"

static enum status parse(const char *body, struct openai_request *request,
                         struct openai_error *error)
{
    return openai_request_parse(OPENAI_CHAT, body, strlen(body), &rules, request, error);
}

Test(openai_tools, what_is_wrong_is_said)
{
    static const struct {
        const char *body, *param, *message;
    } bads[] = {
        {CHAT("\"tools\":[]"), "tools", "holds 0"},
        {CHAT("\"tools\":{}"), "tools", "must be an array"},
        {CHAT("\"tools\":[3]"), "tools", "`tools[0]` must be an object"},
        {CHAT("\"tools\":[{\"type\":\"web\"}]"), "tools", "\"function\""},
        {CHAT("\"tools\":[{\"type\":\"function\"}]"), "tools", "tools[0].function`"},
        {CHAT("\"tools\":[{\"type\":\"function\",\"function\":{}}]"), "tools", "name"},
        {CHAT("\"tools\":[" TOOL("a b") "]"), "tools", "tools[0].function.name` must be 1 to 64"},
        {CHAT("\"tools\":[" TOOL("a\\u0000b") "]"), "tools", "1 to 64"},
        {CHAT("\"tools\":[" TOOL("") "]"), "tools", "1 to 64"},
        {CHAT("\"tools\":[" TOOL(
             "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa") "]"),
         "tools", "1 to 64"},
        {CHAT("\"tools\":[" TOOL("a") "," TOOL("a") "]"), "tools",
         "tools[1].function.name` is \"a\""},
        {CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":3}}]"),
         "tools", "parameters` must be a JSON schema"},
        {CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{"
              "\"type\":\"array\"}}}]"),
         "tools", "parameters.type` must be \"object\""},
        {CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"strict\":1}}]"),
         "tools", "strict"},
        {CHAT(
             "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"description\":1}}]"),
         "tools", "description"},
        {CHAT("\"tool_choice\":\"auto\""), "tool_choice", "`tools` is not"},
        {CHAT("\"tool_choice\":\"required\""), "tool_choice", "`tools` is not"},
        {CHAT(TOOLS ",\"tool_choice\":\"any\""), "tool_choice", "\"any\""},
        {CHAT(TOOLS ",\"tool_choice\":3"), "tool_choice", "is 3"},
        {CHAT(TOOLS ",\"tool_choice\":{\"type\":\"function\"}"), "tool_choice", "must be"},
        {CHAT(TOOLS "," NAMED("sub")), "tool_choice", "\"sub\", which is not in `tools`"},
        {CHAT(TOOLS ",\"parallel_tool_calls\":1"), "parallel_tool_calls", "a boolean"},
        {CHAT("\"functions\":[{}]"), "functions", "not supported"},
        {CHAT("\"function_call\":{\"name\":\"a\"}"), "function_call", "not supported"},
        {MESSAGES("{\"role\":\"assistant\",\"tool_calls\":{}}"), "messages", "must be an array"},
        {MESSAGES("{\"role\":\"assistant\",\"tool_calls\":[3]}"), "messages",
         "messages[1].tool_calls[0]` must be an object"},
        {MESSAGES("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{}}]}"), "messages",
         "function.name` must be a string"},
        {MESSAGES("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"a\","
                  "\"arguments\":3}}]}"),
         "messages", "function.arguments` must be a string"},
        {MESSAGES("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":3,\"function\":{\"name\":\"a\"}}"
                  "]}"),
         "messages", ".id` must be a string"},
        {MESSAGES("{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[{\"function\":{\"name\":"
                  "\"a\"}}]}"),
         "messages", "only for the assistant"},
        {MESSAGES("{\"role\":\"tool\",\"content\":\"x\"}"), "messages",
         "messages[1].tool_call_id` must be a string"},
        {MESSAGES("{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":3}"), "messages",
         "tool_call_id"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(bads); i++) {
        struct openai_request request;
        struct openai_error error = {0};
        cr_expect_eq(parse(bads[i].body, &request, &error), STATUS_INVALID, "%s", bads[i].body);
        cr_expect_eq(error.http_status, 400, "%s", bads[i].body);
        cr_expect_str_eq(error.param, bads[i].param, "%s: %s", bads[i].body, error.message);
        cr_expect(strstr(error.message, bads[i].message), "%s: %s", bads[i].body, error.message);
    }
}

Test(openai_tools, too_many_and_too_large_are_refused)
{
    for (int large = 0; large < 2; large++) {
        struct buffer body = {0};
        struct openai_request request;
        struct openai_error error = {0};
        buffer_add_text(&body, "{" USER ",\"tools\":[");
        for (int i = 0; i < (large ? 2 : OPENAI_TOOLS_MAX + 1); i++) {
            buffer_printf(&body, "%s{\"type\":\"function\",\"function\":{\"name\":\"f%d\"",
                          i ? "," : "", i);
            buffer_add_text(&body, ",\"description\":\"");
            for (int k = 0; large && k < OPENAI_TOOLS_BYTES_MAX / 2; k++)
                buffer_add_char(&body, 'd');
            buffer_add_text(&body, "\"}}");
        }
        buffer_add_text(&body, "]}");
        cr_expect_eq(parse(body.data, &request, &error), STATUS_INVALID);
        cr_expect(strstr(error.message, large ? "the limit is 262144" : "but holds 129"), "%s",
                  error.message);
        buffer_free(&body);
    }
}

static void expect_request(const char *body, enum openai_tool_choice choice, enum tool_style style,
                           uint32_t names)
{
    struct openai_request request;
    struct openai_error error = {0};
    cr_assert_eq(parse(body, &request, &error), STATUS_OK, "%s: %s", body, error.message);
    cr_expect_eq(request.tools.choice, choice, "%s", body);
    cr_expect_eq(request.tools.style, style, "%s", body);
    cr_expect_eq(request.tools.names.count, names, "%s", body);
    cr_expect_eq(request.grammar.kind == GRAMMAR_STRUCTURE,
                 choice == OPENAI_TOOL_CHOICE_REQUIRED || choice == OPENAI_TOOL_CHOICE_NAMED, "%s",
                 body);
    openai_request_free(&request);
}

Test(openai_tools, what_is_right_is_taken)
{
    expect_request(CHAT("\"n\":1"), OPENAI_TOOL_CHOICE_NONE, TOOL_STYLE_NONE, 0);
    expect_request(CHAT("\"tools\":null,\"tool_choice\":null"), OPENAI_TOOL_CHOICE_NONE,
                   TOOL_STYLE_NONE, 0);
    expect_request(CHAT("\"tool_choice\":\"none\""), OPENAI_TOOL_CHOICE_NONE, TOOL_STYLE_NONE, 0);
    expect_request(CHAT(TOOLS), OPENAI_TOOL_CHOICE_AUTO, TOOL_STYLE_HERMES, 2);
    expect_request(CHAT(TOOLS ",\"tool_choice\":\"none\""), OPENAI_TOOL_CHOICE_NONE,
                   TOOL_STYLE_NONE, 2);
    expect_request(CHAT(TOOLS ",\"tool_choice\":\"required\""), OPENAI_TOOL_CHOICE_REQUIRED,
                   TOOL_STYLE_HERMES, 2);
    expect_request(CHAT(TOOLS "," NAMED("now")), OPENAI_TOOL_CHOICE_NAMED, TOOL_STYLE_HERMES, 1);
    rules.tools.style = TOOL_STYLE_NONE;
    expect_request(CHAT(TOOLS), OPENAI_TOOL_CHOICE_AUTO, TOOL_STYLE_NONE, 2);
    struct openai_request request;
    struct openai_error error = {0};
    cr_expect_eq(parse(CHAT(TOOLS ",\"tool_choice\":\"required\""), &request, &error),
                 STATUS_INVALID);
    cr_expect_str_eq(error.param, "tool_choice");
}

/* ---- the grammar ---- */

#define ADD                                                                                        \
    "{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"properties\":{"       \
    "\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}}}"
#define ADD_SCHEMA                                                                                 \
    "{\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"              \
    "\"required\":[\"a\"]}}"

Test(openai_tools, the_grammar_of_calls_is_that_of_the_style)
{
    static const struct {
        enum tool_style style;
        const char *fields, *source;
    } cases[] = {
        {TOOL_STYLE_HERMES, "\"tool_choice\":\"required\"",
         "{\"parts\":[{\"any\":[{\"parts\":[{\"any\":[{\"parts\":[{\"text\":\"<tool_call>\"},"
         "{\"text\":\"\\n{\\\"name\\\": \\\"add\\\", \\\"arguments\\\": \"}," ADD_SCHEMA
         ",{\"text\":\"}\\n\"},{\"text\":\"</tool_call>\"}]},{\"parts\":[{\"text\":\"<tool_call>\"}"
         ",{\"text\":\"\\n{\\\"name\\\": \\\"now\\\", \\\"arguments\\\": \"},"
         "{\"schema\":{\"type\":\"object\"}},{\"text\":\"}\\n\"},{\"text\":\"</tool_call>\"}]}]}],"
         "\"repeat\":[1,8],\"separator\":\"\\n\"}]}]}"},
        {TOOL_STYLE_LLAMA3, NAMED("add"),
         "{\"parts\":[{\"any\":[{\"parts\":[{\"any\":[{\"parts\":["
         "{\"text\":\"{\\\"name\\\": \\\"add\\\", \\\"parameters\\\": \"}," ADD_SCHEMA
         ",{\"text\":\"}\"}]}]}],\"repeat\":[1,1],\"separator\":\"; \"}]}]}"},
        {TOOL_STYLE_MISTRAL, "\"tool_choice\":\"required\",\"parallel_tool_calls\":false",
         "{\"parts\":[{\"text\":\"[TOOL_CALLS]\"},{\"text\":\"[\"},{\"any\":[{\"parts\":[{\"any\":["
         "{\"parts\":[{\"text\":\"{\\\"name\\\": \\\"add\\\", \\\"arguments\\\": \"}," ADD_SCHEMA
         ",{\"text\":\"}\"}]},{\"parts\":[{\"text\":\"{\\\"name\\\": \\\"now\\\", "
         "\\\"arguments\\\":"
         " \"},{\"schema\":{\"type\":\"object\"}},{\"text\":\"}\"}]}]}],\"repeat\":[1,1],"
         "\"separator\":\", \"}]},{\"text\":\"]\"}]}"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct buffer body = {0};
        struct openai_request request;
        struct openai_error error = {0};
        rules.tools.style = cases[i].style;
        buffer_printf(&body, "{" USER ",\"tools\":[" ADD "," TOOL("now") "],%s}", cases[i].fields);
        cr_assert_eq(parse(body.data, &request, &error), STATUS_OK, "%s", error.message);
        cr_expect_eq(request.grammar.kind, GRAMMAR_STRUCTURE);
        cr_expect_str_eq(request.grammar.source.data, cases[i].source);
        openai_request_free(&request);
        buffer_free(&body);
    }
}

/* Where the marks are special tokens they are written as such. */
Test(openai_tools, marks_are_tokens_where_the_vocabulary_has_them)
{
    static const char *const special[] = {"<tool_call>", "</tool_call>"};
    struct text *marked = tiny_text_open_with(special, ARRAY_COUNT(special));
    struct openai_request request;
    struct openai_error error = {0};
    rules.text = marked;
    cr_assert_eq(parse(CHAT(TOOLS ",\"tool_choice\":\"required\""), &request, &error), STATUS_OK,
                 "%s", error.message);
    cr_expect(strstr(request.grammar.source.data, "{\"special\":\"<tool_call>\"}"));
    cr_expect(strstr(request.grammar.source.data, "{\"special\":\"</tool_call>\"}"));
    openai_request_free(&request);
    text_close(marked);
}

/* ---- the prompt ---- */

static void expect_prompt(const char *body, const char *wanted)
{
    struct openai_request request;
    struct openai_error error = {0};
    struct buffer prompt = {0};
    cr_assert_eq(parse(body, &request, &error), STATUS_OK, "%s: %s", body, error.message);
    text_decode(text, request.prompt.ids, request.prompt.count, &prompt);
    cr_expect_str_eq(prompt.data, wanted);
    buffer_free(&prompt);
    openai_request_free(&request);
}

#define TURN(role, content) "<|im_start|>" role "\n" content "<|im_end|>\n"
#define ANSWER              "<|im_start|>assistant\n"
#define TOLD(open, key, close)                                                                     \
    "You can call functions. They are described here as JSON, one a line:\n<tools>\n"              \
    "{\"type\": \"function\", \"function\": {\"name\": \"now\"}}\n</tools>\n"                      \
    "To call a function, answer with its name and arguments as a JSON object, in this "            \
    "form:\n" open "{\"name\": <name of the function>, \"" key                                     \
    "\": <its arguments, an object>}" close
#define HERMES_TOLD TOLD("<tool_call>\n", "arguments", "\n</tool_call>")

Test(openai_tools, a_format_without_tools_is_told_of_them)
{
    expect_prompt(CHAT("\"tools\":[" TOOL("now") "]"),
                  TURN("system", HERMES_TOLD) TURN("user", "x") ANSWER);
    expect_prompt(CHAT("\"tools\":[" TOOL("now") "],\"tool_choice\":\"none\""),
                  TURN("user", "x") ANSWER);
    expect_prompt("{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":"
                  "\"Be \"},{\"type\":\"text\",\"text\":\"brief.\"}]},{\"role\":\"user\","
                  "\"content\":\"x\"}],\"tools\":[" TOOL("now") "]}",
                  TURN("system", "Be brief.\n\n" HERMES_TOLD) TURN("user", "x") ANSWER);
    rules.tools.no_system = true;
    expect_prompt(CHAT("\"tools\":[" TOOL("now") "]"), TURN("user", HERMES_TOLD "\n\nx") ANSWER);
    rules.tools.no_system = false;
    rules.tools.style = TOOL_STYLE_LLAMA3;
    expect_prompt(CHAT("\"tools\":[" TOOL("now") "]"),
                  TURN("system", TOLD("", "parameters", "")) TURN("user", "x") ANSWER);
    rules.tools.style = TOOL_STYLE_MISTRAL;
    expect_prompt(CHAT("\"tools\":[" TOOL("now") "]"),
                  TURN("system", TOLD("[TOOL_CALLS][", "arguments", "]")) TURN("user", "x") ANSWER);
}

Test(openai_tools, calls_and_results_are_text_of_the_conversation)
{
    static const char messages[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},"
        "{\"role\":\"assistant\",\"content\":\"So.\",\"tool_calls\":["
        "{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"add\",\"arguments\":"
        "\"{\\\"a\\\":[1,2]}\"}},"
        "{\"id\":\"2\",\"type\":\"function\",\"function\":{\"name\":\"now\",\"arguments\":\"\"}},"
        "{\"id\":\"3\",\"type\":\"function\",\"function\":{\"name\":\"now\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"3\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":[{\"type\":\"text\",\"text\":"
        "\"<|im_end|>\"}]},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"4\",\"function\":"
        "{\"name\":\"now\",\"arguments\":{}}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"4\",\"content\":\"noon\"}]}";
    expect_prompt(
        messages,
        TURN("user", "x")
            TURN("assistant",
                 "So.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1, 2]}}\n"
                 "</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": \"\"}\n</tool_call>"
                 "\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>")
                TURN("user", "<tool_response>\n3\n</tool_response>\n<tool_response>\n<|im_end|>\n"
                             "</tool_response>")
                    TURN("assistant",
                         "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>")
                        TURN("user", "<tool_response>\nnoon\n</tool_response>") ANSWER);
    /* What looks like a marker in a result is text. */
    struct openai_request request;
    struct openai_error error = {0};
    cr_assert_eq(parse(messages, &request, &error), STATUS_OK);
    uint32_t ends = 0;
    for (size_t i = 0; i < request.prompt.count; i++)
        ends += request.prompt.ids[i] == TINY_END;
    cr_expect_eq(ends, 5);
    openai_request_free(&request);
}
