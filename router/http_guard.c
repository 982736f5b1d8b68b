#include "router/http_guard.h"

#include <ctype.h>
#include <string.h>

#include "base/check.h"

enum { CHUNK_DIGITS_MAX = 8, LENGTH_DIGITS_MAX = 15, PORT_DIGITS_MAX = 5, PORT_MAX = 65535 };

static void go(struct http_guard *guard, enum http_guard_state state)
{
    guard->state = state;
    guard->word_bytes = 0;
    guard->digits = 0;
}

static void refuse(struct http_guard *guard, int status, const char *code, const char *reason)
{
    guard->state = GUARD_BAD;
    guard->status = status;
    guard->code = code;
    guard->reason = reason;
}

static void bad(struct http_guard *guard, const char *reason)
{
    refuse(guard, 400, "bad_request", reason);
}

static void keep(struct http_guard *guard, char c)
{
    if (guard->word_bytes < GUARD_WORD_BYTES)
        guard->word[guard->word_bytes] = c;
    guard->word_bytes++;
}

static void add_to_word(struct http_guard *guard, char c)
{
    keep(guard, (char)tolower((unsigned char)c));
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
    guard->in_trailer = guard->is_old = false;
    guard->left = guard->head_bytes = guard->body_bytes = 0;
    guard->part = GUARD_METHOD;
    go(guard, GUARD_START_LINE);
}

/* bytes more of a body are announced; false when it would be too large. */
static bool take_body(struct http_guard *guard, uint64_t bytes)
{
    guard->body_bytes += bytes; /* of bounded digits: no overflow before the limit is met */
    if (!guard->limits || guard->body_bytes <= guard->limits->body_bytes)
        return true;
    refuse(guard, 413, "body_too_large", "The request body is larger than the limit of");
    guard->limit = guard->limits->body_bytes;
    return false;
}

static void count_head(struct http_guard *guard)
{
    guard->head_bytes++;
    if (!guard->limits || guard->head_bytes <= guard->limits->head_bytes)
        return;
    refuse(guard, 431, "headers_too_large", "The request's head is larger than the limit of");
    guard->limit = guard->limits->head_bytes;
}

/* The blank line behind the headers, or behind what follows the last chunk. */
static void end_head(struct http_guard *guard)
{
    if (guard->in_trailer)
        end_request(guard);
    else if (!guard->has_host && !guard->is_old)
        bad(guard, "An HTTP/1.1 request must have a Host.");
    else if (guard->chunked && guard->has_length)
        bad(guard, "The request has both Content-Length and Transfer-Encoding.");
    else if (guard->chunked && guard->is_old)
        bad(guard, "An HTTP/1.0 request must not have a Transfer-Encoding.");
    else if (!guard->may_have_body && (guard->chunked || guard->left > 0))
        bad(guard, "A request with this method must not have a body.");
    else if (guard->chunked)
        go(guard, GUARD_CHUNK_SIZE);
    else if (guard->left > 0 && take_body(guard, guard->left))
        go(guard, GUARD_BODY);
    else if (guard->left == 0)
        end_request(guard);
}

static void end_method(struct http_guard *guard)
{
    static const char *const methods[] = {"GET",  "HEAD", "DELETE", "OPTIONS",
                                          "POST", "PUT",  "PATCH"};
    enum { FIRST_WITH_BODY = 4 }; /* evhttp reads one for these only */
    for (size_t i = 0; i < ARRAY_COUNT(methods); i++) {
        if (word_is(guard, methods[i])) {
            guard->may_have_body = i >= FIRST_WITH_BODY;
            guard->part = GUARD_TARGET;
            guard->word_bytes = 0;
            return;
        }
    }
    refuse(guard, 501, "unknown_method", "The method of the request is not known.");
}

