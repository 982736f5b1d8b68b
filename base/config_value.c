#include "base/config_internal.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Units, largest first; a plain number counts in the unit with factor 1. */
struct unit {
    const char *suffix;
    uint64_t factor;
};
static const struct unit byte_units[] = {
    {"TiB", 1ull << 40},
    {"T", 1ull << 40},
    {"GiB", 1ull << 30},
    {"G", 1ull << 30},
    {"MiB", 1ull << 20},
    {"M", 1ull << 20},
    {"KiB", 1ull << 10},
    {"K", 1ull << 10},
    {"B", 1},
    {"", 1},
};
static const struct unit time_units[] = {
    {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}, {"", 1},
};
static const struct unit no_units[] = {{"", 1}};

/* A whole number and a unit of the list, multiplied out. */
static enum status read_whole(const char *text, const struct unit *units, size_t unit_count,
                              const char *wanted, uint64_t *out, struct error *error)
{
    if (!isdigit((unsigned char)text[0]))
        return error_set(error, STATUS_INVALID, "\"%s\" is not %s", text, wanted);
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (errno == ERANGE)
        return error_set(error, STATUS_LIMIT, "%s does not fit in 64 bits", text);
    for (size_t i = 0; i < unit_count; i++) {
        if (strcasecmp(end, units[i].suffix) != 0)
            continue;
        if (!size_multiply(number, units[i].factor, out))
            return error_set(error, STATUS_LIMIT, "%s does not fit in 64 bits", text);
        return STATUS_OK;
    }
    return error_set(error, STATUS_INVALID, "\"%s\" is not %s", text, wanted);
}

static enum status check_limits(const struct config_row *row, const char *text, double value,
                                struct error *error)
{
    if (!(row->max > row->min) || (value >= row->min && value <= row->max))
        return STATUS_OK;
    const bool over = value > row->max;
    struct buffer limit = {0};
    config_show_number(row, over ? row->max : row->min, &limit);
    const enum status status = error_set(error, STATUS_LIMIT, "%s is %s the limit of %s", text,
                                         over ? "over" : "under", limit.data);
    buffer_free(&limit);
    return status;
}

static enum status read_real(const char *text, double *out, struct error *error)
{
    char *end;
    errno = 0;
    const double value = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)text[0]) || !isfinite(value))
        return error_set(error, STATUS_INVALID, "\"%s\" is not a number", text);
    *out = value;
    return STATUS_OK;
}

static enum status read_flag(const char *text, bool *out, struct error *error)
{
    static const char *const words[][2] = {
        {"0", "1"}, {"no", "yes"}, {"off", "on"}, {"false", "true"}};
    for (size_t i = 0; i < ARRAY_COUNT(words); i++) {
        for (size_t truth = 0; truth < 2; truth++) {
            if (strcasecmp(text, words[i][truth]) == 0) {
                *out = truth != 0;
                return STATUS_OK;
            }
        }
    }
    return error_set(error, STATUS_INVALID, "\"%s\" is neither yes nor no", text);
}

static enum status read_choice(const struct config_row *row, const char *text, uint32_t *out,
                               struct error *error)
{
    const size_t bytes = strlen(text);
    const char *at = row->choices;
    for (uint32_t index = 0;; index++) {
        const size_t length = strcspn(at, "|");
        if (length == bytes && memcmp(at, text, bytes) == 0) {
            *out = index;
            return STATUS_OK;
        }
        if (!at[length])
            break;
        at += length + 1;
    }
    return error_set(error, STATUS_INVALID, "\"%s\" is none of %s", text, row->choices);
}

uint32_t config_texts_max(const struct config_row *row)
{
    CHECK(row->max <= CONFIG_TEXTS_MAX);
    return row->max > 0 ? (uint32_t)row->max : CONFIG_TEXTS_MAX;
}

static enum status add_text(const struct config_row *row, struct config_texts *texts,
                            const char *text, struct error *error)
{
    const uint32_t most = config_texts_max(row);
    if (texts->count == most)
        return error_set(error, STATUS_LIMIT, "\"%s\" is one more than the limit of %u", text,
                         most);
    texts->items[texts->count++] = text;
    return STATUS_OK;
}

