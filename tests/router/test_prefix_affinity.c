/* A real router that sends prompts where their beginnings are. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "router/prefix_index.h"
#include "tests/router/serving_fixture.h"

enum { PAGE = 64, PAGES = 5, PROMPT = PAGE * PAGES + 10 };

static struct fake_worker second;

/* A prompt of ids that begins with its number; its hashes are those of its full pages. */
static void make_prompt(int number, char body[4096], uint64_t hashes[PAGES])
{
    int32_t ids[PROMPT];
    size_t at = (size_t)snprintf(body, 4096, "{\"max_tokens\":8,\"prompt\":[");
    for (int i = 0; i < PROMPT; i++) {
        ids[i] = i == 0 ? 'a' + number : 'a' + i % 26;
        at += (size_t)snprintf(body + at, 4096 - at, "%s%d", i > 0 ? "," : "", ids[i]);
    }
    snprintf(body + at, 4096 - at, "]}");
    cr_assert_eq(prefix_hashes(ids, PROMPT, PAGE, 0, hashes), PAGES);
}

static void connect_three(void)
{
    serving_connect(true);
    fake_worker_init(&second, &router, WORKER_PREFILL, "p1");
    second.automatic = true;
    second.partner = &decode;
    fake_worker_connect(&second);
}

/* Which of the two prefill nodes read it. */
static struct fake_worker *ask(const char *body)
{
    const uint32_t first_jobs = prefill.job_count, second_jobs = second.job_count;
    cr_assert_eq(client_ask(&router, TEXT_PATH, body, NULL), 200);
    cr_assert_eq(prefill.job_count + second.job_count, first_jobs + second_jobs + 1);
    return prefill.job_count > first_jobs ? &prefill : &second;
}

/* Nobody has told of anything yet: what was sent is expected to be there. */
Test(prefix_affinity, siblings_do_not_scatter)
{
    char body[4096];
    uint64_t hashes[PAGES];
    serving_start(NULL);
    connect_three();
    fake_worker_news(&prefill, true, 0, NULL, 0);
    fake_worker_news(&second, true, 0, NULL, 0);
    for (int number = 0; number < 4; number++) {
        make_prompt(number, body, hashes);
        const struct fake_worker *reader = ask(body);
        for (int i = 0; i < 4; i++)
            cr_assert_eq(ask(body), reader);
    }
    cr_expect_gt(client_metric(&router, "baton_placement_cached_tokens_total"), 15 * PAGES * PAGE);
    serving_expect_idle();
    router_process_stop(&router);
}

Test(prefix_affinity, prompts_go_where_workers_say_their_beginnings_are)
{
    char bodies[2][4096];
    uint64_t hashes[2][PAGES];
    serving_start(NULL);
    connect_three();
    for (int i = 0; i < 2; i++)
        make_prompt(i, bodies[i], hashes[i]);
    fake_worker_news(&prefill, true, 0, hashes[0], PAGES);
    fake_worker_news(&second, true, 0, hashes[1], PAGES);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(ask(bodies[0]), &prefill);
        cr_expect_eq(ask(bodies[1]), &second);
    }
    /* Told in pieces, and taken back. */
    uint8_t went[PAGES * 8];
    for (int i = 0; i < PAGES; i++)
        store_le64(went + i * 8, hashes[0][i] & ~(uint64_t)1);
    fake_worker_news_bytes(&prefill, false, PAGES, went, sizeof went);
    fake_worker_news(&second, false, PAGES, hashes[0], 2);
    fake_worker_news(&second, false, PAGES + 2, hashes[0] + 2, PAGES - 2);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(ask(bodies[0]), &second);
    cr_expect_eq(prefill.anew_asked + second.anew_asked, 0);
    router_process_stop(&router);
}

/* Events that are missing make everything doubtful: it is all asked for again. */
Test(prefix_affinity, a_gap_is_seen_and_mended)
{
    char body[4096];
    uint64_t hashes[PAGES];
    serving_start(NULL);
    connect_three();
    make_prompt(0, body, hashes);
    fake_worker_news(&second, true, 0, NULL, 0);
    fake_worker_news(&prefill, true, 0, hashes, PAGES);
    fake_worker_news(&prefill, false, PAGES + 1, NULL, 0);
    cr_expect_eq(prefill.anew_asked, 1);
    /* A heartbeat on its way meanwhile is of no use, and says so again. */
    fake_worker_news(&prefill, false, PAGES + 1, hashes, 1);
    cr_expect_eq(prefill.anew_asked, 2);
    fake_worker_news(&second, false, 0, hashes, PAGES);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(ask(body), &second, "what the other one told before is forgotten");
    fake_worker_news(&prefill, true, 0, hashes, PAGES);
    cr_expect_eq(prefill.anew_asked, 2);
    fake_worker_news(&second, true, 0, NULL, 0);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(ask(body), &prefill);
    router_process_stop(&router);
}

