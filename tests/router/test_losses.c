/* A real router when clients leave, workers are lost and time runs out. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"
#include "tests/router/serving_fixture.h"

Test(losses, a_client_that_leaves_cancels_everywhere)
{
    serving_start(NULL);
    serving_connect(false);
    uint32_t prefill_cancels = 0, decode_cancels = 0;
    for (int stream = 0; stream < 2; stream++) {
        for (enum stage stage = STAGE_RESERVING; stage < STAGE_COUNT; stage++) {
            struct client client;
            serving_reach(&client, stream, stage);
            client_close(&client);
            decode_cancels++;
            prefill_cancels += stage >= STAGE_PREFILLING;
            WAIT_FOR(&router, decode.cancel_count == decode_cancels);
            WAIT_FOR(&router, prefill.cancel_count == prefill_cancels);
        }
    }
    serving_expect_idle();
    cr_expect_eq(client_metric(&router, "baton_request_finish_total{reason=\"cancelled\"}"), 6);
    router_process_stop(&router);
}

/* A half-closed connection counts as gone too; bytes of a further request do not hide it. */
Test(losses, a_client_that_leaves_behind_pipelined_bytes)
{
    serving_start(NULL);
    serving_connect(false);
    struct client client;
    serving_reach(&client, false, STAGE_PREFILLING);
    client_get(&client, "/health");
    client_close(&client);
    WAIT_FOR(&router, decode.cancel_count == 1 && prefill.cancel_count == 1);
    cr_expect_eq(client_fetch(&router, "/health", NULL), 200);
    router_process_stop(&router);
}

/* Bytes that are refused, behind a request whose answer is due or on its way: no refusal stands
 * before that answer or in it, where a client would take it for its own. There is just an end. */
Test(losses, a_refusal_is_not_told_in_place_of_an_answer)
{
    static const char *const bad[] = {
        "GET / HTTP/9.9\r\nHost: t\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: +1\r\n\r\n",
        "BREW / HTTP/1.1\r\nHost: t\r\n\r\n",
    };
    static const char good[] =
        "POST " TEXT_PATH " HTTP/1.1\r\nHost: t\r\nContent-Length: 28\r\n\r\n"
        "{\"prompt\":\"x\",\"stream\":true}";
    serving_start(NULL);
    serving_connect(false);
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct client client;
        char bytes[256];
        snprintf(bytes, sizeof bytes, "%s%s", good, bad[i]);
        client_open(&client, &router);
        client_send(&client, bytes);
        WAIT_FOR(&router, client.closed);
        cr_expect_eq(client.in.size, 0, "%s: %s", bad[i], client.in.data);
        client_close(&client);
    }
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct client client;
        const uint32_t asked = decode.job_count, read = prefill.job_count;
        client_open(&client, &router);
        client_send(&client, good);
        WAIT_FOR(&router, decode.job_count == asked + 1);
        fake_reserved(&decode, &decode.jobs[asked], STATUS_OK);
        WAIT_FOR(&router, prefill.job_count == read + 1);
        fake_tokens(&prefill, &prefill.jobs[read], 0, "a", FINISH_NONE);
        WAIT_FOR(&router, client.in.data && strstr(client.in.data, "\"text\":\"a\""));
        client_send(&client, bad[i]);
        WAIT_FOR(&router, client.closed && decode.jobs[asked].cancelled);
        cr_expect_eq(text_count(client.in.data, "HTTP/1.1 "), 1, "%s: %s", bad[i], client.in.data);
        cr_expect_eq(text_count(client.in.data, "error"), 0, "%s: %s", bad[i], client.in.data);
        cr_expect_eq(text_count(client.in.data, "[DONE]"), 0, "%s: %s", bad[i], client.in.data);
        client_close(&client);
    }
    serving_expect_idle();
    router_process_stop(&router);
}

