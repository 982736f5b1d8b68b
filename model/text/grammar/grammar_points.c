/* Sets of code points. */
#include <stdlib.h>

#include "base/check.h"
#include "model/text/grammar/grammar_regex_internal.h"

void point_set_add(struct point_set *set, uint32_t low, uint32_t high)
{
    if (set->count == set->capacity) {
        set->capacity = set->capacity > 0 ? set->capacity * 2 : 8;
        set->ranges = realloc(set->ranges, set->capacity * sizeof *set->ranges);
        CHECK(set->ranges != NULL);
    }
    set->ranges[set->count++] = (struct point_range){low, high};
}

static int order(const void *a, const void *b)
{
    const struct point_range *x = a;
    const struct point_range *y = b;
    return x->low < y->low ? -1 : x->low > y->low;
}

void point_set_finish(struct point_set *set)
{
    uint32_t kept = 0;
    if (set->count > 0)
        qsort(set->ranges, set->count, sizeof *set->ranges, order);
    for (uint32_t i = 0; i < set->count; i++) {
        const struct point_range range = set->ranges[i];
        if (kept > 0 && range.low <= set->ranges[kept - 1].high + 1) {
            if (range.high > set->ranges[kept - 1].high)
                set->ranges[kept - 1].high = range.high;
        } else {
            set->ranges[kept++] = range;
        }
    }
    set->count = kept;
}

void point_set_negate(struct point_set *set)
{
    struct point_set other = {0};
    uint32_t next = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->ranges[i].low > next)
            point_set_add(&other, next, set->ranges[i].low - 1);
        next = set->ranges[i].high + 1;
    }
    if (next <= POINT_MAX)
        point_set_add(&other, next, POINT_MAX);
    free(set->ranges);
    *set = other;
}

bool point_set_class(struct point_set *set, char letter, bool wide)
{
    enum { ARABIC_ZERO = 0x660 }; // the first digit after ASCII's
    static const struct point_range digits[] = {{'0', '9'}};
    static const struct point_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const struct point_range spaces[] = {{'\t', '\r'}, {' ', ' '}};
    static const struct point_range more_spaces[] = {
        {0x1c, 0x1f},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
        {0x180e, 0x180e}, {0x2000, 0x200b}, {0x2028, 0x2029}, {0x202f, 0x202f},
        {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    const bool negated = letter == 'D' || letter == 'W' || letter == 'S';
    const bool all = wide != negated; // what is left out of an opposite is wide in the thing itself
    struct point_set found = {0};
    const struct point_range *ranges = NULL;
    size_t count = 0;
    if (letter == 'd' || letter == 'D') {
        ranges = digits;
        count = ARRAY_COUNT(digits);
        if (all)
            point_set_add(&found, ARABIC_ZERO, POINT_MAX);
    } else if (letter == 'w' || letter == 'W') {
        ranges = words;
        count = ARRAY_COUNT(words);
        if (all)
            point_set_add(&found, 0x80, POINT_MAX);
    } else if (letter == 's' || letter == 'S') {
        ranges = spaces;
        count = ARRAY_COUNT(spaces);
        for (size_t i = 0; i < ARRAY_COUNT(more_spaces) && all; i++)
            point_set_add(&found, more_spaces[i].low, more_spaces[i].high);
    } else {
        return false;
    }
    for (size_t i = 0; i < count; i++)
        point_set_add(&found, ranges[i].low, ranges[i].high);
    point_set_finish(&found);
    if (negated)
        point_set_negate(&found);
    for (uint32_t i = 0; i < found.count; i++)
        point_set_add(set, found.ranges[i].low, found.ranges[i].high);
    free(found.ranges);
    return true;
}
