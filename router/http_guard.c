#include "router/http_guard.h"

#include <ctype.h>
#include <string.h>

#include "base/check.h"

enum { CHUNK_DIGITS_MAX = 8, LENGTH_DIGITS_MAX = 15 };

static void go(struct http_guard *guard, enum http_guard_state state)
{
    guard->state = state;
    guard->line_bytes = 0;
    guard->word_bytes = 0;
    guard->digits = 0;
    guard->target = false;
}

static void bad(struct http_guard *guard, const char *reason)
{
    guard->state = GUARD_BAD;
    guard->reason = reason;
}

static void add_to_word(struct http_guard *guard, char c)
{
    if (guard->word_bytes < GUARD_WORD_BYTES)
        guard->word[guard->word_bytes] = (char)tolower((unsigned char)c);
    guard->word_bytes++;
}

static bool word_is(const struct http_guard *guard, const char *text)
{
    return guard->word_bytes == strlen(text) && memcmp(guard->word, text, guard->word_bytes) == 0;
}

static void end_request(struct http_guard *guard)
{
    guard->complete++;
    go(guard, GUARD_IDLE);
}

static void begin_request(struct http_guard *guard)
{
    guard->requests++;
    guard->may_have_body = guard->has_length = guard->chunked = guard->has_host = false;
    guard->left = 0;
    go(guard, GUARD_START_LINE);
}

/* The blank line behind the headers. */
static void end_head(struct http_guard *guard)
{
    if (guard->chunked && guard->has_length)
        bad(guard, "The request has both Content-Length and Transfer-Encoding.");
    else if (!guard->may_have_body && (guard->chunked || guard->left > 0))
        bad(guard, "A request with this method must not have a body.");
    else if (guard->chunked)
        go(guard, GUARD_CHUNK_SIZE);
    else if (guard->left > 0)
        go(guard, GUARD_BODY);
    else
        end_request(guard);
}

static void read_start_line(struct http_guard *guard, char c)
{
    if (c == '\n') {
        go(guard, GUARD_HEADER);
    } else if (c == ' ' && !guard->target) {
        /* Behind the method. evhttp reads a body only for these. */
        guard->may_have_body =
            word_is(guard, "post") || word_is(guard, "put") || word_is(guard, "patch");
        guard->target = true;
    } else if (!guard->target) {
        add_to_word(guard, c);
    }
}

static void begin_header(struct http_guard *guard, char c)
{
    if (c == '\n')
        end_head(guard);
    else if (c == ' ' || c == '\t')
        bad(guard, "A header goes on in the next line.");
    else if (c != '\r') {
        go(guard, GUARD_NAME);
        add_to_word(guard, c);
    }
}

static void end_name(struct http_guard *guard)
{
    const bool length = word_is(guard, "content-length");
    const bool coding = word_is(guard, "transfer-encoding");
    const bool host = word_is(guard, "host");
    if (length && guard->has_length)
        bad(guard, "The request has more than one Content-Length.");
    else if (coding && guard->chunked)
        bad(guard, "The request has more than one Transfer-Encoding.");
    else if (host && guard->has_host)
        bad(guard, "The request has more than one Host.");
    else {
        guard->has_length = guard->has_length || length;
        guard->has_host = guard->has_host || host;
        go(guard, GUARD_VALUE);
        guard->header = length ? GUARD_LENGTH : coding ? GUARD_CODING : GUARD_OTHER;
    }
}

static void read_name(struct http_guard *guard, char c)
{
    if (c == ':')
        end_name(guard);
    else if (isalnum((unsigned char)c) || (c != '\0' && strchr("!#$%&'*+-.^_`|~", c)))
        add_to_word(guard, c);
    else
        bad(guard, "A header name holds a character that is not allowed.");
}

