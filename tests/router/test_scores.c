/* Scores of a prompt's own tokens: told with the echo or beside the answer, all of them, each once.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "base/check.h"
#include "tests/router/serving_fixture.h"

/* A made-up worker scores the token at position p with -p and the rank 100 + p. */
static const struct {
    const char *name, *path, *body;
    uint32_t scores; /* as the prefill node hears it */
    const char *parts[4];
} rows[] = {
    {"echo with log-probabilities",
     TEXT_PATH,
     "{\"prompt\":\"hello x\",\"echo\":true,\"logprobs\":1}",
     2,
     {"\"text\":\"hello xanswer\"", "\"tokens\":[\"hello\",\" \",\"x\",\"a\",\"n\",",
      "\"token_logprobs\":[null,-1,-2,-0.5,-0.5,",
      "\"top_logprobs\":[null,{\"A\":-0.25,\" "
      "\":-1},{\"A\":-0.25,\"x\":-2},{\"A\":-1,\"a\":-0.5}"}},
    {"where they stand",
     TEXT_PATH,
     "{\"prompt\":\"hello x\",\"echo\":true,\"logprobs\":0}",
     1,
     {"\"text_offset\":[0,5,6,7,8,"}},
    {"a prompt of one token",
     TEXT_PATH,
     "{\"prompt\":\"x\",\"echo\":true,\"logprobs\":0,\"max_tokens\":0}",
     1,
     {"\"text\":\"x\"", "\"token_logprobs\":[null],\"top_logprobs\":[null],\"text_offset\":[0]"}},
    {"no answer at all",
     TEXT_PATH,
     "{\"prompt\":\"hello x\",\"echo\":true,\"logprobs\":0,\"max_tokens\":0}",
     1,
     {"\"text\":\"hello x\"", "\"token_logprobs\":[null,-1,-2],", "\"finish_reason\":\"length\"",
      "\"completion_tokens\":0"}},
    {"no answer, and none asked for",
     TEXT_PATH,
     "{\"prompt\":\"hello x\",\"echo\":true,\"max_tokens\":0}",
     0,
     {"\"text\":\"hello x\",\"logprobs\":null", "\"completion_tokens\":0"}},
    {"no answer, streamed",
     TEXT_PATH,
     "{\"prompt\":\"hello x\",\"echo\":true,\"logprobs\":0,\"max_tokens\":0,\"stream\":true}",
     1,
     {"\"text\":\"hello x\"", "\"token_logprobs\":[null,-1,-2],", "\"finish_reason\":\"length\"",
      "[DONE]"}},
    {"ids are those of the answer",
     TEXT_PATH,
     "{\"prompt\":\"hello x\",\"echo\":true,\"logprobs\":0,\"return_token_ids\":true}",
     1,
     {"\"prompt_token_ids\":[259,32,120],\"token_ids\":[97,110,"}},
    {"beside an answer",
     TEXT_PATH,
     "{\"prompt\":\"hello x\",\"prompt_logprobs\":1}",
     2,
     {"\"text\":\"answer\",\"logprobs\":null,\"prompt_logprobs\":[null,{\"32\":{\"logprob\":-1,"
      "\"rank\":101,\"decoded_token\":\" \"},\"65\":{\"logprob\":-0.25,\"rank\":1,"
      "\"decoded_token\":\"A\"}},{\"120\":{\"logprob\":-2,\"rank\":102,"}},
    {"beside a chat",
     CHAT_PATH,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"prompt_logprobs\":0}",
     1,
     {"}],\"prompt_logprobs\":[null,{\""}},
    {"both, as many as the one that wants more",
     TEXT_PATH,
     "{\"prompt\":\"hello x\",\"prompt_logprobs\":2,\"echo\":true,\"logprobs\":1}",
     3,
     {"\"top_logprobs\":[null,{\"A\":-0.25,\" \":-1},", "\"66\":{\"logprob\":-1.25,\"rank\":2,"}},
    {"every choice begins with them",
     TEXT_PATH,
     "{\"prompt\":[\"hello x\",\"x\"],\"echo\":true,\"logprobs\":0,\"max_tokens\":0}",
     1,
     {"\"token_logprobs\":[null,-1,-2],", "\"token_logprobs\":[null],"}},
};

