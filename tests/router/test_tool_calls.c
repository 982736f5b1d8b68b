/* Tool calls in answers: each style, what is none, and that the cuts of a stream do not matter. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "router/tool_calls.h"

static char known[][TOOL_NAME_BYTES_MAX + 1] = {"get_weather", "add", "now"};
static const struct tool_names names = {known, ARRAY_COUNT(known)};

/* What was taken so far: content, then name(arguments) of each call, with a ! where it broke off.
 */
struct told {
    struct buffer content;
    struct buffer calls[TOOL_CALLS_MAX];
    uint32_t count;
};

static void take(struct tool_calls *calls, struct told *told)
{
    cr_assert_eq(tool_calls_ready(calls),
                 calls->content.size > 0 || calls->count > told->count ||
                     (calls->count > 0 && calls->calls[calls->count - 1].arguments.size >
                                              calls->calls[calls->count - 1].arguments_taken));
    buffer_add(&told->content, calls->content.data, calls->content.size);
    for (uint32_t i = 0; i < calls->count; i++) {
        const struct tool_call *call = &calls->calls[i];
        cr_assert_eq(call->begin_taken, i < told->count);
        if (!call->begin_taken) {
            buffer_printf(&told->calls[i], "%s(", call->name);
            told->count++;
        }
        buffer_add(&told->calls[i], call->arguments.data + call->arguments_taken,
                   call->arguments.size - call->arguments_taken);
    }
    tool_calls_take(calls);
    cr_assert(!tool_calls_ready(calls));
}

/* Takes after each piece that ends at a cut; cuts: a bit for each byte is more than needed. */
static void play(enum tool_style style, const char *text, size_t bytes, size_t piece, size_t first,
                 uint32_t told_max, struct buffer *out)
{
    struct tool_calls calls;
    struct told told = {0};
    tool_calls_init(&calls, style, &names, told_max, 1);
    for (size_t at = 0; at < bytes;) {
        size_t count = at == 0 && first > 0 ? first : piece;
        if (count > bytes - at)
            count = bytes - at;
        tool_calls_feed(&calls, text + at, count);
        take(&calls, &told);
        at += count;
    }
    tool_calls_finish(&calls);
    take(&calls, &told);
    buffer_add(out, told.content.data, told.content.size);
    for (uint32_t i = 0; i < calls.count; i++) {
        buffer_add_text(out, i > 0 || told.content.size > 0 ? " | " : "| ");
        buffer_add(out, told.calls[i].data, told.calls[i].size);
        buffer_add_text(out, calls.calls[i].complete ? ")" : "!");
        buffer_free(&told.calls[i]);
    }
    buffer_add_char(out, '\0');
    buffer_free(&told.content);
    tool_calls_free(&calls);
}

static void expect(enum tool_style style, const char *text, const char *wanted, uint32_t told_max)
{
    const size_t bytes = strlen(text);
    for (size_t first = 0; first <= bytes; first++) {
        struct buffer out = {0};
        play(style, text, bytes, bytes ? bytes : 1, first, told_max, &out);
        cr_assert_str_eq(out.data, wanted, "%s, cut at %zu: %s", text, first, out.data);
        buffer_free(&out);
    }
    for (size_t piece = 1; piece <= 3; piece++) {
        struct buffer out = {0};
        play(style, text, bytes, piece, 0, told_max, &out);
        cr_assert_str_eq(out.data, wanted, "%s, by %zu: %s", text, piece, out.data);
        buffer_free(&out);
    }
}

struct example {
    const char *text, *wanted;
};

static void expect_all(enum tool_style style, const struct example *examples, size_t count)
{
    for (size_t i = 0; i < count; i++)
        expect(style, examples[i].text, examples[i].wanted, TOOL_CALLS_MAX);
}

#define PARIS "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}"
#define SUM   "{\"name\": \"add\", \"arguments\": {\"a\":1,\"b\":[2, {}]}}"

