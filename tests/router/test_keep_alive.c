/* Comments in streams that have nothing to say: when there are some, and what they do not change.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/router/serving_fixture.h"

#define COMMENT ": keep-alive\n\n"

static void start(void)
{
    static const char *const extra[] = {"--sse-keep-alive-ms", "20", NULL};
    serving_start(extra);
    serving_connect(false);
}

static void wait_for_comments(const struct client *client, size_t count)
{
    WAIT_FOR(&router, client->in.data && text_count(client->in.data, COMMENT) >= count);
}

Test(keep_alive, from_the_time_a_prompt_is_read)
{
    start();
    /* Not placed yet: its status is open. Not streamed: there is nothing to put them into. */
    struct client asked, whole, client;
    serving_reach(&asked, true, STAGE_RESERVING);
    const struct fake_job first = decode.jobs[0];
    serving_reach(&whole, false, STAGE_PREFILLING);
    serving_reach(&client, true, STAGE_PREFILLING);
    wait_for_comments(&client, 3);
    cr_expect_eq(client_status(&client), 200);
    cr_expect_null(strstr(client.in.data, "data:"), "%s", client.in.data);
    cr_expect_null(asked.in.data, "%s", asked.in.data);
    cr_expect_null(whole.in.data, "%s", whole.in.data);
    /* What follows is the answer as it would have been, with comments between its events. */
    fake_tokens(&prefill, &prefill.jobs[1], 0, "a", FINISH_NONE);
    WAIT_FOR(&router, strstr(client.in.data, "\"content\":\"a\"") != NULL);
    wait_for_comments(&client, text_count(client.in.data, COMMENT) + 2);
    fake_tokens(&decode, &decode.jobs[2], 1, "b", FINISH_STOP);
    WAIT_FOR(&router, strstr(client.in.data, "data: [DONE]\n\n") != NULL);
    cr_expect_eq(text_count(client.in.data, "HTTP/1.1 "), 1, "%s", client.in.data);
    cr_expect_eq(text_count(client.in.data, "\"role\":\"assistant\""), 1, "%s", client.in.data);
    cr_expect(strstr(client.in.data, "\"content\":\"b\""), "%s", client.in.data);
    fake_failed(&decode, &first, STATUS_INVALID, "no");
    WAIT_FOR(&router, client_complete(&asked));
    cr_expect_neq(client_status(&asked), 200, "%s", asked.in.data);
    client_close(&asked);
    client_close(&whole);
    client_close(&client);
    router_process_stop(&router);
}

/* One prompt has its answer, the other is not placed yet: the stream they share goes on. */
Test(keep_alive, while_another_prompt_waits)
{
    start();
    struct client client;
    client_open(&client, &router);
    client_post(&client, TEXT_PATH, "{\"prompt\":[\"x\",\"y\"],\"stream\":true}");
    WAIT_FOR(&router, decode.job_count == 2);
    fake_reserved(&decode, &decode.jobs[0], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == 1);
    fake_tokens(&prefill, &prefill.jobs[0], 0, "a", FINISH_STOP);
    WAIT_FOR(&router, client.in.data && strstr(client.in.data, "\"finish_reason\":\"stop\""));
    wait_for_comments(&client, text_count(client.in.data, COMMENT) + 3);
    fake_reserved(&decode, &decode.jobs[1], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == 2);
    fake_tokens(&prefill, &prefill.jobs[1], 0, "b", FINISH_STOP);
    WAIT_FOR(&router, strstr(client.in.data, "data: [DONE]\n\n") != NULL);
    cr_expect(strstr(client.in.data, "\"text\":\"b\""), "%s", client.in.data);
    client_close(&client);
    serving_expect_idle();
    router_process_stop(&router);
}

/* Another stream's comments tell the time. */
Test(keep_alive, not_before_all_prompts_are_placed)
{
    start();
    struct client two, one;
    client_open(&two, &router);
    client_post(&two, TEXT_PATH, "{\"prompt\":[\"x\",\"y\"],\"stream\":true}");
    WAIT_FOR(&router, decode.job_count == 2);
    fake_reserved(&decode, &decode.jobs[0], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == 1);
    client_open(&one, &router);
    client_post(&one, TEXT_PATH, "{\"prompt\":\"z\",\"stream\":true}");
    WAIT_FOR(&router, decode.job_count == 3);
    fake_reserved(&decode, &decode.jobs[2], STATUS_OK);
    WAIT_FOR(&router, prefill.job_count == 2);
    wait_for_comments(&one, 3);
    cr_expect_eq(two.in.size, 0);
    fake_reserved(&decode, &decode.jobs[1], STATUS_LIMIT);
    WAIT_FOR(&router, two.closed || client_complete(&two));
    cr_expect_eq(client_status(&two), 400);
    fake_tokens(&prefill, &prefill.jobs[1], 0, "b", FINISH_STOP);
    WAIT_FOR(&router, strstr(one.in.data, "data: [DONE]\n\n") != NULL);
    client_close(&two);
    client_close(&one);
    serving_expect_idle();
    router_process_stop(&router);
}

/* The head is out, so the error is an event. */
Test(keep_alive, what_fails_behind_one_is_an_event)
{
    start();
    struct client client;
    serving_reach(&client, true, STAGE_PREFILLING);
    wait_for_comments(&client, 1);
    fake_failed(&decode, &decode.jobs[0], STATUS_INVALID, "no");
    WAIT_FOR(&router, client.closed);
    cr_expect_eq(client_status(&client), 200);
    cr_expect_eq(text_count(client.in.data, "data: {\"error\":{"), 1, "%s", client.in.data);
    cr_expect_null(strstr(client.in.data, "[DONE]"), "%s", client.in.data);
    client_close(&client);
    serving_expect_idle();
    router_process_stop(&router);
}
