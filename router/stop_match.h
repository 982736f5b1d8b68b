/* Stop strings over a growing text.
 *
 * Text is fed piece by piece; what can no longer be part of a stop string comes out at once, the
 * tail that may be the beginning of one is held back. The result does not depend on the cuts: the
 * match that ends first wins, at one end the one listed first. Any thread, one at a time. */
#ifndef BATON_ROUTER_STOP_MATCH_H
#define BATON_ROUTER_STOP_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

enum { STOP_STRINGS_MAX = 16, STOP_STRING_BYTES_MAX = 1024 };

/* The strings, NUL bytes allowed; owned. */
struct stop_set {
    char *strings[STOP_STRINGS_MAX];
    uint32_t bytes[STOP_STRINGS_MAX];
    uint32_t count;
};
/* text: 1 to STOP_STRING_BYTES_MAX bytes, copied; false when the set is full. */
bool stop_set_add(struct stop_set *set, const char *text, size_t bytes);
void stop_set_free(struct stop_set *set);

struct stop_match {
    const struct stop_set *set; /* outlives the match */
    bool include;               /* the stop string itself comes out too */
    struct buffer held;
    int matched; /* index in the set, -1 while none */
};
void stop_match_init(struct stop_match *match, const struct stop_set *set, bool include);
void stop_match_free(struct stop_match *match);
/* Appends to *out what is free to go. armed: a stop string may end inside this piece (false until
 * min_tokens). True once a stop string was met: nothing more is to be fed. */
bool stop_match_feed(struct stop_match *match, const char *text, size_t bytes, bool armed,
                     struct buffer *out);
/* The text is over without a match: what is held comes out. */
void stop_match_finish(struct stop_match *match, struct buffer *out);

#endif
