#include "router/stop_match.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

bool stop_set_add(struct stop_set *set, const char *text, size_t bytes)
{
    CHECK(bytes > 0 && bytes <= STOP_STRING_BYTES_MAX);
    if (set->count == STOP_STRINGS_MAX)
        return false;
    char *copy = malloc(bytes);
    CHECK(copy != NULL);
    memcpy(copy, text, bytes);
    set->strings[set->count] = copy;
    set->bytes[set->count++] = (uint32_t)bytes;
    return true;
}

void stop_set_free(struct stop_set *set)
{
    for (uint32_t i = 0; i < set->count; i++)
        free(set->strings[i]);
    set->count = 0;
}

void stop_match_init(struct stop_match *match, const struct stop_set *set, bool include)
{
    *match = (struct stop_match){.set = set, .include = include, .matched = -1};
}

void stop_match_free(struct stop_match *match)
{
    buffer_free(&match->held);
}

/* The match in held that ends first; -1 for none. */
static int first_match(const struct stop_match *match, size_t *start_out, size_t *end_out)
{
    int found = -1;
    size_t first_end = SIZE_MAX;
    for (uint32_t i = 0; i < match->set->count; i++) {
        const char *at = memmem(match->held.data, match->held.size, match->set->strings[i],
                                match->set->bytes[i]);
        if (!at)
            continue;
        const size_t start = (size_t)(at - match->held.data);
        const size_t end = start + match->set->bytes[i];
        if (end < first_end) {
            found = (int)i;
            first_end = end;
            *start_out = start;
            *end_out = end;
        }
    }
    return found;
}

/* Length of the longest end of held that is a proper beginning of some stop string. */
static size_t unsettled_bytes(const struct stop_match *match)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < match->set->count; i++) {
        size_t bytes = match->set->bytes[i] - 1;
        if (bytes > match->held.size)
            bytes = match->held.size;
        for (; bytes > longest; bytes--) {
            if (memcmp(match->held.data + match->held.size - bytes, match->set->strings[i],
                       bytes) == 0) {
                longest = bytes;
                break;
            }
        }
    }
    return longest;
}

bool stop_match_feed(struct stop_match *match, const char *text, size_t bytes, bool armed,
                     struct buffer *out)
{
    CHECK(match->matched < 0);
    if (match->set->count == 0) {
        buffer_add(out, text, bytes);
        return false;
    }
    if (bytes == 0)
        return false;
    buffer_add(&match->held, text, bytes);
    size_t start = 0, end = 0;
    if (armed && (match->matched = first_match(match, &start, &end)) >= 0) {
        buffer_add(out, match->held.data, match->include ? end : start);
        buffer_clear(&match->held);
        return true;
    }
    const size_t free_bytes = match->held.size - unsettled_bytes(match);
    buffer_add(out, match->held.data, free_bytes);
    buffer_consume(&match->held, free_bytes);
    return false;
}

void stop_match_finish(struct stop_match *match, struct buffer *out)
{
    buffer_add(out, match->held.data, match->held.size);
    buffer_clear(&match->held);
}
