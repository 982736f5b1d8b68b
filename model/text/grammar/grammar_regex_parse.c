/* Reading regular expressions: alternatives, sets, groups, repetitions, ^ and $. What looks around
 * or back has no automaton and is refused by its name. */
#include <stdlib.h>

#include "base/check.h"
#include "base/utf8.h"
#include "model/text/grammar/grammar_regex_internal.h"

struct regex_parser {
    struct grammar_build *build;
    struct regex *regex;
    const char *text;
    size_t bytes, at;
    uint32_t depth;
    bool schema;
};

static bool fail(struct regex_parser *parser, enum status status, size_t at, const char *sentence)
{
    struct grammar_build *build = parser->build;
    return build_fail(build, status, "%s%scolumn %zu: %s", build->place,
                      build->place[0] != '\0' ? ": " : "", at + 1, sentence);
}

static uint32_t node_add(struct regex_parser *parser, struct regex_node node)
{
    struct regex *regex = parser->regex;
    if (regex->node_count >= REGEX_NODES_MAX) {
        fail(parser, STATUS_LIMIT, parser->at, "the expression has more than 65536 parts");
        return 0;
    }
    if (regex->node_count == regex->node_capacity) {
        regex->node_capacity = regex->node_capacity > 0 ? regex->node_capacity * 2 : 32;
        regex->nodes = realloc(regex->nodes, regex->node_capacity * sizeof *regex->nodes);
        CHECK(regex->nodes != NULL);
    }
    regex->nodes[regex->node_count] = node;
    return regex->node_count++;
}

/* A node for the set, whose memory it takes. */
static uint32_t set_node(struct regex_parser *parser, struct point_set *set)
{
    struct regex *regex = parser->regex;
    const uint32_t begin = regex->range_count;
    point_set_finish(set);
    for (uint32_t i = 0; i < set->count; i++) {
        if (regex->range_count == regex->range_capacity) {
            regex->range_capacity = regex->range_capacity > 0 ? regex->range_capacity * 2 : 32;
            regex->ranges = realloc(regex->ranges, regex->range_capacity * sizeof *regex->ranges);
            CHECK(regex->ranges != NULL);
        }
        regex->ranges[regex->range_count++] = set->ranges[i];
    }
    const uint32_t count = set->count;
    free(set->ranges);
    *set = (struct point_set){0};
    return node_add(parser, (struct regex_node){REGEX_SET, begin, count, 0, 0});
}

static bool more(const struct regex_parser *parser)
{
    return parser->at < parser->bytes && parser->build->status == STATUS_OK;
}

static bool next_is(const struct regex_parser *parser, char c)
{
    return parser->at < parser->bytes && parser->text[parser->at] == c;
}

static bool text_is(const struct regex_parser *parser, const char *text)
{
    const size_t count = strlen(text);
    return parser->bytes - parser->at >= count &&
           memcmp(parser->text + parser->at, text, count) == 0;
}

