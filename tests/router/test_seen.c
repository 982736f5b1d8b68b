/* What operators see of a router between made-up workers: metrics, the state in one object, the
 * journal, the page. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/json.h"
#include "tests/router/serving_fixture.h"

#define VLLM "{model_name=\"tiny\",engine=\"0\""

static void ask_chat(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(client_ask(&router, CHAT_PATH,
                                "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", NULL),
                     200);
}

static double sum_of_stages(const char *suffix)
{
    static const char *const stages[] = {"tokenise", "queue", "reserve", "prefill"};
    double sum = 0;
    for (size_t i = 0; i < ARRAY_COUNT(stages); i++) {
        char series[128];
        snprintf(series, sizeof series, "baton_time_to_first_token_stage_seconds_%s{stage=\"%s\"}",
                 suffix, stages[i]);
        sum += client_metric(&router, series);
    }
    return sum;
}

Test(seen, the_time_to_the_first_token_is_the_sum_of_its_stages)
{
    serving_start(NULL);
    serving_connect(true);
    ask_chat(3);
    cr_expect_eq(client_metric(&router, "baton_time_to_first_token_seconds_count"), 3);
    cr_expect_eq(sum_of_stages("count"), 12);
    const double whole = client_metric(&router, "baton_time_to_first_token_seconds_sum");
    cr_expect_gt(whole, 0);
    cr_expect_float_eq(sum_of_stages("sum"), whole, 1e-6);
    router_process_stop(&router);
}

Test(seen, the_names_of_vllm_tell_the_same_numbers)
{
    static const struct {
        const char *theirs, *ours;
    } pairs[] = {
        {"vllm:prompt_tokens_total" VLLM "}", "baton_prompt_tokens_total"},
        {"vllm:generation_tokens_total" VLLM "}", "baton_output_tokens_total"},
        {"vllm:prompt_tokens_cached_total" VLLM "}", "baton_prompt_tokens_cached_total"},
        {"vllm:request_success_total" VLLM ",finished_reason=\"stop\"}",
         "baton_request_finish_total{reason=\"stop\"}"},
        {"vllm:time_to_first_token_seconds_count" VLLM "}",
         "baton_time_to_first_token_seconds_count"},
        {"vllm:e2e_request_latency_seconds_sum" VLLM "}", "baton_request_duration_seconds_sum"},
        {"vllm:request_generation_tokens_sum" VLLM "}", "baton_request_output_tokens_sum"},
        {"vllm:nixl_bytes_transferred_sum" VLLM "}", "baton_handoff_bytes_total"},
        {"vllm:nixl_xfer_time_seconds_count" VLLM "}", "baton_handoff_time_seconds_count"},
    };
    serving_start(NULL);
    serving_connect(true);
    prefill.cached_tokens = 2;
    ask_chat(2);
    WAIT_FOR(&router, client_metric(&router, "baton_handoff_time_seconds_count") == 2);
    for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
        const double value = client_metric(&router, pairs[i].ours);
        cr_expect_gt(value, 0, "%s", pairs[i].ours);
        cr_expect_eq(client_metric(&router, pairs[i].theirs), value, "%s", pairs[i].theirs);
    }
    fake_worker_heartbeat(&decode, 0, decode.pages_total / 4);
    cr_expect_eq(client_metric(&router, "vllm:kv_cache_usage_perc" VLLM "}"), 0.75);
    char series[128];
    snprintf(series, sizeof series,
             "vllm:cache_config_info" VLLM ",block_size=\"64\",num_gpu_blocks=\"%u\"}",
             decode.pages_total);
    cr_expect_eq(client_metric(&router, series), 1);
    router_process_stop(&router);
}

Test(seen, requests_are_counted_in_their_states)
{
    serving_start(NULL);
    serving_connect(false);
    struct client first, second;
    serving_reach(&first, false, STAGE_PREFILLING);
    cr_expect_eq(client_metric(&router, "baton_requests{state=\"prefilling\"}"), 1);
    cr_expect_eq(client_metric(&router, "vllm:num_requests_running" VLLM "}"), 1);
    serving_reach(&second, false, STAGE_RESERVING);
    cr_expect_eq(client_metric(&router, "baton_requests{state=\"reserving\"}"), 1);
    cr_expect_eq(client_metric(&router, "vllm:num_requests_waiting" VLLM "}"), 1);
    cr_expect_eq(
        client_metric(&router, "vllm:num_requests_waiting_by_reason" VLLM ",reason=\"capacity\"}"),
        1);
    cr_expect_eq(
        client_metric(&router, "vllm:num_requests_waiting_by_reason" VLLM ",reason=\"deferred\"}"),
        0);
    client_close(&first);
    client_close(&second);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_inflight") == 0);
    cr_expect_eq(client_metric(&router, "baton_requests{state=\"prefilling\"}"), 0);
    router_process_stop(&router);
}

Test(seen, errors_are_counted_by_code)
{
    serving_start(NULL);
    cr_assert_eq(client_ask(&router, CHAT_PATH, "{}", NULL), 400);
    cr_assert_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\",\"model\":\"other\"}", NULL),
                 404);
    cr_assert_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\"}", NULL), 503);
    cr_assert_eq(client_fetch(&router, "/nothing", NULL), 404);
    cr_expect_eq(client_metric(&router, "baton_errors_total{code=\"invalid_request\"}"), 1);
    cr_expect_eq(client_metric(&router, "baton_errors_total{code=\"model_not_found\"}"), 1);
    cr_expect_eq(client_metric(&router, "baton_errors_total{code=\"no_workers\"}"), 1);
    cr_expect_eq(client_metric(&router, "baton_errors_total{code=\"not_found\"}"), 1);
    cr_expect_eq(client_metric(&router, "baton_errors_total{code=\"other\"}"), 0);
    router_process_stop(&router);
}

Test(seen, other_names_can_be_left_out)
{
    static const char *const options[] = {"--no-vllm-metrics", NULL};
    serving_start(options);
    struct buffer text = {0};
    cr_assert_eq(client_fetch(&router, "/metrics", &text), 200);
    cr_expect_eq(text_count(text.data, "vllm:"), 0);
    cr_expect_gt(text_count(text.data, "# HELP baton_"), 50);
    buffer_free(&text);
    router_process_stop(&router);
}

Test(seen, promtool_finds_no_fault)
{
    if (system("command -v promtool >/dev/null") != 0)
        cr_skip_test("promtool (Debian package prometheus) is not installed");
    static const char *const options[] = {"--no-vllm-metrics", NULL};
    serving_start(options);
    snprintf(decode.node, sizeof decode.node, "d{0},<=>");
    serving_connect(true);
    ask_chat(1);
    struct buffer text = {0};
    cr_assert_eq(client_fetch(&router, "/metrics", &text), 200);
    cr_expect(strstr(text.data, "baton_worker_state{node=\"d{0},<=>\",role=\"decode\","
                                "model=\"tiny\",state=\"up\"} 1\n"));
    FILE *promtool = popen("promtool check metrics", "w");
    cr_assert(promtool);
    cr_assert_eq(fwrite(text.data, 1, text.size, promtool), text.size);
    cr_expect_eq(pclose(promtool), 0, "promtool has something to say");
    buffer_free(&text);
    router_process_stop(&router);
}

static struct json *fetch_json(const char *path, int wanted)
{
    struct buffer body = {0};
    struct json *root = NULL;
    struct error error = {.text = ""};
    cr_assert_eq(client_fetch(&router, path, &body), wanted, "%s: %s", path, body.data);
    cr_assert_eq(json_parse(body.data, body.size, &root, &error), STATUS_OK, "%s", error.text);
    buffer_free(&body);
    return root;
}

static const struct json *member(const struct json *object, const char *key)
{
    const struct json *value = json_get(object, key);
    cr_assert(value, "no member %s", key);
    return value;
}

static void expect_text(const struct json *object, const char *key, const char *wanted)
{
    const struct json *value = member(object, key);
    cr_assert_eq(json_kind(value), JSON_STRING, "%s is %s", key, json_kind_name(json_kind(value)));
    cr_expect_str_eq(json_string(value, NULL), wanted);
}

Test(seen, status_tells_the_numbers_and_their_spread)
{
    serving_start(NULL);
    serving_connect(true);
    ask_chat(2);
    struct json *status = fetch_json("/status", 200);
    expect_text(status, "model", "tiny");
    cr_expect_eq(json_number(member(status, "requests_ok")), 2);
    cr_expect_eq(json_number(member(status, "output_tokens")), 12);
    cr_expect_eq(json_number(member(member(status, "states"), "decoding")), 0);
    cr_expect_eq(json_count(member(status, "workers")), 2);
    const struct json *ttft = member(member(status, "spans"), "ttft");
    const struct json *counts = member(ttft, "counts");
    cr_expect_eq(json_count(counts), json_count(member(ttft, "bounds")) + 1);
    double sum = 0;
    for (size_t i = 0; i < json_count(counts); i++)
        sum += json_number(json_at(counts, i));
    cr_expect_eq(sum, 2);
    cr_expect_gt(json_number(member(ttft, "sum")), 0);
    json_free(status);
    router_process_stop(&router);
}

/* The journal is written behind the answers, and just being made at first: asks until the text
 * stands in what it tells. */