static void end_value(struct http_guard *guard)
{
    while (guard->word_bytes > 0 && guard->word_bytes <= GUARD_WORD_BYTES &&
           guard->word[guard->word_bytes - 1] == ' ')
        guard->word_bytes--;
    if (guard->header == GUARD_CODING) {
        if (!word_is(guard, "chunked")) {
            bad(guard, "Transfer-Encoding must be chunked or absent.");
            return;
        }
        guard->chunked = true;
    } else if (guard->header == GUARD_LENGTH) {
        if (guard->word_bytes == 0 || guard->word_bytes > LENGTH_DIGITS_MAX) {
            bad(guard, "Content-Length is not a number of a sensible size.");
            return;
        }
        for (uint32_t i = 0; i < guard->word_bytes; i++) {
            if (guard->word[i] < '0' || guard->word[i] > '9') {
                bad(guard, "Content-Length is not a number.");
                return;
            }
            guard->left = guard->left * 10 + (uint64_t)(guard->word[i] - '0');
        }
    }
    go(guard, GUARD_HEADER);
}

static void read_value(struct http_guard *guard, char c)
{
    if (c == '\n')
        end_value(guard);
    else if (c == '\0')
        bad(guard, "A header value holds a NUL.");
    else if (c != '\r' && !((c == ' ' || c == '\t') && guard->word_bytes == 0))
        add_to_word(guard, c == '\t' ? ' ' : c);
}

static void end_chunk_size(struct http_guard *guard)
{
    if (guard->digits == 0)
        bad(guard, "A chunk has no size.");
    else if (guard->left == 0)
        go(guard, GUARD_TRAILER);
    else
        go(guard, GUARD_CHUNK_DATA);
}

static void read_chunk_size(struct http_guard *guard, char c)
{
    if (guard->digits == 0 && guard->line_bytes == 0)
        guard->left = 0;
    if (c == '\n') {
        end_chunk_size(guard);
        return;
    }
    guard->line_bytes++;
    if (c == '\r')
        return;
    if (c == ';') {
        bad(guard, "Chunk extensions are not supported.");
    } else if (!isxdigit((unsigned char)c)) {
        bad(guard, "A chunk size holds a character that is no hexadecimal digit.");
    } else if (++guard->digits > CHUNK_DIGITS_MAX) {
        bad(guard, "A chunk size has too many digits.");
    } else {
        const int digit =
            isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
        guard->left = guard->left * 16 + (uint64_t)digit;
    }
}

static void read_chunk_end(struct http_guard *guard, char c)
{
    if (c == '\n')
        go(guard, GUARD_CHUNK_SIZE);
    else if (c != '\r')
        bad(guard, "A chunk is longer than its size says.");
}

static void read_trailer(struct http_guard *guard, char c)
{
    if (c == '\n' && guard->line_bytes == 0)
        end_request(guard);
    else if (c == '\n')
        guard->line_bytes = 0;
    else if (c != '\r')
        guard->line_bytes++;
}

static void read_byte(struct http_guard *guard, char c)
{
    switch (guard->state) {
    case GUARD_IDLE:
        if (c == '\r' || c == '\n')
            return; /* blank lines between requests */
        begin_request(guard);
        read_start_line(guard, c);
        break;
    case GUARD_START_LINE:
        read_start_line(guard, c);
        break;
    case GUARD_HEADER:
        begin_header(guard, c);
        break;
    case GUARD_NAME:
        read_name(guard, c);
        break;
    case GUARD_VALUE:
        read_value(guard, c);
        break;
    case GUARD_CHUNK_SIZE:
        read_chunk_size(guard, c);
        break;
    case GUARD_CHUNK_END:
        read_chunk_end(guard, c);
        break;
    case GUARD_TRAILER:
        read_trailer(guard, c);
        break;
    case GUARD_BODY:
    case GUARD_CHUNK_DATA:
    case GUARD_BAD:
        CHECK(!"these do not go byte by byte");
    }
}

bool http_guard_feed(struct http_guard *guard, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes > 0 && guard->state != GUARD_BAD) {
        if (guard->state != GUARD_BODY && guard->state != GUARD_CHUNK_DATA) {
            read_byte(guard, *at++);
            bytes--;
            continue;
        }
        const size_t taken = guard->left < bytes ? (size_t)guard->left : bytes;
        guard->left -= taken;
        at += taken;
        bytes -= taken;
        if (guard->left > 0)
            continue;
        if (guard->state == GUARD_BODY)
            end_request(guard);
        else
            go(guard, GUARD_CHUNK_END);
    }
    return guard->state != GUARD_BAD;
}

bool http_guard_in_request(const struct http_guard *guard)
{
    return guard->state != GUARD_IDLE && guard->state != GUARD_BAD;
}
