/* HTTP as hostile and careless clients speak it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "tests/router/fake_worker.h"
#include "tests/router/tiny_text.h"

static struct router_process router;
static struct fake_worker decode;

static void start(const char *const *extra)
{
    router_process_start(&router, extra);
    fake_worker_init(&decode, &router, WORKER_DECODE, "d0");
    decode.automatic = true;
    fake_worker_connect(&decode);
}

static void stop(void)
{
    cr_expect_eq(router_process_stop(&router), 0);
}

/* Sends raw bytes; the status that comes back, 0 when the connection just closes. */
static int raw(const char *text, struct buffer *answer)
{
    struct client client;
    client_open(&client, &router);
    client_send(&client, text);
    WAIT_FOR(&router, client_complete(&client) || client.closed);
    const int status = client_status(&client);
    if (answer)
        client_body(&client, answer);
    client_close(&client);
    return status;
}

#define POST   "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
#define BODY   "{\"prompt\":\"x\"}" /* 14 bytes */
#define CHUNKS "Transfer-Encoding: chunked\r\n\r\n"

static const struct {
    const char *name, *text;
    int status;
} framings[] = {
    {"plain", POST "Content-Length: 14\r\n\r\n" BODY, 200},
    {"chunked", POST CHUNKS "e\r\n" BODY "\r\n0\r\n\r\n", 200},
    {"chunked in two", POST CHUNKS "4\r\n{\"pr\r\na\r\nompt\":\"x\"}\r\n0\r\n\r\n", 200},
    {"chunk size 0x", POST CHUNKS "0xe\r\n" BODY "\r\n0\r\n\r\n", 400},
    {"chunk size +", POST CHUNKS "+e\r\n" BODY "\r\n0\r\n\r\n", 400},
    {"chunk size -", POST CHUNKS "-0\r\n\r\n", 400},
    {"chunk size junk", POST CHUNKS "ezzz\r\n" BODY "\r\n0\r\n\r\n", 400},
    {"chunk size wraps", POST CHUNKS "10000000000000000\r\n" BODY "\r\n0\r\n\r\n", 400},
    {"two lengths", POST "Content-Length: 14\r\nContent-Length: 14\r\n\r\n" BODY, 400},
    {"two different lengths", POST "Content-Length: 3\r\nContent-Length: 14\r\n\r\n" BODY, 400},
    {"length and chunked", POST "Content-Length: 14\r\n" CHUNKS "e\r\n" BODY "\r\n0\r\n\r\n", 400},
    {"gzip, chunked", POST "Transfer-Encoding: gzip, chunked\r\nContent-Length: 14\r\n\r\n" BODY,
     400},
    {"identity coding", POST "Transfer-Encoding: identity\r\nContent-Length: 14\r\n\r\n" BODY, 400},
    {"unknown coding", POST "Transfer-Encoding: xchunked\r\n\r\n", 400},
    {"negative length", POST "Content-Length: -1\r\n\r\n", 400},
    {"length junk", POST "Content-Length: 1x\r\n\r\n" BODY, 400},
    {"two hosts", POST "Host: u\r\nContent-Length: 14\r\n\r\n" BODY, 400},
    {"space before colon", POST "Content-Length : 14\r\n\r\n" BODY, 400},
    {"gzip body", POST "Content-Encoding: gzip\r\nContent-Length: 14\r\n\r\n" BODY, 415},
    {"folded header", POST "X: a\r\n b\r\nContent-Length: 14\r\n\r\n" BODY, 400},
    {"chunk longer than it says", POST CHUNKS "3\r\n" BODY "\r\n0\r\n\r\n", 400},
    {"chunk without size", POST CHUNKS "\r\n" BODY "\r\n0\r\n\r\n", 400},
    {"chunk size space", POST CHUNKS " e\r\n" BODY "\r\n0\r\n\r\n", 400},
    {"chunk size underscore", POST CHUNKS "0_0\r\n\r\n", 400},
    {"chunk extension", POST CHUNKS "e;a=b\r\n" BODY "\r\n0\r\n\r\n", 400},
    {"carriage return in a value", POST "X: a\rb\r\nContent-Length: 14\r\n\r\n" BODY, 400},
    {"carriage return before a name", POST "\rContent-Length: 14\r\n\r\n" BODY, 400},
    {"two carriage returns", POST "Content-Length: 14\r\r\n\r\n" BODY, 400},
    {"carriage return in a chunk size", POST CHUNKS "0\re\r\n" BODY "\r\n0\r\n\r\n", 400},
    {"carriage returns behind a chunk", POST CHUNKS "e\r\n" BODY "\r\r\n0\r\n\r\n", 400},
    {"chunk line without its return", POST CHUNKS "e\n" BODY "\r\n0\r\n\r\n", 400},
    {"trailer that is none", POST CHUNKS "e\r\n" BODY "\r\n0\r\nX\r\n\r\n", 400},
    {"chunks of old", "POST /v1/completions HTTP/1.0\r\n" CHUNKS "e\r\n" BODY "\r\n0\r\n\r\n", 400},
    {"no host", "GET /health HTTP/1.1\r\n\r\n", 400},
    {"path with a NUL", "GET /health%00/x HTTP/1.1\r\nHost: t\r\n\r\n", 404},
    {"trailer", POST CHUNKS "e\r\n" BODY "\r\n0\r\nX: y\r\n\r\n", 200},
    {"GET with a body", "GET /health HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nhello", 400},
    {"no body", POST "Content-Length: 0\r\n\r\n", 400},
    {"no length", POST "\r\n", 400},
    {"other type",
     "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\n"
     "Content-Length: 14\r\n\r\n" BODY,
     400},
    {"type with charset",
     "POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: "
     "application/json; charset=utf-8\r\nContent-Length: 14\r\n\r\n" BODY,
     200},
    {"unknown expectation", POST "Expect: wonders\r\nContent-Length: 14\r\n\r\n" BODY, 417},
    {"bad version", "GET /health HTTP/9.x\r\nHost: t\r\n\r\n", 505},
    {"no version", "GET /health\r\nHost: t\r\n\r\n", 400},
    {"unknown method", "BREW /health HTTP/1.1\r\nHost: t\r\n\r\n", 501},
    {"method of a proxy", "CONNECT t:80 HTTP/1.1\r\nHost: t\r\n\r\n", 501},
    {"absolute address", "GET http://t/health HTTP/1.1\r\nHost: t\r\n\r\n", 200},
    {"query", "GET /health?verbose=1 HTTP/1.1\r\nHost: t\r\n\r\n", 200},
    {"old version", "GET /health HTTP/1.0\r\n\r\n", 200},
    {"unknown path", "GET /v1/nothing HTTP/1.1\r\nHost: t\r\n\r\n", 404},
    {"path like one", "GET /healthy HTTP/1.1\r\nHost: t\r\n\r\n", 404},
    {"wrong method", "GET /v1/completions HTTP/1.1\r\nHost: t\r\n\r\n", 405},
    {"wrong method", "DELETE /health HTTP/1.1\r\nHost: t\r\n\r\n", 405},
    {"wrong method", "POST /v1/models HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n", 405},
};

