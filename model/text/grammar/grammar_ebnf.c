/* Rules as llama.cpp writes them: name ::= alternatives | of "texts", [sets], names and (groups),
 * repeated by * + ? {m} {m,} {m,n}. A rule ends with its line, but not within parentheses and not
 * behind ::= or |. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "model/text/grammar/grammar_json_internal.h"
#include "model/text/grammar/grammar_regex_internal.h"

struct name {
    const char *text;
    size_t bytes, used_at; /* where it was met first */
    uint32_t rule;
    bool defined;
};

struct ebnf_parser {
    struct grammar_build *build;
    const char *text;
    size_t bytes, at;
    struct name *names; /* [name_count], and which slot has which (index + 1) */
    uint32_t *slots;
    uint32_t name_count, depth;
};
enum { NAME_SLOTS = 1 << 14, NAME_SHOWN = 60 };

static bool fail(struct ebnf_parser *parser, enum status status, size_t at, const char *sentence)
{
    size_t line = 1;
    size_t column = 1;
    for (size_t i = 0; i < at && i < parser->bytes; i++) {
        column = parser->text[i] == '\n' ? 1 : column + 1;
        line += parser->text[i] == '\n' ? 1 : 0;
    }
    return build_fail(parser->build, status, "line %zu, column %zu: %s", line, column, sentence);
}

static char peek(const struct ebnf_parser *parser)
{
    return parser->at < parser->bytes && parser->build->status == STATUS_OK
               ? parser->text[parser->at]
               : '\0';
}

static bool word_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

/* Blanks, comments, and with `lines` line ends. */
static void space_skip(struct ebnf_parser *parser, bool lines)
{
    for (char c = peek(parser);; c = peek(parser)) {
        if (c == '#')
            while (peek(parser) != '\0' && peek(parser) != '\n')
                parser->at++;
        else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n'))
            parser->at++;
        else
            return;
    }
}

/* The rule of a name, made when it is new. */
static struct name *name_find(struct ebnf_parser *parser, size_t begin, size_t bytes)
{
    const char *text = parser->text + begin;
    uint32_t slot = (uint32_t)hash64(text, bytes, hash_process_key()) % NAME_SLOTS;
    for (; parser->slots[slot] != 0; slot = (slot + 1) % NAME_SLOTS) {
        struct name *name = &parser->names[parser->slots[slot] - 1];
        if (name->bytes == bytes && memcmp(name->text, text, bytes) == 0)
            return name;
    }
    char shown[NAME_SHOWN + 1];
    snprintf(shown, sizeof shown, "%.*s", (int)(bytes < NAME_SHOWN ? bytes : NAME_SHOWN), text);
    const uint32_t rule = build_rule(parser->build, shown);
    if (parser->build->status != STATUS_OK)
        return NULL;
    parser->slots[slot] = parser->name_count + 1;
    parser->names[parser->name_count] =
        (struct name){.text = text, .bytes = bytes, .used_at = begin, .rule = rule};
    return &parser->names[parser->name_count++];
}

static struct name *name_read(struct ebnf_parser *parser)
{
    const size_t begin = parser->at;
    while (word_character(peek(parser)))
        parser->at++;
    if (parser->at == begin) {
        fail(parser, STATUS_INVALID, begin, "a rule's name is expected");
        return NULL;
    }
    return name_find(parser, begin, parser->at - begin);
}

