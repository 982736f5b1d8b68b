/* A real router that refuses what would come too late, and lets the urgent go first. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "router/prefix_index.h"
#include "tests/router/serving_fixture.h"

/* A completion of so many prompt ids, with more fields and headers as they stand. */
static void post(struct client *client, uint32_t tokens, const char *fields, const char *headers)
{
    struct buffer body = {0}, text = {0};
    buffer_printf(&body, "{\"max_tokens\":8%s,\"prompt\":[", fields);
    for (uint32_t i = 0; i < tokens; i++)
        buffer_printf(&body, "%s%d", i > 0 ? "," : "", 97);
    buffer_printf(&body, "]}");
    client_open(client, &router);
    buffer_printf(&text,
                  "POST " TEXT_PATH " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                  "%sContent-Length: %zu\r\n\r\n%s",
                  headers, body.size, body.data);
    client_send(client, text.data);
    buffer_free(&body);
    buffer_free(&text);
}

/* Waits for a 503 with this code that says so, and to come again after some seconds; which. */
static int expect_refused(struct client *client, const char *code, const char *text,
                          struct buffer *body)
{
    WAIT_FOR(&router, client_complete(client));
    cr_expect_eq(client_status(client), 503);
    buffer_clear(body);
    client_body(client, body);
    cr_expect(strstr(body->data, code) && strstr(body->data, text), "%s", body->data);
    char after[32] = "";
    cr_expect(client_header(client, "Retry-After", after, sizeof after));
    client_close(client);
    return atoi(after);
}

/* The number that stands behind these words. */
static double number_after(const char *text, const char *words)
{
    const char *found = strstr(text, words);
    cr_assert(found != NULL, "%s", text);
    return atof(found + strlen(words));
}

/* The made-up prefill node says that it reads 100 tokens a second. What a request has waited
 * already counts too, so the figures have a lower limit only, or an upper one. */
Test(refusals, a_first_token_that_would_come_too_late)
{
    static const char *const extra[] = {"--ttft-target-ms", "20000", "--speed-stale-ms", "0", NULL};
    struct buffer body = {0};
    serving_start(extra);
    serving_connect(false);
    struct client client, first;
    post(&client, 5000, "", "");
    cr_expect_eq(expect_refused(&client, "ttft_target", "the target is 20000 ms", &body), 1);
    cr_expect_geq(number_after(body.data, "predicted "), 50000);
    cr_expect_leq(number_after(body.data, "a prompt of "), 2000);
    cr_expect_gt(number_after(body.data, "a prompt of "), 0);
    cr_expect_eq(decode.job_count, 0, "nobody has heard of it");
    /* Behind others there is less room. */
    decode.automatic = true;
    post(&first, 150, "", "");
    WAIT_FOR(&router, prefill.job_count == 1);
    fake_worker_heartbeat(&prefill, 5000, 100);
    post(&client, 150, "", "");
    const int after_s = expect_refused(&client, "ttft_target", "no prompt", &body);
    /* The node is thought to read on since its heartbeat, however long ago that was. */
    cr_expect(after_s > 1 && after_s <= 50, "%d s for 5000 tokens", after_s);
    cr_expect_eq(client_metric(&router, "baton_admission_refusals_total{reason=\"ttft\"}"), 2);
    client_close(&first);
    WAIT_FOR(&router, prefill.cancel_count == 1);
    serving_expect_idle();
    buffer_free(&body);
    router_process_stop(&router);
}

/* Its heartbeat says that it reads 10 tokens a second, after 100 in its HELLO. */
Test(refusals, an_idle_node_is_as_fast_as_it_was_when_loaded)
{
    static const char *const extra[] = {"--ttft-target-ms", "100s", "--speed-stale-ms", "0", NULL};
    struct buffer body = {0};
    serving_start(extra);
    serving_connect(false);
    decode.automatic = true;
    struct client client;
    prefill.tokens_per_s = 10;
    fake_worker_heartbeat(&prefill, 1, 100);
    post(&client, 3000, "", "");
    expect_refused(&client, "ttft_target", "the target is 100000 ms", &body);
    cr_expect_geq(number_after(body.data, "predicted "), 300000);
    fake_worker_heartbeat(&prefill, 0, 100);
    post(&client, 3000, "", "");
    WAIT_FOR(&router, prefill.job_count == 1);
    client_close(&client);
    WAIT_FOR(&router, prefill.cancel_count == 1);
    serving_expect_idle();
    buffer_free(&body);
    router_process_stop(&router);
}

