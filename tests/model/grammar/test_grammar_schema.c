/* Schemas: documents that fit and that do not, and schemas that are refused with their place. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/check.h"
#include "tests/model/grammar/grammar_case.h"

enum { CACHE_BYTES = 1 << 18 };

/* Four values: two of the five are the same number. */
#define FEW "{\"enum\":[1,12,1.0,\"a\",null]}"

static const struct {
    const char *schema, *document;
    bool fits;
} documents[] = {
    {"true", "[1, {\"a\":null}]", true},
    {"{\"type\":\"object\"}", "{\"a\":{},\n  \"b\": [ ]}", true},
    {"{\"type\":\"object\"}", "{\"a\":1,}", false},
    {"{\"type\":\"object\"}", "{\"a\" :1}", false},
    {"{\"type\":\"object\"}", "{\"a\":  1}", false},
    {"{\"type\":\"array\"}", "[1, ]", false},
    {"{\"type\":\"array\"}", "[[], [1, 2]]", true},
    {"{\"type\":[\"string\",\"null\"]}", "\"\\ud83d\\ude00 \\n\xc3\xa9\"", true},
    {"{\"type\":\"string\"}", "\"\\ud83d\"", false},
    {"{\"type\":\"string\"}", "\"\xff\"", false},
    {"{\"type\":\"string\"}", "\"\n\"", false},
    {"{\"type\":\"integer\"}", "-0", true},
    {"{\"type\":\"integer\"}", "01", false},
    {"{\"type\":\"integer\"}", "999999999999999999", true},
    {"{\"type\":\"integer\"}", "9999999999999999999", false},
    {"{\"type\":\"number\"}", "-1.50e-07", true},
    {"{\"type\":\"number\"}", "1.", false},
    {"{\"type\":\"integer\",\"minimum\":7,\"maximum\":120}", "7", true},
    {"{\"type\":\"integer\",\"minimum\":7,\"maximum\":120}", "6", false},
    {"{\"type\":\"integer\",\"minimum\":7,\"maximum\":120}", "120", true},
    {"{\"type\":\"integer\",\"minimum\":7,\"maximum\":120}", "121", false},
    {"{\"type\":\"integer\",\"minimum\":7,\"maximum\":120}", "1200", false},
    {"{\"type\":\"integer\",\"minimum\":-7.5,\"exclusiveMaximum\":0}", "-7", true},
    {"{\"type\":\"integer\",\"minimum\":-7.5,\"exclusiveMaximum\":0}", "-8", false},
    {"{\"type\":\"integer\",\"minimum\":-7.5,\"exclusiveMaximum\":0}", "0", false},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0.25,\"maximum\":2}", "0.25", false},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0.25,\"maximum\":2}", "0.2500", false},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0.25,\"maximum\":2}", "0.2501", true},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0.25,\"maximum\":2}", "2.000", true},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0.25,\"maximum\":2}", "2.001", false},
    {"{\"type\":\"number\",\"minimum\":0,\"exclusiveMinimum\":true}", "0.0", false},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"\xc3\xa9\\u00e9\"", true},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"a\"", false},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"\\ud83d\\ude00bcd\"", false},
    {"{\"type\":\"string\",\"maxLength\":100}", "\"\"", true},
    {"{\"type\":\"string\",\"pattern\":\"b+\"}", "\"abc\"", true},
    {"{\"type\":\"string\",\"pattern\":\"^b+$\"}", "\"abc\"", false},
    {"{\"type\":\"string\",\"pattern\":\"^.\\\"\\\\\\\\$\"}", "\"a\\\"\\\\\"", true},
    {"{\"type\":\"string\",\"pattern\":\"^a\",\"maxLength\":2}", "\"ab\"", true},
    {"{\"type\":\"string\",\"pattern\":\"^a\",\"maxLength\":2}", "\"abc\"", false},
    {"{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-28\"", true},
    {"{\"type\":\"string\",\"format\":\"date\"}", "\"2024-02-30\"", false},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}", "\"10.0.255.1\"", true},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}", "\"10.0.256.1\"", false},
    {"{\"enum\":[1,\"a\",[true],{\"k\":null}]}", "{\"k\":null}", true},
    {"{\"uniqueItems\":true,\"items\":" FEW "}", "[]", true},
    {"{\"uniqueItems\":true,\"items\":" FEW "}", "[12, \"a\",1,\n null]", true},
    {"{\"uniqueItems\":true,\"items\":" FEW "}", "[\"a\", 1, \"a\"]", false},
    {"{\"uniqueItems\":true,\"items\":" FEW "}", "[1, 12, 1.0]", false},
    {"{\"uniqueItems\":true,\"items\":" FEW "}", "[1, ]", false},
    {"{\"uniqueItems\":true,\"items\":" FEW ",\"minItems\":2,\"maxItems\":3}", "[1]", false},
    {"{\"uniqueItems\":true,\"items\":" FEW ",\"minItems\":2,\"maxItems\":3}", "[1, null]", true},
    {"{\"uniqueItems\":true,\"items\":" FEW ",\"minItems\":2,\"maxItems\":3}",
     "[1, null, 12, \"a\"]", false},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"},"
     "{\"type\":\"string\"}]},\"$defs\":{\"a\":" FEW "}}",
     "[\"a\"]", true},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"},"
     "{\"type\":\"string\"}]},\"$defs\":{\"a\":" FEW "}}",
     "[1]", false},
    {"{\"enum\":[1,\"a\"],\"type\":\"string\"}", "1", false},
    {"{\"enum\":[1.5,1],\"multipleOf\":1}", "1.5", false},
    {"{\"enum\":[1.5,1],\"multipleOf\":1}", "1", true},
    {"{\"type\":\"integer\",\"maximum\":9223372036854775807}", "123456789012345678", true},
    {"{\"const\":\"a\\nb\"}", "\"a\\nb\"", true},
    {"{\"items\":{\"type\":\"integer\"},\"type\":\"array\",\"minItems\":1,\"maxItems\":2}", "[]",
     false},
    {"{\"items\":{\"type\":\"integer\"},\"type\":\"array\",\"minItems\":1,\"maxItems\":2}",
     "[1, 2]", true},
    {"{\"items\":{\"type\":\"integer\"},\"type\":\"array\",\"minItems\":1,\"maxItems\":2}",
     "[1,2,3]", false},
    {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":false}", "[1]", true},
    {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":false}", "[1,1]", false},
    {"{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true,\"c\":true},\"required\":[\"b\"]}",
     "{\"b\":1}", true},
    {"{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true,\"c\":true},\"required\":[\"b\"]}",
     "{\"a\":1, \"c\":2}", false},
    {"{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true,\"c\":true},\"required\":[\"b\"]}",
     "{\"b\":1, \"c\":2}", true},
    {"{\"type\":\"object\",\"properties\":{\"a\":true}}", "{\"x\":1}", false},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":true}",
     "{\"x\":2}", true},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":true}",
     "{\"a\":2}", false},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":true}",
     "{\"\\u0061\":2}", false},
    {"{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":{\"type\":\"string\"}}",
     "{\"x1\":1, \"y\":\"\"}", true},
    {"{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"}},"
     "\"additionalProperties\":{\"type\":\"string\"}}",
     "{\"x1\":\"\"}", false},
    {"{\"type\":\"object\",\"maxProperties\":1}", "{\"a\":1}", true},
    {"{\"type\":\"object\",\"maxProperties\":1}", "{\"a\":1,\"b\":1}", false},
    {"{\"type\":\"object\",\"minProperties\":1}", "{}", false},
    {"{\"allOf\":[{\"minimum\":3},{\"maximum\":3}],\"type\":\"integer\"}", "3", true},
    {"{\"allOf\":[{\"minimum\":3},{\"maximum\":3}],\"type\":\"integer\"}", "4", false},
    {"{\"anyOf\":[{\"type\":\"string\"},{\"const\":4}]}", "4", true},
    {"{\"oneOf\":[{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"],\"type\":\"object\"},"
     "{\"properties\":{\"k\":{\"const\":2}},\"required\":[\"k\"],\"type\":\"object\"}]}",
     "{\"k\":2}", true},
    {"{\"$ref\":\"#/$defs/a~1b\",\"$defs\":{\"a/b\":{\"type\":\"array\",\"items\":{\"$ref\":"
     "\"#/$defs/a~1b\"}}}}",
     "[[],[[]]]", true},
    {"{\"$ref\":\"#/$defs/a~1b\",\"$defs\":{\"a/b\":{\"type\":\"array\",\"items\":{\"$ref\":"
     "\"#/$defs/a~1b\"}}}}",
     "[1]", false},
};