static struct json *fetch_journal(const char *path, const char *text)
{
    struct buffer body = {0};
    WAIT_FOR(&router, client_fetch(&router, path, &body) == 200 && strstr(body.data, text));
    struct json *root = NULL;
    cr_assert_eq(json_parse(body.data, body.size, &root, NULL), STATUS_OK, "%s", body.data);
    buffer_free(&body);
    return root;
}

/* headers: whole lines. */
static void ask_with(const char *headers, const char *body, struct buffer *answer)
{
    struct client client;
    char head[400];
    client_open(&client, &router);
    snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: test\r\n%sContent-Length: %zu\r\n\r\n",
             TEXT_PATH, headers, strlen(body));
    client_send(&client, head);
    client_send(&client, body);
    WAIT_FOR(&router, client_complete(&client));
    client_body(&client, answer);
    client_close(&client);
}

Test(seen, a_request_is_found_by_either_id_with_its_states)
{
    static const char *const states[] = {"tokenising", "queued",   "reserving",
                                         "prefilling", "decoding", "ended"};
    serving_start(NULL);
    serving_connect(true);
    struct buffer answer = {0};
    ask_with("X-Request-Id: my-own:7\r\n", "{\"prompt\":\"x\"}", &answer);
    const char *id = strstr(answer.data, "\"id\":\"cmpl-");
    cr_assert(id);
    char path[128];
    snprintf(path, sizeof path, "/requests/%.21s", id + 6);
    struct json *root = fetch_journal(path, "\"state\":\"ended\"");
    const struct json *request = json_at(member(root, "requests"), 0);
    expect_text(request, "client_id", "my-own:7");
    expect_text(request, "outcome", "stop");
    expect_text(request, "prefill", "p0");
    expect_text(request, "decode", "d0");
    const struct json *steps = member(request, "states");
    /* When decode overtakes prefill the answer may end in the moment in which it begins. */
    const size_t count = json_count(steps);
    cr_assert(count == ARRAY_COUNT(states) || count == ARRAY_COUNT(states) - 1);
    for (size_t i = 0; i + 1 < count; i++)
        expect_text(json_at(steps, i), "state", states[i]);
    expect_text(json_at(steps, count - 1), "state", "ended");
    json_free(root);
    root = fetch_journal("/requests/my-own:7", "\"state\":\"ended\"");
    cr_expect_eq(json_count(member(root, "requests")), 1);
    json_free(root);
    root = fetch_journal("/requests/nobody", "[]");
    cr_expect_eq(json_count(member(root, "requests")), 0);
    json_free(root);
    root = fetch_journal("/requests", "my-own:7");
    cr_expect_eq(json_count(member(root, "requests")), 1);
    json_free(root);
    buffer_free(&answer);
    router_process_stop(&router);
}

