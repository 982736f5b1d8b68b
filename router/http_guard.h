/* Watches the bytes of one HTTP/1.1 connection for framing that two programs could read
 * differently, and for all that evhttp would refuse with a page instead of an error object.
 *
 * evhttp accepts chunk sizes like 0xe and +e, folded headers, NUL in values and bodies on GET; it
 * refuses unknown methods, versions and expectations, carriage returns inside of lines, blank lines
 * and what is too large. The guard reads along,
 * knows where requests begin and end, and says what it will not let pass. Pure: no I/O, no memory
 * of its own. */
#ifndef BATON_ROUTER_HTTP_GUARD_H
#define BATON_ROUTER_HTTP_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http_guard_state {
    GUARD_IDLE, /* between requests, where blank lines may stand */
    GUARD_START_LINE,
    GUARD_HEADER, /* at the start of a header line */
    GUARD_NAME,
    GUARD_VALUE,
    GUARD_BODY, /* `left` bytes */
    GUARD_CHUNK_SIZE,
    GUARD_CHUNK_DATA, /* `left` bytes */
    GUARD_CHUNK_END,  /* the line end behind chunk data; behind the last chunk come HEADERs again */
    GUARD_BAD,
};

enum { GUARD_WORD_BYTES = 24 };

struct http_guard_limits {
    uint64_t head_bytes, body_bytes;
};

struct http_guard {
    const struct http_guard_limits *limits; /* outlives the guard; NULL: none */
    enum http_guard_state state;
    uint64_t left;
    uint64_t head_bytes,
        body_bytes;       /* of this request so far; of its chunks, with their sizes told */
    uint64_t requests;    /* begun */
    uint64_t complete;    /* ended */
    uint64_t blank_bytes; /* of lines between requests, on this connection: evhttp refuses them */
    bool may_have_body, has_length, chunked, has_host;
    bool is_old;     /* HTTP/1.0 */
    bool in_trailer; /* headers are those behind the last chunk */
    bool after_cr;
    uint32_t digits; /* of a chunk size */
    enum {
        GUARD_METHOD,
        GUARD_TARGET,
        GUARD_AUTHORITY,
        GUARD_PORT,
        GUARD_PATH,
        GUARD_VERSION
    } part;
    char word[GUARD_WORD_BYTES]; /* beginning of the part of a start line, or lower-case of the name
                                  * or value */
    uint32_t word_bytes;         /* of the whole, also beyond what is kept */
    enum { GUARD_OTHER, GUARD_LENGTH, GUARD_CODING, GUARD_EXPECT } header;
    /* Once BAD: */
    int status;                /* of HTTP */
    const char *code, *reason; /* of the error object; a sentence, or with a limit all before it */
    uint64_t limit;            /* bytes; 0: the reason names none */
};

/* Zero-initialised, but for the limits, is a new connection. False once the connection is BAD;
 * nothing is read then. */
bool http_guard_feed(struct http_guard *guard, const void *data, size_t bytes);
/* A request has begun and not ended. */
bool http_guard_in_request(const struct http_guard *guard);
/* Bytes of the body of the request under way that have come; 0 between requests. */
uint64_t http_guard_body_come(const struct http_guard *guard);
/* From outside: there is no room for the rest of the request. */
void http_guard_overload(struct http_guard *guard, uint64_t limit);

#endif