Test(grammar_schema, documents_fit_or_do_not)
{
    struct grammar_case at;
    grammar_case_open(&at, GRAMMAR_JSON_OBJECT, "", CACHE_BYTES);
    for (size_t i = 0; i < ARRAY_COUNT(documents); i++) {
        grammar_case_source(&at, GRAMMAR_JSON_SCHEMA, documents[i].schema, CACHE_BYTES);
        cr_expect_eq(grammar_case_fits(&at, documents[i].document), documents[i].fits, "%s of %s",
                     documents[i].document, documents[i].schema);
    }
    grammar_case_close(&at);
}

static const struct {
    enum grammar_kind kind;
    enum status status;
    const char *source, *begins;
} refused[] = {
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID, "{\"a\":", "the JSON text"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID, "3", "#: a schema is an object or a boolean"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID, "false", "#: false"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID, "{\"enum\":[]}", "#/enum: "},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID, "{\"type\":\"text\"}", "#/type: "},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID, "{\"minLength\":3,\"maxLength\":2,\"type\":\"string\"}",
     "#/minLength: it is over maxLength"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID,
     "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":false}}",
     "#/properties/a: false"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID,
     "{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}",
     "#/allOf/1/type: no type is left"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID, "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}",
     "#/minimum: "},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID, "{\"$ref\":\"#\"}", "#: this refers to itself"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID, "{\"$ref\":\"#/$defs/x\"}",
     "#/$ref: there is nothing at"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID,
     "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"$ref\":\"#\"}}}",
     "#: no value that ends"},
    {GRAMMAR_JSON_SCHEMA, STATUS_UNSUPPORTED, "{\"$ref\":\"http://x\"}", "#/$ref: only references"},
    {GRAMMAR_JSON_SCHEMA, STATUS_UNSUPPORTED, "{\"properties\":{\"a\":{\"not\":{}}}}",
     "#/properties/a/not: this keyword is not supported"},
    {GRAMMAR_JSON_SCHEMA, STATUS_UNSUPPORTED, "{\"type\":\"integer\",\"multipleOf\":3}",
     "#/multipleOf: "},
    {GRAMMAR_JSON_SCHEMA, STATUS_UNSUPPORTED,
     "{\"oneOf\":[{\"type\":\"string\"},{\"maxLength\":2}]}", "#/oneOf: a value may fit"},
    {GRAMMAR_JSON_SCHEMA, STATUS_UNSUPPORTED, "{\"type\":\"array\",\"uniqueItems\":true}",
     "#/uniqueItems: "},
    {GRAMMAR_JSON_SCHEMA, STATUS_UNSUPPORTED,
     "{\"uniqueItems\":true,\"items\":{\"anyOf\":[" FEW ",{\"type\":\"string\"}]}}",
     "#/uniqueItems: this keyword is supported for at most one item, or for items"},
    {GRAMMAR_JSON_SCHEMA, STATUS_UNSUPPORTED,
     "{\"uniqueItems\":true,\"items\":{\"enum\":[1,2,3,4,5,6,7,8,9,10,11]}}",
     "#/uniqueItems: this keyword is supported for at most one item, or for items"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID,
     "{\"type\":\"array\",\"uniqueItems\":true,\"items\":" FEW ",\"minItems\":5}",
     "#/uniqueItems: minItems is over"},
    {GRAMMAR_JSON_SCHEMA, STATUS_UNSUPPORTED, "{\"pattern\":\"a(?=b)\"}",
     "#/pattern: column 2: looking ahead"},
    {GRAMMAR_JSON_SCHEMA, STATUS_LIMIT, "{\"pattern\":\"(a|b)*a(a|b){20}\"}", "#/pattern: "},
    {GRAMMAR_JSON_SCHEMA, STATUS_LIMIT, "{\"type\":\"array\",\"minItems\":5000}", "#/minItems: "},
    {GRAMMAR_REGEX, STATUS_INVALID, "a(b", "column 2: the group is not closed"},
    {GRAMMAR_REGEX, STATUS_INVALID, "ab)", "column 3: "},
    {GRAMMAR_REGEX, STATUS_INVALID, "*a", "column 1: there is nothing to repeat"},
    {GRAMMAR_REGEX, STATUS_INVALID, "a**", "column 3: a repetition is repeated"},
    {GRAMMAR_REGEX, STATUS_INVALID, "[b-a]", "column 1: "},
    {GRAMMAR_REGEX, STATUS_INVALID, "\xff", "column 1: these bytes are no UTF-8"},
    {GRAMMAR_REGEX, STATUS_UNSUPPORTED, "(a)\\1", "column 5: back-references"},
    {GRAMMAR_REGEX, STATUS_UNSUPPORTED, "a\\b", "column 3: word boundaries"},
    {GRAMMAR_REGEX, STATUS_UNSUPPORTED, "(?i)a", "column 1: flags"},
    {GRAMMAR_REGEX, STATUS_LIMIT, "a{5000}", "column 2: a count is over the limit of 4096"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID, "{\"type\":\"object\",\"required\":null}",
     "#/required: it is an array"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID, "{\"allOf\":[{\"required\":3},{\"type\":\"object\"}]}",
     "#/allOf/0/required: it is an array"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID, "{\"required\":\"a\"}", "#/required: it is an array"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID, "{\"type\":\"array\",\"uniqueItems\":\"x\"}",
     "#/uniqueItems: "},
    {GRAMMAR_JSON_SCHEMA, STATUS_UNSUPPORTED, "{\"enum\":[3,4],\"multipleOf\":2}",
     "#/multipleOf: "},
    {GRAMMAR_JSON_SCHEMA, STATUS_UNSUPPORTED, "{\"type\":\"integer\",\"minimum\":9007199254740993}",
     "#/minimum: a bound from 2^53"},
    {GRAMMAR_JSON_SCHEMA, STATUS_UNSUPPORTED, "{\"maximum\":-123456789012345678}",
     "#/maximum: a bound from 2^53"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID,
     "{\"allOf\":[{\"enum\":[9007199254740993]},{\"enum\":[9007199254740992.0]}]}",
     "#/allOf/0/enum: none"},
    {GRAMMAR_JSON_SCHEMA, STATUS_INVALID,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"b\"],"
     "\"unevaluatedProperties\":false}",
     "#"},
    {GRAMMAR_REGEX, STATUS_LIMIT, "(a{1000}){1000}", "the grammar has more than"},
    {GRAMMAR_REGEX, STATUS_INVALID, "a$b", "nothing fits"},
    {GRAMMAR_CHOICE, STATUS_INVALID, "[]", "a choice is an array"},
    {GRAMMAR_CHOICE, STATUS_INVALID, "[1]", "item 0 of the choice"},
    {GRAMMAR_EBNF, STATUS_INVALID, "", "line 1, column 1: there are no rules"},
    {GRAMMAR_EBNF, STATUS_INVALID, "root ::= \"a\"\nx = 1", "line 2, column 3: ::= is expected"},
    {GRAMMAR_EBNF, STATUS_INVALID, "root ::= a", "line 1, column 10: this rule is defined nowhere"},
    {GRAMMAR_EBNF, STATUS_INVALID, "root ::= root", "nothing fits"},
    {GRAMMAR_EBNF, STATUS_UNSUPPORTED, "root ::= root \"a\" | \"b\"",
     "root: this begins with itself"},
    {GRAMMAR_STRUCTURE, STATUS_INVALID, "{}", "a structure is an object"},
    {GRAMMAR_STRUCTURE, STATUS_INVALID, "{\"parts\":[{\"other\":1}]}", "a structure has no part"},
    {GRAMMAR_STRUCTURE, STATUS_INVALID, "{\"parts\":[{\"schema\":{\"type\":1}}]}", "#/type: "},
};