Test(http, framing)
{
    start(NULL);
    for (size_t i = 0; i < ARRAY_COUNT(framings); i++) {
        struct buffer body = {0};
        const int status = raw(framings[i].text, &body);
        cr_expect_eq(status, framings[i].status, "%s gave %d", framings[i].name, status);
        if (framings[i].status >= 400)
            cr_expect(body.data && strncmp(body.data, "{\"error\":{\"message\":\"", 21) == 0,
                      "%s: %s", framings[i].name, body.data);
        buffer_free(&body);
    }
    cr_expect_eq(client_metric(&router, "baton_requests_inflight"), 0);
    stop();
}

Test(http, errors_are_objects)
{
    start(NULL);
    struct buffer body = {0};
    raw("GET /v1/nothing HTTP/1.1\r\nHost: t\r\n\r\n", &body);
    cr_expect(strncmp(body.data, "{\"error\":{\"message\":", 20) == 0, "%s", body.data);
    raw("PUT /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n", &body);
    cr_expect(strncmp(body.data, "{\"error\":{\"message\":", 20) == 0, "%s", body.data);
    raw(POST "Content-Length: 14\r\nContent-Length: 14\r\n\r\n" BODY, &body);
    cr_expect(strncmp(body.data, "{\"error\":{\"message\":", 20) == 0, "%s", body.data);
    raw(POST "Content-Length: 2\r\n\r\n{:", &body);
    cr_expect(strstr(body.data, "invalid_request_error"), "%s", body.data);
    struct client client;
    client_open(&client, &router);
    client_get(&client, "/v1/chat/completions");
    WAIT_FOR(&router, client_complete(&client));
    char allow[32] = "";
    cr_expect(client_header(&client, "Allow", allow, sizeof allow));
    cr_expect_str_eq(allow, "POST");
    client_close(&client);
    buffer_free(&body);
    stop();
}

