/* A router that asks for keys: which paths, which headers, which words. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "tests/router/scratch_folder.h"
#include "tests/router/serving_fixture.h"
#include "tests/router/tiny_text.h"

#define KEY      "sk-0123456789abcdef"
#define OPERATOR "sk-of-an-operator"
#define LIMITED  "sk-limited-requests"
#define FRUGAL   "sk-limited-to-tokens"

/* more: of the router's options, four at most, or NULL. */
static void start(const char *const more[4])
{
    static char path[300];
    snprintf(path, sizeof path, "%s/keys", scratch_folder());
    FILE *file = fopen(path, "w");
    cr_assert(file);
    fputs(KEY " acme\n" OPERATOR " us operator\n" LIMITED " deli requests=1\n" FRUGAL
              " kiosk tokens=1\n",
          file);
    fclose(file);
    cr_assert_eq(chmod(path, 0600), 0);
    const char *const extra[] = {"--api-keys",
                                 path,
                                 more ? more[0] : NULL,
                                 more ? more[1] : NULL,
                                 more ? more[2] : NULL,
                                 more ? more[3] : NULL,
                                 NULL};
    serving_start(extra);
    serving_connect(true);
}

/* headers: whole lines. The answer's body in *body; the value of one of its headers in value. */
static int ask(const char *method, const char *path, const char *headers, const char *request,
               struct buffer *body, const char *name, char value[64])
{
    struct buffer text = {0};
    buffer_printf(&text, "%s %s HTTP/1.1\r\nHost: t\r\n%s", method, path, headers);
    if (request)
        buffer_printf(&text, "Content-Length: %zu\r\n\r\n%s", strlen(request), request);
    else
        buffer_add_text(&text, "\r\n");
    struct client client;
    client_open(&client, &router);
    client_send(&client, text.data);
    WAIT_FOR(&router, client_complete(&client));
    const int status = client_status(&client);
    if (status == 429)
        cr_expect(strstr(client.in.data, "HTTP/1.1 429 Too Many Requests\r\n"), "%s",
                  client.in.data);
    buffer_clear(body);
    client_body(&client, body);
    value[0] = '\0';
    if (name)
        client_header(&client, name, value, 64);
    client_close(&client);
    buffer_free(&text);
    return status;
}

#define BEARER(key) "Authorization: Bearer " key "\r\n"
#define PROMPT      "{\"prompt\":\"x\"}"

Test(api_door, every_path)
{
    static const struct {
        const char *method, *path, *request;
        bool open, watch;
    } rows[] = {
        {"GET", "/health", NULL, true, false},
        {"GET", "/live", NULL, true, false},
        {"GET", "/ready", NULL, true, false},
        {"GET", "/load", NULL, true, false},
        {"GET", "/version", NULL, true, false},
        {"GET", "/metrics", NULL, true, false},
        {"GET", "/", NULL, true, false},
        {"GET", "/workers", NULL, false, true},
        {"GET", "/status", NULL, false, true},
        {"GET", "/requests", NULL, false, false},
        {"GET", "/v1/models", NULL, false, false},
        {"GET", "/v1/models/tiny", NULL, false, false},
        {"POST", TEXT_PATH, PROMPT, false, false},
        {"POST", CHAT_PATH, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", false, false},
        {"POST", "/tokenize", PROMPT, false, false},
        {"POST", "/detokenize", "{\"tokens\":[65]}", false, false},
    };
    start(NULL);
    struct buffer body = {0};
    char value[64];
    /* The journal's writer opens its file while requests are served already. */
    WAIT_FOR(&router, ask("GET", "/requests", BEARER(OPERATOR), NULL, &body, NULL, value) == 200);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        int status = ask(rows[i].method, rows[i].path, "", rows[i].request, &body,
                         "WWW-Authenticate", value);
        cr_expect_eq(status, rows[i].open ? 200 : 401, "%s gave %d", rows[i].path, status);
        cr_expect_str_eq(value, rows[i].open ? "" : "Bearer");
        status =
            ask(rows[i].method, rows[i].path, BEARER(KEY), rows[i].request, &body, NULL, value);
        cr_expect_eq(status, rows[i].watch ? 403 : 200, "%s with a key gave %d", rows[i].path,
                     status);
        status = ask(rows[i].method, rows[i].path, BEARER(OPERATOR), rows[i].request, &body, NULL,
                     value);
        cr_expect_eq(status, 200, "%s with an operator's key gave %d", rows[i].path, status);
    }
    cr_expect_eq(ask("GET", "/nothing", "", NULL, &body, NULL, value), 404);
    buffer_free(&body);
    cr_expect_eq(router_process_stop(&router), 0);
}