Test(grammar_schema, what_cannot_be_kept_is_refused_with_its_place)
{
    for (size_t i = 0; i < ARRAY_COUNT(refused); i++) {
        struct grammar *grammar = NULL;
        struct error error = {0};
        const char *source = refused[i].source;
        const enum status status =
            grammar_compile(refused[i].kind, source, strlen(source), &grammar, &error);
        cr_expect_eq(status, refused[i].status, "%s: %s %s", source, status_name(status),
                     error.text);
        cr_expect(strncmp(error.text, refused[i].begins, strlen(refused[i].begins)) == 0, "%s: %s",
                  source, error.text);
        if (status == STATUS_OK)
            grammar_free(grammar);
    }
}

/* As many branches as a request may have tools, each of which is a rule of its own. */
Test(grammar_schema, a_structure_of_128_branches)
{
    enum { BRANCHES = 128 };
    struct grammar_case at;
    struct buffer source = {0};
    buffer_add_text(&source, "{\"parts\":[{\"any\":[");
    for (int i = 0; i < BRANCHES; i++) {
        char branch[120];
        snprintf(branch, sizeof branch,
                 "%s{\"parts\":[{\"text\":\"f%d(\"},{\"schema\":{\"type\":\"integer\"}},"
                 "{\"text\":\")\"}]}",
                 i > 0 ? "," : "", i);
        buffer_add_text(&source, branch);
    }
    buffer_add_text(&source, "]}],\"repeat\":[1,8],\"separator\":\";\"}");
    grammar_case_open(&at, GRAMMAR_STRUCTURE, source.data, CACHE_BYTES);
    grammar_case_check(&at);
    cr_expect(grammar_case_fits(&at, "f127(3)"));
    cr_expect(grammar_case_fits(&at, "f0(-1);f99(12)"));
    cr_expect_not(grammar_case_fits(&at, "f128(3)"));
    cr_expect_null(grammar_matcher_limit(at.matcher));
    grammar_case_close(&at);
    buffer_free(&source);
}

