/* Any text as an answer with tool calls: the cuts do not matter, complete arguments are objects,
 * and nothing of the text is made up. The first byte of an input chooses the style, the second says
 * where the cuts are. */
#include <string.h>

#include "base/check.h"
#include "base/json_scan.h"
#include "router/tool_calls.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {"<tool_call>",
                                  "</tool_call>",
                                  "<|python_tag|>",
                                  "[TOOL_CALLS]",
                                  "[ARGS]",
                                  "[CALL_ID]",
                                  "<|tool_call|>",
                                  "{\"name\": \"add\", \"arguments\": {",
                                  "{\"name\": \"now\"}",
                                  "\"name\":",
                                  "\"arguments\":",
                                  "\"parameters\":",
                                  "\"add\"",
                                  "{\"a\": [1, -2.5e3, true, null]}",
                                  "\\u00e9",
                                  "; ",
                                  ", ",
                                  "}}",
                                  "]",
                                  "\n",
                                  NULL};

static char known[][TOOL_NAME_BYTES_MAX + 1] = {"add", "now"};
static const struct tool_names names = {known, ARRAY_COUNT(known)};

static void play(struct tool_calls *calls, enum tool_style style, const char *text, size_t bytes,
                 size_t piece, struct buffer *content)
{
    tool_calls_init(calls, style, &names, TOOL_CALLS_MAX, 1);
    for (size_t at = 0; at < bytes; at += piece) {
        tool_calls_feed(calls, text + at, piece < bytes - at ? piece : bytes - at);
        buffer_add(content, calls->content.data, calls->content.size);
        tool_calls_take(calls);
    }
    tool_calls_finish(calls);
    buffer_add(content, calls->content.data, calls->content.size);
    tool_calls_take(calls);
    CHECK(!tool_calls_ready(calls));
}

static void check_call(const struct tool_call *call)
{
    struct json_scan scan;
    json_scan_init(&scan);
    enum json_scan_result result = JSON_SCAN_MORE;
    CHECK(tool_names_have(&names, call->name, strlen(call->name)));
    for (size_t i = 0; i < call->arguments.size; i++) {
        CHECK(result == JSON_SCAN_MORE);
        result = json_scan_byte(&scan, call->arguments.data[i]);
        CHECK(result != JSON_SCAN_BAD);
    }
    CHECK(call->arguments.size > 0 && (!call->complete || result == JSON_SCAN_DONE));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2)
        return 0;
    const enum tool_style style = data[0] % TOOL_STYLE_COUNT;
    const char *text = (const char *)data + 2;
    struct tool_calls whole, cut;
    struct buffer content[2] = {{0}, {0}};
    bytes -= 2;
    play(&whole, style, text, bytes, bytes + 1, &content[0]);
    play(&cut, style, text, bytes, 1 + (size_t)data[1] % 16, &content[1]);
    CHECK(content[0].size == content[1].size && whole.count == cut.count);
    CHECK(content[0].size == 0 || memcmp(content[0].data, content[1].data, content[0].size) == 0);
    size_t used = content[0].size;
    for (uint32_t i = 0; i < whole.count; i++) {
        const struct tool_call *a = &whole.calls[i], *b = &cut.calls[i];
        check_call(a);
        CHECK(strcmp(a->id, b->id) == 0 && strcmp(a->name, b->name) == 0);
        CHECK(a->complete == b->complete && a->arguments.size == b->arguments.size);
        CHECK(memcmp(a->arguments.data, b->arguments.data, a->arguments.size) == 0);
        used += a->arguments.size;
    }
    CHECK(used <= bytes);
    CHECK(whole.count > 0 || used == bytes);
    tool_calls_free(&whole);
    tool_calls_free(&cut);
    buffer_free(&content[0]);
    buffer_free(&content[1]);
    return 0;
}