Test(http, pipelined_requests_are_answered_in_order)
{
    start(NULL);
    struct client client;
    client_open(&client, &router);
    client_send(&client,
                POST "Content-Length: 14\r\n\r\n" BODY "GET /version HTTP/1.1\r\nHost: t\r\n\r\n"
                     "GET /nothing HTTP/1.1\r\nHost: t\r\n\r\n");
    WAIT_FOR(&router, client.in.data && text_count(client.in.data, "HTTP/1.1 ") == 3 &&
                          strstr(client.in.data, "not_found\""));
    const char *first = strstr(client.in.data, "\"text\":\"answer\"");
    const char *second = strstr(client.in.data, "{\"version\":");
    cr_expect(first && second && first < second, "%s", client.in.data);
    client_close(&client);
    stop();
}

Test(http, blank_lines_between_requests_are_no_requests)
{
    start(NULL);
    struct client client;
    client_open(&client, &router);
    client_send(&client, "\r\n\n" POST "Content-Length: 14\r\n\r\n" BODY "\r\n\r\n\n"
                         "GET /version HTTP/1.1\r\nHost: t\r\n\r\n\r\n");
    WAIT_FOR(&router,
             client.closed || (client.in.data && text_count(client.in.data, "HTTP/1.1 200 ") == 2 &&
                               strstr(client.in.data, "{\"version\":")));
    client_send(&client, "GET /nothing HTTP/1.1\r\nHost: t\r\n\r\n");
    WAIT_FOR(&router, client.closed || strstr(client.in.data, "not_found\""));
    cr_expect_eq(text_count(client.in.data, "HTTP/1.1 "), 3, "%s", client.in.data);
    cr_expect(!client.closed);
    client_close(&client);
    stop();
}

/* What waits in front of them stays. */
Test(http, blank_lines_behind_the_rest_of_a_body)
{
    start(NULL);
    struct client client;
    client_open(&client, &router);
    client_send(&client, POST "Content-Length: 14\r\n\r\n{\"prom");
    WAIT_FOR(&router, client_metric(&router, "baton_http_read_bytes") == 6);
    client_send(&client, "pt\":\"x\"}\r\n\r\nGET /version HTTP/1.1\r\nHost: t\r\n\r\n");
    WAIT_FOR(&router, client.closed || (client.in.data && strstr(client.in.data, "{\"version\":")));
    cr_expect_eq(text_count(client.in.data, "HTTP/1.1 200 "), 2, "%s", client.in.data);
    cr_expect(strstr(client.in.data, "\"text\":\"answer\""), "%s", client.in.data);
    client_close(&client);
    stop();
}

/* Whole answers and streams; "close" may be one word of several. */
Test(http, a_client_that_wants_one_answer_only)
{
    static const char *const asked[] = {"Connection: close\r\n", "Connection: TE, Close\r\n",
                                        "Connection: TE\r\nConnection: close ,x\r\n"};
    static const char stream[] = "{\"prompt\":\"x\",\"stream\":true}";
    start(NULL);
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++) {
        struct buffer request = {0};
        buffer_printf(&request, POST "%sContent-Length: %zu\r\n\r\n%s", asked[i],
                      i == 1 ? strlen(stream) : strlen(BODY), i == 1 ? stream : BODY);
        struct client client;
        client_open(&client, &router);
        client_send(&client, request.data);
        WAIT_FOR(&router, client.closed);
        cr_expect_eq(client_status(&client), 200, "%s: %s", asked[i], client.in.data);
        cr_expect(strstr(client.in.data, "Connection: close\r\n"), "%s: %s", asked[i],
                  client.in.data);
        client_close(&client);
        buffer_free(&request);
    }
    stop();
}