/* No prefill node: the decode node reads prompts, 100 tokens a second. */
Test(refusals, a_decode_node_that_reads_is_predicted_too)
{
    static const char *const extra[] = {"--ttft-target-ms", "20000", "--speed-stale-ms", "0", NULL};
    struct buffer body = {0};
    serving_start(extra);
    decode.read_tokens_per_s = 100;
    fake_worker_connect(&decode);
    struct client client, first;
    post(&client, 5000, "", "");
    expect_refused(&client, "ttft_target", "the target is 20000 ms", &body);
    cr_expect_geq(number_after(body.data, "predicted "), 50000);
    cr_expect_leq(number_after(body.data, "a prompt of "), 2000);
    cr_expect_eq(decode.job_count, 0, "nobody has heard of it");
    /* What another one has to be read first counts until its first token. */
    post(&first, 1500, "", "");
    WAIT_FOR(&router, decode.job_count == 1);
    fake_worker_heartbeat(&decode, 5000, 100);
    post(&client, 150, "", "");
    const int after_s = expect_refused(&client, "ttft_target", "no prompt", &body);
    cr_expect(after_s > 1 && after_s <= 50, "%d s for 5000 tokens", after_s);
    fake_worker_heartbeat(&decode, 0, 100);
    fake_reserved(&decode, &decode.jobs[0], STATUS_OK);
    fake_tokens(&decode, &decode.jobs[0], 0, "a", FINISH_NONE);
    WAIT_FOR(&router, client_metric(&router, "baton_time_to_first_token_seconds_count") == 1);
    post(&client, 150, "", "");
    WAIT_FOR(&router, decode.job_count == 2);
    client_close(&first);
    client_close(&client);
    WAIT_FOR(&router, decode.cancel_count == 2);
    serving_expect_idle();
    buffer_free(&body);
    router_process_stop(&router);
}

/* After a moment without work a node's speed is doubted, until it has some. */
Test(refusals, one_is_let_in_where_nothing_was_measured_lately)
{
    static const char *const extra[] = {"--ttft-target-ms", "20000", "--speed-stale-ms", "1", NULL};
    struct buffer body = {0};
    serving_start(extra);
    serving_connect(false);
    decode.automatic = true;
    const uint64_t rested_ns = clock_now_ns(clock_monotonic()) + 2 * NS_PER_MS;
    WAIT_FOR(&router, clock_now_ns(clock_monotonic()) > rested_ns);
    struct client first, client;
    post(&first, 5000, "", "");
    WAIT_FOR(&router, prefill.job_count == 1);
    post(&client, 5000, "", "");
    expect_refused(&client, "ttft_target", "the target is 20000 ms", &body);
    cr_expect_eq(prefill.job_count, 1);
    client_close(&first);
    WAIT_FOR(&router, prefill.cancel_count == 1);
    serving_expect_idle();
    buffer_free(&body);
    router_process_stop(&router);
}