/* A RST, which epoll reports unlike a FIN; bytes of a further request do not hide it either. */
Test(losses, a_client_that_resets_cancels_everywhere)
{
    static const struct linger at_once = {.l_onoff = 1};
    serving_start(NULL);
    serving_connect(false);
    uint32_t cancels = 0;
    for (int kind = 0; kind < 4; kind++) {
        struct client client;
        serving_reach(&client, kind & 1, STAGE_PREFILLING);
        if (kind & 2) {
            client_get(&client, "/health");
            cr_expect_eq(client_fetch(&router, "/health", NULL), 200); /* the bytes are there */
        }
        cr_assert_eq(setsockopt(client.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
        client_close(&client);
        cancels++;
        WAIT_FOR(&router, decode.cancel_count == cancels && prefill.cancel_count == cancels);
    }
    serving_expect_idle();
    router_process_stop(&router);
}

/* How the first node failed is forgotten by then: the refusal still has a status and a sentence. */
Test(losses, a_request_that_waits_again_and_loses_its_other_prefill_node_as_well)
{
    struct fake_worker second;
    serving_start(NULL);
    serving_connect(false);
    fake_worker_init(&second, &router, WORKER_PREFILL, "p1");
    struct client client;
    serving_reach(&client, false, STAGE_PREFILLING);
    fake_worker_connect(&second);
    fake_failed(&prefill, &prefill.jobs[0], STATUS_INTERNAL, "for the test");
    WAIT_FOR(&router, decode.job_count == 2);
    fake_reserved(&decode, &decode.jobs[1], STATUS_BUSY);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_queued") == 1);
    fake_worker_close(&second);
    WAIT_FOR(&router, client_metric(&router, "baton_workers{role=\"prefill\",state=\"up\"}") == 1);
    fake_worker_heartbeat(&decode, 0, 100);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_status(&client), 503);
    cr_expect(strstr(client.in.data, "\"code\":\"worker_unavailable\""), "%s", client.in.data);
    client_close(&client);
    serving_expect_idle();
    router_process_stop(&router);
}

Test(losses, a_client_that_leaves_the_queue)
{
    serving_start(NULL);
    serving_connect(false);
    struct client first, second;
    serving_reach(&first, false, STAGE_RESERVING);
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
    serving_expect_idle();
    router_process_stop(&router);
}

Test(losses, a_lost_worker_before_the_first_token_is_a_503)
{
    serving_start(NULL);
    for (int lost = 0; lost < 2; lost++) {
        serving_connect(false);
        struct client client;
        serving_reach(&client, true, STAGE_PREFILLING);
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
    serving_connect(true);
    cr_expect_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\"}", NULL), 200);
    serving_expect_idle();
    router_process_stop(&router);
}

/* Whether it dies or gives up, with a reservation or waiting for one: another prefill node reads
 * the prompt for the same decode node, and the client sees an answer. */
Test(losses, a_failed_prefill_node_is_replaced_before_the_first_token)
{
    serving_start(NULL);
    fake_worker_connect(&decode);
    for (int how = 0; how < 4; how++) {
        struct fake_worker second, idle;
        fake_worker_init(&prefill, &router, WORKER_PREFILL, "p0");
        fake_worker_init(&second, &router, WORKER_PREFILL, "p1");
        fake_worker_init(&idle, &router, WORKER_DECODE, "d1");
        fake_worker_connect(&prefill);
        decode.automatic = false;
        const uint32_t number = decode.job_count, cancels = decode.cancel_count;
        struct client client;
        serving_reach(&client, true, how < 2 ? STAGE_PREFILLING : STAGE_RESERVING);
        second.automatic = decode.automatic = true;
        second.partner = &decode;
        fake_worker_connect(&second);
        fake_worker_connect(&idle);
        if (how == 0)
            fake_failed(&prefill, &prefill.jobs[0], STATUS_INTERNAL, "for the test");
        else
            fake_worker_close(&prefill);
        WAIT_FOR(&router, client_complete(&client));
        cr_expect_eq(client_status(&client), 200);
        cr_expect_eq(text_count(client.in.data, "[DONE]"), 1, "%s", client.in.data);
        cr_assert_eq(decode.job_count, number + 2);
        cr_expect_eq(decode.cancel_count, cancels + 1);
        cr_expect_eq(decode.jobs[number].request, decode.jobs[number + 1].request);
        cr_expect_eq(decode.jobs[number + 1].attempt, decode.jobs[number].attempt + 1);
        cr_expect_eq(second.job_count, 1);
        cr_expect_eq(idle.job_count, 0, "the decode node stays");
        cr_expect_eq(client_metric(&router, "baton_prefill_retries_total"), how + 1);
        cr_expect_eq(client_metric(&router, "baton_prompt_tokens_total"),
                     (double)(how + 1) * decode.jobs[number].prompt_count,
                     "each prompt counts once");
        client_close(&client);
        if (how == 0)
            fake_worker_close(&prefill);
        fake_worker_close(&second);
        fake_worker_close(&idle);
        WAIT_FOR(&router,
                 client_metric(&router, "baton_workers{role=\"prefill\",state=\"up\"}") == 0);
    }
    serving_expect_idle();
    router_process_stop(&router);
}

