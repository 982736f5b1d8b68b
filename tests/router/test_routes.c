/* The small answers: what operators, balancers and tools ask a router beside completions. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "base/check.h"
#include "tests/router/serving_fixture.h"
#include "tests/router/tiny_text.h"

static void stop(void)
{
    cr_expect_eq(router_process_stop(&router), 0);
}

/* Asks for a path; the answer must have this status and hold this text. */
static void expect_get(const char *path, int status, const char *part)
{
    struct buffer body = {0};
    cr_expect_eq(client_fetch(&router, path, &body), status, "%s", path);
    cr_expect(body.data && strstr(body.data, part), "%s: %s", path, body.data);
    buffer_free(&body);
}

static void expect_post(const char *path, const char *request, int status, const char *whole)
{
    struct buffer body = {0};
    const int got = client_ask(&router, path, request, &body);
    cr_expect_eq(got, status, "%s %s gave %d", path, request, got);
    cr_expect(body.data && strstr(body.data, whole), "%s %s: %s", path, request, body.data);
    buffer_free(&body);
}

Test(routes, health_follows_the_workers)
{
    serving_start(NULL);
    expect_get("/live", 200, "\"status\":\"ok\"");
    expect_get("/health", 503, "\"status\":\"waiting\"");
    expect_get("/ready", 503, "\"decode\":0");
    serving_connect(true);
    expect_get("/health", 200, "\"status\":\"ok\"");
    expect_get("/ready", 200, "\"decode\":1");
    fake_worker_close(&decode);
    WAIT_FOR(&router, client_fetch(&router, "/health", NULL) == 503);
    expect_get("/live", 200, "ok");
    stop();
}

Test(routes, draining_is_told_until_the_last_request_ended)
{
    static const char *const extra[] = {"--drain-ms", "60s", NULL};
    serving_start(extra);
    serving_connect(false);
    struct client client;
    serving_reach(&client, true, STAGE_DECODING);
    expect_get("/load", 200, "\"server_load\":1,\"queued\":0,\"limit\":1024");
    kill(router.pid, SIGTERM);
    WAIT_FOR(&router, client_fetch(&router, "/health", NULL) == 503);
    expect_get("/health", 503, "\"status\":\"draining\"");
    expect_get("/ready", 503, "\"requests\":1");
    expect_get("/live", 200, "ok");
    expect_post("/tokenize", "{\"prompt\":\"x\"}", 503, "shutting_down");
    client_close(&client);
    cr_expect_eq(router_process_wait(&router), 0);
}

Test(routes, models)
{
    serving_start(NULL);
    serving_connect(true);
    expect_get("/v1/models", 200, "\"max_model_len\":16384");
    expect_get("/v1/models/tiny", 200, "{\"id\":\"tiny\",\"object\":\"model\"");
    expect_get("/v1/models/other", 404, "\"code\":\"model_not_found\"");
    expect_get("/v1/models/", 404, "model_not_found");
    expect_get("/v1/modelsx", 404, "\"code\":\"not_found\"");
    expect_get("/version", 200, BATON_VERSION);
    stop();
}

Test(routes, a_model_name_may_hold_slashes)
{
    static const char *const extra[] = {"--model-name", "org/tiny", NULL};
    serving_start(extra);
    expect_get("/v1/models/org/tiny", 200, "\"id\":\"org/tiny\"");
    expect_get("/v1/models/org%2Ftiny", 200, "\"id\":\"org/tiny\"");
    stop();
}