/* "/path", "*" or "http://host:port/path". */
static void read_target(struct http_guard *guard, char c)
{
    keep(guard, c);
    if (guard->word_bytes == 1 && (c == '/' || c == '*'))
        guard->part = GUARD_PATH;
    else if (word_is(guard, "http://") || word_is(guard, "https://"))
        guard->part = GUARD_AUTHORITY;
    else if (guard->word_bytes > strlen("https://"))
        bad(guard, "The target of the request is no path.");
}

static void read_authority(struct http_guard *guard, char c)
{
    const bool port = guard->part == GUARD_PORT;
    if (c == '/') {
        guard->part = GUARD_PATH;
        guard->word_bytes = 2; /* what stands in a word of its own began with another byte */
    } else if (port && isdigit((unsigned char)c) && guard->digits < PORT_DIGITS_MAX) {
        guard->digits++;
        guard->left = guard->left * 10 + (uint64_t)(c - '0');
    } else if (!port && c == ':') {
        guard->part = GUARD_PORT;
        guard->digits = 0;
        guard->left = 0;
    } else if (port || !(isalnum((unsigned char)c) || c == '-' || c == '.' || c == '_')) {
        bad(guard, "The target of the request names a host that can not be read.");
    }
    if (guard->left > PORT_MAX)
        bad(guard, "The target of the request names a port over 65535.");
}

static void read_path(struct http_guard *guard, char c)
{
    keep(guard, c);
    if (guard->word_bytes == 2 && c == '/')
        bad(guard, "The target of the request begins with two slashes.");
}

static void end_start_line(struct http_guard *guard)
{
    if (guard->part != GUARD_VERSION)
        bad(guard, "The request line is not a method, a target and a version.");
    else if (!word_is(guard, "HTTP/1.1") && !word_is(guard, "HTTP/1.0"))
        refuse(guard, 505, "unsupported_version",
               "The version of the request must be HTTP/1.1 or HTTP/1.0.");
    else {
        guard->is_old = word_is(guard, "HTTP/1.0");
        go(guard, GUARD_HEADER);
    }
}

static void read_start_line(struct http_guard *guard, char c)
{
    if (c == '\n') {
        end_start_line(guard);
    } else if (c < ' ' || c > '~') {
        bad(guard, "The request line holds a byte that is not allowed.");
    } else if (c == ' ') {
        const bool path = guard->part == GUARD_PATH || guard->part == GUARD_AUTHORITY ||
                          guard->part == GUARD_PORT;
        if (guard->part == GUARD_METHOD) {
            end_method(guard);
        } else if (path) {
            guard->part = GUARD_VERSION;
            guard->word_bytes = 0;
            guard->left = 0;
        } else {
            bad(guard, "The request line is not a method, a target and a version.");
        }
    } else if (guard->part == GUARD_TARGET) {
        read_target(guard, c);
    } else if (guard->part == GUARD_AUTHORITY || guard->part == GUARD_PORT) {
        read_authority(guard, c);
    } else if (guard->part == GUARD_PATH) {
        read_path(guard, c);
    } else {
        keep(guard, c);
    }
}

static void end_name(struct http_guard *guard)
{
    if (guard->in_trailer) { /* evhttp gives nothing on what stands there */
        go(guard, GUARD_VALUE);
        guard->header = GUARD_OTHER;
        return;
    }
    const bool length = word_is(guard, "content-length");
    const bool coding = word_is(guard, "transfer-encoding");
    const bool host = word_is(guard, "host");
    const bool expect = word_is(guard, "expect");
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
        guard->header = length   ? GUARD_LENGTH
                        : coding ? GUARD_CODING
                        : expect ? GUARD_EXPECT
                                 : GUARD_OTHER;
    }
}

static void read_name(struct http_guard *guard, char c)
{
    if (c == ':' && guard->word_bytes > 0)
        end_name(guard);
    else if (isalnum((unsigned char)c) || (c != '\0' && strchr("!#$%&'*+-.^_`|~", c)))
        add_to_word(guard, c);
    else
        bad(guard, "A header name holds a character that is not allowed.");
}