/* Who has a request of its own in the journal sees that one, and of it no node. */
Test(api_door, a_tenant_sees_its_own_requests)
{
    static const char *const paths[] = {"/requests", "/requests/of-acme", "/requests/of-deli"};
    struct buffer body = {0};
    char value[64];
    start(NULL);
    const char *const acme = BEARER(KEY) "X-Request-Id: of-acme\r\n";
    const char *const deli = BEARER(LIMITED) "X-Request-Id: of-deli\r\n";
    cr_assert_eq(ask("POST", TEXT_PATH, acme, PROMPT, &body, NULL, value), 200);
    cr_assert_eq(ask("POST", TEXT_PATH, deli, PROMPT, &body, NULL, value), 200);
    /* The journal's writer comes after the answers. */
    WAIT_FOR(&router, ask("GET", "/requests", BEARER(OPERATOR), NULL, &body, NULL, value) == 200 &&
                          text_count(body.data, "\"outcome\":\"stop\"") == 2);
    cr_expect(strstr(body.data, "of-acme") && strstr(body.data, "of-deli") &&
                  strstr(body.data, "\"decode\":\"d0\""),
              "%s", body.data);
    for (size_t i = 0; i < ARRAY_COUNT(paths); i++) {
        cr_expect_eq(ask("GET", paths[i], BEARER(KEY), NULL, &body, NULL, value), 200);
        cr_expect_eq(text_count(body.data, "\"client_id\":\"of-acme\""), i < 2 ? 1 : 0, "%s: %s",
                     paths[i], body.data);
        cr_expect(!strstr(body.data, "deli") && !strstr(body.data, "\"d0\""), "%s: %s", paths[i],
                  body.data);
    }
    buffer_free(&body);
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(api_door, every_way_to_show_a_key)
{
    static const struct {
        const char *headers;
        int status;
        const char *words;
    } rows[] = {
        {BEARER(KEY), 200, "\"object\":\"list\""},
        {"authorization: bearer   " KEY "\r\n", 200, "list"},
        {"api-key: " KEY "\r\n", 200, "list"},
        {"", 401, "No API key was shown"},
        {"Authorization: " KEY "\r\n", 401, "No API key was shown"},
        {"Authorization: Basic " KEY "\r\n", 401, "No API key was shown"},
        {"Authorization: Bearer \r\n", 401, "invalid_api_key"},
        {BEARER(KEY "0"), 401, "The API key is not known here."},
        {BEARER("sk-0123456789abcde"), 401, "\"code\":\"invalid_api_key\""},
        {"api-key: nothing\r\n", 401, "\"type\":\"authentication_error\""},
    };
    start(NULL);
    struct buffer body = {0};
    char value[64];
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const int status = ask("GET", "/v1/models", rows[i].headers, NULL, &body, NULL, value);
        cr_expect_eq(status, rows[i].status, "%s gave %d", rows[i].headers, status);
        cr_expect(strstr(body.data, rows[i].words), "%s: %s", rows[i].headers, body.data);
    }
    buffer_free(&body);
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(api_door, limits_are_each_keys_own)
{
    start(NULL);
    struct buffer body = {0};
    char value[64];
    cr_expect_eq(ask("POST", TEXT_PATH, BEARER(LIMITED), PROMPT, &body, NULL, value), 200);
    cr_expect_eq(ask("POST", TEXT_PATH, BEARER(LIMITED), PROMPT, &body, "Retry-After", value), 429);
    cr_expect(strstr(body.data, "\"code\":\"rate_limit_exceeded\"") &&
                  strstr(body.data, "this key may have 1 requests a minute"),
              "%s", body.data);
    int retry_s = 0;
    cr_expect(sscanf(value, "%d", &retry_s) == 1 && retry_s >= 1 && retry_s <= 60, "%s", value);
    /* The prompt and the answer are more than the one token. */
    cr_expect_eq(ask("POST", TEXT_PATH, BEARER(FRUGAL), PROMPT, &body, NULL, value), 200);
    cr_expect_eq(ask("POST", TEXT_PATH, BEARER(FRUGAL), PROMPT, &body, "Retry-After", value), 429);
    cr_expect(strstr(body.data, "this key may have 1 tokens a minute"), "%s", body.data);
    cr_expect(sscanf(value, "%d", &retry_s) == 1 && retry_s > 60, "six tokens are owed: %s", value);
    cr_expect_eq(client_metric(&router, "baton_admission_refusals_total{reason=\"key\"}"), 2);
    /* Of those that are let in nowhere only the completions are requests. */
    cr_expect_eq(ask("GET", "/v1/models", "", NULL, &body, NULL, value), 401);
    cr_expect_eq(ask("POST", "/tokenize", "", PROMPT, &body, NULL, value), 401);
    cr_expect_eq(ask("POST", TEXT_PATH, "", PROMPT, &body, NULL, value), 401);
    cr_expect_eq(client_metric(&router, "baton_errors_total{code=\"invalid_api_key\"}"), 3);
    cr_expect_eq(client_metric(&router, "baton_requests_total{code=\"4xx\"}"), 3);
    cr_expect_eq(client_metric(&router, "baton_errors_total{code=\"rate_limit_exceeded\"}"), 2);
    cr_expect_eq(ask("POST", TEXT_PATH, BEARER(KEY), PROMPT, &body, NULL, value), 200);
    cr_expect_eq(ask("GET", "/v1/models", BEARER(LIMITED), NULL, &body, NULL, value), 200,
                 "looking costs nothing");
    buffer_free(&body);
    cr_expect_eq(router_process_stop(&router), 0);
}

/* As at OpenAI: whoever may send few bodies puts several prompts into one. */
Test(api_door, a_body_of_several_prompts_is_one_request_and_all_their_tokens)
{
    static const char three[] = "{\"prompt\":[\"hello\",\"x\",\"y\"]}";
    start(NULL);
    struct buffer body = {0};
    char value[64];
    cr_expect_eq(ask("POST", TEXT_PATH, BEARER(LIMITED), three, &body, NULL, value), 200);
    cr_expect_eq(ask("POST", TEXT_PATH, BEARER(LIMITED), three, &body, NULL, value), 429);
    cr_expect_eq(ask("POST", TEXT_PATH, BEARER(FRUGAL), three, &body, NULL, value), 200);
    cr_expect_eq(ask("POST", TEXT_PATH, BEARER(FRUGAL), PROMPT, &body, "Retry-After", value), 429);
    int retry_s = 0;
    cr_expect(sscanf(value, "%d", &retry_s) == 1 && retry_s > 18 * 60,
              "three prompts of one token and answers of six, at one a minute: %s", value);
    buffer_free(&body);
    cr_expect_eq(router_process_stop(&router), 0);
}

/* The made-up prefill node reads 100 tokens a second, and the key may have one a minute. */
Test(api_door, a_refused_prompt_costs_its_key_no_tokens)
{
    static const char *const more[4] = {"--ttft-target-ms", "20000", "--speed-stale-ms", "0"};
    start(more);
    struct buffer body = {0}, prompt = {0};
    char value[64];
    buffer_add_text(&prompt, "{\"prompt\":[97");
    for (int i = 1; i < 5000; i++)
        buffer_add_text(&prompt, ",97");
    buffer_add_text(&prompt, "]}");
    cr_expect_eq(ask("POST", TEXT_PATH, BEARER(FRUGAL), prompt.data, &body, NULL, value), 503);
    cr_expect(strstr(body.data, "\"code\":\"ttft_target\""), "%s", body.data);
    cr_expect_eq(ask("POST", TEXT_PATH, BEARER(FRUGAL), PROMPT, &body, NULL, value), 200);
    cr_expect_eq(ask("POST", TEXT_PATH, BEARER(FRUGAL), PROMPT, &body, NULL, value), 429);
    cr_expect(strstr(body.data, "1 tokens a minute"), "%s", body.data);
    buffer_free(&prompt);
    buffer_free(&body);
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(api_door, a_bad_key_file_is_one_sentence)
{
    struct buffer output = {0};
    char folder[300];
    snprintf(folder, sizeof folder, "%s/state", scratch_folder());
    serving_start(NULL);
    const char *const arguments[] = {"--model",    tiny_model_path(), "--http",      "127.0.0.1:0",
                                     "--control",  "127.0.0.1:0",     "--state-dir", folder,
                                     "--api-keys", "/nowhere",        NULL};
    cr_expect_eq(router_process_run(arguments, &output), 1);
    cr_expect(strstr(output.data, "the key file /nowhere") && text_count(output.data, "\n") == 1,
              "%s", output.data);
    buffer_free(&output);
    cr_expect_eq(router_process_stop(&router), 0);
}