Test(http, head_is_answered_without_a_body)
{
    start(NULL);
    struct client client;
    client_open(&client, &router);
    client_send(&client, "HEAD /version HTTP/1.1\r\nHost: t\r\n\r\n"
                         "HEAD /nothing HTTP/1.1\r\nHost: t\r\n\r\n"
                         "GET /version HTTP/1.1\r\nHost: t\r\n\r\n");
    WAIT_FOR(&router, client.in.data && text_count(client.in.data, "HTTP/1.1 ") == 3 &&
                          strstr(client.in.data, "{\"version\":"));
    cr_expect_eq(text_count(client.in.data, "{"), 1, "%s", client.in.data);
    cr_expect_eq(text_count(client.in.data, "Content-Length: "), 3, "%s", client.in.data);
    cr_expect_eq(text_count(client.in.data, "Content-Length: 0"), 0, "%s", client.in.data);
    client_close(&client);
    stop();
}

Test(http, connections_are_kept)
{
    start(NULL);
    struct client client;
    client_open(&client, &router);
    for (uint32_t i = 1; i <= 3; i++) {
        client_post(&client, "/v1/completions", "{\"prompt\":\"x\",\"stream\":true}");
        WAIT_FOR(&router,
                 client.in.data && text_count(client.in.data, "[DONE]\n\n\r\n0\r\n\r\n") == i);
    }
    cr_expect(!client.closed);
    client_close(&client);
    stop();
}

Test(http, expect_100_continue)
{
    static const char *const extra[] = {"--max-body", "64K", NULL};
    start(extra);
    struct client client;
    client_open(&client, &router);
    client_send(&client, POST "Expect: 100-continue\r\nContent-Length: 14\r\n\r\n");
    WAIT_FOR(&router, client.in.data && strstr(client.in.data, "HTTP/1.1 100 "));
    client_send(&client, BODY);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_status(&client), 200);
    client_close(&client);
    /* Too large: told before the body is sent. */
    client_open(&client, &router);
    client_send(&client, POST "Expect: 100-continue\r\nContent-Length: 100000\r\n\r\n");
    WAIT_FOR(&router, client_status(&client) != 0);
    cr_expect_eq(client_status(&client), 413);
    cr_expect(!strstr(client.in.data, "HTTP/1.1 100 "));
    client_close(&client);
    stop();
}

Test(http, bodies_and_heads_have_limits)
{
    static const char *const extra[] = {"--max-body", "64K", NULL};
    start(extra);
    struct buffer text = {0};
    buffer_add_text(&text, POST CHUNKS);
    for (int i = 0; i < 20; i++) {
        buffer_add_text(&text, "1000\r\n");
        for (int k = 0; k < 0x1000; k++)
            buffer_add_char(&text, ' ');
        buffer_add_text(&text, "\r\n");
    }
    cr_expect_eq(raw(text.data, NULL), 413, "a chunked body is counted too");
    buffer_clear(&text);
    buffer_add_text(&text, "GET /health HTTP/1.1\r\nHost: t\r\nX-Long: ");
    for (int k = 0; k < 200000; k++)
        buffer_add_char(&text, 'x');
    buffer_add_text(&text, "\r\n\r\n");
    struct buffer body = {0};
    cr_expect_eq(raw(text.data, &body), 431);
    cr_expect(strstr(body.data, "larger than the limit of 65536 bytes."), "%s", body.data);
    buffer_clear(&text);
    buffer_add_text(&text, "GET /health HTTP/1.1\r\nHost: t\r\n");
    for (int k = 0; k < 10000; k++)
        buffer_printf(&text, "X-%d: y\r\n", k);
    buffer_add_text(&text, "\r\n");
    cr_expect_eq(raw(text.data, &body), 431);
    buffer_free(&body);
    cr_expect_eq(client_fetch(&router, "/health", NULL), 200);
    buffer_free(&text);
    stop();
}

static void wait_for_read_bytes(double bytes)
{
    WAIT_FOR(&router, client_metric(&router, "baton_http_read_bytes") == bytes);
}