Test(seen, ids_that_none_can_be_are_refused)
{
    serving_start(NULL);
    char path[256] = "/requests/";
    cr_expect_eq(client_fetch(&router, path, NULL), 404);
    memset(path + strlen(path), 'x', 129);
    cr_expect_eq(client_fetch(&router, path, NULL), 404);
    /* Text, not SQL. */
    struct json *root = fetch_journal("/requests/x'%20OR%20'1'='1", "[]");
    cr_expect_eq(json_count(member(root, "requests")), 0);
    json_free(root);
    router_process_stop(&router);
}

Test(seen, the_page_takes_nothing_from_elsewhere)
{
    static const struct {
        const char *path, *type;
    } files[] = {{"/", "text/html; charset=utf-8"},
                 {"/dashboard.css", "text/css; charset=utf-8"},
                 {"/dashboard.js", "text/javascript; charset=utf-8"}};
    serving_start(NULL);
    for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
        struct client client;
        struct buffer body = {0};
        char value[512];
        client_open(&client, &router);
        client_get(&client, files[i].path);
        WAIT_FOR(&router, client_complete(&client));
        cr_expect_eq(client_status(&client), 200);
        cr_assert(client_header(&client, "Content-Type", value, sizeof value));
        cr_expect_str_eq(value, files[i].type);
        cr_assert(client_header(&client, "Content-Security-Policy", value, sizeof value));
        cr_expect(strstr(value, "default-src 'none'") && !strstr(value, "unsafe"), "%s", value);
        client_body(&client, &body);
        cr_expect_gt(body.size, 500);
        cr_expect(!strstr(body.data, "https://"), "%s names another place", files[i].path);
        cr_expect(!strstr(body.data, "innerHTML"), "%s writes markup", files[i].path);
        buffer_free(&body);
        client_close(&client);
    }
    router_process_stop(&router);
}

#define TRACE "0af7651916cd43dd8448eb211c80319c"

Test(seen, a_trace_goes_on_to_both_nodes_and_into_the_journal)
{
    serving_start(NULL);
    serving_connect(true);
    struct buffer answer = {0};
    ask_with("X-Request-Id: traced\r\ntraceparent: 00-" TRACE "-b7ad6b7169203331-01\r\n",
             "{\"prompt\":\"x\"}", &answer);
    cr_expect_eq(strncmp(decode.jobs[0].traceparent, "00-" TRACE "-", 36), 0, "%s",
                 decode.jobs[0].traceparent);
    cr_expect_str_eq(prefill.jobs[0].traceparent, decode.jobs[0].traceparent);
    cr_expect_eq(strstr(decode.jobs[0].traceparent, "b7ad6b7169203331"), NULL);
    json_free(fetch_journal("/requests/traced", "\"trace_id\":\"" TRACE "\""));
    ask_with("X-Request-Id: untraced\r\ntraceparent: 00-nonsense\r\n", "{\"prompt\":\"x\"}",
             &answer);
    cr_expect_str_eq(decode.jobs[1].traceparent, "");
    json_free(fetch_journal("/requests/untraced", "\"trace_id\":null"));
    buffer_free(&answer);
    router_process_stop(&router);
}