static bool point_read(struct regex_parser *parser, uint32_t *out)
{
    const int count =
        utf8_sequence((const uint8_t *)parser->text + parser->at, parser->bytes - parser->at, out);
    if (count <= 0)
        return fail(parser, STATUS_INVALID, parser->at, "these bytes are no UTF-8");
    parser->at += (size_t)count;
    return true;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool hex_read(struct regex_parser *parser, uint32_t digits, uint32_t *out)
{
    *out = 0;
    for (uint32_t i = 0; i < digits; i++) {
        const int value = parser->at < parser->bytes ? hex_value(parser->text[parser->at]) : -1;
        if (value < 0)
            return fail(parser, STATUS_INVALID, parser->at, "a hexadecimal digit is missing");
        *out = *out << 4 | (uint32_t)value;
        parser->at++;
    }
    return true;
}

/* Behind \u: four digits, a pair of surrogates, or in braces as ECMA writes it. */
static bool unicode_read(struct regex_parser *parser, uint32_t *out)
{
    const size_t begin = parser->at;
    if (next_is(parser, '{')) {
        uint32_t digit_count = 0;
        for (*out = 0, parser->at++; more(parser) && !next_is(parser, '}'); digit_count++) {
            uint32_t digit;
            if (digit_count == 6 || !hex_read(parser, 1, &digit))
                return fail(parser, STATUS_INVALID, begin, "the code point has over 6 digits");
            *out = *out << 4 | digit;
        }
        if (!next_is(parser, '}') || digit_count == 0)
            return fail(parser, STATUS_INVALID, begin, "the code point is not closed by }");
        parser->at++;
    } else if (!hex_read(parser, 4, out)) {
        return false;
    }
    if (*out >= 0xd800 && *out < 0xdc00 && text_is(parser, "\\u")) {
        uint32_t low;
        parser->at += 2;
        if (!hex_read(parser, 4, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(parser, STATUS_INVALID, begin, "half a surrogate pair");
        *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    }
    if (*out > POINT_MAX || (*out >= 0xd800 && *out < 0xe000))
        return fail(parser, STATUS_INVALID, begin, "this is no code point");
    return true;
}

/* Behind a backslash, what stands for one character. */
static bool escape_read(struct regex_parser *parser, uint32_t *out)
{
    static const char names[] = "ntrfva";
    static const char values[] = "\n\t\r\f\v\a";
    const size_t begin = parser->at;
    if (!more(parser))
        return fail(parser, STATUS_INVALID, begin, "nothing is behind the backslash");
    const char letter = parser->text[parser->at];
    const char *named = letter != '\0' ? strchr(names, letter) : NULL;
    if (named != NULL && !(parser->schema && letter == 'a')) {
        parser->at++;
        *out = (uint8_t)values[named - names];
        return true;
    }
    if (letter == 'x' || letter == 'u' || letter == 'U') {
        parser->at++;
        if (letter == 'u')
            return unicode_read(parser, out);
        if (!hex_read(parser, letter == 'x' ? 2 : 8, out))
            return false;
        return *out <= POINT_MAX && (*out < 0xd800 || *out > 0xdfff)
                   ? true
                   : fail(parser, STATUS_INVALID, begin, "this is no code point");
    }
    if (letter == '0' && !(parser->at + 1 < parser->bytes && parser->text[parser->at + 1] >= '0' &&
                           parser->text[parser->at + 1] <= '9')) {
        parser->at++;
        *out = 0;
        return true;
    }
    if (letter >= '0' && letter <= '9')
        return fail(parser, STATUS_UNSUPPORTED, begin, "back-references are not supported");
    if (letter == 'b' || letter == 'B')
        return fail(parser, STATUS_UNSUPPORTED, begin, "word boundaries are not supported");
    if (letter == 'p' || letter == 'P')
        return fail(parser, STATUS_UNSUPPORTED, begin, "\\p classes are not supported");
    if (letter == 'k' || letter == 'c' || letter == 'N')
        return fail(parser, STATUS_UNSUPPORTED, begin, "this escape is not supported");
    if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))
        return fail(parser, STATUS_INVALID, begin, "there is no such escape");
    return point_read(parser, out);
}

/* One member of [...]: a class (then *is_class) or a character. */
static bool member_read(struct regex_parser *parser, struct point_set *set, bool wide,
                        bool *is_class, uint32_t *out)
{
    *is_class = false;
    if (!next_is(parser, '\\'))
        return point_read(parser, out);
    parser->at++;
    if (more(parser) && point_set_class(set, parser->text[parser->at], wide)) {
        parser->at++;
        *is_class = true;
        return true;
    }
    if (next_is(parser, 'b')) { // a backspace, in a set
        parser->at++;
        *out = '\b';
        return true;
    }
    return escape_read(parser, out);
}

static uint32_t set_read(struct regex_parser *parser)
{
    struct point_set set = {0};
    const size_t begin = parser->at++;
    const bool negated = next_is(parser, '^');
    parser->at += negated ? 1 : 0;
    const size_t first = parser->at;
    bool closed = false;
    while (more(parser)) {
        bool low_class;
        bool high_class;
        uint32_t low = 0;
        uint32_t high = 0;
        if (next_is(parser, ']') && (parser->schema || parser->at > first)) {
            closed = true;
            parser->at++;
            break;
        }
        if (!member_read(parser, &set, negated, &low_class, &low) || low_class)
            continue;
        high = low;
        if (next_is(parser, '-') && parser->at + 1 < parser->bytes &&
            parser->text[parser->at + 1] != ']') {
            parser->at++;
            if (!member_read(parser, &set, negated, &high_class, &high))
                continue;
            if (high_class || high < low) {
                fail(parser, STATUS_INVALID, begin,
                     "a range in the set has no end after its begin");
                continue;
            }
        }
        point_set_add(&set, low, high);
    }
    if (!closed)
        fail(parser, STATUS_INVALID, begin, "the set is not closed by ]");
    point_set_finish(&set);
    if (negated)
        point_set_negate(&set);
    return set_node(parser, &set);
}

static uint32_t dot_node(struct regex_parser *parser)
{
    struct point_set set = {0};
    point_set_add(&set, '\n', '\n');
    if (parser->schema) {
        point_set_add(&set, '\r', '\r');
        point_set_add(&set, 0x2028, 0x2029);
    }
    point_set_finish(&set);
    point_set_negate(&set);
    return set_node(parser, &set);
}

static uint32_t alternatives_read(struct regex_parser *parser);

static uint32_t group_read(struct regex_parser *parser)
{
    static const char *const refused[] = {"?=", "?!", "?<=", "?<!", "?>", "?(", "?#", "?P=", "?P>"};
    const size_t begin = parser->at++;
    for (size_t i = 0; i < ARRAY_COUNT(refused); i++)
        if (text_is(parser, refused[i])) {
            fail(parser, STATUS_UNSUPPORTED, begin,
                 i < 4 ? "looking ahead or behind is not supported"
                       : "this kind of group is not supported");
            return 0;
        }
    if (text_is(parser, "?:")) {
        parser->at += 2;
    } else if (text_is(parser, "?P<") || text_is(parser, "?<")) {
        while (more(parser) && !next_is(parser, '>'))
            parser->at++;
        if (!next_is(parser, '>'))
            fail(parser, STATUS_INVALID, begin, "the group's name is not closed by >");
        parser->at++;
    } else if (next_is(parser, '?')) {
        fail(parser, STATUS_UNSUPPORTED, begin, "flags are not supported");
        return 0;
    }
    if (++parser->depth > REGEX_DEPTH_MAX) {
        fail(parser, STATUS_LIMIT, begin, "more than 200 groups are open");
        return 0;
    }
    const uint32_t node = alternatives_read(parser);
    parser->depth--;
    if (!next_is(parser, ')')) {
        fail(parser, STATUS_INVALID, begin, "the group is not closed by )");
        return 0;
    }
    parser->at++;
    return node;
}

static uint32_t atom_read(struct regex_parser *parser)
{
    const char c = parser->text[parser->at];
    struct point_set set = {0};
    uint32_t point = 0;
    if (c == '(')
        return group_read(parser);
    if (c == '[')
        return set_read(parser);
    if (c == '.') {
        parser->at++;
        return dot_node(parser);
    }
    if (c == '^' || c == '$') {
        parser->at++;
        return node_add(parser,
                        (struct regex_node){c == '^' ? REGEX_BEGIN : REGEX_END, 0, 0, 0, 0});
    }
    if (c == '*' || c == '+' || c == '?') {
        fail(parser, STATUS_INVALID, parser->at, "there is nothing to repeat");
        return 0;
    }
    if (c == '\\') {
        parser->at++;
        const char letter = more(parser) ? parser->text[parser->at] : '\0';
        if (!parser->schema && (letter == 'A' || letter == 'Z')) {
            parser->at++;
            return node_add(
                parser, (struct regex_node){letter == 'A' ? REGEX_BEGIN : REGEX_END, 0, 0, 0, 0});
        }
        if (point_set_class(&set, letter, false)) {
            parser->at++;
            return set_node(parser, &set);
        }
        if (!escape_read(parser, &point))
            return 0;
    } else if (!point_read(parser, &point)) {
        return 0;
    }
    point_set_add(&set, point, point);
    return set_node(parser, &set);
}

/* {m}, {m,}, {m,n} and {,n}; false, and nothing read, when it is none of them. */
static bool counts_read(struct regex_parser *parser, uint32_t *least, uint32_t *most)
{
    size_t at = parser->at + 1;
    uint64_t values[2] = {0, 0};
    bool given[2] = {false, false};
    uint32_t which = 0;
    for (; at < parser->bytes && parser->text[at] != '}'; at++) {
        const char c = parser->text[at];
        if (c == ',' && which == 0) {
            which = 1;
        } else if (c >= '0' && c <= '9') {
            given[which] = true;
            values[which] = values[which] * 10 + (uint64_t)(c - '0');
            if (values[which] > GRAMMAR_REPEAT_MAX)
                return fail(parser, STATUS_LIMIT, parser->at, "a count is over the limit of 4096");
        } else {
            return false;
        }
    }
    if (at == parser->bytes || (!given[0] && !given[1]) || (parser->schema && !given[0]))
        return false;
    *least = (uint32_t)values[0];
    *most = which == 0 ? *least : given[1] ? (uint32_t)values[1] : REGEX_NO_END;
    if (*most < *least)
        return fail(parser, STATUS_INVALID, parser->at, "the greatest count is below the least");
    parser->at = at + 1;
    return true;
}

static bool repeat_read(struct regex_parser *parser, uint32_t *least, uint32_t *most)
{
    *least = next_is(parser, '+') ? 1 : 0;
    *most = next_is(parser, '?') ? 1 : REGEX_NO_END;
    if (next_is(parser, '{'))
        return counts_read(parser, least, most);
    if (!next_is(parser, '*') && !next_is(parser, '+') && !next_is(parser, '?'))
        return false;
    parser->at++;
    return true;
}

static uint32_t piece_read(struct regex_parser *parser)
{
    const size_t begin = parser->at;
    const uint32_t atom = atom_read(parser);
    uint32_t least;
    uint32_t most;
    if (!more(parser) || !repeat_read(parser, &least, &most))
        return atom;
    const enum regex_kind kind = parser->regex->nodes[atom].kind;
    if (kind == REGEX_BEGIN || kind == REGEX_END)
        fail(parser, STATUS_INVALID, begin, "an anchor cannot be repeated");
    if (next_is(parser, '?')) // shortest first: the same texts
        parser->at++;
    else if (next_is(parser, '+'))
        fail(parser, STATUS_UNSUPPORTED, parser->at, "possessive repetition is not supported");
    const size_t behind = parser->at;
    uint32_t ignored;
    if (more(parser) && repeat_read(parser, &ignored, &ignored))
        fail(parser, STATUS_INVALID, behind, "a repetition is repeated");
    return node_add(parser, (struct regex_node){REGEX_REPEAT, atom, 0, least, most});
}

static uint32_t sequence_read(struct regex_parser *parser)
{
    uint32_t sequence = BUILD_NONE;
    while (more(parser) && !next_is(parser, '|') && !next_is(parser, ')')) {
        const uint32_t piece = piece_read(parser);
        sequence = sequence == BUILD_NONE
                       ? piece
                       : node_add(parser, (struct regex_node){REGEX_THEN, sequence, piece, 0, 0});
    }
    return sequence != BUILD_NONE
               ? sequence
               : node_add(parser, (struct regex_node){REGEX_NOTHING, 0, 0, 0, 0});
}

static uint32_t alternatives_read(struct regex_parser *parser)
{
    uint32_t left = sequence_read(parser);
    while (more(parser) && next_is(parser, '|')) {
        parser->at++;
        const uint32_t right = sequence_read(parser);
        left = node_add(parser, (struct regex_node){REGEX_OR, left, right, 0, 0});
    }
    return left;
}

bool regex_parse(struct grammar_build *build, const char *text, size_t bytes, bool schema,
                 struct regex *out)
{
    struct regex_parser parser = {
        .build = build, .regex = out, .text = text, .bytes = bytes, .schema = schema};
    *out = (struct regex){0};
    out->root = alternatives_read(&parser);
    if (more(&parser))
        fail(&parser, STATUS_INVALID, parser.at, "a ) closes nothing");
    return build->status == STATUS_OK;
}

void regex_free(struct regex *regex)
{
    free(regex->nodes);
    free(regex->ranges);
    *regex = (struct regex){0};
}
