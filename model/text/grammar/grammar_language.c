/* Languages: regular expressions as automata, and what can be asked of them. */
#include <stdlib.h>

#include "base/check.h"
#include "model/text/grammar/grammar_regex_internal.h"

struct writer {
    struct grammar_build *build;
    const struct regex *regex;
    enum language_form form;
};

/* What JSON strings write with a backslash, of the code points low..high below a blank. */
static void controls_write(struct grammar_build *build, uint32_t escaped, uint32_t to, uint32_t low,
                           uint32_t high)
{
    static const char named[] = "btn\0fr";       // \b to \r; \v has no name in JSON
    uint32_t rows[2] = {BUILD_NONE, BUILD_NONE}; // behind \u000 and \u001
    for (uint32_t point = low; point < ' ' && point <= high; point++) {
        if (point >= '\b' && point <= '\r' && point != '\v') {
            const uint8_t letter = (uint8_t)named[point - '\b'];
            build_range(build, escaped, to, letter, letter);
            continue;
        }
        uint32_t *row = &rows[point >> 4];
        if (*row == BUILD_NONE)
            *row = build_text(build, escaped, point < 16 ? "u000" : "u001");
        const uint8_t digit = (uint8_t) "0123456789abcdef"[point & 15];
        build_range(build, *row, to, digit, digit);
    }
}

void build_json_points(struct grammar_build *build, uint32_t from, uint32_t to, uint32_t low,
                       uint32_t high)
{
    enum { FIRST_RAW = ' ' };
    static const struct point_range raw[] = {
        {FIRST_RAW, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, POINT_MAX}};
    for (size_t i = 0; i < ARRAY_COUNT(raw); i++) {
        const uint32_t first = low > raw[i].low ? low : raw[i].low;
        const uint32_t last = high < raw[i].high ? high : raw[i].high;
        if (first <= last)
            build_points(build, from, to, first, last);
    }
    const bool quote = low <= '"' && '"' <= high;
    const bool backslash = low <= '\\' && '\\' <= high;
    if (low >= FIRST_RAW && !quote && !backslash)
        return;
    const uint32_t escaped = build_text(build, from, "\\");
    controls_write(build, escaped, to, low, high);
    if (quote)
        build_range(build, escaped, to, '"', '"');
    if (backslash)
        build_range(build, escaped, to, '\\', '\\');
}

void json_form(const char *text, size_t bytes, struct buffer *out)
{
    static const char named[] = "btn\0fr";
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t c = (uint8_t)text[i];
        if (c == '"' || c == '\\')
            buffer_printf(out, "\\%c", c);
        else if (c >= '\b' && c <= '\r' && c != '\v')
            buffer_printf(out, "\\%c", named[c - '\b']);
        else if (c < ' ')
            buffer_printf(out, "\\u%04x", c);
        else
            buffer_add_char(out, text[i]);
    }
}

static void node_write(const struct writer *writer, uint32_t index, uint32_t from, uint32_t to);

static void set_write(const struct writer *writer, const struct regex_node *node, uint32_t from,
                      uint32_t to)
{
    for (uint32_t i = 0; i < node->right; i++) {
        const struct point_range range = writer->regex->ranges[node->left + i];
        if (writer->form == LANGUAGE_JSON)
            build_json_points(writer->build, from, to, range.low, range.high);
        else
            build_points(writer->build, from, to, range.low, range.high);
    }
}

static void repeat_write(const struct writer *writer, const struct regex_node *node, uint32_t from,
                         uint32_t to)
{
    struct grammar_build *build = writer->build;
    uint32_t at = from;
    for (uint32_t i = 0; i < node->at_least && build->status == STATUS_OK; i++) {
        const uint32_t next = build_state(build);
        node_write(writer, node->left, at, next);
        at = next;
    }
    if (node->at_most == REGEX_NO_END) {
        const uint32_t loop = build_state(build);
        const uint32_t back = build_state(build);
        build_empty(build, at, loop);
        node_write(writer, node->left, loop, back);
        build_empty(build, back, loop);
        at = loop;
    } else {
        for (uint32_t i = node->at_least; i < node->at_most && build->status == STATUS_OK; i++) {
            const uint32_t next = build_state(build);
            build_empty(build, at, to);
            node_write(writer, node->left, at, next);
            at = next;
        }
    }
    build_empty(build, at, to);
}

