#include "model/text/charsmap.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/utf8.h"
#include "model/text/grapheme.h"

enum {
    CLUSTER_BYTES_MAX = 5, /* of a cluster that is looked up as a whole */
    UNIT_BYTES = 4,
    BLOCK_UNITS = 256,
};

struct charsmap {
    struct buffer bytes; /* all that the file has */
    uint32_t *units;     /* [unit_count] */
    size_t unit_count;
    const char *texts; /* the replacements, in bytes; a NUL follows */
    size_t texts_bytes;
};

static bool unit_is_value(uint32_t unit)
{
    return unit >> 31 != 0;
}

/* The byte that leads to a unit; of a value none of 0 to 255. */
static uint32_t unit_label(uint32_t unit)
{
    return unit & (1u << 31 | 0xff);
}

static bool unit_has_value(uint32_t unit)
{
    return (unit >> 8 & 1) != 0;
}

static uint32_t unit_offset(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* RFC 4648, with padding. */
static bool base64_decode(const char *text, size_t bytes, struct buffer *out)
{
    if (bytes % 4 != 0)
        return false;
    buffer_reserve(out, bytes / 4 * 3);
    for (size_t at = 0; at < bytes; at += 4) {
        size_t digits = 4;
        if (at + 4 == bytes && text[at + 3] == '=')
            digits = text[at + 2] == '=' ? 2 : 3;
        uint32_t bits = 0;
        for (size_t i = 0; i < 4; i++) {
            const int digit = i < digits ? base64_digit(text[at + i]) : 0;
            if (digit < 0)
                return false;
            bits = bits << 6 | (uint32_t)digit;
        }
        const char decoded[] = {(char)(bits >> 16), (char)(bits >> 8), (char)bits};
        buffer_add(out, decoded, digits - 1);
    }
    return true;
}

static bool begins_text(const struct charsmap *charsmap, uint32_t at)
{
    return at < charsmap->texts_bytes && ((uint8_t)charsmap->texts[at] & 0xc0) != 0x80;
}

/* Every step that a search may take stays in the array, and every value is the beginning of a text:
 * searches need no check of their own. */
static enum status units_check(const struct charsmap *charsmap, struct error *error)
{
    for (size_t i = 0; i < charsmap->unit_count; i++) {
        const uint32_t unit = charsmap->units[i];
        if (unit_is_value(unit)) // no label, so that no search comes here but for the value
            continue;
        const size_t children = i ^ unit_offset(unit);
        if ((children | (BLOCK_UNITS - 1)) >= charsmap->unit_count)
            return error_set(error, STATUS_CORRUPT,
                             "unit %zu of the trie leads to unit %zu, the trie has %zu", i,
                             children | (BLOCK_UNITS - 1), charsmap->unit_count);
        if (!unit_has_value(unit))
            continue;
        const uint32_t value = charsmap->units[children] & ~(1u << 31);
        if (!begins_text(charsmap, value))
            return error_set(error, STATUS_CORRUPT,
                             "unit %zu of the trie has the text at byte %u, where none of the %zu "
                             "bytes begins one",
                             i, value, charsmap->texts_bytes);
    }
    return STATUS_OK;
}

static enum status parts_read(struct charsmap *charsmap, struct error *error)
{
    struct reader reader;
    reader_init(&reader, charsmap->bytes.data, charsmap->bytes.size);
    const uint32_t trie_bytes = reader_u32(&reader);
    const uint8_t *trie = reader_bytes(&reader, trie_bytes);
    if (trie == NULL || trie_bytes == 0 || trie_bytes % UNIT_BYTES != 0)
        return error_set(error, STATUS_CORRUPT,
                         "its trie has %u bytes, a multiple of %d that fits in %zu is needed",
                         trie_bytes, UNIT_BYTES, charsmap->bytes.size);
    if (unit_is_value(load_le32(trie)))
        return error_set(error, STATUS_CORRUPT, "the root of its trie is a value");
    charsmap->texts_bytes = reader_left(&reader);
    charsmap->texts = reader_bytes(&reader, charsmap->texts_bytes);
    if (!utf8_valid(charsmap->texts, charsmap->texts_bytes))
        return error_set(error, STATUS_CORRUPT, "its replacements are not UTF-8");
    charsmap->unit_count = trie_bytes / UNIT_BYTES;
    charsmap->units = malloc(trie_bytes);
    CHECK(charsmap->units != NULL);
    for (size_t i = 0; i < charsmap->unit_count; i++)
        charsmap->units[i] = load_le32(trie + i * UNIT_BYTES);
    return units_check(charsmap, error);
}

enum status charsmap_create(const char *base64, size_t bytes, struct charsmap **out,
                            struct error *error)
{
    if (bytes / 4 * 3 > CHARSMAP_BYTES_MAX)
        return error_set(error, STATUS_LIMIT, "it has %zu bytes, the limit is %d", bytes / 4 * 3,
                         CHARSMAP_BYTES_MAX);
    struct charsmap *charsmap = calloc(1, sizeof *charsmap);
    CHECK(charsmap != NULL);
    const enum status status = base64_decode(base64, bytes, &charsmap->bytes)
                                   ? parts_read(charsmap, error)
                                   : error_set(error, STATUS_CORRUPT, "it is not base64");
    if (status != STATUS_OK) {
        charsmap_destroy(charsmap);
        return status;
    }
    *out = charsmap;
    return STATUS_OK;
}

void charsmap_destroy(struct charsmap *charsmap)
{
    if (charsmap == NULL)
        return;
    buffer_free(&charsmap->bytes);
    free(charsmap->units);
    free(charsmap);
}

/* What the shortest known beginning of the part becomes; NULL when none is known. */
static const char *replacement_find(const struct charsmap *charsmap, const char *part, size_t bytes)
{
    const uint32_t *units = charsmap->units;
    uint32_t at = unit_offset(units[0]);
    for (size_t i = 0; i < bytes && part[i] != '\0'; i++) {
        at ^= (uint8_t)part[i];
        const uint32_t unit = units[at];
        if (unit_label(unit) != (uint8_t)part[i])
            return NULL;
        at ^= unit_offset(unit);
        if (unit_has_value(unit))
            return charsmap->texts + (units[at] & ~(1u << 31));
    }
    return NULL;
}

static bool replace(const struct charsmap *charsmap, const char *part, size_t bytes,
                    struct buffer *out)
{
    const char *text = replacement_find(charsmap, part, bytes);
    if (text != NULL)
        buffer_add_text(out, text);
    return text != NULL;
}

bool charsmap_run(const struct charsmap *charsmap, const char *text, size_t bytes, size_t bytes_max,
                  struct buffer *out)
{
    for (size_t at = 0; at < bytes && out->size <= bytes_max;) {
        const size_t end = grapheme_end(text, bytes, at);
        if (end - at <= CLUSTER_BYTES_MAX && replace(charsmap, text + at, end - at, out)) {
            at = end;
            continue;
        }
        while (at < end && out->size <= bytes_max) {
            const int length = utf8_sequence((const uint8_t *)text + at, bytes - at, NULL);
            CHECK(length > 0);
            if (!replace(charsmap, text + at, (size_t)length, out))
                buffer_add(out, text + at, (size_t)length);
            at += (size_t)length;
        }
    }
    return out->size <= bytes_max;
}
