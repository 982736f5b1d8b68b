/* Templates: the recorded renderings, limits, and where errors are. What single expressions give is
 * compared with the reference by compare_templates.py. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "model/text/jinja/jinja.h"
#include "tests/model/text/small_vocabulary.h"

enum { RECORDED_NOW_S = 1796040000 }; /* noon of the day of the recordings */

static void fill(struct jinja_run *run, void *arg)
{
    jinja_set_none(run, "tools");
    jinja_set_bool(run, "add_generation_prompt", true);
    jinja_set_text(run, "bos_token", "<s>", 3);
    jinja_set_text(run, "eos_token", "</s>", 4);
    if (arg != NULL)
        jinja_set_members(run, arg);
}

static enum status rendered_within(const char *source, size_t bytes,
                                   const struct jinja_limits *limits, struct json *variables,
                                   struct jinja_prompt *out, struct error *error)
{
    struct jinja *template = NULL;
    TRY(jinja_compile(source, bytes, &template, error));
    const enum status status =
        jinja_render(template, limits, 0, RECORDED_NOW_S, fill, variables, out, error);
    jinja_free(template);
    return status;
}

static void status_is(const char *source, enum status wanted, const char *words)
{
    struct jinja_prompt out = {0};
    struct error error = {0};
    const enum status status =
        rendered_within(source, strlen(source), &jinja_limits_default, NULL, &out, &error);
    cr_assert_eq(status, wanted, "%.80s: %s", source, error.text);
    if (wanted != STATUS_OK)
        cr_assert_not_null(strstr(error.text, words), "wanted '%s', got: %s", words, error.text);
    jinja_prompt_free(&out);
}

static void record_check(const struct json *record)
{
    char path[600];
    struct buffer source = {0};
    struct jinja_prompt out = {0};
    struct error error = {0};
    size_t bytes;
    const char *name = json_string(json_get(record, "template"), &bytes);
    snprintf(path, sizeof path, "%s/golden/chat/templates/%s.jinja", small_shared(), name);
    cr_assert(small_file_read(path, &source), "%s", path);
    const enum status status =
        rendered_within(source.data, source.size, &jinja_limits_default,
                        (struct json *)json_get(record, "input"), &out, &error);
    const struct json *text = json_get(record, "text");
    cr_assert_eq(status == STATUS_OK, json_kind(text) == JSON_STRING, "%s: %s", name, error.text);
    if (status == STATUS_OK) {
        const char *wanted = json_string(text, &bytes);
        cr_assert(bytes == out.text.size && memcmp(wanted, out.text.data, bytes) == 0,
                  "%s gives %s", name, out.text.data);
        cr_assert_eq(out.marks.size, out.text.size);
    }
    jinja_prompt_free(&out);
    buffer_free(&source);
}

Test(jinja, recorded_templates_render_byte_for_byte)
{
    enum { RECORDED = 72 };
    char path[600];
    struct buffer lines = {0};
    size_t count = 0;
    setenv("TZ", "UTC", 1);
    snprintf(path, sizeof path, "%s/golden/chat/rendered.jsonl", small_shared());
    if (!small_file_read(path, &lines))
        cr_skip_test("no recorded renderings at %s", path);
    for (size_t at = 0; at < lines.size; count++) {
        const char *end = memchr(lines.data + at, '\n', lines.size - at);
        const size_t bytes = end != NULL ? (size_t)(end - lines.data) - at : lines.size - at;
        struct json *root = NULL;
        struct error error = {0};
        cr_assert_eq(json_parse(lines.data + at, bytes, &root, &error), STATUS_OK);
        record_check(root);
        json_free(root);
        at += bytes + 1;
    }
    cr_assert_geq(count, RECORDED);
    buffer_free(&lines);
}