Test(scores, come_back)
{
    serving_start(NULL);
    serving_connect(true);
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct buffer body = {0};
        const uint32_t job = prefill.job_count;
        cr_expect_eq(client_ask(&router, rows[i].path, rows[i].body, &body), 200, "%s: %s",
                     rows[i].name, body.data);
        cr_assert_gt(prefill.job_count, job, "%s", rows[i].name);
        cr_expect_eq(prefill.jobs[job].scores, rows[i].scores, "%s: %u", rows[i].name,
                     prefill.jobs[job].scores);
        for (size_t k = 0; k < ARRAY_COUNT(rows[i].parts) && rows[i].parts[k]; k++)
            cr_expect(strstr(body.data, rows[i].parts[k]), "%s lacks %s: %s", rows[i].name,
                      rows[i].parts[k], body.data);
        buffer_free(&body);
    }
    serving_expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

/* Workers are asked for a token, though none is wanted. */
Test(scores, of_a_prompt_alone_are_no_answer)
{
    static const struct {
        const char *series;
        double value;
    } metrics[] = {
        {"baton_prompt_tokens_cached_total", 2},
        {"baton_output_tokens_total", 0},
        {"baton_time_to_first_token_seconds_count", 0},
        {"baton_answer_time_seconds_count", 0},
        {"baton_request_output_tokens_sum", 0},
        {"baton_request_finish_total{reason=\"length\"}", 1},
    };
    struct client client;
    serving_start(NULL);
    serving_connect(false);
    client_open(&client, &router);
    client_post(&client, TEXT_PATH, "{\"prompt\":\"hello x\",\"echo\":true,\"max_tokens\":0}");
    WAIT_FOR(&router, prefill.job_count == 1);
    cr_expect_eq(prefill.jobs[0].max_tokens, 1);
    prefill.cached_tokens = 2;
    fake_tokens(&prefill, &prefill.jobs[0], 0, "a", FINISH_STOP);
    WAIT_FOR(&router, client_complete(&client));
    cr_expect_eq(client_status(&client), 200);
    for (size_t i = 0; i < ARRAY_COUNT(metrics); i++)
        cr_expect_eq(client_metric(&router, metrics[i].series), metrics[i].value, "%s",
                     metrics[i].series);
    client_close(&client);
    serving_expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

/* A request for scores of "hello x", with a prefill node that can give them. */
static void reach(struct client *client)
{
    client_open(client, &router);
    client_post(client, TEXT_PATH,
                "{\"prompt\":\"hello x\",\"echo\":true,\"logprobs\":0,\"max_tokens\":1}");
}

Test(scores, that_are_missing_are_a_fault_of_the_worker)
{
    serving_start(NULL);
    serving_connect(false);
    for (uint32_t missing = 1; missing <= 2; missing++) {
        struct client client;
        const uint32_t job = prefill.job_count;
        reach(&client);
        WAIT_FOR(&router, prefill.job_count == job + 1);
        if (missing == 2)
            fake_score(&prefill, &prefill.jobs[job], 1);
        else
            fake_score(&prefill, &prefill.jobs[job], 2);
        if (missing == 2)
            fake_tokens(&prefill, &prefill.jobs[job], 0, "a", FINISH_LENGTH);
        WAIT_FOR(&router, client_complete(&client));
        cr_expect_eq(client_status(&client), 500);
        WAIT_FOR(&router, prefill.jobs[job].cancelled);
        client_close(&client);
    }
    serving_expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(scores, of_a_client_that_leaves_are_nobodys)
{
    struct client client;
    serving_start(NULL);
    serving_connect(false);
    for (uint32_t told = 0; told <= 2; told++) {
        const uint32_t job = prefill.job_count;
        reach(&client);
        WAIT_FOR(&router, prefill.job_count == job + 1);
        for (uint32_t i = 1; i <= told; i++)
            fake_score(&prefill, &prefill.jobs[job], i);
        fake_worker_heartbeat(&prefill, 0, 100); /* answered: the router has read them */
        client_close(&client);
        WAIT_FOR(&router, prefill.jobs[job].cancelled);
        fake_score(&prefill, &prefill.jobs[job], told + 1);
        fake_tokens(&prefill, &prefill.jobs[job], 0, "a", FINISH_LENGTH);
    }
    serving_expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(scores, are_each_told_once_when_another_node_begins_anew)
{
    struct fake_worker other;
    serving_start(NULL);
    serving_connect(false);
    fake_worker_init(&other, &router, WORKER_PREFILL, "p1");
    fake_worker_connect(&other);
    struct client client;
    reach(&client);
    WAIT_FOR(&router, prefill.job_count + other.job_count == 1);
    struct fake_worker *first = prefill.job_count == 1 ? &prefill : &other;
    struct fake_worker *second = first == &prefill ? &other : &prefill;
    fake_score(first, &first->jobs[0], 1);
    fake_failed(first, &first->jobs[0], STATUS_INTERNAL, "for the test");
    WAIT_FOR(&router, second->job_count == 1);
    fake_score(second, &second->jobs[0], 1);
    fake_score(second, &second->jobs[0], 2);
    fake_tokens(second, &second->jobs[0], 0, "a", FINISH_LENGTH);
    WAIT_FOR(&router, client_complete(&client));
    struct buffer body = {0};
    client_body(&client, &body);
    cr_expect(strstr(body.data, "\"token_logprobs\":[null,-1,-2,-0.5]"), "%s", body.data);
    buffer_free(&body);
    client_close(&client);
    serving_expect_idle();
    fake_worker_close(&other);
    cr_expect_eq(router_process_stop(&router), 0);
}

/* What takes more room than --stream-buffer in the first piece of a stream: scores with 20
 * alternatives, or ids. */
enum { STREAM_BUFFER = 32768 };
static const char *const little[] = {"--stream-buffer", "32K", NULL};
static const struct wish {
    uint32_t tokens;
    bool scored;
    const char *fields;
} long_scores = {500, true, "\"echo\":true,\"logprobs\":20"},
  long_ids = {16000, false, "\"return_token_ids\":true"};

/* Up to the first token, with all scores told. */
static void reach_long(struct client *client, const struct wish *wish, bool paused)
{
    struct buffer body = {0};
    buffer_add_text(&body, "{\"prompt\":[120");
    for (uint32_t i = 1; i < wish->tokens; i++)
        buffer_add_text(&body, ",120");
    buffer_printf(&body, "],%s,\"stream\":true,\"max_tokens\":15500}", wish->fields);
    serving_start(little);
    fake_worker_connect(&decode);
    client_open(client, &router);
    if (paused)
        client_pause(client);
    client_post(client, TEXT_PATH, body.data);
    buffer_free(&body);
    WAIT_FOR(&router, decode.job_count == 1);
    cr_assert(decode.jobs[0].local);
    fake_reserved(&decode, &decode.jobs[0], STATUS_OK);
    for (uint32_t i = 1; i < wish->tokens && wish->scored; i++)
        fake_score(&decode, &decode.jobs[0], i);
}

static void expect_whole(const struct wish *wish)
{
    struct client client;
    reach_long(&client, wish, false);
    fake_tokens_apart(&decode, &decode.jobs[0], 0, "ab", FINISH_LENGTH);
    WAIT_FOR(&router, client_complete(&client) || client.closed);
    cr_expect_eq(client_metric(&router, "baton_slow_readers_total"), 0);
    struct buffer body = {0};
    client_body(&client, &body);
    cr_expect_gt(body.size, STREAM_BUFFER);
    cr_expect(body.data && strstr(body.data, "[DONE]"));
    buffer_free(&body);
    client_close(&client);
    serving_expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(scores, that_leave_at_once_are_not_held_against_a_reader)
{
    expect_whole(&long_scores);
}

Test(scores, nor_are_ids_of_a_prompt)
{
    expect_whole(&long_ids);
}

Test(scores, do_not_keep_a_reader_that_takes_nothing)
{
    enum { STEP_TOKENS = 100, STEPS = 150 }; /* more than sockets hold unread */
    struct client slow;
    reach_long(&slow, &long_scores, true);
    char letters[STEP_TOKENS + 1];
    memset(letters, 'x', STEP_TOKENS);
    letters[STEP_TOKENS] = '\0';
    for (uint32_t i = 0; i < STEPS && !decode.jobs[0].cancelled; i++) {
        fake_tokens(&decode, &decode.jobs[0], i * STEP_TOKENS, letters, FINISH_NONE);
        fake_worker_heartbeat(&decode, 0, 100);
    }
    cr_expect(decode.jobs[0].cancelled);
    cr_expect_eq(client_metric(&router, "baton_slow_readers_total"), 1);
    client_resume(&slow);
    WAIT_FOR(&router, slow.closed);
    client_close(&slow);
    serving_expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}