/* A reservation is on its way to a decode node that goes: another one takes the request. */
Test(losses, a_decode_node_that_goes_while_it_is_asked_is_replaced)
{
    serving_start(NULL);
    serving_connect(false);
    prefill.automatic = true;
    struct client client;
    struct fake_worker other;
    serving_reach(&client, true, STAGE_RESERVING);
    fake_worker_init(&other, &router, WORKER_DECODE, "d1");
    other.automatic = true;
    prefill.partner = &other;
    fake_worker_connect(&other);
    fake_worker_close(&decode);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_status(&client), 200);
    cr_expect_eq(text_count(client.in.data, "[DONE]"), 1, "%s", client.in.data);
    cr_assert_eq(other.job_count, 1);
    cr_expect_eq(other.jobs[0].request, decode.jobs[0].request);
    cr_expect_eq(other.jobs[0].attempt, decode.jobs[0].attempt + 1);
    cr_expect_eq(prefill.job_count, 1);
    client_close(&client);
    /* Without another one it is the node's loss that the client hears of. */
    other.automatic = false;
    client_open(&client, &router);
    client_post(&client, TEXT_PATH, "{\"prompt\":\"x\"}");
    WAIT_FOR(&router, other.job_count == 2);
    fake_worker_close(&other);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_status(&client), 503);
    cr_expect(strstr(client.in.data, "worker_lost"), "%s", client.in.data);
    client_close(&client);
    serving_expect_idle();
    router_process_stop(&router);
}

Test(losses, a_lost_worker_in_mid_stream_is_one_error_event)
{
    serving_start(NULL);
    serving_connect(false);
    struct client client;
    serving_reach(&client, true, STAGE_DECODING);
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
    serving_reach(&client, false, STAGE_DECODING);
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
    serving_expect_idle();
    router_process_stop(&router);
}

Test(losses, a_silent_worker_is_lost)
{
    /* Long enough for both to be greeted first. */
    static const char *const extra[] = {"--worker-timeout-ms", "2s", NULL};
    serving_start(extra);
    serving_connect(false);
    WAIT_FOR(&router, prefill.closed && decode.closed);
    WAIT_FOR(&router, client_fetch(&router, "/health", NULL) == 503);
    cr_expect_eq(client_metric(&router, "baton_workers_lost_total"), 2);
    router_process_stop(&router);
}

static void say_goodbye(struct fake_worker *worker)
{
    const struct msg_goaway goaway = {.text = wire_str("for the test")};
    cr_assert_eq(link_send(worker->link, MESSAGE_ID_GOAWAY, &goaway), STATUS_OK);
    fake_worker_close(worker);
}

static bool fetch_has(const char *path, const char *part)
{
    struct buffer body = {0};
    cr_assert_eq(client_fetch(&router, path, &body), 200);
    const bool found = strstr(body.data, part) != NULL;
    buffer_free(&body);
    return found;
}

/* It is no loss, and no series of its own is left of it; unless a request goes with it. */
Test(losses, a_worker_that_leaves_in_order_is_not_lost)
{
    static const char lost[] = "baton_workers{role=\"decode\",state=\"lost\"}";
    struct fake_worker other;
    struct client client;
    serving_start(NULL);
    serving_connect(false);
    fake_worker_init(&other, &router, WORKER_DECODE, "d1");
    fake_worker_connect(&other);
    cr_assert(fetch_has("/metrics", "node=\"d1\""));
    say_goodbye(&other);
    WAIT_FOR(&router, fetch_has("/workers", "\"state\":\"left\""));
    cr_expect_eq(client_metric(&router, "baton_workers_lost_total"), 0);
    cr_expect_eq(client_metric(&router, lost), 0);
    cr_expect(!fetch_has("/metrics", "node=\"d1\""));
    serving_reach(&client, false, STAGE_DECODING);
    say_goodbye(&decode);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_metric(&router, "baton_workers_lost_total"), 1);
    cr_expect_eq(client_metric(&router, lost), 1);
    client_close(&client);
    serving_expect_idle();
    router_process_stop(&router);
}

