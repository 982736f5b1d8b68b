/* What a body says the answer has to be: which field, as which source, and what is refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "model/text/grammar/grammar.h"
#include "router/openai_grammar.h"

static enum status read(const char *body, struct openai_grammars *known, struct openai_grammar *out,
                        struct openai_error *error)
{
    struct json *root;
    struct error cause;
    cr_assert_eq(json_parse(body, strlen(body), &root, &cause), STATUS_OK, "%s: %s", body,
                 cause.text);
    *out = (struct openai_grammar){0};
    const enum status status = openai_grammar_read(root, known, out, error);
    json_free(root);
    return status;
}

#define SCHEMA                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"integer\"},\"a\":{\"const\":0.1}}}"

static const struct {
    const char *body;
    uint32_t kind;
    const char *source;
} rows[] = {
    {"{}", 0, ""},
    {"{\"response_format\":null,\"structured_outputs\":null,\"guided_json\":null}", 0, ""},
    {"{\"response_format\":{\"type\":\"text\"},\"structured_outputs\":{},\"grammar\":\"\"}", 0, ""},
    {"{\"response_format\":{\"type\":\"json_object\"}}", GRAMMAR_JSON_OBJECT, ""},
    {"{\"response_format\":{\"type\":\"json_object\",\"schema\":" SCHEMA "}}", GRAMMAR_JSON_SCHEMA,
     SCHEMA},
    {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
     "\"strict\":true,\"schema\":" SCHEMA "}}}",
     GRAMMAR_JSON_SCHEMA, SCHEMA},
    {"{\"structured_outputs\":{\"json\":" SCHEMA "}}", GRAMMAR_JSON_SCHEMA, SCHEMA},
    {"{\"structured_outputs\":{\"json\":\"{\\\"type\\\": \\\"null\\\"}\"}}", GRAMMAR_JSON_SCHEMA,
     "{\"type\": \"null\"}"},
    {"{\"structured_outputs\":{\"json_object\":true,\"json\":null}}", GRAMMAR_JSON_OBJECT, ""},
    {"{\"structured_outputs\":{\"json_object\":false,\"regex\":\"a+\"}}", GRAMMAR_REGEX, "a+"},
    {"{\"structured_outputs\":{\"choice\":[\"x\",\"\\u00e9\\\"\"],\"disable_fallback\":true}}",
     GRAMMAR_CHOICE, "[\"x\",\"\xc3\xa9\\\"\"]"},
    {"{\"structured_outputs\":{\"grammar\":\"root ::= \\\"x\\\"\"}}", GRAMMAR_EBNF,
     "root ::= \"x\""},
    {"{\"guided_json\":{},\"guided_decoding_backend\":\"xgrammar\"}", GRAMMAR_JSON_SCHEMA, "{}"},
    {"{\"guided_regex\":\"[0-9]\",\"guided_whitespace_pattern\":null}", GRAMMAR_REGEX, "[0-9]"},
    {"{\"guided_choice\":[\"a\"],\"response_format\":{\"type\":\"text\"}}", GRAMMAR_CHOICE,
     "[\"a\"]"},
    {"{\"guided_grammar\":\"root ::= [a-z]\"}", GRAMMAR_EBNF, "root ::= [a-z]"},
    {"{\"grammar\":\"root ::= [a-z]\"}", GRAMMAR_EBNF, "root ::= [a-z]"},
};

Test(openai_grammar, every_field_arrives_as_a_source)
{
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct openai_grammar grammar;
        struct openai_error error = {.message = ""};
        cr_assert_eq(read(rows[i].body, NULL, &grammar, &error), STATUS_OK, "%s: %s", rows[i].body,
                     error.message);
        cr_expect_eq(grammar.kind, rows[i].kind, "%s", rows[i].body);
        cr_expect(grammar.source.size == strlen(rows[i].source) &&
                      (grammar.source.size == 0 ||
                       memcmp(grammar.source.data, rows[i].source, grammar.source.size) == 0),
                  "%s gave %.*s", rows[i].body, (int)grammar.source.size, grammar.source.data);
        openai_grammar_free(&grammar);
    }
}

static const struct {
    const char *body, *param, *message; /* a part of it */
} bads[] = {
    {"{\"response_format\":\"json\"}", "response_format", "an object"},
    {"{\"response_format\":{}}", "response_format", "with a `type`"},
    {"{\"response_format\":{\"type\":7}}", "response_format", "with a `type`"},
    {"{\"response_format\":{\"type\":\"structural_tag\"}}", "response_format",
     "\"structural_tag\""},
    {"{\"response_format\":{\"type\":\"json_schema\"}}", "response_format", "`name`"},
    {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\"}}}",
     "response_format", "json_schema.schema` must be an object"},
    {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":1,\"schema\":{}}}}",
     "response_format", "json_schema.name` must be a string"},
    {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":1,"
     "\"schema\":{}}}}",
     "response_format", "json_schema.strict` must be a boolean"},
    {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":"
     "{\"properties\":{\"a\":{\"type\":\"strin\"}}}}}}",
     "response_format", "#/properties/a"},
    {"{\"structured_outputs\":[]}", "structured_outputs", "an object"},
    {"{\"structured_outputs\":{\"json\":7}}", "structured_outputs.json", "is 7"},
    {"{\"structured_outputs\":{\"json\":\"{\"}}", "structured_outputs.json", "cannot be met"},
    {"{\"structured_outputs\":{\"regex\":[\"a\"]}}", "structured_outputs.regex", "a string"},
    {"{\"structured_outputs\":{\"regex\":\"a(\"}}", "structured_outputs.regex", "column"},
    {"{\"structured_outputs\":{\"choice\":[]}}", "structured_outputs.choice",
     "must be an array of strings that is not empty, but is an empty array."},
    {"{\"structured_outputs\":{\"choice\":[\"a\",1]}}", "structured_outputs.choice",
     "`structured_outputs.choice[1]` must be a string, but is 1."},
    {"{\"structured_outputs\":{\"grammar\":\"root ::= (\"}}", "structured_outputs.grammar", "line"},
    {"{\"structured_outputs\":{\"json_object\":1}}", "structured_outputs.json_object", "a boolean"},
    {"{\"structured_outputs\":{\"structural_tag\":\"{}\"}}", "structured_outputs.structural_tag",
     "not supported"},
    {"{\"structured_outputs\":{\"regex\":\"a\",\"whitespace_pattern\":\" \"}}",
     "structured_outputs.whitespace_pattern", "not supported"},
    {"{\"guided_json\":{},\"guided_whitespace_pattern\":\" *\"}", "guided_whitespace_pattern",
     "not supported"},
    {"{\"guided_choice\":\"a\"}", "guided_choice", "\"a\""},
    {"{\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"a\"]}}", "structured_outputs.choice",
     "`structured_outputs.regex` and `structured_outputs.choice`"},
    {"{\"response_format\":{\"type\":\"json_object\"},\"guided_regex\":\"a\"}", "guided_regex",
     "`response_format` and `guided_regex`"},
};