Test(tool_calls, hermes)
{
    static const struct example examples[] = {
        {"", ""},
        {"  \n", "  \n"},
        {"plain text", "plain text"},
        {" text with blanks \n", " text with blanks \n"},
        {"<tool_call>\n" PARIS "\n</tool_call>", "| get_weather({\"city\": \"Paris\"})"},
        {"<tool_call>" PARIS "</tool_call>", "| get_weather({\"city\": \"Paris\"})"},
        {"\n<tool_call>\n" PARIS "\n</tool_call>\n", "| get_weather({\"city\": \"Paris\"})"},
        {"Let me see.\n<tool_call>\n" PARIS "\n</tool_call>",
         "Let me see.\n | get_weather({\"city\": \"Paris\"})"},
        {"<tool_call>\n" PARIS "\n</tool_call>\n<tool_call>\n" SUM "\n</tool_call>",
         "| get_weather({\"city\": \"Paris\"}) | add({\"a\":1,\"b\":[2, {}]})"},
        /* no closing mark, or the next call instead of one */
        {"<tool_call>\n" PARIS, "| get_weather({\"city\": \"Paris\"})"},
        {"<tool_call>" PARIS "</tool", "| get_weather({\"city\": \"Paris\"})"},
        {"<tool_call>" PARIS "<tool_call>" SUM,
         "| get_weather({\"city\": \"Paris\"}) | add({\"a\":1,\"b\":[2, {}]})"},
        /* text around and between is kept */
        {"a<tool_call>" PARIS "</tool_call> b <tool_call>" SUM "</tool_call> c",
         "a b  c | get_weather({\"city\": \"Paris\"}) | add({\"a\":1,\"b\":[2, {}]})"},
        /* the other order, other members, the other key, escapes, brackets in strings */
        {"<tool_call>{\"arguments\": {\"x\": \"}\\\"{\"}, \"id\": [1, {}], \"name\": \"add\"}",
         "| add({\"x\": \"}\\\"{\"})"},
        {"<tool_call>{\"parameters\":{},\"name\":\"now\"}", "| now({})"},
        {"<tool_call>{\"name\":\"now\"}</tool_call>", "| now({})"},
        {"<tool_call>{\"name\":\"add\",\"arguments\":{\"s\":\"\xc3\xa9\xf0\x9f\x98\x80\"}}",
         "| add({\"s\":\"\xc3\xa9\xf0\x9f\x98\x80\"})"},
        {"<tool_call> { \"name\" :\t\"add\" ,\n\"arguments\" : { \"a\" : 1 } } </tool_call>",
         "| add({ \"a\" : 1 })"},
        /* none of these is a call */
        {"<tool_call>x</tool_call>", "<tool_call>x</tool_call>"},
        {"<tool_cal", "<tool_cal"},
        {"a < b <tool> <<tool_call>x", "a < b <tool> <<tool_call>x"},
        {"<tool_call>{}</tool_call>", "<tool_call>{}</tool_call>"},
        {"<tool_call>[" PARIS "]</tool_call>", "<tool_call>[" PARIS "]</tool_call>"},
        {"<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>",
         "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>"},
        {"<tool_call>{\"name\": \"addx\", \"arguments\": {}}</tool_call>",
         "<tool_call>{\"name\": \"addx\", \"arguments\": {}}</tool_call>"},
        {"<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"rm\"}</tool_call>",
         "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"rm\"}</tool_call>"},
        {"<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>",
         "<tool_call>{\"arguments\": {\"a\": 1}}</tool_call>"},
        {"<tool_call>{\"name\": 5, \"arguments\": {}}",
         "<tool_call>{\"name\": 5, \"arguments\": {}}"},
        {"<tool_call>{\"name\": \"add\", \"name\": \"now\"}",
         "<tool_call>{\"name\": \"add\", \"name\": \"now\"}"},
        {"<tool_call>{\"name\": \"add\", \"arguments\": \"{}\"}",
         "<tool_call>{\"name\": \"add\", \"arguments\": \"{}\"}"},
        {"<tool_call>{\"name\": \"add\", ", "<tool_call>{\"name\": \"add\", "},
        {"<tool_call>{'name': 'add'}", "<tool_call>{'name': 'add'}"},
        {"</tool_call>", "</tool_call>"},
        {"<tool_call>{\"name\"<tool_call>" PARIS "</tool_call>",
         "<tool_call>{\"name\" | get_weather({\"city\": \"Paris\"})"},
        /* a call that breaks off stays, and what follows is text */
        {"<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": ", "| add({\"a\": !"},
        {"<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}", "| add({\"a\": 1}!"},
        {"<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 01}}</tool_call>",
         "1}}</tool_call> | add({\"a\": 0!"},
        {"<tool_call>{\"name\": \"add\", \"arguments\": {}, \"arguments\": {}}</tool_call>",
         "\": {}}</tool_call> | add({}!"},
        {"<tool_call>{\"name\": \"add\", \"arguments\": {,}}\n<tool_call>" PARIS "</tool_call>",
         ",}}\n | add({! | get_weather({\"city\": \"Paris\"})"},
    };
    expect_all(TOOL_STYLE_HERMES, examples, ARRAY_COUNT(examples));
}

#define LLAMA_PARIS "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}"
#define LLAMA_NOW   "{\"name\": \"now\", \"parameters\": {}}"

Test(tool_calls, llama3)
{
    static const struct example examples[] = {
        {LLAMA_PARIS, "| get_weather({\"city\": \"Paris\"})"},
        {"\n " LLAMA_PARIS "\n", "| get_weather({\"city\": \"Paris\"})"},
        {"<|python_tag|>" LLAMA_PARIS, "| get_weather({\"city\": \"Paris\"})"},
        {LLAMA_PARIS "; " LLAMA_NOW, "| get_weather({\"city\": \"Paris\"}) | now({})"},
        {LLAMA_PARIS ";\n" LLAMA_NOW " ;" LLAMA_PARIS,
         "| get_weather({\"city\": \"Paris\"}) | now({}) | get_weather({\"city\": \"Paris\"})"},
        {LLAMA_PARIS "; ", "| get_weather({\"city\": \"Paris\"})"},
        {PARIS, "| get_weather({\"city\": \"Paris\"})"},
        {"Sure: " LLAMA_PARIS, "Sure: " LLAMA_PARIS},
        {"{\"name\": \"Bob\", \"age\": 3}", "{\"name\": \"Bob\", \"age\": 3}"},
        {"{\"name\": \"now\"}", "{\"name\": \"now\"}"},
        {"<|python_tag|>print(1)", "<|python_tag|>print(1)"},
        {"<|python", "<|python"},
        {" {} ", " {} "},
        {LLAMA_PARIS " and " LLAMA_NOW, " and " LLAMA_NOW " | get_weather({\"city\": \"Paris\"})"},
        {LLAMA_PARIS "; x", "; x | get_weather({\"city\": \"Paris\"})"},
        {"{\"name\": \"now\", \"parameters\": {]} " LLAMA_NOW, "]} " LLAMA_NOW " | now({!"},
    };
    expect_all(TOOL_STYLE_LLAMA3, examples, ARRAY_COUNT(examples));
}

Test(tool_calls, mistral)
{
    static const struct example examples[] = {
        {"[TOOL_CALLS][" PARIS "]", "| get_weather({\"city\": \"Paris\"})"},
        {"[TOOL_CALLS] [" PARIS ", " SUM "]",
         "| get_weather({\"city\": \"Paris\"}) | add({\"a\":1,\"b\":[2, {}]})"},
        {"Hm. [TOOL_CALLS][" PARIS "] so", "Hm.  so | get_weather({\"city\": \"Paris\"})"},
        {"[TOOL_CALLS][" PARIS ",", "| get_weather({\"city\": \"Paris\"})"},
        {"[TOOL_CALLS]" PARIS, "| get_weather({\"city\": \"Paris\"})"},
        {"[TOOL_CALLS]now[ARGS]{}", "| now({})"},
        {"[TOOL_CALLS]add[ARGS] {\"a\": [1]}[TOOL_CALLS]now[ARGS]{}",
         "| add({\"a\": [1]}) | now({})"},
        {"[TOOL_CALLS]add[CALL_ID]abc123XYZ[ARGS]{\"a\": 1}", "| add({\"a\": 1})"},
        {"[TOOL_CALLS]addx[ARGS]{}", "[TOOL_CALLS]addx[ARGS]{}"},
        {"[TOOL_CALLS]add[ARG]{}", "[TOOL_CALLS]add[ARG]{}"},
        {"[TOOL_CALLS]add[ARGS]x", "[TOOL_CALLS]add[ARGS]x"},
        {"[TOOL_CALLS]add[ARGS]{\"a\"", "| add({\"a\"!"},
        {"[TOOL_CALLS]add[ARGS]{a} [TOOL_CALLS]now[ARGS]{}", "a}  | add({! | now({})"},
        {"[TOOL_CALLS][]", "[TOOL_CALLS][]"},
        {"[TOOL_CALLS][{}]", "[TOOL_CALLS][{}]"},
        {"[1, 2][TOOL", "[1, 2][TOOL"},
        {"[TOOL_CALLS][" PARIS " x]", " x] | get_weather({\"city\": \"Paris\"})"},
    };
    expect_all(TOOL_STYLE_MISTRAL, examples, ARRAY_COUNT(examples));
}

Test(tool_calls, granite_and_none)
{
    expect(TOOL_STYLE_GRANITE, "<|tool_call|>[" PARIS "]", "| get_weather({\"city\": \"Paris\"})",
           TOOL_CALLS_MAX);
    expect(TOOL_STYLE_GRANITE, "<|tool_call|>add[ARGS]{}", "<|tool_call|>add[ARGS]{}",
           TOOL_CALLS_MAX);
    expect(TOOL_STYLE_NONE, " <tool_call>" PARIS "</tool_call>",
           " <tool_call>" PARIS "</tool_call>", TOOL_CALLS_MAX);
}

Test(tool_calls, calls_behind_the_first_are_left_out_when_one_is_wanted)
{
    expect(TOOL_STYLE_HERMES, "<tool_call>" PARIS "</tool_call>\n<tool_call>" SUM "</tool_call> so",
           " so | get_weather({\"city\": \"Paris\"})", 1);
    expect(TOOL_STYLE_MISTRAL, "[TOOL_CALLS][" PARIS ", " SUM "]",
           "| get_weather({\"city\": \"Paris\"})", 1);
    expect(TOOL_STYLE_LLAMA3, LLAMA_PARIS "; " LLAMA_NOW, "| get_weather({\"city\": \"Paris\"})",
           1);
}

Test(tool_calls, more_than_the_limit_stay_text)
{
    struct tool_calls calls;
    tool_calls_init(&calls, TOOL_STYLE_HERMES, &names, TOOL_CALLS_MAX, 1);
    static const char call[] = "<tool_call>{\"name\":\"now\"}</tool_call>\n";
    for (int i = 0; i < TOOL_CALLS_MAX + 1; i++)
        tool_calls_feed(&calls, call, sizeof call - 1);
    tool_calls_finish(&calls);
    cr_expect_eq(calls.count, TOOL_CALLS_MAX);
    cr_expect_eq(calls.content.size, sizeof call, "%s", calls.content.data);
    tool_calls_free(&calls);
}

Test(tool_calls, names_and_depth_have_limits)
{
    struct buffer text = {0}, out = {0};
    buffer_add_text(&text, "<tool_call>{\"name\": \"");
    for (int i = 0; i < 1000; i++)
        buffer_add_char(&text, 'a');
    buffer_add_text(&text, "\"}");
    play(TOOL_STYLE_HERMES, text.data, text.size, 7, 0, 128, &out);
    cr_expect_str_eq(out.data, text.data);
    buffer_clear(&text);
    buffer_clear(&out);
    buffer_add_text(&text, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": ");
    for (int i = 0; i < 60000; i++)
        buffer_add_char(&text, '[');
    play(TOOL_STYLE_HERMES, text.data, text.size, 7, 0, 128, &out);
    /* the brackets over the depth are text, the call is broken */
    const char *call = strstr(out.data, " | add({\"a\": [");
    cr_assert(call != NULL && call[strlen(call) - 1] == '!');
    cr_expect_eq((size_t)(call - out.data) + strspn(call + 13, "["), 60000 + 0u);
    buffer_free(&text);
    buffer_free(&out);
}

Test(tool_calls, ids_differ_and_are_as_the_styles_want_them)
{
    static const struct {
        enum tool_style style;
        const char *text, *prefix;
        size_t bytes;
    } cases[] = {
        {TOOL_STYLE_HERMES, "<tool_call>" PARIS "</tool_call><tool_call>" PARIS, "call_", 29},
        {TOOL_STYLE_MISTRAL, "[TOOL_CALLS][" PARIS "," PARIS "]", "", 9},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char ids[2][2][TOOL_ID_BYTES];
        for (uint64_t seed = 0; seed < 2; seed++) {
            struct tool_calls calls;
            tool_calls_init(&calls, cases[i].style, &names, 128, seed);
            tool_calls_feed(&calls, cases[i].text, strlen(cases[i].text));
            tool_calls_finish(&calls);
            cr_assert_eq(calls.count, 2);
            for (int k = 0; k < 2; k++) {
                cr_expect_eq(strlen(calls.calls[k].id), cases[i].bytes);
                cr_expect_eq(strncmp(calls.calls[k].id, cases[i].prefix, strlen(cases[i].prefix)),
                             0);
                memcpy(ids[seed][k], calls.calls[k].id, TOOL_ID_BYTES);
            }
            tool_calls_free(&calls);
        }
        cr_expect_str_neq(ids[0][0], ids[0][1]);
        cr_expect_str_neq(ids[0][0], ids[1][0]);
    }
}

Test(tool_calls, an_answer_ends_with_calls_when_one_is_whole)
{
    static const struct {
        const char *text;
        bool cut, end;
    } cases[] = {
        {"text", false, false},
        {"<tool_call>" PARIS "</tool_call>", false, true},
        {"<tool_call>" PARIS "</tool_call>", true, true},
        {"<tool_call>" PARIS "</tool_call><tool_call>{\"name\":\"add\",\"arguments\":{", false,
         true},
        {"<tool_call>" PARIS "</tool_call><tool_call>{\"name\":\"add\",\"arguments\":{", true,
         false},
        {"<tool_call>{\"name\":\"add\",\"arguments\":{", false, false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct tool_calls calls;
        tool_calls_init(&calls, TOOL_STYLE_HERMES, &names, 128, 0);
        tool_calls_feed(&calls, cases[i].text, strlen(cases[i].text));
        tool_calls_finish(&calls);
        cr_expect_eq(tool_calls_end(&calls, cases[i].cut), cases[i].end, "row %zu", i);
        tool_calls_free(&calls);
    }
}

Test(tool_calls, no_mark_holds_the_beginning_of_a_mark)
{
    for (int style = TOOL_STYLE_NONE + 1; style < TOOL_STYLE_COUNT; style++) {
        const struct tool_syntax *syntax = tool_syntax((enum tool_style)style);
        cr_expect_null(strchr(syntax->open + 1, syntax->open[0]), "%s", syntax->name);
        if (syntax->close) {
            cr_expect_eq(syntax->close[0], syntax->open[0]);
            cr_expect_null(strchr(syntax->close + 1, syntax->open[0]));
        }
    }
}

Test(tool_calls, styles_are_found_in_templates)
{
    static const struct {
        const char *template;
        enum tool_style style;
        bool tools;
    } cases[] = {
        {"", TOOL_STYLE_NONE, false},
        {"{% for message in messages %}", TOOL_STYLE_NONE, false},
        {"{% if tools %}<tool_call>", TOOL_STYLE_HERMES, true},
        {"{% if tools %}[AVAILABLE_TOOLS]..[TOOL_CALLS]", TOOL_STYLE_MISTRAL, true},
        {"{{ tools }}{{ '<|python_tag|>' }}", TOOL_STYLE_LLAMA3, true},
        {"tools \"Respond in the format {\"name\": function name, \"parameters\": dictionary",
         TOOL_STYLE_LLAMA3, true},
        {"tools <|tool_call|>", TOOL_STYLE_GRANITE, true},
        {"{{ xml_tools }} tools_ toolset", TOOL_STYLE_NONE, false},
        {"xml_tools and tools", TOOL_STYLE_NONE, true},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        const size_t bytes = strlen(cases[i].template);
        cr_expect_eq(tool_style_of_template(cases[i].template, bytes), cases[i].style, "row %zu",
                     i);
        cr_expect_eq(tool_template_takes_tools(cases[i].template, bytes), cases[i].tools);
    }
}

Test(tool_calls, styles_of_the_templates_of_models)
{
    static const struct {
        const char *file;
        enum tool_style style;
        bool tools;
    } cases[] = {
        {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", TOOL_STYLE_HERMES, true},
        {"Qwen-Qwen2.5-7B-Instruct", TOOL_STYLE_HERMES, true},
        {"Qwen-Qwen3-0.6B", TOOL_STYLE_HERMES, true},
        {"ibm-granite-granite-3.3-2B-Instruct", TOOL_STYLE_GRANITE, true},
        {"meta-llama-Llama-3.1-8B-Instruct", TOOL_STYLE_LLAMA3, true},
        {"meta-llama-Llama-3.3-70B-Instruct", TOOL_STYLE_LLAMA3, true},
        {"mistralai-Mistral-Nemo-Instruct-2407", TOOL_STYLE_MISTRAL, true},
        {"openai-gpt-oss-120b", TOOL_STYLE_NONE, true},
        {"HuggingFaceTB-SmolLM3-3B", TOOL_STYLE_NONE, false},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", TOOL_STYLE_NONE, false},
        {"google-gemma-2-2b-it", TOOL_STYLE_NONE, false},
        {"microsoft-Phi-3.5-mini-instruct", TOOL_STYLE_NONE, false},
    };
    const char *named = getenv("BATON_SHARED");
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char path[512];
        static char source[32768];
        snprintf(path, sizeof path, "%s/golden/chat/templates/%s.jinja",
                 named ? named : BATON_SHARED_DIR, cases[i].file);
        FILE *file = fopen(path, "r");
        if (!file)
            cr_skip_test("the reference data %s is not there", path);
        const size_t bytes = fread(source, 1, sizeof source, file);
        fclose(file);
        cr_assert(bytes > 0 && bytes < sizeof source);
        cr_expect_eq(tool_style_of_template(source, bytes), cases[i].style, "%s", cases[i].file);
        cr_expect_eq(tool_template_takes_tools(source, bytes), cases[i].tools, "%s", cases[i].file);
    }
}
