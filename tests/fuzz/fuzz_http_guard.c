/* Any bytes on a connection: the guard's verdict does not depend on how they are cut, and what it
 * lets pass keeps its limits. The first byte of an input says where the cuts are. */
#include <string.h>

#include "base/check.h"
#include "router/http_guard.h"
#include "tests/fuzz/fuzz.h"

const char *const fuzz_words[] = {"GET ",
                                  "POST ",
                                  "OPTIONS ",
                                  " HTTP/1.1\r\n",
                                  " HTTP/1.0\r\n",
                                  "\r\n",
                                  "\r\n\r\n",
                                  "http://",
                                  "https://",
                                  ":65535",
                                  "Content-Length: ",
                                  "Transfer-Encoding: chunked\r\n",
                                  "Expect: 100-continue\r\n",
                                  "Host: t\r\n",
                                  "0\r\n",
                                  "ffffffff\r\n",
                                  NULL};

static const struct http_guard_limits limits = {.head_bytes = 100, .body_bytes = 50};

static struct http_guard feed(const uint8_t *data, size_t bytes, size_t piece)
{
    struct http_guard guard = {.limits = &limits};
    for (size_t at = 0; at < bytes; at += piece)
        http_guard_feed(&guard, data + at, piece < bytes - at ? piece : bytes - at);
    return guard;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    const struct http_guard whole = feed(data + 1, bytes - 1, bytes);
    const struct http_guard cut = feed(data + 1, bytes - 1, 1 + (size_t)data[0] % 16);
    CHECK(whole.state == cut.state && whole.status == cut.status && whole.limit == cut.limit);
    CHECK(whole.requests == cut.requests && whole.complete == cut.complete);
    CHECK((whole.state == GUARD_BAD) == (whole.reason != NULL && whole.status >= 400));
    if (whole.state == GUARD_BAD)
        return 0;
    CHECK(whole.complete <= whole.requests && whole.requests <= whole.complete + 1);
    CHECK(http_guard_in_request(&whole) == (whole.requests > whole.complete));
    CHECK(whole.head_bytes <= limits.head_bytes && whole.body_bytes <= limits.body_bytes);
    CHECK(whole.state != GUARD_BODY || whole.left <= limits.body_bytes);
    return 0;
}
