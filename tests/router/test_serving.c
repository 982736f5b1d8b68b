/* A real router between made-up workers and real sockets: answers, failures, cancels. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/router/fake_worker.h"

static struct router_process router;
static struct fake_worker prefill, decode;

#define CHAT_PATH "/v1/chat/completions"
#define TEXT_PATH "/v1/completions"

static void start(const char *const *extra)
{
    router_process_start(&router, extra);
    fake_worker_init(&prefill, &router, WORKER_PREFILL, "p0");
    fake_worker_init(&decode, &router, WORKER_DECODE, "d0");
    prefill.partner = &decode;
}

static void connect_both(bool automatic)
{
    prefill.automatic = decode.automatic = automatic;
    fake_worker_connect(&prefill);
    fake_worker_connect(&decode);
    cr_assert(prefill.welcomed && decode.welcomed, "%s%s", prefill.close_text, decode.close_text);
}

static void expect_idle(void)
{
    cr_expect_eq(client_metric(&router, "baton_requests_inflight"), 0);
    struct buffer body = {0};
    client_fetch(&router, "/workers", &body);
    cr_expect_eq(text_count(body.data, "\"inflight_tokens\":0"), text_count(body.data, "\"name\""),
                 "something is still charged: %s", body.data);
    buffer_free(&body);
}

Test(serving, chat_whole)
{
    start(NULL);
    connect_both(true);
    struct buffer body = {0};
    cr_assert_eq(client_ask(&router, CHAT_PATH,
                            "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                            "\"timings\":true}",
                            &body),
                 200);
    static const char *const parts[] = {
        "\"id\":\"chatcmpl-",         "\"object\":\"chat.completion\"",
        "\"model\":\"tiny\"",         "\"message\":{\"role\":\"assistant\",\"content\":\"answer\"}",
        "\"finish_reason\":\"stop\"", "\"completion_tokens\":6",
        "\"cached_tokens\":0",        "\"prefill_ms\":2",
        "\"handoff_bytes\":4096",     "\"first_step_ms\":0.7",
    };
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        cr_expect(strstr(body.data, parts[i]), "no %s in %s", parts[i], body.data);
    cr_expect_eq(prefill.job_count, 1);
    cr_expect_eq(decode.job_count, 1);
    cr_expect_eq(prefill.jobs[0].handoff, decode.jobs[0].handoff);
    cr_expect_eq(prefill.jobs[0].ticket, decode.jobs[0].ticket);
    cr_expect(!decode.jobs[0].local);
    cr_expect_eq(prefill.cancel_count + decode.cancel_count, 0);
    expect_idle();
    cr_expect_eq(client_metric(&router, "baton_handoff_bytes_total"), 4096);
    cr_expect_eq(client_metric(&router, "baton_output_tokens_total"), 6);
    cr_expect_eq(client_metric(&router, "baton_request_finish_total{reason=\"stop\"}"), 1);
    buffer_free(&body);
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(serving, chat_streamed)
{
    start(NULL);
    connect_both(true);
    struct buffer body = {0};
    cr_assert_eq(
        client_ask(&router, CHAT_PATH,
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,"
                   "\"stream_options\":{\"include_usage\":true}}",
                   &body),
        200);
    cr_expect_eq(text_count(body.data, "\"role\":\"assistant\""), 1);
    cr_expect_eq(text_count(body.data, "\"delta\":{\"content\":"), 6, "one chunk a token: %s",
                 body.data);
    cr_expect_eq(text_count(body.data, "\"finish_reason\":\"stop\""), 1);
    cr_expect_eq(text_count(body.data, "\"choices\":[],\"usage\":{\"prompt_tokens\":"), 1);
    cr_expect_eq(text_count(body.data, "\"usage\":null"), 8);
    cr_expect_eq(text_count(body.data, "data: "), 10);
    cr_expect_str_eq(body.data + body.size - strlen("data: [DONE]\n\n"), "data: [DONE]\n\n");
    buffer_free(&body);
    expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(serving, completion_with_logprobs_and_without_prefill_node)
{
    start(NULL);
    decode.automatic = true;
    fake_worker_connect(&decode);
    struct buffer body = {0};
    cr_assert_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":[7,8],\"logprobs\":2}", &body), 200);
    cr_expect(decode.jobs[0].local);
    cr_expect_eq(decode.jobs[0].first_id, 7);
    cr_expect(strstr(body.data, "\"text\":\"answer\""), "%s", body.data);
    cr_expect(strstr(body.data, "\"tokens\":[\"a\",\"n\",\"s\",\"w\",\"e\",\"r\"]"), "%s",
              body.data);
    cr_expect(strstr(body.data, "\"text_offset\":[0,1,2,3,4,5]"), "%s", body.data);
    cr_expect(strstr(body.data, "{\"A\":-1,\"B\":-2,\"a\":-0.5}"), "%s", body.data);
    buffer_free(&body);
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(serving, one_token_needs_no_decode_node)
{
    start(NULL);
    connect_both(true);
    struct buffer body = {0};
    cr_assert_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\",\"max_tokens\":1}", &body), 200);
    cr_expect(strstr(body.data, "\"text\":\"a\"") && strstr(body.data, "\"length\""), "%s",
              body.data);
    cr_expect_eq(decode.job_count, 0);
    cr_expect_eq(prefill.jobs[0].handoff, 0);
    buffer_free(&body);
    expect_idle();
    router_process_stop(&router);
}

Test(serving, stop_string_cancels_the_rest)
{
    start(NULL);
    connect_both(false);
    struct client client;
    client_open(&client, &router);
    client_post(&client, TEXT_PATH, "{\"prompt\":\"x\",\"stop\":[\"cd\"],\"stream\":true}");
    WAIT_FOR(&router, decode.job_count == 1);
    fake_reserved(&decode, &decode.jobs[0], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == 1);
    fake_tokens(&prefill, &prefill.jobs[0], 0, "a", FINISH_NONE);
    fake_tokens(&decode, &decode.jobs[0], 1, "bc", FINISH_NONE);
    fake_tokens(&decode, &decode.jobs[0], 3, "de", FINISH_NONE);
    WAIT_FOR(&router, client_complete(&client));
    WAIT_FOR(&router, decode.jobs[0].cancelled);
    struct buffer body = {0};
    client_body(&client, &body);
    cr_expect(strstr(body.data, "\"text\":\"a\"") && strstr(body.data, "\"text\":\"b\""));
    cr_expect(!strstr(body.data, "c\"") || !strstr(body.data, "\"text\":\"c"), "%s", body.data);
    cr_expect(strstr(body.data, "\"finish_reason\":\"stop\",\"stop_reason\":\"cd\""), "%s",
              body.data);
    buffer_free(&body);
    client_close(&client);
    expect_idle();
    router_process_stop(&router);
}

Test(serving, tokens_that_overtake_wait_for_the_first)
{
    start(NULL);
    connect_both(false);
    struct client client;
    client_open(&client, &router);
    client_post(&client, TEXT_PATH, "{\"prompt\":\"x\"}");
    WAIT_FOR(&router, decode.job_count == 1);
    fake_reserved(&decode, &decode.jobs[0], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == 1);
    fake_tokens(&decode, &decode.jobs[0], 1, "b", FINISH_NONE);
    fake_tokens(&decode, &decode.jobs[0], 2, "c", FINISH_STOP);
    fake_worker_heartbeat(&decode, 0, 100); /* answered: the router has read the tokens */
    cr_expect_eq(client_status(&client), 0);
    fake_tokens(&prefill, &prefill.jobs[0], 0, "a", FINISH_NONE);
    WAIT_FOR(&router, client_complete(&client));
    struct buffer body = {0};
    client_body(&client, &body);
    cr_expect(strstr(body.data, "\"text\":\"abc\""), "%s", body.data);
    cr_expect_eq(client_metric(&router, "baton_tokens_overtaken_total"), 2);
    buffer_free(&body);
    client_close(&client);
    router_process_stop(&router);
}

