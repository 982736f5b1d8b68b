/* The guard's verdict must not depend on how the bytes are cut. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/check.h"
#include "router/http_guard.h"

#define POST "POST /x HTTP/1.1\r\nHost: t\r\n"

static const struct {
    const char *text;
    bool good;
    uint64_t complete; /* requests that ended */
} rows[] = {
    {"GET / HTTP/1.1\r\nHost: t\r\n\r\n", true, 1},
    {"\r\n\r\nGET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", true, 2},
    {"GET / HTTP/1.1\nHost: t\n\n", true, 1},
    {POST "Content-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n\r\n", true, 2},
    {POST "content-length:5 \r\n\r\nhell", true, 0},
    {POST "Content-Length: 0\r\n\r\n", true, 1},
    {POST "\r\n", true, 1},
    {POST "Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0A\r\n0123456789\r\n0\r\n\r\n", true, 1},
    {POST "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\n\r\n", true, 2},
    {POST "Transfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n", true, 0},
    {POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", false, 0},
    {POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", false, 0},
    {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", false, 0},
    {POST "Transfer-Encoding: gzip\r\n\r\n", false, 0},
    {POST "Transfer-Encoding: chunked, gzip\r\n\r\n", false, 0},
    {POST "Transfer-Encoding: something-much-longer-than-it-may-be-chunked\r\n\r\n", false, 0},
    {POST "Content-Length: 5, 5\r\n\r\nhello", false, 0},
    {POST "Content-Length: +5\r\n\r\nhello", false, 0},
    {POST "Content-Length: 0x5\r\n\r\nhello", false, 0},
    {POST "Content-Length: 1234567890123456\r\n\r\n", false, 0},
    {POST "Content-Length: \r\n\r\n", false, 0},
    {POST "Content-Length : 5\r\n\r\nhello", false, 0},
    {POST "X: a\r\n b\r\n\r\n", false, 0},
    {POST "\tX: a\r\n\r\n", false, 0},
    {POST "Host: u\r\n\r\n", false, 0},
    {POST "no colon\r\n\r\n", false, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n", false, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n", false, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n", false, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n", false, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n", false, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n\r\nhello\r\n", false, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n", false, 0},
    {POST "Transfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n", false, 0},
    {"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", false, 0},
    {"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false, 0},
    {"GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", true, 1},
};

Test(http_guard, every_cut_has_the_same_verdict)
{
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const size_t bytes = strlen(rows[i].text);
        for (size_t cut = 0; cut <= bytes; cut++) {
            struct http_guard guard = {0};
            http_guard_feed(&guard, rows[i].text, cut);
            const bool good = http_guard_feed(&guard, rows[i].text + cut, bytes - cut);
            cr_assert_eq(good, rows[i].good, "%s cut at %zu", rows[i].text, cut);
            cr_assert_eq(guard.reason == NULL, good);
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
}

Test(http_guard, knows_when_a_request_is_under_way)
{
    struct http_guard guard = {0};
    cr_expect(!http_guard_in_request(&guard));
    http_guard_feed(&guard, "GE", 2);
    cr_expect(http_guard_in_request(&guard));
    http_guard_feed(&guard, "T / HTTP/1.1\r\n\r\n", 16);
    cr_expect(!http_guard_in_request(&guard));
    cr_expect_eq(guard.requests, 1);
}