Test(openai_grammar, refuses_with_the_field_and_the_place)
{
    for (size_t i = 0; i < ARRAY_COUNT(bads); i++) {
        struct openai_grammar grammar;
        struct openai_error error = {.message = ""};
        cr_assert_eq(read(bads[i].body, NULL, &grammar, &error), STATUS_INVALID, "accepted: %s",
                     bads[i].body);
        cr_expect_eq(error.http_status, 400);
        cr_expect_str_eq(error.param, bads[i].param, "%s named %s", bads[i].body, error.param);
        cr_expect(strstr(error.message, bads[i].message), "%s: %s", bads[i].body, error.message);
        openai_grammar_free(&grammar);
    }
}

/* What was good once is good again, what was not is refused again, and all that is more than are
 * remembered is looked at anew. */
Test(openai_grammar, what_is_remembered_changes_nothing)
{
    struct openai_grammars *known = openai_grammars_create();
    char body[64];
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 1500; i++) {
            struct openai_grammar grammar;
            struct openai_error error;
            const bool good = i % 3 != 0;
            snprintf(body, sizeof body, "{\"guided_regex\":\"%u%s\"}", i, good ? "" : "(");
            cr_assert_eq(read(body, known, &grammar, &error), good ? STATUS_OK : STATUS_INVALID);
            openai_grammar_free(&grammar);
        }
    }
    openai_grammars_destroy(known);
}

Test(openai_grammar, a_source_has_its_limit)
{
    struct openai_grammars *known = openai_grammars_create();
    for (uint32_t over = 0; over < 2; over++) {
        struct openai_grammar grammar = {.kind = GRAMMAR_JSON_OBJECT};
        struct openai_error error = {.message = ""};
        for (uint32_t i = 0; i < OPENAI_GRAMMAR_BYTES_MAX + over; i++)
            buffer_add_char(&grammar.source, ' ');
        const enum status status = openai_grammar_check(&grammar, "tools", known, &error);
        cr_assert_eq(status, over ? STATUS_INVALID : STATUS_OK, "%s", error.message);
        openai_grammar_free(&grammar);
        if (over)
            cr_assert(strstr(error.message, "262145 bytes; the limit is 262144"), "%s",
                      error.message);
    }
    openai_grammars_destroy(known);
}
