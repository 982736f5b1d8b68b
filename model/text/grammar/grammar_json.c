/* JSON values (RFC 8259) as rules. */
#include "model/text/grammar/grammar_json_internal.h"

uint32_t json_call(struct grammar_build *build, uint32_t from, uint32_t rule)
{
    const uint32_t to = build_state(build);
    build_call(build, from, to, rule);
    return to;
}

uint32_t json_colon(struct grammar_build *build, uint32_t from)
{
    const uint32_t colon = build_text(build, from, ":");
    const uint32_t to = build_state(build);
    build_empty(build, colon, to);
    build_range(build, colon, to, ' ', ' ');
    return to;
}

uint32_t json_digits(struct grammar_build *build, uint32_t from, uint32_t least, uint32_t most)
{
    const uint32_t to = build_state(build);
    for (uint32_t i = 0; i < most; i++) {
        const uint32_t next = build_state(build);
        if (i >= least)
            build_empty(build, from, to);
        build_range(build, from, next, '0', '9');
        from = next;
    }
    build_empty(build, from, to);
    return to;
}

static void hex_digit(struct grammar_build *build, uint32_t from, uint32_t to)
{
    build_range(build, from, to, '0', '9');
    build_range(build, from, to, 'a', 'f');
    build_range(build, from, to, 'A', 'F');
}

static uint32_t hex_digits(struct grammar_build *build, uint32_t from, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t next = build_state(build);
        hex_digit(build, from, next);
        from = next;
    }
    return from;
}

/* Behind \u: a character of the first plane, or two surrogates. */
static void unicode_escape(struct grammar_build *build, uint32_t from, uint32_t to)
{
    const uint32_t plain = build_state(build);
    const uint32_t d = build_state(build);
    const uint32_t high = build_state(build);
    const uint32_t low = build_state(build);
    const uint32_t last = build_state(build);
    build_range(build, from, plain, '0', '9');
    build_range(build, from, plain, 'a', 'c');
    build_range(build, from, plain, 'A', 'C');
    build_range(build, from, plain, 'e', 'f');
    build_range(build, from, plain, 'E', 'F');
    build_empty(build, hex_digits(build, plain, 3), to);
    build_range(build, from, d, 'd', 'd');
    build_range(build, from, d, 'D', 'D');
    const uint32_t single = build_state(build);
    build_range(build, d, single, '0', '7');
    build_empty(build, hex_digits(build, single, 2), to);
    build_range(build, d, high, '8', '9');
    build_range(build, d, high, 'a', 'b');
    build_range(build, d, high, 'A', 'B');
    const uint32_t second = build_text(build, hex_digits(build, high, 2), "\\u");
    build_range(build, second, low, 'd', 'd');
    build_range(build, second, low, 'D', 'D');
    build_range(build, low, last, 'c', 'f');
    build_range(build, low, last, 'C', 'F');
    build_empty(build, hex_digits(build, last, 2), to);
}

static void character(struct grammar_build *build, uint32_t from, uint32_t to)
{
    enum { POINT_LAST = 0x10ffff };
    build_points(build, from, to, ' ', '"' - 1);
    build_points(build, from, to, '"' + 1, '\\' - 1);
    build_points(build, from, to, '\\' + 1, POINT_LAST);
    const uint32_t escaped = build_text(build, from, "\\");
    for (const char *letter = "\"\\/bfnrt"; *letter != '\0'; letter++)
        build_range(build, escaped, to, (uint8_t)*letter, (uint8_t)*letter);
    unicode_escape(build, build_text(build, escaped, "u"), to);
}

uint32_t json_string_of(struct grammar_build *build, const struct json_rules *rules, uint32_t from,
                        uint32_t at_least, uint32_t at_most)
{
    enum { WRITTEN_OUT_MAX = 64 }; // longer ones call a rule for each character
    const uint32_t written = at_most != UINT32_MAX ? at_most : at_least;
    const uint32_t end = build_state(build);
    uint32_t at = build_text(build, from, "\"");
    for (uint32_t i = 0; i < written && build->status == STATUS_OK; i++) {
        const uint32_t next = build_state(build);
        if (i >= at_least)
            build_empty(build, at, end);
        if (written <= WRITTEN_OUT_MAX)
            character(build, at, next);
        else
            build_call(build, at, next, rules->character);
        at = next;
    }
    if (at_most == UINT32_MAX) {
        const uint32_t loop = build_state(build);
        build_empty(build, at, loop);
        character(build, loop, loop);
        at = loop;
    }
    build_empty(build, at, end);
    return build_text(build, end, "\"");
}