Test(refusals, a_deadline_of_the_clients_own)
{
    static const char *const extra[] = {"--speed-stale-ms", "0", NULL};
    struct buffer body = {0};
    serving_start(extra);
    serving_connect(false);
    struct client client;
    post(&client, 5000, "", "X-Deadline-Ms: 30000\r\n");
    expect_refused(&client, "deadline_unattainable", "left of its deadline", &body);
    cr_expect_geq(number_after(body.data, "predicted "), 50000);
    cr_expect_leq(number_after(body.data, "request came, and "), 30000);
    cr_expect_leq(number_after(body.data, "a prompt of "), 3000);
    cr_expect_eq(client_metric(&router, "baton_admission_refusals_total{reason=\"deadline\"}"), 1);
    buffer_free(&body);
    /* One that could be met is a limit for all that follows. */
    post(&client, 10, "", "X-Deadline-Ms: 6000\r\n");
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_status(&client), 504);
    cr_expect(strstr(client.in.data, "limit of 6000 ms"), "%s", client.in.data);
    client_close(&client);
    WAIT_FOR(&router, decode.cancel_count == decode.job_count);
    static const char *const wrong[] = {"0",   "-1",       "abc",
                                        "1.5", "86400001", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char header[64];
        snprintf(header, sizeof header, "X-Deadline-Ms: %s\r\n", wrong[i]);
        post(&client, 10, "", header);
        WAIT_FOR(&router, client_complete(&client));
        cr_expect_eq(client_status(&client), 400, "%s", wrong[i]);
        cr_expect(strstr(client.in.data, "\"param\":\"X-Deadline-Ms\""), "%s", client.in.data);
        client_close(&client);
    }
    serving_expect_idle();
    router_process_stop(&router);
}

/* Everybody waits for the one that has asked for a reservation and got none. */
static void fill_queue(struct client *waiting, uint32_t count, const char *const *fields)
{
    for (uint32_t i = 0; i < count; i++) {
        char series[] = "baton_requests_queued";
        post(&waiting[i], 100 + i, fields ? fields[i] : "", "");
        if (i == 0) {
            WAIT_FOR(&router, decode.job_count == 1);
            fake_reserved(&decode, &decode.jobs[0], STATUS_BUSY);
        }
        WAIT_FOR(&router, client_metric(&router, series) == i + 1);
    }
}

static void expect_full(const char *option, const char *value)
{
    const char *const extra[] = {option, value, NULL};
    struct buffer body = {0};
    serving_start(extra);
    serving_connect(false);
    struct client waiting[2], client;
    fill_queue(waiting, 2, NULL);
    post(&client, 100, "", "");
    cr_expect_geq(expect_refused(&client, "overloaded", "would wait for a place", &body), 1);
    cr_expect_eq(client_metric(&router, "baton_admission_refusals_total{reason=\"queue\"}"), 1);
    decode.automatic = prefill.automatic = true;
    fake_worker_heartbeat(&decode, 0, 100);
    for (int i = 0; i < 2; i++) {
        WAIT_FOR(&router, client_complete(&waiting[i]));
        cr_expect_eq(client_status(&waiting[i]), 200);
        client_close(&waiting[i]);
    }
    serving_expect_idle();
    buffer_free(&body);
    router_process_stop(&router);
}

/* Two prompts of 1,000 tokens are being read at 100 a second, and the router takes no third
 * request: it is told to come when they are done. */
Test(refusals, no_place_at_all_is_told_when_there_will_be_one)
{
    enum { PROMPT = 1000, SECONDS = 2 * PROMPT / 100 };
    static const char *const extra[] = {"--max-requests", "2", NULL};
    struct buffer body = {0};
    struct client reading[2], client;
    serving_start(extra);
    serving_connect(false);
    for (uint32_t i = 0; i < 2; i++) {
        post(&reading[i], PROMPT, "", "");
        WAIT_FOR(&router, decode.job_count == i + 1);
    }
    post(&client, 100, "", "");
    const int after_s = expect_refused(&client, "overloaded", "as many as it takes", &body);
    cr_expect(after_s >= SECONDS / 2 && after_s <= SECONDS * 2, "%d", after_s);
    cr_expect_eq(number_after(body.data, "try again in "), after_s);
    for (int i = 0; i < 2; i++)
        client_close(&reading[i]);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_inflight") == 0);
    serving_expect_idle();
    buffer_free(&body);
    router_process_stop(&router);
}

/* The decode node says that it writes 100 tokens a second: two answers get one each every 20 ms.
 * The one that is there is charged as 256 tokens. */