Test(losses, a_worker_gives_up)
{
    serving_start(NULL);
    serving_connect(false);
    static const struct {
        enum status status;
        int http_status;
    } rows[] = {
        {STATUS_INTERNAL, 500}, {STATUS_TIMEOUT, 503}, {STATUS_INVALID, 400}, {STATUS_LIMIT, 400}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct client client;
        serving_reach(&client, true, STAGE_PREFILLING);
        fake_failed(&prefill, &prefill.jobs[i], rows[i].status, "no way to 10.0.0.2:7700");
        WAIT_FOR(&router, client_complete(&client));
        cr_expect_eq(client_status(&client), rows[i].http_status);
        cr_expect(strstr(client.in.data, "no way to (address)"), "%s", client.in.data);
        WAIT_FOR(&router, decode.cancel_count == i + 1);
        client_close(&client);
    }
    cr_expect_eq(prefill.cancel_count, 0);
    serving_expect_idle();
    router_process_stop(&router);
}

/* No prefill node hears of it, and the client is not told that it did wrong. */
Test(losses, a_decode_node_that_holds_more_than_the_prompt_is_at_fault)
{
    serving_start(NULL);
    serving_connect(false);
    struct client client;
    serving_reach(&client, false, STAGE_RESERVING);
    decode.held_tokens = 1000;
    fake_reserved(&decode, &decode.jobs[0], STATUS_OK);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_status(&client), 500);
    client_close(&client);
    WAIT_FOR(&router, decode.cancel_count == 1);
    cr_expect_eq(prefill.job_count, 0);
    serving_expect_idle();
    router_process_stop(&router);
}

/* A request has one choice. */
Test(losses, messages_of_another_choice_change_nothing)
{
    serving_start(NULL);
    serving_connect(false);
    struct client client;
    serving_reach(&client, true, STAGE_DECODING);
    struct fake_job other = decode.jobs[0];
    other.choice = 1;
    fake_tokens(&decode, &other, 2, "z", FINISH_NONE);
    fake_failed(&decode, &other, STATUS_INTERNAL, "for the test");
    fake_tokens(&decode, &decode.jobs[0], 2, "c", FINISH_STOP);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(text_count(client.in.data, "[DONE]"), 1, "%s", client.in.data);
    cr_expect_eq(text_count(client.in.data, "\"content\":\"c\""), 1, "%s", client.in.data);
    cr_expect_eq(text_count(client.in.data, "\"content\":\"z\""), 0, "%s", client.in.data);
    cr_expect_eq(client_metric(&router, "baton_messages_late_total"), 2);
    client_close(&client);
    serving_expect_idle();
    router_process_stop(&router);
}

Test(losses, the_deadline_cancels)
{
    /* Long enough for the request to get that far first. */
    static const char *const extra[] = {"--request-timeout-ms", "4s", NULL};
    serving_start(extra);
    serving_connect(false);
    struct client client;
    serving_reach(&client, false, STAGE_DECODING);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_status(&client), 504);
    WAIT_FOR(&router, decode.cancel_count == 1 && prefill.cancel_count == 1);
    client_close(&client);
    router_process_stop(&router);
}

Test(losses, a_worker_that_comes_back_takes_its_place)
{
    serving_start(NULL);
    serving_connect(false);
    struct client client;
    serving_reach(&client, false, STAGE_DECODING);
    struct fake_worker again;
    fake_worker_init(&again, &router, WORKER_DECODE, "d0");
    again.automatic = prefill.automatic = true;
    prefill.partner = &again;
    /* While the former life is alive its name is taken, and its request goes on. */
    fake_worker_connect(&again);
    cr_expect(again.closed && strstr(again.close_text, "name d0"), "%s", again.close_text);
    cr_expect(!decode.closed && !client_complete(&client));
    struct buffer listed = {0};
    client_fetch(&router, "/workers", &listed);
    cr_expect(strstr(listed.data, "\"state\":\"refused\",\"reason\":\"the name d0"), "%s",
              listed.data);
    buffer_free(&listed);
    fake_worker_close(&decode);
    fake_worker_init(&again, &router, WORKER_DECODE, "d0");
    again.automatic = true;
    WAIT_FOR(&router, client_complete(&client));
    fake_worker_connect(&again);
    cr_expect(again.welcomed);
    cr_expect_eq(client_status(&client), 503);
    client_close(&client);
    struct buffer body = {0};
    client_fetch(&router, "/workers", &body);
    cr_expect_eq(text_count(body.data, "\"name\":\"d0\""), 1, "%s", body.data);
    cr_expect_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\"}", &body), 200);
    buffer_free(&body);
    router_process_stop(&router);
}