/* Nested groups are limited when they are read; a long row of alternatives or of pieces leans to
 * the left and is gone down in a loop. */
static void node_write(const struct writer *writer, uint32_t index, uint32_t from, uint32_t to)
{
    struct grammar_build *build = writer->build;
    for (;;) {
        const struct regex_node *node = &writer->regex->nodes[index];
        if (build->status != STATUS_OK)
            return;
        switch (node->kind) {
        case REGEX_NOTHING:
            build_empty(build, from, to);
            return;
        case REGEX_SET:
            set_write(writer, node, from, to);
            return;
        case REGEX_BEGIN:
        case REGEX_END: {
            const uint32_t symbol = node->kind == REGEX_BEGIN ? SYMBOL_BEGIN : SYMBOL_END;
            build_range(build, from, to, symbol, symbol);
            return;
        }
        case REGEX_REPEAT:
            repeat_write(writer, node, from, to);
            return;
        case REGEX_OR: {
            const uint32_t begin = build_state(build);
            build_empty(build, from, begin);
            node_write(writer, node->right, begin, to);
            index = node->left;
            from = begin;
            break;
        }
        case REGEX_THEN: {
            const uint32_t middle = build_state(build);
            node_write(writer, node->right, middle, to);
            index = node->left;
            to = middle;
            break;
        }
        }
    }
}

/* Reads any text: also the end that the expression itself does not look at. */
static void rest_write(const struct writer *writer, uint32_t from, uint32_t to, uint32_t symbol,
                       bool somewhere)
{
    struct grammar_build *build = writer->build;
    const uint32_t before = build_state(build);
    const uint32_t behind = build_state(build);
    build_empty(build, from, before);
    build_range(build, before, behind, symbol, symbol);
    build_empty(build, before, to);
    build_empty(build, behind, to);
    if (!somewhere)
        return;
    const uint32_t loop = symbol == SYMBOL_BEGIN ? behind : before;
    if (writer->form == LANGUAGE_JSON)
        build_json_points(build, loop, loop, 0, POINT_MAX);
    else
        build_points(build, loop, loop, 0, POINT_MAX);
}

/* The automaton reads a text between its two ends; without them it is the language. */
static void ends_remove(const struct automaton *automaton, struct language *out)
{
    const uint32_t begin = automaton->class_of[SYMBOL_BEGIN];
    const uint32_t end = automaton->class_of[SYMBOL_END];
    out->start = automaton_next(automaton, automaton->rule_start[0], begin);
    for (uint32_t state = 0; state < automaton->state_count; state++) {
        const uint16_t to = automaton_next(automaton, state, end);
        out->final[state] = to != AUTOMATON_NONE && automaton->final[to];
    }
}

static void language_alloc(struct language *language, uint32_t state_count)
{
    language->state_count = state_count;
    language->next = malloc((size_t)state_count * language->class_count * sizeof *language->next);
    language->final = calloc(state_count, sizeof *language->final);
    CHECK(language->next != NULL && language->final != NULL);
}

static void language_make(const struct automaton *automaton, struct language *out)
{
    memcpy(out->class_of, automaton->class_of, sizeof out->class_of);
    out->class_count = automaton->class_count;
    language_alloc(out, automaton->state_count);
    memcpy(out->next, automaton->next,
           (size_t)automaton->state_count * automaton->class_count * sizeof *out->next);
    ends_remove(automaton, out);
}

/* Makes *out of the one rule of `part`, which is freed; failures go to `build`. */
static bool part_finish(struct grammar_build *build, struct grammar_build *part,
                        struct language *out)
{
    static const bool nullable[1] = {false};
    struct automaton automaton;
    *out = (struct language){0};
    const enum status status = automaton_build(part, 0, nullable, &automaton);
    if (status == STATUS_OK)
        language_make(&automaton, out);
    else
        build->status = status;
    automaton_free(&automaton);
    build_free(part);
    return status == STATUS_OK;
}

static void part_begin(struct grammar_build *build, struct grammar_build *part)
{
    build_init(part, build->error);
    memcpy(part->place, build->place, sizeof part->place);
    build_rule(part, NULL);
}