static void number(struct grammar_build *build, uint32_t from, uint32_t to, bool whole)
{
    const uint32_t sign = build_state(build);
    const uint32_t digits = build_state(build);
    build_empty(build, from, sign);
    build_range(build, from, sign, '-', '-');
    build_range(build, sign, digits, '0', '0');
    const uint32_t first = build_state(build);
    build_range(build, sign, first, '1', '9');
    build_empty(build, json_digits(build, first, 0, JSON_WHOLE_DIGITS - 1), digits);
    build_empty(build, digits, to);
    if (whole)
        return;
    const uint32_t power = build_state(build);
    build_empty(build, digits, power);
    const uint32_t fraction =
        json_digits(build, build_text(build, digits, "."), 1, JSON_FRACTION_DIGITS);
    build_empty(build, fraction, power);
    build_empty(build, fraction, to);
    const uint32_t e = build_state(build);
    const uint32_t power_sign = build_state(build);
    build_range(build, power, e, 'e', 'e');
    build_range(build, power, e, 'E', 'E');
    build_empty(build, e, power_sign);
    build_range(build, e, power_sign, '+', '+');
    build_range(build, e, power_sign, '-', '-');
    build_empty(build, json_digits(build, power_sign, 1, 2), to);
}

static void blank(struct grammar_build *build, uint32_t from, uint32_t to)
{
    build_empty(build, from, to);
    build_range(build, from, to, ' ', ' ');
    uint32_t at = build_text(build, from, "\n");
    for (uint32_t i = 0; i < JSON_BREAK_BLANKS; i++) {
        const uint32_t next = build_state(build);
        build_empty(build, at, to);
        build_range(build, at, next, ' ', ' ');
        build_range(build, at, next, '\t', '\t');
        at = next;
    }
    build_empty(build, at, to);
}

/* open (item (, item)*)? close */
static void items(struct grammar_build *build, const struct json_rules *rules, uint32_t from,
                  uint32_t to, bool members)
{
    const uint32_t open =
        json_call(build, build_text(build, from, members ? "{" : "["), rules->blank);
    uint32_t at = open;
    if (members)
        at = json_colon(build, json_call(build, at, rules->string));
    const uint32_t item = json_call(build, at, rules->value);
    build_empty(build, json_call(build, build_text(build, item, ","), rules->blank), open);
    const char *close = members ? "}" : "]";
    build_empty(build, build_text(build, json_call(build, item, rules->blank), close), to);
    const uint32_t begin = build_text(build, from, members ? "{" : "[");
    build_empty(build, build_text(build, json_call(build, begin, rules->blank), close), to);
}

void json_rules_build(struct grammar_build *build, struct json_rules *rules)
{
    rules->string = build_rule(build, NULL);
    rules->integer = build_rule(build, NULL);
    rules->number = build_rule(build, NULL);
    rules->value = build_rule(build, NULL);
    rules->object = build_rule(build, NULL);
    rules->array = build_rule(build, NULL);
    rules->blank = build_rule(build, NULL);
    rules->character = build_rule(build, NULL);
    if (build->status != STATUS_OK)
        return;
    const struct build_rule *rule = build->rules;
    build_empty(build, json_string_of(build, rules, rule[rules->string].start, 0, UINT32_MAX),
                rule[rules->string].final);
    character(build, rule[rules->character].start, rule[rules->character].final);
    number(build, rule[rules->integer].start, rule[rules->integer].final, true);
    number(build, rule[rules->number].start, rule[rules->number].final, false);
    blank(build, rule[rules->blank].start, rule[rules->blank].final);
    items(build, rules, rule[rules->object].start, rule[rules->object].final, true);
    items(build, rules, rule[rules->array].start, rule[rules->array].final, false);
    const uint32_t start = rule[rules->value].start;
    const uint32_t final = rule[rules->value].final;
    build_call(build, start, final, rules->string);
    build_call(build, start, final, rules->number);
    build_call(build, start, final, rules->object);
    build_call(build, start, final, rules->array);
    build_empty(build, build_text(build, start, "true"), final);
    build_empty(build, build_text(build, start, "false"), final);
    build_empty(build, build_text(build, start, "null"), final);
}

void json_object_build(struct grammar_build *build, uint32_t from, uint32_t to)
{
    struct json_rules rules;
    json_rules_build(build, &rules);
    build_call(build, from, to, rules.object);
}