Test(serving, nobody_there)
{
    start(NULL);
    struct client client;
    client_open(&client, &router);
    client_post(&client, CHAT_PATH, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    WAIT_FOR(&router, client_complete(&client));
    char value[32] = "";
    cr_expect_eq(client_status(&client), 503);
    cr_expect(client_header(&client, "Retry-After", value, sizeof value));
    cr_expect_str_eq(value, "1");
    client_close(&client);
    /* A prefill node alone does not help. */
    fake_worker_connect(&prefill);
    cr_expect_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\"}", NULL), 503);
    struct buffer body = {0};
    cr_expect_eq(client_fetch(&router, "/health", &body), 503);
    cr_expect_str_eq(body.data, "{\"status\":\"waiting\",\"prefill\":1,\"decode\":0}");
    fake_worker_connect(&decode);
    cr_expect_eq(client_fetch(&router, "/health", &body), 200);
    cr_expect_str_eq(body.data, "{\"status\":\"ok\",\"prefill\":1,\"decode\":1}");
    buffer_free(&body);
    router_process_stop(&router);
}

/* How far a request has got when something happens to it. */
enum stage { STAGE_RESERVING, STAGE_PREFILLING, STAGE_DECODING, STAGE_COUNT };

static void reach(struct client *client, bool stream, enum stage stage)
{
    const uint32_t number = decode.job_count;
    client_open(client, &router);
    client_post(client, CHAT_PATH,
                stream ? "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true}"
                       : "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    WAIT_FOR(&router, decode.job_count == number + 1);
    if (stage == STAGE_RESERVING)
        return;
    const uint32_t prefills = prefill.job_count;
    fake_reserved(&decode, &decode.jobs[number], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == prefills + 1);
    if (stage == STAGE_PREFILLING)
        return;
    fake_tokens(&prefill, &prefill.jobs[prefills], 0, "a", FINISH_NONE);
    fake_tokens(&decode, &decode.jobs[number], 1, "b", FINISH_NONE);
    if (stream)
        WAIT_FOR(&router, client->in.data && strstr(client->in.data, "\"content\":\"b\""));
    else
        fake_worker_heartbeat(&decode, 0, 100);
}

Test(serving, a_client_that_leaves_cancels_everywhere)
{
    start(NULL);
    connect_both(false);
    uint32_t prefill_cancels = 0, decode_cancels = 0;
    for (int stream = 0; stream < 2; stream++) {
        for (enum stage stage = STAGE_RESERVING; stage < STAGE_COUNT; stage++) {
            struct client client;
            reach(&client, stream, stage);
            client_close(&client);
            decode_cancels++;
            prefill_cancels += stage >= STAGE_PREFILLING;
            WAIT_FOR(&router, decode.cancel_count == decode_cancels);
            WAIT_FOR(&router, prefill.cancel_count == prefill_cancels);
        }
    }
    expect_idle();
    cr_expect_eq(client_metric(&router, "baton_request_finish_total{reason=\"cancelled\"}"), 6);
    router_process_stop(&router);
}

/* A half-closed connection counts as gone too; bytes of a further request do not hide it. */
Test(serving, a_client_that_leaves_behind_pipelined_bytes)
{
    start(NULL);
    connect_both(false);
    struct client client;
    reach(&client, false, STAGE_PREFILLING);
    client_get(&client, "/health");
    client_close(&client);
    WAIT_FOR(&router, decode.cancel_count == 1 && prefill.cancel_count == 1);
    cr_expect_eq(client_fetch(&router, "/health", NULL), 200);
    router_process_stop(&router);
}

Test(serving, a_client_that_leaves_the_queue)
{
    start(NULL);
    connect_both(false);
    struct client first, second;
    reach(&first, false, STAGE_RESERVING);
    fake_reserved(&decode, &decode.jobs[0], STATUS_BUSY);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_queued") == 1);
    client_open(&second, &router);
    client_post(&second, TEXT_PATH, "{\"prompt\":\"x\"}");
    WAIT_FOR(&router, client_metric(&router, "baton_requests_queued") == 2);
    client_close(&first);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_queued") == 1);
    cr_expect_eq(decode.cancel_count, 0, "the node that refused holds nothing to cancel");
    /* Room again: the second one is served. */
    decode.automatic = prefill.automatic = true;
    fake_worker_heartbeat(&decode, 0, 100);
    WAIT_FOR(&router, client_complete(&second));
    cr_expect_eq(client_status(&second), 200);
    client_close(&second);
    expect_idle();
    router_process_stop(&router);
}

Test(serving, full_nodes_are_waited_for)
{
    start(NULL);
    connect_both(false);
    struct client client;
    reach(&client, false, STAGE_RESERVING);
    fake_reserved(&decode, &decode.jobs[0], STATUS_BUSY);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_queued") == 1);
    fake_worker_heartbeat(&decode, 0, 100);
    WAIT_FOR(&router, decode.job_count == 2);
    cr_expect_eq(decode.jobs[1].attempt, decode.jobs[0].attempt + 1);
    fake_reserved(&decode, &decode.jobs[0], STATUS_OK); /* of the attempt before: too late */
    fake_reserved(&decode, &decode.jobs[1], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == 1);
    cr_expect_eq(prefill.jobs[0].attempt, decode.jobs[1].attempt);
    /* A full prefill node: the decode node lets go, and all begins again. */
    fake_failed(&prefill, &prefill.jobs[0], STATUS_BUSY, "full");
    WAIT_FOR(&router, decode.jobs[1].cancelled);
    decode.automatic = prefill.automatic = true;
    fake_worker_heartbeat(&prefill, 0, 100);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_status(&client), 200);
    client_close(&client);
    expect_idle();
    router_process_stop(&router);
}