Test(routes, tokenize)
{
    static const struct {
        const char *body;
        int status;
        const char *part;
    } rows[] = {
        {"{\"prompt\":\"hello!\"}", 200,
         "{\"count\":2,\"max_model_len\":16384,\"tokens\":[259,33],\"token_strs\":null}"},
        {"{\"prompt\":\"\"}", 200, "{\"count\":0,"},
        {"{\"prompt\":\"h\\u00e9\",\"return_token_strs\":true,\"model\":\"tiny\"}", 200,
         "\"token_strs\":[\"h\",\"bytes:\\\\xC3\",\"bytes:\\\\xA9\"]"},
        {"{\"prompt\":\"<|im_end|>\"}", 200, "{\"count\":10,"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}", 200,
         "\"tokens\":[261,117,115,101,114,10,259,262,10,261,"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],"
         "\"add_generation_prompt\":false}",
         200, "\"tokens\":[261,117,115,101,114,10,259,262,10]"},
        {"{\"content\":\"hello<|im_end|>\"}", 200, "{\"tokens\":[259,262]}"},
        {"{\"content\":\"hello<|im_end|>\",\"parse_special\":false}", 200, "{\"tokens\":[259,60,"},
        {"{\"content\":\"he\\u00e9\",\"with_pieces\":true}", 200,
         "{\"tokens\":[{\"id\":256,\"piece\":\"he\"},{\"id\":195,\"piece\":[195]},"
         "{\"id\":169,\"piece\":[169]}]}"},
        {"{}", 400, "Exactly one of"},
        {"{\"prompt\":\"a\",\"content\":\"b\"}", 400, "but 2 are"},
        {"{\"prompt\":[1]}", 400, "`prompt` must be a string"},
        {"{\"content\":3}", 400, "`content` must be a string"},
        {"{\"messages\":[]}", 400, "holds 0"},
        {"{\"prompt\":\"a\",\"model\":\"x\"}", 404, "model_not_found"},
        {"{\"prompt\":\"a\",\"add_special_tokens\":1}", 400, "add_special_tokens"},
        {"[]", 400, "JSON object"},
        {"{:", 400, "not valid JSON"},
    };
    serving_start(NULL);
    serving_connect(true);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        expect_post("/tokenize", rows[i].body, rows[i].status, rows[i].part);
    stop();
}

Test(routes, detokenize)
{
    static const struct {
        const char *body;
        int status;
        const char *part;
    } rows[] = {
        {"{\"tokens\":[259,33]}", 200, "{\"prompt\":\"hello!\"}"},
        {"{\"tokens\":[]}", 200, "{\"prompt\":\"\"}"},
        {"{\"tokens\":[195]}", 200, "{\"prompt\":\"\xef\xbf\xbd\"}"},
        {"{\"tokens\":[263]}", 400, "from 0 to 262"},
        {"{\"tokens\":[-1]}", 400, "`tokens[0]` is -1"},
        {"{\"tokens\":7}", 400, "an array of token ids"},
        {"{}", 400, "`tokens` is missing"},
    };
    serving_start(NULL);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++)
        expect_post("/detokenize", rows[i].body, rows[i].status, rows[i].part);
    stop();
}

/* The client may be gone before the text thread is done; the drain waits for who is not. */
Test(routes, a_tokenize_call_may_lose_its_client)
{
    static const char *const extra[] = {"--text-threads", "1", NULL};
    serving_start(extra);
    struct buffer body = {0};
    buffer_add_text(&body, "{\"prompt\":\"");
    for (int i = 0; i < 1 << 18; i++)
        buffer_add_char(&body, (char)('a' + i % 26));
    buffer_add_text(&body, "\"}");
    struct client clients[4];
    for (size_t i = 0; i < ARRAY_COUNT(clients); i++) {
        client_open(&clients[i], &router);
        client_post(&clients[i], "/tokenize", body.data);
    }
    for (size_t i = 0; i + 1 < ARRAY_COUNT(clients); i++)
        client_close(&clients[i]);
    struct client *last = &clients[ARRAY_COUNT(clients) - 1];
    WAIT_FOR(&router, client_complete(last));
    cr_expect_eq(client_status(last), 200);
    client_close(last);
    buffer_free(&body);
    stop();
}

Test(routes, every_other_path_is_an_object_too)
{
    serving_start(NULL);
    expect_get("/index.html", 404, "{\"error\":{\"message\":");
    expect_get("/v1", 404, "not_found");
    expect_get("/tokenize", 405, "method_not_allowed");
    expect_post("/load", "{}", 405, "This path answers to GET.");
    stop();
}