Test(jinja, errors_have_a_place)
{
    status_is("a\n{{ x.y }}", STATUS_INVALID, "line 2, column 6: 'x' is undefined");
    status_is("{% if x %}\n", STATUS_INVALID, "line 1, column 7: the block that begins here");
    status_is("é{{ 1 + }}", STATUS_INVALID, "line 1, column 9: a value is wanted here");
    status_is("{{ 'a' }}\n\n  {{ raise_exception('no') }}", STATUS_INVALID, "line 3, column 6: no");
    status_is("{{ 1 | nope }}", STATUS_INVALID, "there is no filter named 'nope'");
    status_is("{{ [].append(1) }}", STATUS_INVALID, "'append' of 'list' object is unsafe");
    status_is("\xff", STATUS_INVALID, "not UTF-8");
}

static void repeated(struct buffer *out, const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++)
        buffer_add_text(out, text);
}

Test(jinja, what_has_no_end_is_refused)
{
    static const char *const endless[] = {
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(a) %}{{ caller() }}{% call f() %}{% endcall %}{% endmacro %}{% call f(1) %}{% "
        "endcall %}",
        "{{ range(10 ** 9) }}",
        "{{ 'x' * 10 ** 9 }}",
        "{{ [1] * 10 ** 9 }}",
        "{% set ns = namespace(x='x' * 1000) %}{% for i in range(99999) %}{% set ns.x = ns.x ~ "
        "ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor "
        "%}{{ ns.x }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ 2 ** 64 }}",
        "{{ '%999999999d' % 1 }}",
        "{{ 'x'.center(10 ** 12) }}",
        "{% for i in range(99999) %}{{ 'x' * 100000 }}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof endless / sizeof endless[0]; i++)
        status_is(endless[i], STATUS_LIMIT, "");
}

Test(jinja, depth_is_limited_where_a_template_is_read)
{
    static const char *const openings[] = {"(", "[", "{1:", "-", "not ", "a[", "f(", "1 if "};
    static const char *const blocks[] = {"{% if x %}", "{% for i in x %}", "{% set x %}"};
    for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++) {
        struct buffer source = {0};
        buffer_add_text(&source, "{{ ");
        repeated(&source, openings[i], 60000);
        struct jinja *template = NULL;
        struct error error = {0};
        cr_assert_neq(jinja_compile(source.data, source.size, &template, &error), STATUS_OK);
        buffer_free(&source);
    }
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        struct buffer source = {0};
        repeated(&source, blocks[i], 30000);
        struct jinja *template = NULL;
        struct error error = {0};
        cr_assert_eq(jinja_compile(source.data, source.size, &template, &error), STATUS_LIMIT);
        buffer_free(&source);
    }
    struct buffer chain = {0};
    buffer_add_text(&chain, "{{ 1");
    repeated(&chain, " + 1", 5000);
    buffer_add_text(&chain, " }}");
    status_is(chain.data, STATUS_LIMIT, "operators in a row");
    buffer_free(&chain);
}

Test(jinja, each_limit_holds)
{
    const struct {
        struct jinja_limits limits;
        const char *words;
    } rows[] = {
        {{.steps = 50, .depth = 100, .memory_bytes = 1 << 20, .output_bytes = 1000}, "steps"},
        {{.steps = 10000, .depth = 2, .memory_bytes = 1 << 20, .output_bytes = 1000}, "nested"},
        {{.steps = 10000, .depth = 100, .memory_bytes = 1 << 16, .output_bytes = 1000}, "bytes"},
        {{.steps = 10000, .depth = 100, .memory_bytes = 1 << 20, .output_bytes = 10}, "prompt"},
    };
    static const char source[] =
        "{% for i in range(100) %}{{ (i | string) * 9 }}{% endfor %}{{ range(5000) | list }}";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct jinja_prompt out = {0};
        struct error error = {0};
        cr_assert_eq(
            rendered_within(source, sizeof source - 1, &rows[i].limits, NULL, &out, &error),
            STATUS_LIMIT, "%zu", i);
        cr_assert_not_null(strstr(error.text, rows[i].words), "%s", error.text);
        jinja_prompt_free(&out);
    }
}
