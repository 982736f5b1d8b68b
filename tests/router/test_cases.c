/* What clients and attackers were seen to send to other servers, byte by byte, and exactly what is
 * answered: limits of prompts and answers, HTTP, JSON. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "tests/router/serving_fixture.h"

enum { CONTEXT = 32 };

static void start(void)
{
    static const char *const extra[] = {"--max-body", "64K", NULL};
    serving_start(extra);
    prefill.context_tokens = decode.context_tokens = CONTEXT;
    serving_connect(true);
}

/* The status; the body behind the head goes to *body. The connection may close. */
static int send_raw(const char *request, struct buffer *body)
{
    struct client client;
    client_open(&client, &router);
    client_send(&client, request);
    WAIT_FOR(&router, client_complete(&client) || client.closed);
    const int status = client_status(&client);
    client_body(&client, body);
    client_close(&client);
    return status;
}

static int post(const char *path, const char *json, struct buffer *body)
{
    struct buffer request = {0};
    buffer_printf(&request,
                  "POST %s HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n"
                  "Content-Length: %zu\r\n\r\n%s",
                  path, strlen(json), json);
    const int status = send_raw(request.data, body);
    buffer_free(&request);
    return status;
}

#define ERROR(message, param, code)                                                                \
    "{\"error\":{\"message\":\"" message "\",\"type\":\"invalid_request_error\",\"param\":" param  \
    ",\"code\":" code "}}"
#define CHAT(fields) "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]," fields "}"

struct json_case {
    const char *path, *request;
    int status;
    const char *body; /* whole */
};

