/* The guard's verdict must not depend on how the bytes are cut. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/check.h"
#include "router/http_guard.h"

#define POST       "POST /x HTTP/1.1\r\nHost: t\r\n"
#define CHUNKED    POST "Transfer-Encoding: chunked\r\n\r\n"
#define GET        "GET / HTTP/1.1\r\nHost: t\r\n\r\n"
#define LINE(line) line "\r\nHost: t\r\n\r\n"

static const struct {
    const char *text;
    int status;        /* 0: good */
    uint64_t complete; /* requests that ended */
} rows[] = {
    {"GET / HTTP/1.1\r\nHost: t\r\n\r\n", 0, 1},
    {"\r\n\r\n" GET "\n\r\n" GET, 0, 2},
    {"GET / HTTP/1.1\nHost: t\n\n", 0, 1},
    {POST "Content-Length: 5\r\n\r\nhello" GET, 0, 2},
    {POST "content-length:5 \r\n\r\nhell", 0, 0},
    {POST "Content-Length: 0\r\n\r\n", 0, 1},
    {POST "\r\n", 0, 1},
    {POST "Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0A\r\n0123456789\r\n0\r\n\r\n", 0, 1},
    {POST "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n" GET, 0, 2},
    {POST "Transfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n", 0, 0},
    {POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400, 0},
    {POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, 0},
    {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400, 0},
    {POST "Transfer-Encoding: gzip\r\n\r\n", 400, 0},
    {POST "Transfer-Encoding: chunked, gzip\r\n\r\n", 400, 0},
    {POST "Transfer-Encoding: something-much-longer-than-it-may-be-chunked\r\n\r\n", 400, 0},
    {POST "Content-Length: 5, 5\r\n\r\nhello", 400, 0},
    {POST "Content-Length: +5\r\n\r\nhello", 400, 0},
    {POST "Content-Length: 0x5\r\n\r\nhello", 400, 0},
    {POST "Content-Length: 1234567890123456\r\n\r\n", 400, 0},
    {POST "Content-Length: \r\n\r\n", 400, 0},
    {POST "Content-Length : 5\r\n\r\nhello", 400, 0},
    {POST "X: a\r\n b\r\n\r\n", 400, 0},
    {POST "\tX: a\r\n\r\n", 400, 0},
    {POST "Host: u\r\n\r\n", 400, 0},
    {POST "no colon\r\n\r\n", 400, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n", 400, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n", 400, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n", 400, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n", 400, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n", 400, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n\r\nhello\r\n", 400, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n", 400, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n", 400, 0},
    {"GET / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello", 400, 0},
    {"GET / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, 0},
    {"GET / HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n", 0, 1},
    {LINE("PUT /x HTTP/1.0"), 0, 1},
    {LINE("OPTIONS * HTTP/1.1"), 0, 1},
    {LINE("GET /a?b=c#d HTTP/1.1"), 0, 1},
    {LINE("GET /a//b HTTP/1.1"), 0, 1},
    {LINE("GET http://t/a HTTP/1.1"), 0, 1},
    {LINE("GET https://t-1.b_c:8000/a HTTP/1.1"), 0, 1},
    {LINE("GET http://t HTTP/1.1"), 0, 1},
    {LINE("get /x HTTP/1.1"), 501, 0},
    {LINE("BREW /x HTTP/1.1"), 501, 0},
    {LINE("CONNECT t:1 HTTP/1.1"), 501, 0},
    {LINE("A-METHOD-THAT-IS-LONGER-THAN-ANY /x HTTP/1.1"), 501, 0},
    {LINE("GET /x HTTP/2.0"), 505, 0},
    {LINE("GET /x HTTP/1.10"), 505, 0},
    {LINE("GET /x http/1.1"), 505, 0},
    {LINE("GET /x "), 505, 0},
    {LINE("GET /x"), 400, 0},
    {LINE("GET"), 400, 0},
    {LINE("GET  /x HTTP/1.1"), 400, 0},
    {LINE("GET /x HTTP/1.1 "), 400, 0},
    {LINE("GET /x y HTTP/1.1"), 400, 0},
    {LINE("GET x HTTP/1.1"), 400, 0},
    {LINE("GET //x HTTP/1.1"), 400, 0},
    {LINE("GET ftp://t/x HTTP/1.1"), 400, 0},
    {LINE("GET http://t:99999/x HTTP/1.1"), 400, 0},
    {LINE("GET http://t:1234567/x HTTP/1.1"), 400, 0},
    {LINE("GET http://a@t/x HTTP/1.1"), 400, 0},
    {LINE("GET /\x01 HTTP/1.1"), 400, 0},
    {LINE("GET /\xc3\xa9 HTTP/1.1"), 400, 0},
    {"GET /x\rHTTP/1.1\r\n\r\n", 400, 0},
    {POST "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\nx", 0, 1},
    {POST "Expect: wonders\r\nContent-Length: 1\r\n\r\nx", 417, 0},
    {"GET / HTTP/1.1\r\n\r\n", 400, 0},
    {"GET / HTTP/1.0\r\n\r\n", 0, 1},
    {"POST /x HTTP/1.0\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n", 400, 0},
    {"\rGET / HTTP/1.1\r\nHost: t\r\n\r\n", 400, 0},
    {POST "X: a\rb\r\n\r\n", 400, 0},
    {POST "X: a\r\r\n\r\n", 400, 0},
    {POST "\rContent-Length: 5\r\n\r\nhello", 400, 0},
    {POST "Content-Length: 5\r\r\n\r\nhello", 400, 0},
    {POST "X: a\r\n\r\r\n", 400, 0},
    {POST ": a\r\n\r\n", 400, 0},
    {CHUNKED "1\r0\r\n0123456789ABCDEF\r\n0\r\n\r\n", 400, 0},
    {CHUNKED "5\r\r\nhello\r\n0\r\n\r\n", 400, 0},
    {CHUNKED "5\r\nhello\r\r\n0\r\n\r\n", 400, 0},
    {CHUNKED "5\nhello\r\n0\r\n\r\n", 400, 0},
    {CHUNKED "5\r\nhello\n0\r\n\r\n", 400, 0},
    {CHUNKED "0\r\n\n", 400, 0},
    {CHUNKED "0\r\nA: b\n\r\n", 400, 0},
    {CHUNKED "0\r\nno colon\r\n\r\n", 400, 0},
    {CHUNKED "0\r\n folded\r\n\r\n", 400, 0},
    {CHUNKED "0\r\nContent-Length: 5\r\nHost: u\r\n\r\n" GET, 0, 2},
};

Test(http_guard, every_cut_has_the_same_verdict)
{
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const size_t bytes = strlen(rows[i].text);
        for (size_t cut = 0; cut <= bytes; cut++) {
            struct http_guard guard = {0};
            http_guard_feed(&guard, rows[i].text, cut);
            const bool good = http_guard_feed(&guard, rows[i].text + cut, bytes - cut);
            cr_assert_eq(guard.status, rows[i].status, "%s cut at %zu", rows[i].text, cut);
            cr_assert_eq(guard.reason == NULL, good);
            cr_assert_eq(good, rows[i].status == 0);
            if (good)
                cr_assert_eq(guard.complete, rows[i].complete, "%s cut at %zu", rows[i].text, cut);
        }
    }
}