Test(serving, a_lost_worker_before_the_first_token_is_a_503)
{
    start(NULL);
    for (int lost = 0; lost < 2; lost++) {
        connect_both(false);
        struct client client;
        reach(&client, true, STAGE_PREFILLING);
        fake_worker_close(lost == 0 ? &prefill : &decode);
        WAIT_FOR(&router, client_complete(&client));
        cr_expect_eq(client_status(&client), 503);
        struct buffer body = {0};
        client_body(&client, &body);
        cr_expect(strstr(body.data, "worker_lost"), "%s", body.data);
        buffer_free(&body);
        client_close(&client);
        struct fake_worker *other = lost == 0 ? &decode : &prefill;
        WAIT_FOR(&router, other->cancel_count == 1);
        fake_worker_close(other);
        WAIT_FOR(&router, client_fetch(&router, "/health", NULL) == 503);
        fake_worker_init(&prefill, &router, WORKER_PREFILL, "p0");
        fake_worker_init(&decode, &router, WORKER_DECODE, "d0");
        prefill.partner = &decode;
    }
    connect_both(true);
    cr_expect_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\"}", NULL), 200);
    expect_idle();
    router_process_stop(&router);
}

Test(serving, a_lost_worker_in_mid_stream_is_one_error_event)
{
    start(NULL);
    connect_both(false);
    struct client client;
    reach(&client, true, STAGE_DECODING);
    fake_worker_close(&decode);
    WAIT_FOR(&router, client.closed);
    struct buffer body = {0};
    client_body(&client, &body);
    cr_expect_eq(text_count(body.data, "data: {\"error\":"), 1, "%s", body.data);
    cr_expect_eq(text_count(body.data, "[DONE]"), 0);
    cr_expect_eq(text_count(body.data, "\"finish_reason\":\"stop\""), 0);
    const char *last = strstr(body.data, "data: {\"error\":");
    cr_expect_str_eq(strstr(last, "\n\n"), "\n\n", "something follows the error");
    WAIT_FOR(&router, prefill.cancel_count == 1);
    client_close(&client);
    /* Not streamed: a status. */
    fake_worker_init(&decode, &router, WORKER_DECODE, "d0");
    fake_worker_connect(&decode);
    reach(&client, false, STAGE_DECODING);
    fake_worker_close(&decode);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_status(&client), 503);
    client_close(&client);
    /* And the next request is served once a node is back. */
    fake_worker_init(&decode, &router, WORKER_DECODE, "d0");
    decode.automatic = prefill.automatic = true;
    fake_worker_connect(&decode);
    cr_expect_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\"}", &body), 200);
    buffer_free(&body);
    expect_idle();
    router_process_stop(&router);
}

