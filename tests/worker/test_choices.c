/* Several answers to one prompt, through real nodes: each is the one that the same seed and choice
 * give alone, whichever of them end, are cancelled or are preempted on the way. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "tests/worker/nodes_fixture.h"

static struct ask hot(uint32_t prompt_count, uint32_t max_tokens, uint32_t choices)
{
    return (struct ask){.prompt = prompt,
                        .prompt_count = prompt_count,
                        .max_tokens = max_tokens,
                        .ignore_eos = true,
                        .temperature = 1.3f,
                        .seed = prompt_count,
                        .choices = choices};
}

static void expect_all(struct fake_answer *answers, uint32_t count, uint32_t tokens)
{
    for (uint32_t i = 0; i < count; i++)
        fake_router_expect(&router, &answers[i], FINISH_LENGTH);
    for (uint32_t i = 0; i < count; i++)
        oracle_compare(&oracle, &answers[i], tokens);
}

/* Prompts around the edges of pages: nothing to share, a last page to copy, none to copy. */
static const uint32_t lengths[] = {1, 63, 64, 65, 128, 129, 300};

/* The prompt was read once and moved once, for all of its choices. */
static bool moved_once(const void *arg)
{
    return ((const struct fake_worker *)arg)->heartbeat.handoffs_done == ARRAY_COUNT(lengths);
}

static void check_lengths(bool apart)
{
    nodes_open(apart, NULL);
    for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
        const struct ask ask = hot(lengths[i], 70, 2 + (uint32_t)i);
        struct fake_answer *answers = fake_router_ask(&router, decode, prefill, &ask);
        expect_all(answers, ask.choices, 70);
        for (uint32_t k = 1; k < ask.choices; k++)
            cr_assert_neq(memcmp(answers[0].tokens, answers[k].tokens, 70 * sizeof *prompt), 0);
    }
    if (apart)
        fake_router_wait(&router, "a hand-off a prompt", moved_once, decode);
    nodes_close();
}

Test(choices, are_those_of_one_process_behind_a_hand_off)
{
    check_lengths(true);
}

Test(choices, are_those_of_one_process_where_the_prompt_is_read)
{
    check_lengths(false);
}

/* The first tokens of some are stop ids: of the first choice, of a later one, of all. */
static void check_first_ends(bool apart)
{
    enum { CHOICES = 4, TOKENS = 20 };
    int32_t free_run[CHOICES][TOKENS];
    nodes_open(apart, NULL);
    struct ask ask = hot(100, TOKENS, CHOICES);
    for (uint32_t i = 0; i < CHOICES; i++) {
        ask.choice = i;
        oracle_generate(&oracle, &ask, TOKENS, free_run[i]);
    }
    const int32_t firsts[CHOICES] = {free_run[0][0], free_run[1][0], free_run[2][0],
                                     free_run[3][0]};
    for (uint32_t from = 0; from <= CHOICES; from++) {
        ask.stop_ids = from == CHOICES ? firsts : &firsts[from];
        ask.stop_count = from == CHOICES ? CHOICES : 1;
        struct fake_answer *answers = fake_router_ask(&router, decode, prefill, &ask);
        for (uint32_t i = 0; i < CHOICES; i++) {
            uint32_t end = TOKENS;
            for (uint32_t t = TOKENS; t-- > 0;) {
                for (uint32_t k = 0; k < ask.stop_count; k++)
                    end = free_run[i][t] == ask.stop_ids[k] ? t : end;
            }
            fake_router_expect(&router, &answers[i], end < TOKENS ? FINISH_STOP : FINISH_LENGTH);
            cr_assert_eq(answers[i].token_count, end, "choice %u", i);
            cr_assert_eq(memcmp(answers[i].tokens, free_run[i], end * sizeof *prompt), 0);
        }
        nodes_wait_idle();
    }
    nodes_close();
}

Test(choices, may_end_with_their_first_token_behind_a_hand_off)
{
    check_first_ends(true);
}

Test(choices, may_end_with_their_first_token_where_the_prompt_is_read)
{
    check_first_ends(false);
}

Test(choices, of_one_token_need_no_decode_node)
{
    nodes_open(true, NULL);
    const struct ask ask = hot(90, 1, 5);
    struct fake_answer *answers = fake_router_ask(&router, NULL, prefill, &ask);
    expect_all(answers, 5, 1);
    nodes_close();
}

static void cancel_all(const struct fake_answer *answers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        fake_router_cancel(&answers[i]);
}

/* After 0, 1, 2, … turns of the loop: in every state a request can be in. */
static void check_cancels(bool apart)
{
    enum { CHOICES = 3, ROUNDS = 24 };
    nodes_open(apart, (const char *[]){"--chunk-tokens", "64", NULL});
    for (uint32_t turns = 0; turns < ROUNDS; turns++) {
        const struct ask ask = hot(500, 1000, CHOICES);
        struct fake_answer *answers = fake_router_ask(&router, decode, prefill, &ask);
        for (uint32_t i = 0; i < turns; i++)
            loop_run_once(router.loop, 2);
        cancel_all(answers, CHOICES);
    }
    nodes_wait_idle();
    const struct ask ask = hot(100, 10, CHOICES);
    expect_all(fake_router_ask(&router, decode, prefill, &ask), CHOICES, 10);
    nodes_close();
}