static bool hex_read(struct ebnf_parser *parser, uint32_t digits, uint32_t *out)
{
    const size_t begin = parser->at;
    *out = 0;
    for (uint32_t i = 0; i < digits; i++, parser->at++) {
        const char c = peek(parser);
        const char low = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            *out = *out << 4 | (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f')
            *out = *out << 4 | (uint32_t)(low - 'a' + 10);
        else
            return fail(parser, STATUS_INVALID, begin, "a hexadecimal digit is missing");
    }
    if (*out > POINT_MAX || (*out >= 0xd800 && *out < 0xe000))
        return fail(parser, STATUS_INVALID, begin, "this is no code point");
    return true;
}

/* One character of a text or a set. */
static bool character_read(struct ebnf_parser *parser, uint32_t *out)
{
    static const char names[] = "nrt\\\"[]-^";
    static const char values[] = "\n\r\t\\\"[]-^";
    if (peek(parser) != '\\') {
        const int count = utf8_sequence((const uint8_t *)parser->text + parser->at,
                                        parser->bytes - parser->at, out);
        if (count <= 0)
            return fail(parser, STATUS_INVALID, parser->at, "these bytes are no UTF-8");
        parser->at += (size_t)count;
        return true;
    }
    const size_t begin = parser->at++;
    const char letter = peek(parser);
    const char *named = letter != '\0' ? strchr(names, letter) : NULL;
    parser->at++;
    if (named != NULL) {
        *out = (uint8_t)values[named - names];
        return true;
    }
    if (letter == 'x' || letter == 'u' || letter == 'U')
        return hex_read(parser, letter == 'x' ? 2 : letter == 'u' ? 4 : 8, out);
    return fail(parser, STATUS_INVALID, begin, "there is no such escape");
}

static uint32_t text_read(struct ebnf_parser *parser, uint32_t from)
{
    const size_t begin = parser->at++;
    while (peek(parser) != '"') {
        uint32_t point = 0;
        if (peek(parser) == '\n' || parser->at >= parser->bytes) {
            fail(parser, STATUS_INVALID, begin, "the text is not closed by \"");
            return from;
        }
        if (!character_read(parser, &point))
            return from;
        const uint32_t to = build_state(parser->build);
        build_points(parser->build, from, to, point, point);
        from = to;
    }
    parser->at++;
    return from;
}

static uint32_t set_read(struct ebnf_parser *parser, uint32_t from)
{
    struct point_set set = {0};
    const size_t begin = parser->at++;
    const bool negated = peek(parser) == '^';
    parser->at += negated ? 1 : 0;
    while (peek(parser) != ']' && peek(parser) != '\0') {
        uint32_t low = 0;
        if (!character_read(parser, &low))
            break;
        uint32_t high = low;
        if (peek(parser) == '-' && parser->at + 1 < parser->bytes &&
            parser->text[parser->at + 1] != ']') {
            parser->at++;
            if (!character_read(parser, &high))
                break;
            if (high < low)
                fail(parser, STATUS_INVALID, begin, "a range in the set ends before it begins");
        }
        point_set_add(&set, low, high);
    }
    if (peek(parser) != ']')
        fail(parser, STATUS_INVALID, begin, "the set is not closed by ]");
    parser->at++;
    point_set_finish(&set);
    if (negated)
        point_set_negate(&set);
    const uint32_t to = build_state(parser->build);
    for (uint32_t i = 0; i < set.count; i++)
        build_points(parser->build, from, to, set.ranges[i].low, set.ranges[i].high);
    free(set.ranges);
    return to;
}

static uint32_t alternatives_read(struct ebnf_parser *parser, uint32_t from, bool nested);

static uint32_t group_read(struct ebnf_parser *parser, uint32_t from)
{
    const size_t begin = parser->at++;
    if (++parser->depth > REGEX_DEPTH_MAX) {
        fail(parser, STATUS_LIMIT, begin, "more than 200 groups are open");
        return from;
    }
    space_skip(parser, true);
    const uint32_t to = alternatives_read(parser, from, true);
    parser->depth--;
    if (peek(parser) != ')')
        fail(parser, STATUS_INVALID, begin, "the group is not closed by )");
    parser->at++;
    return to;
}

static uint32_t atom_read(struct ebnf_parser *parser, uint32_t from)
{
    const char c = peek(parser);
    if (c == '"')
        return text_read(parser, from);
    if (c == '[')
        return set_read(parser, from);
    if (c == '(')
        return group_read(parser, from);
    if (c == '.') {
        const uint32_t to = build_state(parser->build);
        parser->at++;
        build_points(parser->build, from, to, 0, POINT_MAX);
        return to;
    }
    if (c == '<') {
        fail(parser, STATUS_UNSUPPORTED, parser->at, "tokens in rules are not supported");
        return from;
    }
    const struct name *name = name_read(parser);
    return name != NULL ? json_call(parser->build, from, name->rule) : from;
}

/* {m}, {m,}, {m,n} */
static bool counts_read(struct ebnf_parser *parser, uint32_t *least, uint32_t *most)
{
    const size_t begin = parser->at++;
    uint32_t values[2] = {0, REGEX_NO_END};
    uint32_t which = 0;
    bool digits = false;
    for (char c = peek(parser); c != '}'; c = peek(parser)) {
        if (c >= '0' && c <= '9') {
            values[which] =
                (values[which] == REGEX_NO_END ? 0 : values[which] * 10) + (uint32_t)(c - '0');
            digits = true;
            if (values[which] > GRAMMAR_REPEAT_MAX)
                return fail(parser, STATUS_LIMIT, begin, "a count is over the limit of 4096");
        } else if (c == ',' && which == 0) {
            which = 1;
        } else if (c != ' ') {
            return fail(parser, STATUS_INVALID, begin, "the counts are not {m}, {m,} or {m,n}");
        }
        parser->at++;
    }
    parser->at++;
    *least = values[0];
    *most = which == 0 ? values[0] : values[1];
    if (!digits || *most < *least)
        return fail(parser, STATUS_INVALID, begin, "the counts are not {m}, {m,} or {m,n}");
    return true;
}

/* A piece that was written between two states of its own, with all that was made since: `first` is
 * the state before it. Writes it again and returns how much further its states are. */
static uint32_t piece_copy(struct grammar_build *build, uint32_t first, uint32_t end)
{
    const uint32_t moved = build->state_count - first;
    for (uint32_t state = first; state < end && build->status == STATUS_OK; state++)
        build_state(build);
    for (uint32_t state = first; state < end && build->status == STATUS_OK; state++)
        for (uint32_t e = build->states[state]; e != BUILD_NONE; e = build->edges[e].next) {
            const struct build_edge edge = build->edges[e];
            if (edge.low == EDGE_CALL)
                build_call(build, state + moved, edge.to + moved, edge.rule);
            else if (edge.low == EDGE_NONE)
                build_empty(build, state + moved, edge.to + moved);
            else
                build_range(build, state + moved, edge.to + moved, edge.low, edge.high);
        }
    return moved;
}

/* The piece from `a` to `b`, whose states are a..end-1, least to most times. */
static uint32_t piece_repeat(struct grammar_build *build, uint32_t from, uint32_t a, uint32_t b,
                             uint32_t least, uint32_t most)
{
    const uint32_t end = build->state_count;
    const uint32_t to = build_state(build);
    const uint32_t copies = most != REGEX_NO_END ? most : least + 1;
    for (uint32_t i = 0; i < copies && build->status == STATUS_OK; i++) {
        const uint32_t moved = i + 1 < copies ? piece_copy(build, a, end) : 0;
        if (i >= least)
            build_empty(build, from, to);
        build_empty(build, from, a + moved);
        from = b + moved;
    }
    if (most == REGEX_NO_END)
        build_empty(build, b, a);
    build_empty(build, from, to);
    return to;
}

static uint32_t sequence_read(struct ebnf_parser *parser, uint32_t from, bool nested)
{
    struct grammar_build *build = parser->build;
    for (;;) {
        const char c = peek(parser);
        if (c == '\0' || c == '|' || c == ')' || c == '\n')
            return from;
        const uint32_t a = build_state(build);
        const uint32_t b = atom_read(parser, a);
        uint32_t least = 1;
        uint32_t most = 1;
        space_skip(parser, nested);
        const char mark = peek(parser);
        if (mark == '*' || mark == '+' || mark == '?') {
            parser->at++;
            least = mark == '+' ? 1 : 0;
            most = mark == '?' ? 1 : REGEX_NO_END;
        } else if (mark == '{' && !counts_read(parser, &least, &most)) {
            return from;
        }
        from = piece_repeat(build, from, a, b, least, most);
        space_skip(parser, nested);
    }
}

static uint32_t alternatives_read(struct ebnf_parser *parser, uint32_t from, bool nested)
{
    struct grammar_build *build = parser->build;
    const uint32_t to = build_state(build);
    for (;;) {
        const uint32_t begin = build_state(build);
        build_empty(build, from, begin);
        build_empty(build, sequence_read(parser, begin, nested), to);
        const size_t behind = parser->at;
        space_skip(parser, true); // a line may begin with |
        if (peek(parser) != '|') {
            parser->at = nested ? parser->at : behind;
            return to;
        }
        parser->at++;
        space_skip(parser, true);
    }
}

static void rule_read(struct ebnf_parser *parser)
{
    struct grammar_build *build = parser->build;
    const size_t begin = parser->at;
    struct name *name = name_read(parser);
    if (name == NULL)
        return;
    if (name->defined)
        fail(parser, STATUS_INVALID, begin, "this rule has been defined before");
    name->defined = true;
    space_skip(parser, false);
    if (parser->bytes - parser->at < 3 || memcmp(parser->text + parser->at, "::=", 3) != 0) {
        fail(parser, STATUS_INVALID, parser->at, "::= is expected after a rule's name");
        return;
    }
    parser->at += 3;
    space_skip(parser, true);
    const uint32_t rule = name->rule;
    const uint32_t to = alternatives_read(parser, build->rules[rule].start, false);
    build_empty(build, to, build->rules[rule].final);
    if (peek(parser) == ')')
        fail(parser, STATUS_INVALID, parser->at, "a ) closes nothing");
}

uint32_t ebnf_build(struct grammar_build *build, const char *source, size_t bytes)
{
    struct ebnf_parser parser = {.build = build, .text = source, .bytes = bytes};
    parser.names = calloc(BUILD_RULES_MAX, sizeof *parser.names);
    parser.slots = calloc(NAME_SLOTS, sizeof *parser.slots);
    CHECK(parser.names != NULL && parser.slots != NULL);
    uint32_t root = 0;
    space_skip(&parser, true);
    if (parser.at == bytes)
        fail(&parser, STATUS_INVALID, 0, "there are no rules");
    while (parser.at < bytes && build->status == STATUS_OK) {
        rule_read(&parser);
        space_skip(&parser, true);
    }
    for (uint32_t i = 0; i < parser.name_count; i++) {
        const struct name *name = &parser.names[i];
        if (!name->defined)
            fail(&parser, STATUS_INVALID, name->used_at, "this rule is defined nowhere");
        if (name->bytes == 4 && memcmp(name->text, "root", 4) == 0)
            root = name->rule;
    }
    free(parser.names);
    free(parser.slots);
    return root;
}