bool language_regex(struct grammar_build *build, const struct regex *regex, bool somewhere,
                    enum language_form form, struct language *out)
{
    struct grammar_build part;
    if (build->status != STATUS_OK)
        return false;
    part_begin(build, &part);
    const struct writer writer = {.build = &part, .regex = regex, .form = form};
    const uint32_t begin = build_state(&part);
    const uint32_t end = build_state(&part);
    rest_write(&writer, 0, begin, SYMBOL_BEGIN, somewhere);
    node_write(&writer, regex->root, begin, end);
    rest_write(&writer, end, 1, SYMBOL_END, somewhere);
    return part_finish(build, &part, out);
}

bool language_lengths(struct grammar_build *build, uint32_t at_least, uint32_t at_most,
                      struct language *out)
{
    struct regex_node nodes[] = {{REGEX_SET, 0, 1, 0, 0}, {REGEX_REPEAT, 0, 0, at_least, at_most}};
    struct point_range any[] = {{0, POINT_MAX}};
    const struct regex regex = {
        .nodes = nodes, .node_count = 2, .ranges = any, .range_count = 1, .root = 1};
    return language_regex(build, &regex, false, LANGUAGE_JSON, out);
}

bool language_names(struct grammar_build *build, const char *const *names, uint32_t count,
                    struct language *out)
{
    struct grammar_build part;
    if (build->status != STATUS_OK)
        return false;
    part_begin(build, &part);
    for (uint32_t i = 0; i < count; i++) {
        struct buffer form = {0};
        json_form(names[i], strlen(names[i]), &form);
        build_range(&part, build_bytes(&part, 0, form.data, form.size), 1, SYMBOL_END, SYMBOL_END);
        buffer_free(&form);
    }
    build_range(&part, 0, 0, SYMBOL_BEGIN, SYMBOL_BEGIN);
    return part_finish(build, &part, out);
}

bool language_copy(const struct language *language, struct language *out)
{
    *out = *language;
    language_alloc(out, language->state_count);
    memcpy(out->next, language->next,
           (size_t)out->state_count * out->class_count * sizeof *out->next);
    memcpy(out->final, language->final, out->state_count * sizeof *out->final);
    return true;
}

bool language_has(const struct language *language, const char *bytes, size_t count)
{
    uint16_t state = language->start;
    for (size_t i = 0; i < count && state != AUTOMATON_NONE; i++)
        state = language->next[(size_t)state * language->class_count +
                               language->class_of[(uint8_t)bytes[i]]];
    return state != AUTOMATON_NONE && language->final[state];
}

void language_free(struct language *language)
{
    free(language->next);
    free(language->final);
    *language = (struct language){0};
}

/* States from which the end can be reached, by passes from the last to the first. */
static bool *live_find(const struct language *language)
{
    bool *live = calloc(language->state_count + 1, sizeof *live);
    CHECK(live != NULL);
    for (uint32_t state = 0; state < language->state_count; state++)
        live[state] = language->final[state];
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t state = language->state_count; state-- > 0;) {
            const uint16_t *row = &language->next[(size_t)state * language->class_count];
            for (uint32_t class = 0; class < language->class_count && !live[state]; class ++)
                if (row[class] != AUTOMATON_NONE && live[row[class]])
                    changed = live[state] = true;
        }
    }
    return live;
}

bool language_empty(const struct language *language)
{
    bool *live = live_find(language);
    const bool empty = language->start == AUTOMATON_NONE || !live[language->start];
    free(live);
    return empty;
}

uint32_t build_language(struct grammar_build *build, uint32_t from, const struct language *language)
{
    const uint32_t to = build_state(build);
    bool *live = live_find(language);
    uint32_t *states = calloc(language->state_count + 1, sizeof *states);
    CHECK(states != NULL);
    for (uint32_t state = 0; state < language->state_count; state++)
        states[state] = live[state] ? build_state(build) : 0;
    for (uint32_t state = 0; state < language->state_count; state++) {
        const uint16_t *row = &language->next[(size_t)state * language->class_count];
        if (!live[state])
            continue;
        if (language->final[state])
            build_empty(build, states[state], to);
        for (uint32_t low = 0; low < 256;) {
            const uint16_t next = row[language->class_of[low]];
            uint32_t high = low;
            while (high < 255 && row[language->class_of[high + 1]] == next)
                high++;
            if (next != AUTOMATON_NONE && live[next])
                build_range(build, states[state], states[next], low, high);
            low = high + 1;
        }
    }
    if (language->start != AUTOMATON_NONE && live[language->start])
        build_empty(build, from, states[language->start]);
    free(states);
    free(live);
    return to;
}
