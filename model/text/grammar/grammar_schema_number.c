/* Numbers between bounds: their digits are compared with those of the bounds one by one, from the
 * first. A bound is its shortest decimal; what is written has so few digits that reading it rounds
 * to neither bound. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "model/text/grammar/grammar_schema_internal.h"

enum { DIGITS_MAX = 40, EXACT_DIGITS = 15 };

/* From here to where numbers have more digits than are written, a double is not the number that
 * the schema says. */
static const double INEXACT_FROM = 0x1p53;
static const double MOST = 1e18;

bool number_inexact(double value)
{
    return fabs(value) >= INEXACT_FROM;
}

bool schema_bounds(struct schema *schema, const struct conjunction *all, struct number_bounds *out)
{
    static const struct {
        const char *keyword;
        bool low, open;
    } rows[] = {{"minimum", true, false},
                {"exclusiveMinimum", true, true},
                {"maximum", false, false},
                {"exclusiveMaximum", false, true}};
    *out = (struct number_bounds){.has_low = false};
    for (uint32_t m = 0; m < all->count; m++)
        for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
            const struct json *value = member_get(all, m, rows[i].keyword);
            if (value == NULL || (rows[i].open && json_kind(value) == JSON_BOOL))
                continue; // a boolean is dealt with at minimum and maximum, as draft 4 has it
            if (json_kind(value) != JSON_INT && json_kind(value) != JSON_REAL)
                return schema_fail(schema, STATUS_INVALID, all->members[m].place, rows[i].keyword,
                                   "it is a number");
            const double bound = json_number(value);
            if (number_inexact(bound) && fabs(bound) < MOST)
                return schema_fail(schema, STATUS_UNSUPPORTED, all->members[m].place,
                                   rows[i].keyword, "a bound from 2^53 to 10^18 is not supported");
            const struct json *flag =
                member_get(all, m, rows[i].low ? "exclusiveMinimum" : "exclusiveMaximum");
            const bool open =
                rows[i].open || (flag != NULL && json_kind(flag) == JSON_BOOL && json_bool(flag));
            if (rows[i].low && (!out->has_low || bound > out->low || (bound == out->low && open))) {
                out->has_low = true;
                out->low = bound;
                out->low_open = open;
            } else if (!rows[i].low &&
                       (!out->has_high || bound < out->high || (bound == out->high && open))) {
                out->has_high = true;
                out->high = bound;
                out->high_open = open;
            }
        }
    return true;
}

/* A bound of at least 0 as digits; trailing zeros of the fraction are gone. */
struct decimal {
    char whole[DIGITS_MAX], fraction[DIGITS_MAX];
    uint32_t whole_count, fraction_count;
    bool open; /* the bound itself is left out */
};

/* A row of numbers: low..high, by digits. Lengths count digits before the point. */
struct range {
    struct grammar_build *build;
    struct decimal low, high;
    uint32_t to;
    uint32_t fraction_max; /* 0: integers only */
    /* States behind the point by {digits read, still like low, still like high}. */
    uint32_t fractions[JSON_FRACTION_DIGITS + 1][2][2];
};

static char digit_at(const char *digits, uint32_t count, uint32_t index)
{
    return index < count ? digits[index] : '0';
}

/* Whether a number may end after `read` digits of its fraction. */
static bool may_end(const struct range *range, uint32_t read, bool like_low, bool like_high)
{
    const bool at_low = like_low && read >= range->low.fraction_count;
    const bool at_high = like_high && read >= range->high.fraction_count;
    if (like_low && !at_low)
        return false; // the rest of low's digits is not all zeros
    return !(at_low && range->low.open) && !(at_high && range->high.open);
}

/* One digit more: the digits that keep it between the bounds, and what it is like then. */
static void digit_write(struct range *range, uint32_t from, uint32_t states[2][2], char low,
                        char high, bool like_low, bool like_high, char least)
{
    const char first = like_low && low > least ? low : least;
    const char last = like_high ? high : '9';
    for (char digit = first; digit <= last; digit++) {
        const bool still_low = like_low && digit == low;
        const bool still_high = like_high && digit == high;
        build_range(range->build, from, states[still_low][still_high], (uint8_t)digit,
                    (uint8_t)digit);
    }
}

static void states_make(struct grammar_build *build, uint32_t states[2][2])
{
    for (uint32_t i = 0; i < 4; i++)
        states[i / 2][i % 2] = build_state(build);
}