static void play(const struct json_case *cases, size_t count)
{
    start();
    for (size_t i = 0; i < count; i++) {
        struct buffer body = {0};
        const int status = post(cases[i].path, cases[i].request, &body);
        cr_expect_eq(status, cases[i].status, "%s gave %d", cases[i].request, status);
        cr_expect_str_eq(body.data, cases[i].body, "%s: %s", cases[i].request, body.data);
        buffer_free(&body);
    }
    /* Whatever was sent, the next request is served. */
    struct buffer body = {0};
    cr_expect_eq(post(TEXT_PATH, "{\"prompt\":\"x\"}", &body), 200);
    cr_expect(strstr(body.data, "\"text\":\"answer\""), "%s", body.data);
    buffer_free(&body);
    serving_expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

#define DIGITS_31 "0123456789012345678901234567890"

static const struct json_case limits[] = {
    {TEXT_PATH, "{\"prompt\":\"" DIGITS_31 "1\"}", 400,
     "{\"error\":{\"message\":\"This model's maximum context length is 32 tokens. However, your "
     "prompt is too long: its 32 tokens leave no room for an answer.\",\"type\":\"invalid_request_"
     "error\",\"param\":\"prompt\",\"code\":\"context_length_exceeded\",\"n_prompt_tokens\":32,"
     "\"n_ctx\":32}}"},
    {TEXT_PATH, "{\"prompt\":\"" DIGITS_31 DIGITS_31 "\",\"max_tokens\":5}", 400,
     "{\"error\":{\"message\":\"This model's maximum context length is 32 tokens. However, your "
     "prompt is too long: its 62 tokens leave no room for an answer.\",\"type\":\"invalid_request_"
     "error\",\"param\":\"prompt\",\"code\":\"context_length_exceeded\",\"n_prompt_tokens\":62,"
     "\"n_ctx\":32}}"},
    {TEXT_PATH, "{\"prompt\":\"\"}", 400,
     ERROR("`prompt` is empty and this model has no token to begin with.", "\"prompt\"", "null")},
    {TEXT_PATH, "{\"prompt\":[\"\"]}", 400,
     ERROR("`prompt[0]` is empty and this model has no token to begin with.", "\"prompt\"",
           "null")},
    {TEXT_PATH, "{\"prompt\":[[-1]]}", 400,
     ERROR("`prompt[0][0]` is -1, but token ids of this model go from 0 to 262.", "\"prompt\"",
           "null")},
    {TEXT_PATH, "{\"prompt\":[-1]}", 400,
     ERROR("`prompt[0]` is -1, but token ids of this model go from 0 to 262.", "\"prompt\"",
           "null")},
    {TEXT_PATH, "{\"prompt\":[5279552648203111001]}", 400,
     ERROR("`prompt[0]` is 5279552648203111001, but token ids of this model go from 0 to 262.",
           "\"prompt\"", "null")},
    {TEXT_PATH, "{\"prompt\":[263]}", 400,
     ERROR("`prompt[0]` is 263, but token ids of this model go from 0 to 262.", "\"prompt\"",
           "null")},
    {TEXT_PATH, "{\"prompt\":\"x\",\"max_tokens\":0}", 400,
     ERROR("`max_tokens` must be an integer from 1 to 9223372036854775807, but is 0.",
           "\"max_tokens\"", "null")},
    {CHAT_PATH, CHAT("\"max_completion_tokens\":0"), 400,
     ERROR("`max_completion_tokens` must be an integer from 1 to 9223372036854775807, but is 0.",
           "\"max_completion_tokens\"", "null")},
};

Test(cases, limits_of_prompts)
{
    play(limits, ARRAY_COUNT(limits));
}

/* At the edge and over it, the answer ends for want of room. */
Test(cases, limits_of_answers)
{
    static const struct {
        const char *request;
        uint32_t max_tokens; /* as the workers hear it */
    } rows[] = {
        {"{\"prompt\":\"" DIGITS_31 "\"}", 1},
        {"{\"prompt\":\"" DIGITS_31 "\",\"max_tokens\":1000000000000}", 1},
        {"{\"prompt\":\"0123456789\",\"max_tokens\":1000000000000}", 22},
        {"{\"prompt\":\"0123456789\",\"max_tokens\":null}", 16},
        {"{\"prompt\":\"0123456789\"}", 16},
        {"{\"prompt\":\"0123456789\",\"max_completion_tokens\":7,\"max_tokens\":9}", 7},
    };
    start();
    for (uint32_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer body = {0};
        cr_expect_eq(post(TEXT_PATH, rows[i].request, &body), 200, "%s: %s", rows[i].request,
                     body.data);
        cr_assert_eq(prefill.job_count, i + 1);
        cr_expect_eq(prefill.jobs[i].max_tokens, rows[i].max_tokens, "%s: %u", rows[i].request,
                     prefill.jobs[i].max_tokens);
        if (rows[i].max_tokens == 1)
            cr_expect(strstr(body.data, "\"text\":\"a\"") &&
                          strstr(body.data, "\"finish_reason\":\"length\""),
                      "%s", body.data);
        buffer_free(&body);
    }
    cr_expect_eq(router_process_stop(&router), 0);
}

static const struct json_case bodies[] = {
    {CHAT_PATH, "", 400, ERROR("The request body is empty.", "null", "null")},
    {CHAT_PATH, "[]", 400,
     ERROR("The request body must be a JSON object, but is an array.", "null", "null")},
    {CHAT_PATH, "null", 400,
     ERROR("The request body must be a JSON object, but is null.", "null", "null")},
    {CHAT_PATH, "{\"messages\":\"x\"}", 400,
     ERROR("`messages` must be an array, but is \\\"x\\\".", "\"messages\"", "null")},
    {CHAT_PATH, "{\"messages\":[\"x\"]}", 400,
     ERROR("`messages[0]` must be an object, but is \\\"x\\\".", "\"messages\"", "null")},
    {TEXT_PATH, "{\"prompt\":{\"x\":1}}", 400,
     ERROR("`prompt` must be a string or an array of token ids, but is an object.", "\"prompt\"",
           "null")},
    {CHAT_PATH, CHAT("\"stream_options\":{\"include_usage\":true}"), 400,
     ERROR("`stream_options` is only allowed when `stream` is true.", "\"stream_options\"",
           "null")},
    {CHAT_PATH, CHAT("\"temperature\":\"hot\""), 400,
     ERROR("`temperature` must be a number from 0 to 2, but is \\\"hot\\\".", "\"temperature\"",
           "null")},
    {CHAT_PATH, CHAT("\"n\":true"), 400,
     ERROR("`n` must be an integer from 1 to 16, but is true.", "\"n\"", "null")},
};

/* The words of the parser, with its line and column, are its own. */
static const char *const not_json[] = {
    "{:",
    "{\"prompt\":\"x\"} trailing",
    "{\"prompt\":\"a\",\"prompt\":\"b\"}",
    "{\"prompt\":\"\xc3\x28\"}",
    "{\"prompt\":\"\\ud800\"}",
    "{\"prompt\":[99999999999999999999999]}",
    "{\"prompt\":\"x\",\"temperature\":NaN}",
    "{\"prompt\":\"x\",\"temperature\":1e999}",
    "{'prompt':'x'}",
    "{\"prompt\":\"x\",}",
};

Test(cases, json)
{
    play(bodies, ARRAY_COUNT(bodies));
}

Test(cases, what_is_no_json_at_all)
{
    start();
    struct buffer deep = {0};
    buffer_add_text(&deep, "{\"prompt\":");
    for (int i = 0; i < 5000; i++)
        buffer_add_char(&deep, '[');
    for (size_t i = 0; i <= ARRAY_COUNT(not_json); i++) {
        const char *text = i < ARRAY_COUNT(not_json) ? not_json[i] : deep.data;
        struct buffer body = {0};
        cr_expect_eq(post(TEXT_PATH, text, &body), 400, "%.60s", text);
        static const char begin[] =
            "{\"error\":{\"message\":\"The request body is not valid JSON: ";
        static const char end[] =
            "\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}";
        cr_assert(body.size > sizeof begin + sizeof end, "%s", body.data);
        cr_expect(strncmp(body.data, begin, sizeof begin - 1) == 0, "%s", body.data);
        cr_expect_str_eq(body.data + body.size - (sizeof end - 1), end);
        buffer_free(&body);
    }
    buffer_free(&deep);
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(cases, unknown_fields_are_no_fault)
{
    start();
    struct buffer body = {0};
    cr_expect_eq(post(CHAT_PATH,
                      CHAT("\"foo\":1,\"n_keep\":\"silly\",\"cache_prompt\":true,\"user\":null"),
                      &body),
                 200, "%s", body.data);
    buffer_free(&body);
    cr_expect_eq(router_process_stop(&router), 0);
}

#define TYPE         "Content-Type: application/json\r\n"
#define POST         "POST /v1/completions HTTP/1.1\r\nHost: t\r\n" TYPE
#define BODY         "{\"prompt\":\"x\"}" /* 14 bytes */
#define CHUNKS       "Transfer-Encoding: chunked\r\n\r\n"
#define BAD(message) ERROR(message, "null", "\"bad_request\"")

static const struct {
    const char *request;
    int status;
    const char *body;
} requests[] = {
    {POST "Transfer-Encoding: gzip, chunked\r\nContent-Length: 14\r\n\r\n" BODY, 400,
     BAD("Transfer-Encoding must be chunked or absent.")},
    {POST "Content-Length: 14\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
     BAD("The request has both Content-Length and Transfer-Encoding.")},
    {POST "Content-Length: 14\r\nContent-Length: 15\r\n\r\n" BODY, 400,
     BAD("The request has more than one Content-Length.")},
    {POST CHUNKS "0x1\r\n", 400,
     BAD("A chunk size holds a character that is no hexadecimal digit.")},
    {POST CHUNKS "+1\r\n", 400,
     BAD("A chunk size holds a character that is no hexadecimal digit.")},
    {POST CHUNKS "-0\r\n", 400,
     BAD("A chunk size holds a character that is no hexadecimal digit.")},
    {POST CHUNKS " 1\r\n", 400,
     BAD("A chunk size holds a character that is no hexadecimal digit.")},
    {POST CHUNKS "1zzz\r\n", 400,
     BAD("A chunk size holds a character that is no hexadecimal digit.")},
    {POST CHUNKS "0_0\r\n", 400,
     BAD("A chunk size holds a character that is no hexadecimal digit.")},
    {POST CHUNKS "10000000000000000\r\n", 400, BAD("A chunk size has too many digits.")},
    {POST CHUNKS "fffffff\r\n", 413,
     ERROR("The request body is larger than the limit of 65536 bytes.", "null",
           "\"body_too_large\"")},
    {POST "Content-Length: 65537\r\n\r\n", 413,
     ERROR("The request body is larger than the limit of 65536 bytes.", "null",
           "\"body_too_large\"")},
    {POST "Expect: 100-continue\r\nContent-Length: 65537\r\n\r\n", 413,
     ERROR("The request body is larger than the limit of 65536 bytes.", "null",
           "\"body_too_large\"")},
    {POST "Expect: 200-ok\r\nContent-Length: 14\r\n\r\n" BODY, 417,
     ERROR("The only Expect that can be met is 100-continue.", "null", "\"unknown_expectation\"")},
    {POST "Content-Encoding: gzip\r\nContent-Length: 14\r\n\r\n" BODY, 415,
     ERROR("Content-Encoding gzip is not supported; send the body plain.", "null",
           "\"unsupported_encoding\"")},
    {POST "Content-Length: 0\r\n\r\n", 400, ERROR("The request body is empty.", "null", "null")},
    {"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Type: text/plain\r\n"
     "Content-Length: 14\r\n\r\n" BODY,
     400, ERROR("The Content-Type must be application/json.", "null", "\"bad_content_type\"")},
    {"GET /health HTTP/1.1\r\nHost: t\r\nX: a\r\n b\r\n\r\n", 400,
     BAD("A header goes on in the next line.")},
    {"GET /health HTTP/1.1\r\nHost: t\r\nHost: u\r\n\r\n", 400,
     BAD("The request has more than one Host.")},
    {"GET /health HTTP/1.1\r\nHost : t\r\n\r\n", 400,
     BAD("A header name holds a character that is not allowed.")},
    {"GET /health\r\n\r\n", 400, BAD("The request line is not a method, a target and a version.")},
    {"\x16\x03\x01\x02\r\n\r\n", 400, BAD("The request line holds a byte that is not allowed.")},
    {"GET /v1/responses HTTP/1.1\r\nHost: t\r\n\r\n", 404,
     "{\"error\":{\"message\":\"There is nothing at this path.\",\"type\":\"not_found_error\","
     "\"param\":null,\"code\":\"not_found\"}}"},
    {"GET /v1/completions HTTP/1.1\r\nHost: t\r\n\r\n", 405,
     ERROR("This path answers to POST.", "null", "\"method_not_allowed\"")},
};

Test(cases, http)
{
    start();
    for (size_t i = 0; i < ARRAY_COUNT(requests); i++) {
        struct buffer body = {0};
        const int status = send_raw(requests[i].request, &body);
        cr_expect_eq(status, requests[i].status, "%s gave %d", requests[i].request, status);
        cr_expect_str_eq(body.data, requests[i].body, "%s", requests[i].request);
        buffer_free(&body);
    }
    cr_expect_eq(client_fetch(&router, "/health", NULL), 200);
    cr_expect_eq(router_process_stop(&router), 0);
}

/* An id goes back as it came, or not at all; never into another header. */
Test(cases, request_ids_do_not_split_answers)
{
    start();
    struct client client;
    client_open(&client, &router);
    client_send(&client,
                "GET /health HTTP/1.1\r\nHost: t\r\nX-Request-Id: a\rSet-Cookie: b\r\n\r\n");
    WAIT_FOR(&router, client_complete(&client) || client.closed);
    cr_expect_null(strstr(client.in.data, "Set-Cookie"), "%s", client.in.data);
    client_close(&client);
    cr_expect_eq(router_process_stop(&router), 0);
}