Test(serving, a_silent_worker_is_lost)
{
    static const char *const extra[] = {"--worker-timeout-ms", "300", NULL};
    start(extra);
    connect_both(false);
    WAIT_FOR(&router, prefill.closed && decode.closed);
    WAIT_FOR(&router, client_fetch(&router, "/health", NULL) == 503);
    cr_expect_eq(client_metric(&router, "baton_workers_lost_total"), 2);
    router_process_stop(&router);
}

Test(serving, a_worker_gives_up)
{
    start(NULL);
    connect_both(false);
    static const struct {
        enum status status;
        int http_status;
    } rows[] = {
        {STATUS_INTERNAL, 500}, {STATUS_TIMEOUT, 503}, {STATUS_INVALID, 400}, {STATUS_LIMIT, 400}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct client client;
        reach(&client, true, STAGE_PREFILLING);
        fake_failed(&prefill, &prefill.jobs[i], rows[i].status, "for the test");
        WAIT_FOR(&router, client_complete(&client));
        cr_expect_eq(client_status(&client), rows[i].http_status);
        WAIT_FOR(&router, decode.cancel_count == i + 1);
        client_close(&client);
    }
    cr_expect_eq(prefill.cancel_count, 0);
    expect_idle();
    router_process_stop(&router);
}