/* fractions[read]: after the point and `read` digits. */
static void fraction_write(struct range *range)
{
    for (uint32_t read = 0; read <= range->fraction_max; read++)
        states_make(range->build, range->fractions[read]);
    for (uint32_t read = 0; read <= range->fraction_max; read++)
        for (uint32_t like = 0; like < 4; like++) {
            const bool like_low = like / 2 != 0;
            const bool like_high = like % 2 != 0;
            const uint32_t at = range->fractions[read][like_low][like_high];
            if (read > 0 && may_end(range, read, like_low, like_high))
                build_empty(range->build, at, range->to);
            if (read < range->fraction_max)
                digit_write(range, at, range->fractions[read + 1],
                            digit_at(range->low.fraction, range->low.fraction_count, read),
                            digit_at(range->high.fraction, range->high.fraction_count, read),
                            like_low, like_high, '0');
        }
}

/* All numbers with `count` digits before the point. */
static void whole_write(struct range *range, uint32_t from, uint32_t count)
{
    struct grammar_build *build = range->build;
    uint32_t states[2][2];
    uint32_t next[2][2];
    states_make(build, states);
    build_empty(build, from,
                states[count == range->low.whole_count][count == range->high.whole_count]);
    for (uint32_t read = 0; read < count; read++) {
        states_make(build, next);
        for (uint32_t like = 0; like < 4; like++)
            digit_write(range, states[like / 2][like % 2], next,
                        digit_at(range->low.whole, range->low.whole_count, read),
                        digit_at(range->high.whole, range->high.whole_count, read), like / 2 != 0,
                        like % 2 != 0, read == 0 && count > 1 ? '1' : '0');
        memcpy(states, next, sizeof states);
    }
    for (uint32_t like = 0; like < 4; like++) {
        const uint32_t at = states[like / 2][like % 2];
        if (may_end(range, 0, like / 2 != 0, like % 2 != 0))
            build_empty(build, at, range->to);
        if (range->fraction_max > 0)
            build_range(build, at, range->fractions[0][like / 2][like % 2], '.', '.');
    }
}

/* A bound of 0 to below 10^18 in digits; false when its fraction is too long. */
static bool decimal_make(double value, bool open, struct decimal *out)
{
    char text[400];
    int digits = EXACT_DIGITS;
    do
        snprintf(text, sizeof text, "%.*e", digits - 1, value);
    while (strtod(text, NULL) != value && ++digits <= 17);
    const int power = atoi(strchr(text, 'e') + 1);
    char all[DIGITS_MAX] = {0};
    uint32_t count = 0;
    for (const char *c = text; *c != 'e'; c++)
        if (*c != '.')
            all[count++] = *c;
    *out = (struct decimal){.open = open};
    for (int i = 0; i <= power; i++)
        out->whole[out->whole_count++] = (uint32_t)i < count ? all[i] : '0';
    if (power < 0)
        out->whole[out->whole_count++] = '0';
    for (int i = power + 1; i < (int)count; i++) {
        if (out->fraction_count == DIGITS_MAX - 1)
            return false;
        out->fraction[out->fraction_count++] = i < 0 ? '0' : all[i];
    }
    while (out->fraction_count > 0 && out->fraction[out->fraction_count - 1] == '0')
        out->fraction_count--;
    return out->fraction_count <= JSON_FRACTION_DIGITS;
}

static void decimal_most(struct decimal *out)
{
    *out = (struct decimal){.whole_count = JSON_WHOLE_DIGITS};
    memset(out->whole, '9', JSON_WHOLE_DIGITS);
    out->fraction_count = JSON_FRACTION_DIGITS;
    memset(out->fraction, '9', JSON_FRACTION_DIGITS);
}

