/* Browsers on pages of other origins: who is let in, and what is told to whom. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "router/http_cors.h"
#include "tests/router/serving_fixture.h"
#include "tests/router/tiny_text.h"

Test(cors, origins)
{
    static const struct {
        const char *text;
        bool good;
    } rows[] = {
        {"*", true},
        {"https://chat.example.org", true},
        {"http://localhost:3000", true},
        {"http://[::1]:3000", true},
        {"chrome-extension://abcdef", true},
        {"", false},
        {"chat.example.org", false},
        {"https://", false},
        {"://x", false},
        {"https://chat.example.org/", false},
        {"https://a b", false},
        {"https://a\r\nX: y", false},
        {"null", false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct config_texts origins = {.items = {rows[i].text}, .count = 1};
        struct error error;
        cr_expect_eq(http_cors_check(&origins, &error) == STATUS_OK, rows[i].good, "%s",
                     rows[i].text);
    }
    const struct config_texts two = {.items = {"https://a", "https://b"}, .count = 2};
    cr_expect_str_eq(http_cors_allowed(&two, "https://b"), "https://b");
    cr_expect_str_eq(http_cors_allowed(&two, "HTTPS://A"), "https://a");
    cr_expect_null(http_cors_allowed(&two, "https://c"));
    cr_expect_null(http_cors_allowed(&two, "https://b.evil"));
    cr_expect_null(http_cors_allowed(&two, NULL));
    const struct config_texts none = {0};
    cr_expect_null(http_cors_allowed(&none, "https://a"));
    cr_expect(http_cors_names_sound("authorization,content-type, x-stainless-os"));
    cr_expect(!http_cors_names_sound("a\r\nb"));
    cr_expect(!http_cors_names_sound(""));
}

/* What one of these headers says; "" when it is absent. */
static const char *ask(const char *request, int status, const char *name)
{
    static char value[256];
    struct client client;
    client_open(&client, &router);
    client_send(&client, request);
    WAIT_FOR(&router, client_status(&client) != 0 && strstr(client.in.data, "\r\n\r\n"));
    cr_expect_eq(client_status(&client), status, "%s gave %d", request, client_status(&client));
    if (!client_header(&client, name, value, sizeof value))
        value[0] = '\0';
    client_close(&client);
    return value;
}

#define ASK(method, path, headers) method " " path " HTTP/1.1\r\nHost: t\r\n" headers "\r\n"
#define ORIGIN(host)               "Origin: https://" host "\r\n"
#define NAMES                      "Access-Control-Request-Headers: authorization,x-stainless-a\r\n"

Test(cors, a_page_that_is_let_in)
{
    static const char *const extra[] = {"--cors-origin", "https://chat.example.org", NULL};
    serving_start(extra);
    static const char good[] = ASK("OPTIONS", TEXT_PATH, ORIGIN("chat.example.org") NAMES);
    cr_expect_str_eq(ask(good, 204, "Access-Control-Allow-Origin"), "https://chat.example.org");
    cr_expect_str_eq(ask(good, 204, "Access-Control-Allow-Headers"), "authorization,x-stainless-a");
    cr_expect_str_eq(ask(good, 204, "Access-Control-Allow-Methods"), "GET, HEAD, POST, OPTIONS");
    cr_expect_str_eq(ask(good, 204, "Vary"), "Origin");
    cr_expect_str_eq(ask(good, 204, "Allow"), "POST");
    static const char other[] = ASK("OPTIONS", TEXT_PATH, ORIGIN("elsewhere.org") NAMES);
    cr_expect_str_eq(ask(other, 204, "Access-Control-Allow-Origin"), "");
    static const char get[] = ASK("GET", "/version", ORIGIN("chat.example.org"));
    cr_expect_str_eq(ask(get, 200, "Access-Control-Allow-Origin"), "https://chat.example.org");
    cr_expect_str_eq(ask(get, 200, "Access-Control-Expose-Headers"), "X-Request-Id, Retry-After");
    static const char lost[] = ASK("GET", "/nothing", ORIGIN("chat.example.org"));
    cr_expect_str_eq(ask(lost, 404, "Access-Control-Allow-Origin"), "https://chat.example.org",
                     "errors can be read as well");
    static const char nowhere[] = ASK("OPTIONS", "/nothing", ORIGIN("chat.example.org"));
    ask(nowhere, 404, "Allow");
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(cors, by_default_no_page_is)
{
    serving_start(NULL);
    static const char first[] = ASK("OPTIONS", "/health", ORIGIN("chat.example.org") NAMES);
    cr_expect_str_eq(ask(first, 204, "Access-Control-Allow-Origin"), "");
    cr_expect_str_eq(ask(first, 204, "Allow"), "GET, HEAD");
    static const char get[] = ASK("GET", "/version", ORIGIN("chat.example.org"));
    cr_expect_str_eq(ask(get, 200, "Access-Control-Allow-Origin"), "");
    static const char untyped[] =
        ASK("POST", TEXT_PATH, ORIGIN("chat.example.org") "Content-Length: 2\r\n") "{}";
    ask(untyped, 400, "Content-Type");
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(cors, a_bad_origin_is_one_sentence)
{
    serving_start(NULL);
    struct buffer output = {0};
    char folder[300];
    snprintf(folder, sizeof folder, "%s.other", router.folder);
    const char *const arguments[] = {
        "--model",       tiny_model_path(), "--http",      "127.0.0.1:0",
        "--control",     "127.0.0.1:0",     "--state-dir", folder,
        "--cors-origin", "example.org/x",   NULL};
    cr_expect_eq(router_process_run(arguments, &output), 1);
    cr_expect(strstr(output.data, "\"example.org/x\" is neither * nor an origin"), "%s",
              output.data);
    buffer_free(&output);
    cr_expect_eq(router_process_stop(&router), 0);
}