Test(serving, the_deadline_cancels)
{
    static const char *const extra[] = {"--request-timeout-ms", "300", NULL};
    start(extra);
    connect_both(false);
    struct client client;
    reach(&client, false, STAGE_DECODING);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_status(&client), 504);
    WAIT_FOR(&router, decode.cancel_count == 1 && prefill.cancel_count == 1);
    client_close(&client);
    router_process_stop(&router);
}

Test(serving, workers_that_do_not_fit_are_told_why)
{
    start(NULL);
    struct fake_worker odd;
    fake_worker_init(&odd, &router, WORKER_DECODE, "odd");
    odd.tokenizer_digest[0] ^= 1;
    fake_worker_connect(&odd);
    cr_expect(odd.closed && strstr(odd.close_text, "tokenizer_digest"), "%s", odd.close_text);
    fake_worker_init(&odd, &router, WORKER_DECODE, "odd");
    odd.vocab_count = 5;
    fake_worker_connect(&odd);
    cr_expect(odd.closed && strstr(odd.close_text, "vocab_count is 5"), "%s", odd.close_text);
    fake_worker_init(&odd, &router, WORKER_DECODE, "odd");
    odd.context_tokens = 100000;
    fake_worker_connect(&odd);
    cr_expect(odd.closed && strstr(odd.close_text, "context_tokens is 100000"), "%s",
              odd.close_text);
    /* Two that compute different things are both taken, and never paired. */
    prefill.profile_id = 2;
    connect_both(true);
    cr_expect_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\"}", NULL), 200);
    cr_expect_eq(prefill.job_count, 0);
    cr_expect(decode.jobs[0].local);
    router_process_stop(&router);
}

Test(serving, a_worker_that_comes_back_takes_its_place)
{
    start(NULL);
    connect_both(false);
    struct client client;
    reach(&client, false, STAGE_DECODING);
    struct fake_worker again;
    fake_worker_init(&again, &router, WORKER_DECODE, "d0");
    again.automatic = prefill.automatic = true;
    prefill.partner = &again;
    fake_worker_connect(&again);
    WAIT_FOR(&router, decode.closed);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_status(&client), 503);
    client_close(&client);
    struct buffer body = {0};
    client_fetch(&router, "/workers", &body);
    cr_expect_eq(text_count(body.data, "\"name\":\"d0\""), 1, "%s", body.data);
    cr_expect_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\"}", &body), 200);
    buffer_free(&body);
    router_process_stop(&router);
}

Test(serving, two_hundred_streams_at_once)
{
    enum { STREAMS = 200 };
    start(NULL);
    connect_both(false);
    static struct client clients[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"prompt\":[%d],\"stream\":true,\"max_tokens\":50}", i);
        client_open(&clients[i], &router);
        client_post(&clients[i], TEXT_PATH, body);
    }
    WAIT_FOR(&router, decode.job_count == STREAMS);
    for (uint32_t i = 0; i < STREAMS; i++)
        fake_reserved(&decode, &decode.jobs[i], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == STREAMS);
    for (uint32_t i = 0; i < STREAMS; i++)
        fake_tokens(&prefill, &prefill.jobs[i], 0, ":", FINISH_NONE);
    /* Each stream spells its own number, so that a mix-up shows. */
    for (uint32_t position = 0; position < 4; position++) {
        for (uint32_t i = 0; i < STREAMS; i++) {
            char number[16], letter[2] = "";
            snprintf(number, sizeof number, "%03d", decode.jobs[i].first_id);
            letter[0] = number[position];
            fake_tokens(&decode, &decode.jobs[i], position + 1, letter,
                        position == 3 ? FINISH_STOP : FINISH_NONE);
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        WAIT_FOR(&router, client_complete(&clients[i]));
        struct buffer body = {0};
        client_body(&clients[i], &body);
        char number[16], wanted[32];
        snprintf(number, sizeof number, "%03d", i);
        const char *at = body.data;
        for (int k = 0; k < 3 && at; k++) {
            snprintf(wanted, sizeof wanted, "\"text\":\"%c\"", number[k]);
            at = strstr(at, wanted);
        }
        cr_expect(at && strstr(at, "[DONE]"), "stream %d: %s", i, body.data);
        buffer_free(&body);
        client_close(&clients[i]);
    }
    expect_idle();
    router_process_stop(&router);
}