static enum status set_whole(const struct config_row *row, const char *text, void *field,
                             struct error *error)
{
    uint64_t value = 0;
    if (row->kind == CONFIG_BYTES)
        TRY(read_whole(text, byte_units, ARRAY_COUNT(byte_units), "a size such as 4096, 64K or 2G",
                       &value, error));
    else if (row->kind == CONFIG_MS)
        TRY(read_whole(text, time_units, ARRAY_COUNT(time_units), "a time such as 250ms, 3s or 1m",
                       &value, error));
    else
        TRY(read_whole(text, no_units, ARRAY_COUNT(no_units), "a whole number", &value, error));
    TRY(check_limits(row, text, (double)value, error));
    if (row->kind == CONFIG_U64 || row->kind == CONFIG_BYTES) {
        *(uint64_t *)field = value;
        return STATUS_OK;
    }
    if (value > UINT32_MAX)
        return error_set(error, STATUS_LIMIT, "%s is over the limit of %u", text, UINT32_MAX);
    *(uint32_t *)field = (uint32_t)value;
    return STATUS_OK;
}

static enum status read_amount(const char *text, struct config_amount *out, struct error *error)
{
    static const char wanted[] = "a size such as 64M or 2G, or a share such as 50%";
    struct config_amount amount = {0};
    const size_t bytes = strlen(text);
    char number[32];
    if (bytes > 1 && bytes < sizeof number && text[bytes - 1] == '%') {
        memcpy(number, text, bytes - 1);
        number[bytes - 1] = '\0';
        if (read_real(number, &amount.share, error) != STATUS_OK)
            return error_set(error, STATUS_INVALID, "\"%s\" is not %s", text, wanted);
        amount.share /= 100;
        if (!(amount.share > 0 && amount.share <= 1))
            return error_set(error, STATUS_LIMIT, "%s is not above 0%% and at most 100%%", text);
    } else {
        TRY(read_whole(text, byte_units, ARRAY_COUNT(byte_units), wanted, &amount.bytes, error));
        if (amount.bytes == 0)
            return error_set(error, STATUS_LIMIT, "%s is no room at all", text);
    }
    *out = amount;
    return STATUS_OK;
}

enum status config_value_set(const struct config_row *row, const char *text, void *options,
                             struct error *error)
{
    void *field = (char *)options + row->offset;
    switch (row->kind) {
    case CONFIG_FLAG:
        return read_flag(text, field, error);
    case CONFIG_TEXT:
        *(const char **)field = text;
        return STATUS_OK;
    case CONFIG_TEXTS:
        return add_text(row, field, text, error);
    case CONFIG_U32:
    case CONFIG_U64:
    case CONFIG_BYTES:
    case CONFIG_MS:
        return set_whole(row, text, field, error);
    case CONFIG_AMOUNT:
        return read_amount(text, field, error);
    case CONFIG_F64: {
        double value = 0;
        TRY(read_real(text, &value, error));
        TRY(check_limits(row, text, value, error));
        *(double *)field = value;
        return STATUS_OK;
    }
    case CONFIG_CHOICE:
        return read_choice(row, text, field, error);
    }
    CHECK(!"a config row has a kind that does not exist");
}

void config_show_number(const struct config_row *row, double value, struct buffer *out)
{
    const struct unit *units = row->kind == CONFIG_BYTES ? byte_units : time_units;
    const size_t unit_count =
        row->kind == CONFIG_BYTES ? ARRAY_COUNT(byte_units) : ARRAY_COUNT(time_units);
    if ((row->kind != CONFIG_BYTES && row->kind != CONFIG_MS) || value < 1 || value >= 0x1p64) {
        buffer_printf(out, "%.15g", value);
        return;
    }
    const uint64_t whole = (uint64_t)value;
    for (size_t i = 0; i < unit_count; i++) {
        if (strlen(units[i].suffix) > 1 && row->kind == CONFIG_BYTES)
            continue; /* 64K, not 64KiB */
        if (whole % units[i].factor == 0) {
            buffer_printf(out, "%llu%s", (unsigned long long)(whole / units[i].factor),
                          strcmp(units[i].suffix, "B") == 0 ? "" : units[i].suffix);
            return;
        }
    }
}