/* Whose branches are told apart by names, of which there are very many: refused by a count of what
 * was compared, whatever the machine. */
Test(grammar_schema, many_required_names_in_one_of)
{
    struct buffer source = {0};
    struct error error = {0};
    struct grammar *grammar;
    buffer_add_text(&source, "{\"oneOf\":[");
    for (int branch = 0; branch < 2; branch++) {
        buffer_add_text(&source, branch > 0 ? ",{\"type\":\"object\",\"required\":["
                                            : "{\"type\":\"object\",\"required\":[");
        for (int i = 0; i < 12000; i++) {
            char name[16];
            snprintf(name, sizeof name, "%s\"%05d\"", i > 0 ? "," : "", i);
            buffer_add_text(&source, name);
        }
        buffer_add_text(&source, "]}");
    }
    buffer_add_text(&source, "]}");
    cr_expect_eq(grammar_compile(GRAMMAR_JSON_SCHEMA, source.data, source.size, &grammar, &error),
                 STATUS_UNSUPPORTED);
    cr_expect(strncmp(error.text, "#/oneOf: ", 9) == 0, "%s", error.text);
    buffer_free(&source);
}

Test(grammar_schema, brackets_by_the_ten_thousand_are_refused)
{
    static const struct {
        enum grammar_kind kind;
        const char *before, *repeated;
    } rows[] = {{GRAMMAR_JSON_SCHEMA, "", "["},   {GRAMMAR_JSON_SCHEMA, "", "{\"allOf\":["},
                {GRAMMAR_REGEX, "", "("},         {GRAMMAR_REGEX, "", "(a*"},
                {GRAMMAR_EBNF, "root ::= ", "("}, {GRAMMAR_STRUCTURE, "", "{\"parts\":["},
                {GRAMMAR_CHOICE, "", "["}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer source = {0};
        struct error error = {0};
        struct grammar *grammar;
        buffer_add_text(&source, rows[i].before);
        while (source.size < GRAMMAR_SOURCE_BYTES_MAX - 64)
            buffer_add_text(&source, rows[i].repeated);
        const enum status status =
            grammar_compile(rows[i].kind, source.data, source.size, &grammar, &error);
        cr_expect_neq(status, STATUS_OK, "row %zu", i);
        cr_expect_neq(error.text[0], '\0');
        buffer_free(&source);
    }
}
