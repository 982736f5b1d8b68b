/* A real router between made-up workers and real sockets: the answers. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "tests/router/serving_fixture.h"
#include "tests/router/tiny_text.h"

Test(serving, chat_whole)
{
    serving_start(NULL);
    serving_connect(true);
    prefill.cached_tokens = 2;
    struct buffer body = {0};
    cr_assert_eq(client_ask(&router, CHAT_PATH,
                            "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                            "\"timings\":true}",
                            &body),
                 200);
    static const char *const parts[] = {
        "\"id\":\"chatcmpl-",         "\"object\":\"chat.completion\"",
        "\"model\":\"tiny\"",         "\"message\":{\"role\":\"assistant\",\"content\":\"answer\"}",
        "\"finish_reason\":\"stop\"", "\"completion_tokens\":7",
        "\"cached_tokens\":2}",       "\"prefill_ms\":2",
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
    serving_expect_idle();
    cr_expect_eq(client_metric(&router, "baton_handoff_bytes_total"), 4096);
    cr_expect_eq(client_metric(&router, "baton_output_tokens_total"), 6);
    cr_expect_eq(client_metric(&router, "baton_request_finish_total{reason=\"stop\"}"), 1);
    buffer_free(&body);
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(serving, chat_streamed)
{
    serving_start(NULL);
    serving_connect(true);
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
    serving_expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(serving, completion_with_logprobs_and_without_prefill_node)
{
    serving_start(NULL);
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

/* The decode node may read what little it lacks of a prompt; it alone knows how much that is. */
Test(serving, a_short_prompt_is_read_by_the_decode_node)
{
    serving_start(NULL);
    decode.reads_short = true;
    serving_connect(true);
    struct buffer body = {0};
    cr_assert_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":[7,8],\"timings\":true}", &body), 200);
    cr_expect(strstr(body.data, "\"text\":\"answer\""), "%s", body.data);
    cr_expect(decode.jobs[0].local);
    cr_expect_eq(prefill.job_count, 0);
    char prompt[400] = "{\"prompt\":[1";
    for (int i = 0; i < 32; i++)
        strcat(prompt, ",2");
    strcat(prompt, "]}");
    buffer_clear(&body);
    cr_assert_eq(client_ask(&router, TEXT_PATH, prompt, &body), 200);
    cr_expect(!decode.jobs[1].local, "33 tokens are more than 32");
    cr_expect_eq(prefill.job_count, 1);
    serving_expect_idle();
    cr_expect_eq(client_metric(&router, "baton_placements_total{reason=\"pair\"}"), 2);
    cr_expect_eq(client_metric(&router, "baton_placements_total{reason=\"short\"}"), 1);
    buffer_free(&body);
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(serving, one_token_needs_no_decode_node)
{
    serving_start(NULL);
    serving_connect(true);
    struct buffer body = {0};
    cr_assert_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\",\"max_tokens\":1}", &body), 200);
    cr_expect(strstr(body.data, "\"text\":\"a\"") && strstr(body.data, "\"length\""), "%s",
              body.data);
    cr_expect_eq(decode.job_count, 0);
    cr_expect_eq(prefill.jobs[0].handoff, 0);
    buffer_free(&body);
    serving_expect_idle();
    router_process_stop(&router);
}

Test(serving, stop_string_cancels_the_rest)
{
    serving_start(NULL);
    serving_connect(false);
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
    serving_expect_idle();
    router_process_stop(&router);
}