Test(refusals, tokens_that_would_come_too_far_apart)
{
    static const char *const extra[] = {"--tpot-target-ms", "15", NULL};
    struct buffer body = {0};
    struct client writing, client;
    serving_start(extra);
    serving_connect(false);
    post(&writing, 100, ",\"max_completion_tokens\":1000", "");
    WAIT_FOR(&router, decode.job_count == 1);
    post(&client, 100, "", "");
    const int after_s = expect_refused(&client, "tpot_target", "the target is 15 ms", &body);
    cr_expect(after_s >= 2 && after_s <= 5, "%d", after_s);
    cr_expect_float_eq(number_after(body.data, "predicted "), 20, 0.1, "%s", body.data);
    cr_expect_eq(client_metric(&router, "baton_admission_refusals_total{reason=\"tpot\"}"), 1);
    client_close(&writing);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_inflight") == 0);
    serving_expect_idle();
    buffer_free(&body);
    router_process_stop(&router);
}

/* What waits has answers too: of 1,000 tokens at most, charged as 256 of them, at 100 a second. */
Test(refusals, a_full_queue_is_told_when_its_answers_will_be_written)
{
    enum { WAITING = 4, SECONDS = WAITING * 256 / 100 + 1 };
    static const char *const extra[] = {"--queue-requests", "4", NULL};
    const char *fields[WAITING];
    struct buffer body = {0};
    struct client waiting[WAITING], client;
    serving_start(extra);
    serving_connect(false);
    for (int i = 0; i < WAITING; i++)
        fields[i] = ",\"max_completion_tokens\":1000";
    fill_queue(waiting, WAITING, fields);
    post(&client, 100, "", "");
    const int after_s = expect_refused(&client, "overloaded", "the limit is 4", &body);
    cr_expect(after_s >= SECONDS && after_s <= 2 * SECONDS, "%d", after_s);
    for (int i = 0; i < WAITING; i++)
        client_close(&waiting[i]);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_queued") == 0);
    serving_expect_idle();
    buffer_free(&body);
    router_process_stop(&router);
}

Test(refusals, too_many_requests_wait)
{
    expect_full("--queue-requests", "2");
}

Test(refusals, too_many_tokens_wait)
{
    expect_full("--queue-tokens", "250");
}

Test(refusals, too_many_bytes_wait)
{
    expect_full("--queue-bytes", "800");
}

/* A long prompt that comes while another one waits, of which one of the nodes holds all but the
 * last page and says so. The prefill node reads 100 tokens a second: all of it would be too late.
 */
static void expect_cached_waits(struct fake_worker *holder)
{
    enum { PROMPT = 3000, PAGE = 64, HELD = PROMPT / PAGE };
    static const char *const extra[] = {
        "--ttft-target-ms", "20000", "--local-prefill-tokens", "64", "--speed-stale-ms", "0", NULL};
    int32_t ids[PROMPT];
    uint64_t hashes[HELD];
    struct buffer body = {0};
    for (int i = 0; i < PROMPT; i++)
        ids[i] = 97;
    cr_assert_eq(prefix_hashes(ids, PROMPT, PAGE, 0, hashes), HELD);
    serving_start(extra);
    serving_connect(false);
    struct client waiting[2], client;
    fill_queue(waiting, 1, NULL);
    post(&client, PROMPT, "", "");
    expect_refused(&client, "ttft_target", "the target is 20000 ms", &body);
    cr_expect_geq(number_after(body.data, "predicted "), PROMPT * 10);
    /* A decode node that says anything may have room again: the first one asks, and is refused. */
    const uint32_t asked = decode.job_count;
    fake_worker_news(holder, true, 0, hashes, HELD);
    if (holder == &decode) {
        WAIT_FOR(&router, decode.job_count == asked + 1);
        fake_reserved(&decode, &decode.jobs[asked], STATUS_BUSY);
    }
    post(&waiting[1], PROMPT, "", "");
    WAIT_FOR(&router, client_metric(&router, "baton_requests_queued") == 2);
    cr_expect_eq(client_metric(&router, "baton_admission_refusals_total{reason=\"ttft\"}"), 1);
    for (int i = 0; i < 2; i++)
        client_close(&waiting[i]);
    WAIT_FOR(&router, client_metric(&router, "baton_requests_queued") == 0);
    serving_expect_idle();
    buffer_free(&body);
    router_process_stop(&router);
}

