/* Tool calls through the whole router: bodies and streams of an answer that a decode node writes a
 * byte a token. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "tests/router/serving_fixture.h"

#define TOOLS                                                                                      \
    "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":["                             \
    "{\"type\":\"function\",\"function\":{\"name\":\"add\"}},"                                     \
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]"

/* A choice as a client puts it together. */
struct put_together {
    struct buffer content, calls;
    char finish[32];
    bool null_content;
    uint32_t logprobs;
};

static const char *text_of(const struct json *object, const char *name)
{
    const struct json *value = json_get(object, name);
    return value && json_kind(value) == JSON_STRING ? json_string(value, &(size_t){0}) : NULL;
}

static void add_text(struct buffer *out, const char *text)
{
    buffer_add_text(out, text ? text : "");
}

/* name(arguments of each call, in their order; an id where it begins. */
static void add_calls(struct put_together *out, const struct json *calls, bool streamed,
                      uint32_t *begun)
{
    for (size_t i = 0; calls && i < json_count(calls); i++) {
        const struct json *call = json_at(calls, i), *function = json_get(call, "function");
        const char *id = text_of(call, "id"), *name = text_of(function, "name");
        if (streamed)
            cr_assert_eq(json_int(json_get(call, "index")), *begun - (id ? 0u : 1u));
        cr_assert((id != NULL) == (name != NULL));
        if (id) {
            cr_assert(strncmp(id, "call_", 5) == 0 && strlen(id) == 29, "%s", id);
            cr_assert_str_eq(text_of(call, "type"), "function");
            buffer_printf(&out->calls, "| %s(", name);
            ++*begun;
        }
        add_text(&out->calls, text_of(function, "arguments"));
    }
}

static void add_choice(struct put_together *out, const struct json *choice, bool streamed,
                       uint32_t *begun)
{
    const struct json *message = json_get(choice, streamed ? "delta" : "message");
    const struct json *logprobs = json_get(choice, "logprobs"), *content;
    add_text(&out->content, text_of(message, "content"));
    content = json_get(message, "content");
    out->null_content = content && json_kind(content) == JSON_NULL;
    add_calls(out, json_get(message, "tool_calls"), streamed, begun);
    if (logprobs && json_kind(logprobs) == JSON_OBJECT)
        out->logprobs += (uint32_t)json_count(json_get(logprobs, "content"));
    if (text_of(choice, "finish_reason"))
        snprintf(out->finish, sizeof out->finish, "%s", text_of(choice, "finish_reason"));
}

/* Asks, and puts the answer together. */
static void ask(const char *fields, bool streamed, struct put_together *out)
{
    struct buffer body = {0}, answer = {0};
    uint32_t begun = 0;
    *out = (struct put_together){0};
    buffer_printf(&body, "{" TOOLS ",%s\"stream\":%s}", fields, streamed ? "true" : "false");
    cr_assert_eq(client_ask(&router, CHAT_PATH, body.data, &answer), 200, "%s", answer.data);
    char *at = answer.data, *end = at + answer.size;
    while (at < end) {
        const char *stop = streamed ? strstr(at, "\n\n") : end;
        const char *from = streamed ? at + strlen("data: ") : at;
        struct json *root = NULL;
        if (json_parse(from, (size_t)(stop - from), &root, &(struct error){0}) == STATUS_OK) {
            const struct json *choices = json_get(root, "choices");
            for (size_t i = 0; i < json_count(choices); i++)
                add_choice(out, json_at(choices, i), streamed, &begun);
            json_free(root);
        } else {
            cr_assert(streamed && strncmp(from, "[DONE]", 6) == 0, "%s", from);
        }
        at += stop - at + (streamed ? 2 : 0);
    }
    buffer_add_text(&out->content, "");
    buffer_add_text(&out->calls, "");
    buffer_free(&body);
    buffer_free(&answer);
}

static void put_together_free(struct put_together *out)
{
    buffer_free(&out->content);
    buffer_free(&out->calls);
}

#define ADD "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1, 2]}}\n</tool_call>"
#define NOW "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"

