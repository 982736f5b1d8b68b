/* The graph that front ends write; see the header. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/text/grammar/grammar_build_internal.h"

void build_init(struct grammar_build *build, struct error *error)
{
    *build = (struct grammar_build){.status = STATUS_OK, .error = error};
}

void build_free(struct grammar_build *build)
{
    free(build->states);
    free(build->edges);
    for (uint32_t i = 0; i < build->rule_count; i++)
        free(build->rules[i].name);
    free(build->rules);
    for (uint32_t i = 0; i < build->special_count; i++)
        free(build->specials[i]);
}

bool build_fail(struct grammar_build *build, enum status status, const char *format, ...)
{
    if (build->status != STATUS_OK)
        return false;
    char text[ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    build->status = error_set(build->error, status, "%s", text);
    return false;
}

static bool full(struct grammar_build *build, uint32_t count, uint32_t limit, const char *what)
{
    if (count < limit)
        return false;
    build_fail(build, STATUS_LIMIT, "%s%sthe grammar has more than %u %s", build->place,
               build->place[0] != '\0' ? ": " : "", limit, what);
    return true;
}

/* Room for one more; doubles. */
static void *grown(void *memory, uint32_t count, uint32_t *capacity, size_t bytes)
{
    if (count < *capacity)
        return memory;
    *capacity = *capacity > 0 ? *capacity * 2 : 64;
    void *more = realloc(memory, *capacity * bytes);
    CHECK(more != NULL);
    return more;
}

uint32_t build_state(struct grammar_build *build)
{
    if (build->status != STATUS_OK || full(build, build->state_count, BUILD_STATES_MAX, "states"))
        return 0;
    build->states =
        grown(build->states, build->state_count, &build->state_capacity, sizeof *build->states);
    build->states[build->state_count] = BUILD_NONE;
    return build->state_count++;
}

uint32_t build_rule(struct grammar_build *build, const char *name)
{
    if (build->status != STATUS_OK || full(build, build->rule_count, BUILD_RULES_MAX, "rules"))
        return 0;
    const uint32_t start = build_state(build);
    const uint32_t final = build_state(build);
    build->rules =
        grown(build->rules, build->rule_count, &build->rule_capacity, sizeof *build->rules);
    char *copy = name != NULL ? strdup(name) : NULL;
    CHECK(name == NULL || copy != NULL);
    build->rules[build->rule_count] = (struct build_rule){start, final, copy};
    return build->rule_count++;
}

static void edge_add(struct grammar_build *build, uint32_t from, struct build_edge edge)
{
    if (build->status != STATUS_OK || full(build, build->edge_count, BUILD_EDGES_MAX, "edges"))
        return;
    build->edges =
        grown(build->edges, build->edge_count, &build->edge_capacity, sizeof *build->edges);
    edge.next = build->states[from];
    build->edges[build->edge_count] = edge;
    build->states[from] = build->edge_count++;
}

void build_range(struct grammar_build *build, uint32_t from, uint32_t to, uint32_t low,
                 uint32_t high)
{
    edge_add(build, from,
             (struct build_edge){.to = to, .low = (uint16_t)low, .high = (uint16_t)high});
}

void build_empty(struct grammar_build *build, uint32_t from, uint32_t to)
{
    edge_add(build, from, (struct build_edge){.to = to, .low = EDGE_NONE});
}

void build_call(struct grammar_build *build, uint32_t from, uint32_t to, uint32_t rule)
{
    edge_add(build, from, (struct build_edge){.to = to, .low = EDGE_CALL, .rule = rule});
}

uint32_t build_bytes(struct grammar_build *build, uint32_t from, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count && build->status == STATUS_OK; i++) {
        const uint32_t to = build_state(build);
        build_range(build, from, to, (uint8_t)bytes[i], (uint8_t)bytes[i]);
        from = to;
    }
    return from;
}

uint32_t build_text(struct grammar_build *build, uint32_t from, const char *text)
{
    return build_bytes(build, from, text, strlen(text));
}

/* The bytes of a code point, of a length that is given. */
static void point_bytes(uint32_t point, uint32_t count, uint8_t bytes[4])
{
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (uint32_t i = count - 1; i > 0; i--) {
        bytes[i] = (uint8_t)(0x80 | (point & 0x3f));
        point >>= 6;
    }
    bytes[0] = (uint8_t)(lead[count] | point);
}

/* All sequences of `count` bytes from `low` to `high`, whose bytes before the last are continuation
 * bytes of every value where they are free. */
static void sequences(struct grammar_build *build, uint32_t from, uint32_t to, const uint8_t *low,
                      const uint8_t *high, uint32_t count)
{
    if (count == 1) {
        build_range(build, from, to, low[0], high[0]);
        return;
    }
    if (low[0] == high[0]) {
        const uint32_t next = build_state(build);
        build_range(build, from, next, low[0], low[0]);
        sequences(build, next, to, low + 1, high + 1, count - 1);
        return;
    }
    static const uint8_t least[] = {0x80, 0x80, 0x80};
    static const uint8_t most[] = {0xbf, 0xbf, 0xbf};
    uint8_t first = low[0];
    uint8_t last = high[0];
    if (memcmp(low + 1, least, count - 1) != 0) {
        const uint32_t next = build_state(build);
        build_range(build, from, next, first, first);
        sequences(build, next, to, low + 1, most, count - 1);
        first++;
    }
    if (memcmp(high + 1, most, count - 1) != 0) {
        const uint32_t next = build_state(build);
        build_range(build, from, next, last, last);
        sequences(build, next, to, least, high + 1, count - 1);
        last--;
    }
    if (first > last)
        return;
    const uint32_t next = build_state(build);
    build_range(build, from, next, first, last);
    sequences(build, next, to, least, most, count - 1);
}

void build_points(struct grammar_build *build, uint32_t from, uint32_t to, uint32_t low,
                  uint32_t high)
{
    static const struct {
        uint32_t low, high, count;
    } lengths[] = {{0, 0x7f, 1},
                   {0x80, 0x7ff, 2},
                   {0x800, 0xd7ff, 3},
                   {0xe000, 0xffff, 3},
                   {0x10000, 0x10ffff, 4}};
    for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
        const uint32_t first = low > lengths[i].low ? low : lengths[i].low;
        const uint32_t last = high < lengths[i].high ? high : lengths[i].high;
        uint8_t first_bytes[4];
        uint8_t last_bytes[4];
        if (first > last)
            continue;
        point_bytes(first, lengths[i].count, first_bytes);
        point_bytes(last, lengths[i].count, last_bytes);
        sequences(build, from, to, first_bytes, last_bytes, lengths[i].count);
    }
}

uint32_t build_special(struct grammar_build *build, const char *text)
{
    for (uint32_t i = 0; i < build->special_count; i++)
        if (strcmp(build->specials[i], text) == 0)
            return SYMBOL_SPECIAL + i;
    if (full(build, build->special_count, GRAMMAR_SPECIALS_MAX, "special tokens"))
        return SYMBOL_SPECIAL;
    char *copy = strdup(text);
    CHECK(copy != NULL);
    build->specials[build->special_count] = copy;
    return SYMBOL_SPECIAL + build->special_count++;
}