static void begin_header(struct http_guard *guard, char c)
{
    if (c == '\n')
        end_head(guard);
    else if (c == ' ' || c == '\t')
        bad(guard, "A header goes on in the next line.");
    else {
        go(guard, GUARD_NAME);
        read_name(guard, c);
    }
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
    } else if (guard->header == GUARD_EXPECT && !word_is(guard, "100-continue")) {
        refuse(guard, 417, "unknown_expectation",
               "The only Expect that can be met is 100-continue.");
        return;
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
    else if (!((c == ' ' || c == '\t') && guard->word_bytes == 0))
        add_to_word(guard, c == '\t' ? ' ' : c);
}

static void end_chunk_size(struct http_guard *guard)
{
    if (guard->digits == 0)
        bad(guard, "A chunk has no size.");
    else if (guard->left == 0) {
        guard->in_trailer = true;
        go(guard, GUARD_HEADER);
    } else if (take_body(guard, guard->left))
        go(guard, GUARD_CHUNK_DATA);
}

static void read_chunk_size(struct http_guard *guard, char c)
{
    if (guard->digits == 0)
        guard->left = 0;
    if (c == '\n') {
        end_chunk_size(guard);
    } else if (c == ';') {
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
    else
        bad(guard, "A chunk is longer than its size says.");
}

/* A CR goes with the LF behind it: one program takes it for the end of a line, another for a byte
 * of it. An LF alone ends a line of the head; in chunks, where the same bytes are counted, it does
 * not. False when the byte was taken or refused here. */
static bool read_line_end(struct http_guard *guard, char c)
{
    const bool after_cr = guard->after_cr;
    const bool chunks =
        guard->state == GUARD_CHUNK_SIZE || guard->state == GUARD_CHUNK_END || guard->in_trailer;
    guard->after_cr = c == '\r' && !after_cr;
    if (after_cr && c != '\n')
        bad(guard, "A line of the request holds a carriage return that does not end it.");
    else if (c == '\n' && !after_cr && guard->state != GUARD_IDLE && chunks)
        bad(guard, "A line between the chunks of the body does not end with CR and LF.");
    return guard->state != GUARD_BAD && !guard->after_cr;
}

static void read_in_line(struct http_guard *guard, char c)
{
    switch (guard->state) {
    case GUARD_START_LINE:
        read_start_line(guard, c);
        return;
    case GUARD_HEADER:
        begin_header(guard, c);
        return;
    case GUARD_NAME:
        read_name(guard, c);
        return;
    case GUARD_VALUE:
        read_value(guard, c);
        return;
    case GUARD_CHUNK_SIZE:
        read_chunk_size(guard, c);
        return;
    case GUARD_CHUNK_END:
        read_chunk_end(guard, c);
        return;
    case GUARD_IDLE:
    case GUARD_BODY:
    case GUARD_CHUNK_DATA:
    case GUARD_BAD:
        CHECK(!"these do not go byte by byte");
    }
}

static void read_byte(struct http_guard *guard, char c)
{
    const bool goes_on = read_line_end(guard, c);
    if (guard->state == GUARD_IDLE && (!goes_on || c == '\n')) {
        guard->blank_bytes++;
        return;
    }
    const bool begins = guard->state == GUARD_IDLE;
    if (begins)
        begin_request(guard);
    if (goes_on)
        read_in_line(guard, c);
    if (!begins && (guard->state == GUARD_START_LINE || guard->state == GUARD_NAME ||
                    guard->state == GUARD_VALUE || guard->state == GUARD_HEADER))
        count_head(guard);
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

uint64_t http_guard_body_come(const struct http_guard *guard)
{
    if (!http_guard_in_request(guard))
        return 0;
    const bool counts = guard->state == GUARD_BODY || guard->state == GUARD_CHUNK_DATA;
    return guard->body_bytes - (counts ? guard->left : 0);
}

void http_guard_overload(struct http_guard *guard, uint64_t limit)
{
    refuse(guard, 503, "overloaded", "The request bodies that are being read exceed the limit of");
    guard->limit = limit;
}