/* Unfinished bodies are bounded together; who is alone may have all of --max-body. */
Test(http, bodies_on_their_way_have_a_limit_together)
{
    static const char *const extra[] = {"--read-buffer", "1K", NULL};
    struct buffer part = {0}, body = {0};
    for (int i = 0; i < 700; i++)
        buffer_add_char(&part, ' ');
    start(extra);
    struct client first, second;
    client_open(&first, &router);
    client_send(&first, POST "Content-Length: 2114\r\n\r\n");
    client_send(&first, part.data);
    wait_for_read_bytes(700);
    client_open(&second, &router);
    client_send(&second, POST CHUNKS "500\r\n");
    client_send(&second, part.data);
    WAIT_FOR(&router, second.closed);
    char value[64];
    client_header(&second, "Retry-After", value, sizeof value);
    client_body(&second, &body);
    cr_expect_eq(client_status(&second), 503);
    cr_expect_str_eq(value, "1");
    cr_expect(strstr(body.data, "exceed the limit of 1024 bytes.") &&
                  strstr(body.data, "\"code\":\"overloaded\""),
              "%s", body.data);
    client_close(&second);
    wait_for_read_bytes(700);
    client_send(&first, part.data);
    wait_for_read_bytes(1400);
    client_send(&first, part.data);
    client_send(&first, BODY);
    WAIT_FOR(&router, client_complete(&first));
    cr_expect_eq(client_status(&first), 200, "%s", first.in.data);
    wait_for_read_bytes(0);
    client_close(&first);
    buffer_free(&part);
    buffer_free(&body);
    stop();
}

/* One that sends all of its body before it looks for an answer gets the answer, not a reset. */
Test(http, a_body_that_is_too_large_is_read_for_a_while)
{
    static const char *const extra[] = {"--max-body", "64K", NULL};
    start(extra);
    struct buffer text = {0};
    buffer_add_text(&text, POST "Content-Length: 4194304\r\n\r\n");
    const size_t head = text.size;
    buffer_reserve(&text, 4 << 20);
    memset(text.data + head, 'x', 4 << 20);
    text.size += 4 << 20;
    struct client client;
    client_open(&client, &router);
    client_send_bytes(&client, text.data, text.size);
    WAIT_FOR(&router, client_complete(&client));
    struct buffer body = {0};
    client_body(&client, &body);
    cr_expect_eq(client_status(&client), 413);
    cr_expect(strstr(body.data, "\"code\":\"body_too_large\"") &&
                  strstr(body.data, "larger than the limit of 65536 bytes."),
              "%s", body.data);
    WAIT_FOR(&router, client.closed);
    client_close(&client);
    buffer_free(&body);
    buffer_free(&text);
    stop();
}

Test(http, a_body_that_does_not_come_is_cut_off)
{
    static const char *const extra[] = {"--idle-timeout-ms", "200", NULL};
    start(extra);
    struct client client;
    client_open(&client, &router);
    client_send(&client, POST "Content-Length: 1000\r\n\r\n{\"prompt\":");
    WAIT_FOR(&router, client.closed);
    client_close(&client);
    client_open(&client, &router);
    client_send(&client, "GET /hea");
    WAIT_FOR(&router, client.closed);
    client_close(&client);
    stop();
}

/* A byte now and then keeps a connection from being idle, but not for ever. */
Test(http, a_body_that_trickles_is_cut_off)
{
    static const char *const extra[] = {"--read-timeout-ms", "300", NULL};
    start(extra);
    struct client client;
    client_open(&client, &router);
    client_send(&client, POST "Content-Length: 100000\r\n\r\n");
    const uint64_t begun_ns = loop_now_ns(router.loop);
    while (!client.closed) {
        client_send(&client, " ");
        loop_run_once(router.loop, 20);
        cr_assert_lt(loop_now_ns(router.loop) - begun_ns, 100 * (uint64_t)NS_PER_S);
    }
    client_close(&client);
    cr_expect_eq(client_fetch(&router, "/health", NULL), 200);
    stop();
}