Test(http_guard, nul_in_a_value)
{
    static const char text[] = POST "X: a\0b\r\n\r\n";
    struct http_guard guard = {0};
    cr_expect(!http_guard_feed(&guard, text, sizeof text - 1));
    static const char trailer[] = CHUNKED "0\r\nX: \0\r\n\r\n";
    struct http_guard other = {0};
    cr_expect(!http_guard_feed(&other, trailer, sizeof trailer - 1));
}

Test(http_guard, knows_when_a_request_is_under_way)
{
    struct http_guard guard = {0};
    cr_expect(!http_guard_in_request(&guard));
    http_guard_feed(&guard, "GE", 2);
    cr_expect(http_guard_in_request(&guard));
    static const char rest[] = "T / HTTP/1.1\r\nHost: t\r\n\r\n\r\n";
    http_guard_feed(&guard, rest, sizeof rest - 1);
    cr_expect(!http_guard_in_request(&guard));
    cr_expect_eq(guard.requests, 1);
    cr_expect_eq(guard.blank_bytes, 2);
}

Test(http_guard, knows_what_has_come_of_a_body)
{
    static const char *const pieces[] = {POST,       "Content-Length: 10\r\n\r\n",
                                         "01234",    "5678",
                                         "9",        CHUNKED,
                                         "5\r\nhel", "lo\r\nA",
                                         "\r\n012",  "3456789\r\n0\r\n",
                                         "\r\n"};
    static const uint64_t come[] = {0, 0, 5, 9, 0, 0, 3, 5, 8, 15, 0};
    struct http_guard guard = {0};
    for (size_t i = 0; i < ARRAY_COUNT(pieces); i++) {
        cr_assert(http_guard_feed(&guard, pieces[i], strlen(pieces[i])));
        cr_expect_eq(http_guard_body_come(&guard), come[i], "piece %zu", i);
    }
    http_guard_overload(&guard, 7);
    cr_expect(!http_guard_feed(&guard, "G", 1));
    cr_expect_eq(guard.status, 503);
    cr_expect_eq(guard.limit, 7);
}

/* The limits count what is announced, before it comes, and chunks together. */
Test(http_guard, limits)
{
    static const struct http_guard_limits limits = {.head_bytes = 60, .body_bytes = 10};
    static const struct {
        const char *text;
        int status;
        uint64_t limit;
    } limited[] = {
        {POST "Content-Length: 10\r\n\r\n0123456789", 0, 0},
        {POST "Content-Length: 11\r\n\r\n", 413, 10},
        {POST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nhello\r\n0\r\n\r\n", 0, 0},
        {POST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n", 413, 10},
        {POST "Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", 413, 10},
        {POST "X: 0123456789012345678901234567890123456789\r\n\r\n", 431, 60},
        {POST "A:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\n\r\n", 431, 60},
        {"GET /0123456789012345678901234567890123456789012345678901234567890123456789", 431, 60},
    };
    for (size_t i = 0; i < ARRAY_COUNT(limited); i++) {
        const size_t bytes = strlen(limited[i].text);
        for (size_t cut = 0; cut <= bytes; cut++) {
            struct http_guard guard = {.limits = &limits};
            http_guard_feed(&guard, limited[i].text, cut);
            http_guard_feed(&guard, limited[i].text + cut, bytes - cut);
            cr_assert_eq(guard.status, limited[i].status, "row %zu cut at %zu: %d", i, cut,
                         guard.status);
            cr_assert_eq(guard.limit, limited[i].limit);
        }
    }
    /* Each request has them anew. */
    struct http_guard guard = {.limits = &limits};
    static const char request[] = POST "Content-Length: 9\r\n\r\n012345678";
    for (int i = 0; i < 10; i++)
        cr_expect(http_guard_feed(&guard, request, sizeof request - 1));
}
