/* Any bytes as a chat template: what compiles renders within its limits, or says why not. */
#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "model/text/jinja/jinja.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {"{{",
                                  "}}",
                                  "{%",
                                  "%}",
                                  "{%-",
                                  "-%}",
                                  "{#",
                                  "#}",
                                  "{% if messages %}",
                                  "{% elif x %}",
                                  "{% else %}",
                                  "{% endif %}",
                                  "{% for m in messages %}",
                                  "{% endfor %}",
                                  "{% set x = ",
                                  "{% set x %}",
                                  "{% endset %}",
                                  "{% macro f(a, b=1) %}",
                                  "{% endmacro %}",
                                  "{% call f() %}",
                                  "{% endcall %}",
                                  "caller()",
                                  "{% raw %}",
                                  "{% endraw %}",
                                  "{% break %}",
                                  "{% continue %}",
                                  "namespace(a=1)",
                                  "range(9)",
                                  "loop.index",
                                  "loop(m)",
                                  "recursive",
                                  "messages[0].content",
                                  "['role']",
                                  "[1:-1]",
                                  "[::-1]",
                                  "| tojson",
                                  "| trim",
                                  "| join(',')",
                                  "| map('upper')",
                                  "| selectattr('role')",
                                  "| sort",
                                  "| indent(2)",
                                  "| default('x')",
                                  ".split(',')",
                                  ".replace('a', 'b')",
                                  ".items()",
                                  "is defined",
                                  "is not none",
                                  "'%s' % ",
                                  "'{}'.format(",
                                  "raise_exception('x')",
                                  " ~ ",
                                  " ** ",
                                  " // ",
                                  " in ",
                                  " and ",
                                  "9223372036854775807",
                                  "1e308",
                                  "\\u0041",
                                  NULL};

static void fill(struct jinja_run *run, void *arg)
{
    jinja_set_text(run, "bos_token", "<s>", 3);
    jinja_set_members(run, arg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char variables[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a, \\u00e9\"},{\"role\":\"assistant\","
        "\"content\":null,\"tool_calls\":[{\"x\":1.5}]}],\"x\":3,\"tools\":[{\"a\":{\"b\":true}}]}";
    static const struct jinja_limits limits = {
        .steps = 20000, .depth = 100, .memory_bytes = 1 << 20, .output_bytes = 1 << 16};
    static struct json *root;
    struct error error = {0};
    struct jinja *template;
    if (root == NULL)
        CHECK(json_parse(variables, sizeof variables - 1, &root, &error) == STATUS_OK);
    if (jinja_compile((const char *)data, bytes, &template, &error) != STATUS_OK) {
        CHECK(error.text[0] != '\0');
        return 0;
    }
    struct jinja_prompt prompt = {0};
    if (jinja_render(template, &limits, 0, 0, fill, root, &prompt, &error) == STATUS_OK) {
        CHECK(prompt.text.size == prompt.marks.size && prompt.text.size <= limits.output_bytes);
        CHECK(prompt.text.size == 0 || utf8_valid(prompt.text.data, prompt.text.size));
    } else {
        CHECK(error.text[0] != '\0');
    }
    jinja_prompt_free(&prompt);
    jinja_free(template);
    return 0;
}