Test(http, request_ids)
{
    start(NULL);
    struct client client;
    char value[256] = "";
    client_open(&client, &router);
    client_send(&client, "GET /health HTTP/1.1\r\nHost: t\r\nX-Request-Id: run-7/a.b\r\n\r\n");
    WAIT_FOR(&router, client_complete(&client));
    cr_expect(client_header(&client, "X-Request-Id", value, sizeof value));
    cr_expect_str_eq(value, "run-7/a.b");
    client_close(&client);
    static const char *const bad[] = {"a b", "a\"b", "\xc3\xa9", "<script>", ""};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        char text[256];
        snprintf(text, sizeof text, "GET /health HTTP/1.1\r\nHost: t\r\nX-Request-Id: %s\r\n\r\n",
                 bad[i]);
        client_open(&client, &router);
        client_send(&client, text);
        WAIT_FOR(&router, client_complete(&client));
        cr_expect(client_header(&client, "X-Request-Id", value, sizeof value));
        cr_expect_eq(strncmp(value, "req-", 4), 0, "%s came back", value);
        client_close(&client);
    }
    struct buffer text = {0};
    buffer_add_text(&text, "GET /health HTTP/1.1\r\nHost: t\r\nX-Request-Id: ");
    for (int i = 0; i < 129; i++)
        buffer_add_char(&text, 'a');
    buffer_add_text(&text, "\r\n\r\n");
    client_open(&client, &router);
    client_send(&client, text.data);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect(client_header(&client, "X-Request-Id", value, sizeof value));
    cr_expect_eq(strncmp(value, "req-", 4), 0);
    client_close(&client);
    buffer_free(&text);
    stop();
}

Test(http, small_pages)
{
    start(NULL);
    struct buffer body = {0};
    cr_expect_eq(client_fetch(&router, "/v1/models", &body), 200);
    cr_expect(strstr(body.data, "\"id\":\"tiny\"") && strstr(body.data, "\"max_model_len\":16384"),
              "%s", body.data);
    cr_expect_eq(client_fetch(&router, "/version", &body), 200);
    cr_expect(strstr(body.data, BATON_VERSION), "%s", body.data);
    cr_expect_eq(client_fetch(&router, "/workers", &body), 200);
    cr_expect(strstr(body.data, "\"name\":\"d0\",\"role\":\"decode\",\"state\":\"up\""), "%s",
              body.data);
    cr_expect_eq(client_fetch(&router, "/metrics", &body), 200);
    cr_expect(strstr(body.data, "baton_workers{role=\"decode\",state=\"up\"} 1"), "%s", body.data);
    cr_expect_eq(text_count(body.data, "# HELP "), text_count(body.data, "# TYPE "));
    buffer_free(&body);
    stop();
}

Test(http, start_up_failures_are_one_sentence)
{
    start(NULL);
    struct buffer output = {0};
    char folder[300];
    snprintf(folder, sizeof folder, "%s.other", router.folder);
    const char *const taken[] = {"--model",   tiny_model_path(), "--http",      router.http,
                                 "--control", "127.0.0.1:0",     "--state-dir", folder,
                                 NULL};
    cr_expect_eq(router_process_run(taken, &output), 1);
    cr_expect(strstr(output.data, "in use") && text_count(output.data, "\n") == 1, "%s",
              output.data);
    buffer_clear(&output);
    const char *const control[] = {"--model",   tiny_model_path(), "--http",      "127.0.0.1:0",
                                   "--control", router.control,    "--state-dir", folder,
                                   NULL};
    cr_expect_eq(router_process_run(control, &output), 1);
    cr_expect(strstr(output.data, "in use"), "%s", output.data);
    buffer_clear(&output);
    const char *const missing[] = {"--model", "/nowhere/model.gguf", NULL};
    cr_expect_eq(router_process_run(missing, &output), 1);
    cr_expect(strstr(output.data, "/nowhere/model.gguf"), "%s", output.data);
    buffer_clear(&output);
    const char *const beyond[] = {"--model",   tiny_model_path(), "--http",      "127.0.0.1:65536",
                                  "--control", "127.0.0.1:0",     "--state-dir", folder,
                                  NULL};
    cr_expect_eq(router_process_run(beyond, &output), 1);
    cr_expect(strstr(output.data, "limit of 65535") && text_count(output.data, "\n") == 1, "%s",
              output.data);
    buffer_clear(&output);
    const char *const none[] = {"--http", "127.0.0.1:0", NULL};
    cr_expect_eq(router_process_run(none, &output), 2);
    buffer_clear(&output);
    const char *const state[] = {"--model",     tiny_model_path(), "--http",
                                 "127.0.0.1:0", "--control",       "127.0.0.1:0",
                                 "--state-dir", router.folder,     NULL};
    cr_expect_eq(router_process_run(state, &output), 1);
    cr_expect(strstr(output.data, "another router"), "%s", output.data);
    buffer_free(&output);
    stop();
}