Test(losses, a_slow_reader_is_dropped)
{
    enum { STEP_TOKENS = 100, STEPS = 160 }; /* about 20 MB of answer */
    static const char *const extra[] = {"--stream-buffer", "64K", NULL};
    serving_start(extra);
    serving_connect(false);
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
    serving_expect_idle();
    router_process_stop(&router);
}

Test(losses, sigterm_lets_streams_finish)
{
    static const char *const extra[] = {"--drain-ms", "600s", NULL};
    serving_start(extra);
    serving_connect(false);
    struct client client;
    serving_reach(&client, true, STAGE_DECODING);
    kill(router.pid, SIGTERM);
    struct buffer body = {0};
    WAIT_FOR(&router, client_fetch(&router, "/health", &body) == 503);
    cr_expect(strstr(body.data, "draining"), "%s", body.data);
    cr_expect_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\"}", &body), 503);
    cr_expect(strstr(body.data, "shutting_down"), "%s", body.data);
    buffer_free(&body);
    fake_tokens(&decode, &decode.jobs[0], 2, "c", FINISH_STOP);
    WAIT_FOR(&router, client.closed);
    cr_expect(strstr(client.in.data, "[DONE]"));
    cr_expect_eq(router_process_wait(&router), 0);
    client_close(&client);
}

Test(losses, sigterm_ends_what_does_not_finish_with_an_error)
{
    static const char *const extra[] = {"--drain-ms", "100", NULL};
    serving_start(extra);
    serving_connect(false);
    struct client client;
    serving_reach(&client, true, STAGE_DECODING);
    kill(router.pid, SIGTERM);
    WAIT_FOR(&router, client.closed);
    cr_expect_eq(text_count(client.in.data, "data: {\"error\":"), 1);
    cr_expect_eq(text_count(client.in.data, "[DONE]"), 0);
    cr_expect_eq(router_process_wait(&router), 0);
    client_close(&client);
}

Test(losses, a_second_signal_ends_at_once)
{
    static const char *const extra[] = {"--drain-ms", "600000", NULL};
    serving_start(extra);
    serving_connect(false);
    struct client client;
    serving_reach(&client, true, STAGE_DECODING);
    kill(router.pid, SIGTERM);
    WAIT_FOR(&router, client_fetch(&router, "/health", NULL) == 503);
    kill(router.pid, SIGTERM);
    cr_expect_eq(router_process_wait(&router), 0);
    client_close(&client);
}

/* A connection that waits for its answer is not idle: one that was opened after it is closed first.
 */
Test(losses, a_long_wait_is_no_idle_connection)
{
    static const char *const extra[] = {"--idle-timeout-ms", "2s", NULL};
    serving_start(extra);
    serving_connect(false);
    for (int stream = 0; stream < 2; stream++) {
        struct client client, idle;
        const enum stage stage = stream ? STAGE_DECODING : STAGE_PREFILLING;
        serving_reach(&client, stream, stage);
        client_open(&idle, &router);
        WAIT_FOR(&router, idle.closed);
        client_close(&idle);
        cr_expect(!client.closed);
        fake_tokens(&prefill, &prefill.jobs[stream], 0, "a", FINISH_NONE);
        fake_tokens(&decode, &decode.jobs[stream], stage == STAGE_DECODING ? 2 : 1, "",
                    FINISH_STOP);
        WAIT_FOR(&router, client_complete(&client));
        cr_expect_eq(client_status(&client), 200);
        client_close(&client);
    }
    router_process_stop(&router);
}