Test(serving, tokens_that_overtake_wait_for_the_first)
{
    serving_start(NULL);
    serving_connect(false);
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

/* A worker that tells how likely the end was though nobody asked: nobody is told. */
Test(serving, a_score_of_the_end_that_was_not_wanted)
{
    serving_start(NULL);
    serving_connect(false);
    struct client client;
    client_open(&client, &router);
    client_post(&client, TEXT_PATH, "{\"prompt\":\"x\",\"return_token_ids\":true}");
    WAIT_FOR(&router, decode.job_count == 1);
    fake_reserved(&decode, &decode.jobs[0], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == 1);
    fake_tokens(&prefill, &prefill.jobs[0], 0, "a", FINISH_NONE);
    struct fake_job telling = decode.jobs[0];
    telling.logprobs = telling.tells_end = true;
    fake_tokens(&decode, &telling, 1, "b", FINISH_STOP);
    WAIT_FOR(&router, client_complete(&client));
    struct buffer body = {0}, ids = {0};
    client_body(&client, &body);
    buffer_printf(&ids, "\"token_ids\":[%d,%d,%d]", 'a', 'b', TINY_END);
    cr_expect(strstr(body.data, "\"text\":\"ab\""), "%s", body.data);
    cr_expect(strstr(body.data, ids.data), "%s", body.data);
    cr_expect(strstr(body.data, "\"logprobs\":null"), "%s", body.data);
    buffer_free(&ids);
    buffer_free(&body);
    client_close(&client);
    router_process_stop(&router);
}

/* The id that ends the answer is behind what met the stop string, and counts no more than text. */
Test(serving, an_end_behind_a_stop_string_does_not_count)
{
    serving_start(NULL);
    serving_connect(false);
    struct client client;
    client_open(&client, &router);
    client_post(&client, TEXT_PATH, "{\"prompt\":\"x\",\"stop\":\"a\",\"return_token_ids\":true}");
    WAIT_FOR(&router, decode.job_count == 1);
    fake_reserved(&decode, &decode.jobs[0], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == 1);
    fake_tokens(&decode, &decode.jobs[0], 1, "", FINISH_STOP);
    fake_worker_heartbeat(&decode, 0, 100); /* answered: the router has read the end */
    fake_tokens(&prefill, &prefill.jobs[0], 0, "a", FINISH_NONE);
    WAIT_FOR(&router, client_complete(&client));
    struct buffer body = {0};
    client_body(&client, &body);
    cr_expect(strstr(body.data, "\"text\":\"\""), "%s", body.data);
    cr_expect(strstr(body.data, "\"stop_reason\":\"a\""), "%s", body.data);
    cr_expect(strstr(body.data, "\"token_ids\":[]"), "%s", body.data);
    cr_expect(strstr(body.data, "\"completion_tokens\":1,"), "%s", body.data);
    buffer_free(&body);
    client_close(&client);
    router_process_stop(&router);
}

Test(serving, nobody_there)
{
    serving_start(NULL);
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
    cr_expect(strstr(body.data, "\"waiting\"") && strstr(body.data, "\"prefill\":1,\"decode\":0"));
    fake_worker_connect(&decode);
    cr_expect_eq(client_fetch(&router, "/health", &body), 200);
    cr_expect(strstr(body.data, "\"ok\"") && strstr(body.data, "\"prefill\":1,\"decode\":1"));
    buffer_free(&body);
    router_process_stop(&router);
}

Test(serving, full_nodes_are_waited_for)
{
    serving_start(NULL);
    serving_connect(false);
    struct client client;
    serving_reach(&client, false, STAGE_RESERVING);
    fake_reserved(&decode, &decode.jobs[0], STATUS_BUSY);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_queued") == 1);
    fake_worker_heartbeat(&decode, 0, 100);
    WAIT_FOR(&router, decode.job_count == 2);
    cr_expect_eq(decode.jobs[1].attempt, decode.jobs[0].attempt + 1);
    fake_reserved(&decode, &decode.jobs[0], STATUS_OK); /* of the attempt before: too late */
    fake_reserved(&decode, &decode.jobs[1], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == 1);
    cr_expect_eq(prefill.jobs[0].attempt, decode.jobs[1].attempt);
    cr_expect_eq(prefill.jobs[0].handoff, decode.jobs[1].handoff, "the late answer was taken");
    /* A full prefill node: the decode node lets go, and all begins again. */
    fake_failed(&prefill, &prefill.jobs[0], STATUS_BUSY, "full");
    WAIT_FOR(&router, decode.jobs[1].cancelled);
    decode.automatic = prefill.automatic = true;
    fake_worker_heartbeat(&prefill, 0, 100);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_status(&client), 200);
    cr_expect_eq(client_metric(&router, "baton_placements_total{reason=\"full\"}"), 1);
    client_close(&client);
    serving_expect_idle();
    router_process_stop(&router);
}