Test(serving, more_requests_than_allowed_are_turned_away)
{
    static const char *const extra[] = {"--max-requests", "2", NULL};
    start(extra);
    connect_both(false);
    struct client a, b;
    reach(&a, false, STAGE_DECODING);
    reach(&b, false, STAGE_RESERVING);
    struct buffer body = {0};
    cr_expect_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\"}", &body), 503);
    cr_expect(strstr(body.data, "overloaded"), "%s", body.data);
    buffer_free(&body);
    client_close(&a);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_inflight") == 1);
    client_close(&b);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_inflight") == 0);
    expect_idle();
    router_process_stop(&router);
}

Test(serving, a_slow_reader_is_dropped)
{
    enum { STEP_TOKENS = 100, STEPS = 160 }; /* about 20 MB of answer */
    static const char *const extra[] = {"--stream-buffer", "64K", NULL};
    start(extra);
    connect_both(false);
    struct client slow;
    client_open(&slow, &router);
    client_pause(&slow);
    client_post(&slow, CHAT_PATH,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,"
                "\"logprobs\":true,\"top_logprobs\":20}");
    WAIT_FOR(&router, decode.job_count == 1);
    fake_reserved(&decode, &decode.jobs[0], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == 1);
    char letters[STEP_TOKENS + 1];
    memset(letters, 'x', STEP_TOKENS);
    letters[STEP_TOKENS] = '\0';
    fake_tokens(&prefill, &prefill.jobs[0], 0, "x", FINISH_NONE);
    for (uint32_t i = 0; i < STEPS && !decode.jobs[0].cancelled; i++) {
        fake_tokens(&decode, &decode.jobs[0], 1 + i * STEP_TOKENS, letters, FINISH_NONE);
        fake_worker_heartbeat(&decode, 0, 100);
    }
    cr_expect(decode.jobs[0].cancelled);
    cr_expect_eq(client_metric(&router, "baton_slow_readers_total"), 1);
    client_resume(&slow);
    WAIT_FOR(&router, slow.closed);
    cr_expect(!slow.in.data || !strstr(slow.in.data, "[DONE]"));
    client_close(&slow);
    expect_idle();
    router_process_stop(&router);
}

Test(serving, sigterm_lets_streams_finish)
{
    start(NULL);
    connect_both(false);
    struct client client;
    reach(&client, true, STAGE_DECODING);
    kill(router.pid, SIGTERM);
    WAIT_FOR(&router, client_refused(&router));
    fake_tokens(&decode, &decode.jobs[0], 2, "c", FINISH_STOP);
    WAIT_FOR(&router, client.closed);
    cr_expect(strstr(client.in.data, "[DONE]"));
    cr_expect_eq(router_process_wait(&router), 0);
    client_close(&client);
}

Test(serving, sigterm_ends_what_does_not_finish_with_an_error)
{
    static const char *const extra[] = {"--drain-ms", "100", NULL};
    start(extra);
    connect_both(false);
    struct client client;
    reach(&client, true, STAGE_DECODING);
    kill(router.pid, SIGTERM);
    WAIT_FOR(&router, client.closed);
    cr_expect_eq(text_count(client.in.data, "data: {\"error\":"), 1);
    cr_expect_eq(text_count(client.in.data, "[DONE]"), 0);
    cr_expect_eq(router_process_wait(&router), 0);
    client_close(&client);
}

Test(serving, a_second_signal_ends_at_once)
{
    static const char *const extra[] = {"--drain-ms", "600000", NULL};
    start(extra);
    connect_both(false);
    struct client client;
    reach(&client, true, STAGE_DECODING);
    kill(router.pid, SIGTERM);
    WAIT_FOR(&router, client_refused(&router));
    kill(router.pid, SIGTERM);
    cr_expect_eq(router_process_wait(&router), 0);
    client_close(&client);
}
