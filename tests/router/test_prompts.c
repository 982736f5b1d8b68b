/* Several prompts in one body: one answer of them all, and one end. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "tests/router/serving_fixture.h"
#include "tests/router/tiny_text.h"

/* Three prompts of one, one and two tokens. */
#define THREE "\"prompt\":[\"hello\",\"x\",[259,262]]"

static uint64_t number(const struct json *object, const char *outer, const char *name)
{
    const struct json *inner = json_get(object, outer);
    cr_assert(inner && json_get(inner, name), "no %s.%s", outer, name);
    return (uint64_t)json_int(json_get(inner, name));
}

static struct json *parse(const char *text, size_t bytes)
{
    struct json *root;
    struct error cause;
    cr_assert_eq(json_parse(text, bytes, &root, &cause), STATUS_OK, "%.*s", (int)bytes, text);
    return root;
}

/* "baton_requests_inflight" and all charges are back at nothing, also where a node is slow to say.
 */
static void expect_idle(void)
{
    WAIT_FOR(&router, client_metric(&router, "baton_requests_inflight") == 0);
    serving_expect_idle();
}

Test(prompts, of_one_body_have_one_answer)
{
    static const int32_t prompts[3][2] = {{TINY_HELLO, -1}, {'x', -1}, {259, 262}};
    serving_start(NULL);
    serving_connect(true);
    struct buffer body = {0};
    cr_assert_eq(client_ask(&router, TEXT_PATH, "{" THREE ",\"return_token_ids\":true}", &body),
                 200, "%s", body.data);
    struct json *root = parse(body.data, body.size);
    const struct json *choices = json_get(root, "choices");
    cr_assert_eq(json_count(choices), 3);
    for (size_t i = 0; i < 3; i++) {
        const struct json *choice = json_at(choices, i);
        const struct json *ids = json_get(choice, "prompt_token_ids");
        cr_expect_eq(json_int(json_get(choice, "index")), (int64_t)i);
        cr_expect_str_eq(json_string(json_get(choice, "text"), &(size_t){0}), "answer");
        cr_assert_eq(json_count(ids), i < 2 ? 1 : 2);
        for (size_t k = 0; k < json_count(ids); k++)
            cr_expect_eq(json_int(json_at(ids, k)), prompts[i][k]);
    }
    cr_expect_eq(number(root, "usage", "prompt_tokens"), 4);
    cr_expect_eq(number(root, "usage", "completion_tokens"), 21, "each with the id that ended it");
    cr_expect_eq(number(root, "usage", "total_tokens"), 25);
    json_free(root);
    buffer_free(&body);
    cr_expect_eq(prefill.job_count, 3);
    cr_expect_eq(decode.job_count, 3);
    expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

/* The text of each choice, and how often it ended, from the events of a stream. */
static void read_events(const struct buffer *stream, char texts[][32], uint32_t *ends,
                        uint32_t count, struct json **usage_out)
{
    for (const char *at = stream->data; (at = strstr(at, "data: {")) != NULL; at++) {
        struct json *root = parse(at + 6, strcspn(at + 6, "\n"));
        const struct json *choices = json_get(root, "choices");
        if (json_count(choices) == 0) {
            *usage_out = root;
            continue;
        }
        const struct json *choice = json_at(choices, 0);
        const uint64_t index = (uint64_t)json_int(json_get(choice, "index"));
        cr_assert_lt(index, count);
        cr_assert_eq(ends[index], 0, "a chunk behind the end of choice %u", (unsigned)index);
        size_t bytes;
        const char *text = json_string(json_get(choice, "text"), &bytes);
        cr_assert_lt(strlen(texts[index]) + bytes, sizeof texts[index]);
        strncat(texts[index], text, bytes);
        ends[index] += json_kind(json_get(choice, "finish_reason")) == JSON_STRING;
        json_free(root);
    }
}

Test(prompts, stream_side_by_side)
{
    serving_start(NULL);
    serving_connect(true);
    struct buffer body = {0};
    cr_assert_eq(client_ask(&router, TEXT_PATH,
                            "{" THREE ",\"echo\":true,\"stream\":true,"
                            "\"stream_options\":{\"include_usage\":true}}",
                            &body),
                 200, "%s", body.data);
    char texts[3][32] = {{0}};
    uint32_t ends[3] = {0};
    struct json *usage = NULL;
    read_events(&body, texts, ends, 3, &usage);
    static const char *const wanted[] = {"helloanswer", "xanswer", "hello"};
    for (size_t i = 0; i < 3; i++) {
        cr_expect_eq(strncmp(texts[i], wanted[i], strlen(wanted[i])), 0, "%s", texts[i]);
        cr_expect_eq(ends[i], 1);
    }
    cr_expect_eq(text_count(body.data, "[DONE]"), 1);
    cr_assert_not_null(usage);
    cr_expect_eq(number(usage, "usage", "prompt_tokens"), 4);
    cr_expect_eq(number(usage, "usage", "completion_tokens"), 21);
    json_free(usage);
    buffer_free(&body);
    expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

/* Two prompts, both with the decode node; the first one with the prefill node as well. */
static void reach(struct client *client, bool stream)
{
    client_open(client, &router);
    client_post(client, TEXT_PATH,
                stream ? "{\"prompt\":[\"hello\",\"x\"],\"stream\":true}"
                       : "{\"prompt\":[\"hello\",\"x\"]}");
    WAIT_FOR(&router, decode.job_count == 2);
    fake_reserved(&decode, &decode.jobs[0], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == 1);
}

Test(prompts, end_together_when_one_fails_before_any_token)
{
    serving_start(NULL);
    serving_connect(false);
    struct client client;
    reach(&client, false);
    fake_reserved(&decode, &decode.jobs[1], STATUS_LIMIT);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_status(&client), 400);
    WAIT_FOR(&router, decode.cancel_count == 1 && prefill.cancel_count == 1);
    cr_expect(decode.jobs[0].cancelled && prefill.jobs[0].cancelled);
    client_close(&client);
    expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(prompts, of_a_stream_fail_with_one_event)
{
    serving_start(NULL);
    serving_connect(false);
    struct client client;
    reach(&client, true);
    fake_tokens(&prefill, &prefill.jobs[0], 0, "a", FINISH_LENGTH);
    WAIT_FOR(&router, client.in.data && strstr(client.in.data, "\"finish_reason\":\"length\""));
    cr_expect_null(strstr(client.in.data, "[DONE]"), "one of the prompts is still open");
    fake_reserved(&decode, &decode.jobs[1], STATUS_LIMIT);
    WAIT_FOR(&router, client.closed);
    struct buffer body = {0};
    client_body(&client, &body);
    cr_expect_eq(text_count(body.data, "\"error\""), 1, "%s", body.data);
    cr_expect_eq(text_count(body.data, "[DONE]"), 0, "%s", body.data);
    cr_expect_eq(text_count(body.data, "\"finish_reason\":\"length\""), 1, "%s", body.data);
    buffer_free(&body);
    client_close(&client);
    expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(prompts, are_all_cancelled_when_their_client_leaves)
{
    serving_start(NULL);
    serving_connect(false);
    for (uint32_t stream = 0; stream < 2; stream++) {
        struct client client;
        decode.job_count = prefill.job_count = 0;
        reach(&client, stream);
        fake_tokens(&prefill, &prefill.jobs[0], 0, "a", FINISH_NONE);
        if (stream)
            WAIT_FOR(&router, client.in.data && strstr(client.in.data, "\"text\":\"a\""));
        client_close(&client);
        WAIT_FOR(&router,
                 decode.jobs[0].cancelled && decode.jobs[1].cancelled && prefill.jobs[0].cancelled);
    }
    expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(prompts, wait_in_the_queue_as_others_do)
{
    serving_start(NULL);
    serving_connect(false);
    struct client client;
    reach(&client, false);
    fake_reserved(&decode, &decode.jobs[1], STATUS_BUSY);
    fake_tokens(&prefill, &prefill.jobs[0], 0, "a", FINISH_LENGTH);
    WAIT_FOR(&router, decode.job_count == 3);
    fake_reserved(&decode, &decode.jobs[2], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == 2);
    cr_expect_eq(client_status(&client), 0);
    fake_tokens(&prefill, &prefill.jobs[1], 0, "b", FINISH_LENGTH);
    WAIT_FOR(&router, client_complete(&client));
    struct buffer body = {0};
    client_body(&client, &body);
    const char *first = strstr(body.data, "{\"index\":0,\"text\":\"a\"");
    cr_assert(first && strstr(first, "{\"index\":1,\"text\":\"b\""), "%s", body.data);
    buffer_free(&body);
    client_close(&client);
    expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(prompts, number_their_choices_one_after_the_other)
{
    serving_start(NULL);
    serving_connect(false);
    struct client client;
    client_open(&client, &router);
    client_post(&client, TEXT_PATH, "{\"prompt\":[\"hello\",\"x\"],\"n\":2,\"max_tokens\":1}");
    WAIT_FOR(&router, prefill.job_count == 2);
    /* The last one first: what comes when does not decide where it stands. */
    for (uint32_t i = 4; i-- > 0;) {
        struct fake_job job = prefill.jobs[i / 2];
        const char letter[2] = {(char)('a' + i), '\0'};
        job.choice = i % 2;
        fake_tokens(&prefill, &job, 0, letter, FINISH_LENGTH);
    }
    WAIT_FOR(&router, client_complete(&client));
    struct buffer body = {0};
    client_body(&client, &body);
    for (uint32_t i = 0; i < 4; i++) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "{\"index\":%u,\"text\":\"%c\"", i, 'a' + i);
        cr_expect_eq(text_count(body.data, wanted), 1, "%s lacks %s", body.data, wanted);
    }
    cr_expect_eq(text_count(body.data, "\"prompt_tokens\":2,\"completion_tokens\":4"), 1, "%s",
                 body.data);
    buffer_free(&body);
    client_close(&client);
    expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(prompts, need_a_place_each)
{
    static const char *const extra[] = {"--max-requests", "2", NULL};
    serving_start(extra);
    serving_connect(true);
    struct buffer body = {0};
    cr_expect_eq(client_ask(&router, TEXT_PATH, "{" THREE "}", &body), 503);
    cr_expect(strstr(body.data, "overloaded") && strstr(body.data, "3 prompts"), "%s", body.data);
    cr_expect_eq(client_metric(&router, "baton_admission_refusals_total{reason=\"capacity\"}"), 1);
    cr_expect_eq(decode.job_count, 0);
    buffer_free(&body);
    cr_expect_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":[\"a\",\"b\"]}", &body), 200);
    buffer_free(&body);
    expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

/* How often a part stands in what the journal answers; nothing before it has been written. */
static uint32_t journal_count(const char *path, const char *part)
{
    struct buffer body = {0};
    const int status = client_fetch(&router, path, &body);
    const uint32_t count = status == 200 ? text_count(body.data, part) : 0;
    buffer_free(&body);
    return count;
}

/* What the client is told is told of all its prompts, also of one that had its tokens. */
static void fail_together(bool stream)
{
    serving_start(NULL);
    serving_connect(false);
    struct client client;
    const char *id = stream ? "streamed" : "whole";
    char head[256], path[64];
    snprintf(path, sizeof path, "/requests/%s", id);
    const char *body = stream ? "{\"prompt\":[\"hello\",\"x\",\"y\"],\"stream\":true}"
                              : "{\"prompt\":[\"hello\",\"x\",\"y\"]}";
    snprintf(head, sizeof head,
             "POST " TEXT_PATH " HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\n"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             id, strlen(body), body);
    client_open(&client, &router);
    client_send(&client, head);
    WAIT_FOR(&router, decode.job_count == 3);
    fake_reserved(&decode, &decode.jobs[0], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == 1);
    fake_tokens(&prefill, &prefill.jobs[0], 0, "a", FINISH_LENGTH);
    WAIT_FOR(&router, client_metric(&router, "baton_request_finish_total{reason=\"length\"}") == 1);
    cr_expect_eq(client_metric(&router, "baton_requests_total{code=\"2xx\"}"), stream);
    fake_reserved(&decode, &decode.jobs[1], STATUS_LIMIT);
    WAIT_FOR(&router, client.closed || client_complete(&client));
    client_close(&client);
    expect_idle();
    const char *told = stream ? "2xx" : "4xx";
    char row[64];
    snprintf(row, sizeof row, "baton_requests_total{code=\"%s\"}", told);
    cr_expect_eq(client_metric(&router, row), 3);
    cr_expect_eq(client_metric(&router, "baton_request_finish_total{reason=\"length\"}"), 1);
    cr_expect_eq(client_metric(&router, "baton_request_finish_total{reason=\"error\"}"), 2);
    cr_expect_eq(client_metric(&router, "baton_request_finish_total{reason=\"cancelled\"}"), 0);
    snprintf(row, sizeof row, "\"http_status\":%d", stream ? 200 : 400);
    WAIT_FOR(&router, journal_count(path, "\"state\":\"ended\",\"at") == 3);
    cr_expect_eq(journal_count(path, row), 3);
    cr_expect_eq(journal_count(path, "\"outcome\":\"failed\""), 1);
    cr_expect_eq(journal_count(path, "\"outcome\":\"sibling_failed\""), 1);
    cr_expect_eq(journal_count(path, "for the test"), stream ? 2 : 3);
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(prompts, that_fail_together_are_counted_together)
{
    fail_together(false);
}

Test(prompts, that_fail_in_a_stream_are_counted_together)
{
    fail_together(true);
}

Test(prompts, have_a_row_each_in_the_journal)
{
    serving_start(NULL);
    serving_connect(true);
    struct client client;
    static const char head[] = "POST " TEXT_PATH " HTTP/1.1\r\nHost: x\r\nX-Request-Id: three\r\n"
                               "Content-Type: application/json\r\nContent-Length: 39\r\n\r\n"
                               "{\"prompt\":[\"hello\",\"x\",[259,262]]}     ";
    client_open(&client, &router);
    client_send(&client, head);
    WAIT_FOR(&router, client_complete(&client));
    char id[64];
    cr_assert(client_header(&client, "X-Request-Id", id, sizeof id));
    cr_expect_str_eq(id, "three");
    client_close(&client);
    WAIT_FOR(&router, journal_count("/requests/three", "\"state\":\"ended\",\"at") == 3);
    cr_expect_eq(journal_count("/requests/three", "\"client_id\":\"three\""), 3);
    cr_expect_eq(router_process_stop(&router), 0);
}