/* Another life of a node holds nothing of what the one before told. */
Test(prefix_affinity, a_restarted_worker_begins_with_nothing)
{
    char body[4096];
    uint64_t hashes[PAGES];
    serving_start(NULL);
    connect_three();
    make_prompt(0, body, hashes);
    fake_worker_news(&prefill, true, 0, hashes, PAGES);
    cr_expect_eq(ask(body), &prefill);
    fake_worker_close(&prefill);
    WAIT_FOR(&router, client_metric(&router, "baton_workers{role=\"prefill\",state=\"up\"}") == 1);
    fake_worker_init(&prefill, &router, WORKER_PREFILL, "p0");
    prefill.automatic = true;
    prefill.partner = &decode;
    fake_worker_connect(&prefill);
    fake_worker_news(&prefill, true, 0, NULL, 0);
    fake_worker_news(&second, true, 0, hashes, PAGES);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(ask(body), &second);
    router_process_stop(&router);
}

/* What a node did not get to read is not in its pages. */
Test(prefix_affinity, a_prompt_that_was_not_read_is_not_expected)
{
    char body[4096];
    uint64_t hashes[PAGES];
    serving_start(NULL);
    serving_connect(false);
    decode.automatic = true;
    fake_worker_news(&prefill, true, 0, NULL, 0);
    make_prompt(0, body, hashes);
    struct client client;
    client_open(&client, &router);
    client_post(&client, TEXT_PATH, body);
    WAIT_FOR(&router, prefill.job_count == 1);
    client_close(&client);
    WAIT_FOR(&router, prefill.cancel_count == 1);
    prefill.automatic = true;
    cr_assert_eq(client_ask(&router, TEXT_PATH, body, NULL), 200);
    cr_expect_eq(client_metric(&router, "baton_placement_cached_tokens_total"), 0);
    cr_assert_eq(client_ask(&router, TEXT_PATH, body, NULL), 200);
    cr_expect_eq(client_metric(&router, "baton_placement_cached_tokens_total"), PAGES * PAGE);
    router_process_stop(&router);
}

/* But what it has told of meanwhile is: it does not tell of that again. */
Test(prefix_affinity, pages_of_a_cancelled_prompt_that_were_told_stay)
{
    enum { TOLD = 3 };
    char body[4096];
    uint64_t hashes[PAGES];
    serving_start(NULL);
    serving_connect(false);
    decode.automatic = true;
    fake_worker_news(&prefill, true, 0, NULL, 0);
    make_prompt(0, body, hashes);
    struct client client;
    client_open(&client, &router);
    client_post(&client, TEXT_PATH, body);
    WAIT_FOR(&router, prefill.job_count == 1);
    fake_worker_news(&prefill, false, 0, hashes, TOLD);
    client_close(&client);
    WAIT_FOR(&router, prefill.cancel_count == 1);
    prefill.automatic = true;
    cr_assert_eq(client_ask(&router, TEXT_PATH, body, NULL), 200);
    cr_expect_eq(client_metric(&router, "baton_placement_cached_tokens_total"), TOLD * PAGE);
    serving_expect_idle();
    router_process_stop(&router);
}

Test(prefix_affinity, news_that_make_no_sense_end_the_link)
{
    serving_start(NULL);
    connect_three();
    fake_worker_news_bytes(&second, true, 0, "0123456789", 10);
    WAIT_FOR(&router, second.closed);
    cr_expect(strstr(second.close_text, "10 bytes"), "%s", second.close_text);
    cr_expect_eq(client_fetch(&router, "/health", NULL), 200);
    router_process_stop(&router);
}

/* With news before anything was told. */
static void expect_served(const char *index_pages, uint32_t anew_asked)
{
    const char *const extra[] = {"--prefix-index-pages", index_pages, NULL};
    char body[4096];
    uint64_t hashes[PAGES];
    serving_start(extra);
    connect_three();
    fake_worker_news(&prefill, false, 7, NULL, 0);
    cr_expect_eq(prefill.anew_asked, anew_asked);
    for (int number = 0; number < 4; number++) {
        make_prompt(number, body, hashes);
        fake_worker_news(&prefill, number == 0, (uint64_t)number * PAGES, hashes, PAGES);
        ask(body);
    }
    serving_expect_idle();
    cr_expect_eq(router_process_stop(&router), 0);
}

Test(prefix_affinity, without_an_index)
{
    expect_served("0", 0);
}

Test(prefix_affinity, with_an_index_of_one_page)
{
    expect_served("1", 1);
}