Test(choices, cancelled_together_give_all_pages_back_behind_a_hand_off)
{
    check_cancels(true);
}

Test(choices, cancelled_together_give_all_pages_back_where_the_prompt_is_read)
{
    check_cancels(false);
}

static bool first_is_there(const void *arg)
{
    return ((const struct fake_answer *)arg)->token_count > 0 || answer_over(arg);
}

/* A router cancels a choice alone when it has met a stop string: after its first token. */
static void check_lone_cancels(bool apart)
{
    enum { CHOICES = 3 };
    nodes_open(apart, NULL);
    for (uint32_t gone = 0; gone < CHOICES; gone++) {
        const struct ask ask = hot(130, 40, CHOICES);
        struct fake_answer *answers = fake_router_ask(&router, decode, prefill, &ask);
        fake_router_wait(&router, "a first token", first_is_there, &answers[gone]);
        const struct msg_cancel cancel = {
            .request = answers[gone].request, .attempt = answers[gone].attempt, .choice = gone};
        cr_assert_eq(link_send(decode->link, MESSAGE_ID_CANCEL, &cancel), STATUS_OK);
        for (uint32_t i = 0; i < CHOICES; i++) {
            if (i == gone)
                continue;
            fake_router_expect(&router, &answers[i], FINISH_LENGTH);
            oracle_compare(&oracle, &answers[i], 40);
        }
        nodes_wait_idle();
        cr_assert_lt(answers[gone].token_count, 41);
    }
    nodes_close();
}

Test(choices, one_alone_may_be_cancelled_behind_a_hand_off)
{
    check_lone_cancels(true);
}

Test(choices, one_alone_may_be_cancelled_where_the_prompt_is_read)
{
    check_lone_cancels(false);
}

static void expect_refused(struct fake_answer *answer, enum status status, const char *words)
{
    fake_router_wait(&router, "refusal", answer_over, answer);
    cr_assert_eq(answer->refused, status, "%s", answer->text);
    cr_assert_not_null(strstr(answer->text, words), "\"%s\" without \"%s\"", answer->text, words);
}

Test(choices, that_have_no_room_are_refused)
{
    /* The second step stops the node until a second one has asked, the third takes long enough for
     * it to be read. */
    nodes_open(false, (const char *[]){"--max-requests", "4", "--context", "256", "--kv-memory",
                                       "480K", "--enable-fault-injection", "--fault",
                                       "engine-step:2:stop,engine-step:3:delay", NULL});
    cr_assert_eq(decode->pages_total, 10);
    struct ask ask = hot(10, 5, 5);
    expect_refused(fake_router_ask(&router, decode, NULL, &ask), STATUS_LIMIT,
                   "5 choices, the decode node holds 4 requests");
    ask = hot(130, 126, 4);
    struct fake_answer *answers = fake_router_ask(&router, decode, NULL, &ask);
    fake_router_wait(&router, "reservation", answer_reserved, answers);
    struct ask small = hot(10, 5, 2);
    struct fake_answer *refused = fake_router_ask(&router, decode, NULL, &small);
    fake_router_continue(&router, &decode_process);
    expect_refused(refused, STATUS_BUSY, "no room for 2 more");
    expect_all(answers, 4, 126);
    expect_all(fake_router_ask(&router, decode, NULL, &small), 2, 5);
    nodes_close();
}

/* Eight pages for four answers of four: those that are preempted give up their hold of what they
 * share, read the prompt again and end up the same. */
Test(choices, are_preempted_and_come_back_the_same)
{
    nodes_open(false, (const char *[]){"--context", "256", "--kv-memory", "384K", NULL});
    cr_assert_eq(decode->pages_total, 8);
    for (uint32_t round = 0; round < 3; round++) {
        const struct ask ask = hot(50 + 5 * round, 180, 4);
        expect_all(fake_router_ask(&router, decode, NULL, &ask), 4, 180);
        nodes_wait_idle();
    }
    cr_assert_gt(decode->heartbeat.decode.preemptions, 0);
    nodes_close();
}

/* Stopped in the middle of everything: the exit code tells of pages that were lost. */
static void check_stop(bool apart)
{
    for (uint32_t turns = 0; turns < 12; turns += 3) {
        nodes_open(apart, (const char *[]){"--drain-ms", "0", "--chunk-tokens", "64", NULL});
        for (uint32_t i = 0; i < 3; i++) {
            const struct ask ask = hot(900, 1000, 4);
            (void)fake_router_ask(&router, decode, prefill, &ask);
        }
        for (uint32_t i = 0; i < turns; i++)
            loop_run_once(router.loop, 2);
        daemon_stop(&decode_process);
        if (prefill != NULL)
            daemon_stop(&prefill_process);
        fake_router_close(&router);
        oracle_close(&oracle);
    }
}

Test(choices, leave_no_page_when_nodes_stop_behind_a_hand_off)
{
    check_stop(true);
}

Test(choices, leave_no_page_when_nodes_stop_where_the_prompt_is_read)
{
    check_stop(false);
}