static const struct {
    const char *answer, *fields;
    enum finish_code end;
    const char *content, *calls, *finish;
} rows[] = {
    {"plain", "", FINISH_STOP, "plain", "", "stop"},
    {ADD, "", FINISH_STOP, "", "| add({\"a\": [1, 2]}", "tool_calls"},
    {"Let me see. " ADD "\n" NOW, "", FINISH_STOP, "Let me see. ", "| add({\"a\": [1, 2]}| now({}",
     "tool_calls"},
    {ADD "\n" NOW, "\"parallel_tool_calls\":false,", FINISH_STOP, "", "| add({\"a\": [1, 2]}",
     "tool_calls"},
    {ADD, "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"add\"}},", FINISH_STOP,
     "", "| add({\"a\": [1, 2]}", "stop"},
    {ADD, "\"tool_choice\":\"none\",", FINISH_STOP, ADD, "", "stop"},
    {"<tool_call>{\"name\": \"rm\"}</tool_call>", "", FINISH_STOP,
     "<tool_call>{\"name\": \"rm\"}</tool_call>", "", "stop"},
    {"<tool_call>{\"name\": \"add\", \"arguments\": {\"a\"", "", FINISH_LENGTH, "", "| add({\"a\"",
     "length"},
    {"So <tool_ca", "", FINISH_LENGTH, "So <tool_ca", "", "length"},
    {ADD " \n STOP and more", "\"stop\":\"STOP\",", FINISH_STOP, "", "| add({\"a\": [1, 2]}",
     "tool_calls"},
    {"<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}", "\"stop\":\"b\",",
     FINISH_STOP, "", "| add({\"a\": 1, \"", "stop"},
};

Test(tool_answers, streams_bring_together_what_bodies_hold)
{
    serving_start(NULL);
    serving_connect(true);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        prefill.answer = decode.answer = rows[i].answer;
        prefill.finish = decode.finish = rows[i].end;
        for (int streamed = 0; streamed < 2; streamed++) {
            struct put_together got;
            ask(rows[i].fields, streamed != 0, &got);
            cr_expect_str_eq(got.content.data, rows[i].content, "row %zu, %d", i, streamed);
            cr_expect_str_eq(got.calls.data, rows[i].calls, "row %zu, %d", i, streamed);
            cr_expect_str_eq(got.finish, rows[i].finish, "row %zu, %d", i, streamed);
            if (!streamed)
                cr_expect_eq(got.null_content, rows[i].content[0] == '\0', "row %zu", i);
            put_together_free(&got);
        }
    }
    serving_expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

/* Every token's log-probability comes once, also of those whose text was held back. */
Test(tool_answers, log_probabilities_are_whole)
{
    serving_start(NULL);
    serving_connect(true);
    prefill.answer = decode.answer = "a " ADD;
    for (int streamed = 0; streamed < 2; streamed++) {
        struct put_together got;
        ask(streamed ? "\"logprobs\":true,\"stream_options\":{\"include_usage\":true},"
                     : "\"logprobs\":true,",
            streamed != 0, &got);
        cr_expect_str_eq(got.content.data, "a ");
        cr_expect_str_eq(got.calls.data, "| add({\"a\": [1, 2]}");
        cr_expect_eq(got.logprobs, strlen("a " ADD));
        put_together_free(&got);
    }
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(tool_answers, the_operator_says_how_calls_are_written)
{
    serving_start((const char *const[]){"--tool-call-parser", "llama3", NULL});
    serving_connect(true);
    prefill.answer = decode.answer = "{\"name\": \"add\", \"parameters\": {\"a\": 1}}; "
                                     "{\"name\": \"now\", \"parameters\": {}}";
    for (int streamed = 0; streamed < 2; streamed++) {
        struct put_together got;
        ask("", streamed != 0, &got);
        cr_expect_str_eq(got.calls.data, "| add({\"a\": 1}| now({}");
        put_together_free(&got);
    }
    cr_expect_eq(router_process_stop(&router), 0);
}
