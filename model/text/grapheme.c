#include "model/text/grapheme.h"

#include <stdbool.h>

#include "base/check.h"
#include "base/utf8.h"
#include "model/text/grapheme_classes_internal.h"

/* What of a cluster so far decides whether a character joins it. */
struct cluster {
    enum unicode_break last;
    bool pictograph;        /* a pictograph and nothing but marks behind it */
    bool consonant, linked; /* the same of a consonant; a linker was among the marks */
};

static bool range_has(const struct grapheme_range *ranges, size_t count, uint32_t point)
{
    size_t low = 0;
    for (size_t high = count; low < high;) {
        const size_t middle = low + (high - low) / 2;
        if (ranges[middle].last < point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranges[low].first <= point;
}

static enum unicode_break class_of(uint32_t point)
{
    for (size_t i = 0; i < ARRAY_COUNT(later_breaks) && point >= later_breaks[i].first; i++)
        if (point <= later_breaks[i].last)
            return later_breaks[i].class;
    return unicode_break(point);
}

/* Rules GB6 to GB8. */
static bool hangul_joins(enum unicode_break last, enum unicode_break next)
{
    switch (last) {
    case BREAK_HANGUL_L:
        return next == BREAK_HANGUL_L || next == BREAK_HANGUL_V || next == BREAK_HANGUL_LV ||
               next == BREAK_HANGUL_LVT;
    case BREAK_HANGUL_LV:
    case BREAK_HANGUL_V:
        return next == BREAK_HANGUL_V || next == BREAK_HANGUL_T;
    case BREAK_HANGUL_LVT:
    case BREAK_HANGUL_T:
        return next == BREAK_HANGUL_T;
    default:
        return false;
    }
}

static bool is_control(enum unicode_break class)
{
    return class == BREAK_CONTROL || class == BREAK_CR || class == BREAK_LF;
}

static bool joins(const struct cluster *cluster, uint32_t point, enum unicode_break class)
{
    if (cluster->last == BREAK_CR && class == BREAK_LF)
        return true;
    if (is_control(cluster->last) || is_control(class))
        return false;
    if (class == BREAK_EXTEND || class == BREAK_ZWJ || class == BREAK_SPACING ||
        cluster->last == BREAK_PREPEND || hangul_joins(cluster->last, class))
        return true;
    if (cluster->consonant && cluster->linked &&
        range_has(consonants, ARRAY_COUNT(consonants), point))
        return true;
    return cluster->pictograph && cluster->last == BREAK_ZWJ &&
           range_has(pictographs, ARRAY_COUNT(pictographs), point);
}

static void take(struct cluster *cluster, uint32_t point, enum unicode_break class)
{
    enum { NON_JOINER = 0x200c };
    const bool mark = class == BREAK_EXTEND || class == BREAK_ZWJ;
    cluster->last = class;
    if (!mark)
        cluster->pictograph = range_has(pictographs, ARRAY_COUNT(pictographs), point);
    if (!mark || point == NON_JOINER) {
        cluster->consonant = range_has(consonants, ARRAY_COUNT(consonants), point);
        cluster->linked = false;
    } else if (range_has(linkers, ARRAY_COUNT(linkers), point)) {
        cluster->linked = true;
    }
}

size_t grapheme_end(const char *text, size_t bytes, size_t at)
{
    struct cluster cluster = {0};
    for (bool first = true; at < bytes; first = false) {
        uint32_t point = 0;
        const int length = utf8_sequence((const uint8_t *)text + at, bytes - at, &point);
        CHECK(length > 0);
        const enum unicode_break class = class_of(point);
        if (!first && !joins(&cluster, point, class))
            break;
        take(&cluster, point, class);
        at += (size_t)length;
    }
    return at;
}