Test(serving, workers_that_do_not_fit_are_told_why)
{
    serving_start(NULL);
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
    serving_connect(true);
    /* Other weights behind the same name are not. */
    fake_worker_init(&odd, &router, WORKER_DECODE, "odd");
    odd.weights_digest[0] = 43;
    fake_worker_connect(&odd);
    cr_expect(odd.closed && strstr(odd.close_text, "weights_digest") &&
                  strstr(odd.close_text, "one model"),
              "%s", odd.close_text);
    struct buffer listed = {0};
    client_fetch(&router, "/workers", &listed);
    cr_expect_eq(text_count(listed.data, "\"name\":\"odd\""), 1, "%s", listed.data);
    cr_expect(strstr(listed.data, "\"state\":\"refused\",\"reason\":\"weights_digest is "), "%s",
              listed.data);
    cr_expect(strstr(listed.data, "\"reason\":\"not paired with d0: the numerics profile is 2"),
              "%s", listed.data);
    buffer_free(&listed);
    cr_expect_eq(client_ask(&router, TEXT_PATH, "{\"prompt\":\"x\"}", NULL), 200);
    cr_expect_eq(prefill.job_count, 0);
    cr_expect(decode.jobs[0].local);
    router_process_stop(&router);
}

/* The end of one request is room for the next, without waiting for a heartbeat. */
Test(serving, what_ends_makes_room)
{
    serving_start(NULL);
    serving_connect(false);
    struct client first, second;
    serving_reach(&first, false, STAGE_DECODING);
    serving_reach(&second, false, STAGE_RESERVING);
    fake_reserved(&decode, &decode.jobs[1], STATUS_BUSY);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_queued") == 1);
    cr_expect_eq(decode.job_count, 2);
    decode.automatic = prefill.automatic = true;
    fake_tokens(&decode, &decode.jobs[0], 2, "", FINISH_STOP);
    WAIT_FOR(&router, client_complete(&first));
    WAIT_FOR(&router, client_complete(&second));
    cr_expect_eq(client_status(&second), 200);
    client_close(&first);
    client_close(&second);
    serving_expect_idle();
    router_process_stop(&router);
}

Test(serving, two_hundred_streams_at_once)
{
    enum { STREAMS = 200 };
    serving_start(NULL);
    serving_connect(false);
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
    serving_expect_idle();
    router_process_stop(&router);
}

Test(serving, more_requests_than_allowed_are_turned_away)
{
    static const char *const extra[] = {"--max-requests", "2", NULL};
    serving_start(extra);
    serving_connect(false);
    struct client a, b, c;
    serving_reach(&a, false, STAGE_DECODING);
    serving_reach(&b, false, STAGE_RESERVING);
    client_open(&c, &router);
    client_post(&c, TEXT_PATH, "{\"prompt\":\"x\"}");
    WAIT_FOR(&router, client_complete(&c));
    struct buffer body = {0};
    char after[32] = "";
    client_body(&c, &body);
    cr_expect_eq(client_status(&c), 503);
    cr_expect(strstr(body.data, "overloaded") && strstr(body.data, "has 2 requests"), "%s",
              body.data);
    cr_expect(client_header(&c, "Retry-After", after, sizeof after));
    cr_expect_eq(client_metric(&router, "baton_admission_refusals_total{reason=\"capacity\"}"), 1);
    client_close(&c);
    buffer_free(&body);
    client_close(&a);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_inflight") == 1);
    client_close(&b);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_inflight") == 0);
    serving_expect_idle();
    router_process_stop(&router);
}