/* Numbers from low to high, both at least 0. */
static bool positive_write(struct grammar_build *build, const struct number_bounds *bounds,
                           bool whole, uint32_t from, uint32_t to)
{
    struct range range = {.build = build, .to = to};
    if (!decimal_make(bounds->has_low ? bounds->low : 0, bounds->has_low && bounds->low_open,
                      &range.low))
        return false;
    if (!bounds->has_high || bounds->high >= MOST)
        decimal_most(&range.high);
    else if (!decimal_make(bounds->high, bounds->high_open, &range.high))
        return false;
    if (whole)
        range.low.fraction_count = range.high.fraction_count = 0;
    const bool high_bound = bounds->has_high && bounds->high < MOST;
    const uint32_t longest = high_bound && range.high.whole_count > range.low.whole_count
                                 ? range.high.whole_count
                                 : range.low.whole_count;
    uint32_t digits = longest < EXACT_DIGITS ? EXACT_DIGITS - longest : 0;
    digits = digits > range.low.fraction_count ? digits : range.low.fraction_count;
    if (high_bound && range.high.fraction_count > digits)
        digits = range.high.fraction_count;
    range.fraction_max = whole ? 0 : digits;
    fraction_write(&range);
    for (uint32_t count = range.low.whole_count; count <= range.high.whole_count; count++)
        whole_write(&range, from, count);
    return true;
}

/* The nearest integers within the bounds. */
static void bounds_round(struct number_bounds *bounds)
{
    if (bounds->has_low) {
        const double low = ceil(bounds->low);
        bounds->low = bounds->low_open && low == bounds->low ? low + 1 : low;
        bounds->low_open = false;
    }
    if (bounds->has_high) {
        const double high = floor(bounds->high);
        bounds->high = bounds->high_open && high == bounds->high ? high - 1 : high;
        bounds->high_open = false;
    }
}

static bool range_write(struct schema *schema, struct number_bounds bounds, bool whole,
                        uint32_t from, uint32_t to)
{
    struct grammar_build *build = schema->build;
    bool fine = true;
    if (whole)
        bounds_round(&bounds);
    if (!bounds.has_high || bounds.high >= 0) {
        struct number_bounds positive = bounds;
        if (bounds.has_low && bounds.low < 0)
            positive.has_low = false;
        fine = positive_write(build, &positive, whole, from, to);
    }
    if (fine && (!bounds.has_low || bounds.low < 0)) {
        struct number_bounds negative = {.has_low = true, .low = 0, .low_open = !whole};
        if (bounds.has_high && bounds.high < 0) {
            negative.low = -bounds.high;
            negative.low_open = bounds.high_open;
        } else if (whole) {
            negative.low = 1;
        }
        negative.has_high = bounds.has_low;
        negative.high = -bounds.low;
        negative.high_open = bounds.low_open;
        fine = positive_write(build, &negative, whole, build_text(build, from, "-"), to);
    }
    return fine;
}

bool schema_multiples(struct schema *schema, const struct conjunction *all, bool *whole)
{
    for (uint32_t m = 0; m < all->count; m++) {
        const struct json *value = member_get(all, m, "multipleOf");
        if (value == NULL)
            continue;
        const bool number = json_kind(value) == JSON_INT || json_kind(value) == JSON_REAL;
        if (!number || !(json_number(value) > 0))
            return schema_fail(schema, STATUS_INVALID, all->members[m].place, "multipleOf",
                               "it is a number above 0");
        if (json_number(value) != 1)
            return schema_fail(schema, STATUS_UNSUPPORTED, all->members[m].place, "multipleOf",
                               "multiples of other numbers than 1 are not supported");
        *whole = true;
    }
    return true;
}

void schema_number(struct schema *schema, const struct conjunction *all, uint32_t types,
                   uint32_t from, uint32_t to)
{
    struct number_bounds bounds;
    bool whole = (types & TYPE_FRACTION) == 0;
    const uint32_t place = all->count > 0 ? all->members[0].place : 0;
    if (!schema_multiples(schema, all, &whole) || !schema_bounds(schema, all, &bounds))
        return;
    if (!bounds.has_low && !bounds.has_high) {
        build_call(schema->build, from, to, whole ? schema->rules.integer : schema->rules.number);
        return;
    }
    if (bounds.has_low && bounds.has_high &&
        (bounds.low > bounds.high ||
         (bounds.low == bounds.high && (bounds.low_open || bounds.high_open)))) {
        schema_unmet(schema, place, "minimum", "no number is between the bounds");
        return;
    }
    if ((bounds.has_low && bounds.low >= MOST) || (bounds.has_high && bounds.high <= -MOST))
        schema_fail(schema, STATUS_UNSUPPORTED, place, bounds.low >= MOST ? "minimum" : "maximum",
                    "numbers of more than 18 digits before the point are not supported");
    else if (!range_write(schema, bounds, whole, from, to))
        schema_fail(schema, STATUS_UNSUPPORTED, place, "minimum",
                    "a bound has more than 17 digits behind the point");
}