Test(refusals, what_a_prefill_node_holds_is_not_read_again)
{
    expect_cached_waits(&prefill);
}

/* It lacks no more than it may read itself. */
Test(refusals, what_a_decode_node_holds_needs_no_prefill_node)
{
    expect_cached_waits(&decode);
}

/* Prompts are told apart by their length. */
Test(refusals, the_urgent_go_first)
{
    static const char *const fields[] = {"", ",\"priority\":5", ",\"priority\":-1", "",
                                         ",\"priority\":-1"};
    static const uint32_t order[] = {102, 104, 100, 103, 101};
    /* However far apart they come on a busy machine. */
    static const char *const extra[] = {"--priority-wait-ms", "1h", NULL};
    serving_start(extra);
    serving_connect(false);
    struct client waiting[5];
    fill_queue(waiting, 5, fields);
    const uint32_t refused = decode.job_count;
    decode.automatic = prefill.automatic = true;
    fake_worker_heartbeat(&decode, 0, 100);
    for (int i = 0; i < 5; i++) {
        WAIT_FOR(&router, client_complete(&waiting[i]));
        cr_expect_eq(client_status(&waiting[i]), 200);
        client_close(&waiting[i]);
    }
    cr_assert_eq(decode.job_count, refused + 5);
    for (int i = 0; i < 5; i++)
        cr_expect_eq(decode.jobs[refused + (uint32_t)i].prompt_count, order[i], "turn %d: %u", i,
                     decode.jobs[refused + (uint32_t)i].prompt_count);
    serving_expect_idle();
    router_process_stop(&router);
}

/* Of two decode nodes and two prefill nodes, a session keeps one each while they are there. */
Test(refusals, a_session_keeps_its_workers)
{
    static const char *const extra[] = {"--slow-start-ms", "0", NULL};
    struct fake_worker other_prefill, other_decode;
    serving_start(extra);
    fake_worker_init(&other_prefill, &router, WORKER_PREFILL, "p1");
    fake_worker_init(&other_decode, &router, WORKER_DECODE, "d1");
    serving_connect(false);
    fake_worker_connect(&other_prefill);
    fake_worker_connect(&other_decode);
    struct fake_worker *first_decode = NULL, *first_prefill = NULL;
    for (uint32_t i = 0; i < 6; i++) {
        struct client client;
        const uint32_t decodes = decode.job_count, others = other_decode.job_count;
        const uint32_t prefills = prefill.job_count;
        post(&client, 20 + i, "", "X-Session-Affinity: chat-7\r\n");
        WAIT_FOR(&router, decode.job_count + other_decode.job_count == decodes + others + 1);
        struct fake_worker *node = decode.job_count > decodes ? &decode : &other_decode;
        fake_reserved(node, &node->jobs[node->job_count - 1], STATUS_OK);
        WAIT_FOR(&router, prefill.job_count + other_prefill.job_count == i + 1);
        struct fake_worker *reader = prefill.job_count > prefills ? &prefill : &other_prefill;
        if (i == 0) {
            first_decode = node;
            first_prefill = reader;
        }
        cr_expect_eq(node, first_decode, "turn %u", i);
        cr_expect_eq(reader, first_prefill, "turn %u", i);
        client_close(&client);
        WAIT_FOR(&router, node->cancel_count == i + 1);
    }
    fake_worker_close(first_decode);
    struct fake_worker *left = first_decode == &decode ? &other_decode : &decode;
    struct client client;
    WAIT_FOR(&router, client_metric(&router, "baton_workers{role=\"decode\",state=\"up\"}") == 1);
    post(&client, 20, "", "X-Session-Affinity: chat-7\r\n");
    WAIT_FOR(&router, left->job_count == 1);
    client_close(&client);
    router_process_stop(&router);
}

/* Nodes of a version that knows no grammars would write what they like. */
Test(refusals, what_a_node_does_not_know_is_not_asked_of_it)
{
    static const char fields[] = ",\"guided_regex\":\"[a-z]+\"";
    static const char *const extra[] = {"--slow-start-ms", "0", NULL};
    struct fake_worker newer;
    struct client client;
    struct buffer body = {0};
    serving_start(extra);
    prefill.grammars = decode.grammars = 0;
    serving_connect(false);
    post(&client, 20, fields, "");
    expect_refused(&client, "no_workers", "keeps to grammars", &body);
    cr_expect_eq(decode.job_count, 0, "nobody has heard of it");
    fake_worker_init(&newer, &router, WORKER_DECODE, "d1");
    newer.grammars = 1u << 3;
    fake_worker_connect(&newer);
    for (uint32_t i = 0; i < 4; i++) {
        post(&client, 20, fields, "");
        WAIT_FOR(&router, newer.job_count == i + 1);
        cr_expect_eq(newer.jobs[i].grammar_kind, 3);
        cr_expect_str_eq(newer.jobs[i].grammar, "[a-z]+");
        cr_expect(newer.jobs[i].local, "the prefill node does not know it either");
        client_close(&client);
        WAIT_FOR(&router, newer.cancel_count == i + 1);
    }
    post(&client, 20, ",\"response_format\":{\"type\":\"json_object\"}", "");
    expect_refused(&client, "no_workers", "keeps to grammars", &body);
    cr_expect_eq(decode.job_count + prefill.job_count, 0);
    buffer_free(&body);
    router_process_stop(&router);
}

/* Nor does one score prompts that passes the wish over. */
Test(refusals, who_does_not_score_prompts_is_not_asked_to)
{
    static const char fields[] = ",\"prompt_logprobs\":1";
    static const char *const extra[] = {"--slow-start-ms", "0", NULL};
    struct fake_worker newer;
    struct client client;
    struct buffer body = {0};
    serving_start(extra);
    prefill.abilities = decode.abilities = 0;
    serving_connect(false);
    post(&client, 20, fields, "");
    expect_refused(&client, "no_workers", "No decode node that scores prompts", &body);
    cr_expect_eq(decode.job_count, 0, "nobody has heard of it");
    fake_worker_init(&newer, &router, WORKER_DECODE, "d1");
    fake_worker_connect(&newer);
    post(&client, 20, fields, "");
    WAIT_FOR(&router, newer.job_count == 1);
    cr_expect_eq(newer.jobs[0].scores, 2);
    cr_expect(newer.jobs[0].local, "the prefill node does not score either");
    client_close(&client);
    WAIT_FOR(&router, newer.cancel_count == 1);
    cr_expect_eq(decode.job_count + prefill.job_count, 0);
    buffer_free(&body);
    router_process_stop(&router);
}

/* All of a prompt that is scored has to be read, whatever is cached of it. */
Test(refusals, a_prompt_that_is_scored_is_predicted_whole)
{
    enum { PAGE = 64, PAGES = 60, PROMPT = PAGE * PAGES + 10 };
    static const char *const extra[] = {"--ttft-target-ms", "20000", "--speed-stale-ms", "0", NULL};
    static const char scored[] = ",\"prompt_logprobs\":0";
    struct buffer body = {0};
    int32_t ids[PROMPT];
    uint64_t hashes[PAGES];
    for (int i = 0; i < PROMPT; i++)
        ids[i] = 97;
    cr_assert_eq(prefix_hashes(ids, PROMPT, PAGE, 0, hashes), PAGES);
    serving_start(extra);
    serving_connect(false);
    decode.automatic = true;
    fake_worker_news(&prefill, true, 0, hashes, PAGES);
    struct client client, first;
    post(&client, PROMPT, scored, "");
    expect_refused(&client, "ttft_target", "the target is 20000 ms", &body);
    cr_expect_geq(number_after(body.data, "predicted "), PROMPT * 10);
    cr_expect_eq(prefill.job_count, 0);
    post(&first, PROMPT, "", "");
    WAIT_FOR(&router, prefill.job_count == 1);
    cr_expect_eq(client_metric(&router, "baton_placement_cached_tokens_total"), PAGE * PAGES,
                 "what is cached is known all the same");
    client_close(&first);
    WAIT_FOR(&router, prefill.cancel_count == 1);
    serving_expect_idle();
    buffer_free(&body);
    router_process_stop(&router);
}
